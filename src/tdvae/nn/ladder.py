"""The ladder: an L-layer conditional distribution of a state, sampled from the top layer down (App. C and D).

p_B, q_S and p_T are all ladders; they differ only in what they condition on. A filling says what its context is and
what one layer's distribution is; drawing and scoring are written once, here.
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
from tdvae.nn.dense import MapFactory
from tdvae.types import Latent

# Soft bounds of log σ: a part of the state that never changes would drive the transition's σ to 0 without them.
LOG_SIGMA_MIN, LOG_SIGMA_MAX = -6.0, 2.0


LayerLaw = DiagonalNormal | NormalMixture


@dataclass(frozen=True)
class LadderDistribution:
    """One law per layer, each given the layers above it as they were drawn; ``layers[0]`` is z^1's."""

    layers: tuple[LayerLaw, ...]

    def log_prob(self, z: Latent) -> Tensor:
        """The joint log density: of that z whose upper layers these normals were conditioned on."""
        return sum_layers([normal.log_prob(v) for normal, v in zip(self.layers, z.layers, strict=True)])

    def fixed(self) -> LadderDistribution:
        """The same laws as constants: a log density's gradient then comes through the draw alone."""
        return LadderDistribution(tuple(law.fixed() for law in self.layers))

    def kl(self, other: LadderDistribution) -> Tensor:
        """Closed form, layer by layer given the same upper layers: L^1_{t1} + L^2_{t1} of App. D. For normals only."""
        return sum_layers([_normal(q).kl(_normal(p)) for q, p in zip(self.layers, other.layers, strict=True)])


def _normal(law: LayerLaw) -> DiagonalNormal:
    assert isinstance(law, DiagonalNormal)  # only p_T has mixtures, and no KL is taken of it
    return law


def sum_layers(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum(0)


class Ladder(nn.Module, ABC):
    """A conditional distribution of a state. Fillings define ``context`` and ``layer``; some need ``after`` as well."""

    depth: int

    @abstractmethod
    def context(self, *given: Any) -> Any:
        """What all layers share, computed once from the conditional's arguments."""

    @abstractmethod
    def layer(self, index: int, context: Any, above: Sequence[Tensor]) -> LayerLaw:
        """The distribution of z^{index + 1}, given the context and the layers above it."""

    def after(self, index: int, context: Any, drawn: Tensor) -> Any:
        """The context of the layers below z^{index + 1}, once that is known: where a running summary grows (App. C)."""
        return context

    def bind(self, *given: Any) -> Conditional:
        """The distribution with its arguments fixed, for drawing and scoring in one context."""
        return Conditional(self, self.context(*given))

    def sample(self, *given: Any) -> tuple[Latent, LadderDistribution]:
        """Draw a state top-down, together with the distribution it was drawn from."""
        return self.bind(*given).sample()

    def given(self, z: Latent, *given: Any) -> LadderDistribution:
        """The distribution of a state drawn elsewhere: each layer sees the layers of ``z`` above it."""
        return self.bind(*given).given(z)

    def descend(self, context: Any, choose: Callable[[int, LayerLaw], Tensor]) -> tuple[Latent, LadderDistribution]:
        """From the top layer down: each layer's distribution, and the value that ``choose`` takes for it."""
        states: tuple[Tensor, ...] = ()
        laws: tuple[LayerLaw, ...] = ()
        for index in reversed(range(self.depth)):
            law = self.layer(index, context, states)
            laws = (law, *laws)
            states = (choose(index, law), *states)
            if index > 0:  # below z^1 there is nothing to prepare for
                context = self.after(index, context, states[0])
        return Latent(states), LadderDistribution(laws)


@dataclass(frozen=True)
class Conditional:
    """A ladder in one context."""

    ladder: Ladder
    context: Any

    def sample(self) -> tuple[Latent, LadderDistribution]:
        """A draw, and the distribution it was drawn from."""
        return self.ladder.descend(self.context, lambda index, law: law.sample())

    def given(self, z: Latent) -> LadderDistribution:
        """The distribution of a state drawn elsewhere."""
        return self.ladder.descend(self.context, lambda index, law: z.layers[index])[1]


class DenseHeads(nn.Module):
    """One D map per layer: N(D(context, z^{l+1}, …, z^L)), its mean measured from ``around`` if that is given.

    ``init_log_sigma`` is where the log σ of all layers start from.
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
        self, index: int, context: Tensor, above: Sequence[Tensor], around: Latent | None = None
    ) -> DiagonalNormal:
        output = self.maps[index](torch.cat([context, *above], dim=-1))
        # Log densities are differences of large numbers: in full precision, whatever the maps were computed in.
        mean, log_sigma = output.to(next(self.parameters()).dtype).chunk(2, dim=-1)
        if around is not None:
            mean = around.layers[index] + mean
        return DiagonalNormal(mean, softly_bounded(self.init_log_sigma + log_sigma) + self.log_temperature)


def softly_bounded(log_sigma: Tensor) -> Tensor:
    """Between LOG_SIGMA_MIN and LOG_SIGMA_MAX, and hardly changed well inside."""
    log_sigma = LOG_SIGMA_MAX - F.softplus(LOG_SIGMA_MAX - log_sigma)
    return LOG_SIGMA_MIN + F.softplus(log_sigma - LOG_SIGMA_MIN)


def product(prior: DiagonalNormal, message: DiagonalNormal) -> DiagonalNormal:
    """The normalised product of two normals: precisions add, means are weighted by them."""
    weight = torch.sigmoid(2 * (prior.log_sigma - message.log_sigma))  # the message's share of the precision
    return DiagonalNormal(
        prior.mean + weight * (message.mean - prior.mean),
        -0.5 * torch.logaddexp(-2 * prior.log_sigma, -2 * message.log_sigma),
    )
