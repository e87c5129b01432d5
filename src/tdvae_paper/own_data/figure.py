"""The figure of the experiment: for each set a fan, NLL and CRPS against δt, and calibration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from tdvae.forecasting.evaluation import MODEL, Evaluation, draw_calibration, draw_fan, draw_scores
from tdvae.forecasting.predictors import Origins, Predictor
from tdvae.reporting.results import Measures
from tdvae.types import Sequences

Shown = tuple[str, Predictor, Sequences, Origins, Evaluation]


def draw(path: Path, shown: Mapping[str, Shown], measures: Measures, names: dict[str, str]) -> Path:
    """A row for each set. Scores are means over seeds; fans and calibration are of the first seed.

    ``names`` are those of the forecasters in the legend.
    """
    figure = Figure(figsize=(15, 3.1 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), 4, squeeze=False, width_ratios=(1.4, 1, 1, 0.8))
    for row, (name, (title, predictor, test, origins, evaluation)) in zip(axes, shown.items(), strict=True):
        longest = max(evaluation.scores[MODEL])
        at = origins.with_target(test, longest)
        draw_fan(row[0], predictor, test, at.select(at.t.new_tensor([len(at) // 2])), longest)
        draw_scores(row[1], measures["nll"][name], "NLL, nats per dimension", names)
        draw_scores(row[2], measures["crps"][name], "CRPS, standard deviations", names)
        draw_calibration(row[3], evaluation)
        row[0].set_title(title, fontsize=10)
    handles = {label: handle for row in axes for handle, label in zip(*row[1].get_legend_handles_labels(), strict=True)}
    columns = (len(handles) + 1) // 2
    figure.legend(handles.values(), handles.keys(), ncols=columns, loc="outside upper center", fontsize=9)
    axes[0, 0].legend(fontsize=8, loc="upper left")
    figure.savefig(path, dpi=110)
    return path
