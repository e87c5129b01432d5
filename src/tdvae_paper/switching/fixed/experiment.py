"""The experiment with fixed intervals: one stack of runs for each LSTM size, interval and method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tdvae.jumps import Consecutive
from tdvae.models import Model, TDVAEConfig
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae.training.config import derive_seed
from tdvae_paper.experiment import Task, TrainedRun, Training
from tdvae_paper.switching.fixed.methods import METHODS, Method, with_observed_state
from tdvae_paper.switching.fixed.presets import PRESETS, Preset, sequences
from tdvae_paper.switching.grid import (
    PROBE,
    GridExperiment,
    build_stack,
    cell_name,
    learning_curve,
    monitor_of,
    table_of_cells,
)
from tdvae_paper.switching.measures import measure

DIFFERENCE = "placeless_difference"  # TD-VAE minus next-step predictor, both with the switch unknown


class Switching(GridExperiment[Preset]):
    """Accuracy of probes that classify which frequency was larger. A replicate is one run of every stack."""

    name = "switching"
    title = "switching"
    presets = PRESETS
    methods: dict[str, Method] = METHODS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        """Return one task per seed, size, interval and method."""
        return [
            Task(seed, f"{cell_name(size, interval)},{method},seed={seed}", f"{size},{interval},{method}")
            for seed in seeds
            for size in preset.sizes
            for interval in preset.intervals
            for method in self.methods
        ]

    def training(self, preset: Preset, task: Task) -> Training:
        """Train all runs of a cell and method as a stack. The probe accuracies are logged in metrics.jsonl."""
        size, interval, name = parts_of(task)
        method = self.methods[name]
        config = method.config(size)
        if preset.observed_state and isinstance(config, TDVAEConfig):
            config = with_observed_state(config)
        stack = build_stack(config, method.objective, preset.runs, task.seed)
        data = sequences(preset, interval, task.seed)
        monitor = monitor_of(preset, stack, (interval,), task.seed)
        train = replace(preset.train, batch_size=data.block, shuffle=False, seed=task.seed)
        info = {"size": size, "interval": interval, "method": name}
        if method.jumps is None:  # its loss uses no pairs
            return Training(stack, data, Consecutive(), replace(train, pairs=1), info=info, monitor=monitor)
        # As many pairs as the predictor's loss has terms. With fewer, the gradient is too noisy to learn to remember.
        train = replace(train, pairs=preset.pairs or int(data.lengths[0]))
        return Training(stack, data, method.jumps(interval), train, info=info, monitor=monitor)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        _, interval, _ = parts_of(task)
        return measure(models, [interval], preset.probe_sequences, derive_seed(task.seed, PROBE), preset.probe)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        """Return the accuracies of each run of each seed, by measure and cell, and the difference of two methods."""
        replicates = [
            _run_measures(preset, {task: m for task, m in measures.items() if task.seed == seed}, run)
            for seed in dict.fromkeys(task.seed for task in measures)
            for run in range(preset.runs)
        ]
        for of_run in replicates:
            placeless, next_step = of_run["accuracy_tdvae_placeless"], of_run["accuracy_next_step"]
            of_run[DIFFERENCE] = {name: placeless[name] - next_step[name] for name in placeless}
        return replicates

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """Return a table with one row per cell of the grid and one column per method."""
        measures = content["measures"]
        names = [*(f"accuracy_{name}" for name in self.methods), "accuracy_bayes", DIFFERENCE]
        labels = [
            *(method.label for method in self.methods.values()),
            "exact limit",
            "TD-VAE − next-step, switch unknown",
        ]
        return {self.name: [table_of_cells(measures, dict(zip(names, labels, strict=True)))]}

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.switching.fixed import figure

        curves: dict[tuple[int, int, str], tuple[list[int], list[list[float]]]] = {}
        for run in runs:
            _, interval, _ = parts = parts_of(run.task)
            steps, accuracies = learning_curve(run.metrics, interval)
            for row, more in zip(curves.setdefault(parts, (steps, [[] for _ in steps]))[1], accuracies, strict=True):
                row += more  # the runs of all seeds
        path = folder / f"{self.name}.png"
        figure.draw(preset, self.methods, content["measures"], curves, path)
        return [path]


def parts_of(task: Task) -> tuple[int, int, str]:
    """Return the size, the interval and the name of the method of a task."""
    size, interval, method = task.variant.split(",")
    return int(size), int(interval), method


def _run_measures(preset: Preset, finished: dict[Task, Measures], run: int) -> Measures:
    """Return the measures of one run of every stack."""
    measures: Measures = {}
    for task, measured in finished.items():
        size, interval, method = parts_of(task)
        name = cell_name(size, interval)
        for kind, by_interval in measured["grid"].items():
            suffix = "" if kind == preset.probe else f"_{kind}"
            measures.setdefault(f"accuracy_{method}{suffix}", {})[name] = by_interval[str(interval)][run]
        for t, accuracies in measured["on_the_way"].items():
            measures.setdefault(f"accuracy_{method}_at", {})[f"{name},t={t}"] = accuracies[run]
    return measures
