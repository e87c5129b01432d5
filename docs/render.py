"""Write the tables of README and docs from results/*.json, between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from tdvae.bench import bench, conv_costs, devices
from tdvae.experiments.registry import EXPERIMENTS, load
from tdvae.reporting.results import read_results
from tdvae.reporting.tables import Table, markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
PATTERN = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if PATTERN.search(path.read_text())
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
        found[name] = markdown([*benchmark.tables(content), benchmark.made(content)])
    for name, block in (("bench_devices", _devices), ("campaign", _campaign)):
        content = read_results(RESULTS / f"{name}.json")
        found[name] = "Not published yet." if content is None else block(content)
    return found


def _devices(content: dict[str, Any]) -> str:
    return markdown([*devices.tables(content), devices.made(content)])


def _campaign(content: dict[str, Any]) -> str:
    """The counts of the outcomes, one row per part."""
    measures = content["measures"]
    columns = list(next(iter(measures.values())))
    rows = [[name.replace("_", " "), *[f"{counts[key]:,}" for key in columns]] for name, counts in measures.items()]
    return markdown([Table(["", *columns], rows), f"`{content['command']}`, seed {content['seeds'][0]}."])


def rendered(text: str) -> str:
    """Return the text of a page with its tables replaced by those of the results."""
    return PATTERN.sub(lambda match: f"{match[1]}{tables()[match[2]]}\n{match[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(rendered(path.read_text()))
