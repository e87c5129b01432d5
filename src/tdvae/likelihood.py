"""Log-likelihoods: forecast densities, and importance-sampled tightenings of the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.distributions import Categorical, DiagonalNormal, Distribution
from tdvae.errors import InputError
from tdvae.models.base import Model
from tdvae.objectives import TDVAEParts, pair_terms
from tdvae.types import Belief, Pairs, Sequences


def log_mean_exp(values: Tensor, dim: int = 0) -> Tensor:
    return torch.logsumexp(values, dim) - math.log(values.shape[dim])


@dataclass(frozen=True)
class Forecast:
    """The predictive density of x_{t+δt} given x_≤t: an equal mixture of the sampled states' predictions (S, N, …)."""

    components: Distribution

    @property
    def mean(self) -> Tensor:
        return self.components.mean.mean(0)

    def log_prob(self, x: Tensor) -> Tensor:
        self._check(x)
        return log_mean_exp(self.components.log_prob(x))

    def cdf(self, x: Tensor) -> Tensor:
        """Per dimension; for continuous observations."""
        if not isinstance(self.components, DiagonalNormal):
            raise InputError(f"cdf: needs continuous observations, got {type(self.components).__name__}")
        self._check(x)
        return self.components.cdf(x).mean(0)

    def quantile(self, p: float) -> Tensor:
        """Per dimension, by bisection between the extreme components' quantiles."""
        if not isinstance(self.components, DiagonalNormal):
            raise InputError(f"quantile: needs continuous observations, got {type(self.components).__name__}")
        if not 0 < p < 1:
            raise InputError(f"p: expected strictly between 0 and 1, got {p}")
        ends = self.components.mean + self.components.sigma * torch.special.ndtri(torch.tensor(p))
        low, high = ends.amin(0), ends.amax(0)
        for _ in range(40):
            middle = (low + high) / 2
            below = self.cdf(middle) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def _check(self, x: Tensor) -> None:
        """Refuse what would broadcast: (N,) against (N, 1) would give N × N numbers, and a wrong mean."""
        shape = self.components.mean.shape[1:]
        expected = shape[:-1] if isinstance(self.components, Categorical) else shape
        if x.shape != expected:
            raise InputError(f"x: expected shape {tuple(expected)}, got {tuple(x.shape)}")


@torch.no_grad()
def forecast(model: Model, belief: Belief, dt: int, samples: int = 200, a: Tensor | None = None) -> Forecast:
    r"""Monte Carlo for :math:`\int p_B(z_t | b_t)\, p_T(z_{t+δt} | z_t)\, p_D(x_{t+δt} | z_{t+δt})`."""
    if samples < 1:
        raise InputError(f"samples: expected at least 1, got {samples}")
    return Forecast(model.predict(model.sample_state(belief, samples), dt, a))


@torch.no_grad()
def importance_log_prob(model: TDVAEParts, sequences: Sequences, pairs: Pairs, samples: int) -> Tensor:
    """log p(x_t2 | x_≤t1) by importance sampling with (p_B(z_t2 | b_t2), q_S) as proposal; of the pairs' shape."""
    draws = [-pair_terms(model, sequences, pairs, kl="sampled").total for _ in range(samples)]
    return log_mean_exp(torch.stack(draws))
