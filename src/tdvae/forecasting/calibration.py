"""Calibration of forecasts on validation sequences, after training.

Eq. 6 fits p_D to states drawn from the smoothed posterior. A forecast draws them from p_B and p_T instead, whose noise
then adds to a σ that already contains it, so intervals are too wide. Two numbers correct this (temperature scaling):
one scales the σ of p_B and p_T, the other the σ of a Gaussian p_D. Both maximise the likelihood of forecasts.

The excess noise of single steps hardly shows in a forecast of one step, and adds up in a rollout. If z alone is the
state, a third number scales the σ of p_T for δt = 1. It maximises the likelihood of forecasts composed of single steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.forecasting.origins import mean_and_error
from tdvae.likelihood import Forecast
from tdvae.models import TDVAE, Model
from tdvae.models.config import LatentConfig
from tdvae.models.decoders import CoordinatesDecoder, GaussianDecoder
from tdvae.models.tdvae import TransitionLadder
from tdvae.nn.ladder import DenseHeads

STRIDES = (4, 2, 1)  # of the search, in eighths of an octave
OCTAVES = 2.0  # the largest change of a scale: to between a quarter and four times

Forecasts = Iterable[tuple[int, Forecast, Tensor, Tensor | None]]  # δt, density, x and its mask; see `Sequences.at`
Scales = tuple[int, int]  # of the σ of z and of the σ of x: their logarithms in eighths of an octave


@dataclass(frozen=True)
class Calibration:
    """The chosen scales and the mean NLL of the forecasts, per observation, before and after."""

    temperature: float
    noise_scale: float
    step_temperature: float
    nll_before: float
    nll_after: float


@torch.no_grad()
def calibrate(
    model: Model,
    forecasts: Callable[[], Forecasts],
    blocks: Tensor | None = None,
    composed: Callable[[], Forecasts] | None = None,
) -> Calibration | None:
    """Choose the scales of a dense TD-VAE with continuous observations and set them; None for other models.

    Of the scales whose NLL is within one standard error of the lowest, those nearest to 1 are chosen. The lowest itself
    is often too narrow on other sequences. ``forecasts()`` computes forecasts with the present scales, each time with
    the same noise, and ``composed()`` forecasts composed of single steps. Sequences of one of the ``blocks`` may depend
    on each other; by default each is its own block.
    Calling `calibrate` again gives the same result: it starts from a model without calibration.
    """
    if not isinstance(model, TDVAE) or not isinstance(model.p_D, CoordinatesDecoder | GaussianDecoder):
        return None
    p_T = model.p_T
    if not isinstance(p_T, TransitionLadder) or not isinstance(model.config, LatentConfig):
        return None
    parts = [getattr(ladder, "heads", None) for ladder in (model.p_B, p_T)]
    heads = [part for part in parts if isinstance(part, DenseHeads)]
    if len(heads) < len(parts):
        return None

    def nll(scales: Scales) -> Tensor:
        _set(model, heads, scales)
        return _nll(forecasts())

    def composed_nll(scales: Scales) -> Tensor:
        assert composed is not None
        p_T.log_step_temperature.fill_(math.log(_factor(scales[0])))
        return _nll(composed())

    p_T.log_step_temperature.zero_()
    scored = _search(nll, both=model.p_D.log_noise_scale is not None)
    first = scored[0, 0]
    blocks = torch.arange(len(first)) if blocks is None else blocks
    chosen = _nearest_to_none(scored, blocks)
    _set(model, heads, chosen)
    before, after = (float(scored[scales].mean()) for scales in ((0, 0), chosen))
    if math.isnan(before):  # no sequence is long enough for a forecast
        return None
    step = (0, 0)
    if composed is not None and not model.config.observed_state:
        step = _nearest_to_none(_search(composed_nll, both=False), blocks)
        p_T.log_step_temperature.fill_(math.log(_factor(step[0])))
    return Calibration(_factor(chosen[0]), _factor(chosen[1]), _factor(step[0]), before, after)


def _nll(forecasts: Forecasts) -> Tensor:
    """The NLL of each sequence, averaged over its forecasts."""
    scores = [-density.log_prob(x, observed) for _, density, x, observed in forecasts]
    return torch.stack(scores).double().mean(0) if scores else torch.tensor([math.nan])


def _search(score: Callable[[Scales], Tensor], both: bool) -> dict[Scales, Tensor]:
    """Pattern search from (0, 0): move to a better neighbour; if there is none, halve the stride. All scores found."""
    scored = {(0, 0): score((0, 0))}
    best = (0, 0)
    for stride in STRIDES:
        moved = True
        while moved:
            moved = False
            for candidate in _neighbours(best, stride, both):
                if candidate not in scored:
                    scored[candidate] = score(candidate)
                if scored[candidate].mean() < scored[best].mean():
                    best, moved = candidate, True
    return scored


def _nearest_to_none(scored: dict[Scales, Tensor], blocks: Tensor) -> Scales:
    """The smallest change of the scales whose mean score is within one standard error of the lowest."""
    lowest = min(scored.values(), key=lambda score: float(score.mean()))

    def is_close(score: Tensor) -> bool:
        more, error = mean_and_error(score - lowest, blocks)
        return more <= error

    close = [scales for scales, score in scored.items() if is_close(score)] or [(0, 0)]
    return min(close, key=lambda scales: (abs(scales[0]) + abs(scales[1]), scales))


def _neighbours(scales: Scales, stride: int, both: bool) -> Iterator[Scales]:
    limit = round(8 * OCTAVES)
    for number in range(2 if both else 1):
        for change in (-stride, stride):
            moved = list(scales)
            moved[number] += change
            if abs(moved[number]) <= limit:
                yield moved[0], moved[1]


def _factor(eighths: int) -> float:
    return float(2.0 ** (eighths / 8))


def _set(model: TDVAE, heads: list[DenseHeads], scales: Scales) -> None:
    for part in heads:
        part.log_temperature.fill_(math.log(_factor(scales[0])))
    if model.p_D.log_noise_scale is not None:
        model.p_D.log_noise_scale.fill_(math.log(_factor(scales[1])))
