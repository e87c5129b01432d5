"""Moving MNIST (Sec. 5.2): a digit moves left or right by one pixel per time step and wraps around at the sides.

A sequence is stored as the index of an image, a start position and a direction. Its frames are computed when they are
selected, so a data set of any number of sequences needs little more memory than its digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.errors import InputError
from tdvae.types import Sequences
from tdvae_paper.moving_mnist.mnist import SIDE, Digits

LENGTH = 20  # frames T of a sequence, as in the paper


@dataclass(frozen=True, eq=False)
class MovingSequences:
    """A ``SequenceSource``: the frames x_t (t = 1 … T) show ``digits`` shifted by start + direction · (t − 1) pixels.

    The drawn values are public fields, so that evaluations can compare with them. Each tensor is (n,) int64.
    """

    digits: Digits
    image: Tensor  # index into digits
    start: Tensor  # shift of the digit to the right in the first frame, 0 … 27
    direction: Tensor  # 1 to the right, -1 to the left
    length: int = LENGTH

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InputError(f"length: expected at least 1 frame, got {self.length}")
        for name, low, high in (("image", 0, len(self.digits) - 1), ("start", 0, SIDE - 1), ("direction", -1, 1)):
            _check_indices(name, getattr(self, name), low, high)
            if len(getattr(self, name)) != len(self.image):
                raise InputError(
                    f"{name}: expected {len(self.image)} values, as many as in image, got {len(getattr(self, name))}"
                )
        if len(self) < 1:
            raise InputError("image: expected at least 1 sequence, got none")
        if (self.direction == 0).any():
            raise InputError("direction: expected 1 (right) or -1 (left), got 0")

    def __len__(self) -> int:
        return len(self.image)

    @property
    def lengths(self) -> Tensor:
        return torch.full((len(self),), self.length)

    @property
    def labels(self) -> Tensor:
        """The class label of each sequence's digit, (n,)."""
        return self.digits.labels[self.image]

    def still(self, index: Tensor) -> Tensor:
        """Return the unshifted digits of the sequences at ``index``, binarised at one half: (N, 28, 28)."""
        _check_indices("index", index, 0, len(self) - 1)
        return (self.digits.images[self.image[index]] > 127).float()

    def shift(self, index: Tensor) -> Tensor:
        """Return the shift of the digit to the right in each frame, (N, T), in 0 … 27."""
        _check_indices("index", index, 0, len(self) - 1)
        steps = torch.arange(self.length)
        return (self.start[index, None] + self.direction[index, None] * steps) % SIDE

    def select(self, index: Tensor) -> Sequences:
        """Return the sequences at ``index``: x is (N, T, 28, 28) of 0 and 1."""
        still, shift = self.still(index), self.shift(index)
        columns = (torch.arange(SIDE) - shift[..., None]) % SIDE
        frames = (*shift.shape, SIDE, SIDE)
        x = still[:, None].expand(frames).gather(-1, columns[:, :, None].expand(frames))
        return Sequences(x, torch.full((len(index),), self.length))


def draw_sequences(digits: Digits, n: int, seed: int, length: int = LENGTH) -> MovingSequences:
    """Draw ``n`` sequences with uniform digits, start positions and directions.

    Sequence i depends only on the seed and on i: with a larger ``n`` the first sequences stay the same. The global
    random state is not used.
    """
    if n < 1:
        raise InputError(f"n: expected at least 1 sequence, got {n}")
    # One random number per sequence: with three tensors drawn one after another, the later ones would depend on n.
    drawn = torch.randint(len(digits) * SIDE * 2, (n,), generator=torch.Generator().manual_seed(seed))
    direction, start, image = 2 * (drawn % 2) - 1, drawn // 2 % SIDE, drawn // (2 * SIDE)
    return MovingSequences(digits, image, start, direction, length)


# The seven segments a … g: centre (u, v) and half extents, in units of the half width and half height of a digit.
_SEGMENTS = {
    "a": (0.0, -1.0, 1.0, 0.0),
    "b": (1.0, -0.5, 0.0, 0.5),
    "c": (1.0, 0.5, 0.0, 0.5),
    "d": (0.0, 1.0, 1.0, 0.0),
    "e": (-1.0, 0.5, 0.0, 0.5),
    "f": (-1.0, -0.5, 0.0, 0.5),
    "g": (0.0, 0.0, 1.0, 0.0),
}
_DIGIT_SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")


def synthetic_digits(n: int, seed: int) -> Digits:
    """Draw seven-segment digits of random size, slant and thickness with balanced classes; replaces MNIST offline."""
    if n < 1:
        raise InputError(f"n: expected at least 1 image, got {n}")
    ranges = torch.tensor([(4.0, 6.0), (6.5, 9.0), (-0.15, 0.3), (1.2, 2.2)])
    drawn = (
        torch.rand(n, 4, generator=torch.Generator().manual_seed(seed)) * (ranges[:, 1] - ranges[:, 0]) + ranges[:, 0]
    )
    width, height, slant, radius = (column[:, None, None] for column in drawn.T)
    labels = torch.arange(n) % len(_DIGIT_SEGMENTS)
    rows = (torch.arange(SIDE) - (SIDE - 1) / 2)[:, None]
    columns = rows.T + slant * rows
    distance = torch.full((n, SIDE, SIDE), float(SIDE))
    for segment, (u, v, across, along) in _SEGMENTS.items():
        off = torch.tensor([segment not in segments for segments in _DIGIT_SEGMENTS])[labels, None, None]
        dx = ((columns - u * width).abs() - across * width).clamp(min=0)
        dy = ((rows - v * height).abs() - along * height).clamp(min=0)
        distance = torch.minimum(distance, torch.hypot(dx, dy).masked_fill(off, SIDE))
    ink = (radius + 0.5 - distance).clamp(0, 1)
    return Digits((255 * ink).round().to(torch.uint8), labels)


def _check_indices(name: str, values: Tensor, low: int, high: int) -> None:
    if values.ndim != 1 or values.dtype != torch.int64:
        raise InputError(f"{name}: expected one axis of torch.int64, got shape {tuple(values.shape)} of {values.dtype}")
    if len(values) and (values.min() < low or values.max() > high):
        raise InputError(f"{name}: expected values from {low} to {high}, got {values.min()} to {values.max()}")
