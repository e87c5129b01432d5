"""A fitted run that forecasts new data: the combination of its forecasters, or the TD-VAE of pictures and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tdvae.checks import LONGEST_JUMP, Positive, Range, Seed, check_fields, checked
from tdvae.codec import FrameCodec
from tdvae.distributions import DiagonalNormal
from tdvae.errors import CheckpointError, InputError
from tdvae.forecasting.forecasts import Forecasts
from tdvae.forecasting.predictors import Linear, Network, Origins, Predictor, Stack, compose, fill, quantile, seeded
from tdvae.forecasting.preparation import Encoding, HeldOut, new_sequences, split
from tdvae.forecasting.reading import Source
from tdvae.forecasting.series import Array, Columns, Grid, Series
from tdvae.likelihood import Forecast, forecast
from tdvae.models import Model
from tdvae.rollouts import belief_at, rollout
from tdvae.saved import SavedModel, load, load_saved
from tdvae.storage import RunFolder
from tdvae.types import Sequences

DATA_FILE, LINEAR_FILE, NETWORKS = "data.safetensors", "linear.safetensors", "networks"  # in a run folder
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DENSITY_SAMPLES, PICTURE_SAMPLES = 200, 32  # states behind the quantiles
DRAWS = 4  # for each of them, if the quantiles of a density have no closed form
BATCH, PICTURE_BATCH = 256, 8  # sequences at once


@dataclass(frozen=True, eq=False)
class RunData:
    """What a run keeps of its data: how to read and encode more of them, and the parts for its evaluation."""

    encoding: Encoding
    columns: Columns
    longest_jump: Annotated[int, Range(1, LONGEST_JUMP)]
    window: Positive | None
    seasons: tuple[Positive, ...]
    history: Sequences  # the training part
    test: HeldOut
    times: tuple[Grid, ...] = ()  # of the test sequences, if the data have time stamps

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, found: SavedModel, codec: FrameCodec | None = None) -> RunData:
        """The data of a run; ``codec`` is the user's own, if the run was trained on its codes."""
        info = found.info
        if not isinstance(info.get("encoding"), dict):
            raise InputError(f"run: expected a run of `tdvae fit` of this version, got {found.source}")
        content, codec = RunFolder(found.source).read_file(DATA_FILE), codec or found.codec
        if codec is None and info["encoding"].get("codec") is not None:
            raise InputError(f"codec: expected the one that the run was trained with, got None for {found.source}")
        try:
            parts = _grouped(safetensors.torch.load(content), ".")
            data = cls(
                Encoding.from_description(info["encoding"], codec),
                Columns.from_description(info["columns"]),
                info["longest_jump"],
                info["window"],
                tuple(info["seasons"]),
                Sequences(**parts["history"]),
                HeldOut(Sequences(**parts["test"]), info["context"]),
                tuple(Grid(**grid) for grid in info["times"]),
            )
            data.check_suits(found.model)
            return data
        except (KeyError, TypeError, ValueError, AttributeError, safetensors.SafetensorError) as error:
            raise CheckpointError(
                f"run: expected the info and the {DATA_FILE} of a run of `tdvae fit` in {found.source} ({error!r})"
            ) from error

    def check_suits(self, model: Model) -> None:
        """Raise a ValueError if encoding, stored data and model do not belong together, as in an edited file."""
        pictures, codec = replace(self.encoding, codec=None), self.encoding.codec
        given = tuple(model.config.event_shape)
        shown = given if codec is None else tuple(codec.picture)  # the test part stays pictures
        for part, encoding, shape in (
            (self.history, self.encoding, given),
            (self.test.sequences, pictures, shown),
        ):
            encoding.check_encoded(part)
            actions = 0 if part.actions is None else part.actions.shape[-1]
            if (tuple(part.x.shape[2:]), actions) != (shape, model.config.actions):
                raise ValueError("stored data that do not fit the model")

    def read(self, source: Source) -> tuple[Series, Sequences]:
        """Read new data as the training data were read."""
        return new_sequences(self.encoding, self.columns, source)

    def held_out(self, source: Source) -> HeldOut:
        """New data for an evaluation: cut like the training data, and pictures even if the model is given codes."""
        series, sequences = new_sequences(replace(self.encoding, codec=None), self.columns, source)
        spans = [split.Span(number, 0, length) for number, length in enumerate(series.lengths)]
        if self.window is None or max(series.lengths) <= self.window:
            return HeldOut(sequences)
        windows, context = split.held_out_windows(spans, self.window, self.longest_jump, history=False)
        return HeldOut(split.Windows.of(sequences, windows).all(), context)


def _grouped(tensors: Mapping[str, Tensor], separator: str) -> dict[str, dict[str, Tensor]]:
    """Tensors by the first part of their name."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, of = name.partition(separator)
        parts.setdefault(part, {})[of] = tensor
    return parts


def describe_stack(stack: Stack) -> dict[str, Any]:
    """The weights and the calibration of a stack, as JSON-compatible values."""
    networks = {name: each for name, each in stack.members.items() if isinstance(each, Network)}
    return {
        "weights": {name: {str(h): w for h, w in by.items()} for name, by in stack.weights.items()},
        "composed": {name: sorted(each.composed) for name, each in networks.items()},
        "scales": {name: {str(h): s for h, s in each.scales.items()} for name, each in networks.items()},
    }


def load_stack(found: SavedModel, longest_jump: int) -> Stack:
    """The stack of a run whose data are vectors of numbers."""
    folder = RunFolder(found.source)
    try:
        details = found.info["forecaster"]
        linear = _grouped(safetensors.torch.load(folder.read_file(LINEAR_FILE)), "/")
        members: dict[str, Predictor] = {}
        for name in details["weights"]:
            if name in linear:
                members[name] = Linear.from_tensors(linear[name])
            else:
                model = found.model if name == details["main"] else load(folder.inside(NETWORKS, name))
                scales = {int(h): float(s) for h, s in details["scales"][name].items()}
                members[name] = Network(model, longest_jump, frozenset(details["composed"][name]), scales)
        weights = {n: {int(h): float(w) for h, w in by.items()} for n, by in details["weights"].items()}
        return Stack(members, weights)
    except (KeyError, TypeError, ValueError, AttributeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"run: expected the forecasters of `tdvae fit` in {found.source} ({error!r})") from error


@dataclass(frozen=True, eq=False)
class Forecaster:
    """A fitted run that forecasts new data, with the columns, the encoding and the scaling of its training data.

    >>> import numpy as np, tdvae
    >>> series = 20 + 5 * np.sin(0.3 * np.arange(300))
    >>> data = tdvae.prepare(series, longest_jump=5)
    >>> forecaster = tdvae.fit_forecaster(data, "runs/sine", steps=2, progress="none")
    >>> forecasts = forecaster.forecast(series, horizon=[1, 5, 20])
    >>> forecasts.quantile(0.5).shape
    (1, 3, 1)
    """

    model: Model  # the TD-VAE with the largest weight
    data: RunData
    stack: Stack | None = None  # of vectors of numbers
    info: Mapping[str, Any] | None = None  # of the fit: steps, seconds, weights

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    @checked
    def load(cls, run: str | Path, codec: FrameCodec | None = None) -> Forecaster:
        """Load a run of `tdvae fit` or `tdvae.fit_forecaster`; if it was trained on the codes of your own ``codec``,
        with that."""
        return cls.of(load_saved(run), codec)

    @classmethod
    def of(cls, found: SavedModel, codec: FrameCodec | None = None) -> Forecaster:
        data = RunData.of(found, codec)
        stack = load_stack(found, data.longest_jump) if data.encoding.kind == "vector" else None
        return cls(found.model, data, stack, found.info.get("forecaster"))

    @property
    def encoding(self) -> Encoding:
        return self.data.encoding

    @property
    def kept(self) -> dict[str, tuple[float, float]]:
        """The forecasters that are used, each with its least and its largest weight over the scored horizons."""
        return {"tdvae": (1.0, 1.0)} if self.stack is None else self.stack.kept

    @checked
    def weights(self, h: Annotated[int, Range(1, LONGEST_JUMP)]) -> dict[str, float]:
        """The weights of the forecasters in the combination at a horizon."""
        return {"tdvae": 1.0} if self.stack is None else self.stack.weights_at(h)

    @checked
    def forecast(
        self,
        source: Source,
        horizon: Sequence[Annotated[int, Range(1, LONGEST_JUMP)]],
        quantiles: Sequence[Annotated[float, Range(above=0, below=1)]] = QUANTILES,
        samples: Annotated[int, Range(0, 1_000_000)] = 0,
        seed: Seed = 0,
    ) -> Forecasts:
        """Forecast what follows the last observation of each sequence.

        Args:
            source: data like those of the training, in the same units: a file, a DataFrame or arrays. Observations may
                be missing. Covariates must reach as far as the forecasts: rows without values after the last one.
            horizon: how many steps ahead. More than the longest trained jump are composed of several jumps.
            quantiles: levels between 0 and 1.
            samples: number of sampled futures.
            seed: seed of the Monte Carlo samples.
        """
        if not horizon:
            raise InputError("horizon: expected at least one number, got none")
        horizon, levels = tuple(horizon), () if self.encoding.kind == "classes" else tuple(quantiles)
        series, sequences = self.data.read(source)
        order = torch.argsort(sequences.lengths, stable=True)
        parts = []
        with seeded(seed), torch.no_grad():
            for rows in self._batches(sequences, order):
                future, at = self._extended(series, sequences, rows, max(horizon))
                one = self._from_model if self.stack is None else self._from_stack
                parts.append(one(future, at, horizon, levels, samples))
        back = torch.argsort(order).numpy()

        def joined(index: int, axis: int) -> Array:
            return np.take(np.concatenate([part[index] for part in parts], axis=axis), back, axis=axis)

        return Forecasts(horizon, joined(0, 0), levels, joined(1, 1), joined(2, 1), self.encoding.channels, series)

    def _batches(self, sequences: Sequences, order: Tensor) -> Iterator[Tensor]:
        """Rows in the given order, so many at a time as memory allows; a model without a stack needs one length."""
        size = PICTURE_BATCH if self.encoding.kind == "picture" else BATCH
        if self.stack is not None:
            yield from order.split(size)
            return
        for length in sequences.lengths.unique():
            yield from order[sequences.lengths[order] == length].split(size)

    def _extended(self, series: Series, sequences: Sequences, rows: Tensor, ahead: int) -> tuple[Sequences, Origins]:
        """The last observations of some sequences, followed by ``ahead`` empty steps with their covariates.

        A model of windows is given as many observations as a window has.
        """
        lengths = sequences.lengths[rows]
        seen = lengths if self.data.window is None else lengths.clamp(max=self.data.window)
        start, steps = lengths - seen, torch.arange(int(seen.max()) + ahead)
        known, place = steps < seen[:, None], (start[:, None] + steps).clamp(max=sequences.horizon - 1)

        def cut(tensor: Tensor) -> Tensor:
            taken = tensor[rows[:, None], place]
            return torch.where(known.view(*known.shape, *[1] * (taken.ndim - 2)), taken, torch.zeros_like(taken))

        fields = {name: cut(t) for name, t in sequences.named().items() if name not in ("lengths", "actions")}
        if self.encoding.actions:
            fields["actions"] = torch.zeros(len(rows), len(steps), self.encoding.actions)
            for number, (n, first, last) in enumerate(
                zip(rows.tolist(), start.tolist(), lengths.tolist(), strict=True)
            ):
                given = torch.from_numpy(self.encoding.inputs(series, n, first, last + ahead))
                fields["actions"][number, : len(given)] = given
        row = torch.arange(len(rows))
        return Sequences(lengths=seen + ahead, **fields), Origins(row, seen, row)

    def _from_stack(
        self, sequences: Sequences, at: Origins, horizon: tuple[int, ...], levels: tuple[float, ...], samples: int
    ) -> tuple[Array, Array, Array]:
        """Mean, quantiles and samples."""
        assert self.stack is not None
        densities = self.stack.densities(sequences, at, sorted(set(horizon)), DENSITY_SAMPLES)
        means = np.stack([self._decode(densities[step].mean) for step in horizon], axis=1)
        bounds = [[self._decode(quantile(densities[step], level)) for step in horizon] for level in levels]
        quantiles = np.stack([np.stack(each, axis=1) for each in bounds]) if levels else np.zeros((0, *means.shape))
        if not samples:
            return means, quantiles, np.zeros((0, *means.shape))
        return means, quantiles, self._decode(self.stack.paths(sequences, at, horizon, samples))

    def _from_model(
        self, sequences: Sequences, at: Origins, horizon: tuple[int, ...], levels: tuple[float, ...], samples: int
    ) -> tuple[Array, Array, Array]:
        """The same by the TD-VAE alone, for sequences of one length."""
        length, actions = int(at.t[0]), sequences.actions
        belief = belief_at(self.model, fill(self.model, sequences.until(length)), length)
        future = None if actions is None else actions[:, length:]
        states = PICTURE_SAMPLES if self.encoding.kind == "picture" else DENSITY_SAMPLES
        means, bounds = [], []
        for step in horizon:
            known = None if future is None else future[:, :step]
            density = forecast(self.model, belief, compose(step, self.data.longest_jump), states, known)
            if self.encoding.codec is None:
                means.append(self._decode(density.mean))
                bounds.append([self._decode(_quantile(density, level)) for level in levels])
            else:  # a mean of codes is no mean of pictures
                pictures = self._decode(density.components.mean)
                means.append(pictures.mean(0))
                bounds.append([np.quantile(pictures, level, axis=0) for level in levels])
        shape = (len(at), len(horizon), *self.encoding.event_shape)
        quantiles = np.moveaxis(np.array(bounds), 0, 2) if levels else np.zeros((0, *shape))
        if not samples:
            return np.stack(means, axis=1), quantiles, np.zeros((0, *shape))
        wanted = sorted(set(horizon))
        pieces = [compose(b - a, self.data.longest_jump) for a, b in zip([0, *wanted], wanted, strict=False)]
        ends = np.cumsum([len(piece) for piece in pieces]) - 1
        state = self.model.sample_state(belief, samples)
        states_then = rollout(self.model, state, [jump for piece in pieces for jump in piece], future)
        states_then = states_then[torch.from_numpy(ends[[wanted.index(step) for step in horizon]])]
        then = self.model.decode(states_then)
        drawn = then.sample() if self.encoding.codec is None else then.mean
        return np.stack(means, axis=1), quantiles, np.moveaxis(self._decode(drawn), 0, 2)

    def _decode(self, values: Tensor) -> Array:
        if self.encoding.kind == "classes":
            return values.double().numpy()
        if self.encoding.kind == "vector":
            values = values.unflatten(-1, self.encoding.event_shape)
        return self.encoding.decode(values)


def _quantile(density: Forecast, level: float) -> Tensor:
    """(N, *event). For pictures and bits, from draws of each component."""
    if isinstance(density.components, DiagonalNormal):
        return density.quantile(level)
    draws = torch.cat([density.components.sample() for _ in range(DRAWS)]).to(density.mean.dtype)
    return draws.sort(0).values[int(level * len(draws))]
