"""From the user's units to the numbers that a model is given, and back.

An encoding is fitted to the training part and stored with the run. Measurements are scaled, pictures become floats in
[0, 1] with the channels first, and known inputs become the model's actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from tdvae.data import from_arrays
from tdvae.errors import InputError
from tdvae.forecasting.grid import calendar_features
from tdvae.forecasting.scaling import Scaling, unusual
from tdvae.forecasting.series import Array, Series
from tdvae.models.defaults import padded_size
from tdvae.types import Sequences

FEW_VALUES = 20  # whole numbers with at most this many values, and more than two, are taken for classes
LEAST_SIDE = 8  # of a picture, in pixels
MOST_CHANNELS = 4
LEAST_SHADES = 32  # bytes (T, rows, columns) with fewer values are taken for classes

Kind = Literal["vector", "bits", "classes", "picture"]


@dataclass(frozen=True)
class Picture:
    """How pictures are stored: where their channels are, their range, and the size they are padded to."""

    layout: Literal["chw", "hwc", "hw"]
    low: float
    high: float
    rows: int
    columns: int

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


@dataclass(frozen=True)
class KnownInput:
    """A known input: one-hot if it has classes, else scaled."""

    name: str
    classes: tuple[float, ...] = ()
    shift: float = 0.0
    scale: float = 1.0

    @property
    def size(self) -> int:
        return len(self.classes) or 1

    def encode(self, values: Array, where: str) -> Array:
        if not self.classes:
            return ((values - self.shift) / self.scale)[:, None]
        one_hot = values[:, None] == np.array(self.classes)
        if not one_hot.any(1).all():
            new = values[~one_hot.any(1)][0]
            raise InputError(
                f"known input {self.name!r}: expected one of the values of the training data, "
                f"{', '.join(f'{value:g}' for value in self.classes)}; got {new:g} in {where}"
            )
        return one_hot.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Encoding:
    """All that is needed to give a user's sequences to a model, and to give its forecasts back in their units."""

    kind: Kind
    event_shape: tuple[int, ...]  # of the user's observations
    channels: tuple[str, ...]
    scaling: Scaling | None = None  # vector
    picture: Picture | None = None
    classes: int | None = None
    known: tuple[KnownInput, ...] = ()
    calendar: tuple[str, ...] = ()

    @classmethod
    def fit(cls, series: Series, training: Sequence[tuple[int, int, int]], calendar: bool = False) -> Encoding:
        """Fit to the training part: (sequence, start, stop) of each of its pieces."""
        pieces = [series.x[n][start:stop] for n, start, stop in training]
        kind = kind_of(series)
        names = tuple(series.channels()) if kind != "picture" else ("x",)
        known = tuple(_known_inputs(series, training))
        features = _calendar(series) if calendar else ()
        common: dict[str, Any] = {"known": known, "calendar": features}
        if kind == "picture":
            return cls(kind, series.event_shape, names, picture=_fit_picture(series, pieces), **common)
        if kind == "vector":
            _check_seen(names, pieces)
            return cls(kind, series.event_shape, names, scaling=Scaling.fit(pieces), **common)
        # Classes are counted over all parts, since a rare one may be in one part only.
        classes = 1 + max(int(each.max()) for each in series.x) if kind == "classes" else None
        return cls(kind, series.event_shape, names, classes=classes, **common)

    @property
    def actions(self) -> int:
        return sum(each.size for each in self.known) + 2 * len(self.calendar)

    def notes(self, series: Series, training: Sequence[tuple[int, int, int]]) -> list[str]:
        """What the user should know about the encoding, in sentences."""
        notes = [
            f"known input {each.name!r}: {len(each.classes)} whole numbers, taken for classes (one-hot)"
            for each in self.known
            if each.classes
        ]
        if self.calendar:
            notes.append(f"calendar: {', '.join(self.calendar)} as sine and cosine")
        if self.kind == "vector":
            pooled = np.concatenate([series.x[n][start:stop].reshape(stop - start, -1) for n, start, stop in training])
            notes += filter(None, map(unusual, self.channels, pooled.T))
        if self.picture is not None and series.x[0].dtype != np.uint8:
            notes.append(f"pictures: values from {self.picture.low:g} to {self.picture.high:g} in 256 levels")
        return notes

    def sequences(self, series: Series) -> Sequences:
        """The observed steps of all sequences, as a model is given them."""
        self.check(series)
        x = [self._encode(each) for each in series.x]
        actions = None
        if self.actions:
            actions = [self.inputs(series, n, 0, length) for n, length in enumerate(series.lengths)]
        rewards = None if series.rewards is None else [np.asarray(r, dtype=np.float32) for r in series.rewards]
        return from_arrays(x, actions, rewards)

    def check(self, series: Series) -> None:
        """Raise if these are not sequences like those that the encoding was fitted to."""
        if series.event_shape != self.event_shape:
            raise InputError(
                f"x: expected observations of shape {self.event_shape}, as in training, got {series.event_shape}"
            )
        given = 0 if series.known is None else series.known[0].shape[1]
        if given != len(self.known):
            names = [each.name for each in self.known]
            raise InputError(f"known: expected the inputs of the training, {names}, got {given} inputs")
        if self.calendar and series.grids is None:
            raise InputError("calendar: expected time stamps, as in training, got a table without them")

    def inputs(self, series: Series, number: int, start: int, stop: int) -> Array:
        """The known inputs of steps start … stop - 1 of a sequence, (stop - start, A)."""
        parts = []
        if self.known:
            assert series.known is not None
            raw = series.known[number]
            if len(raw) < stop:
                names, seen = ", ".join(each.name for each in self.known), series.lengths[number]
                raise InputError(
                    f"known: expected {names} for {stop - seen} steps after the last observation of "
                    f"{series.name(number)}, got {len(raw) - seen}; add rows with empty values"
                )
            where = series.source
            parts = [each.encode(raw[start:stop, place], where) for place, each in enumerate(self.known)]
        if self.calendar:
            assert series.grids is not None
            parts.append(calendar_features(series.grids[number], np.arange(start, stop), self.calendar))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _encode(self, x: Array) -> Array:
        if self.scaling is not None:
            return self.scaling.apply(x)
        return x if self.picture is None else self.picture.encode(x)

    def decode(self, values: Tensor | Array) -> Array:
        """Numbers of the model (…, *event of the model) in the user's units, (…, *event), in double precision."""
        values = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        if self.scaling is not None:
            return self.scaling.invert(values)
        return values.astype(np.float64) if self.picture is None else self.picture.decode(values, self.event_shape)

    def describe(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {
            "kind": self.kind,
            "event_shape": list(self.event_shape),
            "channels": list(self.channels),
            "scaling": None if self.scaling is None else self.scaling.describe(),
            "picture": None if self.picture is None else asdict(self.picture),
            "classes": self.classes,
            "known": [asdict(each) for each in self.known],
            "calendar": list(self.calendar),
        }

    @classmethod
    def from_description(cls, values: dict[str, Any]) -> Encoding:
        return cls(
            values["kind"],
            tuple(values["event_shape"]),
            tuple(values["channels"]),
            None if values["scaling"] is None else Scaling.from_description(values["scaling"]),
            None if values["picture"] is None else Picture(**values["picture"]),
            values["classes"],
            tuple(KnownInput(**{**each, "classes": tuple(each["classes"])}) for each in values["known"]),
            tuple(values["calendar"]),
        )


def kind_of(series: Series) -> Kind:
    """What kind of observations these are."""
    dtype = series.x[0].dtype
    if dtype.kind == "b":
        return "bits"
    if _layout(series) is not None:
        return "picture"
    return "vector" if dtype.kind == "f" else "classes"


def _layout(series: Series) -> Literal["chw", "hwc", "hw"] | None:
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


def _fit_picture(series: Series, pieces: list[Array]) -> Picture:
    layout = _layout(series)
    assert layout is not None
    height, width = series.event_shape[1:] if layout == "chw" else series.event_shape[:2]
    rows, columns = padded_size(height, width)
    if series.x[0].dtype == np.uint8:
        return Picture(layout, 0.0, 255.0, rows, columns)
    if any(np.isnan(piece).any() for piece in pieces):
        raise InputError("x: expected pictures without missing values, got NaN")
    low, high = min(float(piece.min()) for piece in pieces), max(float(piece.max()) for piece in pieces)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    if low == high:
        raise InputError(f"x: expected pictures that vary, got {low:g} in all pixels of the training part")
    return Picture(layout, low, high, rows, columns)


def _check_seen(names: Sequence[str], pieces: list[Array]) -> None:
    seen = np.any([np.isfinite(piece).any(0).ravel() for piece in pieces], axis=0)
    for name, some in zip(names, seen, strict=True):
        if not some:
            raise InputError(f"{name}: expected numbers in the training part, got only missing values")


def _known_inputs(series: Series, training: Sequence[tuple[int, int, int]]) -> list[KnownInput]:
    if series.known is None:
        return []
    everything = np.concatenate(series.known)
    seen = np.concatenate([series.known[n][start:stop] for n, start, stop in training])
    names = series.columns.known
    if len(names) != everything.shape[1]:
        stem = names[0] if names else "actions"
        names = tuple(f"{stem}_{place}" for place in range(everything.shape[1])) if everything.shape[1] > 1 else (stem,)
    scaling = Scaling.fit([seen])
    inputs = []
    for place, name in enumerate(names):
        values = np.unique(everything[:, place])
        if series.whole[place] and 2 < len(values) <= FEW_VALUES:
            inputs.append(KnownInput(name, tuple(map(float, values))))
        else:
            inputs.append(KnownInput(name, (), float(scaling.shift[place]), float(scaling.scale[place])))
    return inputs


def _calendar(series: Series) -> tuple[str, ...]:
    """The calendar features that vary in these data."""
    if series.grids is None or series.grids[0].kind == "number":
        raise InputError("calendar: expected time stamps with dates; name their column with time")
    features = []
    for name in series.grids[0].calendar():
        values = [
            calendar_features(grid, np.arange(length), [name])
            for grid, length in zip(series.grids, series.lengths, strict=True)
        ]
        if len(np.unique(np.round(np.concatenate(values), 9), axis=0)) > 1:
            features.append(name)
    if not features:
        raise InputError(
            f"calendar: expected a grid on which the hour, weekday or month varies, got steps of "
            f"{series.grids[0].spacing()}"
        )
    return tuple(features)
