"""The linear part of a forecast: least squares on the last observations, for every δt, before training starts.

A few hundred numbers teach a network slowly what linear regression reads off at once. So the model starts from a
regression (`tdvae.nn.linear.LinearForecast`) and learns what it leaves over.

The regression is an average of several. Each corrects a simple forecast, its *base*: the mean of the training data, the
last observation, or the observation one season before the target. It sees some number of last observations and is
penalised for large corrections (ridge regression). The errors of blocks of successive steps that were left out of the
fit choose the penalty, weight the average and give its σ. Leaving out single steps would not do: the targets of
neighbouring steps are nearly the same if δt is long.

With known inputs there are regressions with and without those of the last steps; all have those of the jump.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tdvae.forecasting.baselines import LAGS, PENALTIES, SMALLEST_SPREAD, find_season
from tdvae.forecasting.origins import observed, training_origins
from tdvae.models import TDVAE
from tdvae.models.decoders import GaussianDecoder
from tdvae.nn.linear import LinearForecast
from tdvae.types import Sequences

MOST_ROWS = 20_000
MOST_WHOLE = 0.9  # share of sequences with a whole window from which on others are left out
BLOCKS = 6  # that are left out in turn
# Sharpness of the weights of the average: with 10, a regression with an error 10 % larger has 1/e of the weight. With
# many rows, smaller differences are certain.
LEAST_SHARPNESS, SHARPNESS_PER_ROW = 10.0, 0.01

Base = Literal["mean", "last", "season"]


@dataclass(frozen=True)
class Candidate:
    """One of the regressions: its base, the number of last observations that it sees, and whether also the actions
    before them."""

    base: Base
    lags: int
    past_actions: bool = False


@dataclass(frozen=True)
class Fitted:
    """A linear forecast fitted for one δt. The average of several is one as well."""

    window: Tensor  # (K, D, D) weights of the last K observations
    past_actions: Tensor  # (K, A, D) weights of the actions before them
    actions: Tensor  # (J · A, D) weights of the actions of the jump
    bias: Tensor  # (D,)
    errors: Tensor  # (M, D) of the rows when their block was left out; 0 for missing targets
    there: Tensor  # (M, D) False for missing targets

    @property
    def spread(self) -> Tensor:
        """(D,) the root mean square of the errors."""
        return (self.errors.square().sum(0) / self.there.sum(0).clamp(min=1)).sqrt().clamp(min=SMALLEST_SPREAD)

    @property
    def score(self) -> float:
        """The NLL of the left-out blocks per dimension, up to a constant."""
        return float(self.spread.log().mean())


@dataclass(frozen=True)
class Rows:
    """What a forecast is fitted on, in the units of the model, in the order of time."""

    windows: Tensor  # (M, K, D) the last K observations, the last one first
    past_actions: Tensor  # (M, K, A) the actions before them
    actions: Tensor  # (M, J · A) numbers of the actions of the jump
    targets: Tensor  # (M, D); 0 for missing ones
    there: Tensor  # (M, D) False for missing targets
    dt: int

    def fit(self, candidate: Candidate, season: int | None) -> Fitted:
        """Regress what the base leaves over on the differences between the last observations and the base.

        The mean has no such differences: the observations themselves take their place.
        """
        size, last = self.targets.shape[1], self.windows[:, 0]
        place = None if candidate.base == "mean" else 0 if candidate.base == "last" else self._phase(season)
        base = torch.zeros_like(last) if place is None else self.windows[:, place]
        seen = self.windows[:, : candidate.lags] - base[:, None]
        past = self.past_actions[:, : candidate.lags if candidate.past_actions else 0].flatten(1)
        features = torch.cat([seen.flatten(1), past, self.actions, seen.new_ones(len(seen), 1)], dim=1)
        left_over = torch.where(self.there, self.targets - base, 0)
        weights, errors = _ridge(features, left_over, self.there, self.dt)
        parts = weights.split([candidate.lags * size, past.shape[1], self.actions.shape[1], 1])
        of_window, of_past, of_actions, bias = parts
        window = self.windows.new_zeros(self.windows.shape[1], size, size)
        window[: candidate.lags] = of_window.unflatten(0, (candidate.lags, size))
        past_actions = self.past_actions.new_zeros(*self.past_actions.shape[1:], size)
        if len(of_past):
            past_actions[: candidate.lags] = of_past.unflatten(0, (candidate.lags, -1))
        if place is not None:
            window[place] += torch.eye(size, dtype=window.dtype) - window.sum(0)
        return Fitted(window, past_actions, of_actions, bias[0], errors, self.there)

    def candidates(self, season: int | None) -> Iterator[Candidate]:
        most = self.windows.shape[1]
        bases: list[Base] = ["mean", "last"]
        if season is not None and self._phase(season) < most:
            bases.append("season")
        past = (False, True) if self.past_actions.shape[2] else (False,)
        for lags in sorted({min(lags, most) for lags in (*LAGS, most)}):
            yield from (Candidate(base, lags, past_actions) for base in bases for past_actions in past)

    def _phase(self, season: int | None) -> int:
        """The place in the window of the observation a whole number of seasons before the target."""
        assert season is not None
        return season * math.ceil(self.dt / season) - self.dt


def average(fits: dict[Candidate, Fitted]) -> tuple[Fitted, dict[Candidate, float]]:
    """The average of several regressions, weighted by their errors, and the weights.

    All of them are given the past actions if the best one is, else none: two kinds of regressions of which one is
    clearly worse would spoil the average.
    """
    past_actions = min(fits, key=lambda each: fits[each].score).past_actions
    fits = {each: fit for each, fit in fits.items() if each.past_actions == past_actions}
    there = next(iter(fits.values())).there
    scores = torch.tensor([each.score for each in fits.values()], dtype=torch.float64)
    sharpness = max(LEAST_SHARPNESS, SHARPNESS_PER_ROW * len(there))
    weights = torch.softmax(-sharpness * scores, dim=0).tolist()

    def mean(name: str) -> Tensor:
        return sum((w * getattr(each, name) for w, each in zip(weights, fits.values(), strict=True)), torch.zeros(()))

    names = ("window", "past_actions", "actions", "bias", "errors")
    return Fitted(**{name: mean(name) for name in names}, there=there), dict(zip(fits, weights, strict=True))


@torch.no_grad()
def fit_linear_part(
    model: TDVAE, data: Sequences, season: int | None = None
) -> dict[int, dict[Candidate, float]] | None:
    """Fit the linear forecast of a model; None if it has none. The weights in the average, by δt.

    ``season`` is looked for in the data if it is not given.
    """
    linear = model.linear
    if linear is None:
        return None
    season = find_season(data, model.lags) if season is None else season
    longest = min(linear.jumps, int(data.lengths.max()) - 1)
    weights: dict[int, dict[Candidate, float]] = {}
    for dt in range(1, linear.jumps + 1):
        if dt <= longest:
            rows = _rows(model, linear, data, dt)
            fitted, weights[dt] = average({each: rows.fit(each, season) for each in rows.candidates(season)})
        linear.weight[dt - 1], linear.action_weight[dt - 1] = fitted.window.flatten(0, 1), fitted.actions
        linear.past_action_weight[dt - 1] = fitted.past_actions.flatten(0, 1)
        linear.bias[dt - 1], linear.log_sigma[dt - 1] = fitted.bias, fitted.spread.log()
    return weights


def _rows(model: TDVAE, linear: LinearForecast, data: Sequences, dt: int) -> Rows:
    """Windows before the origins and the targets after them; whole windows only, if nearly all sequences have some."""
    origins = training_origins(data, dt, MOST_ROWS)
    whole = origins.select((origins.t >= model.lags).nonzero()[:, 0])
    if len(whole.row.unique()) >= MOST_WHOLE * len(origins.row.unique()):
        origins = whole
    features = model.features_at(data.select(origins.row), origins.t)
    assert features is not None
    assert isinstance(model.p_D, GaussianDecoder)
    place = (origins.row, origins.t + dt - 1)
    x = (data.x[place].double() - model.p_D.shift.double()) / model.p_D.scale.double()
    there = observed(data)[place].flatten(1)
    windows, past_actions = linear.values(features).double(), linear.past_actions(features).double()
    actions = windows.new_zeros(len(windows), 0)
    if data.actions is not None:
        jump = data.actions[origins.row[:, None], origins.t[:, None] + torch.arange(dt)]
        actions = linear.flat_actions(jump, torch.full((len(jump),), dt)).double()
    targets = torch.where(there, x.flatten(1), 0)
    seen = [windows.flatten(1), past_actions.flatten(1), actions]
    first = _first_of_equal_rows(torch.cat([*seen, targets, there], dim=1))
    return Rows(windows[first], past_actions[first], actions[first], targets[first], there[first], dt)


def _first_of_equal_rows(rows: Tensor) -> Tensor:
    """The places of rows (M, F) that do not occur before.

    Overlapping windows of one series have many equal rows. A copy of a row that is left out would give it away.
    """
    _, inverse = rows.unique(dim=0, return_inverse=True)
    places = torch.arange(len(rows))
    first = torch.full((int(inverse.max()) + 1,), len(rows)).scatter_reduce(0, inverse, places, "amin")
    return first.sort().values


def _ridge(features: Tensor, targets: Tensor, there: Tensor, dt: int) -> tuple[Tensor, Tensor]:
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
        near = slice(max(0, start - dt), min(count, end + dt))
        if near.stop - near.start == count:  # too few rows to leave out more than the block
            near = slice(start, end)
        part = features[near]
        kept = _weights(total - part.T @ part, projected - part.T @ targets[near], penalties)
        predicted[:, start:end] = features[start:end] @ kept
    errors = torch.where(there, targets - predicted, 0)
    spreads = (errors.square().sum(1) / there.sum(0).clamp(min=1)).clamp(min=SMALLEST_SPREAD**2)
    best = int(spreads.log().mean(1).argmin())
    return _weights(total, projected, penalties[best : best + 1])[0], errors[best]


def _weights(gram: Tensor, projected: Tensor, penalties: Tensor) -> Tensor:
    """The weights (P, F, D) for each of the penalties."""
    values, vectors = torch.linalg.eigh(gram)
    shrink = 1 / (values.clamp(min=0) + penalties[:, None])
    return vectors @ (shrink[..., None] * (vectors.T @ projected))
