"""What users would pick instead: AutoARIMA and AutoETS for single series, and a next-step predictor for all sets."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch

from tdvae.distributions import DiagonalNormal
from tdvae.errors import InputError
from tdvae.experiments.own_data.sets import Floats, Parts, load
from tdvae.forecasting.baselines import Standard, find_season
from tdvae.forecasting.evaluation import Evaluation, Scores, gaussian_scores
from tdvae.models import Model, NextStep, build
from tdvae.models.config import NextStepConfig, TDVAEConfig
from tdvae.reporting.results import Measures
from tdvae.training.config import derive_seed

LEVEL = 90  # per cent; the width of this interval determines σ
HALF_WIDTH = 1.6448536269514722  # of this interval, in σ
SHARED = ("event_shape", "actions", "likelihood", "encoder", "noise", "belief_network", "belief", "timescales")
SHARED_READOUT = ("max_frequency", "readout", "readout_hidden", "blocks")


def next_step(model: Model, seed: int) -> NextStep:
    """A next-step predictor with the encoder, belief network and readout of a TD-VAE; rolled out, it is a DeepAR."""
    assert isinstance(model.config, TDVAEConfig)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        return build(NextStepConfig(**{name: getattr(model.config, name) for name in (*SHARED, *SHARED_READOUT)}))


def measures(name: str, horizons: Sequence[int]) -> Measures:
    """The measures of AutoARIMA and AutoETS on a series: measure → forecaster → δt."""
    try:
        from statsforecast.models import AutoARIMA, AutoETS
    except ImportError as error:
        raise InputError("peers: expected the packages of the extra peers: pip install tdvae[peers]") from error
    parts = load(name, 0, 0, 0)
    season = find_season(parts.past) or 1
    scores = {
        "auto_arima": _rolling(AutoARIMA(season_length=season), parts, horizons),
        "auto_ets": _rolling(AutoETS(season_length=season), parts, horizons),
    }
    return Evaluation(scores, {}).measures


def _rolling(model, parts: Parts, horizons: Sequence[int]) -> dict[int, Scores]:  # type: ignore[no-untyped-def]
    """Fit on the training part, then forecast from every origin of the test part with the series up to there."""
    assert parts.series is not None
    series = parts.series[0, :, 0].double().numpy()
    known = int(parts.past.lengths[0])
    standard = Standard.of(parts.past)
    origins = len(series) - len(parts.origins) + torch.arange(len(parts.origins))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optimisers
        fitted = model.fit(series[:known])
        found = [_forecast(fitted, series[: int(t)], max(horizons)) for t in origins]
    mean, sigma = (torch.from_numpy(np.stack(part)) for part in zip(*found, strict=True))
    scores = {}
    for dt in horizons:
        there = (origins + dt <= len(series)).nonzero()[:, 0]
        x = (torch.from_numpy(series)[origins[there] + dt - 1, None] - standard.mean) / standard.scale
        density = DiagonalNormal(
            (mean[there, dt - 1, None] - standard.mean) / standard.scale,
            (sigma[there, dt - 1, None] / standard.scale).log(),
        )
        scores[dt] = gaussian_scores(density, x, torch.ones_like(x, dtype=torch.bool))
    return scores


def _forecast(fitted, past: Floats, steps: int) -> tuple[Floats, Floats]:  # type: ignore[no-untyped-def]
    """Means and standard deviations, without fitting again."""
    found = fitted.forward(y=past, h=steps, level=[LEVEL])
    mean = np.asarray(found["mean"], dtype=np.float64)
    sigma = (np.asarray(found[f"hi-{LEVEL}"], dtype=np.float64) - mean) / HALF_WIDTH
    return mean, np.maximum(sigma, math.ulp(1.0))
