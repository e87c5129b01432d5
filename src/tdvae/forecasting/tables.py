"""Tables as sequences: CSV and Parquet files, pandas and polars DataFrames.

A table is one long series, or holds several of them in long format (one row per sequence and time). Time stamps are
placed on a regular grid. In messages, rows are counted from 1, without the heading.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tdvae.errors import InputError
from tdvae.forecasting import grid
from tdvae.forecasting.series import Array, Columns, Series
from tdvae.storage.files import open_regular

if TYPE_CHECKING:
    import pandas as pd

TABLE_FILES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
DELIMITERS = ",;\t"


def is_frame(source: object) -> bool:
    """Whether this is a DataFrame of pandas or polars; neither is imported for the answer."""
    return type(source).__name__ == "DataFrame" and type(source).__module__.split(".")[0] in ("pandas", "polars")


def read_table(path: Path, columns: Columns) -> Series:
    """Read a CSV or Parquet file."""
    frame = _read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _read_csv(path)
    return from_frame(frame, columns, str(path))


def _require() -> Any:
    try:
        import pandas
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"tables: expected the packages pandas and pyarrow, got {error}; pip install 'tdvae[tables]'"
        ) from error
    return pandas


def _read_csv(path: Path) -> pd.DataFrame:
    """All cells as text: which columns are numbers depends on their roles, and a wrong cell is then named exactly."""
    _require()
    import pyarrow
    from pyarrow import csv as arrow

    _check_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            heading = file.readline()
        delimiter = max(DELIMITERS, key=heading.count)
        names = next(csv.reader([heading], delimiter=delimiter), [])
        _check_heading(names, path)
        parsed = arrow.read_csv(
            path,
            read_options=arrow.ReadOptions(use_threads=False),  # messages then have the row
            parse_options=arrow.ParseOptions(delimiter=delimiter),
            convert_options=arrow.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=True
            ),
        )
    except UnicodeDecodeError as error:
        raise InputError(f"file: expected a CSV file in UTF-8, got {path}") from error
    except OSError as error:
        raise InputError(f"file: expected a readable file, got {path} ({error.strerror or error})") from error
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"file: expected a complete CSV file, got {path} ({_one_line(error)})") from error
    return parsed.to_pandas()


def _check_file(path: Path) -> None:
    """Raise if a file cannot be opened, or is a pipe or a device, for which the readers would wait."""
    try:
        with open_regular(path, follow=True):
            pass
    except FileNotFoundError as error:
        raise InputError(f"file: expected an existing file, got {path}") from error
    except OSError as error:
        raise InputError(f"file: expected a readable file, got {path} ({error.strerror or error})") from error


def _check_heading(names: list[str], path: Path) -> None:
    if not names:
        raise InputError(f"file: expected a CSV file with a heading, got the empty file {path}")
    if all(_is_number(name) for name in names):
        raise InputError(f"file: expected a heading with column names in the first line of {path}, got numbers")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"file: expected column names that differ, got {repeated[0]!r} twice in {path}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> pd.DataFrame:
    pandas = _require()
    import pyarrow

    _check_file(path)
    try:
        return pandas.read_parquet(path, engine="pyarrow")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"file: expected a complete Parquet file, got {path} ({_one_line(error)})") from error


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else f"{text[:157]}..."


def from_frame(frame: Any, columns: Columns, source: str = "data") -> Series:
    """The sequences of a DataFrame.

    Without ``columns.time``, a pandas index of time stamps is the time; else a column of dates, if there is exactly
    one; else rows follow each other. ``columns.time`` may also name that index, which is called "time" if it has no
    name. Without ``columns.values``, all columns without another role are values.
    """
    pandas = _require()
    if not isinstance(frame, pandas.DataFrame):
        frame = frame.to_pandas()
    if isinstance(frame.index, pandas.PeriodIndex):
        frame = frame.set_axis(frame.index.to_timestamp())
    if isinstance(frame.index, pandas.DatetimeIndex):
        name = str(frame.index.name or "time")
        if columns.time is None or (columns.time == name and name not in frame.columns):
            frame = frame.rename_axis(index=name).reset_index()
            columns = replace(columns, time=name)
    return _Reader(frame.set_axis([str(name) for name in frame.columns], axis=1), columns, source).series()


@dataclass
class _Reader:
    """One table on its way to `Series`."""

    frame: pd.DataFrame
    columns: Columns
    source: str

    def series(self) -> Series:
        notes: list[str] = []
        self._check_columns()
        if len(self.frame) < 2:
            raise InputError(f"file: expected at least two rows, got {len(self.frame)} in {self.source}")
        if self.columns.time is None and (found := self._date_columns()):
            self.columns = replace(self.columns, time=found[0])
            notes.append(f"time: the dates in column {found[0]!r}")
        if not self.columns.values:
            roles = {*self.columns.known, self.columns.id, self.columns.time, self.columns.group}
            self.columns = replace(self.columns, values=tuple(c for c in self.frame.columns if c not in roles))
        if not self.columns.values:
            raise InputError(f"values: expected at least one column to forecast in {self.source}, got none")
        values = np.stack([self._numbers(name) for name in self.columns.values], axis=1)
        known = np.zeros((len(self.frame), len(self.columns.known)))
        for place, name in enumerate(self.columns.known):
            known[:, place] = self._numbers(name, complete=True)
        for name, column in zip(self.columns.values, values.T, strict=True):
            if np.isnan(column).all():
                raise InputError(f"column {name!r}: expected numbers, got only missing values in {self.source}")
        ids, members = self._members()
        placed = self._placed(members)
        x, inputs, kept = [], [], []
        for number, rows in enumerate(members):
            steps = np.arange(len(rows)) if placed is None else placed[1][number]
            seen = np.isfinite(values[rows]).any(1)
            if not seen.any():
                notes.append(f"{self.columns.id} {ids[number]}: left out, because it has only missing values")
                continue
            first, last = steps[seen.argmax()], steps[len(seen) - 1 - seen[::-1].argmax()]
            x.append(_on_grid(values[rows], steps)[first : last + 1])
            inputs.append(_carried_forward(_on_grid(known[rows], steps))[first:])
            kept.append((number, None if placed is None else placed[0][number].later(int(first))))
        gaps = sum(int(np.isnan(part).all(1).sum()) for part in x)
        if gaps:
            notes.append(f"{gaps} of {sum(map(len, x))} steps have no observation and are missing steps")
        return Series(
            x,
            self.columns,
            known=inputs if self.columns.known else None,
            whole=tuple(self._is_whole(name) for name in self.columns.known),
            ids=[ids[number] for number, _ in kept] if self.columns.id is not None else None,
            groups=self._groups([members[number] for number, _ in kept]),
            grids=None if placed is None else [own for _, own in kept if own is not None],
            source=self.source,
            notes=tuple(notes),
        )

    def _check_columns(self) -> None:
        have = list(self.frame.columns)
        wanted = [*self.columns.values, *self.columns.known, self.columns.id, self.columns.time, self.columns.group]
        for name in wanted:
            if name is not None and name not in have:
                raise InputError(f"columns: expected {name!r} in {self.source}, which has {', '.join(map(repr, have))}")
        given = [name for name in wanted if name is not None]
        if twice := [name for name in given if given.count(name) > 1]:
            raise InputError(f"columns: expected one role for each column, got {twice[0]!r} in two")

    def _date_columns(self) -> list[str]:
        """The only column of dates; none if there are several."""
        used = {*self.columns.values, *self.columns.known, self.columns.id, self.columns.group}
        found = [name for name in self.frame.columns if name not in used and self._looks_like_dates(name)]
        return found if len(found) == 1 else []

    def _looks_like_dates(self, name: str) -> bool:
        import pandas

        column = self.frame[name]
        if pandas.api.types.is_datetime64_any_dtype(column):
            return True
        first = column.dropna().head(1)
        if first.empty or not isinstance(first.iloc[0], str) or _is_number(first.iloc[0]):
            return False
        return bool(pandas.to_datetime(first, format="ISO8601", errors="coerce", utc=True).notna().all())

    def _numbers(self, name: str, complete: bool = False) -> Array:
        """A column as float64, with NaN for missing cells."""
        import pandas

        column = self.frame[name]
        if pandas.api.types.is_numeric_dtype(column):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            text = column.astype("string").str.strip()
            truth = text.str.lower().map({"true": "1", "false": "0"})
            text = text.where(truth.isna(), truth)
            numbers = pandas.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
            wrong = np.isnan(numbers) & ~text.isna().to_numpy() & ~text.str.lower().isin(["", "nan"]).to_numpy()
            if wrong.any():
                row = int(wrong.argmax())
                hint = "" if self.columns.values else "; choose the columns to forecast with values"
                raise InputError(
                    f"column {name!r}: expected numbers, got {str(column.iloc[row])!r} in row {row + 1} of "
                    f"{self.source}{hint}"
                )
        if np.isinf(numbers).any():
            row = int(np.isinf(numbers).argmax())
            raise InputError(
                f"column {name!r}: expected finite numbers, got infinity in row {row + 1} of {self.source}"
            )
        if complete and np.isnan(numbers).any():
            row = int(np.isnan(numbers).argmax())
            raise InputError(
                f"column {name!r}: expected a known input in every row, got none in row {row + 1} of {self.source}"
            )
        return numbers

    def _is_whole(self, name: str) -> bool:
        import pandas

        column = self.frame[name]
        if pandas.api.types.is_bool_dtype(column) or pandas.api.types.is_float_dtype(column):
            return False
        if pandas.api.types.is_integer_dtype(column):
            return True
        return bool(column.astype("string").str.strip().str.fullmatch(r"[+-]?\d+").all())

    def _members(self) -> tuple[list[str], list[Array]]:
        """The ids in the order of their first rows, and the rows of each."""
        if self.columns.id is None:
            return [""], [np.arange(len(self.frame))]
        column = self.frame[self.columns.id]
        if column.isna().any():
            row = int(column.isna().to_numpy().argmax())
            raise InputError(f"column {self.columns.id!r}: expected an id in every row, got none in row {row + 1}")
        names = column.astype(str)
        grouped = names.groupby(names, sort=False).indices
        return list(grouped), [np.sort(rows) for rows in grouped.values()]

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

    def _placed(self, members: list[Array]) -> tuple[list[grid.Grid], list[Array]] | None:
        """The grid of each sequence and the steps of its rows; None without time stamps."""
        if self.columns.time is None:
            return None
        times, utc = self._times()
        name = f"column {self.columns.time!r}"
        for rows in members:
            back = np.flatnonzero(np.diff(times[rows]) <= np.zeros(1, dtype=np.diff(times).dtype))
            if len(back):
                before, row = rows[back[0]], rows[back[0] + 1]
                what = "the same time as" if times[before] == times[row] else "an earlier time than"
                advice = "name the column that tells sequences apart with id" if self.columns.id is None else ""
                problem = f"got {what} in row {before + 1} in row {row + 1} ({times[row]})"
                sort = "sort the table" if times[before] != times[row] else advice
                raise InputError(
                    f"{name}: expected times that increase, {problem} of {self.source}{'; ' + sort if sort else ''}"
                )
        common = grid.find_grid([times[rows] for rows in members], name, utc)
        placed = [grid.place(times[rows], common, rows + 1, name) for rows in members]
        return [own for own, _ in placed], [steps for _, steps in placed]

    def _times(self) -> tuple[Array, bool]:
        """The time stamps as float64 or datetime64[us], and whether they had a time zone."""
        import pandas

        name = self.columns.time
        assert name is not None
        column = self.frame[name]
        missing = column.isna().to_numpy()
        if missing.any():
            raise InputError(f"column {name!r}: expected a time in every row, got none in row {missing.argmax() + 1}")
        if pandas.api.types.is_numeric_dtype(column) or column.astype("string").map(_is_number).all():
            return self._numbers(name), False
        try:
            aware = pandas.to_datetime(column, format="ISO8601", utc=True)
        except (ValueError, TypeError, OverflowError):
            aware = pandas.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
        wrong = aware.isna().to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"column {name!r}: expected numbers or ISO 8601 times such as 2024-03-31 or 2024-03-31 14:00, got "
                f"{str(column.iloc[row])!r} in row {row + 1} of {self.source}"
            )
        utc = getattr(column.dtype, "tz", None) is not None or _has_zone(column.iloc[0])
        return aware.dt.tz_localize(None).to_numpy(dtype="datetime64[us]"), utc


def _has_zone(value: object) -> bool:
    """Whether a time stamp as text ends with Z or an offset from UTC."""
    text = value.strip() if isinstance(value, str) else ""
    return text.endswith(("Z", "z")) or "+" in text[10:] or "-" in text[10:]


def _on_grid(values: Array, steps: Array) -> Array:
    """The rows at their steps, with NaN at steps without a row."""
    filled = np.full((int(steps[-1]) + 1, *values.shape[1:]), np.nan)
    filled[steps] = values
    return filled


def _carried_forward(known: Array) -> Array:
    """Known inputs at steps without a row: those of the row before."""
    if known.shape[1] == 0:
        return known
    last = np.maximum.accumulate(np.where(np.isnan(known[:, 0]), 0, np.arange(len(known))))
    return known[last]
