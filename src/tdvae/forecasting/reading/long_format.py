"""A table in long format as sequences: its targets, covariates and ids, and its rows on a regular grid of time.

A table is one long series, or holds several of them (one row per sequence and time). In messages, rows are counted
from 1, without the heading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tdvae.errors import InputError
from tdvae.forecasting.reading import cells
from tdvae.forecasting.series import Array, Columns, Grid, Series, find_grid, place

if TYPE_CHECKING:
    import pandas as pd

LEAST_COUNTED = 3  # rows of a column that counts rows


@dataclass
class Table:
    """One table on its way to `Series`."""

    frame: pd.DataFrame
    columns: Columns
    source: str
    notes: list[str]
    ignored: tuple[str, ...] = ()

    def series(self) -> Series:
        self._check_columns()
        if len(self.frame) < 2:
            raise InputError(f"file: expected at least two rows, got {len(self.frame)} in {self.source}")
        if self.columns.time is None and len(found := self._date_columns()) == 1:
            self.columns = replace(self.columns, time=found[0])
        ids, members = self._members()
        members, grids, steps = self._placed(members)
        if not self.columns.values:
            self._choose_targets(members)
        values = self._values()
        covariates, labels = self._covariates()
        x, inputs, kept, starts = [], [], [], []
        for number, rows in enumerate(members):
            own, step = _rows(values, rows), None if steps is None else steps[number]
            seen = np.flatnonzero(np.isfinite(own).any(1))
            if not len(seen):
                self.notes.append(f"{self.columns.id} {ids[number]}: left out, because it has only missing values")
                continue
            first, last = (int(at if step is None else step[at]) for at in (seen[0], seen[-1]))
            x.append(_on_grid(own, step)[first : last + 1])
            inputs.append(_carried_forward(_on_grid(_rows(covariates, rows), step))[first:])
            kept.append(number)
            if grids is not None:
                starts.append(grids[number].later(first))
        return Series(
            x,
            self.columns,
            covariates=inputs if self.columns.covariates else None,
            whole=tuple(self._is_whole(name) for name in self.columns.covariates),
            labels=labels,
            ids=[ids[number] for number in kept] if self.columns.id is not None else None,
            groups=self._groups([members[number] for number in kept]),
            grids=None if grids is None else starts,
            source=self.source,
            ignored=self.ignored,
            notes=tuple(self.notes),
        )

    def _check_columns(self) -> None:
        have, given = set(self.frame.columns), self.columns.named
        if (twice := first_repeated(list(self.frame.columns))) is not None:
            raise InputError(f"columns: expected names that differ, got {twice!r} twice in {self.source}")
        for name in given:
            if name not in have:
                shown = ", ".join(map(repr, list(self.frame.columns)[:20]))
                raise InputError(f"columns: expected {name!r} in {self.source}, which has {shown}")
        if (twice := first_repeated(given)) is not None:
            raise InputError(f"columns: expected one role for each column, got {twice!r} in two")

    def _date_columns(self) -> list[str]:
        free = [name for name in self.frame.columns if name not in set(self.columns.named)]
        return [name for name in free if cells.looks_like_dates(self.frame[name])]

    def _choose_targets(self, members: list[Array]) -> None:
        """All columns without a role are targets, but for those that count rows."""
        roles = set(self.columns.named)
        free = [name for name in self.frame.columns if name not in roles]
        counting = [name for name in free if self._counts_rows(name, members)]
        if len(counting) < len(free):
            self.ignored = tuple(counting)
            free = [name for name in free if name not in counting]
        if not free:
            raise InputError(f"values: expected at least one column to forecast in {self.source}, got none")
        self.columns = replace(self.columns, values=tuple(free))

    def _counts_rows(self, name: str, members: list[Array]) -> bool:
        column = self.frame[name]
        if getattr(column.dtype, "kind", "O") not in "iu" or len(column) < LEAST_COUNTED:
            return False
        values = column.to_numpy()
        return all((np.diff(_rows(values, rows)) == 1).all() for rows in members)

    def _values(self) -> Array:
        values = np.empty((len(self.frame), len(self.columns.values)))
        for place_, name in enumerate(self.columns.values):
            values[:, place_] = self._numbers(name)
            if np.isnan(values[:, place_]).all():
                raise InputError(f"column {name!r}: expected numbers, got only missing values in {self.source}")
        return values

    def _covariates(self) -> tuple[Array, tuple[tuple[str, ...], ...]]:
        """(rows, A) and, for columns of text, the texts that their numbers stand for."""
        values, labels = np.zeros((len(self.frame), len(self.columns.covariates))), []
        for place_, name in enumerate(self.columns.covariates):
            column = self.frame[name]
            texts: tuple[str, ...] = ()
            numbers, wrong = cells.numbers(column, self.columns.decimal)
            if wrong.any():
                from pandas import factorize

                codes, found = factorize(column.astype("string").str.strip(), sort=True)
                numbers, texts = np.where(codes < 0, np.nan, codes.astype(np.float64)), tuple(map(str, found))
            if np.isnan(numbers).any():
                row = int(np.isnan(numbers).argmax())
                raise InputError(
                    f"column {name!r}: expected a covariate in every row, got none in row {row + 1} of {self.source}"
                )
            values[:, place_] = numbers
            labels.append(texts)
        return values, tuple(labels)

    def _numbers(self, name: str) -> Array:
        """A column as float64, with NaN for missing cells."""
        found, wrong = cells.numbers(self.frame[name], self.columns.decimal)
        if wrong.any():
            row = int(wrong.argmax())
            text = wrong.mean() > 0.5
            hint = "a column of text or dates can be a covariate, the id or the group; or name the columns to forecast"
            raise InputError(
                f"column {name!r}: expected numbers, got {str(self.frame[name].iloc[row])!r} in row {row + 1} of "
                f"{self.source}{f'; {hint} with values' if text else ''}"
            )
        if np.isinf(found).any():
            row = int(np.isinf(found).argmax())
            raise InputError(
                f"column {name!r}: expected finite numbers, got infinity in row {row + 1} of {self.source}"
            )
        return found

    def _is_whole(self, name: str) -> bool:
        column = self.frame[name]
        if cells.is_text(column):
            return bool(column.astype("string").str.strip().str.fullmatch(r"[+-]?\d+").all())
        return getattr(column.dtype, "kind", "O") in "iu"

    def _members(self) -> tuple[list[str], list[Array]]:
        """The ids in the order of their first rows, and the rows of each."""
        if self.columns.id is None:
            return [""], [np.arange(len(self.frame))]
        from pandas import factorize

        column = self.frame[self.columns.id]
        missing = (column.isna() | (column.astype("string").str.strip() == "")).to_numpy(dtype=bool)
        if missing.any():
            raise InputError(
                f"column {self.columns.id!r}: expected an id in every row, got none in row {missing.argmax() + 1}"
            )
        codes, names = factorize(column.astype(str))
        rows = np.argsort(codes, kind="stable")
        return [str(name) for name in names], np.split(rows, np.cumsum(np.bincount(codes))[:-1])

    def _groups(self, members: list[Array]) -> list[str] | None:
        if self.columns.group is None:
            return None
        column = self.frame[self.columns.group].astype(str).to_numpy()
        groups = []
        for rows in members:
            own = np.unique(column[rows])
            if len(own) > 1:
                raise InputError(
                    f"column {self.columns.group!r}: expected one group for each sequence, got {own[0]!r} and "
                    f"{own[1]!r} in rows {rows[0] + 1} to {rows[-1] + 1}"
                )
            groups.append(str(own[0]))
        return groups

    def _placed(self, members: list[Array]) -> tuple[list[Array], list[Grid] | None, list[Array] | None]:
        """The rows of each sequence in the order of time, its grid and the steps of its rows."""
        name = self.columns.time
        if name is None:
            return members, None, None
        times, zone = cells.times(self.frame[name], name, self.source, self.columns.date_format, self.columns.time_zone)
        zero = np.zeros(1, dtype=np.diff(times[:2]).dtype)
        if all((np.diff(_rows(times, rows)) < zero).all() for rows in members):
            members = [rows[::-1] for rows in members]  # newest first
        for rows in members:
            back = np.flatnonzero(np.diff(_rows(times, rows)) <= zero)
            if len(back):
                raise InputError(self._disorder(times, rows[back[0]], rows[back[0] + 1]))
        shown = f"column {name!r}"
        common = find_grid([_rows(times, rows) for rows in members], shown, zone)
        placed = [place(_rows(times, rows), common, rows + 1, shown) for rows in members]
        return members, [own for own, _ in placed], [steps for _, steps in placed]

    def _disorder(self, times: Array, before: int, row: int) -> str:
        what = "the same time as" if times[before] == times[row] else "an earlier time than"
        advice = "sort the table by time" if times[before] != times[row] else "keep one row for each time"
        if self.columns.id is None and (found := self._id_columns(times)):
            advice = f"name the column that tells the series apart with id, which may be {found[0]!r}"
        elif self.columns.id is None:
            advice += ", or name the column that tells series apart with id"
        if times.dtype.kind == "M" and abs(times[before] - times[row]) <= np.timedelta64(1, "h"):
            advice += "; local times that repeat an hour in autumn need a time_zone"
        return (
            f"column {self.columns.time!r}: expected times that increase, got {what} in row {before + 1} in row "
            f"{row + 1} ({times[row]}) of {self.source}; {advice}"
        )

    def _id_columns(self, times: Array) -> list[str]:
        """Columns whose values separate the rows into series in which time increases."""
        from pandas import factorize

        found = []
        for name in (name for name in self.frame.columns if name not in (self.columns.time, *self.columns.values)):
            codes = factorize(self.frame[name])[0]
            order = np.argsort(codes, kind="stable")
            same = np.diff(codes[order]) == 0
            if (
                2 * codes.max() < len(codes)
                and (np.diff(times[order])[same] > np.zeros(1, np.diff(times[:2]).dtype)).all()
            ):
                found.append(str(name))
        return found


def first_repeated(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _rows(values: Array, rows: Array) -> Array:
    """Some rows; a view if they follow each other."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        return values[rows[0] : rows[-1] + 1]
    return values[rows]


def _on_grid(values: Array, steps: Array | None) -> Array:
    """The rows at their steps, with NaN at steps without a row."""
    if steps is None or steps[-1] + 1 == len(values):
        return values
    filled = np.full((int(steps[-1]) + 1, *values.shape[1:]), np.nan)
    filled[steps] = values
    return filled


def _carried_forward(covariates: Array) -> Array:
    """Covariates at steps without a row: those of the row before."""
    if covariates.shape[1] == 0:
        return covariates
    last = np.maximum.accumulate(np.where(np.isnan(covariates[:, 0]), 0, np.arange(len(covariates))))
    return covariates[last]
