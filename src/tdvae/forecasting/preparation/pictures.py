"""Pictures: where their channels are, and their range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tdvae.checks import Positive, Range, check_fields
from tdvae.errors import InputError
from tdvae.forecasting.series import Array, Series
from tdvae.models.defaults import padded_size

LEAST_SIDE = 8  # of a picture, in pixels
MOST_CHANNELS = 4
LEAST_SHADES = 32  # bytes (T, rows, columns) with fewer values are taken for classes

Layout = Literal["chw", "hwc", "hw"]


@dataclass(frozen=True)
class Picture:
    """How pictures are stored: where their channels are, their range, and the size they are padded to."""

    layout: Layout
    low: float
    high: float
    rows: Positive
    columns: Positive

    def __post_init__(self) -> None:
        check_fields(self)
        Range(above=self.low).check("high", self.high)

    @classmethod
    def fit(cls, series: Series, pieces: Sequence[Array]) -> Picture:
        """Fit to the training part."""
        layout = layout_of(series)
        assert layout is not None
        height, width = series.event_shape[1:] if layout == "chw" else series.event_shape[:2]
        rows, columns = padded_size(height, width)
        if series.x[0].dtype == np.uint8:
            return cls(layout, 0.0, 255.0, rows, columns)
        if any(np.isnan(piece).any() for piece in pieces):
            raise InputError("x: expected pictures without missing values, got NaN")
        low, high = min(float(piece.min()) for piece in pieces), max(float(piece.max()) for piece in pieces)
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        if low == high:
            raise InputError(f"x: expected pictures that vary, got {low:g} in all pixels of the training part")
        return cls(layout, low, high, rows, columns)

    def encode(self, x: Array) -> Array:
        """(T, *event) as float32 (T, channels, rows, columns) in [0, 1], padded with zeros."""
        x = x[:, None] if self.layout == "hw" else np.moveaxis(x, -1, 1) if self.layout == "hwc" else x
        scaled = np.clip((x.astype(np.float32) - self.low) / (self.high - self.low), 0, 1)
        missing = [(0, side - given) for side, given in zip((self.rows, self.columns), x.shape[2:], strict=True)]
        return np.pad(scaled, [(0, 0), (0, 0), *missing])

    def decode(self, scaled: Array, event_shape: Sequence[int]) -> Array:
        """The inverse: (…, channels, rows, columns) to (…, *event)."""
        height, width = event_shape[1:] if self.layout == "chw" else event_shape[:2]
        x = self.low + (self.high - self.low) * scaled[..., :height, :width].astype(np.float64)
        return x[..., 0, :, :] if self.layout == "hw" else np.moveaxis(x, -3, -1) if self.layout == "hwc" else x


def layout_of(series: Series) -> Layout | None:
    """Where the channels of pictures are; None if these are no pictures."""
    shape, dtype = series.event_shape, series.x[0].dtype
    if dtype.kind != "f" and dtype != np.uint8:
        return None
    if len(shape) == 2 and min(shape) >= LEAST_SIDE:
        few = dtype == np.uint8 and max(int(each.max()) for each in series.x) < LEAST_SHADES
        return None if few else "hw"
    if len(shape) == 3 and shape[2] <= MOST_CHANNELS and min(shape[:2]) >= LEAST_SIDE:
        return "hwc"
    return "chw" if len(shape) == 3 and shape[0] <= MOST_CHANNELS and min(shape[1:]) >= LEAST_SIDE else None
