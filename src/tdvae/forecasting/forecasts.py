"""Forecasts in the user's units, as arrays, rows of a table or a file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tdvae.checks import checked
from tdvae.errors import InputError
from tdvae.forecasting.reading import ARRAY_FILES
from tdvae.forecasting.series import Array, Series
from tdvae.storage.files import check_path, write_file

TABLES = {".csv": ",", ".tsv": "\t", ".parquet": "", ".pq": ""}  # file endings, with the separator of text


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Forecasts for N sequences and S numbers of steps ahead, in the user's units. Arrays are float64.

    For classes, ``mean`` holds the probability of each class, and there are no quantiles. `Forecaster.forecast` makes
    them.

    >>> import numpy as np, tdvae
    >>> data = tdvae.prepare(np.sin(0.3 * np.arange(100)), longest_jump=3)
    >>> forecaster = tdvae.fit_forecaster(data, "runs/sine", steps=1, progress="none")
    >>> forecasts = forecaster.forecast(np.zeros(20), steps=[1, 3], quantiles=[0.5])
    >>> list(next(forecasts.rows()))
    ['step', 'channel', 'mean', 'q0.5']
    """

    steps: tuple[int, ...]
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
            for s, step in enumerate(self.steps):
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

    @checked
    def write(self, path: str | Path) -> None:
        """Write a .csv, .tsv, .parquet or .npz file, completely or not at all."""
        path = check_output(path)
        ending = path.suffix.lower()
        buffer = io.BytesIO()
        if ending in ARRAY_FILES:
            steps, levels = np.array(self.steps), np.array(self.quantile_levels)
            np.savez(buffer, steps=steps, levels=levels, mean=self.mean, quantiles=self.quantiles, samples=self.samples)
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


def check_output(path: str | Path) -> Path:
    """Return the path if a forecast can be written there; an existing file is not overwritten."""
    path = Path(path)
    check_path("out", path)
    endings = (*TABLES, ".npz")
    if path.suffix.lower() not in endings:
        raise InputError(f"out: expected a file that ends with one of {', '.join(endings)}; got {path}")
    if path.exists():
        raise InputError(f"out: expected a new file, got {path}, which exists already")
    if not path.parent.is_dir():
        raise InputError(f"out: expected an existing folder, got {path.parent}")
    return path
