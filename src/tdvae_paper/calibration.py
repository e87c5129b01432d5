"""Calibration of forecasts on validation sequences, after training.

Eq. 6 fits p_D to states drawn from the smoothed posterior. A forecast draws them from p_B and p_T instead, whose noise
then adds to a σ that already contains it, so intervals are too wide. Factors of the σ correct this (temperature
scaling); they maximise the likelihood of forecasts.

If z alone is the state, one number scales the σ of p_B and p_T, another the σ of a Gaussian p_D, which is not given δt.
The excess noise of single steps hardly shows in a forecast of one step, and adds up in a rollout. A third number
therefore scales the σ of p_T for δt = 1. It maximises the likelihood of forecasts composed of single steps, which
determine it well: the effect of each step adds up.

If the state includes the observation, p_D is given δt, and the excess differs between short and long jumps. Then p_B
has one factor, and p_T and p_D have one for each δt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.predictors import mean_and_error
from tdvae.likelihood import Forecast
from tdvae.models import TDVAE, Model
from tdvae.models.config import LatentConfig
from tdvae.models.decoders import CoordinatesDecoder, Decoder, GaussianDecoder
from tdvae.models.tdvae import BeliefLadder, TransitionLadder

STRIDES = (4, 2, 1)  # of the search, in eighths of an octave
OCTAVES = 2.0  # the largest change of a scale: to between a quarter and four times

ScoredForecast = tuple[int, Forecast, Tensor, Tensor | None]  # δt, density, x and its mask; see `Sequences.at`
Forecasts = Iterable[ScoredForecast]
Scales = tuple[int, int]  # of the σ of z and of the σ of x: their logarithms in eighths of an octave


@dataclass(frozen=True)
class Calibration:
    """The chosen factors of σ, and the mean NLL of the forecasts, per observation, before and after."""

    temperature: float  # of p_B and p_T
    noise_scale: float  # of p_D
    nll_before: float
    nll_after: float
    jump_temperatures: Mapping[int, float] = field(default_factory=dict)  # of p_T, by δt
    jump_noise_scales: Mapping[int, float] = field(default_factory=dict)  # of p_D, by δt

    def named(self) -> dict[str, float]:
        """All numbers by name."""
        numbers = ("temperature", "noise_scale", "nll_before", "nll_after")
        return {name: getattr(self, name) for name in numbers} | {
            f"{name}/{dt}": value
            for name in ("jump_temperatures", "jump_noise_scales")
            for dt, value in getattr(self, name).items()
        }


@dataclass(frozen=True)
class _Parts:
    """The parts of a model whose σ is scaled."""

    p_B: BeliefLadder
    p_T: TransitionLadder
    p_D: Decoder

    @staticmethod
    def of(model: Model) -> _Parts | None:
        """The parts of a dense TD-VAE with continuous observations; None for other models."""
        if not isinstance(model, TDVAE) or not isinstance(model.p_D, CoordinatesDecoder | GaussianDecoder):
            return None
        if not isinstance(model.p_B, BeliefLadder) or not isinstance(model.p_T, TransitionLadder):
            return None
        return _Parts(model.p_B, model.p_T, model.p_D)

    def set(self, p_B: float = 1.0, p_T: float = 1.0, p_D: float = 1.0) -> None:
        """Set the factors that hold for all δt."""
        self.p_B.heads.log_temperature.fill_(math.log(p_B))
        self.p_T.heads.log_temperature.fill_(math.log(p_T))
        if self.p_D.log_noise_scale is not None:
            self.p_D.log_noise_scale.fill_(math.log(p_D))

    def set_by_jump(self, p_T: Mapping[int, float], p_D: Mapping[int, float]) -> None:
        """Set the factors of each δt."""
        self.p_T.jump_scale.set(p_T)
        if isinstance(self.p_D, GaussianDecoder):
            self.p_D.jump_scale.set(p_D)


@torch.no_grad()
def calibrate(
    model: Model,
    horizons: Sequence[int],
    forecasts: Callable[[Sequence[int]], Forecasts],
    composed: Callable[[], Forecasts] | None = None,
    blocks: Tensor | None = None,
) -> Calibration | None:
    """Choose the scales of a dense TD-VAE with continuous observations and set them; None for other models.

    Of the scales whose NLL is within one standard error of the lowest, those nearest to 1 are chosen. The lowest itself
    is often too narrow on other sequences. ``forecasts(horizons)`` computes forecasts with the present scales, each
    time with the same noise, and ``composed()`` forecasts composed of single steps. Sequences of one of the ``blocks``
    may depend on each other; by default each is its own block.
    Calling `calibrate` again gives the same result: it starts from a model without calibration.
    """
    parts = _Parts.of(model)
    if parts is None:
        return None
    parts.set()
    parts.set_by_jump({1: 1.0}, {1: 1.0})
    horizons = [dt for dt in horizons if any(True for _ in forecasts([dt]))]
    if not horizons:  # no sequence is long enough for a forecast
        return None
    before = _nll(forecasts(horizons))
    blocks = torch.arange(len(before)) if blocks is None else blocks
    assert isinstance(model.config, LatentConfig)
    if model.config.state == "observed":
        return _by_jump(parts, horizons, forecasts, blocks, float(before.mean()))
    return _for_all_jumps(parts, horizons, forecasts, composed, blocks, float(before.mean()))


def _for_all_jumps(
    parts: _Parts,
    horizons: Sequence[int],
    forecasts: Callable[[Sequence[int]], Forecasts],
    composed: Callable[[], Forecasts] | None,
    blocks: Tensor,
    before: float,
) -> Calibration:
    """One factor of the σ of z, one of the σ of x, and one more of p_T for single steps."""

    def nll(scales: Scales) -> Tensor:
        z, x = map(_factor, scales)
        parts.set(z, z, x)
        return _nll(forecasts(horizons))

    def composed_nll(scales: Scales) -> Tensor:
        assert composed is not None
        parts.set_by_jump(_single_steps(scales), {1: 1.0})
        return _nll(composed())

    scored = _search(nll, both=parts.p_D.log_noise_scale is not None)
    chosen = _nearest_to_none(scored, blocks)
    after = float(nll(chosen).mean())
    step = (0, 0)
    if composed is not None:
        step = _lowest(_search(composed_nll, both=False))
        parts.set_by_jump(_single_steps(step), {1: 1.0})
    return Calibration(_factor(chosen[0]), _factor(chosen[1]), before, after, _single_steps(step))


def _single_steps(scales: Scales) -> dict[int, float]:
    """Factors by δt: the first of the scales for δt = 1, and 1 for longer jumps."""
    return {1: _factor(scales[0]), 2: 1.0}


def _by_jump(
    parts: _Parts,
    horizons: Sequence[int],
    forecasts: Callable[[Sequence[int]], Forecasts],
    blocks: Tensor,
    before: float,
) -> Calibration:
    """One factor of p_B, and for each δt one of p_T and one of p_D.

    Given the factor of p_B, the factors of one δt do not depend on those of the others. The factor of p_B is the one
    with the lowest NLL; it is compared with coarse steps of the others.
    """
    coarse = STRIDES[:-1]

    def search_jumps(scales: Scales, strides: Sequence[int]) -> dict[int, dict[Scales, Tensor]]:
        """The scores of scales of p_T and p_D by δt, given the scale of p_B."""
        parts.set(p_B=_factor(scales[0]))

        @lru_cache(maxsize=4)
        def drawn(dt: int, temperature: int) -> list[ScoredForecast]:
            parts.set_by_jump({dt: _factor(temperature)}, {dt: 1.0})
            return list(forecasts([dt]))

        def nll(dt: int, scales: Scales) -> Tensor:
            found = drawn(dt, scales[0])
            return _nll((dt, _scaled(density, scales[1]), x, observed) for _, density, x, observed in found)

        return {dt: _search(partial(nll, dt), True, strides) for dt in horizons}

    def nll(scales: Scales) -> Tensor:
        """The NLL with this scale of p_B and the best ones of p_T and p_D."""
        scored = search_jumps(scales, coarse).values()
        return torch.stack([of_dt[_lowest(of_dt)] for of_dt in scored]).mean(0)

    belief = _lowest(_search(nll, False, coarse))
    chosen = {dt: _nearest_to_none(scored, blocks) for dt, scored in search_jumps(belief, STRIDES).items()}
    temperatures, noise_scales = ({dt: _factor(scales[i]) for dt, scales in chosen.items()} for i in range(2))
    parts.set_by_jump(temperatures, noise_scales)
    after = float(_nll(forecasts(horizons)).mean())
    return Calibration(_factor(belief[0]), 1.0, before, after, temperatures, noise_scales)


def _scaled(density: Forecast, scale: int) -> Forecast:
    """The forecast with another scale of the σ of p_D, which needs no new states."""
    normal = density.components
    assert isinstance(normal, DiagonalNormal)
    return Forecast(replace(normal, log_sigma=normal.log_sigma + math.log(_factor(scale))))


def _nll(forecasts: Forecasts) -> Tensor:
    """The NLL of each sequence, averaged over its forecasts."""
    return torch.stack([-density.log_prob(x, observed) for _, density, x, observed in forecasts]).double().mean(0)


def _search(score: Callable[[Scales], Tensor], both: bool, strides: Sequence[int] = STRIDES) -> dict[Scales, Tensor]:
    """Pattern search from (0, 0): move to a better neighbour; if there is none, halve the stride. All scores found."""
    scored = {(0, 0): score((0, 0))}
    best = (0, 0)
    for stride in strides:
        moved = True
        while moved:
            moved = False
            for candidate in _neighbours(best, stride, both):
                if candidate not in scored:
                    scored[candidate] = score(candidate)
                if scored[candidate].mean() < scored[best].mean():
                    best, moved = candidate, True
    return scored


def _lowest(scored: dict[Scales, Tensor]) -> Scales:
    return min(scored, key=lambda scales: float(scored[scales].mean()))


def _nearest_to_none(scored: dict[Scales, Tensor], blocks: Tensor) -> Scales:
    """The smallest change of the scales whose mean score is within one standard error of the lowest."""
    lowest = scored[_lowest(scored)]

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
