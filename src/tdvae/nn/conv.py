"""Convolutional modules: LSTM cell, frame encoder and decoder canvas (App. D, "DeepMind Lab experiments").

All kernels are 3 × 3, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tdvae.errors import InputError
from tdvae.nn.dense import mark_inner

KERNEL = 3
# Muon updates kernels whose shorter side is above the minimum, since smaller ones gain little, and at most the maximum,
# since the cost grows with its square.
MUON_MIN_SIDE, MUON_MAX_SIDE = 8, 128
# Initial gains of layers. They keep the scale of signals about constant from layer to layer.
SILU_GAIN = 1.7  # after SiLU, whose output is about 1 / 1.7 of its input
GATES_GAIN = 2.0  # gates of an LSTM cell, so that candidates use the range of tanh
PIXEL_GAIN = 0.2  # location and scale of pixels, so that initial frames are grey and not noise
CELL_GAIN = 4.0  # after an LSTM cell, whose gates make h small
BlockRunner = Callable[..., Any]  # calls a block of the network with its arguments


@dataclass(frozen=True)
class ConvSizes:
    """Sizes that the modules of a convolutional model share."""

    grid: tuple[int, int]  # rows and columns of the feature maps of all LSTM cells; 4 × 4 in the paper
    layers: int
    channels: int  # of the feature map of each LSTM cell
    latent: int  # channels of each layer of z

    @property
    def flat(self) -> int:
        """Size of one layer of z as a vector."""
        return self.latent * math.prod(self.grid)

    def as_map(self, layer: Tensor) -> Tensor:
        """Reshape a layer of z (..., flat) to a feature map (N, latent, *grid)."""
        return layer.reshape(-1, self.latent, *self.grid)


def block_runner(checkpointing: bool) -> BlockRunner:
    """The function that calls blocks. With ``checkpointing``, activations are recomputed in the backward pass."""
    if not checkpointing:
        return _call
    return partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # no block draws random numbers


def _call(block: Callable[..., Any], *args: Any) -> Any:
    return block(*args)


Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


def variance_preserving(layer: Layer, gain: float = 1.0) -> Layer:
    """Initialise a layer so that its outputs have the standard deviation of its inputs times ``gain``.

    torch's default initialisation reduces it at every layer. After a dozen layers, a frame would have almost no effect
    on the inferred state.
    """
    nn.init.normal_(layer.weight, std=gain / math.sqrt(layer.weight[0].numel()))
    nn.init.zeros_(layer.get_parameter("bias"))
    return layer


def convolution(inputs: int, outputs: int, stride: int = 1, gain: float = 1.0) -> nn.Conv2d:
    """A variance-preserving convolution. As a matrix, for Muon, its kernel has one row per output channel."""
    layer = variance_preserving(nn.Conv2d(inputs, outputs, KERNEL, stride, padding=KERNEL // 2), gain)
    shorter = min(outputs, inputs * KERNEL**2)
    return mark_inner(layer) if MUON_MIN_SIDE < shorter <= MUON_MAX_SIDE else layer


class ConvLSTMCell(nn.Module):
    """An LSTM cell whose state is a feature map and whose matrix products are convolutions."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.gates = convolution(inputs + channels, 4 * channels, gain=GATES_GAIN)
        with torch.no_grad():  # forget-gate bias + 1, as in the belief networks
            self.gates.get_parameter("bias")[channels : 2 * channels].add_(1.0)

    def forward(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The next h and c, given inputs (N, D, *grid) and the previous h and c (N, channels, *grid)."""
        i, f, g, o = self.gates(torch.cat([inputs, h], dim=1)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class FrameEncoder(nn.Module):
    """Encodes a frame as a vector: convolutions of stride 2, flattened and layer-normalised.

    Without the normalisation the signal of dark frames would be lost in the noise of the state, because SiLU halves
    small values.
    """

    def __init__(self, event_shape: Sequence[int], widths: Sequence[int], run: BlockRunner) -> None:
        super().__init__()
        self.run = run
        channels, rows, columns = event_shape
        layers: list[nn.Module] = []
        for index, width in enumerate(widths):
            layers += [convolution(channels, width, stride=2, gain=SILU_GAIN if index else 1.0), nn.SiLU()]
            channels = width
        self.layers = nn.Sequential(*layers)
        reduction = 2 ** len(widths)
        self.size = channels * (rows // reduction) * (columns // reduction)

    def check_values(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Raise if frames are not in [0, 1]."""
        low, high = float(x.min()), float(x.max())
        if math.isnan(low):
            raise InputError(
                "x: expected finite numbers, since the model was built without missing_values=True, got NaN"
            )
        if not 0 <= low <= high <= 1:
            raise InputError(f"x: expected frames in [0, 1], got values from {low:g} to {high:g}; divide bytes by 255")

    def forward(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Encode frames (..., C, H, W) in [0, 1] as (..., size)."""
        centred = 2 * x.to(next(self.parameters()).dtype).flatten(0, -4) - 1
        features = self.run(self.layers, centred).reshape(*x.shape[:-3], self.size)
        return F.layer_norm(features, (self.size,))


class Canvas(nn.Module):
    """The canvas of the decoder (DRAW): a feature map that is the sum of one contribution per layer.

    The canvas has ``channels`` channels, and a quarter of the frame's rows and columns. Two convolutions with pixel
    shuffling then upsample the finished canvas to the frame's size. A canvas of the frame's size would need this
    computation in every layer instead of once.
    """

    UPSAMPLINGS = 2  # by a factor of 2 each, from the canvas to the frame

    def __init__(self, sizes: ConvSizes, channels: int, outputs: int, halvings: int, run: BlockRunner) -> None:
        super().__init__()
        self.run = run
        self.upscale = 2 ** (halvings - self.UPSAMPLINGS)  # canvas rows per row of the LSTM cells' feature maps
        rows, columns = sizes.grid
        self.blank = nn.Parameter(torch.zeros(channels, rows * self.upscale, columns * self.upscale))
        self.strokes = nn.ModuleList(
            convolution(sizes.channels, channels * self.upscale**2, gain=CELL_GAIN) for _ in range(sizes.layers)
        )
        self.widen = convolution(channels, 4 * channels, gain=SILU_GAIN)
        self.colour = convolution(channels, 4 * outputs, gain=PIXEL_GAIN)

    def stroke(self, index: int, h: Tensor) -> Tensor:
        """The contribution of one layer to the canvas, given its feature map (N, channels, *grid)."""
        return F.pixel_shuffle(self.strokes[index](h), self.upscale)

    def unfold(self, canvas: Tensor) -> Tensor:
        """Upsample the finished canvas to (N, outputs, rows, columns), with ``outputs`` numbers per pixel."""
        return self.run(self._unfold, canvas)

    def _unfold(self, canvas: Tensor) -> Tensor:
        upsampled = F.pixel_shuffle(self.widen(F.silu(canvas)), 2)
        return F.pixel_shuffle(self.colour(F.silu(upsampled)), 2)
