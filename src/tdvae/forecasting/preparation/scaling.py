"""The one scaling of own data: affine, by channel, in double precision; any units become numbers of order one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.forecasting.series import Array, blocks

HEAVY_TAILS = 15.0  # kurtosis; that of a normal distribution is 3
WIDE_RANGE = 100.0  # ratio of the 99 % and the 1 % quantile of positive values


@dataclass(frozen=True, eq=False)
class Scaling:
    """x = shift + scale · scaled, for each channel, in double precision; both have the shape of one observation.

    NaN stands for a missing number, stays NaN, and has no part in the statistics.
    """

    shift: Array
    scale: Array

    @classmethod
    def fit(cls, parts: Sequence[Array]) -> Scaling:
        """Mean and standard deviation over time of arrays (T, *event). A constant channel gets the scale 1.

        A spread of the size of rounding errors counts as constant, whatever the units.
        """
        count, largest = np.zeros((2, *parts[0].shape[1:]))
        for _, _, block in blocks(parts):
            count += np.isfinite(block).sum((0, 1))
            largest = np.fmax(largest, np.nanmax(np.abs(block), axis=(0, 1), initial=0.0))
        count = np.maximum(count, 1)
        # Divided before they are summed, because sums and squares of large numbers leave the range of doubles.
        shift = sum(np.nansum(block / count, axis=(0, 1)) for _, _, block in blocks(parts))
        divisor = np.where(largest > 0, largest, 1.0)
        squares = sum(np.nansum(np.square((block - shift) / divisor), axis=(0, 1)) for _, _, block in blocks(parts))
        scale = largest * np.sqrt(squares / count)
        limits = np.finfo(np.float64)
        varies = scale > np.maximum(8 * limits.eps * largest, limits.tiny)
        return cls(np.asarray(shift, dtype=np.float64), np.where(varies, scale, 1.0))

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
