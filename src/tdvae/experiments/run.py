"""Train an experiment's runs side by side, evaluate them, and write results and figure."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from tdvae import saved
from tdvae.errors import InputError
from tdvae.experiments import oscillator, oscillator_ablations, oscillator_figure
from tdvae.experiments.oscillator import Preset
from tdvae.experiments.report import Measures, results, show_table, write_results
from tdvae.training.log import Progress
from tdvae.training.loop import check_unused


@dataclass(frozen=True)
class Job:
    """One training: which preset, under what name, with which seed, where."""

    preset: Preset
    name: str
    seed: int
    run_dir: Path
    resume: bool
    progress: Progress


@dataclass(frozen=True)
class Finished:
    measures: Measures
    train_seconds: float | None  # unknown for a training that was interrupted


def run_oscillator(name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train a preset's seeds, each in a folder of ``run_dir``; write results and figure there and into ``out``."""
    preset = oscillator.PRESETS[name]
    seeds = list(preset.seeds) if seed is None else [seed]
    begin = time.monotonic()
    finished = _train_all(
        [Job(preset, name, s, run_dir / f"seed-{s}", resume, "bar" if len(seeds) == 1 else "lines") for s in seeds],
        run_dir,
        out,
    )
    content = results(
        oscillator.NAME, name, seeds, time.monotonic() - begin, [done.measures for done in finished], oscillator.PAPER
    )
    content["train_seconds"] = {str(s): done.train_seconds for s, done in zip(seeds, finished, strict=True)}
    show_table(f"oscillator, preset {name}, {len(seeds)} seed(s)", content["measures"], oscillator.TABLE)
    model = saved.load(run_dir / f"seed-{seeds[0]}")
    for folder in [run_dir, *([out] if out else [])]:
        write_results(folder / "oscillator.json", content)
        oscillator_figure.draw(model, preset.settings, seeds[0], folder / "oscillator.png")
        print(f"wrote {folder / 'oscillator.json'} and {folder / 'oscillator.png'}")
    print(f"try: tdvae rollout {run_dir / f'seed-{seeds[0]}'} --from 60 --jumps 20,1,1,1")


def run_ablations(seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train the recipe and each of its variants once; write their forecasts side by side."""
    seed = 0 if seed is None else seed
    begin = time.monotonic()
    variants = oscillator_ablations.VARIANTS
    jobs = [Job(variant, name, seed, run_dir / name, resume, "lines") for name, variant in variants.items()]
    finished = _train_all(jobs, run_dir, out)
    measures = oscillator_ablations.by_variant(
        {job.name: done.measures for job, done in zip(jobs, finished, strict=True)}
    )
    content = results("oscillator_ablations", "demo", [seed], time.monotonic() - begin, [measures], {})
    content["train_seconds"] = {job.name: done.train_seconds for job, done in zip(jobs, finished, strict=True)}
    show_table("oscillator: one change at a time", content["measures"], oscillator_ablations.TABLE, columns="")
    for folder in [run_dir, *([out] if out else [])]:
        write_results(folder / "oscillator_ablations.json", content)
        print(f"wrote {folder / 'oscillator_ablations.json'}")


def _train_all(jobs: list[Job], run_dir: Path, out: Path | None) -> list[Finished]:
    """One job here; several in processes of one thread each, as many at a time as there are cores."""
    if min(job.seed for job in jobs) < 0:
        raise InputError(f"seed: expected at least 0, got {min(job.seed for job in jobs)}")
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out: expected a folder, and {out} is a file")
    if not jobs[0].resume:
        check_unused(run_dir)
    elif not any((job.run_dir / "config.json").exists() for job in jobs):
        raise InputError(f"--resume: {run_dir} holds no run to resume")
    if len(jobs) == 1:
        return [_train_one(jobs[0])]
    workers = min(len(jobs), _usable_cores())
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _use_one_thread) as pool:
        return list(pool.map(_train_one, jobs))


def _usable_cores() -> int:
    """The cores this process may use, which a scheduler or `taskset` can limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _use_one_thread() -> None:
    torch.set_num_threads(1)


def _train_one(job: Job) -> Finished:
    begin = time.monotonic()
    # A run that was not reached before an interruption has nothing to resume.
    resume = job.resume and (job.run_dir / "config.json").exists()
    oscillator.train(job.preset, job.name, job.seed, job.run_dir, resume, job.progress)
    elapsed = time.monotonic() - begin
    model = saved.load(job.run_dir)
    measures = oscillator.evaluate(model, job.preset.settings, job.preset.test_sequences, job.seed)
    return Finished(measures, None if resume else round(elapsed, 1))
