"""Forecasts of new data by a trained run, in the user's units: quantiles and sampled futures of all dimensions."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from tdvae.checks import LONGEST_JUMP, Range, Seed, check_fields, checked
from tdvae.distributions import DiagonalNormal
from tdvae.errors import InputError
from tdvae.forecasting.encode import Encoding
from tdvae.forecasting.gaps import fill
from tdvae.forecasting.own_data import RunData
from tdvae.forecasting.read import ARRAY_FILES, TABLE_FILES, Source
from tdvae.forecasting.series import Array, Series
from tdvae.likelihood import Forecast, forecast
from tdvae.models import TDVAE, Model
from tdvae.rollouts import belief_at, rollout
from tdvae.saved import load_saved
from tdvae.storage.files import check_path, write_file
from tdvae.training.config import derive_seed
from tdvae.types import Belief, Sequences

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DENSITY_SAMPLES, PICTURE_SAMPLES = 500, 32  # states behind the quantiles
DRAWS = 4  # for each of them, if the quantiles of a density have no closed form


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Forecasts for N sequences and S numbers of steps ahead, in the user's units. Arrays are float64.

    For classes, ``mean`` holds the probability of each class, and there are no quantiles. `Forecaster.forecast` makes
    them.

    >>> import numpy as np, tdvae
    >>> data = tdvae.prepare(np.sin(0.3 * np.arange(100)), longest_jump=3)
    >>> _ = tdvae.recipe(data, steps=1).fit(data, run_dir="runs/sine", progress="none")
    >>> forecasts = tdvae.Forecaster.load("runs/sine").forecast(np.zeros(20), steps=[1, 3], quantiles=[0.5])
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
        """Write a .csv, .parquet or .npz file, completely or not at all."""
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
            writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
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
    endings = (*TABLE_FILES, ".npz")
    if path.suffix.lower() not in endings:
        raise InputError(f"out: expected a file that ends with one of {', '.join(endings)}; got {path}")
    if path.exists():
        raise InputError(f"out: expected a new file, got {path}, which exists already")
    if not path.parent.is_dir():
        raise InputError(f"out: expected an existing folder, got {path.parent}")
    return path


@dataclass(frozen=True, eq=False)
class Forecaster:
    """A trained run that forecasts new data: the model, with the columns, the encoding and the scaling of its data.

    >>> import numpy as np, tdvae
    >>> series = 20 + 5 * np.sin(0.3 * np.arange(300))
    >>> data = tdvae.prepare(series, longest_jump=5)
    >>> recipe = tdvae.recipe(data, steps=2)
    >>> _ = recipe.fit(data, run_dir="runs/sine", progress="none")
    >>> forecasts = tdvae.Forecaster.load("runs/sine").forecast(series, steps=[1, 5, 20])
    >>> forecasts.quantile(0.5).shape
    (1, 3, 1)
    """

    model: Model
    data: RunData

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    @checked
    def load(cls, run: str | Path) -> Forecaster:
        """Load a run of `tdvae fit` or of `Recipe.fit` on prepared data."""
        found = load_saved(run)
        return cls(found.model, RunData.of(found))

    @checked
    def forecast(
        self,
        source: Source,
        steps: Sequence[Annotated[int, Range(1, LONGEST_JUMP)]],
        quantiles: Sequence[Annotated[float, Range(above=0, below=1)]] = QUANTILES,
        samples: Annotated[int, Range(0, 1_000_000)] = 0,
        seed: Seed = 0,
    ) -> Forecasts:
        """Forecast what follows the last observation of each sequence.

        Args:
            source: data like those of the training, in the same units: a file, a DataFrame or arrays. Observations may
                be missing. Known inputs must reach as far as the forecasts: rows without values after the last one.
            steps: how many steps ahead. More than the longest trained jump are composed of several jumps.
            quantiles: levels between 0 and 1.
            samples: number of sampled futures.
            seed: seed of the Monte Carlo samples.
        """
        if not steps:
            raise InputError("steps: expected at least one number, got none")
        steps, levels = tuple(steps), () if self.encoding.kind == "classes" else tuple(quantiles)
        series, sequences = self.data.read(source)
        parts = []
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(derive_seed(seed))
            for rows in _by_length(sequences):
                parts.append((rows, self._forecast_group(series, sequences, rows, steps, levels, samples)))
        order = np.argsort(np.concatenate([rows.numpy() for rows, _ in parts]))

        def joined(index: int, axis: int) -> Array:
            return np.take(np.concatenate([part[index] for _, part in parts], axis=axis), order, axis=axis)

        return Forecasts(steps, joined(0, 0), levels, joined(1, 1), joined(2, 1), self.encoding.channels, series)

    @property
    def encoding(self) -> Encoding:
        return self.data.encoding

    def _forecast_group(
        self,
        series: Series,
        sequences: Sequences,
        rows: Tensor,
        steps: tuple[int, ...],
        levels: tuple[float, ...],
        samples: int,
    ) -> tuple[Array, Array, Array]:
        """Mean, quantiles and samples of sequences with the same number of observations."""
        length = int(sequences.lengths[rows[0]])
        belief = self._belief(sequences.select(rows), length)
        actions = None
        if self.encoding.actions:
            future = [self.encoding.inputs(series, int(n), length, length + max(steps)) for n in rows]
            actions = torch.from_numpy(np.stack(future))
        states = PICTURE_SAMPLES if self.encoding.kind == "picture" else DENSITY_SAMPLES
        means, bounds = [], []
        for step in steps:
            known = None if actions is None else actions[:, :step]
            density = forecast(self.model, belief, compose(step, self.data.longest_jump), states, known)
            means.append(self._decode(density.mean))
            bounds.append([self._decode(_quantile(density, level)) for level in levels])
        quantiles = np.moveaxis(np.array(bounds), 0, 2) if levels else np.zeros((0, *self._shape(rows, steps)))
        return np.stack(means, axis=1), quantiles, self._sample(belief, steps, samples, actions)

    def _shape(self, rows: Tensor, steps: Sequence[int]) -> tuple[int, ...]:
        return len(rows), len(steps), *self.encoding.event_shape

    def _belief(self, sequences: Sequences, length: int) -> Belief:
        """The belief after the last observation. A model of windows is given as many steps as a window has."""
        seen = length if self.data.window is None else min(length, self.data.window)
        cut = {name: t[:, length - seen : length] for name, t in sequences.named().items() if name != "lengths"}
        recent = Sequences(lengths=torch.full((len(sequences),), seen), **cut)
        return belief_at(self.model, fill(self.model, recent), seen)

    def _sample(self, belief: Belief, steps: tuple[int, ...], count: int, actions: Tensor | None) -> Array:
        """Sampled futures: the jumps from each requested step to the next follow each other."""
        if count == 0:
            return np.zeros((0, *self._shape(belief.code, steps)))
        wanted = sorted(set(steps))
        pieces = [compose(b - a, self.data.longest_jump) for a, b in zip([0, *wanted], wanted, strict=False)]
        ends = np.cumsum([len(piece) for piece in pieces]) - 1
        state = self.model.sample_state(belief, count)
        states = rollout(self.model, state, [jump for piece in pieces for jump in piece], actions)
        states = states[torch.from_numpy(ends[[wanted.index(step) for step in steps]])]
        if isinstance(self.model, TDVAE) and states.x is not None:
            drawn = self.model.observation(states)  # the observations that the later ones followed
        else:
            drawn = self.model.decode(states).sample()
        return np.moveaxis(self._decode(drawn), 0, 2)  # from (steps, count, N, *event)

    def _decode(self, values: Tensor) -> Array:
        if self.encoding.kind == "classes":
            return values.double().numpy()
        return self.encoding.decode(values)


def compose(step: int, longest: int) -> list[int]:
    """As few jumps as possible that together have ``step`` steps, each about equally long and at most ``longest``.

    >>> compose(45, 20)
    [15, 15, 15]
    """
    count = math.ceil(step / longest)
    return [(step * (index + 1)) // count - (step * index) // count for index in range(count)]


def _quantile(density: Forecast, level: float) -> Tensor:
    """(N, *event). For pictures and bits, from draws of each component."""
    if isinstance(density.components, DiagonalNormal):
        return density.quantile(level)
    draws = torch.cat([density.components.sample() for _ in range(DRAWS)]).to(density.mean.dtype)
    return draws.sort(0).values[int(level * len(draws))]


def _by_length(sequences: Sequences) -> Iterator[Tensor]:
    """The rows of the sequences of each length."""
    for length in sequences.lengths.unique():
        yield (sequences.lengths == length).nonzero()[:, 0]
