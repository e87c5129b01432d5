"""Predictive densities of vectors of numbers, and the interface of all forecasters.

Observations are flattened to D numbers, in the units of the encoding: mean 0 and standard deviation 1 in training.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tdvae.distributions import LOG_2PI, DiagonalNormal
from tdvae.forecasting.predictors.origins import Origins
from tdvae.training.config import derive_seed
from tdvae.types import Sequences

_RANDOM = threading.RLock()
SAMPLES = 200  # states or futures behind a density that has no closed form
BISECTIONS = 40


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw random numbers from this seed, whatever was drawn before, and leave the state of the generator as it was.

    torch has one generator for all threads, so one of them draws at a time.
    """
    with _RANDOM, torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        yield


class Density(Protocol):
    """The joint density of D numbers for each of M forecasts."""

    @property
    def mean(self) -> Tensor: ...  # (M, D)

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """The log density (M,) of x (M, D), or of its entries where the mask ``observed`` is True."""
        ...

    def cdf(self, x: Tensor) -> Tensor:
        """The cumulative distribution function of each number, (M, D)."""
        ...

    def sample(self, count: int) -> Tensor:
        """Independent draws, (count, M, D)."""
        ...


class Predictor(Protocol):
    """Forecasts sequences from any origins. Their actions are covariates, whose future is known.

    Observations after an origin are not used, and may be anything.
    """

    def densities(
        self, sequences: Sequences, at: Origins, horizons: Sequence[int], samples: int = SAMPLES
    ) -> dict[int, Density]:
        """The density of the observation at each horizon."""
        ...

    def paths(self, sequences: Sequences, at: Origins, steps: Sequence[int], count: int) -> Tensor:
        """Sampled futures at several steps after the origin, (count, M, S, D); those of one sample belong together."""
        ...


@dataclass(frozen=True)
class Normals:
    """An equally weighted mixture of S normal densities with independent dimensions."""

    components: DiagonalNormal  # (S, M, D)

    @property
    def mean(self) -> Tensor:
        return self.components.mean.mean(0)

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        log_probs = self.components.log_prob(x.expand_as(self.components.mean), observed.expand(len(self), *x.shape))
        return torch.logsumexp(log_probs, 0) - math.log(len(self))

    def cdf(self, x: Tensor) -> Tensor:
        return self.components.cdf(x.expand_as(self.components.mean)).mean(0)

    def sample(self, count: int) -> Tensor:
        chosen = torch.randint(len(self), (count, *self.mean.shape[:1]))
        rows = torch.arange(len(self.mean))
        mean, log_sigma = (part[chosen, rows] for part in (self.components.mean, self.components.log_sigma))
        return DiagonalNormal(mean, log_sigma).sample()

    def __len__(self) -> int:
        return len(self.components.mean)


@dataclass(frozen=True)
class CorrelatedNormal:
    """One normal density for each forecast, all with the same covariance."""

    mean: Tensor  # (M, D)
    covariance: Tensor  # (D, D)

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        errors = torch.where(observed, x - self.mean, 0)
        covariance = self.covariance
        if not bool(observed.all()):  # the missing entries become independent of the others, with σ = 1
            both = observed[:, :, None] & observed[:, None, :]
            covariance = torch.where(both, covariance, torch.eye(len(covariance), dtype=covariance.dtype))
        factor = torch.linalg.cholesky(covariance)
        white = torch.linalg.solve_triangular(factor, errors[..., None] if factor.ndim > 2 else errors.T, upper=False)
        white = white[..., 0] if factor.ndim > 2 else white.T
        log_sigma = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (white.square().sum(-1) + LOG_2PI * observed.sum(-1)) - log_sigma

    def cdf(self, x: Tensor) -> Tensor:
        return torch.special.ndtr((x - self.mean) / self.covariance.diagonal().sqrt())

    def sample(self, count: int) -> Tensor:
        factor = torch.linalg.cholesky(self.covariance)
        return self.mean + torch.randn(count, *self.mean.shape, dtype=self.mean.dtype) @ factor.T


@dataclass(frozen=True)
class MixtureDensity:
    """A mixture of densities with weights that add up to 1."""

    parts: tuple[Density, ...]
    weights: tuple[float, ...]

    @property
    def mean(self) -> Tensor:
        return self._average([part.mean for part in self.parts])

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        return mixed_log_prob([part.log_prob(x, observed) for part in self.parts], self.weights)

    def cdf(self, x: Tensor) -> Tensor:
        return self._average([part.cdf(x) for part in self.parts])

    def sample(self, count: int) -> Tensor:
        drawn = torch.stack([part.sample(count) for part in self.parts])
        weights = torch.tensor(self.weights, dtype=torch.float64)
        chosen = torch.multinomial(weights, count * drawn.shape[2], replacement=True).view(1, count, -1, 1)
        return drawn.gather(0, chosen.expand(1, *drawn.shape[1:]))[0]

    def _average(self, values: list[Tensor]) -> Tensor:
        return sum((w * value for w, value in zip(self.weights, values, strict=True)), torch.zeros(()))


def mixed_log_prob(log_probs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The log density of a mixture from those of its parts."""
    log_weights = torch.tensor(weights, dtype=torch.float64).log()
    return torch.logsumexp(torch.stack([each.double() for each in log_probs]) + log_weights[:, None], 0)


def quantile(density: Density, level: float) -> Tensor:
    """The quantile of each number, (M, D), by bisection of the cumulative distribution function."""
    low = density.mean.clone()
    high, width = low.clone(), torch.ones_like(low)
    while bool((outside := density.cdf(low) > level).any()):
        low, width = torch.where(outside, low - width, low), 2 * width
    width = torch.ones_like(low)
    while bool((outside := density.cdf(high) < level).any()):
        high, width = torch.where(outside, high + width, high), 2 * width
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = density.cdf(middle) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
