"""Decoders p_D(x | z), and p_D(x_t2 | z_t2, s_t1, δt, a) where the observation is part of the state."""

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
    """The distribution of an observation given a state."""

    @abstractmethod
    def forward(self, z: Latent, origin: Tensor | None = None) -> Distribution:
        """The distribution of x in state z.

        ``origin`` (..., F) holds the features of (s_t1, δt, actions), for a decoder that reads them beside z_t2.
        """

    def predictive(self, z: Latent, law: LadderDistribution, origin: Tensor | None = None) -> Distribution:
        """The distribution of x when ``z`` was drawn from ``law``: here, given that very draw."""
        decoded: Distribution = self(z, origin)
        return decoded


class CoordinatesDecoder(Decoder):
    """x = the first coordinates of z^1 plus noise (the oscillator's decoder, App. D); σ learned, or fixed."""

    def __init__(self, size: int, sigma: float | None = None) -> None:
        super().__init__()
        self.size = size
        log_sigma = torch.full((size,), math.log(0.2 if sigma is None else sigma))
        if sigma is None:
            self.log_sigma = nn.Parameter(log_sigma)
        else:
            self.register_buffer("log_sigma", log_sigma)

    def forward(self, z: Latent, origin: Tensor | None = None) -> DiagonalNormal:
        mean = z.layers[0][..., : self.size]
        return DiagonalNormal(mean, self.log_sigma.expand_as(mean))

    def predictive(self, z: Latent, law: LadderDistribution, origin: Tensor | None = None) -> DiagonalNormal:
        """x is linear in z^1, so the last layer's draw is integrated exactly: its variance adds to the noise's."""
        bottom = law.layers[0]
        assert isinstance(bottom, DiagonalNormal)  # only a top layer can be a mixture
        sigma = torch.logaddexp(2 * bottom.log_sigma[..., : self.size], 2 * self.log_sigma)
        return DiagonalNormal(bottom.mean[..., : self.size], 0.5 * sigma)


class DenseDecoder(Decoder):
    """A decoder whose parameters come from an MLP over z and, if there is one, the origin.

    With ``linear`` > 0 the first so many numbers of the origin, the features of x_t1, also enter the first
    ``outputs`` by a linear map: a linear autoregression of order one is then part of the model from the start.
    """

    def __init__(
        self, inputs: int, event_shape: Sequence[int], hidden: Sequence[int], outputs: int, extra: int, linear: int
    ) -> None:
        super().__init__()
        self.event_shape, self.outputs = tuple(event_shape), outputs
        self.layers = mlp(inputs, hidden, outputs + extra)
        self.linear = nn.Linear(linear, outputs, bias=False) if linear else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)

    def parameters_of(self, z: Latent, origin: Tensor | None) -> tuple[Tensor, Tensor]:
        """The ``outputs`` and the ``extra`` numbers of each observation."""
        if origin is None:
            main, extra = self._split(self.layers(z.flat))
            return main, extra
        main, extra = self._split(self.layers(torch.cat([z.flat, origin], dim=-1)))
        if self.linear is not None:
            main = main + self.linear(origin[..., : self.linear.in_features])
        return main, extra

    def _split(self, output: Tensor) -> tuple[Tensor, Tensor]:
        return output[..., : self.outputs], output[..., self.outputs :]


class GaussianDecoder(DenseDecoder):
    """A mean and a σ per dimension, in the data's own units: x = shift + scale · N(mean, σ²).

    With ``predicts_sigma`` the network gives σ too: for predictions that are surer at some times than at others.
    """

    shift: Tensor
    scale: Tensor
    log_noise_scale: Tensor
    FIRST_SIGMA = 0.2  # well below the data's spread: a wide σ would explain all as noise before the state is learned
    LARGEST_CHANGE = 6.0  # of log σ from its learned level

    def __init__(
        self,
        inputs: int,
        event_shape: Sequence[int],
        hidden: Sequence[int],
        predicts_sigma: bool = False,
        linear: int = 0,
    ) -> None:
        size = math.prod(event_shape)
        super().__init__(inputs, event_shape, hidden, size, size if predicts_sigma else 0, linear)
        self.register_buffer("shift", torch.zeros(self.event_shape))
        self.register_buffer("scale", torch.ones(self.event_shape))
        self.register_buffer("log_noise_scale", torch.zeros(()))  # added to log σ; set by calibration after training
        self.predicts_sigma = predicts_sigma
        self.log_sigma = nn.Parameter(torch.full(self.event_shape, math.log(self.FIRST_SIGMA)))

    def forward(self, z: Latent, origin: Tensor | None = None) -> DiagonalNormal:
        output, change = self.parameters_of(z, origin)
        log_sigma: Tensor = self.log_sigma
        if self.predicts_sigma:
            change = self.LARGEST_CHANGE * torch.tanh(change / self.LARGEST_CHANGE)
            log_sigma = log_sigma + change.unflatten(-1, self.event_shape)
        mean = self.shift + self.scale * output.unflatten(-1, self.event_shape)
        log_sigma = self.scale.log() + log_sigma + self.log_noise_scale
        return DiagonalNormal(mean, log_sigma.expand_as(mean), event_ndim=len(self.event_shape))


class BernoulliDecoder(DenseDecoder):
    """Logits, one per dimension."""

    def __init__(self, inputs: int, event_shape: Sequence[int], hidden: Sequence[int], linear: int = 0) -> None:
        super().__init__(inputs, event_shape, hidden, math.prod(event_shape), 0, linear)

    def forward(self, z: Latent, origin: Tensor | None = None) -> Bernoulli:
        logits = self.parameters_of(z, origin)[0]
        return Bernoulli(logits.unflatten(-1, self.event_shape), event_ndim=len(self.event_shape))


class CategoricalDecoder(DenseDecoder):
    """Logits, one per class for each cell."""

    def __init__(
        self, inputs: int, event_shape: Sequence[int], hidden: Sequence[int], classes: int, linear: int = 0
    ) -> None:
        super().__init__(inputs, event_shape, hidden, math.prod(event_shape) * classes, 0, linear)
        self.classes = classes

    def forward(self, z: Latent, origin: Tensor | None = None) -> Categorical:
        logits = self.parameters_of(z, origin)[0]
        return Categorical(logits.unflatten(-1, (*self.event_shape, self.classes)), event_ndim=len(self.event_shape))
