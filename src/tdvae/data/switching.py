r"""The switching oscillator: what was seen at the start decides the end, with a long stretch of neither between.

The frequency is :math:`f_1` on :math:`[0, 10)`, :math:`f_2` on :math:`[10, 20)`, :math:`f_3` on the separating
interval, all three uniform; on the last 20 steps it is :math:`f_a` if :math:`f_1 > f_2` and :math:`f_b` if not. The
state runs on through a switch: only the speed of its turning changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tdvae.data.oscillator import OscillatorSettings, oscillate, uniform
from tdvae.errors import InputError
from tdvae.types import Sequences

FIRST, SECOND, LAST = 10, 10, 20  # lengths of the intervals of f_1, f_2 and of the final frequency
OPENING = FIRST + SECOND  # all that tells which of the two was larger


@dataclass(frozen=True)
class SwitchingSettings(OscillatorSettings):
    """The oscillator's reference noises and ranges, with a frequency that switches."""

    interval: int = 100
    """Length of the separating interval, in steps."""
    final: tuple[float, float] = (0.25, 0.5)
    r"""The last frequency: :math:`f_a` after :math:`f_1 > f_2`, else :math:`f_b`."""
    length: int = field(init=False)
    """Follows from the interval."""

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise InputError(f"interval: got {self.interval}, expected at least 1 step between the switches")
        if len(self.final) != 2 or not all(math.isfinite(f) for f in self.final) or self.final[0] == self.final[1]:
            raise InputError(f"final: got {self.final}, expected two different frequencies")
        object.__setattr__(self, "length", self.before_last + LAST)
        super().__post_init__()

    @property
    def before_last(self) -> int:
        """How many observations come before the last interval: where the belief is asked what it remembers."""
        return OPENING + self.interval


@dataclass(frozen=True, eq=False)
class SwitchingRecord:
    """Simulated sequences (float32) together with what generated them."""

    x: Tensor
    """Observations, (n, T, 1)."""
    frequencies: Tensor
    """Of the four intervals, in radians per step, (n, 4)."""

    @property
    def first_larger(self) -> Tensor:
        """Whether f_1 > f_2, which decides the last frequency, (n,)."""
        return self.frequencies[:, 0] > self.frequencies[:, 1]


def simulate_switching(settings: SwitchingSettings, n: int, seed: int) -> SwitchingRecord:
    """Draw ``n`` sequences: the same seed gives the same data, and the global random state is left alone."""
    if n < 1:
        raise InputError(f"n: got {n}, expected at least 1 sequence")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.stack([uniform(settings.frequency, n, generator) for _ in range(3)], dim=1)
    f_a, f_b = settings.final
    last = torch.where(drawn[:, 0] > drawn[:, 1], f_a, f_b)
    frequencies = torch.cat([drawn, last[:, None]], dim=1)
    amplitude = uniform(settings.amplitude, n, generator)
    phase = uniform((0.0, 2 * math.pi), n, generator)
    # The turn into an index is made at that index's frequency, so index 0 takes one from f_1's interval.
    lengths = torch.tensor([FIRST - 1, SECOND, settings.interval, LAST])
    _, x = oscillate(settings, frequencies.repeat_interleave(lengths, dim=1), amplitude, phase, generator)
    return SwitchingRecord(x.float(), frequencies.float())


@dataclass(frozen=True, eq=False)
class SwitchingCurriculum:
    """A ``SequenceSource`` of sequences that are simulated when they are asked for: each is only ever seen once.

    They come in blocks, and each block has its own separating interval; so, read in order, the interval may follow
    any curriculum. A block depends on the seed and its number alone.
    """

    settings: SwitchingSettings  # all but the interval
    intervals: tuple[int, ...]  # of each block
    block: int  # sequences in a block
    seed: int

    def __post_init__(self) -> None:
        if not self.intervals or min(self.intervals) < 1:
            raise InputError(f"intervals: expected at least one block, each of at least 1 step, got {self.intervals}")
        if self.block < 1:
            raise InputError(f"block: expected at least 1 sequence, got {self.block}")

    def __len__(self) -> int:
        return self.block * len(self.intervals)

    @property
    def lengths(self) -> Tensor:
        return (OPENING + LAST + torch.tensor(self.intervals)).repeat_interleave(self.block)

    def select(self, index: Tensor) -> Sequences:
        """The sequences at ``index``, padded to the longest of them."""
        blocks = index // self.block
        lengths = OPENING + LAST + torch.tensor(self.intervals)[blocks]
        x = torch.zeros(len(index), int(lengths.max()), 1)
        for number in blocks.unique().tolist():
            rows = blocks == number
            settings = replace(self.settings, interval=self.intervals[number])
            drawn = simulate_switching(settings, self.block, self.seed + number).x
            x[rows, : settings.length] = drawn[index[rows] % self.block]
        return Sequences(x, lengths)
