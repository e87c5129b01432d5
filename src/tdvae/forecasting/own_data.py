"""Runs on users' own sequences: what they keep of the data, and the evaluation of their forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tdvae.checks import Positive, check_fields
from tdvae.distributions import Categorical, DiscretisedLogistic
from tdvae.errors import CheckpointError, InputError
from tdvae.forecasting import split as splits
from tdvae.forecasting.encode import Encoding
from tdvae.forecasting.evaluation import MOST_ORIGINS, Evaluation, Scores
from tdvae.forecasting.evaluation import evaluate as evaluate_forecasts
from tdvae.forecasting.origins import Origins, held_out_origins
from tdvae.forecasting.preparation import HeldOut, new_sequences
from tdvae.forecasting.read import Source
from tdvae.forecasting.recipe import DATA_FILE
from tdvae.forecasting.series import Array, Columns, Series
from tdvae.forecasting.verdict import LABELS, comparisons, verdict
from tdvae.likelihood import forecast
from tdvae.models import ConvTDVAEConfig, Model
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.rollouts import belief_at
from tdvae.saved import SavedModel
from tdvae.storage import RunFolder
from tdvae.training.config import derive_seed
from tdvae.types import Sequences

HORIZONS = (1, 2, 5, 10, 20, 50, 100)
PICTURE_SAMPLES, MOST_PICTURES = 20, 16  # forecasts of pictures take long
MEASURE_LABELS = {
    "nll": "NLL per dimension, nats",
    "crps": "CRPS per dimension",
    "rmse": "root mean square error",
    "coverage_50": "inside its 50 % interval",
    "coverage_90": "inside its 90 % interval",
}


@dataclass(frozen=True, eq=False)
class RunData:
    """What a run keeps of its data: how to read and encode more of them, and the parts for its evaluation."""

    encoding: Encoding
    columns: Columns
    longest_jump: Positive
    window: Positive | None
    season: Positive | None
    history: Sequences  # the training part
    test: HeldOut

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, found: SavedModel) -> RunData:
        info = found.info
        if "encoding" not in info:
            raise InputError(f"run: expected a run of `tdvae fit` of this version, got {found.source}")
        content = RunFolder(found.source).read_file(DATA_FILE)
        try:
            parts: dict[str, dict[str, Tensor]] = {}
            for name, tensor in safetensors.torch.load(content).items():
                part, _, of = name.partition(".")
                parts.setdefault(part, {})[of] = tensor
            return cls(
                Encoding.from_description(info["encoding"]),
                Columns.from_description(info["columns"]),
                info["longest_jump"],
                info["window"],
                info["season"],
                Sequences(**parts["history"]),
                HeldOut(Sequences(**parts["test"]), info["context"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, safetensors.SafetensorError) as error:
            raise CheckpointError(
                f"run: expected the info and the {DATA_FILE} of a run of `tdvae fit` in {found.source} ({error!r})"
            ) from error

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


def evaluate(
    model: Model, data: Sequences, held_out: HeldOut, longest_jump: int, seed: int, season: int | None = None
) -> Evaluation:
    """Forecasts of the test sequences by δt from rolling origins, beside baselines fitted on the training part."""
    horizons = [*(dt for dt in HORIZONS if dt < longest_jump), longest_jump]
    if isinstance(model.config, ConvTDVAEConfig):
        return _evaluate_pictures(model, data, held_out.sequences, horizons, seed)
    return evaluate_forecasts(model, data, held_out.sequences, horizons, season, seed, origins(held_out, longest_jump))


def origins(held_out: HeldOut, longest_jump: int) -> Origins:
    """Where the forecasts of held-out sequences begin."""
    return held_out_origins(held_out.sequences, held_out.context, longest_jump, MOST_ORIGINS)


@torch.no_grad()
def _evaluate_pictures(
    model: Model, data: Sequences, test: Sequences, horizons: Sequence[int], seed: int
) -> Evaluation:
    """The NLL of some pictures, from the middle of each sequence, beside the frequencies of each pixel's levels."""
    count = min(len(test), MOST_PICTURES)
    test = test.select(torch.arange(count) * len(test) // count)
    start, marginal, size = max(1, int(test.lengths.min()) // 2), _levels(data), test.x[0, 0].numel()
    found: dict[str, dict[int, Scores]] = {"tdvae": {}, "marginal": {}}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        belief = belief_at(model, test, start)
        for dt in (dt for dt in horizons if start + dt <= int(test.lengths.min())):
            actions = None if test.actions is None else test.actions[:, start : start + dt]
            x, _ = test.at(start + dt)
            density = forecast(model, belief, dt, PICTURE_SAMPLES, actions)
            found["tdvae"][dt] = Scores(-density.log_prob(x) / size)
            found["marginal"][dt] = Scores(-marginal.log_prob(_level(x)) / size)
    return Evaluation(found, {dt: torch.arange(count) for dt in found["tdvae"]})


class OwnDataRuns:
    """How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`."""

    @property
    def paper(self) -> Measures:
        return {}

    def evaluate(self, found: SavedModel, seed: int, source: Source | None = None) -> Measures:
        """Evaluate a run on its test part, or on new data."""
        own = RunData.of(found)
        held_out = own.test if source is None else own.held_out(source)
        return evaluate(found.model, own.history, held_out, own.longest_jump, seed, own.season).with_differences()

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
    """The summarised measures of `Evaluation.with_differences`: forecasters by δt, and what they mean in a sentence."""
    rows = [
        (f"{label}: {LABELS[forecaster]}", by_dt)
        for measure, label in MEASURE_LABELS.items()
        for forecaster, by_dt in measures.get(measure, {}).items()
        if forecaster == "tdvae" or not measure.startswith("coverage")
    ]
    return [by_key(rows, "δt = {}"), verdict(comparisons(measures["nll"], measures))]


RUNS = OwnDataRuns()


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
