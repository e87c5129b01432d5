"""Train an experiment's seeds side by side, evaluate them, and write results and figure."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tdvae import saved
from tdvae.errors import InputError
from tdvae.experiments import oscillator, oscillator_figure
from tdvae.experiments.report import Measures, results, show_table, write_results


@dataclass(frozen=True)
class SeedResult:
    measures: Measures
    wall_seconds: float


def run_oscillator(preset_name: str, seeds: list[int] | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train every seed in its own folder of ``run_dir``; write results.json and the figure there and into ``out``."""
    preset = _preset(preset_name)
    seeds = list(preset.seeds) if seeds is None else seeds
    if len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise InputError(f"seeds: expected different numbers of at least 0, got {seeds}")
    if not resume and run_dir.exists() and any(run_dir.iterdir()):
        raise InputError(f"run_dir: {run_dir} exists and is not empty; add --resume, or choose another folder")
    begin = time.monotonic()
    jobs = [(preset_name, seed, run_dir / f"seed-{seed}", resume, len(seeds) == 1) for seed in seeds]
    if len(seeds) == 1:
        finished = [_one_seed(*jobs[0])]
    else:
        workers = min(len(seeds), os.cpu_count() or 1)
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _use_one_thread) as pool:
            finished = list(pool.map(_one_seed, *zip(*jobs, strict=True)))
    content = results(
        oscillator.NAME,
        preset_name,
        seeds,
        time.monotonic() - begin,
        [done.measures for done in finished],
        oscillator.PAPER,
    )
    content["train_seconds"] = {
        str(seed): round(done.wall_seconds, 1) for seed, done in zip(seeds, finished, strict=True)
    }
    show_table(f"oscillator, preset {preset_name}, {len(seeds)} seed(s)", content["measures"], oscillator.TABLE)
    model = saved.load(run_dir / f"seed-{seeds[0]}")
    for folder in [run_dir, *([out] if out else [])]:
        write_results(folder / f"{oscillator.NAME}.json", content)
        oscillator_figure.draw(model, preset, seeds[0], folder / f"{oscillator.NAME}.png")
        print(f"wrote {folder / f'{oscillator.NAME}.json'} and {folder / f'{oscillator.NAME}.png'}")


def _preset(name: str) -> oscillator.Preset:
    if name not in oscillator.PRESETS:
        raise InputError(f"preset: unknown {name!r}; known: {sorted(oscillator.PRESETS)}")
    return oscillator.PRESETS[name]


def _use_one_thread() -> None:
    torch.set_num_threads(1)


def _one_seed(preset_name: str, seed: int, run_dir: Path, resume: bool, progress: bool) -> SeedResult:
    preset = _preset(preset_name)
    info: dict[str, Any] = {"experiment": oscillator.NAME, "preset": preset_name, "seed": seed}
    begin = time.monotonic()
    # A seed that was not reached before an interruption has nothing to resume.
    started = (run_dir / "config.json").exists()
    oscillator.train(preset, seed, run_dir, resume and started, info, progress)
    elapsed = time.monotonic() - begin
    return SeedResult(oscillator.evaluate(saved.load(run_dir), preset, seed), elapsed)
