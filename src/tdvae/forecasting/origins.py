"""Origins of forecasts: after which observation of which sequence they begin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.errors import InputError
from tdvae.types import Sequences

CONTEXT_SHARE = 3  # forecasts begin after the first third of a sequence, …
MOST_CONTEXT = 20  # … or after this many observations


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
    given: Tensor | None = getattr(sequences, "observed", None)
    return real if given is None else real & given


def rolling_origins(sequences: Sequences, most: int | None = None) -> Origins:
    """Every origin of every sequence, from the first third of its own length (at most 20 observations) on.

    With ``most``, that many at most, evenly spaced over all. A block is a sequence.
    """
    first = (sequences.lengths / CONTEXT_SHARE).ceil().long().clamp(max=MOST_CONTEXT)
    steps = torch.arange(sequences.horizon)
    row, t = ((steps >= first[:, None]) & (steps < sequences.lengths[:, None])).nonzero(as_tuple=True)
    origins = Origins(row, t, row)
    return origins if most is None else origins.at_most(most)


def cut_at_origins(series: Sequences, first: int, context: int, ahead: int) -> tuple[Sequences, Origins]:
    """Windows of one long series, one for each origin from ``first`` on: ``context`` steps, then up to ``ahead``.

    The context may reach back before ``first``; no target does. A block has ``ahead`` consecutive origins.
    """
    length = int(series.lengths[0])
    if len(series) != 1:
        raise InputError(f"series: expected one sequence, got {len(series)}")
    if not 1 <= context <= first < length:
        raise InputError(f"context, first: expected 1 <= context <= first < {length}, got {context} and {first}")
    origins = torch.arange(first, length)
    index = (origins[:, None] + torch.arange(-context, ahead)).clamp(max=length - 1)
    lengths = context + (length - origins).clamp(max=ahead)
    real = torch.arange(context + ahead) < lengths[:, None]
    cut = {name: _cut(tensor[0][index], real) for name, tensor in series.named().items() if name != "lengths"}
    windows = type(series)(lengths=lengths, **cut)
    t = torch.full((len(origins),), context)
    return windows, Origins(torch.arange(len(origins)), t, (origins - first) // ahead)


def _cut(values: Tensor, real: Tensor) -> Tensor:
    """Set the padding to zero."""
    return torch.where(real.view(*real.shape, *[1] * (values.ndim - 2)), values, torch.zeros_like(values))
