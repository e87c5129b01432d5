"""Runs on users' own sequences: what they keep, and how good their forecasts of held-out steps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tdvae.errors import InputError
from tdvae.forecasting import evaluation, splits
from tdvae.forecasting.encoding import Encoding
from tdvae.forecasting.evaluation import LABELS, MOST_ORIGINS, SAMPLES, Evaluation, verdict_of
from tdvae.forecasting.origins import held_out_origins
from tdvae.forecasting.preparation import HeldOut, new_sequences
from tdvae.forecasting.recipe import DATA_FILE
from tdvae.forecasting.series import Array, Columns, Series
from tdvae.forecasting.sources import Source
from tdvae.models import ConvTDVAEConfig, Model
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.saved import SavedModel
from tdvae.types import Sequences

HORIZONS = (1, 2, 5, 10, 20, 50, 100)
PICTURE_SAMPLES, MOST_PICTURES = 8, 32  # samples per forecast, and forecasts, of pictures, whose decoding takes long
TITLES = {
    "nll": "NLL, nats per dimension",
    "crps": "CRPS, in standard deviations",
    "rmse": "RMSE, in standard deviations",
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


def evaluate(model: Model, data: Sequences, held_out: HeldOut, longest_jump: int, seed: int) -> Evaluation:
    """Forecasts of the test sequences by δt, beside simple forecasters that are fitted on the training part."""
    horizons = [dt for dt in HORIZONS if dt <= longest_jump]
    pictures = isinstance(model.config, ConvTDVAEConfig)
    samples, most = (PICTURE_SAMPLES, MOST_PICTURES) if pictures else (SAMPLES, MOST_ORIGINS)
    origins = held_out_origins(held_out.sequences, held_out.context, longest_jump, most)
    return evaluation.evaluate(model, data, held_out.sequences, horizons, None, seed, origins, samples)


class OwnDataRuns:
    """How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`."""

    @property
    def paper(self) -> Measures:
        return {}

    def evaluate(self, found: SavedModel, seed: int, source: Source | None = None) -> Measures:
        """Evaluate a run on its test part, or on new data."""
        own = RunData.of(found)
        held_out = own.test if source is None else own.held_out(source)
        return evaluate(found.model, own.history, held_out, own.longest_jump, seed).with_differences()

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
    """The summarised measures, a row for each forecaster and a column for each δt, and the verdict."""
    blocks: list[Block] = [
        by_key(((LABELS[name], by_dt) for name, by_dt in measures[measure].items()), "δt = {}", title)
        for measure, title in TITLES.items()
        if measure in measures
    ]
    coverage = [(f"{width} %", measures[f"coverage_{width}"]["tdvae"]) for width in (50, 90) if "crps" in measures]
    if coverage:
        blocks.append(by_key(coverage, "δt = {}", "share inside the model's interval"))
    return [*blocks, verdict_of(measures)]


RUNS = OwnDataRuns()
