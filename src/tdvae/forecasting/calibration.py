"""Calibration of forecasts on validation sequences, after training.

Eq. 6 fits p_D to states drawn from the smoothed posterior. A forecast draws them from p_B and p_T instead, whose noise
then adds to a σ that already contains it, so intervals are too wide. Two numbers correct this (temperature scaling):
one scales the σ of p_B and p_T, the other the σ of a Gaussian p_D. Both maximise the likelihood of forecasts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.evaluation import actions_after, beliefs_at
from tdvae.forecasting.origins import Origins, rolling_origins
from tdvae.likelihood import Forecast, forecast
from tdvae.models import TDVAE
from tdvae.models.decoders import GaussianDecoder
from tdvae.nn.ladder import DenseHeads
from tdvae.training.config import derive_seed
from tdvae.types import Sequences

TEMPERATURES = (1.0, 0.85, 0.7, 0.55, 0.4)  # of z
NOISE_SCALES = tuple(2.0 ** (-k / 4) for k in range(-4, 9))  # 2 to 1/4, of p_D's σ
HORIZONS = (1, 2, 5, 10, 20, 50, 100)  # δt, as far as the longest jump
MOST_ORIGINS = 400
SAMPLES = 100


@dataclass(frozen=True)
class Calibration:
    """The chosen scales and the mean NLL of the forecasts, per observation, before and after."""

    temperature: float
    noise_scale: float
    nll_before: float
    nll_after: float


@torch.no_grad()
def calibrate(
    model: TDVAE, validation: Sequences, longest_jump: int, seed: int = 0, origins: Origins | None = None
) -> Calibration | None:
    """Choose the scales of a dense model with Gaussian observations and set them; None for other models.

    The forecasts begin at ``origins``, by default at `MOST_ORIGINS` places in the validation sequences. Calling it again
    gives the same result: it starts from a model without calibration.
    """
    parts = [getattr(ladder, "heads", None) for ladder in (model.p_B, model.p_T)]
    heads = [part for part in parts if isinstance(part, DenseHeads)]
    if not isinstance(model.p_D, GaussianDecoder) or len(heads) < len(parts):
        return None
    origins = rolling_origins(validation, MOST_ORIGINS) if origins is None else origins
    nll: dict[tuple[float, float], float] = {}
    for temperature in TEMPERATURES:
        _set(model, heads, temperature, 1.0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed))
            scores = list(_scores(model, validation, origins, longest_jump))
        if not scores:
            break  # no sequence is long enough for a forecast
        for index, scale in enumerate(NOISE_SCALES):
            nll[temperature, scale] = sum(of_horizon[index] for of_horizon in scores) / len(scores)
    if not nll:
        _set(model, heads, 1.0, 1.0)
        return None
    best = min(nll, key=nll.__getitem__)
    _set(model, heads, *best)
    return Calibration(*best, nll_before=nll[1.0, 1.0], nll_after=nll[best])


def _set(model: TDVAE, heads: list[DenseHeads], temperature: float, noise_scale: float) -> None:
    assert isinstance(model.p_D, GaussianDecoder)
    for part in heads:
        part.log_temperature.fill_(math.log(temperature))
    model.p_D.log_noise_scale.fill_(math.log(noise_scale))


def _scores(model: TDVAE, sequences: Sequences, origins: Origins, longest_jump: int) -> Iterator[list[float]]:
    """For each δt, the NLL with every noise scale. The scales share the drawn states."""
    for dt in HORIZONS:
        at = origins.with_target(sequences, dt)
        if dt > longest_jump or not len(at):
            continue
        chosen, belief = beliefs_at(model, sequences, at)
        components = forecast(model, belief, dt, SAMPLES, actions_after(chosen, at, dt)).components
        assert isinstance(components, DiagonalNormal)
        x = sequences.x[at.row, at.t + dt - 1]
        scaled = (replace(components, log_sigma=components.log_sigma + math.log(s)) for s in NOISE_SCALES)
        yield [-float(Forecast(each).log_prob(x).mean()) for each in scaled]
