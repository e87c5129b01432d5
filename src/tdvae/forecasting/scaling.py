"""Affine scaling of channels in double precision: data in any units become numbers of order one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

HEAVY_TAILS = 15.0  # kurtosis; that of a normal distribution is 3
WIDE_RANGE = 100.0  # ratio of the 99 % and the 1 % quantile of positive values


@dataclass(frozen=True, eq=False)
class Scaling:
    """x = shift + scale · scaled, for each channel; both have the shape of one observation.

    NaN stands for a missing number, stays NaN, and has no part in the statistics.
    """

    shift: Array
    scale: Array

    @classmethod
    def fit(cls, parts: Sequence[Array]) -> Scaling:
        """Mean and standard deviation over time of arrays (T, *event). A constant channel gets the scale 1.

        A spread of the size of rounding errors counts as constant, whatever the units.
        """
        shift = _mean(parts)
        centred = [part - shift for part in parts]
        # Divided by the largest, because squares of very large or small numbers leave the range of doubles.
        largest = np.fmax.reduce([_largest(part) for part in centred])
        divisor = np.where(largest > 0, largest, 1.0)
        scale = largest * np.sqrt(_mean([np.square(part / divisor) for part in centred]))
        limits = np.finfo(np.float64)
        rounding = 8 * limits.eps * np.fmax.reduce([_largest(part) for part in parts])
        return cls(shift, np.where(scale > np.maximum(rounding, limits.tiny), scale, 1.0))

    @classmethod
    def identity(cls, shape: Sequence[int]) -> Scaling:
        return cls(np.zeros(shape), np.ones(shape))

    def apply(self, x: Array) -> npt.NDArray[np.float32]:
        """Scaled values: computed in double precision, then rounded to single."""
        return ((np.asarray(x, dtype=np.float64) - self.shift) / self.scale).astype(np.float32)

    def invert(self, scaled: Array) -> npt.NDArray[np.float64]:
        """The values in their own units, in double precision."""
        return self.shift + self.scale * np.asarray(scaled, dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """As JSON-compatible values; doubles survive it exactly."""
        return {"shift": self.shift.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_description(cls, values: dict[str, Any]) -> Scaling:
        return cls(np.array(values["shift"], dtype=np.float64), np.array(values["scale"], dtype=np.float64))


def _mean(parts: Sequence[Array]) -> Array:
    count = sum(np.isfinite(part).sum(0) for part in parts)
    total = sum(np.nansum(part / np.maximum(count, 1), axis=0) for part in parts)  # divided first: no overflow
    return np.asarray(total, dtype=np.float64)


def _largest(part: Array) -> Array:
    return np.nanmax(np.abs(part), axis=0, initial=0.0)


def unusual(name: str, values: Array) -> str | None:
    """A sentence about a channel whose values a normal distribution suits badly; None for all others."""
    seen = values[np.isfinite(values)]
    if len(seen) < 20 or seen.min() == seen.max():
        return None
    if seen.min() > 0:
        low, high = np.quantile(seen, [0.01, 0.99])
        if high / low > WIDE_RANGE:
            return (
                f"{name}: all values are positive and span a factor of {high / low:,.0f}; the logarithm of this column "
                "may be easier to forecast"
            )
    centred = (seen - seen.mean()) / np.abs(seen - seen.mean()).max()
    kurtosis = float(np.mean(centred**4) / np.mean(centred**2) ** 2)
    if kurtosis > HEAVY_TAILS:
        return (
            f"{name}: rare values are far from the rest (kurtosis {kurtosis:.0f}, where a normal distribution has 3); "
            "forecasts of them will be poor"
        )
    return None
