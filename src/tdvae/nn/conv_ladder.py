"""A ladder whose layers are convolutional LSTM cells over a small map (App. C and D)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.distributions import DiagonalNormal
from tdvae.nn.conv import AFTER_CELL, ConvLSTMCell, ConvSizes, Run, convolution, variance_preserving
from tdvae.nn.ladder import Ladder, softly_bounded
from tdvae.types import Latent


@dataclass(frozen=True)
class Running:
    """What a layer conditions on: the map that all share, and the summary (h, c) of the layers drawn above it."""

    shared: Tensor
    h: Tensor
    c: Tensor
    around: Latent | None  # what means are measured from
    lead: torch.Size  # leading shape of the state; in the maps it is one axis


class ConvLadder(Ladder):
    """Fillings say what they condition on: numbers that have no place (``vector`` many), and maybe a state, which has.

    From these comes a map that all layers share. A layer's cell reads it together with the z drawn just above, and its
    h gives the layer's normal; so (h, c) is the recurrent summary of all z above (App. C). No weights are shared.
    ``init_log_sigma`` is where the log σ of all layers start from, ``gain`` scales their first outputs.
    """

    def __init__(
        self, sizes: ConvSizes, vector: int, sees_state: bool, init_log_sigma: float, run: Run, gain: float = AFTER_CELL
    ) -> None:
        super().__init__()
        self.sizes, self.depth, self.init_log_sigma, self.run = sizes, sizes.layers, init_log_sigma, run
        self.place = variance_preserving(nn.Linear(vector, sizes.channels * math.prod(sizes.grid)))
        self.mix = convolution(sizes.layers * sizes.latent, sizes.channels) if sees_state else None
        self.first = nn.Parameter(torch.zeros(2, sizes.channels, *sizes.grid))
        top = sizes.layers - 1
        self.cells = nn.ModuleList(
            ConvLSTMCell(sizes.channels + (0 if index == top else sizes.latent), sizes.channels)
            for index in range(sizes.layers)
        )
        self.heads = nn.ModuleList(convolution(sizes.channels, 2 * sizes.latent, gain=gain) for _ in self.cells)

    def start(self, vector: Tensor, state: Latent | None = None, around: Latent | None = None) -> Running:
        """The context of the top layer, from numbers (..., vector) and a state of the same leading shape."""
        lead = vector.shape[:-1]
        shared = self.place(vector.reshape(-1, vector.shape[-1])).unflatten(1, (self.sizes.channels, *self.sizes.grid))
        if self.mix is not None and state is not None:
            shared = shared + self.mix(torch.cat([self.sizes.as_map(layer) for layer in state.layers], dim=1))
        shared = F.silu(shared)
        h, c = self.first[:, None].expand(2, len(shared), *self.first.shape[1:])
        h, c = self.run(self.cells[-1], shared, h, c)
        return Running(shared, h, c, around, lead)

    def layer(self, index: int, context: Running, above: Sequence[Tensor]) -> DiagonalNormal:
        # Log densities are differences of large numbers: in full precision, whatever the maps were computed in.
        output = self.heads[index](context.h).to(self.first.dtype).chunk(2, dim=1)
        mean, log_sigma = (part.reshape(*context.lead, self.sizes.flat) for part in output)
        if context.around is not None:
            mean = context.around.layers[index] + mean
        return DiagonalNormal(mean, softly_bounded(self.init_log_sigma + log_sigma))

    def after(self, index: int, context: Running, drawn: Tensor) -> Running:
        inputs = torch.cat([context.shared, self.sizes.as_map(drawn)], dim=1)
        h, c = self.run(self.cells[index - 1], inputs, context.h, context.c)
        return replace(context, h=h, c=c)
