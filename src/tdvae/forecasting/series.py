"""A user's sequences in their own units, as they were read, and the regular grid of their time stamps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tdvae.checks import check_fields, shown
from tdvae.errors import InputError

Array = npt.NDArray[Any]

DAY = 86_400_000_000  # microseconds, the unit of all time stamps here
TOLERANCE = 0.01  # how far a time may be from its step, as a share of the spacing: clocks jitter
MOST_STEPS_PER_ROW = 20  # a longer grid is almost certainly a bad time stamp
MOST_DIFFERENCES = 2**20  # of successive times, from which the spacing is found
BLOCK = 2**18  # numbers that are worked on at once, so that temporary arrays stay small


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns or a file's arrays, and how its text is read where guessing fails."""

    values: tuple[str, ...] = ()  # targets; none named: x, or all columns of numbers without another role
    covariates: tuple[str, ...] = ()  # their future is known
    id: str | None = None  # tables: which sequence a row belongs to
    time: str | None = None  # tables: time stamps
    group: str | None = None  # sequences of one group are not separated by the split
    sep: str | None = None  # between the cells of a text file
    decimal: Literal[".", ","] | None = None
    date_format: str | None = None  # as in strptime: %d/%m/%Y
    time_zone: str | None = None  # of time stamps without one, and of calendar features: Europe/Berlin

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sep is not None and len(self.sep) != 1:
            raise InputError(f"sep: expected one character, got {shown(self.sep)}")

    @property
    def named(self) -> list[str]:
        """All columns with a role, in the order of the fields."""
        return [
            *self.values,
            *self.covariates,
            *(name for name in (self.id, self.time, self.group) if name is not None),
        ]

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_description(cls, values: dict[str, Any]) -> Columns:
        return cls(**{**values, "values": tuple(values["values"]), "covariates": tuple(values["covariates"])})


@dataclass(frozen=True, eq=False)
class Series:
    """N sequences, each an array of its own.

    Measurements are float64, with NaN where a number is missing. bool arrays are bits, integer arrays are classes, and
    pictures are uint8 or floats.
    """

    x: list[Array]  # (T_n, *event)
    columns: Columns = field(default_factory=Columns)
    covariates: list[Array] | None = None  # (K_n, A) float64, K_n >= T_n: those after T_n belong to the future
    whole: tuple[bool, ...] = ()  # for each covariate: whether it was given as whole numbers
    labels: tuple[tuple[str, ...], ...] = ()  # for each covariate: the texts that its numbers stand for, or none
    rewards: list[Array] | None = None  # (T_n,)
    ids: list[str] | None = None
    groups: list[str] | None = None
    grids: list[Grid] | None = None
    source: str = "data"
    ignored: tuple[str, ...] = ()  # columns
    notes: tuple[str, ...] = ()  # what was assumed while reading, in sentences

    def __len__(self) -> int:
        return len(self.x)

    @property
    def lengths(self) -> list[int]:
        return [len(each) for each in self.x]

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.x[0].shape[1:]

    @property
    def offsets(self) -> list[int] | None:
        """The step of each sequence's start, counted from the earliest; None without time stamps."""
        if self.grids is None:
            return None
        earliest = min(self.grids, key=lambda grid: grid.start)
        starts = np.concatenate([grid.at(np.zeros(1, dtype=np.int64)) for grid in self.grids])
        return [int(step) for step in np.rint(earliest.steps(starts))]

    def name(self, number: int) -> str:
        """How messages call a sequence."""
        return f"sequence {number}" if self.ids is None else f"{self.columns.id} {self.ids[number]}"

    def channels(self) -> list[str]:
        """A name for each number of an observation."""
        size = int(np.prod(self.event_shape))
        if len(self.columns.values) == size:
            return list(self.columns.values)
        stem = self.columns.values[0] if len(self.columns.values) == 1 else "x"
        if len(self.event_shape) == 1:
            return [stem] if size == 1 else [f"{stem}_{number}" for number in range(size)]
        return [f"{stem}_{'_'.join(map(str, place))}" for place in np.ndindex(self.event_shape)]


def blocks(parts: Sequence[Array]) -> Iterator[tuple[slice, slice, Array]]:
    """Arrays (k, t, *event) of about `BLOCK` numbers, with the sequences and the steps that they hold.

    Short neighbours of one length are stacked, and a long sequence is cut.
    """
    first, rows = 0, max(1, BLOCK // max(1, int(np.prod(parts[0].shape[1:]))))
    while first < len(parts):
        length, last = len(parts[first]), first + 1
        while last < len(parts) and len(parts[last]) == length and (last - first + 1) * length <= rows:
            last += 1
        if last > first + 1:
            yield slice(first, last), slice(0, length), np.stack(parts[first:last])
        else:
            for start in range(0, length, rows):
                steps = slice(start, min(start + rows, length))
                yield slice(first, last), steps, parts[first][None, steps]
        first = last


@dataclass(frozen=True)
class Grid:
    """The times start, start + size, start + 2 · size, …

    - ``number``: ``size`` and ``start`` are numbers of the user's own.
    - ``time``: both are microseconds; ``start`` is counted from 1970.
    - ``business``: Monday to Friday. ``start`` is a day, counted from 1970, and ``offset`` the time of day.
    - ``month``: ``size`` is a number of calendar months and ``start`` a month, counted from January 1970. ``offset`` is
      the place within the month: microseconds since its first moment or, if negative, before its last.
    """

    kind: Literal["number", "time", "business", "month"]
    size: float
    start: float = 0
    offset: int = 0
    zone: str = ""  # if the time stamps have a time zone; the times of the grid are then in UTC

    def at(self, steps: Array) -> Array:
        """The times of the given steps, as float64 or datetime64[us]."""
        if self.kind == "number":
            return np.asarray(self.start + steps * self.size, dtype=np.float64)
        whole = np.asarray(steps, dtype=np.int64)
        if self.kind == "time":
            return (int(self.start) + whole * int(self.size)).view("datetime64[us]")
        if self.kind == "business":
            first = np.busday_offset(np.datetime64(int(self.start), "D"), whole)
        else:
            first = (int(self.start) + whole * int(self.size) + (self.offset < 0)).astype("datetime64[M]")
        return first.astype("datetime64[us]") + np.timedelta64(self.offset, "us")

    def steps(self, times: Array) -> Array:
        """The inverse of `at`, as float64: times between two steps have fractions."""
        if self.kind == "business":
            days = times.astype("datetime64[D]")
            return np.busday_count(np.datetime64(int(self.start), "D"), days).astype(np.float64)
        return (_position(times, self.kind) - self.start) / self.size

    def starting(self, time: Array) -> Grid:
        """The same grid from another time on."""
        start = _position(time.reshape(1), self.kind)[0]
        return replace(self, start=float(start) if self.kind == "number" else int(start))

    def later(self, steps: int) -> Grid:
        """The same grid without its first steps."""
        return self if steps == 0 else self.starting(self.at(np.array([steps])))

    def local(self, times: Array) -> Array:
        """Times of the grid in its time zone, without the zone."""
        if self.zone in ("", "UTC"):
            return times
        import pandas

        return pandas.DatetimeIndex(times, tz="UTC").tz_convert(self.zone).tz_localize(None).to_numpy("datetime64[us]")

    def text(self, steps: Array) -> list[str]:
        """The times of the given steps as text for a file: ISO 8601, without the time of day if it is always 0:00."""
        times = self.at(steps)
        if self.kind == "number":
            return [f"{time:.12g}" for time in times]
        whole_days = not (times.view(np.int64) % DAY).any() and (self.kind != "time" or self.size % DAY == 0)
        if whole_days and not self.zone:
            return [str(time) for time in times.astype("datetime64[D]")]
        unit = "us" if (times.view(np.int64) % 1_000_000).any() else "s"
        local = self.local(times)
        suffixes = [_utc_offset(int(minutes)) for minutes in (local - times).astype("timedelta64[m]").view(np.int64)]
        return [
            f"{time}{suffix if self.zone else ''}"
            for time, suffix in zip(local.astype(f"datetime64[{unit}]"), suffixes, strict=True)
        ]

    def calendar(self) -> tuple[str, ...]:
        """The calendar features that can vary on this grid in a way that a forecast can use."""
        if self.kind == "number":
            return ()
        days = {"time": self.size / DAY, "business": 1.0, "month": 30.4 * self.size}[self.kind]
        periods = {"hour": 1, "weekday": 7, "month": 360}
        return tuple(name for name, period in periods.items() if days < period)

    def spacing(self) -> str:
        """The spacing in words."""
        if self.kind == "number":
            return f"{self.size:.12g}"
        if self.kind == "business":
            return "1 business day"
        if self.kind == "month":
            return _count(int(self.size) // 12, "year") if self.size % 12 == 0 else _count(int(self.size), "month")
        for name, unit in (("day", DAY), ("hour", DAY // 24), ("minute", DAY // 1440), ("second", 1_000_000)):
            if self.size % unit == 0:
                return _count(int(self.size // unit), name)
        return f"{self.size / 1e6:g} seconds"

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def _position(times: Array, kind: str) -> Array:
    """Times as whole numbers of microseconds, days or months since 1970, or as the numbers that they are."""
    if kind == "number":
        return times.astype(np.float64)
    unit = {"time": "us", "business": "D", "month": "M"}[kind]
    return times.astype(f"datetime64[{unit}]").astype(np.int64)


def _count(number: int, unit: str) -> str:
    return f"1 {unit}" if number == 1 else f"{number} {unit}s"


def _utc_offset(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


CALENDAR: dict[str, Callable[[Array], Array]] = {  # each returns the share of its cycle
    "hour": lambda times: (times.view(np.int64) % DAY) / DAY,
    "weekday": lambda times: ((times.view(np.int64) // DAY + 3) % 7) / 7,  # 1970 began on a Thursday
    "month": lambda times: (times.astype("datetime64[M]").astype(np.int64) % 12) / 12,
}


def calendar_features(grid: Grid, steps: Array, features: Sequence[str]) -> Array:
    """Sine and cosine of each feature in local time, (steps, 2 · features)."""
    if not features:
        return np.zeros((len(steps), 0))
    times = grid.local(grid.at(steps))
    angles = np.stack([2 * np.pi * CALENDAR[name](times) for name in features], axis=1)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def find_grid(times: Sequence[Array], name: str, zone: str = "") -> Grid:
    """The grid that all sequences share, but for its start. ``times`` increase in each sequence."""
    pooled = [np.diff(each) for each in times if len(each) > 1]
    if not pooled:
        raise InputError(f"{name}: expected at least two rows of one sequence, got one")
    differences = np.concatenate(pooled)
    if differences.dtype.kind != "m":
        return Grid("number", _most_common(differences.astype(np.float64)))
    micro = differences.astype("timedelta64[us]").view(np.int64)
    everything = np.concatenate([each.astype("datetime64[us]") for each in times])
    size = int(_most_common(micro.astype(np.float64)))
    if micro.min() >= 28 * DAY:
        months = everything.astype("datetime64[M]")
        since = (everything - months.astype("datetime64[us]")).view(np.int64)
        before = (everything - (months + 1).astype("datetime64[us]")).view(np.int64)
        for offset in (since, before):
            if (offset == offset[0]).all():
                steps = np.concatenate([np.diff(_position(each, "month")) for each in times])
                return Grid("month", int(_most_common(steps.astype(np.float64))), offset=int(offset[0]), zone=zone)
    if size == DAY and (micro == 3 * DAY).any() and np.is_busday(everything.astype("datetime64[D]")).all():
        time_of_day = everything.view(np.int64) % DAY
        if (time_of_day == time_of_day[0]).all():
            return Grid("business", 1, offset=int(time_of_day[0]), zone=zone)
    return Grid("time", size, zone=zone)


def _most_common(differences: Array) -> float:
    """The most common difference; the smallest of several. Differences that agree to 4 digits count as the same."""
    differences = differences[:: len(differences) // MOST_DIFFERENCES + 1]
    rounded = np.round(differences / np.median(differences), 4)
    values, counts = np.unique(rounded, return_counts=True)
    return float(np.median(differences[rounded == values[counts.argmax()]]))


def place(times: Array, grid: Grid, rows: Array, name: str) -> tuple[Grid, Array]:
    """The grid with the start of this sequence, and the step of each time. ``rows`` are row numbers for messages."""
    own = grid.starting(times[:1])
    exact = own.steps(times)
    steps = np.rint(exact).astype(np.int64)
    off = np.abs(exact - steps) > TOLERANCE
    if grid.kind in ("month", "business"):
        off |= own.at(steps) != times.astype("datetime64[us]")
    off[1:] |= np.diff(steps) == 0
    if off.any():
        first = int(off.argmax())
        raise InputError(
            f"{name}: expected times on a regular grid; the most common spacing is {grid.spacing()}, and row "
            f"{rows[first]} ({times[first]}) lies between two steps; resample the table first"
        )
    if steps[-1] + 1 > MOST_STEPS_PER_ROW * len(times) + 100:
        widest = int(np.diff(steps).argmax())
        raise InputError(
            f"{name}: expected times with few gaps, got {len(times)} rows on a grid of {steps[-1] + 1} steps of "
            f"{grid.spacing()}; the widest gap is before row {rows[widest + 1]} ({times[widest + 1]})"
        )
    return own, steps
