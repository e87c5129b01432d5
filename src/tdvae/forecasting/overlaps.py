"""Overlapping windows in an array (N, T, …): windows that were cut from one series share steps.

If such windows were split at random, almost every test target would be in training. They are put together again
instead, and the series is then split by time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tdvae.forecasting.series import Array, Series

BY_CHANCE = 1e-6  # largest expected number of overlaps by chance, if steps were independent, for half of the overlap
LEAST_SHARE = 0.25  # of the sequences that must overlap: rare agreements are left alone


@dataclass(frozen=True)
class Joined:
    """The series behind overlapping windows, and the typical distance of the windows' starts."""

    series: Series
    windows: int  # how many windows share steps with another
    window: int
    stride: int


def join_overlapping(series: Series) -> Joined | None:
    """Put overlapping windows together; None if no two sequences share steps at their ends.

    Two sequences overlap if the end of one equals the beginning of the other, in all values and bits.
    """
    codes = _codes(series.x)
    least = _least_overlap(codes)
    if len(series) < 2 or min(series.lengths) < least:
        return None
    follows = _successors(codes, least)
    if len(follows) < LEAST_SHARE * len(series):
        return None
    chains = _chains(len(series), follows)
    members = [chain for chain in chains if len(chain) > 1]
    strides = [step for _, step in follows.values() if step > 0]
    first = [chain[0][0] for chain in chains]
    joined = replace(
        series,
        x=[_join(series.x, chain) for chain in chains],
        known=None if series.known is None else [_join(series.known, chain) for chain in chains],
        rewards=None if series.rewards is None else [_join(series.rewards, chain) for chain in chains],
        groups=None if series.groups is None else [series.groups[n] for n in first],
        ids=None if series.ids is None else [series.ids[n] for n in first],
    )
    return Joined(joined, sum(map(len, members)), max(series.lengths), int(np.median(strides or [1])))


def _codes(x: list[Array]) -> list[Array]:
    """The same whole number for the same observation, to the last bit."""
    steps = np.concatenate([np.ascontiguousarray(each.reshape(len(each), -1)) for each in x])
    rows = steps.view(np.dtype((np.void, steps.dtype.itemsize * steps.shape[1]))).ravel()
    codes = np.unique(rows, return_inverse=True)[1].ravel()
    return np.split(codes, np.cumsum([len(each) for each in x])[:-1])


def _least_overlap(codes: list[Array]) -> int:
    """How many steps have to agree, so that it is no chance: few for measurements, many for classes."""
    counts = np.unique(np.concatenate(codes), return_counts=True)[1].astype(np.float64)
    same = float(np.square(counts / counts.sum()).sum())  # the probability that two steps agree
    if same > 0.9:
        return max(map(len, codes)) + 1  # nearly constant
    places = len(codes) * counts.sum()
    return max(2, 2 * int(np.ceil(np.log(places / BY_CHANCE) / -np.log(same))) if same > 1 / counts.sum() else 2)


def _successors(codes: list[Array], least: int) -> dict[int, tuple[int, int]]:
    """For each sequence that is continued by another: that sequence and by how many steps it starts later.

    Of several, the one that starts soonest is taken. The first ``least`` steps of every sequence are looked up in all
    others, and agreement is then checked up to the end.
    """
    heads: dict[bytes, list[int]] = {}
    is_first = np.zeros(max(int(code.max()) for code in codes) + 1, dtype=bool)
    for number, code in enumerate(codes):
        if len(np.unique(code[:least])) > 1:  # a constant beginning says nothing
            heads.setdefault(code[:least].tobytes(), []).append(number)
            is_first[code[0]] = True
    follows: dict[int, tuple[int, int]] = {}
    for number, code in enumerate(codes):
        for step in np.flatnonzero(is_first[code[: len(code) - least + 1]]):
            candidates = heads.get(code[step : step + least].tobytes(), [])
            later = [other for other in candidates if other != number and (step > 0 or other > number)]
            agreeing = [other for other in later if _agree(code[step:], codes[other])]
            if agreeing:
                follows[number] = (agreeing[0], int(step))
                break
    return follows


def _agree(end: Array, beginning: Array) -> bool:
    shared = min(len(end), len(beginning))
    return bool((end[:shared] == beginning[:shared]).all())


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
