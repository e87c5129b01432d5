"""Training, validation and test parts without leakage, and the windows that are cut from them.

Many sequences are split by sequence, or by group. A few long ones are split by time: the earliest steps are for
training, then come validation and test, with gaps of at least the longest jump between them. A forecast of a test
target may look back at all earlier steps. So each test window begins with steps that are context only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor

from tdvae.data.arrays import share_sizes
from tdvae.errors import InputError
from tdvae.forecasting.series import Array
from tdvae.types import Sequences

SHARES = (0.8, 0.1, 0.1)
MANY = 10  # at or above this count, split by sequence
MOST_WINDOWS = 2**18  # of the training part: the stride of a longer one grows
MOST_HELD_OUT = 512  # windows of the test part: more take time and change no conclusion
SplitBy = Literal["auto", "time", "sequence"]


@dataclass(frozen=True)
class Span:
    """The steps start … stop - 1 of a sequence: the targets of one part."""

    sequence: int
    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)


@dataclass(frozen=True)
class Split:
    """The targets of the three parts. ``by`` says how they were separated."""

    train: tuple[Span, ...]
    validation: tuple[Span, ...]
    test: tuple[Span, ...]
    by: Literal["time", "sequence", "group", "file"]
    by_time: bool = False  # whether training and validation are parts of the same sequences

    def describe(self) -> str:
        steps = [sum(map(len, part)) for part in (self.train, self.validation, self.test)]
        counts = [len(part) for part in (self.train, self.validation, self.test)]
        if self.by == "time":
            return (
                f"split by time: {steps[0]} steps for training, then {steps[1]} for validation and {steps[2]} for test"
            )
        rest = " (its own file)" if self.by == "file" else ""
        by = "sequence" if self.by == "file" else self.by
        return (
            f"split by {by}: {counts[0]} sequences for training, {counts[1]} for validation, {counts[2]} for test{rest}"
        )


def split_series(
    lengths: Sequence[int],
    longest_jump: int,
    seed: int,
    by: SplitBy = "auto",
    groups: Sequence[str] | None = None,
    offsets: Sequence[int] | None = None,
    held_out: int = 0,
    shares: tuple[float, float, float] = SHARES,
) -> Split:
    """Split sequences into three parts.

    Args:
        lengths: the number of steps of each sequence.
        longest_jump: the gap between parts of one sequence.
        by: by time, by sequence, or ``auto``: by time if there are fewer than MANY sequences and no groups.
        groups: the group of each sequence; a group is in one part only.
        offsets: the step at which each sequence starts on a common time axis. A split by time is then at the same
            times in all of them.
        held_out: the last so many sequences are the test part, and only the others are split.
        shares: of the training, validation and test parts.
    """
    own = len(lengths) - held_out
    whole = [Span(number, 0, length) for number, length in enumerate(lengths)]
    by_time = by == "time" or (by == "auto" and own < MANY and groups is None)
    if by_time:
        train, validation, test = _by_time(lengths[:own], longest_jump, offsets, held_out > 0, shares)
        if held_out:
            return Split(train, validation, tuple(whole[own:]), "file", by_time=True)
        return Split(train, validation, test, "time", by_time=True)
    members = _members(groups[:own] if groups is not None else [str(number) for number in range(own)])
    least = 2 if held_out else 3
    if len(members) < least:
        what = "sequences" if groups is None else "groups"
        raise InputError(f"data: expected at least {least} {what} to split into {least} parts, got {len(members)}")
    order = torch.randperm(len(members), generator=Generator().manual_seed(seed)).tolist()
    sizes = share_sizes(max(3, len(members)), shares)
    cuts = (sizes[0], sizes[0] + sizes[1])
    if held_out:
        cuts = (len(members) - sizes[1], len(members))
    chosen = (order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] :])
    parts = [tuple(whole[n] for index in part for n in members[index]) for part in chosen]
    if held_out:
        return Split(parts[0], parts[1], tuple(whole[own:]), "file")
    return Split(parts[0], parts[1], parts[2], "sequence" if groups is None else "group")


def _members(groups: Sequence[str]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        found.setdefault(group, []).append(number)
    return list(found.values())


def _by_time(
    lengths: Sequence[int],
    gap: int,
    offsets: Sequence[int] | None,
    two_parts: bool,
    shares: tuple[float, float, float],
) -> tuple[tuple[Span, ...], tuple[Span, ...], tuple[Span, ...]]:
    """Cut at the same times if there are offsets, else at the same shares of each sequence."""
    if offsets is None:
        axes = [(length, 0) for length in lengths]
    else:
        end = max(offset + length for offset, length in zip(offsets, lengths, strict=True))
        axes = [(end, offset) for offset in offsets]
    parts: tuple[list[Span], list[Span], list[Span]] = ([], [], [])
    for number, ((axis, offset), length) in enumerate(zip(axes, lengths, strict=True)):
        for part, (start, stop) in zip(parts, _cut(axis, gap, two_parts, shares), strict=True):
            span = Span(number, max(0, start - offset), min(length, stop - offset))
            if len(span) > gap:  # a shorter one has no room for the longest jump
                part.append(span)
    names = ("training", "validation", "test")[: 2 if two_parts else 3]
    for name, part in zip(names, parts, strict=False):
        if not part:
            raise InputError(
                f"data: expected sequences that reach from the training to the test part, got none with more than "
                f"{gap} steps, the longest jump, in the {name} part"
            )
    return tuple(parts[0]), tuple(parts[1]), tuple(parts[2])


def _cut(steps: int, gap: int, two_parts: bool, shares: tuple[float, float, float]) -> list[tuple[int, int]]:
    """The ranges of the three parts of a time axis. With ``two_parts`` the test part is empty."""
    held = 1 if two_parts else 2
    least = gap + 1  # of each part, so that the longest jump has room
    validation, test = (max(least, round(share * (steps - held * gap))) for share in shares[1:])
    end_of_training = steps - validation - gap - (0 if two_parts else test + gap)
    if end_of_training < 2 * least:
        raise InputError(
            f"data: expected at least {2 * least + held * (least + gap)} steps to split by time with jumps of up to "
            f"{gap}, got {steps}; use a shorter longest_jump"
        )
    second = end_of_training + gap
    if two_parts:
        return [(0, end_of_training), (second, steps), (steps, steps)]
    return [(0, end_of_training), (second, second + validation), (steps - test, steps)]


@dataclass(frozen=True, eq=False)
class Windows:
    """A `SequenceSource`: windows of longer sequences, cut out when they are selected."""

    sequences: Sequences
    rows: Tensor  # (n,) the sequence of each window
    starts: Tensor  # (n,) its first step
    lengths: Tensor  # (n,)

    @classmethod
    def of(cls, sequences: Sequences, spans: Array) -> Windows:
        """Windows (n, 3): sequence, start, stop."""
        rows, starts, stops = torch.from_numpy(np.asarray(spans, dtype=np.int64)).unbind(1)
        return cls(sequences, rows, starts, stops - starts)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, index: Tensor | slice) -> Sequences:
        rows, starts, lengths = self.rows[index], self.starts[index], self.lengths[index]
        first, longest = int(starts[0]), int(lengths.max())
        together = bool((starts == first).all())
        all_rows = len(rows) == len(self.sequences) and bool((rows == torch.arange(len(rows))).all())
        padding = None if int(lengths.min()) == longest else torch.arange(longest) >= lengths[:, None]

        def cut(tensor: Tensor) -> Tensor:
            if together:
                taken = tensor[:, first : first + longest]
                taken = taken if all_rows else taken[rows]
            else:
                place = (starts[:, None] + torch.arange(longest)).clamp(max=self.sequences.horizon - 1)
                taken = tensor[rows[:, None], place]
            if padding is None:
                return taken
            return taken.masked_fill(padding.view(*padding.shape, *[1] * (taken.ndim - 2)), 0)

        tensors = {name: cut(tensor) for name, tensor in self.sequences.named().items() if name != "lengths"}
        return replace(self.sequences, lengths=lengths, **tensors)

    def all(self) -> Sequences:
        return self.select(slice(None))


def default_window(spans: Sequence[Span], longest_jump: int, season: int = 0) -> int:
    """The length of windows for sequences that were split by time: long enough to see a season before a jump."""
    longest = max(map(len, spans))
    usual = max(longest_jump + 1, min(max(100, 5 * longest_jump), longest // 2))
    return max(usual, season + longest_jump) if season + longest_jump <= 2 * longest // 3 else usual


def check_window(window: int, spans: Sequence[Span], longest_jump: int) -> None:
    longest = max(map(len, spans))
    if not longest_jump < window <= longest:
        raise InputError(
            f"window: expected more than the longest jump of {longest_jump} and at most the {longest} steps of the "
            f"longest training sequence, got {window}"
        )


def whole_spans(spans: Sequence[Span]) -> Array:
    """The spans as they are, as windows (n, 3)."""
    return np.array([(span.sequence, span.start, span.stop) for span in spans], dtype=np.int64)


def training_windows(spans: Sequence[Span], window: int | None, stride: int) -> Array:
    """Windows (n, 3) inside the spans, every ``stride`` steps; the last ends with its span. None: whole spans."""
    if window is None:
        return whole_spans(spans)
    stride = max(stride, sum(map(len, spans)) // MOST_WINDOWS)
    cut = []
    for span in spans:
        last = max(span.start, span.stop - window)
        starts = np.arange(span.start, last + 1, stride)
        starts = np.append(starts, last) if starts[-1] < last else starts
        stops = np.minimum(starts + window, span.stop)
        cut.append(np.stack([np.full_like(starts, span.sequence), starts, stops], axis=1))
    return np.concatenate(cut)


def validation_windows(spans: Sequence[Span], window: int | None, longest_jump: int) -> Array:
    """Windows for the validation loss: inside the spans, like those of the training.

    A short span has several overlapping ones of half its length, since one window gives a noisy loss.
    """
    if window is None:
        return whole_spans(spans)
    cut = []
    for span in spans:
        length = min(window, max(longest_jump + 1, len(span) // 2))
        cut.append(training_windows([span], length, max(1, length // 8)))
    return _thinned(np.concatenate(cut))


def held_out_windows(spans: Sequence[Span], window: int | None, longest_jump: int, history: bool) -> tuple[Array, int]:
    """Windows that end with test targets, and the number of steps at the start of each that are context only.

    With ``history`` the steps before a span may be context. Windows then start at successive steps, so the end of the
    context is a rolling origin; sequences with too short a history are left out. Without it, all steps are targets.
    """
    if window is None:
        return whole_spans(spans), 0
    if not history:
        return _thinned(training_windows(spans, window, longest_jump)), 0
    context = min(window - longest_jump, max(span.start for span in spans))
    deep = [span for span in spans if span.start >= context]
    ends = np.cumsum([len(span) - longest_jump + 1 for span in deep])  # numbers of origins
    chosen = np.arange(min(ends[-1], MOST_HELD_OUT)) * ends[-1] // min(ends[-1], MOST_HELD_OUT)
    place = np.searchsorted(ends, chosen, side="right")
    first = np.array([span.stop for span in deep])[place] - longest_jump + 1 - (ends[place] - chosen)
    rows = np.array([span.sequence for span in deep])[place]
    return np.stack([rows, first - context, first + longest_jump], axis=1), context


def _thinned(cut: Array) -> Array:
    """At most MOST_HELD_OUT of the windows, evenly spaced."""
    if len(cut) <= MOST_HELD_OUT:
        return cut
    return cut[np.arange(MOST_HELD_OUT) * len(cut) // MOST_HELD_OUT]
