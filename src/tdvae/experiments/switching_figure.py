"""The paper's figure of the switching oscillator, and the grid around it: what does the belief still know?"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from tdvae.data.switching import OPENING
from tdvae.experiments.report import Measures
from tdvae.experiments.switching import ON_THE_WAY, Cell, Preset, moments

COLOURS = {"tdvae": "#d1495b", "next_step": "#2e6f95"}
LABELS = {"tdvae": "TD-VAE", "next_step": "next-step predictor"}
Curves = dict[tuple[Cell, str], tuple[list[int], list[list[float]]]]


def draw(preset: Preset, measures: Measures, curves: Curves, path: Path) -> None:
    """A row of panels for each size of the LSTM: accuracy against training steps; below, where it is forgotten."""
    sizes, intervals = sorted(preset.sizes), sorted(preset.intervals)
    figure, axes = plt.subplots(
        2 * len(sizes),
        len(intervals),
        figsize=(4 * len(intervals), 4.4 * len(sizes)),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for row, size in enumerate(sizes):
        for column, interval in enumerate(intervals):
            cell = Cell(size, interval)
            _learning(axes[2 * row, column], cell, curves)
            _forgetting(axes[2 * row + 1, column], cell, measures)
            for panel in (axes[2 * row, column], axes[2 * row + 1, column]):
                panel.axhline(measures["accuracy_bayes"][str(cell)]["mean"], color="#333333", linestyle="--", lw=1)
                panel.axhline(0.5, color="#999999", linestyle=":", lw=1)
                panel.set_ylim(0.45, 1.0)
            axes[2 * row, column].set_title(f"LSTM {size}, interval {interval}", fontsize=11)
        axes[2 * row, 0].set_ylabel(f"accuracy, {preset.probe} probe")
        axes[2 * row + 1, 0].set_ylabel(f"accuracy, {ON_THE_WAY} probe")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles += [axes[0, 0].lines[-2], axes[0, 0].lines[-1]]
    figure.legend(handles, [*labels, "exact inference", "chance"], loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _learning(axes: Axes, cell: Cell, curves: Curves) -> None:
    """Mean over runs just before the last interval, and the middle half of them."""
    for method, label in LABELS.items():
        steps, accuracies = curves[cell, method]
        values = np.array(accuracies)
        low, high = np.quantile(values, (0.25, 0.75), axis=1)
        axes.plot(steps, values.mean(1), color=COLOURS[method], label=label)
        axes.fill_between(steps, low, high, color=COLOURS[method], alpha=0.2, lw=0)
    axes.set_xlabel("training step")


def _forgetting(axes: Axes, cell: Cell, measures: Measures) -> None:
    times = moments(cell)
    for method in LABELS:
        entries = [measures[f"accuracy_{method}_at"][f"{cell},t={t}"] for t in times]
        means = np.array([entry["mean"] for entry in entries])
        spread = np.array([entry["spread"] or 0.0 for entry in entries])
        axes.errorbar(times, means, spread, color=COLOURS[method], marker="o", markersize=3, capsize=2)
    axes.set_xlabel(f"observations seen (the interval begins at {OPENING})")
