"""Origins of forecasts: after which observation of which sequence they begin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.types import Sequences

CONTEXT_SHARE = 3  # forecasts begin after the first third of a sequence, …
MOST_CONTEXT = 20  # … or after this many observations
HORIZONS = (1, 2, 5, 10, 20, 50, 100)  # at which forecasts are scored, as far as the longest jump, and there
LEAST_BLOCKS = 4  # from which a standard error is computed: with fewer, Student's t has no variance


def scored_horizons(longest_jump: int) -> list[int]:
    """The horizons at which forecasts are scored, weighted and calibrated; those between are interpolated.

    >>> scored_horizons(14)
    [1, 2, 5, 10, 14]
    """
    return [*(h for h in HORIZONS if h < longest_jump), longest_jump]


@dataclass(frozen=True)
class Origins:
    """Forecasts begin after ``t[i]`` observations of sequence ``row[i]``; all fields are (M,).

    Forecasts in one ``block`` may have errors in common, because their targets overlap or belong to one sequence.
    Standard errors are computed from the means of the blocks.
    """

    row: Tensor
    t: Tensor
    block: Tensor

    def __len__(self) -> int:
        return len(self.t)

    def select(self, index: Tensor) -> Origins:
        return Origins(self.row[index], self.t[index], self.block[index])

    def batches(self, size: int) -> list[Origins]:
        """The origins in parts of at most so many."""
        return [self.select(index) for index in torch.arange(len(self)).split(size)]

    def at_most(self, count: int) -> Origins:
        """At most ``count`` of the origins, evenly spaced."""
        if len(self) <= count:
            return self
        return self.select(torch.linspace(0, len(self) - 1, count, dtype=torch.float64).round().long())

    def with_target(self, sequences: Sequences, dt: int) -> Origins:
        """The origins whose target x_{t+dt} exists and has at least one observed number."""
        there = (self.t + dt <= sequences.lengths[self.row]).nonzero()[:, 0]
        origins = self.select(there)
        return origins.select(observed(sequences)[origins.row, origins.t + dt - 1].flatten(1).any(1).nonzero()[:, 0])


def observed(sequences: Sequences) -> Tensor:
    """(N, T, *event) True for numbers that were observed: neither padding nor missing."""
    real = sequences.mask.view(*sequences.mask.shape, *[1] * (sequences.x.ndim - 2)).expand(sequences.x.shape)
    return real if sequences.observed is None else real & sequences.observed


def targets(sequences: Sequences, at: Origins, h: int) -> tuple[Tensor, Tensor]:
    """x_{t+h} (M, D) in double precision, and which of its numbers were observed."""
    place = (at.row, at.t + h - 1)
    return sequences.x[place].flatten(1).double(), observed(sequences)[place].flatten(1)


def rolling_origins(sequences: Sequences, most: int | None = None) -> Origins:
    """Every origin of every sequence, from the first third of its own length (at most 20 observations) on.

    With ``most``, that many at most, evenly spaced over all. A block is a sequence.
    """
    first = (sequences.lengths / CONTEXT_SHARE).ceil().long().clamp(max=MOST_CONTEXT)
    steps = torch.arange(sequences.horizon)
    row, t = ((steps >= first[:, None]) & (steps < sequences.lengths[:, None])).nonzero(as_tuple=True)
    origins = Origins(row, t, row)
    return origins if most is None else origins.at_most(most)


def training_origins(sequences: Sequences, dt: int, most: int | None = None) -> Origins:
    """The `rolling_origins` with a target, to fit a forecaster on. If there are none, every origin with a target."""
    origins = rolling_origins(sequences, most).with_target(sequences, dt)
    if len(origins):
        return origins
    row, before = sequences.mask.nonzero(as_tuple=True)
    return Origins(row, before + 1, row).with_target(sequences, dt)


def held_out_origins(sequences: Sequences, context: int, ahead: int, most: int | None = None) -> Origins:
    """The origins of held-out sequences, of which the first ``context`` steps are context only.

    If ``context`` is above 0, the sequences are windows at successive steps of a series, and each has one origin. A
    block then has ``ahead`` of them. Without context, the origins are `rolling_origins`.
    """
    if not context:
        return rolling_origins(sequences, most)
    row = torch.arange(len(sequences))
    origins = Origins(row, torch.full_like(row, context), row // ahead)
    return origins if most is None else origins.at_most(most)


def mean_and_error(values: Tensor, blocks: Tensor) -> tuple[float, float]:
    """The mean of values (M,), and its standard error if values of one block may be dependent, but not blocks.

    A few blocks say next to nothing about others. Then the error is at least as large as the mean.
    """
    mean = values.mean()
    _, index = blocks.unique(return_inverse=True)
    count = int(index.max()) + 1
    if count < 2:
        return float(mean), abs(float(mean))
    least = abs(float(mean)) if count < LEAST_BLOCKS else 0.0
    sums = torch.zeros(count, dtype=values.dtype).index_add(0, index, values - mean)
    error = float(sums.square().sum().sqrt() / len(values) * math.sqrt(count / (count - 1)))
    return float(mean), max(least, error)
