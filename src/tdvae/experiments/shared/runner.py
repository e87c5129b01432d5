"""Run an experiment: train its tasks, gather their measures, write results and figures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tdvae.errors import InputError
from tdvae.experiments.shared.experiment import Experiment, P, Task, TrainedRun
from tdvae.experiments.shared.jobs import Job, check_folders, do_all
from tdvae.reporting.results import Measures, results, write_results
from tdvae.reporting.tables import show
from tdvae.training import FitResult, fit
from tdvae.training.log import Progress


def run(
    experiment: Experiment[P], preset_name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool
) -> None:
    """Train a preset's tasks, each in a folder of ``run_dir``; write results and figures there and into ``out``.

    ``seed`` takes the place of the preset's own seeds.
    """
    preset = _preset(experiment, preset_name)
    seeds = _seeds(preset.seeds, seed)
    check_folders(run_dir, out, resume)
    begin = time.monotonic()
    experiment.prepare(preset)
    tasks = experiment.tasks(preset, seeds)
    runs = [TrainedRun(task, run_dir / task.folder) for task in tasks]
    progress: Progress = "bar" if len(tasks) == 1 else "lines"
    finished = do_all(
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
    replicates = experiment.combine(preset, {task: done.measures for task, done in zip(tasks, finished, strict=True)})
    content = results(experiment.name, preset_name, seeds, time.monotonic() - begin, replicates, experiment.paper)
    content["measures"] |= experiment.constants(preset, seeds)
    content["train_seconds"] = {task.name: done.train_seconds for task, done in zip(tasks, finished, strict=True)}
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
    """Train one task; the run's info says which experiment and preset it is of."""
    training = experiment.training(preset, task)
    return fit(
        training.learner,
        training.data,
        training.jumps,
        training.config,
        run_dir,
        training.validation,
        resume,
        {"experiment": experiment.name, "preset": preset_name, **training.info},
        progress,
        training.watch,
    )


def measure(experiment: Experiment[P], preset: P, task: Task, run_dir: Path) -> Measures:
    """Measure one finished task."""
    return experiment.measure(preset, task, TrainedRun(task, run_dir).models)


def _write(
    experiment: Experiment[P], preset: P, content: dict[str, Any], runs: list[TrainedRun], folders: Iterable[Path]
) -> None:
    """The results and the figures, into each folder."""
    for folder in folders:
        path = folder / experiment.file
        write_results(path, content, experiment.block)
        print(f"wrote {path}")
        for drawn in experiment.draw(preset, content, runs, folder):
            print(f"wrote {drawn}")


def _preset(experiment: Experiment[P], name: str) -> P:
    if name not in experiment.presets:
        raise InputError(f"preset: this experiment has {', '.join(experiment.presets)}; got {name}")
    return experiment.presets[name]


def _seeds(of_preset: tuple[int, ...], chosen: int | None) -> list[int]:
    if chosen is not None and chosen < 0:
        raise InputError(f"seed: expected at least 0, got {chosen}")
    return list(of_preset) if chosen is None else [chosen]
