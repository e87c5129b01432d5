"""The figure of an evaluation: fans on held-out sequences, scores against δt, calibration."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tdvae.forecasting.evaluation.comparison import LABELS
from tdvae.forecasting.evaluation.scores import MODEL, Evaluation
from tdvae.forecasting.predictors import Origins, Predictor, quantile, seeded
from tdvae.forecasting.preparation import Encoding
from tdvae.forecasting.series import Array
from tdvae.reporting.results import Measures
from tdvae.types import Sequences, missing_as_nan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FANS = 3
PAST = 40  # steps drawn before a fan
SAMPLES = 200
COLOURS = {
    "combination": "C3",
    "tdvae": "C4",
    "next_step": "C6",
    "linear": "C0",
    "seasonal_naive": "C2",
    "naive": "C1",
    "climatology": "0.6",
    "auto_arima": "C8",
    "limit": "black",
    "auto_ets": "C5",
}


def draw(
    evaluation: Evaluation,
    predictor: Predictor,
    test: Sequences,
    origins: Origins,
    title: str = "",
    encoding: Encoding | None = None,
) -> bytes:
    """Draw the evaluation of a forecaster of vectors of numbers; the content of a PNG file.

    With an encoding the fans are in the user's units, else in those of the model.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.4), layout="constrained")
    axes = figure.subplots(2, FANS)
    longest = max(evaluation.scores[MODEL])
    for axis, origin in zip(axes[0], _spaced(origins.with_target(test, longest), FANS), strict=False):
        draw_fan(axis, predictor, test, origin, longest, encoding)
    axes[0, 0].set_ylabel("x, first dimension" if encoding is None else encoding.channels[0])
    axes[0, 0].legend(fontsize=8, loc="upper left")
    several = test.x[0, 0].numel() > 1
    draw_scores(axes[1, 0], evaluation.measures["nll"], f"NLL, nats{' per dimension' if several else ''}")
    draw_scores(axes[1, 1], evaluation.measures["crps"], "CRPS, standard deviations")
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="outside lower center", fontsize=9)
    draw_calibration(axes[1, 2], evaluation)
    if title:
        figure.suptitle(title)
    content = io.BytesIO()
    figure.savefig(content, dpi=150)
    return content.getvalue()


def _spaced(origins: Origins, count: int) -> list[Origins]:
    """Single origins, evenly spaced."""
    index = torch.linspace(0, len(origins) - 1, min(count, len(origins))).round().long()
    return [origins.select(one[None]) for one in index]


@torch.no_grad()
def draw_fan(
    axis: Axes, predictor: Predictor, test: Sequences, origin: Origins, longest: int, encoding: Encoding | None = None
) -> None:
    """The forecasts of the first dimension 1 to ``longest`` steps after one origin, and what was observed."""
    sequence = test.select(origin.row)
    t, length = int(origin.t[0]), int(sequence.lengths[0])
    steps = list(range(1, min(longest, length - t) + 1))
    with seeded(0):
        densities = predictor.densities(test, origin, steps, SAMPLES)
    bounds: list[Array] = []
    for step in steps:
        quantiles = torch.cat([quantile(densities[step], p) for p in (0.05, 0.25, 0.5, 0.75, 0.95)])
        bounds.append(_first_dimension(quantiles.unflatten(-1, test.x.shape[2:]), encoding))
    low, lower, median, upper, high = zip(*bounds, strict=True)
    axis.fill_between(steps, low, high, color="C3", alpha=0.15, lw=0, label="90 %")
    axis.fill_between(steps, lower, upper, color="C3", alpha=0.3, lw=0, label="50 %")
    axis.plot(steps, median, color="C3", label="median")
    first = max(0, t - PAST)
    x = missing_as_nan(sequence.x[0], None if sequence.observed is None else sequence.observed[0])
    axis.plot(
        range(first - t + 1, length - t + 1),
        _first_dimension(x, encoding)[first:length],
        "k.-",
        ms=3,
        lw=0.7,
        label="observed",
    )
    axis.axvline(0.5, color="0.7", lw=0.8)
    axis.set_xlim(first - t, max(steps) + 1)
    axis.set_xlabel("steps after the origin")


def _first_dimension(x: Tensor, encoding: Encoding | None) -> Array:
    """The first dimension of observations (n, *event), in the units of the encoding."""
    values: Array = x.numpy() if encoding is None else encoding.decode(x)
    return values.reshape(len(values), -1)[:, 0]


def draw_scores(axis: Axes, scores: Measures, label: str, names: dict[str, str] = LABELS) -> None:
    """A score of each forecaster against δt; ``scores`` are numbers, or means and spreads over seeds."""
    bottom, top = [], []
    for name, by_dt in scores.items():
        dts = [int(dt) for dt in by_dt]
        values = [entry["mean"] if isinstance(entry, dict) else entry for entry in by_dt.values()]
        wide = {"lw": 2, "zorder": 3} if name == MODEL else {"lw": 1.2}
        axis.plot(dts, values, ".-", color=COLOURS.get(name), label=names[name], **wide)
        bottom.append(min(values))
        top.append(max(values))
        if name == MODEL and all(isinstance(entry, dict) and entry["spread"] for entry in by_dt.values()):
            spreads = [entry["spread"] for entry in by_dt.values()]
            axis.errorbar(dts, values, spreads, color=COLOURS[name], capsize=2, lw=1)
    # A forecaster that is far off must not press the others together.
    others = sorted(top)[: max(1, len(top) - 1)]
    margin = 0.1 * (max(others) - min(bottom)) + 1e-9
    axis.set_ylim(min(bottom) - margin, max(others) + margin)
    ticks = [int(dt) for dt in scores[MODEL]]
    axis.set_xscale("log")
    axis.set_xticks(ticks, [str(dt) for dt in ticks])
    axis.minorticks_off()
    axis.set_xlabel("steps ahead")
    axis.set_ylabel(label)


def draw_calibration(axis: Axes, evaluation: Evaluation) -> None:
    """The share of observations in the central interval of each probability; the diagonal is ideal."""
    from matplotlib import colormaps

    widths = torch.linspace(0, 1, 51, dtype=torch.float64)
    axis.plot([0, 1], [0, 1], color="0.6", lw=1)
    found = evaluation.scores[MODEL]
    for number, (dt, scores) in enumerate(found.items()):
        if scores.pit is None:
            continue
        distance = 2 * (scores.pit - 0.5).abs()[~scores.pit.isnan()]
        share = [float((distance <= width).double().mean()) for width in widths]
        axis.plot(
            widths,
            share,
            lw=1.3,
            color=colormaps["viridis"](number / len(found)),
            label=f"{dt} step{'s' if dt > 1 else ''}",
        )
    axis.set_xlabel("probability of the interval")
    axis.set_ylabel("share inside, the combination")
    axis.legend(fontsize=8)
