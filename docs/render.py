"""Writes the tables of README and docs from results/*.json, between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tdvae.bench import bench, conv_costs
from tdvae.experiments.registry import EXPERIMENTS, load
from tdvae.reporting.tables import markdown

ROOT = Path(__file__).resolve().parents[1]
PATTERN = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if PATTERN.search(path.read_text())
)


@cache
def tables() -> dict[str, str]:
    """All tables as Markdown, by name, each with how its numbers were made."""
    found = {}
    for experiment in map(load, EXPERIMENTS):
        if not _path(experiment.name).exists():
            continue  # not published yet
        content = _results(experiment.name)
        for name, blocks in experiment.tables(content).items():
            found[name] = markdown([*blocks, experiment.made(content)])
    for name, benchmark in (("bench", bench), ("conv_costs", conv_costs)):
        content = _results(name)
        found[name] = markdown([*benchmark.tables(content), benchmark.made(content)])
    return found


def _path(name: str) -> Path:
    return ROOT / "results" / f"{name}.json"


def _results(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_path(name).read_text())
    return content


def rendered(text: str) -> str:
    """A page's text with its tables as the results say."""
    return PATTERN.sub(lambda match: f"{match[1]}{tables()[match[2]]}\n{match[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(rendered(path.read_text()))
