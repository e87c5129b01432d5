"""Simple forecasters to compare with: last value, seasonal naive, linear regression and the marginal distribution.

Each is fitted on training sequences for one δt, and returns normal densities with a spread per dimension, in double
precision. Numbers are standardised by the caller, so 0 is the mean of the training sequences, which replaces missing
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.distributions import DiagonalNormal
from tdvae.errors import InputError
from tdvae.forecasting.origins import Origins, observed, training_origins
from tdvae.types import Sequences

SMALLEST_SPREAD = 1e-6  # of a dimension that a baseline predicts exactly; in units of its standard deviation
LAGS = (1, 2, 5, 10, 20)  # how many last values the regression may be given
PENALTIES = tuple(10.0**k for k in range(-3, 5))  # of the regression
MOST_ROWS = 20_000  # of the regression
MOST_ACTIONS = 40  # numbers; a longer jump gives the regression the action of its last step only
SEASON_STRENGTH = 0.3  # least autocorrelation at a season
SAME_STRENGTH = 0.75  # the season is the first peak with this share of the highest one: not one of its multiples

Forecaster = Callable[[Sequences, Origins], DiagonalNormal]  # densities of x_{t+δt}, (M, D)


@dataclass(frozen=True)
class Standard:
    """Mean and standard deviation of each dimension of training sequences, in double precision."""

    mean: Tensor  # (D,)
    scale: Tensor  # (D,)

    @classmethod
    def of(cls, train: Sequences) -> Standard:
        x, there = train.x.flatten(2).double(), observed(train).flatten(2)
        count = there.sum((0, 1)).clamp(min=1)
        mean = torch.where(there, x, 0).sum((0, 1)) / count
        scale = (torch.where(there, x - mean, 0).square().sum((0, 1)) / count).sqrt()
        return cls(mean, torch.where(scale > 0, scale, torch.ones_like(scale)))

    def values(self, sequences: Sequences) -> Tensor:
        """x in these units, (N, T, D); missing numbers and padding are 0."""
        return torch.where(
            observed(sequences).flatten(2), (sequences.x.flatten(2).double() - self.mean) / self.scale, 0
        )


def fit_baselines(train: Sequences, dt: int, standard: Standard, season: int | None) -> dict[str, Forecaster]:
    """The baselines for one δt, by name. Without a season there is no seasonal one."""
    fitted: dict[str, Forecaster] = {"last_value": _fit_naive(train, dt, standard, 1)}
    if season is not None:
        fitted["seasonal"] = _fit_naive(train, dt, standard, season)
    fitted["linear"] = fit_linear(train, dt, standard)
    fitted["marginal"] = lambda sequences, origins: _normal(torch.zeros(len(origins), len(standard.mean)), 1.0)
    return fitted


def _fit_naive(train: Sequences, dt: int, standard: Standard, season: int) -> Forecaster:
    """The last observed value in the phase of the target; the spread is that of the errors in training."""

    def mean(sequences: Sequences, origins: Origins) -> Tensor:
        last = last_observed(standard.values(sequences), observed(sequences).flatten(2), season)
        back = dt - season * math.ceil(dt / season)  # at most 0
        index = origins.t + back - 1
        index = torch.where(index >= 0, index, origins.t - 1)  # no whole season observed: the last value
        return last[origins.row, index]

    spread = _spread(train, dt, standard, mean)
    return lambda sequences, origins: _normal(mean(sequences, origins), spread)


def last_observed(values: Tensor, there: Tensor, season: int = 1) -> Tensor:
    """The values (N, T, D), with missing ones replaced by the last observed one of the same phase; 0 before that."""
    filled = values.clone()
    known = there.clone()
    for t in range(season, values.shape[1]):
        filled[:, t] = torch.where(there[:, t], values[:, t], filled[:, t - season])
        known[:, t] |= known[:, t - season]
    return torch.where(known, filled, torch.zeros_like(filled))


@dataclass(frozen=True)
class Regression:
    """Linear regression with the ridge penalty of the least leave-one-out error."""

    penalty: float
    weights: Tensor  # (features + 1, D); the last row is the intercept
    spread: Tensor  # (D,) root mean square of the leave-one-out errors


def fit_linear(train: Sequences, dt: int, standard: Standard) -> Forecaster:
    """Linear regression of x_{t+δt} on the last values of all dimensions, and on the actions if there are any."""
    origins = training_origins(train, dt, MOST_ROWS)
    if not len(origins):
        raise InputError(f"train: expected a sequence longer than δt = {dt}, got at most {int(train.lengths.max())}")
    candidates: dict[int, Regression] = {}
    for lags in (lags for lags in LAGS if lags < int(train.lengths.max())):
        features, targets, there = distinct_rows(
            _features(train, origins, dt, lags, standard), *_targets(train, origins, dt, standard)
        )
        candidates[lags] = regress(features, targets, there > 0)
    lags = min(candidates, key=lambda lags: float(candidates[lags].spread.log().sum()))
    weights, spread = candidates[lags].weights, candidates[lags].spread

    def forecast(sequences: Sequences, at: Origins) -> DiagonalNormal:
        return _normal(_with_one(_features(sequences, at, dt, lags, standard)) @ weights, spread)

    return forecast


def distinct_rows(*parts: Tensor) -> list[Tensor]:
    """The rows of several matrices side by side, each once.

    Overlapping windows of one series have many equal rows. A copy of a row that is left out would give it away.
    """
    rows = torch.cat([part.double() for part in parts], dim=1).unique(dim=0)
    return list(rows.split([part.shape[1] for part in parts], dim=1))


def regress(features: Tensor, targets: Tensor, there: Tensor) -> Regression:
    """Regress targets (M, D) on features (M, F), with the penalty of the least leave-one-out error.

    ``there`` (M, D) is False for missing targets; a missing one is replaced by 0 and left out of the error. The
    intercept is penalised as well, which hardly matters for standardised numbers. Leaving row i out changes its error
    from e_i to e_i / (1 - h_ii), where h is the diagonal of the projection onto the fitted values.
    """
    X = _with_one(features)
    values, vectors = torch.linalg.eigh(X.T @ X)
    rotated = X @ vectors
    projected = rotated.T @ targets
    count = there.sum(0).clamp(min=1)
    best: Regression | None = None
    for penalty in PENALTIES:
        shrink = 1 / (values.clamp(min=0) + penalty)
        h = (rotated.square() * shrink).sum(1, keepdim=True).clamp(max=1 - 1e-9)
        fitted = shrink[:, None] * projected
        errors = (targets - rotated @ fitted) / (1 - h)
        spread = (torch.where(there, errors, 0).square().sum(0) / count).sqrt().clamp(min=SMALLEST_SPREAD)
        if best is None or float(spread.log().sum()) < float(best.spread.log().sum()):
            best = Regression(penalty, vectors @ fitted, spread)
    assert best is not None
    return best


def _features(sequences: Sequences, origins: Origins, dt: int, lags: int, standard: Standard) -> Tensor:
    """The last ``lags`` values and actions before each origin, 0 before the first, and the actions of the jump."""
    history = standard.values(sequences)
    actions = None if sequences.actions is None else sequences.actions.double()
    if actions is not None:
        history = torch.cat([history, actions], dim=-1)
    index = origins.t[:, None] - 1 - torch.arange(lags)
    past = history[origins.row[:, None], index.clamp(min=0)]
    parts = [torch.where((index >= 0)[..., None], past, torch.zeros_like(past)).flatten(1)]
    if actions is not None:
        steps = torch.arange(dt) if dt * actions.shape[-1] <= MOST_ACTIONS else torch.tensor([dt - 1])
        parts.append(actions[origins.row[:, None], origins.t[:, None] + steps].flatten(1))
    return torch.cat(parts, dim=1)


def _targets(sequences: Sequences, origins: Origins, dt: int, standard: Standard) -> tuple[Tensor, Tensor]:
    """x_{t+δt} (M, D), and which of its numbers were observed."""
    place = (origins.row, origins.t + dt - 1)
    return standard.values(sequences)[place], observed(sequences).flatten(2)[place]


def _spread(train: Sequences, dt: int, standard: Standard, mean: Callable[[Sequences, Origins], Tensor]) -> Tensor:
    """The root mean square error of a forecast in training, per dimension."""
    origins = training_origins(train, dt)
    if not len(origins):
        raise InputError(f"train: expected a sequence longer than δt = {dt}, got at most {int(train.lengths.max())}")
    targets, there = _targets(train, origins, dt, standard)
    errors = torch.where(there, targets - mean(train, origins), 0)
    return (errors.square().sum(0) / there.sum(0).clamp(min=1)).sqrt().clamp(min=SMALLEST_SPREAD)


def find_season(train: Sequences, longest: int | None = None) -> int | None:
    """The season of training sequences: the first high peak of the mean autocorrelation of all dimensions.

    Each sequence is freed from its linear trend. Lags up to ``longest`` are tried, by default half the longest
    sequence. None if no peak is high enough.
    """
    there = observed(train).flatten(2)
    x = _detrended(Standard.of(train).values(train), there)
    limit = min(longest or train.horizon // 2, train.horizon - 2)
    variance = x.square().sum((0, 1)) / there.sum((0, 1)).clamp(min=1)
    acf = []
    for lag in range(1, limit + 2):
        pairs = (there[:, lag:] & there[:, :-lag]).sum((0, 1))
        covariance = (x[:, lag:] * x[:, :-lag]).sum((0, 1)) / pairs.clamp(min=1)
        acf.append(float((covariance / variance.clamp(min=1e-12)).mean()))
    peaks = {
        lag: acf[lag - 1]
        for lag in range(2, limit + 1)
        if acf[lag - 2] < acf[lag - 1] >= acf[lag] and acf[lag - 1] >= SEASON_STRENGTH
    }
    if not peaks:
        return None
    return min(lag for lag, height in peaks.items() if height >= SAME_STRENGTH * max(peaks.values()))


def _detrended(x: Tensor, there: Tensor) -> Tensor:
    """The residuals of a straight line through the observed values of each sequence and dimension; 0 elsewhere."""
    weight = there.double()
    count = weight.sum(1, keepdim=True).clamp(min=1)
    time = torch.arange(x.shape[1], dtype=x.dtype)[None, :, None] * weight
    time = (time - time.sum(1, keepdim=True) / count) * weight
    centred = (x - (x * weight).sum(1, keepdim=True) / count) * weight
    slope = (time * centred).sum(1, keepdim=True) / time.square().sum(1, keepdim=True).clamp(min=1e-12)
    return centred - slope * time


def _with_one(features: Tensor) -> Tensor:
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def _normal(mean: Tensor, spread: Tensor | float) -> DiagonalNormal:
    mean = mean.double()
    return DiagonalNormal(mean, torch.as_tensor(spread, dtype=mean.dtype).log().expand_as(mean))
