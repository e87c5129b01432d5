"""Decoders p_D(x | z), and p_D(x_t2 | z_t2, s_t1, δt, a) for models whose state includes the observation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tdvae.checks import PositiveNumber
from tdvae.config import Config, Size
from tdvae.distributions import Bernoulli, Categorical, DiagonalNormal, Distribution
from tdvae.nn.dense import JumpScale, mlp
from tdvae.nn.ladder import LadderDistribution
from tdvae.types import Latent, Origin


class Decoder(nn.Module, ABC):
    """The distribution of an observation given a state."""

    log_noise_scale: Tensor | None  # added to log σ, and set by calibration after training; None: nothing to set

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("log_noise_scale", None)

    @abstractmethod
    def forward(self, z: Latent, origin: Origin | None = None) -> Distribution:
        """The distribution of x given z and, if the state includes the observation, the origin of the jump."""

    def predictive(self, z: Latent, distribution: LadderDistribution, origin: Origin | None = None) -> Distribution:
        """The distribution of x when z was drawn from ``distribution``.

        By default it is conditioned on the sample ``z``. Subclasses may integrate over ``distribution`` instead.
        """
        decoded: Distribution = self(z, origin)
        return decoded


@dataclass(frozen=True)
class DecoderConfig(Config, ABC):
    """Config of a decoder, which also says of what kind the observations are."""

    @abstractmethod
    def build(self, inputs: int, event_shape: Sequence[int], linear: int = 0) -> Decoder:
        """The decoder. ``linear`` is the number of features of x_t1, if the state includes the observation."""


@dataclass(frozen=True)
class Coordinates(DecoderConfig):
    """Config of `CoordinatesDecoder`."""

    sigma: PositiveNumber | None = None  # of the noise; None: learned
    missing_values: bool = False  # whether values may be missing; the encoder is then given their mask

    def build(self, inputs: int, event_shape: Sequence[int], linear: int = 0) -> Decoder:
        return CoordinatesDecoder(event_shape[0], self.sigma)


class CoordinatesDecoder(Decoder):
    """x is the first coordinates of z^1 plus noise with a learned or fixed σ (the oscillator's decoder, App. D)."""

    def __init__(self, size: int, sigma: float | None = None) -> None:
        super().__init__()
        self.size = size
        log_sigma = torch.full((size,), math.log(0.2 if sigma is None else sigma))
        if sigma is None:
            self.log_sigma = nn.Parameter(log_sigma)
            self.register_buffer("log_noise_scale", torch.zeros(()))
        else:
            self.register_buffer("log_sigma", log_sigma)

    def forward(self, z: Latent, origin: Origin | None = None) -> DiagonalNormal:
        mean = z.layers[0][..., : self.size]
        return DiagonalNormal(mean, self._log_noise().expand_as(mean))

    def predictive(self, z: Latent, distribution: LadderDistribution, origin: Origin | None = None) -> DiagonalNormal:
        """Integrates over z^1 in closed form: x is linear in z^1, so the two variances add up."""
        bottom = distribution.layers[0]
        assert isinstance(bottom, DiagonalNormal)  # the config excludes mixtures with this decoder
        log_variance = torch.logaddexp(2 * bottom.log_sigma[..., : self.size], 2 * self._log_noise())
        return DiagonalNormal(bottom.mean[..., : self.size], 0.5 * log_variance)

    def _log_noise(self) -> Tensor:
        return self.log_sigma if self.log_noise_scale is None else self.log_sigma + self.log_noise_scale


class DenseDecoder(Decoder):
    """A decoder whose parameters are computed by an MLP from z and, if given, the origin.

    With ``linear`` > 0, a linear map of the ``linear`` features of x_t1 is added to the first ``outputs`` parameters.
    The model then contains a linear autoregression of order one.
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

    def parameters_of(self, z: Latent, origin: Origin | None) -> tuple[Tensor, Tensor]:
        """The ``outputs`` main and ``extra`` additional parameters of the distribution."""
        if origin is None:
            main, extra = self._split(self.layers(z.flat))
            return main, extra
        main, extra = self._split(self.layers(torch.cat([z.flat, origin.features], dim=-1)))
        if self.linear is not None:
            main = main + self.linear(origin.x)
        return main, extra

    def _split(self, output: Tensor) -> tuple[Tensor, Tensor]:
        return output[..., : self.outputs], output[..., self.outputs :]


@dataclass(frozen=True)
class Gaussian(DecoderConfig):
    """Config of `GaussianDecoder`, for vectors of numbers."""

    hidden: tuple[Size, ...] = (200, 200)  # sizes of the hidden ReLU layers
    noise: Literal["learned", "predicted"] = "learned"  # σ: one number per dimension, or predicted from the state
    missing_values: bool = False  # whether values may be missing; the encoder is then given their mask

    def build(self, inputs: int, event_shape: Sequence[int], linear: int = 0) -> Decoder:
        return GaussianDecoder(inputs, event_shape, self.hidden, self.noise == "predicted", linear)


class GaussianDecoder(DenseDecoder):
    """A normal distribution per dimension, in the units of the data: x = shift + scale · N(mean, σ²).

    σ is one learned number per dimension. With ``predicts_sigma`` the network predicts it, for data whose uncertainty
    varies over time. Calibration scales σ, by one factor for all x and by one for each δt.
    """

    shift: Tensor
    scale: Tensor
    INIT_SIGMA = 0.2  # well below the spread of the data: a large σ would explain everything as noise early in training
    MAX_LOG_SIGMA_CHANGE = 6.0  # bound of the predicted change of log σ from its learned level

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
        self.register_buffer("log_noise_scale", torch.zeros(()))
        self.jump_scale = JumpScale()
        self.predicts_sigma = predicts_sigma
        self.log_sigma = nn.Parameter(torch.full(self.event_shape, math.log(self.INIT_SIGMA)))

    def forward(self, z: Latent, origin: Origin | None = None) -> DiagonalNormal:
        assert self.log_noise_scale is not None
        log_scale = self.log_noise_scale
        if origin is not None:
            log_scale = log_scale + self.jump_scale(origin.dt[..., 0]).unflatten(-1, (1,) * len(self.event_shape))
        output, change = self.parameters_of(z, origin)
        log_sigma: Tensor = self.log_sigma
        if self.predicts_sigma:
            change = self.MAX_LOG_SIGMA_CHANGE * torch.tanh(change / self.MAX_LOG_SIGMA_CHANGE)
            log_sigma = log_sigma + change.unflatten(-1, self.event_shape)
        mean = self.shift + self.scale * output.unflatten(-1, self.event_shape)
        log_sigma = self.scale.log() + log_sigma + log_scale
        return DiagonalNormal(mean, log_sigma.expand_as(mean), event_ndim=len(self.event_shape))


@dataclass(frozen=True)
class Bits(DecoderConfig):
    """Config of `BernoulliDecoder`, for bits and for values in [0, 1]."""

    hidden: tuple[Size, ...] = (200, 200)  # sizes of the hidden ReLU layers

    def build(self, inputs: int, event_shape: Sequence[int], linear: int = 0) -> Decoder:
        return BernoulliDecoder(inputs, event_shape, self.hidden, linear)


class BernoulliDecoder(DenseDecoder):
    """Independent bits, with one logit per dimension."""

    def __init__(self, inputs: int, event_shape: Sequence[int], hidden: Sequence[int], linear: int = 0) -> None:
        super().__init__(inputs, event_shape, hidden, math.prod(event_shape), 0, linear)

    def forward(self, z: Latent, origin: Origin | None = None) -> Bernoulli:
        logits = self.parameters_of(z, origin)[0]
        return Bernoulli(logits.unflatten(-1, self.event_shape), event_ndim=len(self.event_shape))


@dataclass(frozen=True)
class Classes(DecoderConfig):
    """Config of `CategoricalDecoder`, for integers from 0 to ``count`` - 1."""

    count: Size
    hidden: tuple[Size, ...] = (200, 200)  # sizes of the hidden ReLU layers

    def build(self, inputs: int, event_shape: Sequence[int], linear: int = 0) -> Decoder:
        return CategoricalDecoder(inputs, event_shape, self.hidden, self.count, linear)


class CategoricalDecoder(DenseDecoder):
    """Independent categorical variables, with one logit per class."""

    def __init__(
        self, inputs: int, event_shape: Sequence[int], hidden: Sequence[int], classes: int, linear: int = 0
    ) -> None:
        super().__init__(inputs, event_shape, hidden, math.prod(event_shape) * classes, 0, linear)
        self.classes = classes

    def forward(self, z: Latent, origin: Origin | None = None) -> Categorical:
        logits = self.parameters_of(z, origin)[0]
        return Categorical(logits.unflatten(-1, (*self.event_shape, self.classes)), event_ndim=len(self.event_shape))
