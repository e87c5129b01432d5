"""Decoders p_D(x | z)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tdvae.distributions import Bernoulli, Categorical, DiagonalNormal, Distribution
from tdvae.nn.dense import mlp
from tdvae.nn.ladder import LadderDistribution
from tdvae.types import Latent


class Decoder(nn.Module, ABC):
    """p_D(x | z)."""

    @abstractmethod
    def forward(self, z: Latent) -> Distribution:
        """The distribution of x in state z."""

    def predictive(self, z: Latent, state: LadderDistribution) -> Distribution:
        """The distribution of x when ``z`` was drawn from ``state``: here, given that very draw."""
        decoded: Distribution = self(z)
        return decoded


class FirstComponents(Decoder):
    """x = first components of z^1 plus noise (the oscillator's decoder, App. D); σ learned, or fixed at ``sigma``."""

    def __init__(self, size: int, sigma: float | None = None) -> None:
        super().__init__()
        self.size = size
        log_sigma = torch.full((size,), math.log(0.2 if sigma is None else sigma))
        if sigma is None:
            self.log_sigma = nn.Parameter(log_sigma)
        else:
            self.register_buffer("log_sigma", log_sigma)

    def forward(self, z: Latent) -> DiagonalNormal:
        mean = z.layers[0][..., : self.size]
        return DiagonalNormal(mean, self.log_sigma.expand_as(mean))

    def predictive(self, z: Latent, state: LadderDistribution) -> DiagonalNormal:
        """x is linear in z^1, so the last layer's draw is integrated exactly: its variance adds to the noise's."""
        bottom = state.layers[0]
        assert isinstance(bottom, DiagonalNormal)  # only a top layer can be a mixture
        sigma = torch.logaddexp(2 * bottom.log_sigma[..., : self.size], 2 * self.log_sigma)
        return DiagonalNormal(bottom.mean[..., : self.size], 0.5 * sigma)


class GaussianDecoder(Decoder):
    """An MLP's mean and a learned σ per dimension, in the data's own units: x = shift + scale · N(mean, σ²).

    With ``predicts_sigma`` the MLP gives σ too: for predictions that are surer at some times than at others.
    """

    shift: Tensor
    scale: Tensor
    FIRST_SIGMA = 0.2  # well below the data's spread: a wide σ would explain all as noise before the state is learned

    def __init__(
        self, latent: int, event_shape: Sequence[int], hidden: Sequence[int], predicts_sigma: bool = False
    ) -> None:
        super().__init__()
        self.event_shape = tuple(event_shape)
        self.register_buffer("shift", torch.zeros(self.event_shape))
        self.register_buffer("scale", torch.ones(self.event_shape))
        self.predicts_sigma = predicts_sigma
        self.mean = mlp(latent, hidden, math.prod(event_shape) * (2 if predicts_sigma else 1))
        self.log_sigma = nn.Parameter(torch.full(self.event_shape, math.log(self.FIRST_SIGMA)))

    def forward(self, z: Latent) -> DiagonalNormal:
        output = self.mean(z.flat)
        log_sigma: Tensor = self.log_sigma
        if self.predicts_sigma:
            output, change = output.chunk(2, dim=-1)
            log_sigma = log_sigma + change.view(*change.shape[:-1], *self.event_shape).clamp(-4.0, 4.0)
        mean = self.shift + self.scale * output.view(*output.shape[:-1], *self.event_shape)
        log_sigma = self.scale.log() + log_sigma
        return DiagonalNormal(mean, log_sigma.expand_as(mean), event_ndim=len(self.event_shape))


class BernoulliDecoder(Decoder):
    """An MLP's logits, one per dimension."""

    def __init__(self, latent: int, event_shape: Sequence[int], hidden: Sequence[int]) -> None:
        super().__init__()
        self.event_shape = tuple(event_shape)
        self.logits = mlp(latent, hidden, math.prod(event_shape))

    def forward(self, z: Latent) -> Bernoulli:
        logits = self.logits(z.flat)
        return Bernoulli(logits.view(*logits.shape[:-1], *self.event_shape), event_ndim=len(self.event_shape))


class CategoricalDecoder(Decoder):
    """An MLP's logits, one per class for each cell."""

    def __init__(self, latent: int, event_shape: Sequence[int], hidden: Sequence[int], classes: int) -> None:
        super().__init__()
        self.shape = (*event_shape, classes)
        self.logits = mlp(latent, hidden, math.prod(self.shape))

    def forward(self, z: Latent) -> Categorical:
        logits = self.logits(z.flat)
        return Categorical(logits.view(*logits.shape[:-1], *self.shape), event_ndim=len(self.shape) - 1)
