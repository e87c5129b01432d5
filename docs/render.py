"""Write into README and docs what is rendered from other files, between a marker and `<!-- end -->`.

- `<!-- table: NAME -->`: a table of results/*.json
- `<!-- value: FILE/KEY/… -->`: one number of the measures of results/FILE.json, within a sentence
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
from tdvae.reporting.tables import Table, markdown
from tdvae.storage.files import read_json
from tdvae_paper.bench import bench, conv_costs, devices
from tdvae_paper.registry import EXPERIMENTS, load

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
PATTERN = re.compile(
    r"(<!-- (table|help): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL
)
VALUE = re.compile(r"(<!-- value: (\w+)/([^>]+) -->).*?(<!-- end -->)")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if PATTERN.search(path.read_text()) or VALUE.search(path.read_text())
)


@cache
def tables() -> dict[str, str]:
    """Return all tables as Markdown, by name, each with a sentence on how its numbers were produced."""
    found = {}
    for experiment in map(load, EXPERIMENTS):
        content = read_results(RESULTS / experiment.file, experiment.block)
        if content is None:
            continue  # not published yet
        for name, blocks in experiment.tables(content).items():
            found[name] = markdown([*blocks, experiment.made(content)])
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
            Table(["", *columns], rows),
            f"`{content['command']}`, seed {content['seeds'][0]}.",
        ]
    )


def value(file: str, keys: str) -> str:
    """Return the mean of one measure, with three digits."""
    entry = read_json(RESULTS / f"{file}.json")["measures"]
    for key in keys.split("/"):
        entry = entry[key]
    return f"{entry['mean']:.3g}"


@cache
def helps() -> dict[str, str]:
    """Return what each command does and its options as Markdown, from the fields of its class and their docstrings."""
    tree = ast.parse(Path(cli.__file__).read_text())
    classes = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef)
    }
    found = {}
    for part in cli.Command.__args__:
        node, name = (
            classes[part.__origin__.__name__],
            part.__metadata__[0].name,
        )
        options, positional = [], []
        for field, text in zip(node.body, node.body[1:], strict=False):
            if not (
                isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
            ):
                continue
            assert isinstance(text.value, ast.Constant)
            annotation, option = (
                ast.unparse(field.annotation),
                ast.unparse(field.target),
            )
            words = " ".join(str(text.value.value).split()).replace("|", "\\|")
            if choices := re.search(r"Literal\[(.*?)\]", annotation):
                words += f" One of {choices[1].replace(chr(39), '`')}."
            elif "ExperimentName" in annotation:
                words += f" One of {', '.join(f'`{experiment}`' for experiment in EXPERIMENTS)}."
            if "Positional" in annotation:
                positional.append(option.upper())
                options.append(f"| `{option.upper()}` | | {words} |")
                continue
            if renamed := re.search(r"name='(\w+)'", annotation):
                option = renamed[1]
            default = (
                "required"
                if field.value is None
                else f"`{_plain(ast.unparse(field.value))}`"
            )
            shown = "" if default in ("`None`", "`False`", "`()`") else default
            options.append(
                f"| `--{option.replace('_', '-')}` | {shown} | {words} |"
            )
        doc = " ".join((ast.get_docstring(node) or "").split())
        head = f"```\ntdvae {' '.join([name, *positional])} [options]\n```\n\n| option | default | meaning |\n|---|---|---|\n"
        found[name] = f"{doc}\n\n{head}" + "\n".join(options)
    return found


def _plain(default: str) -> str:
    """A default value as it is written on the command line."""
    return re.sub(r"^Path\((.*)\)$", r"\1", default).strip("'")


def rendered(text: str) -> str:
    """Return the text of a page with everything between its markers rendered again."""
    sources = {"table": tables, "help": helps}
    text = PATTERN.sub(
        lambda match: f"{match[1]}{sources[match[2]]()[match[3]]}\n{match[4]}",
        text,
    )
    return VALUE.sub(
        lambda match: f"{match[1]}{value(match[2], match[3])}{match[4]}", text
    )


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(rendered(path.read_text()))
