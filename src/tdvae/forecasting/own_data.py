"""Runs on users' own sequences: compare their forecasts of held-out steps with two baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tdvae.distributions import Bernoulli, Categorical, DiagonalNormal, DiscretisedLogistic, Distribution
from tdvae.errors import InputError
from tdvae.forecasting import splits
from tdvae.forecasting.encoding import Encoding
from tdvae.forecasting.preparation import HeldOut, new_sequences
from tdvae.forecasting.recipe import DATA_FILE
from tdvae.forecasting.series import Array, Columns, Series
from tdvae.forecasting.sources import Source
from tdvae.likelihood import Forecast, forecast
from tdvae.models import ConvTDVAEConfig, Model
from tdvae.models.config import RecurrentConfig
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.rollouts import belief_at
from tdvae.saved import SavedModel
from tdvae.training.config import derive_seed
from tdvae.types import Sequences, missing_as_nan

HORIZONS = (1, 2, 5, 10, 20, 50, 100)
SAMPLES = 200
PICTURE_SAMPLES, MOST_PICTURES = 8, 32  # samples per forecast and test sequences of pictures, whose decoding takes long
ORIGINS = 5  # of forecasts in each test sequence, as far as they leave room for δt
LABELS = {
    "nll": "NLL of the model, nats per step of the standardised data",
    "coverage_50": "coverage of its 50 % interval",
    "coverage_90": "coverage of its 90 % interval",
    "nll_last_value": "… of the last value, with fitted spread",
    "nll_marginal": "… of the marginal",
}


@dataclass(frozen=True, eq=False)
class RunData:
    """What a run keeps of its data: how to read and encode more of them, and the parts for its evaluation."""

    encoding: Encoding
    columns: Columns
    longest_jump: int
    window: int | None
    history: Sequences  # the training part
    test: HeldOut

    @classmethod
    def of(cls, found: SavedModel) -> RunData:
        info, path = found.info, Path(found.source) / DATA_FILE
        if "encoding" not in info:
            raise InputError(f"run: expected a run of `tdvae fit` of this version, got {found.source}")
        try:
            tensors = safetensors.torch.load(path.read_bytes())
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"run: expected an undamaged {DATA_FILE} in {found.source} ({error})") from error
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            part, _, of = name.partition(".")
            parts.setdefault(part, {})[of] = tensor
        return cls(
            Encoding.from_description(info["encoding"]),
            Columns.from_description(info["columns"]),
            info["longest_jump"],
            info["window"],
            Sequences(**parts["history"]),
            HeldOut(Sequences(**parts["test"]), info["context"]),
        )

    def read(self, source: Source) -> tuple[Series, Sequences]:
        """Read new data as the training data were read."""
        return new_sequences(self.encoding, self.columns, source)

    def held_out(self, source: Source) -> HeldOut:
        """New data for an evaluation: cut like the training data."""
        series, sequences = self.read(source)
        spans = [splits.Span(number, 0, length) for number, length in enumerate(series.lengths)]
        if self.window is None or max(series.lengths) <= self.window:
            return HeldOut(sequences)
        windows, context = splits.held_out_windows(spans, self.window, self.longest_jump, history=False)
        return HeldOut(splits.Windows.of(sequences, windows).all(), context)


@torch.no_grad()
def evaluate(model: Model, data: Sequences, held_out: HeldOut, longest_jump: int, seed: int) -> Measures:
    """Forecasts of the test sequences by δt, from several origins. The baselines are fitted on the training part."""
    test = held_out.sequences
    pictures = isinstance(model.config, ConvTDVAEConfig)
    if pictures:
        test = test.select(torch.arange(min(len(test), MOST_PICTURES)) * len(test) // min(len(test), MOST_PICTURES))
    torch.manual_seed(derive_seed(seed))
    shortest = int(test.lengths.min())
    origins = [held_out.context] if held_out.context else _origins(shortest)
    beliefs = {origin: belief_at(model, test, origin) for origin in origins}
    scores: dict[str, dict[str, list[Tensor]]] = {}
    for dt in HORIZONS:
        if dt > longest_jump or dt >= int(data.lengths.max()):
            continue
        for origin in (origin for origin in origins if origin + dt <= shortest):
            actions = None if test.actions is None else test.actions[:, origin : origin + dt]
            density = forecast(model, beliefs[origin], dt, PICTURE_SAMPLES if pictures else SAMPLES, actions)
            last, (future, observed) = _last_observed(test, origin, data), test.at(origin + dt)
            some = torch.ones(len(test), dtype=torch.bool) if observed is None else observed.flatten(1).any(1)
            for name, values in _scores(density, data, model, last, future, observed, dt).items():
                scores.setdefault(name, {}).setdefault(str(dt), []).append(values[some])
    return {name: {dt: float(torch.cat(v).mean()) for dt, v in by_dt.items()} for name, by_dt in scores.items()}


def _origins(shortest: int) -> list[int]:
    """After how many observations forecasts begin: evenly spaced from the first third of the shortest sequence on."""
    first = max(1, shortest // 3)
    return sorted(set(torch.linspace(first, max(first, shortest - 1), ORIGINS).long().tolist()))


def _scores(
    density: Forecast, data: Sequences, model: Model, last: Tensor, future: Tensor, observed: Tensor | None, dt: int
) -> dict[str, Tensor]:
    """The model's and the baselines' scores of what each sequence has observed."""
    scores = {"nll": -density.log_prob(future, observed)}
    if isinstance(density.components, DiscretisedLogistic):
        return {**scores, "nll_marginal": -_levels(data).log_prob(_level(future))}
    if data.x.is_floating_point():
        place = (density.cdf(future) - 0.5).abs()
        for width in (50, 90):
            inside = missing_as_nan((place <= width / 200).float(), observed)
            scores[f"coverage_{width}"] = inside.flatten(1).nanmean(1)
        scores["nll_last_value"] = -_last_value(data, last, dt).log_prob(future, observed)
    scores["nll_marginal"] = -_marginal(data, model).log_prob(future, observed)
    return scores


def _last_observed(test: Sequences, origin: int, data: Sequences) -> Tensor:
    """The last observed value of each channel up to ``origin``, or the mean of the training data if there is none."""
    if test.observed is None:
        return test.x[:, origin - 1]
    last = missing_as_nan(data.x, data.observed)[data.mask].nanmean(0).expand_as(test.x[:, 0])
    for t in range(1, origin + 1):
        x, observed = test.at(t)
        last = torch.where(observed, x, last)  # type: ignore[arg-type]
    return last


class OwnDataRuns:
    """How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`."""

    @property
    def paper(self) -> Measures:
        return {}

    def evaluate(self, found: SavedModel, seed: int, source: Source | None = None) -> Measures:
        """Evaluate a run on its test part, or on new data."""
        own = RunData.of(found)
        held_out = own.test if source is None else own.held_out(source)
        return evaluate(found.model, own.history, held_out, own.longest_jump, seed)

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        return tables(content["measures"])

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        """One of the test sequences, chosen by ``seed``."""
        test = RunData.of(found).test.sequences
        return test.select(torch.tensor([seed % len(test)]))

    def channels(self, found: SavedModel) -> Sequence[str]:
        return RunData.of(found).encoding.channels

    def in_units(self, found: SavedModel, x: Tensor) -> Array:
        return RunData.of(found).encoding.decode(x)


def tables(measures: Measures) -> list[Block]:
    """The summarised measures: a row for each forecaster, a column for each δt."""
    return [by_key(((label, measures[name]) for name, label in LABELS.items() if name in measures), "δt = {}")]


RUNS = OwnDataRuns()


def _marginal(data: Sequences, model: Model) -> Distribution:
    """The best density that ignores time: each dimension's own frequencies, or mean and spread."""
    steps, ndim = missing_as_nan(data.x, data.observed)[data.mask], data.x.ndim - 2
    if data.x.is_floating_point():
        return DiagonalNormal(steps.nanmean(0), _log_spread(steps - steps.nanmean(0)), event_ndim=ndim)
    if data.x.dtype == torch.bool:
        share = (steps.float().sum(0) + 0.5) / (len(steps) + 1)
        return Bernoulli(torch.logit(share), event_ndim=ndim)
    assert isinstance(model.config, RecurrentConfig)  # only such models have classes
    counts = torch.nn.functional.one_hot(steps, model.config.classes or -1).sum(0) + 0.5
    return Categorical(counts.log(), event_ndim=ndim)


def _levels(data: Sequences) -> Categorical:
    """The frequencies of the 256 levels of each pixel."""
    levels = DiscretisedLogistic.LEVELS
    steps = _level(data.x[data.mask])
    size = steps[0].numel()
    index = steps.flatten(1) + levels * torch.arange(size)
    counts = torch.bincount(index.flatten(), minlength=size * levels).view(*steps.shape[1:], levels) + 0.5
    return Categorical(counts.log(), event_ndim=steps.ndim - 1)


def _level(x: Tensor) -> Tensor:
    return (x * (DiscretisedLogistic.LEVELS - 1)).round().long()


def _last_value(data: Sequences, last: Tensor, dt: int) -> DiagonalNormal:
    """Tomorrow as today: the last value, with the spread that changes over δt had in training."""
    x = missing_as_nan(data.x, data.observed)
    change = x[:, dt:] - x[:, :-dt]
    real = data.mask[:, dt:]
    return DiagonalNormal(last, _log_spread(change[real]).expand_as(last), event_ndim=last.ndim - 1)


def _log_spread(values: Tensor) -> Tensor:
    """log of the root mean square; a constant sensor gets a small one instead of 0."""
    return values.square().nanmean(0).sqrt().clamp(min=1e-6).log()
