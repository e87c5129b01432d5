"""A linear forecast from the last observations, the actions before them and those of a jump, with its own weights for
every δt."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LinearForecast(nn.Module):
    """Mean and log σ of x_{t+δt}, linear in the last observations and the actions.

    For the window w of the last observations, the actions b before them and the actions a of the jump, it is
    N(w·W_δt + b·B_δt + a·A_δt + c_δt, σ_δt²).
    The weights are buffers: they are computed by least squares before training (`tdvae.forecasting.linear`) and do not
    change during it. Until then every forecast is the standard normal distribution. A jump longer than ``jumps`` has
    the weights of ``jumps``.
    """

    weight: Tensor
    past_action_weight: Tensor
    action_weight: Tensor
    bias: Tensor
    log_sigma: Tensor

    def __init__(self, lags: int, outputs: int, jumps: int, actions: int = 0) -> None:
        super().__init__()
        self.lags, self.jumps, self.actions = lags, jumps, actions
        self.register_buffer("weight", torch.zeros(jumps, lags * outputs, outputs))
        self.register_buffer("past_action_weight", torch.zeros(jumps, lags * actions, outputs))
        self.register_buffer("action_weight", torch.zeros(jumps, jumps * actions, outputs))
        self.register_buffer("bias", torch.zeros(jumps, outputs))
        self.register_buffer("log_sigma", torch.zeros(jumps, outputs))

    def forward(self, window: Tensor, dt: Tensor, actions: Tensor | None = None) -> Tensor:
        """Mean and log σ side by side, (..., 2 · outputs), for a window of features (..., lags · E)."""
        index = dt.clamp(max=self.jumps) - 1
        means = torch.einsum("...w,jwo->...jo", self.values(window).flatten(-2), self.weight) + self.bias
        if actions is not None:
            past = self.past_actions(window).flatten(-2)
            means = means + torch.einsum("...a,jao->...jo", past, self.past_action_weight)
            means = means + torch.einsum("...a,jao->...jo", self.flat_actions(actions, dt), self.action_weight)
        chosen = index[..., None, None].expand(*index.shape, 1, means.shape[-1])
        # If the last observation of a dimension is older, its σ is that of a jump from there.
        older = (index[..., None] + self._missing_steps(window)).clamp(max=self.jumps - 1)
        log_sigma = self.log_sigma[older, torch.arange(means.shape[-1], device=index.device)]
        return torch.cat([means.gather(-2, chosen)[..., 0, :], log_sigma], dim=-1)

    def values(self, window: Tensor) -> Tensor:
        """The values in a window of features, (..., lags, outputs), the last observation first.

        If the features hold values and their mask, a missing value is replaced by the last observed one before it, or
        by 0, the mean of the training data.
        """
        values, known = self._parts(window)
        return values if known is None else F.pad(values, (0, 0, 0, 1)).gather(-2, known)

    def _missing_steps(self, window: Tensor) -> Tensor:
        """How many of the last observations are missing, by dimension, (..., outputs)."""
        values, known = self._parts(window)
        return torch.zeros_like(values[..., 0, :], dtype=torch.long) if known is None else known[..., 0, :]

    def _parts(self, window: Tensor) -> tuple[Tensor, Tensor | None]:
        """The values in a window, (..., lags, outputs), and the lags of the last observed ones; None if all are."""
        features = window.unflatten(-1, (self.lags, -1))
        size = self.bias.shape[-1]
        values, mask = features[..., :size], features[..., size : features.shape[-1] - self.actions]
        if not mask.shape[-1]:
            return values, None
        lag = torch.arange(self.lags, device=window.device)[:, None]
        return values, torch.where(mask > 0.5, lag, self.lags).flip(-2).cummin(-2).values.flip(-2)

    def past_actions(self, window: Tensor) -> Tensor:
        """The actions before the observations of a window of features, (..., lags, A)."""
        features = window.unflatten(-1, (self.lags, -1))
        return features[..., features.shape[-1] - self.actions :]

    def flat_actions(self, actions: Tensor, dt: Tensor) -> Tensor:
        """The actions (..., T, A) of jumps of ``dt`` steps, 0 after the jump, as (..., jumps · A)."""
        steps = torch.arange(actions.shape[-2], device=actions.device)
        real = torch.where((steps < dt[..., None])[..., None], actions, 0)[..., : self.jumps, :]
        return F.pad(real, (0, 0, 0, self.jumps - real.shape[-2])).flatten(-2).to(self.weight.dtype)


def shift_window(window: Tensor, new: Tensor, dt: Tensor, actions: Tensor | None = None) -> Tensor:
    """The window of last observations (..., K · E) after a jump of ``dt`` steps to the observation ``new`` (..., E).

    The observations in between are not known; they are interpolated. With ``actions`` (..., J, A), those of the jump,
    each observation of the window is followed by the action before it, (..., K · (E + A)).
    """
    size = new.shape[-1] + (0 if actions is None else actions.shape[-1])
    old = window.unflatten(-1, (-1, size))  # (..., K, E + A), the last observation first
    lag = torch.arange(old.shape[-2], device=window.device)
    steps = dt[..., None]
    kept = old.gather(-2, (lag - steps).clamp(min=0)[..., None].expand_as(old))
    share = (lag / steps).to(old.dtype)[..., None]
    last = old[..., :1, : new.shape[-1]]
    between = new[..., None, :] + share * (last - new[..., None, :])
    if actions is not None:
        between = torch.cat([between, _past_actions(actions, dt, len(lag))], dim=-1)
    return torch.where((lag < steps)[..., None], between, kept).flatten(-2)


def fill_window(new: Tensor, dt: Tensor, actions: Tensor | None, lags: int) -> Tensor:
    """The window after the first observation ``new``, which fills all of it, as does the action before it."""
    if actions is not None:
        new = torch.cat([new, _past_actions(actions, dt, 1)[..., 0, :]], dim=-1)
    return new.repeat(*[1] * (new.ndim - 1), lags)


def _past_actions(actions: Tensor, dt: Tensor, lags: int) -> Tensor:
    """The last ``lags`` actions (..., lags, A) of jumps of ``dt`` steps, the last one first; the first of shorter ones
    is repeated."""
    index = (dt[..., None] - 1 - torch.arange(lags, device=dt.device)).clamp(min=0)
    return actions.gather(-2, index[..., None].expand(*index.shape, actions.shape[-1]))
