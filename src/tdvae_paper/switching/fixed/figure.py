"""Accuracy against the interval and along the sequence, and learning curves, for each size of the LSTM."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from tdvae.reporting.results import Measures
from tdvae_paper.switching.fixed.methods import Method
from tdvae_paper.switching.fixed.presets import Preset
from tdvae_paper.switching.grid import cell_name, save_figure
from tdvae_paper.switching.measures import forgetting_times
from tdvae_paper.switching.simulation import OPENING

Curves = dict[tuple[int, int, str], tuple[list[int], list[list[float]]]]  # (size, interval, method) → steps, accuracies


def draw(preset: Preset, methods: dict[str, Method], measures: Measures, curves: Curves, path: Path) -> None:
    """Draw one row per LSTM size. The last two columns show the longest interval."""
    sizes, longest = sorted(preset.sizes), max(preset.intervals)
    figure, axes = plt.subplots(
        len(sizes), 3, figsize=(12, 3.1 * len(sizes) + 0.6), layout="constrained", squeeze=False, sharey=True
    )
    for row, size in zip(axes, sizes, strict=True):
        _draw_by_interval(row[0], size, sorted(preset.intervals), methods, measures)
        _draw_forgetting(row[1], size, longest, methods, measures)
        _draw_learning_curves(row[2], size, longest, methods, curves)
        row[0].set_title(f"LSTM {size}: just before the last interval", fontsize=10)
        row[1].set_title(f"LSTM {size}: within an interval of {longest}", fontsize=10)
        row[2].set_title(f"LSTM {size}: learning, interval {longest}", fontsize=10)
        row[0].set_ylabel(f"accuracy ({preset.probe} probe)")
    save_figure(figure, measures, path, columns=3)
    plt.close(figure)


def _draw_by_interval(
    axes: Axes, size: int, intervals: list[int], methods: dict[str, Method], measures: Measures
) -> None:
    """Draw mean and standard deviation against the interval, each method a little beside the others."""
    for number, (name, method) in enumerate(methods.items()):
        entries = [measures[f"accuracy_{name}"][cell_name(size, interval)] for interval in intervals]
        positions = [interval + 1.2 * (number - (len(methods) - 1) / 2) for interval in intervals]
        axes.errorbar(
            positions,
            [entry["mean"] for entry in entries],
            [entry["spread"] or 0.0 for entry in entries],
            color=method.colour,
            marker="o",
            ms=4,
            capsize=2,
            label=method.label,
        )
    axes.set_xticks(intervals)
    axes.set_xlabel("separating interval")


def _draw_forgetting(axes: Axes, size: int, interval: int, methods: dict[str, Method], measures: Measures) -> None:
    """Draw the accuracy against the number of steps into the separating interval."""
    times = forgetting_times(interval)
    for name, method in methods.items():
        entries = [measures[f"accuracy_{name}_at"][f"{cell_name(size, interval)},t={t}"] for t in times]
        axes.errorbar(
            [t - OPENING for t in times],
            [entry["mean"] for entry in entries],
            [entry["spread"] or 0.0 for entry in entries],
            color=method.colour,
            marker="o",
            ms=3,
        )
    axes.set_xlabel("steps into the separating interval")


def _draw_learning_curves(axes: Axes, size: int, interval: int, methods: dict[str, Method], curves: Curves) -> None:
    """Draw the mean and the interquartile range over runs."""
    for name, method in methods.items():
        steps, accuracies = curves[size, interval, name]
        values = np.array(accuracies)
        low, high = np.quantile(values, (0.25, 0.75), axis=1)
        axes.plot(steps, values.mean(1), color=method.colour)
        axes.fill_between(steps, low, high, color=method.colour, alpha=0.2, lw=0)
    axes.set_xlabel("training step")
