"""The one shape of results: measures with mean and spread over seeds, their origin, the paper's numbers beside ours."""

from __future__ import annotations

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


def write_results(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, to_json(content))
