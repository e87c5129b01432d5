"""Fits linear forecasters: naive, seasonal naive, climatology, and an average of ridge regressions with seasonal lags.

A regression corrects a simple forecast, its *base*: the mean of the training data, the last observation, or the
observation one season before the target. It sees some number of last observations, and with seasons also those around
the same phase of the last two, and is penalised for large corrections (ridge regression). The errors of blocks of
successive steps that were left out of the fit choose the penalty, weight the average and give its covariance. Leaving
out single steps would not do: the targets of neighbouring steps are nearly the same if the horizon is long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tdvae.errors import InputError
from tdvae.forecasting.predictors.linear import (
    MOST_COVARIATES,
    Linear,
    Weights,
    future_of,
    jump_covariates,
    linear_mean,
    past_of,
)
from tdvae.forecasting.predictors.origins import CONTEXT_SHARE, observed, training_origins
from tdvae.types import Sequences

LAGS = (1, 2, 5, 10, 20)  # how many last observations a regression may see, beside all of them
MOST_LAGS, MOST_NUMBERS = 36, 240  # of the last observations, and numbers in them
PENALTIES = tuple(10.0**k for k in range(-3, 5))
MOST_ROWS = 20_000
MOST_WHOLE = 0.9  # share of sequences with a whole context from which on others are left out
BLOCKS = 6  # that are left out in turn
SMALLEST_SPREAD = 1e-6  # of a dimension that is predicted exactly
FURTHER = 3  # regressions in the average at horizons between those at which all are compared
# Sharpness of the weights of the average: with 10, a regression with an error 10 % larger has 1/e of the weight. With
# many rows, smaller differences are certain.
LEAST_SHARPNESS, SHARPNESS_PER_ROW = 10.0, 0.01


# Simple forecasters


def naive(data: Sequences, longest: int, season: int = 1) -> Linear:
    """The last observation, or that of the last season in the phase of the target."""
    complete = _repeating(data, season).completed(data)
    return Linear({h: _fixed(data, complete, h, _phase(season, h)) for h in range(1, longest + 1)})


def climatology(data: Sequences, longest: int) -> Linear:
    """The mean and the covariance of the training data."""
    complete = _repeating(data, 1).completed(data)
    return Linear({h: _fixed(data, complete, h, None) for h in range(1, longest + 1)})


def _repeating(data: Sequences, season: int) -> Linear:
    """The last value of the same phase, to complete data with."""
    return Linear({1: _unfitted(data, 1, _phase(season, 1))})


def _fixed(data: Sequences, complete: Sequences, h: int, place: int | None) -> Weights:
    """The observation so many steps before the last one as the forecast; None: the mean, which is 0."""
    weights = _unfitted(data, h, place)
    rows = Rows.of(data, complete, h, 1 if place is None else place + 1)
    errors = torch.where(rows.observed, rows.targets - linear_mean(weights, rows.past, rows.future, h), 0)
    return replace(weights, covariance=_covariance(errors, rows.observed, h))


def _unfitted(data: Sequences, h: int, place: int | None) -> Weights:
    """The same without the covariance of its errors."""
    size, actions = math.prod(data.x.shape[2:]), 0 if data.actions is None else data.actions.shape[-1]
    places = torch.tensor([] if place is None else [place], dtype=torch.long)
    return Weights(
        places,
        torch.eye(size, dtype=torch.float64).expand(len(places), -1, -1),
        torch.zeros(len(places), actions, size, dtype=torch.float64),
        torch.zeros(0 if not actions else _jump_size(h, actions), size, dtype=torch.float64),
        torch.zeros(size, dtype=torch.float64),
        torch.eye(size, dtype=torch.float64),
    )


def _jump_size(h: int, actions: int) -> int:
    return h * actions if h * actions <= MOST_COVARIATES else actions


# The average of regressions


@dataclass(frozen=True)
class Regression:
    """What one of the regressions is given. ``base``: a season, 1 for the last observation, 0 for the mean."""

    base: int
    lags: int
    seasonal: bool = False  # also observations around the phase of the target, one and two seasons before
    past_covariates: bool = False  # also the covariates of the last steps


@dataclass(frozen=True)
class Rows:
    """What a forecast is fitted on, in the order of time."""

    past: Tensor  # (M, C, D + A) observations and covariates, the last one last
    future: Tensor | None  # (M, h, A)
    targets: Tensor  # (M, D); 0 for missing ones
    observed: Tensor  # (M, D) False for missing targets
    h: int

    @classmethod
    def of(cls, data: Sequences, complete: Sequences, h: int, context: int) -> Rows:
        """From origins with whole contexts only, if nearly all sequences have some; ``complete`` has no gaps."""
        origins = training_origins(data, h, MOST_ROWS)
        if not len(origins):
            raise InputError(f"train: expected a sequence longer than {h} steps, got at most {int(data.lengths.max())}")
        whole = origins.select((origins.t >= context).nonzero()[:, 0])
        if len(whole.row.unique()) >= MOST_WHOLE * len(origins.row.unique()):
            origins = whole
        past, future = past_of(complete, origins, context), future_of(data, origins, h)
        place = (origins.row, origins.t + h - 1)
        seen = observed(data)[place].flatten(1)
        return cls(past, future, torch.where(seen, data.x[place].flatten(1).double(), 0), seen, h)

    def fit(self, one: Regression, seasons: Sequence[int]) -> tuple[Weights, Tensor]:
        """Regress what the base leaves over on the differences between the observations and the base; see errors.

        The mean has no such differences: the observations themselves take their place.
        """
        size, context = self.targets.shape[1], self.past.shape[1]
        values, covariates = self.past[..., :size], self.past[..., size:]
        base_place = None if one.base == 0 else _phase(one.base, self.h) if one.base > 1 else 0
        places = sorted({*range(one.lags), *(_seasonal_places(seasons, self.h, context) if one.seasonal else ())})
        index = context - 1 - torch.tensor(places)
        base = torch.zeros_like(self.targets) if base_place is None else values[:, context - 1 - base_place]
        seen = values[:, index] - base[:, None]
        past = covariates[:, index[: one.lags]].flatten(1) if one.past_covariates else seen.new_zeros(len(seen), 0)
        jump = seen.new_zeros(len(seen), 0) if self.future is None else jump_covariates(self.future, self.h)
        features = torch.cat([seen.flatten(1), past, jump, seen.new_ones(len(seen), 1)], dim=1)
        left_over = torch.where(self.observed, self.targets - base, 0)
        weights, errors = _ridge(features, left_over, self.observed, self.h)
        of_values, of_past, of_jump, bias = weights.split([seen[0].numel(), past.shape[1], jump.shape[1], 1])
        window = values.new_zeros(context, size, size)
        window[places] = of_values.unflatten(0, (len(places), size))
        if base_place is not None:
            window[base_place] += torch.eye(size, dtype=window.dtype) - window.sum(0)
        of_covariates = window.new_zeros(context, covariates.shape[2], size)
        if one.past_covariates:
            of_covariates[: one.lags] = of_past.unflatten(0, (one.lags, -1))
        return Weights(torch.arange(context), window, of_covariates, of_jump, bias[0], torch.eye(size)), errors

    def regressions(self, lags: int, seasons: Sequence[int]) -> Iterator[Regression]:
        """All that are compared, with at most so many last observations."""
        bases = [0, 1, *(s for s in seasons if _phase(s, self.h) < self.past.shape[1])]
        covariates = (False,) if self.future is None else (False, True)
        seasonal = (False, True) if _seasonal_places(seasons, self.h, self.past.shape[1]) else (False,)
        for number in sorted({min(each, lags) for each in (*LAGS, lags)}):
            yield from itertools.starmap(Regression, itertools.product(bases, [number], seasonal, covariates))


def _phase(season: int, h: int) -> int:
    """How many steps before the last observation is the one a whole number of seasons before the target."""
    return season * math.ceil(h / season) - h


def _seasonal_places(seasons: Sequence[int], h: int, context: int) -> list[int]:
    """Observations around the phase of the target one and two seasons before, and at the phase of the origin."""
    places = set()
    for season in seasons:
        for before in (0, 1):
            phase = _phase(season, h) + before * season
            places |= {phase - 1, phase, phase + 1, (before + 1) * season}
    return sorted(place for place in places if 0 <= place < context)


@torch.no_grad()
def fit_linear(
    data: Sequences, longest: int, compared: Sequence[int], seasons: Sequence[int] = (), context: int | None = None
) -> Linear | None:
    """Fit the average of regressions for every horizon up to ``longest``; None for observations of too many numbers.

    At the ``compared`` horizons all regressions are fitted, at others the best of the next compared one. ``context`` is
    how many observations are known before a forecast; by default a third of the longest sequence.
    """
    size = math.prod(data.x.shape[2:])
    if size > MOST_NUMBERS:
        return None
    known = max(1, math.ceil(int(data.lengths.max()) / CONTEXT_SHARE) if context is None else context)
    lags = min(MOST_LAGS, MOST_NUMBERS // size, known)
    used = [season for season in seasons if season <= known]
    complete = data
    if data.observed is not None:  # gaps are filled by a first fit, which is given the last values
        first = _repeating(data, 1).completed(data)
        complete = _fit(data, first, 1, compared, used, lags, known).completed(data)
    return _fit(data, complete, longest, compared, used, lags, known)


def _fit(
    data: Sequences,
    complete: Sequences,
    longest: int,
    compared: Sequence[int],
    used: Sequence[int],
    lags: int,
    known: int,
) -> Linear:
    found: dict[int, Weights] = {}
    best: list[Regression] = []
    for h in range(1, min(longest, int(data.lengths.max()) - 1) + 1):
        reach = [place + 1 for place in _seasonal_places(used, h, known)] + [_phase(s, h) + 1 for s in used]
        rows = Rows.of(data, complete, h, min(known, max([lags, *reach])))
        if h in compared or not best:
            fits = {one: rows.fit(one, used) for one in rows.regressions(lags, used)}
        else:
            valid = set(rows.regressions(lags, used))
            fits = {one: rows.fit(one, used) for one in best if one in valid}
        found[h], weights = _average(fits, rows)
        if h in compared or not best:
            best = sorted(weights, key=lambda one: -weights[one])[:FURTHER]
    return Linear(found)


def _average(fits: Mapping[Regression, tuple[Weights, Tensor]], rows: Rows) -> tuple[Weights, dict[Regression, float]]:
    """The average of several regressions, weighted by their errors, and the weights.

    All of them are given the past covariates if the best one is, else none: two kinds of regressions of which one is
    clearly worse would spoil the average.
    """
    count = rows.observed.sum(0).clamp(min=1)
    scores = {
        one: float((errors.square().sum(0) / count).sqrt().clamp(min=SMALLEST_SPREAD).log().mean())
        for one, (_, errors) in fits.items()
    }
    past = min(scores, key=lambda one: scores[one]).past_covariates
    chosen = [one for one in fits if one.past_covariates == past]
    sharpness = max(LEAST_SHARPNESS, SHARPNESS_PER_ROW * len(rows.targets))
    shares = torch.softmax(-sharpness * torch.tensor([scores[one] for one in chosen], dtype=torch.float64), 0).tolist()

    def mean(name: str) -> Tensor:
        parts = (share * getattr(fits[one][0], name) for share, one in zip(shares, chosen, strict=True))
        return sum(parts, torch.zeros(()))

    errors = sum((share * fits[one][1] for share, one in zip(shares, chosen, strict=True)), torch.zeros(()))
    values, of_past = mean("values"), mean("past")
    places = (values.abs().sum((1, 2)) + of_past.abs().sum((1, 2)) > 0).nonzero()[:, 0]
    covariance = _covariance(errors, rows.observed, rows.h)
    averaged = Weights(places, values[places], of_past[places], mean("jump"), mean("bias"), covariance)
    return averaged, dict(zip(chosen, shares, strict=True))


def _covariance(errors: Tensor, seen: Tensor, h: int) -> Tensor:
    """The covariance of errors (M, D), 0 for missing ones, shrunk to its diagonal as far as the rows are few."""
    there = seen.double()
    covariance = errors.T @ errors / (there.T @ there).clamp(min=1)
    independent = max(1.0, len(errors) / h)  # the errors of overlapping targets depend on each other
    shrinkage = min(1.0, len(covariance) / independent)
    variance = covariance.diagonal().clamp(min=SMALLEST_SPREAD**2)
    shrunk = (1 - shrinkage) * covariance
    shrunk.diagonal().copy_(variance)
    if bool(torch.linalg.cholesky_ex(shrunk).info):  # possible with missing values
        return variance.diag()
    return shrunk


def _ridge(features: Tensor, targets: Tensor, seen: Tensor, h: int) -> tuple[Tensor, Tensor]:
    """The weights (F, D) of a ridge regression on all rows, and the errors (M, D) of blocks that were left out.

    The rows next to a left-out block are left out as well, because their targets lie in it. The penalty is that of the
    least errors.
    """
    penalties = torch.tensor(PENALTIES, dtype=features.dtype)
    predicted = features.new_zeros(len(PENALTIES), *targets.shape)
    total, projected = features.T @ features, features.T @ targets
    count = len(features)
    bounds = [count * block // BLOCKS for block in range(BLOCKS + 1)]
    for start, end in itertools.pairwise(bounds):
        if start == end:
            continue
        near = slice(max(0, start - h), min(count, end + h))
        if near.stop - near.start == count:  # too few rows to leave out more than the block
            near = slice(start, end)
        part = features[near]
        kept = _solved(total - part.T @ part, projected - part.T @ targets[near], penalties)
        predicted[:, start:end] = features[start:end] @ kept
    errors = torch.where(seen, targets - predicted, 0)
    spreads = (errors.square().sum(1) / seen.sum(0).clamp(min=1)).clamp(min=SMALLEST_SPREAD**2)
    best = int(spreads.log().mean(1).argmin())
    return _solved(total, projected, penalties[best : best + 1])[0], errors[best]


def _solved(gram: Tensor, projected: Tensor, penalties: Tensor) -> Tensor:
    """The weights (P, F, D) for each of the penalties."""
    values, vectors = torch.linalg.eigh(gram)
    shrink = 1 / (values.clamp(min=0) + penalties[:, None])
    return vectors @ (shrink[..., None] * (vectors.T @ projected))
