"""The experiment with a curriculum: one stack of runs for each LSTM size and each method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae.training.config import derive_seed
from tdvae_paper.experiment import Task, TrainedRun, Training
from tdvae_paper.switching.curriculum.presets import METHODS, PRESETS, Preset, config, curriculum, jumps
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

LABELS = {
    "accuracy_tdvae": "TD-VAE",
    "accuracy_next_step": "next-step predictor",
    "accuracy_tdvae_logistic": "TD-VAE, logistic probe",
    "accuracy_next_step_logistic": "next-step, logistic probe",
    "accuracy_bayes": "exact limit",
}
FORGETTING_PROBE = "logistic"  # kind of probe for the steps within the interval


class SwitchingCurriculumGrid(GridExperiment[Preset]):
    """Accuracy of probes that classify which frequency was larger. A replicate is one run of every stack."""

    name = "switching_curriculum"
    title = "switching, with a curriculum"
    results_name = "switching"
    block = "curriculum"
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
        stack = build_stack(config(method, size), METHODS[method], preset.runs, task.seed)
        data = curriculum(preset, task.seed)
        monitor = monitor_of(preset, stack, preset.intervals, task.seed)
        train = replace(preset.train, steps=len(data.intervals), batch_size=data.block, shuffle=False, seed=task.seed)
        return Training(stack, data, jumps(), train, info={"size": size, "method": method}, monitor=monitor)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        seed = derive_seed(task.seed, PROBE)
        return measure(models, preset.intervals, preset.probe_sequences, seed, FORGETTING_PROBE)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        """Return the accuracies of each run, by measure and cell."""
        return [_run_measures(preset, measures, run) for run in range(preset.runs)]

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """Return a table with one row per cell of the grid and one column per measure of the preset."""
        measures = content["measures"]
        labels = {name: label for name, label in LABELS.items() if name in measures}
        return {self.name: [table_of_cells(measures, labels)]}

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.switching.curriculum import figure

        curves = {
            (size, interval, method): learning_curve(run.metrics, interval)
            for run in runs
            for size, method in [_size_and_method(run.task)]
            for interval in preset.intervals
        }
        path = folder / "switching_curriculum.png"
        figure.draw(preset, content["measures"], curves, path)
        return [path]


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
