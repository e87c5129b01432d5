"""Write into README and docs what is rendered from other files, between a marker and `<!-- end -->`.

- `<!-- table: NAME -->`: a table of results/*.json
- `<!-- value: FILE/KEY/… -->`: one number of the measures of results/FILE.json, within a sentence; of `1 / FILE/KEY/…`
  its inverse
- `<!-- help: COMMAND -->`: the options of a command, from `tdvae.cli`
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from tdvae import cli
from tdvae.reporting.results import read_results
from tdvae.reporting.tables import Table, by_key, markdown
from tdvae.storage.files import read_json
from tdvae_paper.bench import bench, conv_costs, devices
from tdvae_paper.oscillator import experiment as oscillator
from tdvae_paper.registry import EXPERIMENTS, load

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
PATTERN = re.compile(
    r"(<!-- (table|help): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL
)
VALUE = re.compile(
    r"(<!--\s+value:\s+(1 / )?(\w+)/([^>]+?)\s+-->).*?(<!-- end -->)"
)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if PATTERN.search(path.read_text()) or VALUE.search(path.read_text())
)


@cache
def tables() -> dict[str, str]:
    """All tables as Markdown, by name, each with a sentence on how its numbers were produced."""
    found = {}
    for experiment in map(load, EXPERIMENTS):
        content = read_results(RESULTS / experiment.file, experiment.block)
        if content is None:
            continue  # not published yet
        for name, blocks in experiment.tables(content).items():
            found[name] = markdown([*blocks, experiment.made(content)])
    content = read_results(RESULTS / "oscillator.json")
    assert content is not None
    short = [
        (oscillator.LABELS[name], content["measures"][name])
        for name in (
            "information_share",
            "information_share_worst",
            "coverage_90",
        )
    ]
    found["oscillator_short"] = markdown(
        [by_key(short, "δt = {}"), oscillator.EXPERIMENT.made(content)]
    )
    for name, benchmark in (("bench", bench), ("conv_costs", conv_costs)):
        content = read_results(RESULTS / f"{name}.json")
        assert content is not None
        found[name] = markdown(
            [*benchmark.tables(content), benchmark.made(content)]
        )
    for name, block in (("bench_devices", _devices), ("campaign", _campaign)):
        content = read_results(RESULTS / f"{name}.json")
        found[name] = (
            "Not published yet." if content is None else block(content)
        )
    return found


def _devices(content: dict[str, Any]) -> str:
    return markdown([*devices.tables(content), devices.made(content)])


def _campaign(content: dict[str, Any]) -> str:
    """The counts of the outcomes, one row per part."""
    measures = content["measures"]
    columns = list(next(iter(measures.values())))
    rows = [
        [name.replace("_", " "), *[f"{counts[key]:,}" for key in columns]]
        for name, counts in measures.items()
    ]
    return markdown(
        [
            Table(
                ["", *[column.replace("_", " ") for column in columns]], rows
            ),
            f"`{content['command']}`, seeds {', '.join(map(str, content['seeds']))}.",
        ]
    )


def value(inverse: str | None, file: str, keys: str) -> str:
    """The mean of one measure, or its inverse."""
    entry = read_json(RESULTS / f"{file}.json")["measures"]
    for key in keys.split("/"):
        entry = entry[key]
    return number(1 / entry["mean"] if inverse else entry["mean"])


def number(mean: float) -> str:
    """Three digits, or all those of a whole number."""
    return f"{mean:,.0f}" if abs(mean) >= 999.5 else f"{mean:.3g}"


@cache
def helps() -> dict[str, str]:
    """What each command does, an example and its options, from its class and the docstrings of the fields."""
    tree = ast.parse(Path(cli.__file__).read_text())
    classes = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef)
    }
    found = {}
    for part in cli.Command.__args__:
        node = classes[part.__origin__.__name__]
        name = part.__metadata__[0].name
        text, _, example = (ast.get_docstring(node) or "").partition("\n\n")
        tables = _options(node, classes)
        found[name] = f"{text}\n\n```\n{example}\n```\n\n" + "\n\n".join(tables)
    return found


def _options(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str]:
    """The options of a class as a table, and those of each group of options in a table of its own."""
    rows, groups = [], []
    for field, text in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign):
            continue
        annotation = ast.unparse(field.annotation)
        if annotation in classes:
            group = classes[annotation]
            (table,) = _options(group, classes)
            title = f"**{_words(field.target)} options.**"
            groups.append(f"{title} {ast.get_docstring(group)}\n\n{table}")
        elif isinstance(text, ast.Expr) and isinstance(
            text.value, ast.Constant
        ):
            rows.append(_row(field, annotation, str(text.value.value)))
    head = "| option | default | meaning |\n|---|---|---|\n"
    return [head + "\n".join(rows), *groups]


def _words(target: ast.expr) -> str:
    return ast.unparse(target).replace("_", " ").capitalize()


def _row(field: ast.AnnAssign, annotation: str, text: str) -> str:
    words = " ".join(text.split()).replace("|", "\\|")
    if choices := re.search(r"Literal\[(.*?)\]", annotation):
        words += f" One of {choices[1].replace(chr(39), '`')}."
    elif "ExperimentName" in annotation:
        words += f" One of {', '.join(f'`{name}`' for name in EXPERIMENTS)}."
    option = ast.unparse(field.target)
    if re.search(r"Positional|^RunFolder|^RunOrName|^DataFile", annotation):
        return f"| `{option.upper()}` | | {words} |"
    if renamed := re.search(r"name='(\w+)'", annotation):
        option = renamed[1]
    placeholder = re.search(r"option\('([A-Z ]+)'", annotation)
    shown = f" {placeholder[1]}" if placeholder else ""
    value = field.value and f"`{_plain(ast.unparse(field.value))}`"
    default = "" if value in ("`None`", "`False`", "`()`") else value
    option = f"--{option.replace('_', '-')}{shown}"
    return f"| `{option}` | {'required' if default is None else default} | {words} |"


def _plain(default: str) -> str:
    """A default value as it is written on the command line."""
    return re.sub(r"^Path\((.*)\)$", r"\1", default).strip("'")


def rendered(text: str) -> str:
    """The text of a page with everything between its markers rendered again."""
    sources = {"table": tables, "help": helps}
    text = PATTERN.sub(
        lambda match: f"{match[1]}{sources[match[2]]()[match[3]]}\n{match[4]}",
        text,
    )
    return VALUE.sub(
        lambda match: f"{match[1]}{value(*match.groups()[1:4])}{match[5]}",
        text,
    )


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(rendered(path.read_text()))
