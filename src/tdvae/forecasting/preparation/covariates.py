"""Covariates, whose future is known: from the user's columns and time stamps to the actions of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tdvae.checks import PositiveNumber, check_fields
from tdvae.errors import InputError
from tdvae.forecasting.preparation.scaling import Scaling
from tdvae.forecasting.series import Array, Series, blocks, calendar_features

FEW_VALUES = 20  # whole numbers with at most this many values, and more than two, are taken for classes

Pieces = Sequence[tuple[int, int, int]] | Array  # (sequence, start, stop) of each piece of the training part


@dataclass(frozen=True)
class Covariate:
    """A covariate: one-hot if it has labels or classes, else scaled."""

    name: str
    classes: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()  # if it is a column of text
    shift: float = 0.0
    scale: PositiveNumber = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def size(self) -> int:
        return len(self.labels) or len(self.classes) or 1

    def encode(self, values: Array, labels: Sequence[str], where: str) -> Array:
        """Numbers (T,), which stand for ``labels`` if there are any, as (T, size)."""
        if bool(labels) != bool(self.labels):
            expected, got = ("text", "numbers") if self.labels else ("numbers", "text")
            raise InputError(f"covariate {self.name!r}: expected {expected}, as in training, got {got} in {where}")
        if not self.size > 1:
            return ((values - self.shift) / self.scale)[:, None]
        if labels:
            places = {label: place for place, label in enumerate(self.labels)}
            values = np.array([places.get(label, -1) for label in labels])[values.astype(np.int64)]
        one_hot = values[:, None] == (np.arange(self.size) if labels else np.array(self.classes))
        if not one_hot.any(1).all():
            known = ", ".join(self.labels or (f"{value:g}" for value in self.classes))
            new = sorted(set(labels) - set(self.labels)) or [f"{values[~one_hot.any(1)][0]:g}"]
            raise InputError(
                f"covariate {self.name!r}: expected one of the values of the training data, {known}; got {new[0]} in "
                f"{where}"
            )
        return one_hot.astype(np.float64)


def fit_covariates(series: Series, training: Pieces) -> list[Covariate]:
    if series.covariates is None:
        return []
    count, names = series.covariates[0].shape[1], series.columns.covariates
    if len(names) != count:
        stem = names[0] if names else "actions"
        names = tuple(f"{stem}_{place}" for place in range(count)) if count > 1 else (stem,)
    scaling = Scaling.fit([series.covariates[n][start:stop] for n, start, stop in training])
    fitted = []
    for place, name in enumerate(names):
        if labels := series.labels[place]:
            fitted.append(Covariate(name, labels=labels if len(labels) > 1 else (*labels, "")))
        elif series.whole[place] and 2 < len(values := _few_values(series.covariates, place)) <= FEW_VALUES:
            fitted.append(Covariate(name, classes=tuple(values)))
        else:
            fitted.append(Covariate(name, shift=float(scaling.shift[place]), scale=float(scaling.scale[place])))
    return fitted


def _few_values(parts: list[Array], place: int) -> list[float]:
    """The values of one column, in order; no more of them than show that they are many."""
    found: set[float] = set()
    for _, _, block in blocks(parts):
        found.update(np.unique(block[..., place]).tolist())
        if len(found) > FEW_VALUES:
            break
    return sorted(found)


def fit_calendar(series: Series) -> tuple[str, ...]:
    """The calendar features that vary in these data."""
    if series.grids is None or series.grids[0].kind == "number":
        raise InputError("calendar: expected time stamps with dates; name their column with time")
    features = []
    for name in series.grids[0].calendar():
        values = []
        for grid, length in list(zip(series.grids, series.lengths, strict=True))[:100]:
            some = np.concatenate([np.arange(min(length, 400)), np.linspace(0, length - 1, 400).astype(np.int64)])
            values.append(calendar_features(grid, some, [name]))
        if np.ptp(np.concatenate(values), axis=0).max() > 1e-9:
            features.append(name)
    if not features:
        raise InputError(
            f"calendar: expected a grid on which the hour, weekday or month varies, got steps of "
            f"{series.grids[0].spacing()}"
        )
    return tuple(features)
