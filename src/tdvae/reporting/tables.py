"""Tables of text: `show` prints them to the terminal, `markdown` formats them for the docs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable

from tdvae.reporting.results import Measures

MAX_HEADING, MAX_LABEL = 10, 30  # longer headings and row labels may be wrapped between words; in characters
ROUNDING = 1e-9  # relative; equal numbers have a spread of about 1e-16


@dataclass(frozen=True)
class Table:
    """Column headings and rows of text. The first column holds the row labels."""

    columns: list[str]
    rows: list[list[str]]

    def transposed(self) -> Table:
        """The table with rows and columns exchanged."""
        columns, *rows = (list(line) for line in zip(self.columns, *self.rows, strict=True))
        return Table(columns, rows)

    @property
    def widths(self) -> list[int]:
        """The width of each column: its longest cell, or its heading (wrapped between words if it is long)."""
        headings = [len(name) if len(name) <= MAX_HEADING else max(map(len, name.split())) for name in self.columns]
        cells = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return [max(heading, cell) for heading, cell in zip(headings, cells, strict=True)]

    @property
    def width(self) -> int:
        """The number of characters per line on a terminal, including the borders."""
        return sum(width + 3 for width in self.widths) + 1

    @property
    def least_width(self) -> int:
        """The width if long row labels are wrapped between words."""
        return self.width - max(0, self.widths[0] - MAX_LABEL)


Block = Table | str  # a table, or a sentence between tables


def cell(entry: dict[str, Any] | None) -> str:
    """Format a summarised measure as mean ± spread; empty for None. What does not depend on the seed has no spread."""
    if entry is None:
        return ""
    mean, spread = entry["mean"], entry["spread"] or 0.0
    spread = f" ± {spread:.3f}" if spread > ROUNDING * abs(mean) else ""
    return f"{mean:.1e}{spread}" if 0 < abs(mean) < 5e-4 else f"{mean:.3f}{spread}"


def significant(value: float, least: float) -> str:
    """A number with as many decimals as give ``least``, a number of the same kind, three digits."""
    if not math.isfinite(value) or not math.isfinite(least) or least == 0:
        return f"{value:.3g}"
    decimals = 2 - math.floor(math.log10(abs(least)))
    return f"{value:.3g}" if decimals > 6 or abs(value) >= 1e9 else f"{value:,.{max(0, decimals)}f}"


def by_key(rows: Iterable[tuple[str, Measures]], heading: str = "{}", corner: str = "") -> Table:
    """A table with one row per (label, measures) and one column per key of the measures (a δt, a model)."""
    rows = list(rows)
    keys = list(dict.fromkeys(key for _, measures in rows for key in measures))
    cells = [[label, *[cell(measures.get(key)) for key in keys]] for label, measures in rows]
    return Table([corner, *[heading.format(key) for key in keys]], cells)


def flat(measures: Measures, labels: dict[str, str]) -> Table:
    """A table with one number per row. A nested measure has one row per entry; the key fills the label's {}."""
    rows = []
    for name, label in labels.items():
        entry = measures.get(name, {})
        entries = {"": entry} if "mean" in entry else entry
        rows += [[label.format(key), cell(value)] for key, value in entries.items()]
    return Table(["", ""], rows)


def markdown(blocks: list[Block]) -> str:
    """Format the blocks as Markdown, separated by empty lines."""
    return "\n\n".join(block if isinstance(block, str) else _markdown_table(block) for block in blocks)


def _markdown_table(table: Table) -> str:
    heading = "|".join(f" {name} " if name else " " for name in table.columns)
    lines = [f"|{heading}|", "|---" * len(table.columns) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in table.rows)])


def show(heading: str, blocks: list[Block]) -> None:
    """Print the blocks to standard output. A table wider than the terminal is transposed if that is narrower."""
    console = Console(markup=False)  # users' names of columns may look like markup
    for block in blocks:
        if isinstance(block, str):
            console.print(block)
            continue
        plain = Table(block.columns, [[text.replace("`", "") for text in row] for row in block.rows])
        fits = plain.least_width <= console.width
        table = plain if fits else min(plain, plain.transposed(), key=lambda form: form.least_width)
        if not console.is_terminal:  # a log file has no fixed width, so nothing needs wrapping
            console.width = max(console.width, table.width)
        console.print(_rich_table(heading, table))


def _rich_table(heading: str, table: Table) -> RichTable:
    """Fix the column widths so that headings may wrap but numbers do not."""
    first, *others = zip(table.columns, table.widths, strict=True)
    columns = [Column(first[0]), *[Column(name, width=width) for name, width in others]]
    rich = RichTable(*columns, title=heading, title_justify="left")
    for row in table.rows:
        rich.add_row(*row)
    return rich
