"""Trainings side by side: each in its own folder, in a process of one thread, as many at a time as there are cores."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from tdvae.errors import InputError
from tdvae.reporting.results import Measures
from tdvae.training import FitResult
from tdvae.training.checkpoint import to_json, write_file
from tdvae.training.log import Progress
from tdvae.training.loop import check_unused

TRAINED, MEASURED = "training.json", "measures.json"  # in the run folder, when a job has come so far


@dataclass(frozen=True)
class Job:
    """One training and its evaluation. Both functions go to another process, so they are module functions or partials
    of them."""

    run_dir: Path
    train: Callable[[Path, bool, Progress], FitResult]  # (run_dir, resume, progress)
    measure: Callable[[Path], Measures]
    resume: bool
    progress: Progress


@dataclass(frozen=True)
class Finished:
    measures: Measures
    train_seconds: float | None  # see FitResult


def check_folders(run_dir: Path, out: Path | None, resume: bool) -> None:
    """Before anything long begins: nothing is overwritten, and what is to be resumed exists."""
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out: expected a folder, and {out} is a file")
    if not resume:
        check_unused(run_dir)
    elif not any(run_dir.glob("*/config.json")):
        raise InputError(f"--resume: {run_dir} holds no run to resume")


def do_all(jobs: list[Job]) -> list[Finished]:
    """Jobs that nothing can run beside are done here; others in processes."""
    workers = min(len(jobs), _usable_cores())
    if workers == 1:
        return [_do(job) for job in jobs]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _use_one_thread) as pool:
        return list(pool.map(_do, jobs))


def _do(job: Job) -> Finished:
    """Train and measure; what an earlier run had finished of it is only read."""
    done, trained = job.run_dir / MEASURED, job.run_dir / TRAINED
    if job.resume and done.exists():
        return Finished(**json.loads(done.read_text()))
    if not (job.resume and trained.exists()):
        # A run that was not reached before an interruption has nothing to resume.
        resume = job.resume and (job.run_dir / "config.json").exists()
        result = job.train(job.run_dir, resume, job.progress)
        write_file(trained, to_json({"seconds": result.seconds}))
    seconds = json.loads(trained.read_text())["seconds"]
    finished = Finished(job.measure(job.run_dir), seconds)
    write_file(done, to_json(finished.__dict__))
    return finished


def _usable_cores() -> int:
    """The cores this process may use, which a scheduler or `taskset` can limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _use_one_thread() -> None:
    torch.set_num_threads(1)
