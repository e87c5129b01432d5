"""A user's sequences in their own units, as they were read: before encoding, scaling and cutting."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.forecasting import grid
from tdvae.forecasting.grid import Grid

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table, or which arrays of a file, have which role."""

    values: tuple[str, ...] = ()  # what is forecast; none named: x, or all columns of numbers without another role
    known: tuple[str, ...] = ()  # inputs whose future is known
    id: str | None = None  # tables: which sequence a row belongs to
    time: str | None = None  # tables: time stamps
    group: str | None = None  # sequences of one group are not separated by the split

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_description(cls, values: dict[str, Any]) -> Columns:
        return cls(**{**values, "values": tuple(values["values"]), "known": tuple(values["known"])})


@dataclass(frozen=True, eq=False)
class Series:
    """N sequences, each an array of its own.

    Measurements are float64, with NaN where a number is missing. bool arrays are bits, integer arrays are classes, and
    pictures are uint8 or floats.
    """

    x: list[Array]  # (T_n, *event)
    columns: Columns = field(default_factory=Columns)
    known: list[Array] | None = None  # (K_n, A) float64, K_n >= T_n: those after T_n belong to the future
    whole: tuple[bool, ...] = ()  # for each known input: whether it was given as whole numbers
    rewards: list[Array] | None = None  # (T_n,)
    ids: list[str] | None = None
    groups: list[str] | None = None
    grids: list[Grid] | None = None
    source: str = "data"
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
        """The step of each sequence's start on the common time axis; None without time stamps."""
        return None if self.grids is None else grid.offsets(self.grids)

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
