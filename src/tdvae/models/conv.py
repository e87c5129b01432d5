"""p_B, q_S, p_T and p_D of the convolutional model of first-person worlds (App. D, last paragraph)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tdvae.distributions import DiscretisedLogistic
from tdvae.models.decoders import Decoder
from tdvae.models.tdvae import RESIDUAL_GAIN
from tdvae.nn.conv import CELL_GAIN, BlockRunner, Canvas, ConvLSTMCell, ConvSizes
from tdvae.nn.conv_ladder import ConvContext, ConvLadder
from tdvae.nn.dense import JumpEmbedding
from tdvae.nn.ladder import bound_log_sigma
from tdvae.nn.recurrent import ActionSummary
from tdvae.types import Latent, State


class ConvBelief(ConvLadder):
    """p_B(z | b)."""

    def __init__(self, code: int, sizes: ConvSizes, init_log_sigma: float, run: BlockRunner) -> None:
        super().__init__(sizes, code, False, init_log_sigma, run)

    def context(self, b: Tensor) -> ConvContext:
        return self.start(b)


class ConvSmoothing(ConvLadder):
    """q_S(z_t1 | z_t2, b_t1, b_t2, δt); with ``residual``, z_t2 is added to its means."""

    def __init__(
        self, code: int, sizes: ConvSizes, dt: JumpEmbedding, residual: bool, init_log_sigma: float, run: BlockRunner
    ) -> None:
        super().__init__(sizes, 2 * code + dt.size, True, init_log_sigma, run, RESIDUAL_GAIN if residual else CELL_GAIN)
        self.dt, self.residual = dt, residual

    def context(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: Tensor | None = None) -> ConvContext:
        return self.start(torch.cat([b1, b2, self.dt(dt)], dim=-1), z2, z2 if self.residual else None)


class ConvTransition(ConvLadder):
    """p_T(z_t2 | z_t1, δt, actions); with ``residual``, z_t1 is added to its means."""

    def __init__(
        self,
        sizes: ConvSizes,
        dt: JumpEmbedding,
        summary: ActionSummary | None,
        residual: bool,
        init_log_sigma: float,
        run: BlockRunner,
    ) -> None:
        vector = dt.size + (summary.size if summary else 0)
        super().__init__(sizes, vector, True, init_log_sigma, run, RESIDUAL_GAIN if residual else CELL_GAIN)
        self.dt, self.summary, self.residual = dt, summary, residual

    def context(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> ConvContext:
        features = [self.dt(dt)]
        if self.summary is not None:
            features.append(self.summary(actions, dt))
        return self.start(torch.cat(features, dim=-1), s1.z, s1.z if self.residual else None)


class CanvasDecoder(Decoder):
    """p_D(x | z): convolutional LSTM cells read the layers of z from the top down, and each adds to a canvas.

    The finished canvas gives a discretised logistic distribution for every pixel and colour channel, because 8-bit
    frames are discrete. Its scale is predicted per pixel: an edge at an uncertain position needs a larger scale than a
    plain wall.
    """

    # Relative to a frame's range: large enough for a gradient from every pixel, small enough not to explain everything
    # as noise.
    INIT_SCALE = 0.1

    def __init__(
        self, event_shape: Sequence[int], sizes: ConvSizes, canvas: int, halvings: int, run: BlockRunner
    ) -> None:
        super().__init__()
        self.event_shape, self.sizes, self.run = tuple(event_shape), sizes, run
        self.first = nn.Parameter(torch.zeros(2, sizes.channels, *sizes.grid))
        self.cells = nn.ModuleList(ConvLSTMCell(sizes.latent, sizes.channels) for _ in range(sizes.layers))
        self.canvas = Canvas(sizes, canvas, 2 * event_shape[0], halvings, run)

    def forward(self, z: Latent, origin: Tensor | None = None) -> DiscretisedLogistic:
        lead = z.layers[0].shape[:-1]
        count = math.prod(lead)
        h, c = self.first[:, None].expand(2, count, *self.first.shape[1:])
        canvas = self.canvas.blank.expand(count, *self.canvas.blank.shape)
        for index in reversed(range(self.sizes.layers)):
            h, c, stroke = self.run(self._draw_layer, index, self.sizes.as_map(z.layers[index]), h, c)
            canvas = canvas + stroke
        output = self.canvas.unfold(canvas).to(self.first.dtype)
        location, change = (part.reshape(*lead, *self.event_shape) for part in output.chunk(2, dim=1))
        log_scale = bound_log_sigma(math.log(self.INIT_SCALE) + change)  # at least 0.6 bins
        return DiscretisedLogistic(0.5 + 0.5 * location, log_scale, event_ndim=len(self.event_shape))

    def _draw_layer(self, index: int, z: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.cells[index](z, h, c)
        return h, c, self.canvas.stroke(index, h)
