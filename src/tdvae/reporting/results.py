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
    """Return mean, spread (standard deviation over seeds; None for one seed) and n of every measure, nested alike."""
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
    """Return the content of results/<experiment>.json and of `tdvae eval --json`."""
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
    """Write results, or one block of them. Blocks that the file already has are kept.

    A block holds the results of another experiment: its measures are in ``measures[block]``, the other entries in
    ``blocks[block]``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    existing: dict[str, Any] = read_json(path) if path.exists() else {}
    if block:
        merged = existing or {"experiment": path.stem, "measures": {}}
        blocks = merged.get("blocks", {})
        blocks[block] = {name: value for name, value in content.items() if name != "measures"}
        merged["blocks"], merged["measures"][block] = blocks, content["measures"]
    else:
        kept = existing.get("blocks", {})
        measures = {**content["measures"], **{name: existing["measures"][name] for name in kept}}
        merged = {**content, "measures": measures, **({"blocks": kept} if kept else {})}
    write_file(path, to_json(finite_numbers(merged)))


def read_results(path: Path, block: str = "") -> dict[str, Any] | None:
    """Read results from a file, or one block of them in the same format. Return None if there are none."""
    content: dict[str, Any] = read_json(path) if path.exists() else {}
    blocks = content.pop("blocks", {})
    if block:
        return {**blocks[block], "measures": content["measures"][block]} if block in blocks else None
    if not content.keys() - {"experiment", "measures"}:
        return None  # the file has blocks only
    return {**content, "measures": {name: m for name, m in content["measures"].items() if name not in blocks}}
