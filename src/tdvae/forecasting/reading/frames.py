"""DataFrames and Series of pandas and polars, and several of them, as one table in long format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tdvae.errors import InputError
from tdvae.forecasting.reading.long_format import Table
from tdvae.forecasting.series import Columns, Series

if TYPE_CHECKING:
    import pandas as pd

SERIES_ID = "series"  # the id column of several tables that are put together


def is_frame(source: object) -> bool:
    """Whether this is a DataFrame or Series of pandas or polars; neither is imported for the answer."""
    kind = type(source)
    return kind.__name__ in ("DataFrame", "Series") and kind.__module__.split(".")[0] in ("pandas", "polars")


def named_frames(source: object) -> dict[str, Any] | None:
    """Several tables by name, if a list or mapping holds nothing else. A list of named Series has their names."""
    if isinstance(source, Mapping):
        found = {str(name): table for name, table in source.items()}
    elif isinstance(source, list | tuple):
        names = [str(getattr(table, "name", None) or number) for number, table in enumerate(source)]
        found = dict(zip(names if len(set(names)) == len(names) else map(str, range(len(names))), source, strict=True))
    else:
        return None
    return found if found and all(map(is_frame, found.values())) else None


def require_pandas() -> Any:
    try:
        import pandas
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"tables: expected the packages pandas and pyarrow, got {error}; pip install 'tdvae[tables]'"
        ) from error
    return pandas


def from_frames(tables: Mapping[str, Any], columns: Columns) -> Series:
    """The sequences of several tables; with the names of the tables as ids."""
    pandas = require_pandas()
    frames = {name: _to_pandas(table) for name, table in tables.items()}
    if (
        all(frame.shape[1] == 1 for frame in frames.values())
        and len({frame.columns[0] for frame in frames.values()}) > 1
    ):
        frames = {name: frame.set_axis(["value"], axis=1) for name, frame in frames.items()}
    first, *others = frames.items()
    for name, frame in others:
        if list(frame.columns) != list(first[1].columns):
            raise InputError(
                f"data: expected the same columns in all tables, got {list(first[1].columns)[:5]} in {first[0]} and "
                f"{list(frame.columns)[:5]} in {name}"
            )
    if columns.id not in (None, SERIES_ID):
        return from_frame(pandas.concat(frames.values(), ignore_index=True), columns)
    tidy = {name: _with_index(frame, columns) for name, frame in frames.items()}
    columns = next(iter(tidy.values()))[1]
    together = pandas.concat([frame.assign(**{SERIES_ID: name}) for name, (frame, _) in tidy.items()])
    return from_frame(together.reset_index(drop=True), replace(columns, id=SERIES_ID))


def from_frame(frame: Any, columns: Columns, source: str = "data", notes: tuple[str, ...] = ()) -> Series:
    """The sequences of a table.

    Without ``columns.time``, an index of time stamps is the time; else a column of dates, if there is exactly one;
    else rows follow each other. ``columns.time`` may also name that index, which is called "time" if it has no name.
    The other levels of an index of several levels are the id. Without ``columns.values``, all columns without another
    role are targets, but for those that count rows.
    """
    frame, columns = _with_index(_to_pandas(frame), columns)
    if columns.id == SERIES_ID and SERIES_ID not in frame.columns:
        columns = replace(columns, id=None)
    return Table(frame, columns, source, list(notes)).series()


def _to_pandas(table: Any) -> pd.DataFrame:
    pandas = require_pandas()
    if not isinstance(table, pandas.DataFrame | pandas.Series):
        table = table.to_pandas()
    if isinstance(table, pandas.Series):
        table = table.to_frame(table.name or "value")
    names = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in table.columns]
    return table.set_axis(names, axis=1)


def _with_index(frame: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, Columns]:
    """The frame with the levels of its index as columns, if they are times or ids."""
    pandas = require_pandas()
    index = frame.index
    levels = [index.get_level_values(level) for level in range(index.nlevels)]
    dated = [isinstance(level, pandas.DatetimeIndex | pandas.PeriodIndex) for level in levels]
    if index.nlevels > 1 and not any(dated):
        dated[-1] = levels[-1].dtype.kind in "iuf"  # such as (store, week)
    names = [str(level.name or ("time" if date else SERIES_ID)) for level, date in zip(levels, dated, strict=True)]
    own = {*map(str, frame.columns)}
    if index.nlevels == 1 and not (dated[0] or (levels[0].name and names[0] in columns.named and names[0] not in own)):
        return frame, columns
    if dated.count(True) == 1 and columns.time is not None and columns.time != names[dated.index(True)]:
        dated = [False] * len(dated)
        if index.nlevels == 1:
            return frame, columns
    frame = frame.reset_index(drop=True)
    ids = []
    for name, level, date in zip(names, levels, dated, strict=True):
        if name in own:
            raise InputError(f"columns: expected other names than those of the index, got {name!r} in both")
        frame = frame.assign(**{name: pandas.Series(level).to_numpy() if level.dtype.kind in "OM" else level})
        if date and columns.time is None:
            columns = replace(columns, time=name)
        elif name not in columns.named:
            ids.append(name)
    if (ids and columns.id is None) or columns.id == ", ".join(ids):
        if len(ids) > 1:
            joined = frame[ids[0]].astype(str).str.cat([frame[name].astype(str) for name in ids[1:]], sep=", ")
            frame = frame.drop(columns=ids).assign(**{", ".join(ids): joined})
        columns = replace(columns, id=", ".join(ids))
    return frame, columns
