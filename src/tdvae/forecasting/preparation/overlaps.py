"""Overlapping windows in an array (N, T, …): windows that were cut from one series share steps.

If such windows were split at random, almost every test target would be in training. They are merged into their series
instead, which is then split by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tdvae.forecasting.series import Array, Series, blocks

BY_CHANCE = 1e-6  # largest expected number of overlaps by chance, if steps were independent, for half of the overlap
LEAST_SHARE = 0.25  # of the sequences that must overlap: rare agreements are left alone
MOST_COUNTED = 2**17  # steps from which the probability of equal steps is estimated


@dataclass(frozen=True)
class Joined:
    """The series behind overlapping windows, and the typical distance of the windows' starts."""

    series: Series
    windows: int  # how many windows share steps with another
    window: int
    stride: int


def join_overlapping(series: Series) -> Joined | None:
    """Merge overlapping windows; None if no two sequences share steps at their ends.

    Two sequences overlap if the end of one equals the beginning of the other, in all values and bits.
    """
    if len(series) < 2:
        return None
    least = _least_overlap(series.x)
    if min(series.lengths) < least:
        return None
    follows = _successors(series.x, least)
    if len(follows) < LEAST_SHARE * len(series):
        return None
    chains = _chains(len(series), follows)
    members = [chain for chain in chains if len(chain) > 1]
    strides = [step for _, step in follows.values() if step > 0]
    first = [chain[0][0] for chain in chains]

    def joined(parts: list[Array] | None) -> list[Array] | None:
        return None if parts is None else [_join(parts, chain) for chain in chains]

    merged = replace(
        series,
        x=[_join(series.x, chain) for chain in chains],
        covariates=joined(series.covariates),
        rewards=joined(series.rewards),
        groups=None if series.groups is None else [series.groups[n] for n in first],
        ids=None if series.ids is None else [series.ids[n] for n in first],
    )
    return Joined(merged, sum(map(len, members)), max(series.lengths), int(np.median(strides or [1])))


def shared_steps(known: list[Array], new: list[Array]) -> float:
    """The share of steps of ``new`` within runs of steps that ``known`` has, too, too long for a coincidence."""
    least = _least_overlap([*known, *new])
    if least > max(map(len, new)):
        return 0.0
    runs = np.concatenate([code.ravel() for _, code, _ in _run_codes([x for x in known if len(x) >= least], least)])
    shared = 0
    for _, codes, varied in _run_codes([x for x in new if len(x) >= least], least):
        found = np.isin(codes, runs) & varied[:, None]
        for row in found:  # a run covers its steps
            shared += int(np.convolve(row, np.ones(least), "full").astype(bool).sum())
    return shared / sum(map(len, new))


def _bits(x: Array) -> Array:
    """Observations (…, *event) as whole numbers (…, D) with the same bits."""
    flat = np.ascontiguousarray(x).reshape(*x.shape[:2], -1)
    return flat.view(np.dtype(f"u{flat.dtype.itemsize}"))


def _codes(x: list[Array]) -> Iterator[tuple[int, Array]]:
    """A whole number for each step, the same for the same observation: (k, T) from sequence n on."""
    size = int(np.prod(x[0].shape[1:]))
    factors = np.random.default_rng(0).integers(0, 2**63, size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    pieces: list[Array] = []
    for sequences, steps, block in blocks(x):
        code = _bits(block).astype(np.uint64) @ factors
        code = (code ^ (code >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
        pieces.append(code ^ (code >> np.uint64(29)))
        if steps.stop == len(x[sequences.start]):
            yield sequences.start, np.concatenate(pieces, axis=1) if len(pieces) > 1 else pieces[0]
            pieces = []


def _run_codes(x: list[Array], least: int) -> Iterator[tuple[int, Array, Array]]:
    """A number for each run of ``least`` steps, and whether its steps differ at the start of a sequence."""
    factors = np.random.default_rng(1).integers(0, 2**63, least, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    for number, code in _codes(x):
        count = code.shape[1] - least + 1
        runs = np.zeros((len(code), count), dtype=np.uint64)
        for step, factor in enumerate(factors):
            runs += factor * code[:, step : step + count]
        yield number, runs, (code[:, 1:least] != code[:, :1]).any(1)


def _least_overlap(x: list[Array]) -> int:
    """Matching steps needed to rule out coincidence: few for measurements, many for classes."""
    total = sum(map(len, x))
    some = x[:: max(1, total // MOST_COUNTED)]
    codes = np.concatenate([code.ravel() for _, code in _codes(some)])[:MOST_COUNTED]
    counts = np.unique(codes, return_counts=True)[1].astype(np.float64)
    same = float(np.square(counts / counts.sum()).sum())  # the probability that two steps agree
    if same > 0.9:
        return max(map(len, x)) + 1  # nearly constant
    if same <= 1 / counts.sum():
        return 2
    return max(2, 2 * int(np.ceil(np.log(len(x) * total / BY_CHANCE) / -np.log(same))))


def _successors(x: list[Array], least: int) -> dict[int, tuple[int, int]]:
    """For each sequence that is continued by another: that sequence and by how many steps it starts later.

    Of several, the one that starts soonest is taken. The first ``least`` steps of every sequence are looked up in all
    others, and agreement is then checked up to the end.
    """
    heads: dict[int, list[int]] = {}
    for first, runs, varied in _run_codes([each[:least] for each in x], least):
        for row in np.flatnonzero(varied).tolist():  # a constant beginning says nothing
            heads.setdefault(int(runs[row, 0]), []).append(first + row)
    known = np.array(sorted(heads), dtype=np.uint64)
    follows: dict[int, tuple[int, int]] = {}
    for first, runs, _ in _run_codes(x, least):
        found = np.isin(runs, known)
        found[:, 0] &= np.array([len(heads.get(int(code), ())) > 1 for code in runs[:, 0]])  # not only itself
        for row, step in np.argwhere(found).tolist():
            number = first + row
            if number not in follows:
                others = heads[int(runs[row, step])]
                later = (other for other in others if other != number and (step > 0 or other > number))
                if (other := next((n for n in later if _agree(x[number][step:], x[n])), None)) is not None:
                    follows[number] = (other, step)
    return follows


def _agree(end: Array, beginning: Array) -> bool:
    shared = min(len(end), len(beginning))
    return bool((_bits(end[None, :shared]) == _bits(beginning[None, :shared])).all())


def _chains(count: int, follows: dict[int, tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Chains of sequences with the step at which each starts. A sequence that continues several is in one chain."""
    continued = {other for other, _ in follows.values()}
    chains, used = [], set()
    for number in [n for n in range(count) if n not in continued] + list(range(count)):
        if number in used:
            continue
        chain, start = [], 0
        current: int | None = number
        while current is not None and current not in used:
            chain.append((current, start))
            used.add(current)
            nxt = follows.get(current)
            if nxt is None:
                break
            current, start = nxt[0], start + nxt[1]
        chains.append(chain)
    return chains


def _join(parts: list[Array], chain: list[tuple[int, int]]) -> Array:
    """The steps of a chain, each taken from the first sequence that has it."""
    pieces, done = [], 0
    for number, start in chain:
        part = parts[number]
        if start + len(part) > done:
            pieces.append(part[max(0, done - start) :])
            done = start + len(part)
    return np.concatenate(pieces)
