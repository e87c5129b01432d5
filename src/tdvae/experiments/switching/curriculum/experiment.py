"""The switching experiment: one stack of runs for each LSTM size and each method."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from tdvae.training import Monitor
from tdvae.training.config import derive_seed

LABELS = {
    "accuracy_tdvae": "TD-VAE",
    "accuracy_next_step": "next-step predictor",
    "accuracy_tdvae_logistic": "TD-VAE, logistic probe",
    "accuracy_next_step_logistic": "next-step, logistic probe",
    "accuracy_bayes": "exact limit",
}


@dataclass(frozen=True)
class ProbeMonitor(Monitor):
    """Logs the accuracy of probes for every run of a stack, by interval."""

    stack: Stack
    data: ProbeData
    preset: Preset

    def measure(self) -> dict[str, float]:
        rows = self.data.accuracy(self.stack.models(), self.preset.probe, probe_times(self.preset))
        return {
            f"accuracy/{interval}/{run}": float(value)
            for interval, row in zip(self.preset.intervals, rows, strict=True)
            for run, value in enumerate(row)
        }


class Switching(Experiment[Preset]):
    """Accuracy of probes that classify which frequency was larger. A replicate is one run of every stack."""

    name = "switching"
    title = "switching"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        """Return one task per size and method, large LSTMs first because they take longest."""
        return [
            Task(seed, f"lstm={size},{method}", f"{size},{method}")
            for seed in seeds
            for size in sorted(preset.sizes, reverse=True)
            for method in METHODS
        ]

    def training(self, preset: Preset, task: Task) -> Training:
        """Train all runs of one size and method as a stack. The probe accuracies are logged in metrics.jsonl."""
        size, method = _size_and_method(task)
        stack = build_stack(preset, size, method, task.seed)
        data = curriculum(preset, task.seed)
        watched = ProbeData.draw(longest(preset), preset.watched_sequences, derive_seed(task.seed, WATCH))
        monitor = ProbeMonitor(stack, watched, preset)
        train = replace(preset.train, steps=len(data.intervals), batch_size=data.block, shuffle=False, seed=task.seed)
        return Training(stack, data, jumps(), train, info={"size": size, "method": method}, monitor=monitor)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        return measure(preset, models, task.seed)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        """Return the accuracies of each run, by measure and cell."""
        return [_run_measures(preset, measures, run) for run in range(preset.runs)]

    def overall(self, preset: Preset, seeds: list[int], replicates: list[Measures]) -> Measures:
        """Return the exact limit of every cell. Its spread is the standard error over the simulated sequences."""
        accuracy, error = bayes_accuracy(preset, seeds[0])
        entry = {"mean": accuracy, "spread": error, "n": preset.bayes_sequences}
        cells = [cell_name(size, interval) for size in preset.sizes for interval in preset.intervals]
        return {"accuracy_bayes": dict.fromkeys(cells, entry)}

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """Return a table with one row per cell of the grid and one column per measure of the preset."""
        measures = content["measures"]
        labels = {name: label for name, label in LABELS.items() if name in measures}
        rows = [
            [*map(str, _parse_cell_name(name)), *(cell(measures[measure][name]) for measure in labels)]
            for name in sorted(measures["accuracy_tdvae"], key=_parse_cell_name)
        ]
        return {self.name: [Table(["LSTM", "interval", *labels.values()], rows)]}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`: mean ± standard deviation over {_number_of_runs(content)} runs, whose weights, "
            f"data and noise differ; {time_of(content)}. The limit's ± is its standard error. The paper shows "
            "this experiment in a figure and gives no number."
        )

    def heading(self, content: dict[str, Any]) -> str:
        return f"switching, preset {content['preset']}, {_number_of_runs(content)} runs a cell"

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


def build_stack(preset: Preset, size: int, method: str, seed: int) -> Stack:
    """Return a stack of untrained runs of one size and method."""
    learners = []
    for run in range(preset.runs):
        torch.manual_seed(derive_seed(seed, WEIGHTS, run))
        learners.append(Learner(build(config(method, size)), METHODS[method]))
    return Stack(learners)


def cell_name(size: int, interval: int) -> str:
    """Return the name of a cell of the grid."""
    return f"lstm={size},interval={interval}"


def learning_curve(metrics: list[dict[str, Any]], interval: int) -> tuple[list[int], list[list[float]]]:
    """Return the logged training steps and, for each, the probe accuracy of every run."""
    steps, accuracies = [], []
    for entry in metrics:
        by_run = [value for name, value in entry.items() if name.startswith(f"accuracy/{interval}/")]
        if by_run:
            steps.append(entry["step"])
            accuracies.append(by_run)
    return steps, accuracies


def _run_measures(preset: Preset, finished: dict[Task, Measures], run: int) -> Measures:
    """Return the measures of one run of every stack."""
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


def _parse_cell_name(name: str) -> tuple[int, int]:
    """Return the size and the interval in a cell's name."""
    size, interval = (int(part.split("=")[1]) for part in name.split(","))
    return size, interval


def _number_of_runs(content: dict[str, Any]) -> int:
    return int(next(iter(content["measures"]["accuracy_tdvae"].values()))["n"])
