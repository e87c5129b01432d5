"""Linear forecasters: for every horizon, weights of earlier observations and covariates, and the covariance of errors.

Naive, seasonal naive, climatology and an average of ridge regressions are of this kind; `regression` fits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.predictors.density import SAMPLES, CorrelatedNormal, Density, Normals
from tdvae.forecasting.predictors.origins import Origins, observed
from tdvae.types import Sequences

MOST_COVARIATES = 40  # numbers; a longer jump gives the regression the covariates of its last step only
LARGEST = 20.0  # standard deviations; a sampled future stays below


@dataclass(frozen=True)
class Weights:
    """A linear forecast at one horizon. The average of several is one as well."""

    places: Tensor  # (O,) how many steps before the last observation each of the used ones is
    values: Tensor  # (O, D, D)
    past: Tensor  # (O, A, D) weights of the covariates of the same steps
    jump: Tensor  # (J · A, D) weights of the covariates after the origin
    bias: Tensor  # (D,)
    covariance: Tensor  # (D, D) of the errors

    def named(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).contiguous() for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Linear:
    """A linear forecaster for horizons 1, 2, …; longer ones are simulated step by step."""

    horizons: Mapping[int, Weights]

    def densities(
        self, sequences: Sequences, at: Origins, horizons: Sequence[int], samples: int = SAMPLES
    ) -> dict[int, Density]:
        past = past_of(self.completed(sequences), at, self.context)
        future = future_of(sequences, at, max(horizons))
        found: dict[int, Density] = {}
        for h in horizons:
            if weights := self.horizons.get(h):
                mean = linear_mean(weights, past, future, h)
                found[h] = CorrelatedNormal(mean, weights.covariance)
        beyond = [h for h in horizons if h not in self.horizons]
        if beyond:
            means = self._simulate(past, future, max(beyond), samples)[1]
            log_sigma = self.horizons[1].covariance.diagonal().log() / 2
            for h in beyond:
                found[h] = Normals(DiagonalNormal(means[h - 1], log_sigma.expand_as(means[h - 1])))
        return found

    def paths(self, sequences: Sequences, at: Origins, steps: Sequence[int], count: int) -> Tensor:
        past = past_of(self.completed(sequences), at, self.context)
        future = future_of(sequences, at, max(steps))
        drawn = self._simulate(past, future, max(steps), count)[0]
        return drawn[[step - 1 for step in steps]].permute(1, 2, 0, 3)

    def completed(self, sequences: Sequences) -> Sequences:
        """The sequences with forecasts of one step in place of missing numbers, and 0 at the first step."""
        if sequences.observed is None:
            return sequences
        missing = ~observed(sequences).flatten(2)
        whole = replace(sequences, x=torch.where(missing.view_as(sequences.x), 0, sequences.x), observed=None)
        x, context = whole.x.flatten(2), self.context
        for t in missing[:, 1:].any(2).any(0).nonzero()[:, 0].add(1).tolist():
            rows = missing[:, t].any(1).nonzero()[:, 0]
            at = Origins(rows, torch.full_like(rows, t), rows)
            mean = linear_mean(self.horizons[1], past_of(whole, at, context), future_of(whole, at, 1), 1)
            x[rows, t] = torch.where(missing[rows, t], mean.clamp(-LARGEST, LARGEST).to(x.dtype), x[rows, t])
        return whole

    @property
    def context(self) -> int:
        """How many last observations are used."""
        return 1 + max((int(w.places.max()) for w in self.horizons.values() if len(w.places)), default=0)

    def _simulate(self, past: Tensor, future: Tensor | None, steps: int, count: int) -> tuple[Tensor, Tensor]:
        """Futures by single steps, and the mean of each step given those before, both (steps, count, M, D)."""
        one = self.horizons[1]
        factor, lead = torch.linalg.cholesky(one.covariance), (count, len(past))
        window = past.expand(count, *past.shape).flatten(0, 1)
        drawn, means = [], []
        for step in range(steps):
            known = None if future is None else future[:, step : step + 1].expand(count, -1, -1, -1).flatten(0, 1)
            mean = linear_mean(one, window, known, 1).clamp(-LARGEST, LARGEST)
            x = mean + torch.randn_like(mean) @ factor.T
            means.append(mean.unflatten(0, lead))
            drawn.append(x.unflatten(0, lead))
            newest = x if known is None else torch.cat([x, known[:, 0]], dim=-1)
            window = torch.cat([window[:, 1:], newest[:, None]], dim=1)
        return torch.stack(drawn), torch.stack(means)

    def tensors(self) -> dict[str, Tensor]:
        """All numbers by name, for a file."""
        return {
            f"{h}.{name}": tensor for h, weights in self.horizons.items() for name, tensor in weights.named().items()
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Linear:
        parts: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            h, _, name = key.partition(".")
            parts.setdefault(int(h), {})[name] = tensor
        return cls({h: Weights(**parts[h]) for h in sorted(parts)})


# What a forecast is computed from


def past_of(sequences: Sequences, at: Origins, length: int) -> Tensor:
    """The last observations and covariates before each origin, (M, length, D + A); before the first, that one.

    Nothing may be missing.
    """
    rows, index = at.row[:, None], (at.t[:, None] - length + torch.arange(length)).clamp(min=0)
    values = sequences.x.flatten(2)[rows, index].double()
    return values if sequences.actions is None else torch.cat([values, sequences.actions[rows, index].double()], -1)


def future_of(sequences: Sequences, at: Origins, steps: int) -> Tensor | None:
    """The covariates after each origin, (M, steps, A)."""
    if sequences.actions is None:
        return None
    return sequences.actions[at.row[:, None], at.t[:, None] + torch.arange(steps)].double()


def linear_mean(weights: Weights, past: Tensor, future: Tensor | None, h: int) -> Tensor:
    size, used = len(weights.bias), past[:, past.shape[1] - 1 - weights.places]
    mean = weights.bias + used[..., :size].flatten(1) @ weights.values.flatten(0, 1)
    if future is not None:
        mean = mean + used[..., size:].flatten(1) @ weights.past.flatten(0, 1)
        mean = mean + jump_covariates(future, h) @ weights.jump
    return mean


def jump_covariates(future: Tensor, h: int) -> Tensor:
    """The covariates of a jump (M, J · A): of all its steps, or of the last one if they are many."""
    first = 0 if h * future.shape[-1] <= MOST_COVARIATES else h - 1
    return future[:, first:h].flatten(1)
