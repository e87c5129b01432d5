"""Small distribution objects: sample, log_prob, kl, mean. Batch dimensions lead, event dimensions are summed over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


class Distribution(Protocol):
    """What a decoder returns."""

    @property
    def mean(self) -> Tensor: ...

    def sample(self) -> Tensor: ...

    def log_prob(self, x: Tensor) -> Tensor: ...


def _sum_event(value: Tensor, event_ndim: int) -> Tensor:
    return value.flatten(-event_ndim).sum(-1) if event_ndim else value


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
        """Reparametrised: gradients flow through the sample."""
        return self.mean + self.sigma * torch.randn_like(self.mean)

    def log_prob(self, x: Tensor) -> Tensor:
        standardised = (x - self.mean) * torch.exp(-self.log_sigma)
        return _sum_event(-0.5 * (standardised.square() + LOG_2PI) - self.log_sigma, self.event_ndim)

    def fixed(self) -> DiagonalNormal:
        return DiagonalNormal(self.mean.detach(), self.log_sigma.detach(), self.event_ndim)

    def kl(self, other: DiagonalNormal) -> Tensor:
        """KL(self ‖ other) in closed form."""
        shift = (self.mean - other.mean) * torch.exp(-other.log_sigma)
        log_ratio = self.log_sigma - other.log_sigma
        return _sum_event(0.5 * (torch.exp(2 * log_ratio) + shift.square() - 1) - log_ratio, self.event_ndim)

    def cdf(self, x: Tensor) -> Tensor:
        """Per dimension, not summed: the probability that this coordinate is at most ``x``."""
        return torch.special.ndtr((x - self.mean) * torch.exp(-self.log_sigma))


@dataclass(frozen=True)
class NormalMixture:
    """A mixture of C diagonal normals over the last dimension, which can be drawn from and scored."""

    components: DiagonalNormal  # (..., C, D)
    logits: Tensor  # (..., C), unnormalised log weights

    def sample(self) -> Tensor:
        """Of a drawn component. Gradients flow through its sample, not through the choice."""
        weights = torch.softmax(self.logits, dim=-1)
        chosen = torch.multinomial(weights.reshape(-1, weights.shape[-1]), 1).view(*weights.shape[:-1], 1, 1)
        chosen = chosen.expand(*chosen.shape[:-1], self.components.mean.shape[-1])
        mean, log_sigma = (
            part.gather(-2, chosen)[..., 0, :] for part in (self.components.mean, self.components.log_sigma)
        )
        return DiagonalNormal(mean, log_sigma).sample()

    def fixed(self) -> NormalMixture:
        return NormalMixture(self.components.fixed(), self.logits.detach())

    def log_prob(self, x: Tensor) -> Tensor:
        each = self.components.log_prob(x[..., None, :])
        return torch.logsumexp(torch.log_softmax(self.logits, dim=-1) + each, dim=-1)


@dataclass(frozen=True)
class PointMass:
    """An observation that is known: all probability on one value."""

    value: Tensor
    event_ndim: int = 1

    @property
    def mean(self) -> Tensor:
        return self.value

    def sample(self) -> Tensor:
        return self.value

    def log_prob(self, x: Tensor) -> Tensor:
        """0 where ``x`` is the value, minus infinity elsewhere."""
        same = (x == self.value).flatten(-self.event_ndim).all(-1) if self.event_ndim else x == self.value
        return torch.where(same, 0.0, -math.inf)


@dataclass(frozen=True)
class Bernoulli:
    """Independent bits given their logits; stable for any logit, since log(1 - p) is never formed."""

    logits: Tensor
    event_ndim: int = 1

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(self.logits)

    def sample(self) -> Tensor:
        return torch.bernoulli(self.mean)

    def log_prob(self, x: Tensor) -> Tensor:
        """Also defined for grey values in [0, 1]: the expected log-likelihood of bits drawn with that mean."""
        logits, x = torch.broadcast_tensors(self.logits, x.to(self.logits.dtype))
        value = -F.binary_cross_entropy_with_logits(logits, x, reduction="none")
        return _sum_event(value, self.event_ndim)


@dataclass(frozen=True)
class Categorical:
    """Independent cells, each one of ``C`` classes: logits (..., *event, C), values integer (..., *event)."""

    logits: Tensor
    event_ndim: int = 1

    @property
    def mean(self) -> Tensor:
        """Class probabilities, (..., *event, C)."""
        return torch.softmax(self.logits, dim=-1)

    def sample(self) -> Tensor:
        flat = self.mean.reshape(-1, self.logits.shape[-1])
        return torch.multinomial(flat, 1).reshape(self.logits.shape[:-1])

    def log_prob(self, x: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(x.shape, self.logits.shape[:-1])
        log_p = torch.log_softmax(self.logits, dim=-1).expand(*shape, -1)
        value = log_p.gather(-1, x.long().expand(shape)[..., None])[..., 0]
        return _sum_event(value, self.event_ndim)


@dataclass(frozen=True)
class DiscretisedLogistic:
    r"""Independent 8-bit values k / 255, as floats in [0, 1]: a logistic's mass on the bin around each.

    With :math:`x^\pm = x \pm 1/510`: :math:`P(x) = \sigma((x^+ - m)/s) - \sigma((x^- - m)/s)`, where the lowest bin
    reaches to minus and the highest to plus infinity. These are probabilities, so that -log2 P per value is bits per
    dimension; as no probability exceeds 1, a scale that shrinks on constant pixels gains no more than their bits.
    """

    location: Tensor  # m
    log_scale: Tensor  # log s
    event_ndim: int = 3

    LEVELS: ClassVar[int] = 256

    @property
    def mean(self) -> Tensor:
        """Of the logistic clipped to [0, 1], in closed form; that of the 256 values is less than half a bin off."""
        scale = self.log_scale.exp()
        return scale * (F.softplus(self.location / scale) - F.softplus((self.location - 1) / scale))

    @property
    def median(self) -> Tensor:
        """Of the logistic clipped to [0, 1]: unlike the mean, it does not turn grey where the scale is wide."""
        return self.location.clamp(0, 1)

    def sample(self) -> Tensor:
        tiny = torch.finfo(self.location.dtype).eps
        noise = torch.logit(torch.rand_like(self.location), eps=tiny)
        return self._bin(self.location + self.log_scale.exp() * noise) / (self.LEVELS - 1)

    def log_prob(self, x: Tensor) -> Tensor:
        """Of the bins that ``x`` lies in."""
        bins = self._bin(x.to(self.location.dtype))
        rate = torch.exp(-self.log_scale)
        low = ((bins - 0.5) / (self.LEVELS - 1) - self.location) * rate
        width = rate / (self.LEVELS - 1)
        # σ(b) - σ(a) = σ(b) σ(-a) (1 - exp(a - b)): a product, whose logarithm loses nothing far out in the tails.
        below, above = F.logsigmoid(low + width), F.logsigmoid(-low)
        inside = below + above + torch.log(-torch.expm1(-width))
        value = torch.where(bins == 0, below, torch.where(bins == self.LEVELS - 1, above, inside))
        return _sum_event(value, self.event_ndim)

    def _bin(self, x: Tensor) -> Tensor:
        return (x * (self.LEVELS - 1)).round().clamp(0, self.LEVELS - 1)
