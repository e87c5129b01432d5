"""Time stamps on a regular grid. The spacing is the most common difference; a time step without a row is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tdvae.errors import InputError

Array = npt.NDArray[Any]

DAY = 86_400_000_000  # microseconds, the unit of all time stamps here
TOLERANCE = 0.01  # how far a time may be from its step, as a share of the spacing: clocks jitter
MOST_STEPS_PER_ROW = 20  # a longer grid is hardly meant: one wrong time stamp would fill the memory


@dataclass(frozen=True)
class Grid:
    """The times start, start + size, start + 2 · size, …

    - ``number``: ``size`` and ``start`` are numbers of the user's own.
    - ``time``: both are microseconds; ``start`` is counted from 1970.
    - ``month``: ``size`` is a number of calendar months and ``start`` a month, counted from January 1970. ``offset`` is
      the place within the month: microseconds since its first moment or, if negative, before its last.
    """

    kind: Literal["number", "time", "month"]
    size: float
    start: float = 0
    offset: int = 0
    utc: bool = False  # the time stamps had a time zone; they were converted to UTC

    def at(self, steps: Array) -> Array:
        """The times of the given steps, as float64 or datetime64[us]."""
        if self.kind == "number":
            return np.asarray(self.start + steps * self.size, dtype=np.float64)
        if self.kind == "time":
            return (int(self.start) + np.asarray(steps, dtype=np.int64) * int(self.size)).view("datetime64[us]")
        months = int(self.start) + np.asarray(steps, dtype=np.int64) * int(self.size) + (self.offset < 0)
        return months.astype("datetime64[M]").astype("datetime64[us]") + np.timedelta64(self.offset, "us")

    def later(self, steps: int) -> Grid:
        """The same grid without its first steps."""
        return replace(self, start=self.start + steps * self.size)

    def text(self, steps: Array) -> list[str]:
        """The times of the given steps as text for a file: ISO 8601, without the time of day if it is always 0:00."""
        times = self.at(steps)
        if self.kind == "number":
            return [f"{time:.12g}" for time in times]
        whole_days = not (times.view(np.int64) % DAY).any() and (self.kind == "month" or self.size % DAY == 0)
        suffix = "+00:00" if self.utc else ""
        if whole_days and not self.utc:
            return [str(time) for time in times.astype("datetime64[D]")]
        seconds = not (times.view(np.int64) % 1_000_000).any()
        return [f"{time}{suffix}" for time in times.astype("datetime64[s]" if seconds else "datetime64[us]")]

    def calendar(self) -> tuple[str, ...]:
        """The calendar features that can vary on this grid in a way that a forecast can use."""
        if self.kind == "number":
            return ()
        days = self.size / DAY if self.kind == "time" else 30.4 * self.size
        periods = {"hour": 1, "weekday": 7, "month": 360}
        return tuple(name for name, period in periods.items() if days < period)

    def spacing(self) -> str:
        """The spacing in words."""
        if self.kind == "number":
            return f"{self.size:.12g}"
        if self.kind == "month":
            return _count(int(self.size) // 12, "year") if self.size % 12 == 0 else _count(int(self.size), "month")
        for name, unit in (("day", DAY), ("hour", DAY // 24), ("minute", DAY // 1440), ("second", 1_000_000)):
            if self.size % unit == 0:
                return _count(int(self.size // unit), name)
        return f"{self.size / 1e6:g} seconds"

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def _count(number: int, unit: str) -> str:
    return f"1 {unit}" if number == 1 else f"{number} {unit}s"


CALENDAR: dict[str, Callable[[Array], Array]] = {  # each returns the share of its cycle
    "hour": lambda times: (times.view(np.int64) % DAY) / DAY,
    "weekday": lambda times: ((times.view(np.int64) // DAY + 3) % 7) / 7,  # 1970 began on a Thursday
    "month": lambda times: (times.astype("datetime64[M]").astype(np.int64) % 12) / 12,
}


def calendar_features(grid: Grid, steps: Array, features: Sequence[str]) -> Array:
    """Sine and cosine of each feature, (steps, 2 · features)."""
    if not features:
        return np.zeros((len(steps), 0))
    angles = np.stack([2 * np.pi * CALENDAR[name](grid.at(steps)) for name in features], axis=1)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def find_grid(times: Sequence[Array], name: str, utc: bool = False) -> Grid:
    """The grid that all sequences share, but for its start. ``times`` increase in each sequence."""
    pooled = [np.diff(each) for each in times if len(each) > 1]
    if not pooled:
        raise InputError(f"{name}: expected at least two rows of one sequence, got one")
    differences = np.concatenate(pooled)
    if differences.dtype.kind != "m":
        return Grid("number", _most_common(differences.astype(np.float64)))
    everything = np.concatenate([each.astype("datetime64[us]") for each in times])
    micro = differences.astype("timedelta64[us]").view(np.int64)
    if micro.min() >= 28 * DAY:
        months = everything.astype("datetime64[M]")
        since = (everything - months.astype("datetime64[us]")).view(np.int64)
        before = (everything - (months + 1).astype("datetime64[us]")).view(np.int64)
        for offset in (since, before):
            if (offset == offset[0]).all():
                steps = np.concatenate([np.diff(each.astype("datetime64[M]").astype(np.int64)) for each in times])
                return Grid("month", int(_most_common(steps.astype(np.float64))), offset=int(offset[0]), utc=utc)
    return Grid("time", int(_most_common(micro.astype(np.float64))), utc=utc)


def _most_common(differences: Array) -> float:
    """The most common difference; the smallest of several. Differences that agree to 4 digits count as the same."""
    rounded = np.round(differences / np.median(differences), 4)
    values, counts = np.unique(rounded, return_counts=True)
    return float(np.median(differences[rounded == values[counts.argmax()]]))


def place(times: Array, grid: Grid, rows: Array, name: str) -> tuple[Grid, Array]:
    """The grid with the start of this sequence, and the step of each time. ``rows`` are row numbers for messages."""
    if grid.kind == "number":
        own = replace(grid, start=float(times[0]))
        exact = (times.astype(np.float64) - own.start) / own.size
    elif grid.kind == "time":
        micro = times.astype("datetime64[us]").view(np.int64)
        own = replace(grid, start=int(micro[0]))
        exact = (micro - micro[0]) / own.size
    else:
        months = times.astype("datetime64[M]").astype(np.int64)
        own = replace(grid, start=int(months[0]))
        exact = (months - months[0]) / own.size
    steps = np.rint(exact).astype(np.int64)
    off = np.abs(exact - steps) > TOLERANCE
    if grid.kind == "month":
        off |= own.at(steps) != times.astype("datetime64[us]")
    twice = np.concatenate([[False], np.diff(steps) == 0])
    if (off | twice).any():
        first = int((off | twice).argmax())
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


def offsets(grids: Sequence[Grid]) -> list[int]:
    """The step at which each sequence starts, counted from the earliest start. Rounded if their phases differ."""
    starts = np.array([grid.start for grid in grids])
    return [int(step) for step in np.rint((starts - starts.min()) / grids[0].size)]
