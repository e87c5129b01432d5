"""Forecasts in the user's units, as arrays, rows of a table or a file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tdvae.checks import checked
from tdvae.errors import InputError
from tdvae.forecasting.reading import ARRAY_FILES
from tdvae.forecasting.series import Array, Series
from tdvae.storage.files import check_path, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOTS = (".png", ".pdf", ".svg")
MOST_PANELS = 6
PAST = 40  # steps drawn before forecasts, or three times as many as are forecast
TABLES = {".csv": ",", ".tsv": "\t", ".parquet": "", ".pq": ""}  # file endings, with the separator of text


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Forecasts for N sequences, at the S steps ahead of ``horizon``, in the user's units. Arrays are float64.

    For classes, ``mean`` holds the probability of each class, and there are no quantiles. `Forecaster.forecast` makes
    them.

    >>> import numpy as np, tdvae
    >>> data = tdvae.prepare(np.sin(0.3 * np.arange(100)), longest_jump=3)
    >>> forecaster = tdvae.fit_forecaster(data, "runs/sine", steps=1, progress="none")
    >>> forecasts = forecaster.forecast(np.zeros(20), horizon=[1, 3], quantiles=[0.5])
    >>> list(next(forecasts.rows()))
    ['step', 'channel', 'mean', 'q0.5']
    """

    horizon: tuple[int, ...]
    mean: Array  # (N, S, *event)
    quantile_levels: tuple[float, ...]
    quantiles: Array  # (levels, N, S, *event)
    samples: Array  # (count, N, S, *event): each sample is one future, so its steps belong together
    channels: tuple[str, ...]
    series: Series

    @checked
    def quantile(self, level: float) -> Array:
        """One of the quantiles, (N, S, *event)."""
        if level not in self.quantile_levels:
            raise InputError(f"level: expected one of {self.quantile_levels}, got {level}")
        return self.quantiles[self.quantile_levels.index(level)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per sequence, step and channel: the sequence's id, the time, the step, the channel, the numbers."""
        if self._pictures:
            raise InputError(f"rows: expected observations with channels, got pictures of shape {self.mean.shape[2:]}")
        count = len(self.channels)
        mean = self.mean.reshape(*self.mean.shape[:2], count, -1)
        quantiles, samples = (each.reshape(*each.shape[:3], count) for each in (self.quantiles, self.samples))
        for n in range(len(self.series)):
            last = self.series.lengths[n] - 1
            for s, step in enumerate(self.horizon):
                for c, channel in enumerate(self.channels):
                    yield {
                        **self._labels(n, last + step),
                        "step": step,
                        "channel": channel,
                        **_means(mean[n, s, c]),
                        **{f"q{q:g}": float(quantiles[i, n, s, c]) for i, q in enumerate(self.quantile_levels)},
                        **{f"sample_{i + 1}": float(samples[i, n, s, c]) for i in range(len(samples))},
                    }

    @property
    def _pictures(self) -> bool:
        return math.prod(self.samples.shape[3:]) > len(self.channels)  # pixels have no names

    def _labels(self, number: int, step: int) -> dict[str, Any]:
        labels: dict[str, Any] = {}
        if self.series.ids is not None:
            labels[str(self.series.columns.id)] = self.series.ids[number]
        elif len(self.series) > 1:
            labels["sequence"] = number
        if self.series.grids is not None:
            labels[str(self.series.columns.time)] = self.series.grids[number].text(np.array([step]))[0]
        return labels

    def frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def draw(self, kind: str = "png") -> bytes:
        """Draw what came before and the forecasts with their intervals; the content of a file: png, pdf or svg.

        Of many sequences and channels, the first `MOST_PANELS` are drawn.
        """
        from matplotlib.figure import Figure

        if self._pictures or not self.quantile_levels:
            raise InputError("draw: expected forecasts of measurements with quantiles, got none")
        panels = [(n, c) for n in range(len(self.series)) for c in range(len(self.channels))][:MOST_PANELS]
        figure = Figure(figsize=(9, 1 + 2 * len(panels)), layout="constrained")
        for axis, (n, c) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
            self._draw_one(axis, n, c)
        content = io.BytesIO()
        figure.savefig(content, format=kind, dpi=130)
        return content.getvalue()

    def _draw_one(self, axis: Axes, n: int, c: int) -> None:
        """One channel of one sequence: its last values, the median and central intervals of the forecasts."""
        length, ahead = self.series.lengths[n], max(self.horizon)
        first = max(0, length - max(PAST, 3 * ahead))
        past, order = np.arange(first, length), np.argsort(self.horizon)
        future = np.array(self.horizon)[order] + length - 1
        times = self._times(n)
        axis.plot(times(past), self.series.x[n].reshape(length, -1)[past, c], "k.-", ms=3, lw=0.7, label="observed")
        bounds = self.quantiles.reshape(*self.quantiles.shape[:3], -1)[:, n, order, c]
        levels = sorted(self.quantile_levels)
        for low, high in ((low, 1 - low) for low in levels if low < 0.5):
            if found := [i for i, level in enumerate(self.quantile_levels) if abs(level - high) < 1e-9]:
                lower = bounds[self.quantile_levels.index(low)]
                label = f"{100 * (high - low):.0f} %"
                axis.fill_between(times(future), lower, bounds[found[0]], color="C0", alpha=0.3, lw=0, label=label)
        middle = (
            bounds[self.quantile_levels.index(0.5)]
            if 0.5 in levels
            else self.mean.reshape(*self.mean.shape[:2], -1)[n, order, c]
        )
        axis.plot(times(future), middle, "C0.-", ms=4, label="median" if 0.5 in levels else "mean")
        name = self.series.name(n) + ": " if len(self.series) > 1 else ""
        axis.set_ylabel(f"{name}{self.channels[c]}")
        axis.legend(fontsize=8, ncols=4)

    def _times(self, number: int) -> Callable[[Array], Array]:
        """What stands for a step on the axis: its time, or steps after the last observation."""
        if self.series.grids is not None:
            return self.series.grids[number].at
        return lambda steps: steps - (self.series.lengths[number] - 1)

    @checked
    def write(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a .csv, .tsv, .parquet or .npz file, completely or not at all."""
        path = check_output(path, overwrite)
        ending = path.suffix.lower()
        buffer = io.BytesIO()
        if ending in ARRAY_FILES:
            ahead, levels = np.array(self.horizon), np.array(self.quantile_levels)
            np.savez(
                buffer, horizon=ahead, levels=levels, mean=self.mean, quantiles=self.quantiles, samples=self.samples
            )
        elif self._pictures or (self.mean.ndim > 3 and self.mean[0, 0].size > 1_000):
            raise InputError(f"out: expected a .npz file for observations of shape {self.mean.shape[2:]}, got {path}")
        elif ending in (".parquet", ".pq"):
            self.frame().to_parquet(buffer)
        else:
            rows = list(self.rows())
            text = io.StringIO(newline="")
            separator = TABLES[ending]
            writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n", delimiter=separator)
            writer.writeheader()
            writer.writerows(rows)
            buffer.write(text.getvalue().encode())
        try:
            write_file(path, buffer.getvalue())
        except OSError as error:
            raise InputError(f"out: expected a writable file, got {path} ({error.strerror})") from error


def _means(values: Array) -> dict[str, float]:
    if len(values) == 1:
        return {"mean": float(values[0])}
    return {f"p{number}": float(value) for number, value in enumerate(values)}  # probabilities of classes


def check_output(path: str | Path, overwrite: bool = False) -> Path:
    """Return the path if a forecast can be written there; an existing file is overwritten only if asked for."""
    return _new_file("out", Path(path), (*TABLES, ".npz"), overwrite)


def check_plot(path: Path, overwrite: bool = False) -> Path:
    """Return the path if a picture can be written there."""
    return _new_file("plot", path, PLOTS, overwrite)


def _new_file(name: str, path: Path, endings: Sequence[str], overwrite: bool) -> Path:
    check_path(name, path)
    if path.suffix.lower() not in endings:
        raise InputError(f"{name}: expected a file that ends with one of {', '.join(endings)}; got {path}")
    if path.exists() and not overwrite:
        raise InputError(f"{name}: expected a new file, got {path}, which exists already; add overwrite to replace it")
    if not path.parent.is_dir():
        raise InputError(f"{name}: expected an existing folder, got {path.parent}")
    return path
