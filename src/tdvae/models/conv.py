"""What p_B, q_S, p_T and p_D are in the convolutional model of first-person worlds (App. D, last paragraph)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tdvae.distributions import DiscretisedLogistic
from tdvae.models.decoders import Decoder
from tdvae.models.tdvae import CHANGE_GAIN
from tdvae.nn.conv import AFTER_CELL, Canvas, ConvLSTMCell, ConvSizes, Run
from tdvae.nn.conv_ladder import ConvLadder, Running
from tdvae.nn.dense import JumpEmbedding
from tdvae.nn.ladder import softly_bounded
from tdvae.nn.recurrent import ActionSummary
from tdvae.types import Latent, State


class ConvBelief(ConvLadder):
    """p_B(z | b)."""

    def __init__(self, code: int, sizes: ConvSizes, init_log_sigma: float, run: Run) -> None:
        super().__init__(sizes, code, False, init_log_sigma, run)

    def context(self, b: Tensor) -> Running:
        return self.start(b)


class ConvSmoothing(ConvLadder):
    """q_S(z_t1 | z_t2, b_t1, b_t2, δt); with ``residual``, its means are measured from z_t2."""

    def __init__(
        self, code: int, sizes: ConvSizes, dt: JumpEmbedding, residual: bool, init_log_sigma: float, run: Run
    ) -> None:
        super().__init__(sizes, 2 * code + dt.size, True, init_log_sigma, run, CHANGE_GAIN if residual else AFTER_CELL)
        self.dt, self.residual = dt, residual

    def context(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: Tensor | None = None) -> Running:
        return self.start(torch.cat([b1, b2, self.dt(dt)], dim=-1), z2, z2 if self.residual else None)


class ConvTransition(ConvLadder):
    """p_T(z_t2 | z_t1, δt, actions); with ``residual``, its means are measured from z_t1."""

    def __init__(
        self,
        sizes: ConvSizes,
        dt: JumpEmbedding,
        summary: ActionSummary | None,
        residual: bool,
        init_log_sigma: float,
        run: Run,
    ) -> None:
        vector = dt.size + (summary.size if summary else 0)
        super().__init__(sizes, vector, True, init_log_sigma, run, CHANGE_GAIN if residual else AFTER_CELL)
        self.dt, self.summary, self.residual = dt, summary, residual

    def context(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> Running:
        vector = [self.dt(dt)]
        if self.summary is not None:
            vector.append(self.summary(actions, dt))
        return self.start(torch.cat(vector, dim=-1), s1.z, s1.z if self.residual else None)


class CanvasDecoder(Decoder):
    """p_D(x | z): the layers of z enter convolutional LSTMs from the top down, and each of these draws on a canvas.

    The finished canvas gives a discretised logistic for every pixel and colour: 8-bit frames are discrete, so their
    score is a probability. Its scale is predicted: an edge whose place is in doubt and a plain wall differ in it.
    """

    FIRST_SCALE = 0.1  # of a frame's range: wide enough to feel every pixel's error, too narrow to explain all as noise

    def __init__(self, event_shape: Sequence[int], sizes: ConvSizes, canvas: int, halvings: int, run: Run) -> None:
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
            h, c, stroke = self.run(self._draw, index, self.sizes.as_map(z.layers[index]), h, c)
            canvas = canvas + stroke
        output = self.canvas.unfold(canvas).to(self.first.dtype)
        location, change = (part.reshape(*lead, *self.event_shape) for part in output.chunk(2, dim=1))
        log_scale = softly_bounded(math.log(self.FIRST_SCALE) + change)  # down to 0.6 bins: nearly sure
        return DiscretisedLogistic(0.5 + 0.5 * location, log_scale, event_ndim=len(self.event_shape))

    def _draw(self, index: int, z: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.cells[index](z, h, c)
        return h, c, self.canvas.stroke(index, h)
