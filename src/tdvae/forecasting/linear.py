"""The linear part of a forecast: least squares on the last observations, for every δt, before training starts.

A few hundred numbers teach a network slowly what linear regression reads off at once. So the model starts from the
regression (`tdvae.nn.linear.LinearForecast`) and learns what it leaves over. The regression predicts the change since
the last observation from earlier changes. Whether it is also given the level of the last observation is chosen by the
NLL in training (leave-one-out) and on the validation sequences. The level helps if it returns to a mean. It harms if it
drifts beyond its range in training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.baselines import LAGS, Regression, distinct_rows, regress
from tdvae.forecasting.origins import Origins, observed, rolling_origins
from tdvae.models import TDVAE
from tdvae.models.decoders import GaussianDecoder
from tdvae.nn.linear import LinearForecast
from tdvae.types import Sequences

HORIZONS = (1, 2, 5, 10, 20, 50, 100)  # δt for which the choices are compared
MOST_ROWS = 20_000
MOST_WHOLE = 0.9  # share of sequences with a whole window from which on others are left out


@dataclass(frozen=True)
class Choice:
    """The number of last observations, and whether their level is used."""

    lags: int
    level: bool


@dataclass(frozen=True)
class Rows:
    """What a regression is fitted on, in the units of the model."""

    windows: Tensor  # (M, K, D) the last K observations, the last one first
    actions: Tensor  # (M, A) numbers of the actions of the jump
    targets: Tensor  # (M, D)
    there: Tensor  # (M, D) False for missing targets

    def design(self, choice: Choice) -> tuple[Tensor, Tensor]:
        """Actions, earlier observations minus the last, and the last if its level is used; and the last (M, D)."""
        last = self.windows[:, 0]
        changes = (self.windows[:, 1 : choice.lags] - last[:, None]).flatten(1)
        features = torch.cat([self.actions, changes, *([last] if choice.level else [])], dim=1)
        return features, last

    def fit(self, choice: Choice) -> Regression:
        features, last = self.design(choice)
        return regress(features, self.targets - last, self.there, choice.lags)

    def nll(self, regression: Regression, choice: Choice) -> float:
        """The mean NLL of a regression per dimension."""
        features, last = self.design(choice)
        mean = last + features @ regression.weights[:-1] + regression.weights[-1]
        density = DiagonalNormal(mean, regression.spread.log().expand_as(mean), event_ndim=0)
        return -float(torch.where(self.there, density.log_prob(self.targets), 0).sum() / self.there.sum())


@torch.no_grad()
def fit_linear_part(model: TDVAE, data: Sequences, validation: Sequences, origins: Origins) -> Choice | None:
    """Fit the linear forecast of a model; None if it has none. ``origins`` are those of the validation sequences."""
    linear = model.linear
    if linear is None:
        return None
    longest = min(linear.jumps, int(data.lengths.max()) - 1)
    everywhere = rolling_origins(data, MOST_ROWS)
    fitted = {dt: _rows(model, linear, data, everywhere.with_target(data, dt), dt) for dt in range(1, longest + 1)}
    compared = [dt for dt in HORIZONS if dt in fitted]
    lags = min(
        sorted({min(lags, model.lags) for lags in (*LAGS, model.lags)}),
        key=lambda lags: sum(float(fitted[dt].fit(Choice(lags, True)).spread.log().mean()) for dt in compared),
    )
    used = {dt: origins.with_target(validation, dt) for dt in compared}
    held_out = {dt: _rows(model, linear, validation, at, dt) for dt, at in used.items() if len(at)}

    def score(choice: Choice) -> float:
        """The NLL in training, by leave-one-out, plus that on the validation sequences, which are few."""
        regressions = {dt: fitted[dt].fit(choice) for dt in held_out}
        return sum(float(r.spread.log().mean()) + held_out[dt].nll(r, choice) for dt, r in regressions.items())

    choice = min((Choice(lags, level) for level in (True, False)), key=score)
    for dt in range(1, linear.jumps + 1):
        regression = fitted[min(dt, longest)].fit(choice)
        of_actions, of_window, linear.bias[dt - 1] = _split_weights(regression, linear, choice)
        linear.action_weight[dt - 1], linear.weight[dt - 1] = of_actions, of_window
        linear.log_sigma[dt - 1] = regression.spread.log()
    return choice


def _rows(model: TDVAE, linear: LinearForecast, data: Sequences, origins: Origins, dt: int) -> Rows:
    """Windows before the origins and the targets after them; whole windows only, if nearly all sequences have some."""
    whole = origins.select((origins.t >= model.lags).nonzero()[:, 0])
    if len(whole.row.unique()) >= MOST_WHOLE * len(origins.row.unique()):
        origins = whole
    features = model.features_at(data.select(origins.row), origins.t)
    assert features is not None
    assert isinstance(model.p_D, GaussianDecoder)
    place = (origins.row, origins.t + dt - 1)
    x = (data.x[place].double() - model.p_D.shift.double()) / model.p_D.scale.double()
    there = observed(data)[place].flatten(1)
    windows = linear.values(features)
    actions = features[:, :0]
    if data.actions is not None:
        jump = data.actions[origins.row[:, None], origins.t[:, None] + torch.arange(dt)]
        actions = linear.flat_actions(jump, torch.full((len(jump),), dt))
    targets = torch.where(there, x.flatten(1), 0)
    flat, actions, targets, given = distinct_rows(windows.flatten(1), actions, targets, there)
    return Rows(flat.unflatten(1, windows.shape[1:]), actions, targets, given > 0)


def _split_weights(regression: Regression, linear: LinearForecast, choice: Choice) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of the regression as those of the actions and of a window of observations, and the intercept."""
    actions, size = linear.action_weight.shape[1], linear.bias.shape[1]
    of_actions, of_changes, of_level, bias = regression.weights.split(
        [actions, (choice.lags - 1) * size, size if choice.level else 0, 1]
    )
    changes = of_changes.unflatten(0, (choice.lags - 1, size))
    found = torch.zeros(linear.lags, size, size, dtype=changes.dtype)
    found[0] = torch.eye(size, dtype=changes.dtype) - changes.sum(0)
    if choice.level:
        found[0] += of_level
    found[1 : choice.lags] = changes
    return of_actions, found.flatten(0, 1), bias[0]
