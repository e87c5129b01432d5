"""Run an experiment: train its tasks, combine their measures, write results and figures."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tdvae.checks import Seed, check_of
from tdvae.errors import InputError
from tdvae.reporting.results import Measures, results, write_results
from tdvae.reporting.tables import show
from tdvae.storage.run_folder import create, locked
from tdvae.training import FitResult
from tdvae.training.log import Progress
from tdvae_paper.experiment import Experiment, P, Task, TrainedRun, seeds_of
from tdvae_paper.jobs import Job, check_folders, run_jobs

SMOKE = "smoke"


def run(
    experiment: Experiment[P], preset_name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool
) -> None:
    """Train the tasks of a preset, each in a subfolder of ``run_dir``. Write results and figures there and to ``out``.

    ``seed`` replaces the seeds of the preset.
    """
    if preset_name not in experiment.presets:
        raise InputError(f"preset: expected one of {', '.join(experiment.presets)}; got {preset_name}")
    if seed is not None:
        check_of(Seed)("seed", seed)
    check_folders(run_dir, out, resume)
    create(run_dir)
    with locked(run_dir):
        _run(experiment, preset_name, seed, run_dir, out, resume)


def _run(
    experiment: Experiment[P], preset_name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool
) -> None:
    begin = time.monotonic()
    preset = experiment.presets[preset_name]
    seeds = list(preset.seeds) if seed is None else [seed]
    experiment.prepare(preset)
    tasks = experiment.tasks(preset, seeds)
    runs = [TrainedRun(task, run_dir / task.folder) for task in tasks]
    progress: Progress = "bar" if len(tasks) == 1 else "lines"
    finished = run_jobs(
        [
            Job(
                run.folder,
                partial(train, experiment, preset, preset_name, run.task),
                partial(measure, experiment, preset, run.task),
                resume,
                progress,
            )
            for run in runs
        ]
    )
    by_task = dict(zip(tasks, finished, strict=True))
    replicates = experiment.combine(preset, {task: result.measures for task, result in by_task.items()})
    content = results(experiment.name, preset_name, seeds, time.monotonic() - begin, replicates, experiment.paper)
    content["train_seconds"] = {task.folder: result.train_seconds for task, result in by_task.items()}
    experiment.complete(preset, content, replicates)
    for blocks in experiment.tables(content).values():
        show(f"{experiment.title}, preset {preset_name}, seeds {seeds_of(content)}", blocks)
    if preset_name == SMOKE:
        print(f"{SMOKE} is a check, not a training: it shows that all parts run, and its numbers mean nothing")
    for folder in [run_dir] if out is None else [run_dir, out]:
        path = folder / experiment.file
        write_results(path, content, experiment.block)
        for written in [path, *experiment.draw(preset, content, runs, folder)]:
            print(f"wrote {written}")


def train(
    experiment: Experiment[P],
    preset: P,
    preset_name: str,
    task: Task,
    run_dir: Path,
    resume: bool = False,
    progress: Progress = "none",
) -> FitResult:
    """Train one task. The names of the experiment and the preset are saved in the run's info."""
    info = {"experiment": experiment.name, "preset": preset_name}
    return experiment.training(preset, task)(run_dir=run_dir, resume=resume, info=info, progress=progress)


def measure(experiment: Experiment[P], preset: P, task: Task, run_dir: Path) -> Measures:
    """Compute the measures of one finished task."""
    return experiment.measure_run(preset, TrainedRun(task, run_dir))
