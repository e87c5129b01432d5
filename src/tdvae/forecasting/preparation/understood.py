"""A note of what was understood of a user's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tdvae.forecasting.preparation.encode import Encoding
from tdvae.forecasting.series import Series

MOST_LISTED = 8  # names


@dataclass(frozen=True)
class Understood:
    """What was understood of a user's data, to be checked by the user."""

    targets: tuple[str, ...]
    covariates: tuple[str, ...]  # also those of the calendar
    spacing: str | None  # of the time stamps, in words; None without time stamps
    zone: str  # of the time stamps, or ""
    series: int
    lengths: tuple[int, int]  # steps of the shortest and of the longest series
    numbers: int
    missing: int  # of the numbers
    seasons: tuple[int, ...]  # in steps
    ignored: tuple[str, ...]  # columns that count rows

    @classmethod
    def of(cls, series: Series, encoding: Encoding, seasons: tuple[int, ...]) -> Understood:
        grid = None if series.grids is None else series.grids[0]
        return cls(
            targets=encoding.channels,
            covariates=(*(each.name for each in encoding.covariates), *encoding.calendar),
            spacing=None if grid is None else grid.spacing(),
            zone="" if grid is None else grid.zone,
            series=len(series),
            lengths=(min(series.lengths), max(series.lengths)),
            numbers=sum(each.size for each in series.x),
            missing=sum(int(np.isnan(each).sum()) for each in series.x if each.dtype.kind == "f"),
            seasons=seasons,
            ignored=series.ignored,
        )

    def describe(self) -> str:
        """A few lines."""
        shortest, longest = self.lengths
        steps = f"{longest:,} steps" if shortest == longest else f"{shortest:,} to {longest:,} steps"
        each = "" if self.spacing is None else f", one every {self.spacing.removeprefix('1 ')}"
        zone = f" (time zone {self.zone})" if self.zone else ""
        lines = [
            f"targets: {_listed(self.targets)}",
            *([f"covariates: {_listed(self.covariates)}"] if self.covariates else []),
            f"series: {self.series:,} of {steps}{each}{zone}",
            f"missing: {self.missing:,} of {self.numbers:,} numbers",
            f"seasons: {', '.join(map(str, self.seasons)) + ' steps' if self.seasons else 'none found'}",
            *([f"ignored: {_listed(self.ignored)}, which counts rows"] if self.ignored else []),
        ]
        return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
