"""Calibration of forecasts on validation sequences, after training.

Eq. 6 fits p_D to states drawn from the smoothed posterior. A forecast draws them from p_B and p_T instead, whose noise
then adds to a σ that already contains it, so intervals are too wide. Two numbers correct this (temperature scaling):
one scales the σ of p_B and p_T, the other the σ of a Gaussian p_D. Both maximise the likelihood of forecasts. They stay
at 1 unless the gain is above two standard errors: a short validation part, of one unusual year, must not set them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.evaluation import actions_after, beliefs_at, mean_and_error
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
MOST_ORIGINS = 200
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
    origins = (rolling_origins(validation) if origins is None else origins).at_most(MOST_ORIGINS)
    nll: dict[tuple[float, float], list[Tensor]] = {}
    for temperature in TEMPERATURES:
        _set(model, heads, temperature, 1.0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed))
            scores = list(_scores(model, validation, origins, longest_jump))
        if not scores:
            break  # no sequence is long enough for a forecast
        for index, scale in enumerate(NOISE_SCALES):
            nll[temperature, scale] = [of_horizon[index] for of_horizon in scores]
    unchanged = (1.0, 1.0)
    if not nll:
        _set(model, heads, *unchanged)
        return None
    mean = {scales: sum(float(each.mean()) for each in of) / len(of) for scales, of in nll.items()}
    best = min(mean, key=mean.__getitem__)
    blocks = [at.block for at in _by_horizon(validation, origins, longest_jump).values()]
    if not is_lower(nll[best], nll[unchanged], blocks):
        best = unchanged
    _set(model, heads, *best)
    return Calibration(*best, nll_before=mean[unchanged], nll_after=mean[best])


def is_lower(first: list[Tensor], second: list[Tensor], blocks: list[Tensor]) -> bool:
    """Whether the first scores are lower by more than two standard errors; a tensor for each δt, origins in blocks."""
    difference, error = mean_and_error(torch.cat(first) - torch.cat(second), torch.cat(blocks))
    return difference < -2 * error


def _set(model: TDVAE, heads: list[DenseHeads], temperature: float, noise_scale: float) -> None:
    assert isinstance(model.p_D, GaussianDecoder)
    for part in heads:
        part.log_temperature.fill_(math.log(temperature))
    model.p_D.log_noise_scale.fill_(math.log(noise_scale))


def _by_horizon(sequences: Sequences, origins: Origins, longest_jump: int) -> dict[int, Origins]:
    found = {dt: origins.with_target(sequences, dt) for dt in HORIZONS if dt <= longest_jump}
    return {dt: at for dt, at in found.items() if len(at)}


def _scores(model: TDVAE, sequences: Sequences, origins: Origins, longest_jump: int) -> Iterator[list[Tensor]]:
    """For each δt, the NLL at every origin with every noise scale. The scales share the drawn states."""
    for dt, at in _by_horizon(sequences, origins, longest_jump).items():
        chosen, belief = beliefs_at(model, sequences, at)
        components = forecast(model, belief, dt, SAMPLES, actions_after(chosen, at, dt)).components
        assert isinstance(components, DiagonalNormal)
        x = sequences.x[at.row, at.t + dt - 1]
        scaled = (replace(components, log_sigma=components.log_sigma + math.log(s)) for s in NOISE_SCALES)
        yield [-Forecast(each).log_prob(x).double() for each in scaled]
