"""Run an experiment: train its tasks, combine their measures, write results and figures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tdvae.checks import Seed, check_of
from tdvae.errors import InputError
from tdvae.reporting.results import Measures, results, write_results
from tdvae.reporting.tables import show
from tdvae.storage.run_folder import create, locked
from tdvae.training import FitResult, fit
from tdvae.training.log import Progress
from tdvae_paper.experiment import Experiment, P, Task, TrainedRun
from tdvae_paper.jobs import Job, check_folders, run_jobs


def run(
    experiment: Experiment[P], preset_name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool
) -> None:
    """Train the tasks of a preset, each in a subfolder of ``run_dir``. Write results and figures there and to ``out``.

    ``seed`` replaces the seeds of the preset.
    """
    preset = _preset(experiment, preset_name)
    seeds = _seeds(preset.seeds, seed)
    check_folders(run_dir, out, resume)
    create(run_dir)
    with locked(run_dir):
        _run(experiment, preset, preset_name, seeds, run_dir, out, resume)


def _run(
    experiment: Experiment[P],
    preset: P,
    preset_name: str,
    seeds: list[int],
    run_dir: Path,
    out: Path | None,
    resume: bool,
) -> None:
    begin = time.monotonic()
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
    replicates = experiment.combine(
        preset, {task: result.measures for task, result in zip(tasks, finished, strict=True)}
    )
    content = results(experiment.name, preset_name, seeds, time.monotonic() - begin, replicates, experiment.paper)
    content["measures"] |= experiment.overall(preset, seeds, replicates)
    content["train_seconds"] = {task.name: result.train_seconds for task, result in zip(tasks, finished, strict=True)}
    content |= experiment.extras(preset)
    for blocks in experiment.tables(content).values():
        show(experiment.heading(content), blocks)
    _write(experiment, preset, content, runs, [run_dir, *([out] if out else [])])
    if experiment.rollout_options:
        print(f"try: tdvae rollout {runs[0].folder} {experiment.rollout_options}")


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
    training = experiment.training(preset, task)
    info = {"experiment": experiment.name, "preset": preset_name, **training.info}
    if training.start is not None:
        return training.start(run_dir=run_dir, resume=resume, info=info, progress=progress)
    return fit(
        training.learner,
        training.data,
        training.jumps,
        training.config,
        run_dir,
        training.validation,
        resume,
        info,
        progress,
        training.monitor,
    )


def measure(experiment: Experiment[P], preset: P, task: Task, run_dir: Path) -> Measures:
    """Compute the measures of one finished task."""
    return experiment.measure_run(preset, TrainedRun(task, run_dir))


def _write(
    experiment: Experiment[P], preset: P, content: dict[str, Any], runs: list[TrainedRun], folders: Iterable[Path]
) -> None:
    """Write the results and the figures to each folder."""
    for folder in folders:
        path = folder / experiment.file
        write_results(path, content, experiment.block)
        print(f"wrote {path}")
        for figure in experiment.draw(preset, content, runs, folder):
            print(f"wrote {figure}")


def _preset(experiment: Experiment[P], name: str) -> P:
    if name not in experiment.presets:
        raise InputError(f"preset: expected one of {', '.join(experiment.presets)}; got {name}")
    return experiment.presets[name]


def _seeds(preset_seeds: tuple[int, ...], seed: int | None) -> list[int]:
    if seed is not None:
        check_of(Seed)("seed", seed)
    return list(preset_seeds) if seed is None else [seed]
