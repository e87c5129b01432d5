"""Run several trainings in parallel: one run folder and one single-threaded process each, at most one per core.

The processes end with the one that started them, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from tdvae.errors import InputError
from tdvae.reporting.results import Measures
from tdvae.storage.files import read_checked, write_checked
from tdvae.storage.run_folder import check_unused, is_started
from tdvae.training import FitResult
from tdvae.training.log import Progress

TRAINING_FILE, MEASURES_FILE = "training.json", "measures.json"  # written to the run folder after each stage


@dataclass(frozen=True)
class Job:
    """One training and its evaluation. Both functions are pickled for another process: module functions or partials."""

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
    """Raise InputError if a run would be overwritten or a run to resume does not exist. Called before any training."""
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out: expected a folder, got the file {out}")
    if not resume:
        check_unused(run_dir)
    elif not is_started(run_dir):
        raise InputError(f"--resume: expected a run in {run_dir}, found no run to resume")


def run_jobs(jobs: list[Job]) -> list[Finished]:
    """Run all jobs in worker processes, or in this process if there is only one job or one core."""
    workers = min(len(jobs), _usable_cores())
    if workers == 1:
        return [_run_job(job) for job in jobs]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), start_worker) as pool:
        try:
            return list(pool.map(_run_job, jobs))
        except (KeyboardInterrupt, SystemExit):  # SIGINT and SIGTERM do not wait for the trainings
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


def _run_job(job: Job) -> Finished:
    """Train and measure. With ``resume``, stages that an earlier run finished are read from their files."""
    measures_path, training_path = job.run_dir / MEASURES_FILE, job.run_dir / TRAINING_FILE
    if job.resume and measures_path.exists():
        return Finished(**read_checked(measures_path, ("measures", "train_seconds")))
    if not (job.resume and training_path.exists()):
        # A job that had not started before the interruption has no checkpoint to resume.
        result = job.train(job.run_dir, job.resume and is_started(job.run_dir), job.progress)
        write_checked(training_path, {"seconds": result.seconds})
    seconds = read_checked(training_path, ("seconds",)).get("seconds")
    finished = Finished(job.measure(job.run_dir), seconds)
    write_checked(measures_path, finished.__dict__)
    return finished


def _usable_cores() -> int:
    """The number of cores this process may use. A scheduler or `taskset` can limit it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker() -> None:
    """Use one thread, and end with the parent process. A worker would otherwise wait for further jobs for ever."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of a pipe that only the parent holds open: the system closes it even if the parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
