"""Moving MNIST (Sec. 5.2): a digit slides left or right, a pixel per step, and what leaves comes in on the other side.

A sequence is an image, a start and a direction; its frames are made when they are asked for. So a data set takes the
memory of its digits only, whatever the number of sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.data.mnist import SIDE, Digits
from tdvae.errors import InputError
from tdvae.types import Sequences


@dataclass(frozen=True)
class MovingDigits:
    """What a sequence looks like; the defaults are the paper's."""

    length: int = 20
    """Number of frames T."""
    binarised: bool = True
    """Pixels above one half are 1, all others 0; otherwise grey values in [0, 1]."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InputError(f"length: got {self.length}, expected at least 1 frame")


@dataclass(frozen=True, eq=False)
class MovingSequences:
    """A ``SequenceSource``: the frames x_t (t = 1 … T) show ``digits`` shifted by start + direction · (t − 1) pixels.

    What was drawn stays visible, for an evaluation to compare with; each tensor (n,) int64.
    """

    settings: MovingDigits
    digits: Digits
    image: Tensor  # which of the digits
    start: Tensor  # shift to the right of the first frame, 0 … 27
    direction: Tensor  # 1 to the right, -1 to the left

    def __post_init__(self) -> None:
        for name, low, high in (("image", 0, len(self.digits) - 1), ("start", 0, SIDE - 1), ("direction", -1, 1)):
            _check_indices(name, getattr(self, name), low, high)
            if len(getattr(self, name)) != len(self.image):
                raise InputError(
                    f"{name}: got {len(getattr(self, name))} values, expected {len(self.image)}, as in image"
                )
        if len(self) < 1:
            raise InputError("image: got none, expected at least 1 sequence")
        if (self.direction == 0).any():
            raise InputError("direction: got 0, expected 1 (right) or -1 (left)")

    def __len__(self) -> int:
        return len(self.image)

    @property
    def lengths(self) -> Tensor:
        return torch.full((len(self),), self.settings.length)

    @property
    def labels(self) -> Tensor:
        """The class of each sequence's digit, (n,)."""
        return self.digits.labels[self.image]

    def still(self, index: Tensor) -> Tensor:
        """The digits of the sequences at ``index`` without a shift, as their frames show them: (N, 28, 28)."""
        _check_indices("index", index, 0, len(self) - 1)
        images = self.digits.images[self.image[index]]
        return (images > 127).float() if self.settings.binarised else images.float() / 255

    def shift(self, index: Tensor) -> Tensor:
        """How far to the right each frame shows the digit, (N, T), in 0 … 27."""
        _check_indices("index", index, 0, len(self) - 1)
        steps = torch.arange(self.settings.length)
        return (self.start[index, None] + self.direction[index, None] * steps) % SIDE

    def select(self, index: Tensor) -> Sequences:
        """The sequences at ``index``: x (N, T, 28, 28) in [0, 1]."""
        still, shift = self.still(index), self.shift(index)
        columns = (torch.arange(SIDE) - shift[..., None]) % SIDE
        frames = (*shift.shape, SIDE, SIDE)
        x = still[:, None].expand(frames).gather(-1, columns[:, :, None].expand(frames))
        return Sequences(x, torch.full((len(index),), self.settings.length))


def draw_sequences(settings: MovingDigits, digits: Digits, n: int, seed: int) -> MovingSequences:
    """``n`` sequences with uniform digits, starts and directions.

    Sequence i depends on the seed and i only, so more sequences continue fewer. The global random state is left alone.
    """
    if n < 1:
        raise InputError(f"n: got {n}, expected at least 1 sequence")
    # One number for each sequence: drawing three tensors in turn would make the later ones depend on n.
    drawn = torch.randint(len(digits) * SIDE * 2, (n,), generator=torch.Generator().manual_seed(seed))
    direction, start, image = 2 * (drawn % 2) - 1, drawn // 2 % SIDE, drawn // (2 * SIDE)
    return MovingSequences(settings, digits, image, start, direction)


# The seven segments a … g: centre (u, v) and half extent, in units of the glyph's half width and half height.
_SEGMENTS = {
    "a": (0.0, -1.0, 1.0, 0.0),
    "b": (1.0, -0.5, 0.0, 0.5),
    "c": (1.0, 0.5, 0.0, 0.5),
    "d": (0.0, 1.0, 1.0, 0.0),
    "e": (-1.0, 0.5, 0.0, 0.5),
    "f": (-1.0, -0.5, 0.0, 0.5),
    "g": (0.0, 0.0, 1.0, 0.0),
}
_LIT = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")


def synthetic_digits(n: int, seed: int) -> Digits:
    """Seven-segment digits of random size, slant and thickness, as many of each class: MNIST's stand-in offline."""
    if n < 1:
        raise InputError(f"n: got {n}, expected at least 1 image")
    ranges = torch.tensor([(4.0, 6.0), (6.5, 9.0), (-0.15, 0.3), (1.2, 2.2)])
    drawn = (
        torch.rand(n, 4, generator=torch.Generator().manual_seed(seed)) * (ranges[:, 1] - ranges[:, 0]) + ranges[:, 0]
    )
    width, height, slant, radius = (column[:, None, None] for column in drawn.T)
    labels = torch.arange(n) % len(_LIT)
    rows = (torch.arange(SIDE) - (SIDE - 1) / 2)[:, None]
    columns = rows.T + slant * rows
    distance = torch.full((n, SIDE, SIDE), float(SIDE))
    for segment, (u, v, across, along) in _SEGMENTS.items():
        dark = torch.tensor([segment not in lit for lit in _LIT])[labels, None, None]
        beside = ((columns - u * width).abs() - across * width).clamp(min=0)
        above = ((rows - v * height).abs() - along * height).clamp(min=0)
        distance = torch.minimum(distance, torch.hypot(beside, above).masked_fill(dark, SIDE))
    ink = (radius + 0.5 - distance).clamp(0, 1)
    return Digits((255 * ink).round().to(torch.uint8), labels)


def _check_indices(name: str, values: Tensor, low: int, high: int) -> None:
    if values.ndim != 1 or values.dtype != torch.int64:
        raise InputError(f"{name}: got shape {tuple(values.shape)} of {values.dtype}, expected one axis of torch.int64")
    if len(values) and (values.min() < low or values.max() > high):
        raise InputError(f"{name}: got {values.min()} to {values.max()}, expected values from {low} to {high}")
