"""The switching oscillator as an experiment: a stack of runs for each size of the LSTM and each method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tdvae.experiments.shared.experiment import Experiment, Task, TrainedRun, Training, time_of
from tdvae.experiments.switching.measures import ProbeData, bayes_accuracy, measure, probe_times
from tdvae.experiments.switching.presets import (
    METHODS,
    PRESETS,
    WATCH,
    WEIGHTS,
    Preset,
    config,
    curriculum,
    jumps,
    longest,
)
from tdvae.models import Model, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, cell
from tdvae.stack import Stack
from tdvae.training.config import derive_seed

LABELS = {
    "accuracy_tdvae": "TD-VAE",
    "accuracy_next_step": "next-step predictor",
    "accuracy_tdvae_logistic": "TD-VAE, logistic probe",
    "accuracy_next_step_logistic": "next-step, logistic probe",
    "accuracy_bayes": "exact limit",
}


class Switching(Experiment[Preset]):
    """How often a probe of the belief tells which frequency was larger. A replicate is one run of every stack."""

    name = "switching"
    title = "switching"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        """Large LSTMs first: they take longest."""
        return [
            Task(seed, f"lstm={size},{method}", f"{size},{method}")
            for seed in seeds
            for size in sorted(preset.sizes, reverse=True)
            for method in METHODS
        ]

    def training(self, preset: Preset, task: Task) -> Training:
        """All runs of one size and method, as a stack; the probe's accuracies are followed in metrics.jsonl."""
        size, method = _size_and_method(task)
        stack = stack_of(preset, size, method, task.seed)
        data = curriculum(preset, task.seed)
        watched = ProbeData.draw(longest(preset), preset.watched_sequences, derive_seed(task.seed, WATCH))

        def watch() -> dict[str, float]:
            rows = watched.accuracy(stack.models(), preset.probe, probe_times(preset))
            return {
                f"accuracy/{interval}/{run}": float(value)
                for interval, row in zip(preset.intervals, rows, strict=True)
                for run, value in enumerate(row)
            }

        train = replace(preset.train, steps=len(data.intervals), batch_size=data.block, shuffle=False, seed=task.seed)
        return Training(stack, data, jumps(), train, info={"size": size, "method": method}, watch=watch)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        return measure(preset, models, task.seed)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        """The accuracies of each run, by measure and cell."""
        return [_of_run(preset, measures, run) for run in range(preset.runs)]

    def constants(self, preset: Preset, seeds: list[int]) -> Measures:
        """The exact limit of every cell; its spread is the standard error, over the sequences it was measured on."""
        accuracy, error = bayes_accuracy(preset, seeds[0])
        entry = {"mean": accuracy, "spread": error, "n": preset.bayes_sequences}
        cells = [cell_name(size, interval) for size in preset.sizes for interval in preset.intervals]
        return {"accuracy_bayes": dict.fromkeys(cells, entry)}

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """A row for each cell of the grid; measures that a preset's probes do not give have no column."""
        measures = content["measures"]
        labels = {name: label for name, label in LABELS.items() if name in measures}
        rows = [
            [*map(str, _numbers(name)), *(cell(measures[measure][name]) for measure in labels)]
            for name in sorted(measures["accuracy_tdvae"], key=_numbers)
        ]
        return {self.name: [Table(["LSTM", "interval", *labels.values()], rows)]}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`: mean ± standard deviation over {_runs(content)} runs, whose weights, data and "
            f"noise differ; {time_of(content)}. The limit's ± is its standard error. The paper shows "
            "this experiment in a figure and gives no number."
        )

    def heading(self, content: dict[str, Any]) -> str:
        return f"switching, preset {content['preset']}, {_runs(content)} runs a cell"

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae.experiments.switching import figure

        curves = {
            (size, interval, method): learning_curve(run.metrics, interval)
            for run in runs
            for size, method in [_size_and_method(run.task)]
            for interval in preset.intervals
        }
        path = folder / "switching.png"
        figure.draw(preset, content["measures"], curves, path)
        return [path]


def stack_of(preset: Preset, size: int, method: str, seed: int) -> Stack:
    """Untrained runs of one size and method."""
    learners = []
    for run in range(preset.runs):
        torch.manual_seed(derive_seed(seed, WEIGHTS, run))
        learners.append(Learner(build(config(method, size)), METHODS[method]))
    return Stack(learners)


def cell_name(size: int, interval: int) -> str:
    """The name of a cell of the grid."""
    return f"lstm={size},interval={interval}"


def learning_curve(metrics: list[dict[str, Any]], interval: int) -> tuple[list[int], list[list[float]]]:
    """Training steps, and at each the probe's accuracy of every run."""
    steps, accuracies = [], []
    for entry in metrics:
        of_runs = [value for name, value in entry.items() if name.startswith(f"accuracy/{interval}/")]
        if of_runs:
            steps.append(entry["step"])
            accuracies.append(of_runs)
    return steps, accuracies


def _of_run(preset: Preset, finished: dict[Task, Measures], run: int) -> Measures:
    measures: Measures = {}
    for task, measured in finished.items():
        size, method = _size_and_method(task)
        for kind, by_interval in measured["grid"].items():
            name = f"accuracy_{method}" if kind == preset.probe else f"accuracy_{method}_{kind}"
            for interval, accuracies in by_interval.items():
                measures.setdefault(name, {})[cell_name(size, int(interval))] = accuracies[run]
        for t, accuracies in measured["on_the_way"].items():
            measures.setdefault(f"accuracy_{method}_at", {})[f"lstm={size},t={t}"] = accuracies[run]
    return measures


def _size_and_method(task: Task) -> tuple[int, str]:
    size, method = task.variant.split(",")
    return int(size), method


def _numbers(name: str) -> tuple[int, int]:
    """Size and interval of a cell, from its name."""
    size, interval = (int(part.split("=")[1]) for part in name.split(","))
    return size, interval


def _runs(content: dict[str, Any]) -> int:
    return int(next(iter(content["measures"]["accuracy_tdvae"].values()))["n"])
