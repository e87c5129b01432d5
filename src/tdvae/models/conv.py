"""p_B, q_S, p_T and p_D of the convolutional model of first-person worlds (App. D, last paragraph)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tdvae.config import Count, Size
from tdvae.distributions import DiscretisedLogistic
from tdvae.errors import InputError
from tdvae.models.config import ModelConfig
from tdvae.models.decoders import Decoder
from tdvae.models.tdvae import TDVAE
from tdvae.nn.conv import BlockRunner, Canvas, ConvLSTMCell, ConvSizes, FrameEncoder, block_runner
from tdvae.nn.conv_ladder import ConvContext, ConvLadder
from tdvae.nn.dense import JumpEmbedding, Waves
from tdvae.nn.ladder import bound_log_sigma
from tdvae.nn.recurrent import ActionSummary, BeliefConfig, DeepLSTM
from tdvae.types import Latent, Origin, State


class ConvBelief(ConvLadder):
    """p_B(z | b)."""

    def __init__(self, code: int, sizes: ConvSizes, init_log_sigma: float, run: BlockRunner) -> None:
        super().__init__(sizes, code, False, init_log_sigma, run)

    def context(self, b: Tensor) -> ConvContext:
        return self.start(b)


class ConvSmoothing(ConvLadder):
    """q_S(z_t1 | z_t2, b_t1, b_t2, δt)."""

    def __init__(self, code: int, sizes: ConvSizes, init_log_sigma: float, run: BlockRunner) -> None:
        dt = JumpEmbedding(Waves())
        super().__init__(sizes, 2 * code + dt.size, True, init_log_sigma, run)
        self.dt = dt

    def context(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: Tensor | None = None) -> ConvContext:
        return self.start(torch.cat([b1, b2, self.dt(dt)], dim=-1), z2)


class ConvTransition(ConvLadder):
    """p_T(z_t2 | z_t1, δt, actions)."""

    def __init__(
        self, sizes: ConvSizes, summary: ActionSummary | None, init_log_sigma: float, run: BlockRunner
    ) -> None:
        dt = JumpEmbedding(Waves())
        super().__init__(sizes, dt.size + (summary.size if summary else 0), True, init_log_sigma, run)
        self.dt, self.summary = dt, summary

    def context(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> ConvContext:
        features = [self.dt(dt)]
        if self.summary is not None:
            features.append(self.summary(actions, dt))
        return self.start(torch.cat(features, dim=-1), s1.z)


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

    def forward(self, z: Latent, origin: Origin | None = None) -> DiscretisedLogistic:
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


@dataclass(frozen=True)
class ConvTDVAEConfig(ModelConfig):
    """Config of the convolutional TD-VAE for frames (channels, rows, columns).

    The defaults are the paper's sizes ("DeepMind Lab environment" and App. D). The paper does not state the sizes of z,
    the canvas and the encoder.
    """

    event_shape: tuple[Size, ...] = (3, 64, 64)
    encoder: tuple[Size, ...] = (32, 64, 128, 256)  # channels of the convolutions of stride 2, down to 4 × 4
    belief: BeliefConfig = DeepLSTM(512, 4)
    layers: Count = 16  # of z, and of each stack of convolutional LSTM cells
    channels: Size = 256  # of the feature map of each convolutional LSTM cell
    latent: Size = 16  # channels of each layer of z
    canvas: Size = 64  # channels of the decoder's canvas
    init_log_sigma: float = 0.0  # initial log σ of all layers
    checkpointing: bool = False  # recompute activations in the backward pass: less memory, more time

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.encoder) < 2:
            raise InputError(f"encoder: expected at least 2 convolutions, got {len(self.encoder)}")
        reduction = 2 ** len(self.encoder)
        if len(self.event_shape) != 3 or any(size % reduction for size in self.event_shape[1:]):
            raise InputError(
                f"event_shape: expected (channels, rows, columns), with rows and columns divisible by {reduction} for "
                f"{len(self.encoder)} convolutions of stride 2, got {self.event_shape}"
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the feature maps of the convolutional LSTM cells."""
        _, rows, columns = self.event_shape
        return rows // 2 ** len(self.encoder), columns // 2 ** len(self.encoder)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.latent * math.prod(self.grid),) * self.layers

    def build(self) -> TDVAE:
        run = block_runner(self.checkpointing)
        encoder = FrameEncoder(self.event_shape, self.encoder, run)
        belief = self.belief.build(encoder.size + self.actions + self.rewards)
        sizes = ConvSizes(self.grid, self.layers, self.channels, self.latent)
        p_B = ConvBelief(belief.size, sizes, self.init_log_sigma, run)
        q_S = ConvSmoothing(belief.size, sizes, self.init_log_sigma, run)
        summary = ActionSummary(self.actions, self.channels) if self.actions else None
        p_T = ConvTransition(sizes, summary, self.init_log_sigma, run)
        p_D = CanvasDecoder(self.event_shape, sizes, self.canvas, len(self.encoder), run)
        return TDVAE(self, encoder, belief, nn.Identity(), p_B, q_S, p_T, p_D)
