"""The ladder: a conditional distribution of an L-layer state, sampled from the top layer down (App. C and D).

p_B, q_S and p_T are ladders; they differ in what they are conditioned on. Subclasses implement the context and the
distribution of one layer. The base class implements sampling and evaluation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.distributions import DiagonalNormal, NormalMixture
from tdvae.errors import InputError
from tdvae.nn.dense import MapFactory
from tdvae.types import Latent

# Soft bounds of log σ. Without them, the σ of p_T would go to 0 for coordinates of z that never change.
LOG_SIGMA_MIN, LOG_SIGMA_MAX = -6.0, 2.0


LayerDistribution = DiagonalNormal | NormalMixture


@dataclass(frozen=True)
class LadderDistribution:
    """One distribution per layer, each conditioned on the values of the layers above; ``layers[0]`` is that of z^1."""

    layers: tuple[LayerDistribution, ...]

    def log_prob(self, z: Latent) -> Tensor:
        """The joint log density of ``z``, whose upper layers the layers' distributions have to be conditioned on."""
        return sum_layers([layer.log_prob(v) for layer, v in zip(self.layers, z.layers, strict=True)])

    def detach(self) -> LadderDistribution:
        """The same distributions with parameters that receive no gradient; a sample still does."""
        return self.map(Tensor.detach)

    def map(self, change: Callable[[Tensor], Tensor]) -> LadderDistribution:
        """The distributions with changed parameters."""
        return LadderDistribution(tuple(layer.map(change) for layer in self.layers))

    def kl(self, other: LadderDistribution) -> Tensor:
        """KL(self ‖ other) in closed form: L^1_{t1} + L^2_{t1} of App. D. Layers must be normal, given the same z."""
        return sum_layers([_normal(q).kl(_normal(p)) for q, p in zip(self.layers, other.layers, strict=True)])


def _normal(layer: LayerDistribution) -> DiagonalNormal:
    assert isinstance(layer, DiagonalNormal)  # only p_T has mixtures, and no KL of p_T is computed
    return layer


def sum_layers(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum(0)


class Ladder(nn.Module, ABC):
    """A conditional distribution of a state. Subclasses implement `context` and `layer`, and some override `after`."""

    depth: int

    @abstractmethod
    def context(self, *conditions: Any) -> Any:
        """The features that all layers share, computed once from the variables it is conditioned on."""

    @abstractmethod
    def layer(self, index: int, context: Any, above: Sequence[Tensor]) -> LayerDistribution:
        """The distribution of z^{index + 1}, given the context and the samples of the layers above."""

    def after(self, index: int, context: Any, sample: Tensor) -> Any:
        """The context of the layers below z^{index + 1}, given its sample; for a recurrent summary (App. C)."""
        return context

    def bind(self, *conditions: Any) -> Conditional:
        """The distribution given ``conditions``, for several samples and evaluations with one context."""
        return Conditional(self, self.context(*conditions))

    def sample(self, *conditions: Any) -> tuple[Latent, LadderDistribution]:
        """Sample a state from the top layer down; returns it with the distribution it was sampled from."""
        return self.bind(*conditions).sample()

    def sample_shared(self, *conditions: Any) -> tuple[Latent, LadderDistribution]:
        """Sample one state for each group of conditions (..., K, size); only a product posterior can do so."""
        raise InputError("pairs: expected a model with posterior='product' for times that share t1, got another")

    def given(self, z: Latent, *conditions: Any) -> LadderDistribution:
        """The distribution of each layer, conditioned on the layers of ``z`` above it."""
        return self.bind(*conditions).given(z)

    def descend(
        self, context: Any, choose: Callable[[int, LayerDistribution], Tensor]
    ) -> tuple[Latent, LadderDistribution]:
        """Compute the distribution of each layer from the top down, with the values that ``choose`` returns."""
        values: tuple[Tensor, ...] = ()
        layers: tuple[LayerDistribution, ...] = ()
        for index in reversed(range(self.depth)):
            layer = self.layer(index, context, values)
            layers = (layer, *layers)
            values = (choose(index, layer), *values)
            if index > 0:
                context = self.after(index, context, values[0])
        return Latent(values), LadderDistribution(layers)


@dataclass(frozen=True)
class Conditional:
    """A ladder with a fixed context."""

    ladder: Ladder
    context: Any

    def sample(self) -> tuple[Latent, LadderDistribution]:
        """Sample a state; returns it with the distribution it was sampled from."""
        return self.ladder.descend(self.context, lambda index, layer: layer.sample())

    def given(self, z: Latent) -> LadderDistribution:
        """The distribution of each layer, conditioned on the layers of ``z`` above it."""
        return self.ladder.descend(self.context, lambda index, layer: z.layers[index])[1]


class DenseHeads(nn.Module):
    """One D map per layer: N(D(context, z^{l+1}, …, z^L)), with ``base_mean`` added to its mean if given.

    ``init_log_sigma`` is the initial log σ of all layers, and ``gain`` scales the initial outputs.
    """

    log_temperature: Tensor

    def __init__(
        self, context: int, sizes: Sequence[int], make_map: MapFactory, init_log_sigma: float, gain: float = 1.0
    ) -> None:
        super().__init__()
        self.init_log_sigma = init_log_sigma
        self.register_buffer("log_temperature", torch.zeros(()))  # added to log σ; set by calibration after training
        self.maps = nn.ModuleList(
            make_map(context + sum(sizes[index + 1 :]), 2 * size, gain=gain) for index, size in enumerate(sizes)
        )

    def forward(
        self, index: int, context: Tensor, above: Sequence[Tensor], base_mean: Latent | None = None
    ) -> DiagonalNormal:
        output = self.maps[index](torch.cat([context, *above], dim=-1))
        # Log densities are differences of large numbers, so they are computed in full precision.
        mean, log_sigma = output.to(next(self.parameters()).dtype).chunk(2, dim=-1)
        if base_mean is not None:
            mean = base_mean.layers[index] + mean
        return DiagonalNormal(mean, bound_log_sigma(self.init_log_sigma + log_sigma) + self.log_temperature)


def bound_log_sigma(log_sigma: Tensor) -> Tensor:
    """A smooth function with values between LOG_SIGMA_MIN and LOG_SIGMA_MAX, close to the identity well inside."""
    log_sigma = LOG_SIGMA_MAX - F.softplus(LOG_SIGMA_MAX - log_sigma)
    return LOG_SIGMA_MIN + F.softplus(log_sigma - LOG_SIGMA_MIN)


def product(prior: DiagonalNormal, message: DiagonalNormal) -> DiagonalNormal:
    """The normalised product of two normal densities: precisions add, and weight the means."""
    weight = torch.sigmoid(2 * (prior.log_sigma - message.log_sigma))  # the message's share of the precision
    return DiagonalNormal(
        prior.mean + weight * (message.mean - prior.mean),
        -0.5 * torch.logaddexp(-2 * prior.log_sigma, -2 * message.log_sigma),
    )


def product_over_group(messages: DiagonalNormal) -> DiagonalNormal:
    """The normalised product of the K normal densities of each group (..., K, size); one of them is unchanged."""
    log_precision = -2 * messages.log_sigma
    mean = (torch.softmax(log_precision, dim=-2) * messages.mean).sum(-2)
    return DiagonalNormal(mean, -0.5 * torch.logsumexp(log_precision, dim=-2))


def for_each(k: int, value: Tensor) -> Tensor:
    """Expand (..., size) to (..., k, size)."""
    return value[..., None, :].expand(*value.shape[:-1], k, -1)
