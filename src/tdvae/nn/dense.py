"""Dense modules: the paper's D map, a deeper residual map, the embedding of δt and the observation encoder."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae import checks
from tdvae.checks import Range
from tdvae.config import Config, Size
from tdvae.errors import InputError
from tdvae.types import missing_as_nan


@dataclass(frozen=True)
class Maps(Config, ABC):
    """Config of the D maps of a model."""

    hidden: Size = 50

    @abstractmethod
    def build(self, inputs: int, outputs: int, gain: float = 1.0) -> nn.Module:
        """A D map. ``gain`` scales its initial outputs, so that residual outputs can start near zero."""


def _scale_initial_output(out: nn.Linear, gain: float) -> nn.Linear:
    with torch.no_grad():
        out.weight.mul_(gain)
        out.bias.zero_()
    return out


Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def mark_inner(layer: Layer) -> Layer:
    """Mark a layer between hidden features, whose weight Muon updates (`TrainConfig.muon_matrices`)."""
    layer.inner = True  # type: ignore[assignment]  # an attribute of the module, so that copies keep it
    return layer


class GatedMap(nn.Module):
    r"""The paper's map (App. D): :math:`W_3 [\tanh(W_1 x + B_1) \odot \sigma(W_2 x + B_2)] + B_3`."""

    def __init__(self, inputs: int, outputs: int, hidden: int, gain: float = 1.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, 2 * hidden)  # W_1 and W_2 in one product
        self.out = _scale_initial_output(nn.Linear(hidden, outputs), gain)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.hidden(x).chunk(2, dim=-1)
        return self.out(torch.tanh(value) * torch.sigmoid(gate))


class ResidualMap(nn.Module):
    """A deeper map: ``blocks`` residual SiLU blocks of width ``hidden``, with halved initial output weights."""

    def __init__(self, inputs: int, outputs: int, hidden: int, blocks: int, gain: float = 1.0) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, hidden)
        self.widen = nn.ModuleList(mark_inner(nn.Linear(hidden, hidden)) for _ in range(blocks))
        self.add = nn.ModuleList(mark_inner(_halve_weight(nn.Linear(hidden, hidden))) for _ in range(blocks))
        self.out = _scale_initial_output(nn.Linear(hidden, outputs), gain)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        for widen, add in zip(self.widen, self.add, strict=True):
            h = h + add(F.silu(widen(h)))
        return self.out(F.silu(h))


def _halve_weight(linear: nn.Linear) -> nn.Linear:
    with torch.no_grad():
        linear.weight.mul_(0.5)
    return linear


@dataclass(frozen=True)
class GatedMaps(Maps):
    """The paper's maps, `GatedMap`."""

    def build(self, inputs: int, outputs: int, gain: float = 1.0) -> nn.Module:
        return GatedMap(inputs, outputs, self.hidden, gain)


@dataclass(frozen=True)
class ResidualMaps(Maps):
    """Deeper maps, `ResidualMap`."""

    blocks: Annotated[int, Range(0, 128)] = 2

    def build(self, inputs: int, outputs: int, gain: float = 1.0) -> nn.Module:
        return ResidualMap(inputs, outputs, self.hidden, self.blocks, gain)


@dataclass(frozen=True)
class Readout(Config):
    """A residual map of the belief code, whose output takes the place of the code in p_B and q_S."""

    size: Size = 64
    hidden: Size = 128
    blocks: Annotated[int, Range(0, 128)] = 2

    def build(self, inputs: int) -> nn.Module:
        return ResidualMap(inputs, self.size, self.hidden, self.blocks)


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """A multilayer perceptron with ReLU; without hidden sizes, a single linear layer."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


@dataclass(frozen=True)
class Waves(Config):
    """δt as sines and cosines with periods of 2, 4, …, 2^octaves steps.

    Measured: with δt as one scaled number, p_T predicts the marginal distribution for every jump; with waves the same
    model learns.
    """

    octaves: Annotated[int, Range(1, 62)] = 8  # jumps of up to 2^octaves steps have different embeddings


@dataclass(frozen=True)
class Number(Config):
    """δt / 100, the literal reading of App. D."""


@dataclass(frozen=True)
class Unknown(Config):
    """δt is not given to the networks (moving MNIST, App. D).

    With ``lengths`` above 1, p_T is a mixture over latent jump lengths 1 … lengths, with learned weights; p_T of each
    length is given that length as `Waves` with ``octaves``.
    """

    lengths: Annotated[int, Range(1, 1_000)] = 1
    octaves: Annotated[int, Range(1, 62)] = 8


JumpLength = Waves | Number | Unknown


class JumpEmbedding(nn.Module):
    """Embedding of δt, as its config says."""

    def __init__(self, config: JumpLength) -> None:
        super().__init__()
        self.config = config
        octaves = config.octaves if isinstance(config, Waves) else 0
        self.size = 1 if isinstance(config, Number) else 2 * octaves
        self.register_buffer("rates", 2 * math.pi / 2.0 ** torch.arange(1, octaves + 1), persistent=False)
        self.rates: Tensor

    def forward(self, dt: Tensor) -> Tensor:
        """Embed jump lengths (...) as features (..., size)."""
        if isinstance(self.config, Unknown):
            return dt.new_zeros((*dt.shape, 0), dtype=self.rates.dtype)
        dt = dt.to(self.rates.dtype)[..., None]
        if isinstance(self.config, Number):
            return dt / 100
        return torch.cat([torch.sin(dt * self.rates), torch.cos(dt * self.rates)], dim=-1)


class JumpScale(nn.Module):
    """A factor of σ for each δt. All are 1 until calibration sets them (`tdvae_paper.calibration`).

    Jumps of more than ``LONGEST`` steps have the factor of ``LONGEST``.
    """

    LONGEST = 100
    log_factors: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("log_factors", torch.zeros(self.LONGEST))

    def forward(self, dt: Tensor) -> Tensor:
        """The logarithm of the factor of jumps (...), (..., 1)."""
        return self.log_factors[dt.clamp(max=self.LONGEST) - 1][..., None]

    def set(self, factors: Mapping[int, float]) -> None:
        """Set the factors of some δt. Between these the logarithm is linear in log δt, beyond them it is constant."""
        known = sorted(factors)
        values = np.interp(np.log(np.arange(1, self.LONGEST + 1)), np.log(known), np.log([factors[dt] for dt in known]))
        self.log_factors.copy_(torch.from_numpy(values))


class ObservationEncoder(nn.Module):
    """Encodes x_t as a vector: standardised if continuous, one-hot if categorical, then an optional ReLU MLP.

    With ``missing_values``, the mask is appended to the standardised values, which are 0 where a value is missing.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        event_shape: Sequence[int],
        hidden: Sequence[int] = (),
        classes: int | None = None,
        bits: bool = False,
        missing_values: bool = False,
    ) -> None:
        super().__init__()
        self.event_ndim, self.classes, self.bits = len(event_shape), classes, bits
        self.missing_values = missing_values
        self.register_buffer("shift", torch.zeros(*event_shape))
        self.register_buffer("scale", torch.ones(*event_shape))
        self.event_shape = tuple(event_shape)
        self.features_size = math.prod(event_shape) * (classes or 1) * (2 if missing_values else 1)
        self.size = hidden[-1] if hidden else self.features_size
        self.layers = (
            nn.Sequential(mlp(self.features_size, hidden[:-1], hidden[-1]), nn.ReLU()) if hidden else nn.Identity()
        )

    def forward(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        return self.layers(self.features(x, observed))

    def features(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """x (..., *event) as a vector, standardised or one-hot, without the MLP.

        With ``missing_values`` it is followed by the mask; None means that everything is observed.
        """
        if self.classes is not None:
            return F.one_hot(x.long(), self.classes).to(self.scale.dtype).flatten(-self.event_ndim - 1)
        x = x.to(self.scale.dtype)
        if not self.missing_values:
            return self._standardise(x)
        observed = torch.ones_like(x, dtype=torch.bool) if observed is None else observed
        values = self._standardise(torch.where(observed, x, self.shift))
        return torch.cat([values, observed.to(x.dtype).flatten(-self.event_ndim)], dim=-1)

    def _standardise(self, x: Tensor) -> Tensor:
        return ((x - self.shift) / self.scale).flatten(-self.event_ndim)

    def check_values(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Raise if observed values are not classes of the model, not in [0, 1] for bits, NaN, or far from the data."""
        if self._is_usual(x, observed):
            return
        if observed is not None:
            x = torch.where(observed, x, torch.zeros_like(x))
        elif x.is_floating_point() and not checks.holds(~x.isnan()):
            raise InputError(
                "x: expected finite numbers, since the model was built without missing_values=True, got NaN"
            )
        checks.finite("x", x)
        if self.classes is not None:
            if x.is_floating_point():
                raise InputError(f"x: expected integer classes from 0 to {self.classes - 1}, got {x.dtype}")
            if not 0 <= int(x.min()) <= int(x.max()) < self.classes:
                invalid = int(x.min()) if int(x.min()) < 0 else int(x.max())
                raise InputError(f"x: expected integer classes from 0 to {self.classes - 1}, got class {invalid}")
        elif self.bits and not 0 <= float(x.min()) <= float(x.max()) <= 1:
            low, high = float(x.min()), float(x.max())
            raise InputError(f"x: expected bits or values in [0, 1], got {low:g} to {high:g}; divide bytes by 255")
        elif not self.bits:
            known = x if observed is None else torch.where(observed, x, self.shift)
            if not checks.holds(self._standardise(known.to(self.scale.dtype)).abs() <= checks.LARGEST_INPUT):
                raise InputError(
                    f"x: expected values within {checks.LARGEST_INPUT:g} times the scale of the training data, got "
                    f"values up to {float(known.abs().max()):g}; scale the data"
                )

    def _is_usual(self, x: Tensor, observed: Tensor | None) -> bool:
        """Whether x needs no further check: numbers of usual size. One pass over x, for fast online updates."""
        if self.classes is not None or self.bits or observed is not None or not x.is_floating_point():
            return False
        largest = ((x.detach() - self.shift) / self.scale).abs().max()
        return float(largest) <= checks.LARGEST_INPUT  # False if one is NaN

    def observation(self, features: Tensor) -> Tensor:
        """The inverse of `features`: x (..., *event) in the units of the data, NaN where it is missing."""
        if self.classes is not None:
            return features.unflatten(-1, (*self.event_shape, self.classes)).argmax(-1)
        if not self.missing_values:
            return self.shift + self.scale * features.unflatten(-1, self.event_shape)
        values, mask = features.unflatten(-1, (2, *self.event_shape)).unbind(-1 - self.event_ndim)
        return missing_as_nan(self.shift + self.scale * values, mask > 0.5)
