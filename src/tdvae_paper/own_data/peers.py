"""What users would pick instead for single series: AutoARIMA and AutoETS."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tdvae.distributions import DiagonalNormal
from tdvae.errors import InputError
from tdvae.forecasting import OwnData
from tdvae.forecasting.evaluation import Evaluation, Scores, density_scores
from tdvae.forecasting.predictors import Normals
from tdvae.reporting.results import Measures
from tdvae_paper.own_data.sets import SERIES, Floats, load

LEVEL = 90  # per cent; the width of this interval determines σ
HALF_WIDTH = 1.6448536269514722  # of this interval, in σ


def measures(name: str, horizons: Sequence[int]) -> Measures:
    """The measures of AutoARIMA and AutoETS on a series: measure → forecaster → δt."""
    try:
        from statsforecast.models import AutoARIMA, AutoETS
    except ImportError as error:
        raise InputError("peers: expected the packages of the extra peers: pip install tdvae[peers]") from error
    own = load(name, max(horizons), 0, 0, 0)
    season = own.season or 1
    scores = {
        "auto_arima": _rolling(AutoARIMA(season_length=season), SERIES[name](), own, horizons),
        "auto_ets": _rolling(AutoETS(season_length=season), SERIES[name](), own, horizons),
    }
    return Evaluation(scores, {}).measures


def _rolling(model: Any, values: Floats, own: OwnData, horizons: Sequence[int]) -> dict[int, Scores]:
    """Fit on the training part, then forecast from every origin of the test part with the series up to there.

    Missing values are interpolated for them.
    """
    steps, there = np.arange(len(values)), ~np.isnan(values)
    series = np.interp(steps, steps[there], values[there])
    known, count = int(own.history.lengths[0]), len(own.test.sequences)
    mean, scale = np.nanmean(values[:known]), np.nanstd(values[:known])
    series = (series - mean) / scale
    origins = len(series) - (count + own.longest_jump - 1) + torch.arange(count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optimisers
        fitted = model.fit(series[:known])
        found = [_forecast(fitted, series[: int(t)], max(horizons)) for t in origins]
    means, sigmas = (torch.from_numpy(np.stack(part)) for part in zip(*found, strict=True))
    scores = {}
    for dt in horizons:
        target = origins + dt - 1
        seen = torch.from_numpy(there)[target]
        x = torch.from_numpy(series)[target][seen, None]
        density = Normals(DiagonalNormal(means[None, seen, dt - 1, None], sigmas[None, seen, dt - 1, None].log()))
        every = torch.ones_like(x, dtype=torch.bool)
        scores[dt] = density_scores(density, density.log_prob(x, every), x, every)
    return scores


def _forecast(fitted: Any, past: Floats, steps: int) -> tuple[Floats, Floats]:
    """Means and standard deviations, without fitting again."""
    found = fitted.forward(y=past, h=steps, level=[LEVEL])
    mean = np.asarray(found["mean"], dtype=np.float64)
    sigma = (np.asarray(found[f"hi-{LEVEL}"], dtype=np.float64) - mean) / HALF_WIDTH
    return mean, np.maximum(sigma, math.ulp(1.0))
