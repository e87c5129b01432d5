"""Convolutions: LSTM cells over a small map, the encoder of frames, the canvas (App. D, "DeepMind Lab experiments").

All kernels are 3 × 3, as the paper says.
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
from tdvae.nn.dense import inner

KERNEL = 3
THIN, WIDE = (
    8,
    128,
)  # shorter side of a kernel that Muon updates: thin ones gain little, and the cost grows with its square
AFTER_SILU = 1.7  # gain of a layer that reads SiLU's output, whose size is about 1 / 1.7 of what entered
INTO_GATES = 2.0  # gain of an LSTM cell's gates: its candidates fill tanh's range
QUIETLY = 0.2  # gain of what gives a pixel's colour and scale: a frame starts out grey, not as noise
AFTER_CELL = 4.0  # gain of a layer that reads h, which three gates have made small
Run = Callable[..., Any]  # runs a part of the network on what it is given


@dataclass(frozen=True)
class ConvSizes:
    """The sizes that the parts of a convolutional model share."""

    grid: tuple[int, int]  # rows and columns of every LSTM's map; the paper's are 4 × 4
    layers: int
    channels: int  # of each LSTM's map
    latent: int  # channels of each layer of z

    @property
    def flat(self) -> int:
        """Numbers in one layer of z, which is a vector outside of these modules."""
        return self.latent * math.prod(self.grid)

    def as_map(self, layer: Tensor) -> Tensor:
        """A layer of z (..., flat) as a map (N, latent, *grid)."""
        return layer.reshape(-1, self.latent, *self.grid)


def runner(checkpointing: bool) -> Run:
    """How parts are run: with ``checkpointing`` what they compute is not kept for the gradient but computed again."""
    if not checkpointing:
        return _plainly
    return partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # no part draws random numbers


def _plainly(part: Callable[..., Any], *given: Any) -> Any:
    return part(*given)


Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


def variance_preserving(layer: Layer, gain: float = 1.0) -> Layer:
    """Weights that pass on signals of the size they have (times ``gain``).

    torch's own shrink them at every layer: after a dozen, a frame would hardly move the state that is inferred from it.
    """
    nn.init.normal_(layer.weight, std=gain / math.sqrt(layer.weight[0].numel()))
    nn.init.zeros_(layer.get_parameter("bias"))
    return layer


def convolution(inputs: int, outputs: int, stride: int = 1, gain: float = 1.0) -> nn.Conv2d:
    """A convolution that keeps the size of its signals. As a matrix it has a row for each output."""
    layer = variance_preserving(nn.Conv2d(inputs, outputs, KERNEL, stride, padding=KERNEL // 2), gain)
    shorter = min(outputs, inputs * KERNEL**2)
    return inner(layer) if THIN < shorter <= WIDE else layer


class ConvLSTMCell(nn.Module):
    """An LSTM cell whose state is a map and whose products are convolutions."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.gates = convolution(inputs + channels, 4 * channels, gain=INTO_GATES)
        with torch.no_grad():  # remember by default, as the belief networks do
            self.gates.get_parameter("bias")[channels : 2 * channels].add_(1.0)

    def forward(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The next h and c, from inputs (N, D, *grid) and the h and c (N, channels, *grid) of before."""
        i, f, g, o = self.gates(torch.cat([inputs, h], dim=1)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class FrameEncoder(nn.Module):
    """A frame as a vector: each convolution halves it, and what is left is read row by row, at the size of 1.

    SiLU halves what is small already, so a dark frame's signal would be lost in the noise of the state.
    """

    def __init__(self, event_shape: Sequence[int], widths: Sequence[int], run: Run) -> None:
        super().__init__()
        self.run = run
        channels, rows, columns = event_shape
        layers: list[nn.Module] = []
        for place, width in enumerate(widths):
            layers += [convolution(channels, width, stride=2, gain=AFTER_SILU if place else 1.0), nn.SiLU()]
            channels = width
        self.layers = nn.Sequential(*layers)
        halved = 2 ** len(widths)
        self.size = channels * (rows // halved) * (columns // halved)

    def forward(self, x: Tensor) -> Tensor:
        """Frames (..., C, H, W) in [0, 1] to (..., size)."""
        low, high = float(x.min()), float(x.max())
        if not 0 <= low <= high <= 1:
            raise InputError(f"x: expected frames in [0, 1], got values from {low:g} to {high:g}; divide bytes by 255")
        centred = 2 * x.to(next(self.parameters()).dtype).flatten(0, -4) - 1
        features = self.run(self.layers, centred).reshape(*x.shape[:-3], self.size)
        return F.layer_norm(features, (self.size,))


class Canvas(nn.Module):
    """What every layer of the decoder draws on (DRAW): one stroke per layer, added to the map of all before it.

    The canvas has a quarter of the frame's rows and columns and as many ``channels`` as are wanted; when all layers
    have drawn, two convolutions with pixel shuffling unfold it to the frame's size. To draw on the frame itself would
    cost as much for every layer as this does once.
    """

    DOUBLED = 2  # times, from the canvas to the frame

    def __init__(self, sizes: ConvSizes, channels: int, outputs: int, halvings: int, run: Run) -> None:
        super().__init__()
        self.run = run
        self.spread = 2 ** (halvings - self.DOUBLED)  # times as many rows as the LSTMs' maps
        rows, columns = sizes.grid
        self.blank = nn.Parameter(torch.zeros(channels, rows * self.spread, columns * self.spread))
        self.strokes = nn.ModuleList(
            convolution(sizes.channels, channels * self.spread**2, gain=AFTER_CELL) for _ in range(sizes.layers)
        )
        self.widen = convolution(channels, 4 * channels, gain=AFTER_SILU)
        self.colour = convolution(channels, 4 * outputs, gain=QUIETLY)

    def stroke(self, index: int, h: Tensor) -> Tensor:
        """What one layer adds, from its map (N, channels, *grid)."""
        return F.pixel_shuffle(self.strokes[index](h), self.spread)

    def unfold(self, canvas: Tensor) -> Tensor:
        """The finished canvas as ``outputs`` numbers for every pixel, (N, outputs, rows, columns)."""
        return self.run(self._unfold, canvas)

    def _unfold(self, canvas: Tensor) -> Tensor:
        larger = F.pixel_shuffle(self.widen(F.silu(canvas)), 2)
        return F.pixel_shuffle(self.colour(F.silu(larger)), 2)
