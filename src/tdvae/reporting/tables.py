"""Tables as text, described once: `show` prints them on a terminal, `markdown` writes them for the docs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable

from tdvae.reporting.results import Measures

UNBROKEN, UNBROKEN_LABEL = 10, 30  # characters of a heading, and of a row's label, that stay on one line


@dataclass(frozen=True)
class Table:
    """Headings and rows of text. The first column holds the rows' labels."""

    columns: list[str]
    rows: list[list[str]]

    def turned(self) -> Table:
        """Rows as columns and columns as rows."""
        columns, *rows = (list(line) for line in zip(self.columns, *self.rows, strict=True))
        return Table(columns, rows)

    @property
    def widths(self) -> list[int]:
        """The width of each column's longest cell or of its heading, of which a long one is broken between words."""
        words = [len(name) if len(name) <= UNBROKEN else max(map(len, name.split())) for name in self.columns]
        cells = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return [max(both) for both in zip(words, cells, strict=True)]

    @property
    def width(self) -> int:
        """The characters that a line takes on a terminal, with its borders."""
        return sum(width + 3 for width in self.widths) + 1

    @property
    def least_width(self) -> int:
        """The same, where long labels of rows are broken between words."""
        return self.width - max(0, self.widths[0] - UNBROKEN_LABEL)


Block = Table | str  # a table, or a sentence between tables


def cell(entry: dict[str, Any] | None) -> str:
    """A summarised measure as text: mean ± spread. Nothing, where there is none."""
    if entry is None:
        return ""
    spread = "" if entry["spread"] is None else f" ± {entry['spread']:.3f}"
    mean = entry["mean"]
    return f"{mean:.1e}{spread}" if 0 < abs(mean) < 5e-4 else f"{mean:.3f}{spread}"


def by_key(rows: Iterable[tuple[str, Measures]], heading: str = "{}", corner: str = "") -> Table:
    """A row for each label with its measures, and a column for each of their keys (a δt, a model)."""
    rows = list(rows)
    keys = list(dict.fromkeys(key for _, measures in rows for key in measures))
    cells = [[label, *[cell(measures.get(key)) for key in keys]] for label, measures in rows]
    return Table([corner, *[heading.format(key) for key in keys]], cells)


def flat(measures: Measures, labels: dict[str, str]) -> Table:
    """One number per row. A measure that nests has a row for each entry, whose key fills the label's braces."""
    rows = []
    for name, label in labels.items():
        entry = measures.get(name, {})
        entries = {"": entry} if "mean" in entry else entry
        rows += [[label.format(key), cell(value)] for key, value in entries.items()]
    return Table(["", ""], rows)


def markdown(blocks: list[Block]) -> str:
    """The blocks as Markdown, with empty lines between them."""
    return "\n\n".join(block if isinstance(block, str) else _markdown_table(block) for block in blocks)


def _markdown_table(table: Table) -> str:
    heading = "|".join(f" {name} " if name else " " for name in table.columns)
    lines = [f"|{heading}|", "|---" * len(table.columns) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in table.rows)])


def show(heading: str, blocks: list[Block]) -> None:
    """Print the blocks on standard output. A table that is wider than the terminal is turned, if that helps."""
    console = Console()
    for block in blocks:
        if isinstance(block, str):
            console.print(block)
            continue
        plain = Table(block.columns, [[text.replace("`", "") for text in row] for row in block.rows])
        fits = plain.least_width <= console.width
        table = plain if fits else min(plain, plain.turned(), key=lambda form: form.least_width)
        if not console.is_terminal:  # a log has no width: no number is broken
            console.width = max(console.width, table.width)
        console.print(_rich_table(heading, table))


def _rich_table(heading: str, table: Table) -> RichTable:
    """Headings may be broken into lines, numbers not."""
    first, *others = zip(table.columns, table.widths, strict=True)
    columns = [Column(first[0]), *[Column(name, width=width) for name, width in others]]
    rich = RichTable(*columns, title=heading, title_justify="left")
    for row in table.rows:
        rich.add_row(*row)
    return rich
