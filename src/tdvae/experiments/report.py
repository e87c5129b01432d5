"""The one shape of results: measures with mean and spread over seeds, their origin, the paper's numbers beside ours."""

from __future__ import annotations

import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from tdvae.training.checkpoint import to_json, write_file

RESUME = "--resume"  # not part of a published command: whoever repeats it has nothing to resume
Measures = dict[str, Any]  # name → number, or name → {δt or model: number}


def summarise(by_seed: list[Measures]) -> Measures:
    """Mean, spread (standard deviation over seeds; null for one) and n of every measure; nests as they do."""
    summary: Measures = {}
    for name, value in by_seed[0].items():
        values = [measures[name] for measures in by_seed]
        if isinstance(value, dict):
            summary[name] = summarise(values)
        else:
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            summary[name] = {"mean": float(np.mean(values)), "spread": spread, "n": len(values)}
    return summary


def results(
    experiment: str, preset: str, seeds: list[int], wall_seconds: float, by_seed: list[Measures], paper: Measures
) -> dict[str, Any]:
    """The content of results/<experiment>.json and of `tdvae eval --json`."""
    return {
        "experiment": experiment,
        "preset": preset,
        "command": shlex.join(["tdvae", *[argument for argument in sys.argv[1:] if argument != RESUME]]),
        "seeds": seeds,
        "versions": {
            **{name: version(name) for name in ("tdvae", "torch", "numpy", "lightning-fabric")},
            "python": platform.python_version(),
        },
        "resumed": RESUME in sys.argv,  # then the wall time is that of the last part; train_seconds tell the whole
        "wall_seconds": round(wall_seconds, 1),
        "measures": summarise(by_seed),
        "paper": paper,
    }


def write_results(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, to_json(content))


def show_table(title: str, measures: Measures, names: dict[str, str], columns: str = "δt = ") -> None:
    """A table of the named measures, a row each and a column for every δt (or model), on standard output."""
    keys = list(dict.fromkeys(key for name in names for key in measures[name]))
    table = Table("", *[f"{columns}{key}" for key in keys], title=title, title_justify="left")
    for name, label in names.items():
        table.add_row(label, *[_cell(measures[name].get(key)) for key in keys])
    Console().print(table)


def show_by_key(title: str, measures: Measures, names: dict[str, str]) -> None:
    """The same, turned: a row for each key and a column for each measure, where keys are many."""
    table = Table(Column(no_wrap=True), *names.values(), title=title, title_justify="left")
    for key in dict.fromkeys(key for name in names for key in measures[name]):
        table.add_row(key, *[_cell(measures[name].get(key)) for name in names])
    Console().print(table)


def show_flat(title: str, measures: Measures, names: dict[str, str]) -> None:
    """A table with one number a row; a measure that nests has a row for each of its entries."""
    table = Table("", "", title=title, title_justify="left")
    for name, label in names.items():
        entry = measures.get(name, {})
        if "mean" in entry:
            table.add_row(label, _cell(entry))
        for key, nested in entry.items() if "mean" not in entry else ():
            table.add_row(f"{label}, {key}", _cell(nested))
    Console().print(table)


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    spread = "" if entry["spread"] is None else f" ± {entry['spread']:.3f}"
    mean = entry["mean"]
    return f"{mean:.1e}{spread}" if 0 < abs(mean) < 5e-4 else f"{mean:.3f}{spread}"
