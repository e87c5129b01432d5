"""A ladder whose layers are convolutional LSTM cells (App. C and D)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.distributions import DiagonalNormal
from tdvae.nn.conv import CELL_GAIN, BlockRunner, ConvLSTMCell, ConvSizes, convolution, variance_preserving
from tdvae.nn.ladder import Ladder, bound_log_sigma
from tdvae.types import Latent


@dataclass(frozen=True)
class ConvContext:
    """Context of a layer: the feature map that all layers share, and the summary (h, c) of the sampled layers above."""

    shared: Tensor
    h: Tensor
    c: Tensor
    lead: torch.Size  # leading shape of the state; the feature maps have one batch dimension instead


class ConvLadder(Ladder):
    """Subclasses implement `context` with `start`, from a vector of ``vector`` non-spatial features and optionally a
    state, whose layers are feature maps.

    These give a feature map that all layers share. The LSTM cell of a layer reads it together with the sample of the
    layer above, and its h gives the layer's normal distribution. So (h, c) is the recurrent summary of all layers above
    (App. C). Layers share no weights. ``init_log_sigma`` is the initial log σ of all layers.
    """

    def __init__(
        self, sizes: ConvSizes, vector: int, sees_state: bool, init_log_sigma: float, run: BlockRunner
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
        self.heads = nn.ModuleList(convolution(sizes.channels, 2 * sizes.latent, gain=CELL_GAIN) for _ in self.cells)

    def start(self, vector: Tensor, state: Latent | None = None) -> ConvContext:
        """The context of the top layer, given features (..., vector) and a state of the same leading shape."""
        lead = vector.shape[:-1]
        shared = self.place(vector.reshape(-1, vector.shape[-1])).unflatten(1, (self.sizes.channels, *self.sizes.grid))
        if self.mix is not None and state is not None:
            shared = shared + self.mix(torch.cat([self.sizes.as_map(layer) for layer in state.layers], dim=1))
        shared = F.silu(shared)
        h, c = self.first[:, None].expand(2, len(shared), *self.first.shape[1:])
        h, c = self.run(self.cells[-1], shared, h, c)
        return ConvContext(shared, h, c, lead)

    def layer(self, index: int, context: ConvContext, above: Sequence[Tensor]) -> DiagonalNormal:
        # Log densities are differences of large numbers, so they are computed in full precision.
        output = self.heads[index](context.h).to(self.first.dtype).chunk(2, dim=1)
        mean, log_sigma = (part.reshape(*context.lead, self.sizes.flat) for part in output)
        return DiagonalNormal(mean, bound_log_sigma(self.init_log_sigma + log_sigma))

    def after(self, index: int, context: ConvContext, sample: Tensor) -> ConvContext:
        inputs = torch.cat([context.shared, self.sizes.as_map(sample)], dim=1)
        h, c = self.run(self.cells[index - 1], inputs, context.h, context.c)
        return replace(context, h=h, c=c)
