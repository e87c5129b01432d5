"""The format of results: measures with mean and spread over seeds, how they were produced, the paper's numbers."""

from __future__ import annotations

import math
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tdvae.storage.files import read_json, to_json, write_file

RESUME = "--resume"  # left out of published commands: a new run has nothing to resume
Measures = dict[str, Any]  # name → number, or name → {δt or model: number}


def summarise(by_seed: list[Measures]) -> Measures:
    """Mean, spread (standard deviation over seeds; None for one seed) and n of every measure, nested alike."""
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
        "resumed": RESUME in sys.argv,  # if so, wall_seconds covers the last part only; train_seconds covers all
        "wall_seconds": round(wall_seconds, 1),
        "measures": summarise(by_seed),
        "paper": paper,
    }


def finite_numbers(value: Any) -> Any:
    """The content of a JSON file, with null in place of infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite_numbers(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_results(path: Path, content: dict[str, Any], block: str = "") -> None:
    """Write the results of an experiment, as a block if the file is that of another one. Other results are kept.

    The measures of a block are in ``measures[block]``, its other entries in ``blocks[block]``.
    """
    by_block = {**_by_block(path), block: content}
    own = by_block.pop("", {"experiment": path.stem, "measures": {}})
    merged = {**own, "measures": {**own["measures"]}}
    for name, results in by_block.items():
        entries = {**results}
        merged["measures"][name] = entries.pop("measures")
        merged.setdefault("blocks", {})[name] = entries
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, to_json(finite_numbers(merged)))


def read_results(path: Path, block: str = "") -> dict[str, Any] | None:
    """Read the results of an experiment, which may be a block of a file. Return None if there are none."""
    return _by_block(path).get(block)


def _by_block(path: Path) -> dict[str, dict[str, Any]]:
    """All results in a file by block, in the same format; "" is the experiment that the file is named after."""
    own: dict[str, Any] = read_json(path) if path.exists() else {}
    blocks = own.pop("blocks", {})
    by_block = {name: {**entries, "measures": own["measures"].pop(name)} for name, entries in blocks.items()}
    if own.keys() - {"experiment", "measures"}:  # otherwise the file has blocks only
        by_block = {"": own, **by_block}
    return by_block
