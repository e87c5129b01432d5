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
from tdvae.forecasting.baselines import LAGS, distinct_rows, regress
from tdvae.forecasting.origins import Origins, observed, training_origins
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
class Fitted:
    """A fitted linear forecast."""

    window: Tensor  # (K, D, D) weights of the last K observations
    actions: Tensor  # (A, D) weights of the actions of the jump
    bias: Tensor  # (D,)
    spread: Tensor  # (D,) root mean square of the leave-one-out errors

    @property
    def log_spread(self) -> float:
        return float(self.spread.log().mean())


@dataclass(frozen=True)
class Rows:
    """What a forecast is fitted on, in the units of the model."""

    windows: Tensor  # (M, K, D) the last K observations, the last one first
    actions: Tensor  # (M, A) numbers of the actions of the jump
    targets: Tensor  # (M, D)
    there: Tensor  # (M, D) False for missing targets

    def fit(self, choice: Choice) -> Fitted:
        """Regress the change since the last observation on earlier changes and, if chosen, on the last observation."""
        last, size = self.windows[:, 0], self.targets.shape[1]
        changes = (self.windows[:, 1 : choice.lags] - last[:, None]).flatten(1)
        features = torch.cat([self.actions, changes, *([last] if choice.level else [])], dim=1)
        found = regress(features, self.targets - last, self.there)
        of_actions, of_changes, of_level, bias = found.weights.split(
            [self.actions.shape[1], (choice.lags - 1) * size, size if choice.level else 0, 1]
        )
        window = torch.zeros(self.windows.shape[1], size, size, dtype=last.dtype)
        window[1 : choice.lags] = of_changes.unflatten(0, (choice.lags - 1, size))
        window[0] = torch.eye(size, dtype=last.dtype) - window[1:].sum(0)
        if choice.level:
            window[0] += of_level
        return Fitted(window, of_actions, bias[0], found.spread)

    def nll(self, fitted: Fitted) -> float:
        """The mean NLL of a forecast per dimension."""
        mean = torch.einsum("mkd,kde->me", self.windows, fitted.window) + self.actions @ fitted.actions + fitted.bias
        density = DiagonalNormal(mean, fitted.spread.log().expand_as(mean), event_ndim=0)
        return -float(torch.where(self.there, density.log_prob(self.targets), 0).sum() / self.there.sum())


@torch.no_grad()
def fit_linear_part(model: TDVAE, data: Sequences, validation: Sequences, origins: Origins) -> Choice | None:
    """Fit the linear forecast of a model; None if it has none. ``origins`` are those of the validation sequences."""
    linear = model.linear
    if linear is None:
        return None
    longest = min(linear.jumps, int(data.lengths.max()) - 1)
    used = {dt: training_origins(data, dt, MOST_ROWS) for dt in range(1, longest + 1)}
    fitted = {dt: _rows(model, linear, data, at, dt) for dt, at in used.items()}
    compared = [dt for dt in HORIZONS if dt in fitted]
    lags = min(
        sorted({min(lags, model.lags) for lags in (*LAGS, model.lags)}),
        key=lambda lags: sum(fitted[dt].fit(Choice(lags, True)).log_spread for dt in compared),
    )
    checked = {dt: origins.with_target(validation, dt) for dt in compared}
    held_out = {dt: _rows(model, linear, validation, at, dt) for dt, at in checked.items() if len(at)}

    def score(choice: Choice) -> float:
        """The NLL in training, by leave-one-out, plus that on the validation sequences, which are few."""
        found = {dt: fitted[dt].fit(choice) for dt in held_out}
        return sum(each.log_spread + held_out[dt].nll(each) for dt, each in found.items())

    choice = min((Choice(lags, level) for level in (True, False)), key=score)
    for dt in range(1, linear.jumps + 1):
        found = fitted[min(dt, longest)].fit(choice)
        linear.weight[dt - 1], linear.action_weight[dt - 1] = found.window.flatten(0, 1), found.actions
        linear.bias[dt - 1], linear.log_sigma[dt - 1] = found.bias, found.spread.log()
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
