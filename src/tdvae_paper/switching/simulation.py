r"""Simulation of the switching oscillator: the first observations decide the frequency after a long interval.

The frequency is :math:`f_1` on :math:`[0, 10)`, :math:`f_2` on :math:`[10, 20)` and :math:`f_3` on the separating
interval; all three are uniform. On the last 20 time steps it is :math:`f_a` if :math:`f_1 > f_2` and :math:`f_b`
otherwise. A switch changes the frequency only; the state is continuous.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from tdvae.checks import Samples, Seed, check_fields, checked
from tdvae.data.oscillator import OscillatorSettings, oscillate, uniform
from tdvae.errors import InputError
from tdvae.types import Sequences

FIRST, SECOND, LAST = 10, 10, 20  # lengths of the intervals of f_1, f_2 and the final frequency
OPENING = FIRST + SECOND  # only these observations show which of f_1 and f_2 is larger


@dataclass(frozen=True)
class SwitchingSettings(OscillatorSettings):
    """The reference settings of the oscillator, with a frequency that switches."""

    interval: Samples = 100
    """Length of the separating interval, in time steps."""
    final: tuple[float, float] = (0.25, 0.5)
    r"""The final frequencies: :math:`f_a` if :math:`f_1 > f_2`, otherwise :math:`f_b`."""
    length: int = field(init=False)
    """Computed from ``interval``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", 1)  # so that all fields can be checked before it is computed
        check_fields(self)
        if self.final[0] == self.final[1]:
            raise InputError(f"final: expected two different finite frequencies, got {self.final}")
        object.__setattr__(self, "length", self.before_last + LAST)
        super().__post_init__()

    @property
    def before_last(self) -> int:
        """Number of observations before the last interval; the probes read the belief at this time."""
        return OPENING + self.interval


@dataclass(frozen=True, eq=False)
class SwitchingRecord:
    """Simulated sequences with the frequencies that generated them (float32)."""

    x: Tensor
    """Observations, (n, T, 1)."""
    frequencies: Tensor
    """Frequencies of the four intervals, in radians per time step, (n, 4)."""

    @property
    def first_larger(self) -> Tensor:
        """Whether f_1 > f_2, which decides the final frequency, (n,)."""
        return self.frequencies[:, 0] > self.frequencies[:, 1]


@checked
def simulate_switching(settings: SwitchingSettings, n: Samples, seed: Seed) -> SwitchingRecord:
    """Draw ``n`` sequences. The same seed gives the same data; the global random state is not used."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.stack([uniform(settings.frequency, n, generator) for _ in range(3)], dim=1)
    f_a, f_b = settings.final
    last = torch.where(drawn[:, 0] > drawn[:, 1], f_a, f_b)
    frequencies = torch.cat([drawn, last[:, None]], dim=1)
    amplitude = uniform(settings.amplitude, n, generator)
    phase = uniform((0.0, 2 * math.pi), n, generator)
    # The rotation into an index has that index's frequency. Index 0 has none, so f_1's interval has one fewer.
    lengths = torch.tensor([FIRST - 1, SECOND, settings.interval, LAST])
    _, x = oscillate(settings, frequencies.repeat_interleave(lengths, dim=1), amplitude, phase, generator)
    return SwitchingRecord(x.float(), frequencies.float())


@dataclass(frozen=True, eq=False)
class SwitchingCurriculum:
    """A ``SequenceSource`` that simulates its sequences when they are selected.

    Sequences are grouped in blocks, and each block has its own separating interval. Batches selected in order can
    thus follow any curriculum of intervals. A block depends only on the seed and the number of the block.
    """

    settings: SwitchingSettings  # its interval is not used
    intervals: tuple[int, ...]  # the separating interval of each block
    block: int  # number of sequences in a block
    seed: int

    def __post_init__(self) -> None:
        if not self.intervals or min(self.intervals) < 1:
            raise InputError(f"intervals: expected one or more intervals of at least 1 step, got {self.intervals}")
        if self.block < 1:
            raise InputError(f"block: expected at least 1 sequence, got {self.block}")

    def __len__(self) -> int:
        return self.block * len(self.intervals)

    @cached_property  # read at every training step
    def lengths(self) -> Tensor:
        return (OPENING + LAST + torch.tensor(self.intervals)).repeat_interleave(self.block)

    def select(self, index: Tensor) -> Sequences:
        """Return the sequences at ``index``, padded to the longest of them."""
        blocks = index // self.block
        lengths = OPENING + LAST + torch.tensor(self.intervals)[blocks]
        x = torch.zeros(len(index), int(lengths.max()), 1)
        for number in blocks.unique().tolist():
            rows = blocks == number
            settings = replace(self.settings, interval=self.intervals[number])
            simulated = simulate_switching(settings, self.block, self.seed + number).x
            x[rows, : settings.length] = simulated[index[rows] % self.block]
        return Sequences(x, lengths)
