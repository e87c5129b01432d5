"""The one shape of results: measures with mean and spread over seeds, their origin, the paper's numbers beside ours."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

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


def write_results(path: Path, content: dict[str, Any], block: str = "") -> None:
    """Write results, or one block of them, and keep the blocks that the file has already.

    A block is measured by an experiment of its own. Its measures are ``measures[block]``, and how they were made is
    ``blocks[block]``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    existing: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if block:
        merged = existing or {"experiment": path.stem, "measures": {}}
        blocks = merged.get("blocks", {})
        blocks[block] = {name: value for name, value in content.items() if name != "measures"}
        merged["blocks"], merged["measures"][block] = blocks, content["measures"]
    else:
        kept = existing.get("blocks", {})
        measures = {**content["measures"], **{name: existing["measures"][name] for name in kept}}
        merged = {**content, "measures": measures, **({"blocks": kept} if kept else {})}
    write_file(path, to_json(merged))


def read_results(path: Path, block: str = "") -> dict[str, Any] | None:
    """The results in a file, or one block of them in the same shape; None if they are not there."""
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    blocks = content.pop("blocks", {})
    if block:
        return {**blocks[block], "measures": content["measures"][block]} if block in blocks else None
    if not content.keys() - {"experiment", "measures"}:
        return None  # the file has blocks only
    return {**content, "measures": {name: m for name, m in content["measures"].items() if name not in blocks}}
