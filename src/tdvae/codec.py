"""Frame codecs: pictures as short vectors of numbers, so that a dense model can be trained on them.

A codec is trained once on the pictures of the training episodes. Each picture of a recording is then encoded once, and
a training step of the model sees codes only. `ConvCodec` is a convolutional autoencoder. Any other object with the
attributes of `FrameCodec` can take its place, for example the features of a pretrained network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tdvae.checks import Positive, PositiveNumber, Range, Seed, check_fields, checked, moderate
from tdvae.config import Config, Size
from tdvae.distributions import DiscretisedLogistic
from tdvae.errors import CheckpointError, InputError
from tdvae.nn.conv import SILU_GAIN, variance_preserving
from tdvae.storage import checkpoint

BATCH = 256  # pictures encoded or decoded at once
_SCALES = tuple(0.001 * 2 ** (k / 2) for k in range(18))  # candidates for the scale of a pixel's logistic
_PIXEL_GAIN = 0.2


@runtime_checkable
class FrameCodec(Protocol):
    """Encodes pictures as vectors and decodes vectors to pictures. Both are deterministic."""

    @property
    def picture(self) -> tuple[int, ...]:
        """The shape of a picture, (channels, rows, columns)."""
        ...

    @property
    def size(self) -> int:
        """How many numbers a code has."""
        ...

    def encode(self, pictures: Tensor) -> Tensor:
        """Encode pictures (N, channels, rows, columns) in [0, 1] as codes (N, size)."""
        ...

    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes (N, size) to pictures in [0, 1]."""
        ...


@dataclass(frozen=True)
class ConvCodecConfig(Config):
    """Config of a `ConvCodec`. Each of ``channels`` halves the picture once.

    >>> import tdvae.codec
    >>> tdvae.codec.ConvCodecConfig(picture=(3, 32, 32), size=16, channels=(8, 16, 32)).build().size
    16
    """

    picture: tuple[Size, ...] = (3, 64, 64)
    size: Size = 64  # of the code
    channels: tuple[Size, ...] = (16, 32, 64, 128)
    noise: Annotated[float, Range(0)] = 0.1  # added to codes, whose numbers have variance 1, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.picture) != 3:
            raise InputError(f"picture: expected channels, rows and columns, got {self.picture}")
        factor = 2 ** len(self.channels)
        if not self.channels or any(side % factor for side in self.picture[1:]):
            raise InputError(
                f"picture: expected sides that {len(self.channels)} halvings divide, multiples of {factor}, got "
                f"{self.picture[1]} × {self.picture[2]}"
            )

    def build(self) -> ConvCodec:
        return ConvCodec(self)


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = _convolution(channels, channels, gain=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.layer(x))


def _convolution(inputs: int, outputs: int, stride: int = 1, gain: float = SILU_GAIN) -> nn.Conv2d:
    return variance_preserving(nn.Conv2d(inputs, outputs, 3, stride, padding=1), gain)


class ConvCodec(nn.Module):
    """A convolutional autoencoder.

    In training the numbers of each code have mean 0 and variance 1, so that the noise has a known share. Afterwards
    `standardise` gives each number mean 0 and variance 1 over pictures, as models expect.
    """

    shift: Tensor
    scale: Tensor
    log_scale: Tensor

    def __init__(self, config: ConvCodecConfig) -> None:
        super().__init__()
        self.config = config
        picture, channels, size = config.picture, config.channels, config.size
        self._grid = (channels[-1], *(side >> len(channels) for side in picture[1:]))
        flat = math.prod(self._grid)
        halvings = [
            layer
            for inputs, outputs in zip((picture[0], *channels), channels, strict=False)
            for layer in (_convolution(inputs, outputs, stride=2), nn.SiLU())
        ]
        self.encoder = nn.Sequential(*halvings, nn.Flatten(), variance_preserving(nn.Linear(flat, size)))
        doublings: list[nn.Module] = []
        for inputs, outputs in zip(channels[::-1], channels[-2::-1], strict=False):
            doublings += [_convolution(inputs, 4 * outputs), nn.PixelShuffle(2), nn.SiLU(), _Residual(outputs)]
        pixels = _convolution(channels[0], 4 * picture[0], gain=_PIXEL_GAIN)
        self.expand = variance_preserving(nn.Linear(size, flat))
        self.decoder = nn.Sequential(nn.SiLU(), *doublings, pixels, nn.PixelShuffle(2))
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("log_scale", torch.full(picture, math.log(0.05)))

    @property
    def picture(self) -> tuple[int, ...]:
        return self.config.picture

    @property
    def size(self) -> int:
        return self.config.size

    def describe(self) -> dict[str, object]:
        return self.config.describe()

    def forward(self, pictures: Tensor, noise: Tensor | None = None) -> Tensor:
        """Pictures after encoding and decoding, not clipped, with ``noise`` added to their codes."""
        codes = self._codes(pictures)
        return self._pictures(codes if noise is None else codes + self.config.noise / self.scale * noise)

    @checked
    @torch.no_grad()
    def encode(self, pictures: Tensor) -> Tensor:
        check_pictures(self, pictures)
        return torch.cat([self._codes(part) for part in pictures.to(self.shift.dtype).split(BATCH)])

    @checked
    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        check_codes(self, codes)
        lead = codes.shape[:-1]
        parts = [
            self._pictures(part).clamp(0, 1) for part in codes.to(self.shift.dtype).reshape(-1, self.size).split(BATCH)
        ]
        return torch.cat(parts).view(*lead, *self.picture)

    @checked
    def likelihood(self, codes: Tensor) -> DiscretisedLogistic:
        """The distribution of the bytes of pictures given their codes; the scale is one number per pixel and colour."""
        pictures = self.decode(codes)
        return DiscretisedLogistic(pictures, self.log_scale.expand_as(pictures))

    @checked
    def bits_per_dim(self, pictures: Tensor) -> float:
        """−log₂ p(picture | its code) / number of values, on average: what a code of this size does not keep."""
        log_prob = self.likelihood(self.encode(pictures)).log_prob(pictures)
        return float(-log_prob.mean()) / (math.prod(self.picture) * math.log(2))

    @checked
    @torch.no_grad()
    def standardise(self, pictures: Tensor) -> None:
        """Give codes mean 0 and variance 1, and each pixel and colour the scale that makes ``pictures`` most likely."""
        codes = self.encode(pictures) * self.scale + self.shift
        self.shift.copy_(codes.mean(0))
        self.scale.copy_(codes.std(0).clamp(min=1e-3))
        decoded = self.decode(self.encode(pictures))
        log_scales = torch.tensor(_SCALES).log()
        scores = [
            DiscretisedLogistic(decoded, log_scale.expand_as(decoded), 0).log_prob(pictures).mean(0)
            for log_scale in log_scales
        ]
        self.log_scale.copy_(log_scales[torch.stack(scores).argmax(0)])

    def _codes(self, pictures: Tensor) -> Tensor:
        codes = F.layer_norm(self.encoder(pictures.sub(0.5).mul(4)), (self.size,))
        return (codes - self.shift) / self.scale

    def _pictures(self, codes: Tensor) -> Tensor:
        codes = F.layer_norm(codes * self.scale + self.shift, (self.size,))  # a model's codes need not be normalised
        pictures: Tensor = self.decoder(self.expand(codes).unflatten(-1, self._grid)) + 0.5
        return pictures


def check_pictures(codec: FrameCodec, pictures: Tensor) -> None:
    if tuple(pictures.shape[1:]) != tuple(codec.picture) or not pictures.is_floating_point():
        expected = " × ".join(map(str, codec.picture))
        raise InputError(
            f"pictures: expected (N, {expected}) of floats in [0, 1], as the codec was trained on, got "
            f"{tuple(pictures.shape)} of {pictures.dtype}"
        )
    moderate("pictures", pictures)


def check_codes(codec: FrameCodec, codes: Tensor) -> None:
    if codes.ndim < 1 or codes.shape[-1] != codec.size:
        raise InputError(
            f"codes: expected {codec.size} numbers each, as this codec makes, got shape {tuple(codes.shape)}"
        )
    moderate("codes", codes)


# Training

Pictures = Callable[[Tensor], Tensor]
"""Returns the pictures (N, channels, rows, columns) in [0, 1] of given numbers (N,)."""


@dataclass(frozen=True)
class CodecTraining:
    """Settings of `fit_codec`."""

    steps: Positive = 2_500
    batch_size: Positive = 64
    learning_rate: PositiveNumber = 4e-3
    warmup: Annotated[int, Range(0)] = 50
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self)


def fit_codec(
    config: ConvCodecConfig,
    pictures: Pictures,
    count: int,
    training: CodecTraining | None = None,
    progress: Callable[[int, float], None] = lambda step, error: None,
) -> ConvCodec:
    """Train a codec on ``count`` pictures by the mean absolute error, with noise on the codes.

    ``progress`` is called after each step with the error of its batch.
    """
    training = training or CodecTraining()
    if count < 1:
        raise InputError("count: expected at least 1 picture, got none")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        codec = config.build()
    nn.Module.to(codec, memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = Generator().manual_seed(training.seed)
    optimizer = torch.optim.Adam(codec.parameters(), lr=training.learning_rate, betas=(0.9, 0.98))
    for step in range(training.steps):
        chosen = torch.randint(count, (training.batch_size,), generator=generator)
        batch = pictures(chosen).contiguous(memory_format=torch.channels_last)
        check_pictures(codec, batch)
        noise = torch.randn(len(batch), config.size, generator=generator)
        loss = (codec(batch, noise) - batch).abs().mean()
        optimizer.param_groups[0]["lr"] = training.learning_rate * _rate(step, training)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress(step + 1, loss.item())
    nn.Module.to(codec, memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    codec.eval()
    codec.standardise(pictures(torch.randint(count, (min(count, 8 * BATCH),), generator=generator)))
    return codec


def _rate(step: int, training: CodecTraining) -> float:
    warm = min(1.0, (step + 1) / (training.warmup + 1))
    return warm * 0.5 * (1 + math.cos(math.pi * step / training.steps))


# Files


def save_codec(codec: ConvCodec, path: Path) -> None:
    """Save a codec as a checkpoint folder: safetensors and JSON, no pickle."""
    checkpoint.save(path, {"weights": codec.state_dict()}, {"codec": codec.describe()})


def load_codec(path: Path) -> ConvCodec:
    saved = checkpoint.load(path)
    config = ConvCodecConfig.from_description(saved.state.get("codec"), "codec")
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in config.build().state_dict().items()}
    if shapes != {name: value.shape for name, value in saved.tensors["weights"].items()}:
        raise CheckpointError(f"checkpoint {path}: the weights do not match the codec's config")
    codec = config.build()
    codec.load_state_dict({name: value.float() for name, value in saved.tensors["weights"].items()})
    return codec.eval()
