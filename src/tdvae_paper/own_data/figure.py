"""The figures of the experiment: NLL against δt, and a fan of each set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tdvae.forecasting.evaluation import draw_fan, draw_scores
from tdvae.forecasting.predictors import Origins, Predictor
from tdvae.reporting.results import Measures
from tdvae.types import Sequences

Shown = tuple[str, Predictor, Sequences, Origins]
COLUMNS = 4


def draw_skill(path: Path, measures: Measures, titles: Mapping[str, str], names: dict[str, str]) -> Path:
    """The NLL on each set, means over seeds; ``names`` are those of the forecasters in the legend."""
    figure, axes = _panels(list(titles.values()))
    for axis, name in zip(axes, titles, strict=True):
        draw_scores(axis, measures["nll"][name], "NLL, nats per dimension" if axis is axes[0] else "", names)
    handles = {label: h for axis in axes for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    columns = min(len(handles), 3 * min(len(axes), COLUMNS))
    figure.legend(handles.values(), handles.keys(), ncols=columns, loc="outside lower center", fontsize=9)
    figure.savefig(path, dpi=110)
    return path


def draw_fans(path: Path, shown: Mapping[str, Shown], longest: Mapping[str, int]) -> Path:
    """Forecasts by the combination from one origin in the middle of the test part of each set."""
    figure, axes = _panels([title for title, *_ in shown.values()])
    for axis, (name, (_, predictor, test, origins)) in zip(axes, shown.items(), strict=True):
        at = origins.with_target(test, longest[name])
        draw_fan(axis, predictor, test, at.select(at.t.new_tensor([len(at) // 2])), longest[name])
    axes[0].legend(fontsize=8, loc="upper left")
    figure.savefig(path, dpi=110)
    return path


def _panels(titles: list[str]) -> tuple[Figure, list[Axes]]:
    """A panel for each set, in rows of at most four."""
    columns = min(len(titles), COLUMNS)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(max(6, 3.6 * columns), 0.6 + 2.8 * rows), layout="constrained")
    axes: list[Axes] = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for axis in axes[len(titles) :]:
        axis.remove()
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(title, fontsize=10)
    return figure, axes[: len(titles)]
