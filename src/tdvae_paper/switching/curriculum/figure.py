"""Learning curves of every cell of the grid, and where in the interval the relation is forgotten."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from tdvae.reporting.results import Measures
from tdvae_paper.switching.curriculum.experiment import FORGETTING_PROBE
from tdvae_paper.switching.curriculum.experiment import LABELS as TABLE_LABELS
from tdvae_paper.switching.curriculum.presets import METHODS, Preset
from tdvae_paper.switching.grid import save_figure
from tdvae_paper.switching.measures import forgetting_times
from tdvae_paper.switching.simulation import OPENING

COLOURS = {"tdvae": "#d1495b", "next_step": "#2e6f95"}
LABELS = {method: TABLE_LABELS[f"accuracy_{method}"] for method in METHODS}
Curves = dict[tuple[int, int, str], tuple[list[int], list[list[float]]]]  # (size, interval, method) → steps, accuracies


def draw(preset: Preset, measures: Measures, curves: Curves, path: Path) -> None:
    """Draw one row per LSTM size: accuracy against training steps by interval, and accuracy within the interval."""
    sizes, intervals = sorted(preset.sizes), sorted(preset.intervals)
    shape = (len(sizes), len(intervals) + 1)
    figure, axes = plt.subplots(
        *shape, figsize=(3.6 * shape[1], 2.9 * shape[0] + 0.5), layout="constrained", squeeze=False, sharey=True
    )
    for row, size in enumerate(sizes):
        for column, interval in enumerate(intervals):
            panel = axes[row, column]
            _draw_learning_curves(panel, {method: curves[size, interval, method] for method in LABELS})
            panel.set_title(f"LSTM {size}, interval {interval}", fontsize=10)
        _draw_forgetting(axes[row, -1], preset, size, measures)
        axes[row, -1].set_title(f"LSTM {size}: within the interval ({FORGETTING_PROBE} probe)", fontsize=10)
        axes[row, 0].set_ylabel(f"accuracy ({preset.probe} probe)")
    save_figure(figure, measures, path, columns=4)
    plt.close(figure)


def _draw_learning_curves(axes: Axes, curves: dict[str, tuple[list[int], list[list[float]]]]) -> None:
    """Draw the mean and the interquartile range over runs."""
    for method, (steps, accuracies) in curves.items():
        values = np.array(accuracies)
        low, high = np.quantile(values, (0.25, 0.75), axis=1)
        axes.plot(steps, values.mean(1), color=COLOURS[method], label=LABELS[method])
        axes.fill_between(steps, low, high, color=COLOURS[method], alpha=0.2, lw=0)
    axes.set_xlabel("training step")


def _draw_forgetting(axes: Axes, preset: Preset, size: int, measures: Measures) -> None:
    """Draw the probe accuracy against the number of steps into the separating interval."""
    times = forgetting_times(max(preset.intervals))
    for method, colour in COLOURS.items():
        entries = [measures[f"accuracy_{method}_at"][f"lstm={size},t={t}"] for t in times]
        means = [entry["mean"] for entry in entries]
        axes.errorbar(
            [t - OPENING for t in times], means, [e["spread"] or 0.0 for e in entries], color=colour, marker="o", ms=3
        )
    axes.set_xlabel("steps into the separating interval")
