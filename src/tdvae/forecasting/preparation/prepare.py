"""From a user's file, table or arrays to training, validation and test parts, without leakage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch

from tdvae.checks import LONGEST_JUMP, Positive, Range, Seed, checked
from tdvae.data import Recording, split_windows
from tdvae.data.arrays import check_shares
from tdvae.data.windows import FrameWindows
from tdvae.errors import InputError
from tdvae.forecasting.preparation.covariates import Covariate
from tdvae.forecasting.preparation.encode import Encoding, kind_of
from tdvae.forecasting.preparation.overlaps import join_overlapping
from tdvae.forecasting.preparation.own_data import MOST_STORED, HeldOut, OwnData
from tdvae.forecasting.preparation.pictures import Picture
from tdvae.forecasting.preparation.seasons import find_seasons
from tdvae.forecasting.preparation.split import (
    SHARES,
    Span,
    Split,
    SplitBy,
    Windows,
    check_window,
    default_window,
    held_out_windows,
    split_series,
    training_windows,
    validation_windows,
    whole_spans,
)
from tdvae.forecasting.preparation.understood import Understood
from tdvae.forecasting.reading import Source, read
from tdvae.forecasting.series import Columns, Series
from tdvae.models.defaults import padded_size
from tdvae.storage.files import sha256_of
from tdvae.types import Sequences

FRAME_WINDOW = 4  # windows of recordings have this many times the longest jump


@checked
def prepare(
    source: Source,
    longest_jump: Annotated[int, Range(1, LONGEST_JUMP)] = 10,
    *,
    values: str | Sequence[str] | None = None,
    covariates: str | Sequence[str] | None = None,
    id: str | None = None,
    time: str | None = None,
    group: str | None = None,
    sep: str | None = None,
    decimal: Literal[".", ","] | None = None,
    date_format: str | None = None,
    time_zone: str | None = None,
    calendar: bool = False,
    window: Positive | None = None,
    stride: Positive = 1,
    split: SplitBy = "auto",
    test: Source | None = None,
    shares: tuple[float, float, float] = SHARES,
    season: Positive | Sequence[Positive] | None = None,
    seed: Seed = 0,
) -> OwnData:
    """Read sequences, scale them and split them into training, validation and test parts without leakage.

    Args:
        source: a file (.csv, also .csv.gz, .parquet, .xlsx, .npz, .npy, .h5), a DataFrame or Series of pandas or
            polars, a list of them, an array (N, T, …), an array (T,) of one series, a list of arrays (T_n, …), or a
            mapping with ``x`` and optionally ``actions``, ``rewards``, ``lengths`` and ``observed``.
        longest_jump: forecasts of up to this many steps are learned as one jump.
        values: the columns (or the array) to forecast; by default all columns without another role.
        covariates: columns whose future is known: prices, set points, an agent's actions.
        id: tables: the column that tells series apart. Without it, the table is one long series.
        time: tables: the column of time stamps.
        group: a column (or an array); sequences of one group are not separated by the split.
        sep: what separates the cells of a text file. Detected by default, as the next two.
        decimal: the decimal mark, "." or ",".
        date_format: how dates are written, as in ``strptime``: ``%d/%m/%Y``.
        time_zone: of time stamps without one, and of the calendar: ``Europe/Berlin``.
        calendar: add hour, weekday and month from the time stamps to the covariates.
        window: cut sequences into windows of this many steps. By default only those that are split by time.
        stride: steps between the starts of successive training windows.
        split: ``time``, ``sequence``, or ``auto``: by time if there are fewer than ten sequences.
        test: a source like the first; it then is the test part.
        season: steps of a season, or of several. Detected in the training part by default.
        shares: of the training, validation and test parts. By default 0.8, 0.1 and 0.1.
        seed: seed of a split by sequence.

    >>> import numpy as np, tdvae
    >>> signals = np.sin(np.arange(40) * np.linspace(0.2, 0.6, 50)[:, None])
    >>> data = tdvae.prepare(signals, longest_jump=5)
    >>> len(data.train), data.test.sequences.x.shape
    (40, torch.Size([5, 40, 1]))
    """
    check_shares(shares)
    columns = Columns(_names(values), _names(covariates), id, time, group, sep, decimal, date_format, time_zone)
    series = read(source, columns)
    if isinstance(series, Recording):
        return _prepare_recording(series, longest_jump, window, stride, seed, columns)
    notes, joined = list(series.notes), None
    if test is None and series.grids is None and (joined := join_overlapping(series)) is not None:
        count, series = len(series), joined.series
        stride = max(stride, joined.stride)
        notes.append(
            f"x: {joined.windows} of {count} sequences overlap; they were merged into {len(series)} series, which are "
            "split so that no test target is in training"
        )
    held_out = 0
    if test is not None:
        other = read(test, replace(series.columns, group=None))
        if isinstance(other, Recording):
            raise InputError("test: expected sequences of the same kind, got a recording")
        series, held_out = _joined(series, other), len(other)
    offsets = None if held_out else series.offsets
    parts = split_series(series.lengths, longest_jump, seed, split, series.groups, offsets, held_out, shares)
    if joined is not None and window is None:
        window = min(joined.window, max(map(len, parts.train)))
    given = None if season is None else (season,) if isinstance(season, int) else tuple(sorted(set(season)))
    own = _assemble(series, parts, longest_jump, window, stride, calendar, given)
    described = () if own.understood is None else tuple(own.understood.describe().splitlines())
    return replace(own, notes=(*described, *notes, *own.notes), sha256=_digest(source))


def _seasons(series: Series, parts: Split) -> tuple[int, ...]:
    """The seasons of the training part."""
    if kind_of(series) != "vector":
        return ()
    return find_seasons([series.x[span.sequence][span.start : span.stop] for span in parts.train])


def _check_season(season: int, longest: int, window: int | None, longest_jump: int) -> None:
    """Raise if a season is longer than what is seen before a forecast."""
    if season >= longest:
        raise InputError(f"season: expected 1 to {longest - 1} steps, as in the training part, got {season}")
    if window is not None and season > window - longest_jump:
        raise InputError(
            f"season: expected 1 to {window - longest_jump} steps, as a window of {window} steps has before jumps of "
            f"up to {longest_jump}, got {season}; use a longer window"
        )


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _joined(first: Series, second: Series) -> Series:
    """The sequences of both."""
    if second.event_shape != first.event_shape or second.x[0].dtype != first.x[0].dtype:
        raise InputError(
            f"test: expected observations of shape {first.event_shape} and {first.x[0].dtype}, as in training, got "
            f"{second.event_shape} and {second.x[0].dtype}"
        )
    if any((getattr(first, name) is None) != (getattr(second, name) is None) for name in ("covariates", "rewards")):
        raise InputError("test: expected covariates and rewards as in training, got other ones")
    if first.labels != second.labels:
        raise InputError("test: expected the same texts in covariates as in training, got other ones")
    both: dict[str, Any] = {}
    for name in ("x", "covariates", "rewards", "ids", "grids"):
        mine, others = getattr(first, name), getattr(second, name)
        both[name] = None if mine is None or others is None else [*mine, *others]
    groups = None if first.groups is None else [*first.groups, *[""] * len(second)]
    return replace(first, groups=groups, **both)


def _assemble(
    series: Series,
    parts: Split,
    longest_jump: int,
    window: int | None,
    stride: int,
    calendar: bool,
    seasons: tuple[int, ...] | None,
) -> OwnData:
    found = _seasons(series, parts) if seasons is None else seasons
    if window is None and parts.by_time:
        window = default_window(parts.train, longest_jump, max(found, default=0))
    if window is not None:
        check_window(window, parts.train, longest_jump)
    for each in seasons or ():
        _check_season(each, max(map(len, parts.train)), window, longest_jump)
    if window is not None:
        found = tuple(each for each in found if each <= window - longest_jump)
    _check_room(series, parts, longest_jump)
    pieces = whole_spans(parts.train)
    encoding = Encoding.fit(series, pieces, calendar)
    sequences = encoding.sequences(series)

    def held_out(spans: Sequence[Span], history: bool) -> HeldOut:
        windows, context = held_out_windows(spans, window, longest_jump, history)
        return HeldOut(Windows.of(sequences, windows).all(), context)

    tested, _ = held_out_windows(parts.test, window, longest_jump, parts.by == "time")
    grids = series.grids or []
    return OwnData(
        train=Windows.of(sequences, training_windows(parts.train, window, stride)),
        validation=Windows.of(sequences, validation_windows(parts.validation, window, longest_jump)),
        history=Windows.of(sequences, pieces).all(),
        validated=held_out(parts.validation, parts.by_time),
        test=held_out(parts.test, parts.by == "time"),
        encoding=encoding,
        columns=series.columns,
        longest_jump=longest_jump,
        window=window,
        split=parts.describe(),
        notes=tuple(encoding.notes(series, pieces)),
        seasons=found,
        understood=Understood.of(series, encoding, found),
        times=tuple(grids[row].later(int(start)) for row, start, _ in tested) if grids else (),
    )


def _check_room(series: Series, parts: Split, longest_jump: int) -> None:
    """Raise if a sequence is too short for its part."""
    shortest = min(parts.test, key=len)
    if len(shortest) < 2:
        raise InputError(
            f"lengths: a test sequence of a single step has nothing to forecast, expected at least 2 in "
            f"{series.name(shortest.sequence)}"
        )
    for name, part in (("training", parts.train), ("validation", parts.validation)):
        shortest = min(part, key=len)
        if len(shortest) < longest_jump:
            raise InputError(
                f"longest_jump: {longest_jump} steps do not fit the shortest {name} sequence of {len(shortest)}, "
                f"{series.name(shortest.sequence)}"
            )


def _digest(source: Source) -> str:
    """The SHA-256 of a file; empty for data in memory."""
    return sha256_of(Path(source)) if isinstance(source, str | Path) else ""


def _prepare_recording(
    recording: Recording, longest_jump: int, window: int | None, stride: int, seed: int, columns: Columns
) -> OwnData:
    """Windows of a recording's frames, read from the file when they are needed."""
    if columns.named:
        raise InputError("columns: expected none, since a recording has frames and actions, got names of columns")
    length = window or max(2, min(FRAME_WINDOW * longest_jump, int(recording.lengths.max())))
    if length <= longest_jump:
        raise InputError(f"window: expected more than the longest jump of {longest_jump} steps, got {length}")
    train, validation, test = split_windows(recording, length, seed, max(stride, length // 8), with_actions=True)
    side, actions = recording.size, recording.action_names
    if padded_size(side, side) != (side, side):
        raise InputError(f"file: expected frames of {padded_size(side, side)[0]} pixels, got {side} pixels")
    encoding = Encoding(
        "picture",
        (side, side, 3),
        ("x",),
        picture=Picture("hwc", 0.0, 255.0, side, side),
        covariates=(Covariate("actions", tuple(map(float, range(len(actions))))),),
    )

    def some(part: FrameWindows) -> Sequences:
        count = max(1, min(len(part), 64, MOST_STORED // (length * 3 * side * side)))
        return part.select(torch.arange(count) * len(part) // count)

    return OwnData(
        train,
        validation,
        some(train),
        HeldOut(some(validation)),
        HeldOut(some(test)),
        encoding,
        columns,
        longest_jump,
        length,
        f"split by episode: {len(train)} windows for training, {len(validation)} for validation, {len(test)} for test",
        (f"actions: {', '.join(actions)} (one-hot)",),
        _digest(recording.path),
    )
