"""From the user's units to the numbers that a model is given, and back.

An encoding is fitted to the training part and stored with the run. Measurements are scaled, pictures become floats in
[0, 1] with the channels first, and covariates become the model's actions. Missing values leave here as a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from tdvae.codec import FrameCodec
from tdvae.codes import encode_sequences
from tdvae.data import from_arrays
from tdvae.errors import InputError
from tdvae.forecasting.preparation.covariates import Covariate, Pieces, fit_calendar, fit_covariates
from tdvae.forecasting.preparation.pictures import Picture, layout_of
from tdvae.forecasting.preparation.scaling import Scaling, unusual
from tdvae.forecasting.series import CALENDAR, Array, Series, blocks, calendar_features
from tdvae.types import Sequences

MOST_LOOKED_AT = 100_000  # rows, for notes about the values

Kind = Literal["vector", "bits", "classes", "picture"]


@dataclass(frozen=True, eq=False)
class Encoding:
    """All that is needed to give a user's sequences to a model, and to give its forecasts back in their units."""

    kind: Kind
    event_shape: tuple[int, ...]  # of the user's observations
    channels: tuple[str, ...]
    scaling: Scaling | None = None  # vector
    picture: Picture | None = None
    codec: FrameCodec | None = None  # picture: the model is given codes in place of pixels
    classes: int | None = None
    covariates: tuple[Covariate, ...] = ()
    calendar: tuple[str, ...] = ()

    @classmethod
    def fit(cls, series: Series, training: Pieces, calendar: bool = False) -> Encoding:
        """Fit to the training part: (sequence, start, stop) of each of its pieces."""
        pieces = [series.x[n][start:stop] for n, start, stop in training]
        kind = kind_of(series)
        names = tuple(series.channels()) if kind != "picture" else ("x",)
        features = fit_calendar(series) if calendar else ()
        common: dict[str, Any] = {"covariates": tuple(fit_covariates(series, training)), "calendar": features}
        if kind == "picture":
            return cls(kind, series.event_shape, names, picture=Picture.fit(series, pieces), **common)
        if kind == "vector":
            _check_seen(names, pieces)
            return cls(kind, series.event_shape, names, scaling=Scaling.fit(pieces), **common)
        # Classes are counted over all parts, since a rare one may be in one part only.
        classes = 1 + max(int(each.max()) for each in series.x) if kind == "classes" else None
        return cls(kind, series.event_shape, names, classes=classes, **common)

    @property
    def actions(self) -> int:
        return sum(each.size for each in self.covariates) + 2 * len(self.calendar)

    def notes(self, series: Series, training: Pieces) -> list[str]:
        """What the user should know about the encoding, in sentences."""
        notes = [
            f"covariate {each.name!r}: {each.size} {'texts' if each.labels else 'whole numbers'}, taken for classes "
            "(one-hot)"
            for each in self.covariates
            if each.size > 1
        ]
        if self.kind == "vector":
            pieces = [series.x[n][start:stop].reshape(stop - start, -1) for n, start, stop in training]
            step = sum(map(len, pieces)) // MOST_LOOKED_AT + 1
            some = np.concatenate([piece[:: min(step, len(piece))] for piece in pieces])[: 2 * MOST_LOOKED_AT]
            notes += filter(None, map(unusual, self.channels, some.T))
        if self.picture is not None and series.x[0].dtype != np.uint8:
            notes.append(f"pictures: values from {self.picture.low:g} to {self.picture.high:g} in 256 levels")
        return notes

    def sequences(self, series: Series) -> Sequences:
        """The observed steps of all sequences, as a model is given them."""
        self.check(series)
        actions = None
        if self.actions:
            actions = [self.inputs(series, n, 0, length) for n, length in enumerate(series.lengths)]
        rewards = None if series.rewards is None else [np.asarray(r, dtype=np.float32) for r in series.rewards]
        if self.scaling is None:
            found = from_arrays(
                [each if self.picture is None else self.picture.encode(each) for each in series.x], actions, rewards
            )
            return found if self.codec is None else encode_sequences(self.codec, found)
        x, observed = self._scaled(series)
        lengths = torch.tensor(series.lengths)
        extra = {name: _padded(parts) for name, parts in (("actions", actions), ("rewards", rewards)) if parts}
        sequences = Sequences(x, lengths, observed=observed, **extra)
        if never := sequences.never_observed():
            raise InputError(f"x: expected at least one observed value of {self.channels[never[0]]}, got none")
        return sequences

    def _scaled(self, series: Series) -> tuple[Tensor, Tensor | None]:
        """x (N, T, *event), 0 where a number is missing, and what was observed; None if all of it was."""
        assert self.scaling is not None
        x = np.zeros((len(series), max(series.lengths), *self.event_shape), dtype=np.float32)
        observed: Array | None = None
        for sequences, steps, block in blocks(series.x):
            scaled = self.scaling.apply(block)
            there = np.isfinite(scaled)
            if not there.all():
                if np.isinf(scaled).any():
                    worst = self.channels[int(np.isinf(scaled).reshape(-1, len(self.channels)).any(0).argmax())]
                    raise InputError(f"x: expected {worst} in the range of the training data, got far larger numbers")
                if observed is None:
                    observed = np.zeros(x.shape, dtype=bool)
                    for number, length in enumerate(series.lengths):
                        observed[number, :length] = True
                observed[sequences, steps] = there
                scaled[~there] = 0
            x[sequences, steps] = scaled
        return torch.from_numpy(x), None if observed is None else torch.from_numpy(observed)

    def check(self, series: Series) -> None:
        """Raise if these are not sequences like those that the encoding was fitted to."""
        if series.event_shape != self.event_shape:
            raise InputError(
                f"x: expected observations of shape {self.event_shape}, as in training, got {series.event_shape}"
            )
        given = 0 if series.covariates is None else series.covariates[0].shape[1]
        if given != len(self.covariates):
            names = [each.name for each in self.covariates]
            raise InputError(f"covariates: expected those of the training, {names}, got {given}")
        if self.calendar and series.grids is None:
            raise InputError("calendar: expected time stamps, as in training, got a table without them")

    def inputs(self, series: Series, number: int, start: int, stop: int) -> Array:
        """The covariates of steps start … stop - 1 of a sequence, (stop - start, A)."""
        parts = []
        if self.covariates:
            assert series.covariates is not None
            raw = series.covariates[number]
            if len(raw) < stop:
                names, seen = ", ".join(each.name for each in self.covariates), series.lengths[number]
                raise InputError(
                    f"covariates: expected {names} for {stop - seen} steps after the last observation of "
                    f"{series.name(number)}, got {len(raw) - seen}; add rows with empty values"
                )
            parts = [
                each.encode(values, labels, series.source)
                for each, values, labels in zip(self.covariates, raw[start:stop].T, series.labels, strict=True)
            ]
        if self.calendar:
            assert series.grids is not None
            parts.append(calendar_features(series.grids[number], np.arange(start, stop), self.calendar))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def decode(self, values: Tensor | Array) -> Array:
        """Numbers of the model (…, *event of the model) in the user's units, (…, *event), in double precision."""
        if self.codec is not None:
            values = self.codec.decode(torch.as_tensor(values).float())
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
            "codec": None if self.codec is None else self.codec.size,
            "classes": self.classes,
            "covariates": [asdict(each) for each in self.covariates],
            "calendar": list(self.calendar),
        }

    @classmethod
    def from_description(cls, values: dict[str, Any], codec: FrameCodec | None = None) -> Encoding:
        """The inverse of `describe`; the codec is stored elsewhere.

        A ValueError says what does not fit together, as in an edited file.
        """
        covariates = [
            Covariate(**{**each, "classes": tuple(each["classes"]), "labels": tuple(each["labels"])})
            for each in values["covariates"]
        ]
        encoding = cls(
            values["kind"],
            tuple(values["event_shape"]),
            tuple(values["channels"]),
            None if values["scaling"] is None else Scaling.from_description(values["scaling"]),
            None if values["picture"] is None else Picture(**values["picture"]),
            codec,
            values["classes"],
            tuple(covariates),
            tuple(values["calendar"]),
        )
        encoding.check_consistent()
        if values["codec"] != (None if codec is None else codec.size):
            raise ValueError(f"a codec of {values['codec']} numbers, got another")
        return encoding

    def check_encoded(self, sequences: Sequences) -> None:
        """Raise a ValueError if sequences do not have the type and the shape that this encoding gives."""
        expected = {"bits": torch.bool, "classes": torch.int64}.get(self.kind, torch.float32)
        picture, shape = self.picture, tuple(sequences.x.shape[2:])
        same = shape == self.event_shape if picture is None else shape[1:] == (picture.rows, picture.columns)
        if self.codec is not None:
            same = shape == (self.codec.size,)
        actions = 0 if sequences.actions is None else sequences.actions.shape[-1]
        if sequences.x.dtype != expected or not same or actions != self.actions:
            raise ValueError(f"stored data that do not fit the encoding of {self.kind}")

    def check_consistent(self) -> None:
        """Raise a ValueError if the parts do not fit together."""
        count = 1 if self.kind == "picture" else int(np.prod(self.event_shape))
        scaling = self.scaling
        holds = {
            "kind": self.kind in get_args(Kind),
            "scaling": (scaling is not None) == (self.kind == "vector")
            and (scaling is None or scaling.shift.shape == scaling.scale.shape == self.event_shape),
            "scaling's numbers": scaling is None
            or bool(
                np.isfinite(scaling.shift).all() and np.isfinite(scaling.scale).all() and (scaling.scale > 0).all()
            ),
            "picture": (self.picture is not None) == (self.kind == "picture"),
            "codec": self.codec is None
            or (self.picture is not None and self.codec.picture[1:] == (self.picture.rows, self.picture.columns)),
            "classes": (self.classes is not None) == (self.kind == "classes"),
            "channels": len(self.channels) == count and all(isinstance(name, str) for name in self.channels),
            "calendar": set(self.calendar) <= set(CALENDAR),
        }
        if wrong := [name for name, fits in holds.items() if not fits]:
            raise ValueError(f"{wrong[0]} of the encoding that does not fit the rest")


def kind_of(series: Series) -> Kind:
    """What kind of observations these are."""
    dtype = series.x[0].dtype
    if dtype.kind == "b":
        return "bits"
    if layout_of(series) is not None:
        return "picture"
    return "vector" if dtype.kind == "f" else "classes"


def _check_seen(names: Sequence[str], pieces: list[Array]) -> None:
    seen = np.any([np.isfinite(block).any((0, 1)).ravel() for _, _, block in blocks(pieces)], axis=0)
    for name, some in zip(names, seen, strict=True):
        if not some:
            raise InputError(f"{name}: expected numbers in the training part, got only missing values")


def _padded(parts: list[Array]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.from_numpy(part) for part in parts], batch_first=True)
