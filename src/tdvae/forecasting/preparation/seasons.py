"""Seasons of training sequences: lags at which they resemble themselves, the shortest first.

A season of p steps shows in what is left of a series without its moving average over p steps: that removes trends and
slower seasons, and leaves a random walk without correlation at lag p. What a season explains, its mean profile, is
removed before the next, longer one is looked for. So a weekly season is found beside a daily one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tdvae.forecasting.series import Array

MOST_SEASONS = 3
LEAST_CYCLES = 3  # of a season within the longest sequence
LEAST_CORRELATION = 0.15
LEAST_ERRORS = 4.2  # of the correlation to its standard error, since many lags are tried …
STRONG, STRONG_ERRORS = 0.4, 3.0  # … but fewer for a high correlation, as in short series
HARMONIC = 0.85  # at half a season the correlation is lower than this share of that at the season
MORE = 0.1  # correlation than at a shorter season that was found: its rest resembles itself at multiples of it
OFF_MULTIPLE = 0.1  # how far a longer season may be from a multiple of a shorter one: weeks have whole days
MOST_NUMBERS = 2**18  # that are looked at


def find_seasons(parts: Sequence[Array]) -> tuple[int, ...]:
    """The seasons, in steps, of arrays (T_n, *event) of numbers with NaN where one is missing."""
    x, there = _together(parts)
    found: list[int] = []
    while len(found) < MOST_SEASONS:
        lag = next((lag for lag in _peaks(x, there, found) if _is_season(x, there, lag, found)), None)
        if lag is None:
            break
        season = _sharpened(x, there, lag)
        found.append(season)
        x = np.where(there, x - _profile(x, there, season), 0)
    return tuple(found)


def _together(parts: Sequence[Array]) -> tuple[Array, Array]:
    """The ends of evenly chosen sequences (N, T, D), standardised, 0 where a number is missing; and a mask."""
    size = int(np.prod(parts[0].shape[1:]))
    steps = min(max(map(len, parts)), max(1, MOST_NUMBERS // size))
    count = max(1, min(len(parts), MOST_NUMBERS // (size * steps)))
    x = np.full((count, steps, size), np.nan)
    for row in range(count):
        end = parts[row * len(parts) // count][-steps:]
        x[row, : len(end)] = end.reshape(len(end), size)
    there = np.isfinite(x)
    x = np.where(there, x, 0)
    largest = np.abs(x).max((0, 1))
    x /= np.where(largest > 0, largest, 1)  # squares of very large numbers leave the range of doubles
    x -= x.sum((0, 1)) / np.maximum(there.sum((0, 1)), 1)
    deviation = np.sqrt(np.where(there, x, 0).var((0, 1)))
    return np.where(there, x / np.where(deviation > 1e-12, deviation, 1), 0), there


def _peaks(x: Array, there: Array, found: Sequence[int]) -> Iterator[int]:
    """Lags where the autocorrelation is higher than at all of similar size, and multiples of the last season found."""
    longest = x.shape[1] // LEAST_CYCLES
    last = found[-1] if found else 1
    if longest <= last + 1:
        return
    acf = _autocorrelation(np.where(there, x - _moving_average(x, there, longest), 0), there, longest + 1)
    for lag in range(last + 1, longest + 1):
        near = max(1, lag // 8)
        if abs(lag / last - round(lag / last)) > OFF_MULTIPLE:
            continue
        if acf[lag] > 0 and acf[lag] >= acf[max(1, lag - near) : lag + near + 1].max() and acf[lag] > acf[lag - 1]:
            yield lag


def _is_season(x: Array, there: Array, lag: int, found: Sequence[int]) -> bool:
    """Whether the correlation at a lag is high enough, above that at half of it, and above what ``found`` left."""
    rest = np.where(there, x - _moving_average(x, there, lag), 0)
    once, twice = _correlation(rest, there, lag), _correlation(rest, there, 2 * lag)
    left_over = max((_correlation(rest, there, season) for season in found), default=-1.0)
    if once < max(LEAST_CORRELATION + 1 / (1.5 * lag * lag), HARMONIC * twice, left_over + MORE):
        return False
    near = _autocorrelation(rest, there, lag // 2)  # Bartlett's formula for the error of a correlation
    error = np.sqrt((2 * np.square(near).sum() - 1) / max(1, (there[:, lag:] & there[:, :-lag]).any(2).sum()))
    return bool(once >= (LEAST_ERRORS if once < STRONG else STRONG_ERRORS) * error)


def _sharpened(x: Array, there: Array, lag: int) -> int:
    """The lag nearby whose mean profile explains most: over many cycles, a wrong one blurs it."""
    near = max(1, lag // 16)
    rest = np.where(there, x - _moving_average(x, there, lag), 0)
    return max(
        range(max(2, lag - near), lag + near + 1), key=lambda n: float(np.square(_profile(rest, there, n)).sum())
    )


def _autocorrelation(x: Array, there: Array, most: int) -> Array:
    """The mean autocorrelation of all dimensions at the lags 0 … most."""
    length = 2 ** int(np.ceil(np.log2(x.shape[1] + most + 1)))

    def sums(values: Array) -> Array:
        power = np.square(np.abs(np.fft.rfft(values, length, axis=1))).sum(0)
        return np.fft.irfft(power, length, axis=0)[: most + 1]

    covariance = sums(x) / np.maximum(sums(there.astype(np.float64)), 1)
    return np.asarray((covariance / np.maximum(covariance[0], 1e-12)).mean(1))


def _correlation(x: Array, there: Array, lag: int) -> float:
    """The mean autocorrelation of all dimensions at one lag."""
    pairs = (there[:, lag:] & there[:, :-lag]).sum((0, 1))
    covariance = (x[:, lag:] * x[:, :-lag]).sum((0, 1)) / np.maximum(pairs, 1)
    variance = np.square(x).sum((0, 1)) / np.maximum(there.sum((0, 1)), 1)
    return float((covariance / np.maximum(variance, 1e-12)).mean())


def _moving_average(x: Array, there: Array, steps: int) -> Array:
    """The mean of the observed values of ``steps`` steps around each; of an even number, both ends count half."""
    half = min(steps // 2, x.shape[1] - 1)

    def sums(values: Array) -> Array:
        total = np.cumsum(np.pad(values, ((0, 0), (half + 1, half), (0, 0))), axis=1, dtype=np.float64)

        def within(width: int) -> Array:
            return (
                total[:, half + 1 + width : total.shape[1] - half + width] - total[:, half - width : -half - 1 - width]
            )

        return np.asarray(within(half) + within(half - 1 + steps % 2))

    return np.asarray(sums(x) / np.maximum(sums(there), 1))


def _profile(x: Array, there: Array, season: int) -> Array:
    """The mean of each phase of a season in each sequence, in the shape of x."""
    cycles = -(-x.shape[1] // season)
    space = ((0, 0), (0, cycles * season - x.shape[1]), (0, 0))
    sums = np.pad(x, space).reshape(len(x), cycles, season, -1).sum(1)
    counts = np.pad(there, space).reshape(len(x), cycles, season, -1).sum(1)
    return np.tile(sums / np.maximum(counts, 1), (1, cycles, 1))[:, : x.shape[1]]
