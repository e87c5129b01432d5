"""Distributions of observations and latent states.

Batch dimensions come first; log densities and KL divergences are summed over the last ``event_ndim`` dimensions.
For observations with missing values, ``log_prob(x, observed)`` sums over the entries where the mask ``observed`` is
True. The entries are independent, so this is the log density of those that were observed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from tdvae import checks
from tdvae.errors import InputError

LOG_2PI = math.log(2 * math.pi)


class Distribution(Protocol):
    """Interface of the distributions that decoders return."""

    @property
    def mean(self) -> Tensor: ...

    def sample(self) -> Tensor: ...

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor: ...


def _sum_event(value: Tensor, event_ndim: int, observed: Tensor | None = None) -> Tensor:
    if observed is not None:
        value = torch.where(observed, value, 0)
    return value.flatten(-event_ndim).sum(-1) if event_ndim else value


def _fitting(x: Tensor, shape: torch.Size, observed: Tensor | None = None) -> Tensor:
    """x, if it is real and broadcasts with the shape of the parameters, with 0 where it was not observed."""
    for name, value in {"x": x, **({} if observed is None else {"observed": observed})}.items():
        try:
            torch.broadcast_shapes(checks.check_of(Tensor)(name, value).shape, shape)
        except RuntimeError:
            raise InputError(
                f"{name}: expected a shape that broadcasts with {tuple(shape)}, got {tuple(value.shape)}"
            ) from None
    if observed is None:
        return x
    if observed.dtype != torch.bool:
        raise InputError(f"observed: expected truth values, got {observed.dtype}")
    return torch.where(observed, x, torch.zeros_like(x))


def _measured(x: Tensor, shape: torch.Size, observed: Tensor | None = None) -> Tensor:
    """`_fitting`, if x also holds numbers and not truth values."""
    fitting = _fitting(x, shape, observed)
    if x.dtype == torch.bool:
        raise InputError("x: expected numbers, got torch.bool")
    return fitting


def _check_unit_interval(x: Tensor) -> None:
    """Raise if x has values outside of [0, 1], to which these distributions would give a meaningless density."""
    if not checks.holds((x >= 0) & (x <= 1)):
        low, high = float(x.min()), float(x.max())
        raise InputError(f"x: expected values in [0, 1], got {low:g} to {high:g}; divide bytes by 255")


@dataclass(frozen=True)
class DiagonalNormal:
    """N(mean, diag(exp(log_sigma)²)) over the last ``event_ndim`` dimensions."""

    mean: Tensor
    log_sigma: Tensor
    event_ndim: int = 1

    @property
    def sigma(self) -> Tensor:
        return self.log_sigma.exp()

    def sample(self) -> Tensor:
        """A reparametrised sample: gradients flow through it."""
        return self.mean + self.sigma * torch.randn_like(self.mean)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        x = _measured(x, self.mean.shape, observed)
        if observed is not None:
            x = torch.where(observed, x, self.mean)  # missing entries do not reach the gradient
        standardised = (x - self.mean) * torch.exp(-self.log_sigma)
        return _sum_event(-0.5 * (standardised.square() + LOG_2PI) - self.log_sigma, self.event_ndim, observed)

    def map(self, change: Callable[[Tensor], Tensor]) -> DiagonalNormal:
        """The distribution with changed parameters."""
        return DiagonalNormal(change(self.mean), change(self.log_sigma), self.event_ndim)

    def kl(self, other: DiagonalNormal) -> Tensor:
        """KL(self ‖ other) in closed form."""
        shift = (self.mean - other.mean) * torch.exp(-other.log_sigma)
        log_ratio = self.log_sigma - other.log_sigma
        return _sum_event(0.5 * (torch.exp(2 * log_ratio) + shift.square() - 1) - log_ratio, self.event_ndim)

    def cdf(self, x: Tensor) -> Tensor:
        """The cumulative distribution function of each dimension; not summed over the event."""
        return torch.special.ndtr((_measured(x, self.mean.shape) - self.mean) * torch.exp(-self.log_sigma))


@dataclass(frozen=True)
class NormalMixture:
    """A mixture of C diagonal normal distributions over the last dimension."""

    components: DiagonalNormal  # (..., C, D)
    logits: Tensor  # (..., C), unnormalised log weights

    def sample(self) -> Tensor:
        """A sample of a random component. Gradients flow through the sample, not through the choice of component."""
        weights = torch.softmax(self.logits, dim=-1)
        chosen = torch.multinomial(weights.reshape(-1, weights.shape[-1]), 1).view(*weights.shape[:-1], 1, 1)
        chosen = chosen.expand(*chosen.shape[:-1], self.components.mean.shape[-1])
        mean, log_sigma = (
            part.gather(-2, chosen)[..., 0, :] for part in (self.components.mean, self.components.log_sigma)
        )
        return DiagonalNormal(mean, log_sigma).sample()

    def map(self, change: Callable[[Tensor], Tensor]) -> NormalMixture:
        """The distribution with changed parameters."""
        return NormalMixture(self.components.map(change), change(self.logits))

    def log_prob(self, x: Tensor) -> Tensor:
        log_probs = self.components.log_prob(x[..., None, :])
        return torch.logsumexp(torch.log_softmax(self.logits, dim=-1) + log_probs, dim=-1)


@dataclass(frozen=True)
class PointMass:
    """The distribution of a known observation: all probability is on one value. NaN entries are unknown."""

    value: Tensor
    event_ndim: int = 1

    @property
    def mean(self) -> Tensor:
        return self.value

    def sample(self) -> Tensor:
        return self.value

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """0 where ``x`` equals the value, minus infinity elsewhere; unknown entries are not compared."""
        x = _fitting(x, self.value.shape, observed)
        log_prob = torch.where((x == self.value) | self.value.isnan(), 0.0, -math.inf)
        return _sum_event(log_prob, self.event_ndim, observed)


@dataclass(frozen=True)
class Bernoulli:
    """Independent bits, parametrised by logits. `log_prob` is finite for every finite logit."""

    logits: Tensor
    event_ndim: int = 1

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(self.logits)

    def sample(self) -> Tensor:
        return torch.bernoulli(self.mean)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """For ``x`` between 0 and 1, the expected log likelihood of bits with mean ``x``."""
        x = _fitting(x, self.logits.shape, observed)
        _check_unit_interval(x)
        logits, x = torch.broadcast_tensors(self.logits, x.to(self.logits.dtype))
        value = -F.binary_cross_entropy_with_logits(logits, x, reduction="none")
        return _sum_event(value, self.event_ndim, observed)


@dataclass(frozen=True)
class Categorical:
    """Independent categorical variables of ``C`` classes: logits (..., *event, C), integer values (..., *event)."""

    logits: Tensor
    event_ndim: int = 1

    @property
    def mean(self) -> Tensor:
        """Class probabilities, (..., *event, C)."""
        return torch.softmax(self.logits, dim=-1)

    def sample(self) -> Tensor:
        flat = self.mean.reshape(-1, self.logits.shape[-1])
        return torch.multinomial(flat, 1).reshape(self.logits.shape[:-1])

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        x = checks.integers("x", _fitting(x, self.logits.shape[:-1], observed))
        classes = self.logits.shape[-1]
        if not checks.holds((x >= 0) & (x < classes)):
            raise InputError(f"x: expected classes from 0 to {classes - 1}, got {int(x.min())} to {int(x.max())}")
        shape = torch.broadcast_shapes(x.shape, self.logits.shape[:-1])
        log_p = torch.log_softmax(self.logits, dim=-1).expand(*shape, -1)
        value = log_p.gather(-1, x.long().expand(shape)[..., None])[..., 0]
        return _sum_event(value, self.event_ndim, observed)


@dataclass(frozen=True)
class DiscretisedLogistic:
    r"""Independent 8-bit values k / 255, as floats in [0, 1]: the probability of a bin under a logistic distribution.

    With :math:`x^\pm = x \pm 1/510`: :math:`P(x) = \sigma((x^+ - m)/s) - \sigma((x^- - m)/s)`. The lowest bin extends
    to minus infinity and the highest to plus infinity. P is a probability, so -log2 P per value is bits per dimension,
    and the log likelihood of constant pixels stays at most 0 however small the scale becomes.
    """

    location: Tensor  # m
    log_scale: Tensor  # log s
    event_ndim: int = 3

    LEVELS: ClassVar[int] = 256

    @property
    def mean(self) -> Tensor:
        """Mean of the logistic clipped to [0, 1], in closed form; within half a bin of the mean of the 256 values."""
        scale = self.log_scale.exp()
        return scale * (F.softplus(self.location / scale) - F.softplus((self.location - 1) / scale))

    @property
    def median(self) -> Tensor:
        """Median of the logistic clipped to [0, 1]. Unlike the mean, it does not tend to grey for a large scale."""
        return self.location.clamp(0, 1)

    def sample(self) -> Tensor:
        eps = torch.finfo(self.location.dtype).eps
        noise = torch.logit(torch.rand_like(self.location), eps=eps)
        return self._bin(self.location + self.log_scale.exp() * noise) / (self.LEVELS - 1)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Log probability of the bins that contain ``x``."""
        x = _fitting(x, self.location.shape, observed)
        _check_unit_interval(x)
        bins = self._bin(x.to(self.location.dtype))
        rate = torch.exp(-self.log_scale)
        low = ((bins - 0.5) / (self.LEVELS - 1) - self.location) * rate
        width = rate / (self.LEVELS - 1)
        # σ(b) - σ(a) = σ(b) σ(-a) (1 - exp(a - b)): the log of this product is accurate in the tails too.
        below, above = F.logsigmoid(low + width), F.logsigmoid(-low)
        inside = below + above + torch.log(-torch.expm1(-width))
        value = torch.where(bins == 0, below, torch.where(bins == self.LEVELS - 1, above, inside))
        return _sum_event(value, self.event_ndim, observed)

    def _bin(self, x: Tensor) -> Tensor:
        return (x * (self.LEVELS - 1)).round().clamp(0, self.LEVELS - 1)
