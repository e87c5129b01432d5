"""How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tdvae.forecasting.evaluation import LABELS, Evaluation, comparisons, evaluate, verdict
from tdvae.forecasting.forecaster import Forecaster, RunData
from tdvae.forecasting.preparation import HeldOut
from tdvae.forecasting.reading import Source
from tdvae.forecasting.series import Array
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.saved import SavedModel
from tdvae.types import Sequences

MEASURE_LABELS = {
    "nll": "NLL per dimension, nats",
    "crps": "CRPS per dimension",
    "rmse": "root mean square error",
    "coverage_50": "inside its 50 % interval",
    "coverage_90": "inside its 90 % interval",
}


def evaluate_run(forecaster: Forecaster, seed: int, held_out: HeldOut | None = None) -> Evaluation:
    """Evaluate a run on its test part, or on other sequences."""
    data = forecaster.data
    test = data.test if held_out is None else held_out
    return evaluate(forecaster.model, forecaster.stack, data.history, test, data.longest_jump, data.seasons, seed)


class OwnDataRuns:
    """How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`."""

    @property
    def paper(self) -> Measures:
        return {}

    def evaluate(self, found: SavedModel, seed: int, source: Source | None = None) -> Measures:
        """Evaluate a run on its test part, or on new data."""
        forecaster = Forecaster.of(found)
        held_out = None if source is None else forecaster.data.held_out(source)
        return evaluate_run(forecaster, seed, held_out).with_differences()

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
    """The summarised measures of `Evaluation.with_differences`: forecasters by horizon, and the verdict."""
    rows = [
        (f"{label}: {LABELS.get(forecaster, forecaster)}", by_horizon)
        for measure, label in MEASURE_LABELS.items()
        for forecaster, by_horizon in measures.get(measure, {}).items()
        if forecaster == "combination" or not measure.startswith("coverage")
    ]
    rows += [(f"weight of {LABELS.get(name, name)}", by) for name, by in measures.get("weights", {}).items()]
    origins = {int(h): round(entry["mean"]) for h, entry in measures["origins"].items()}
    return [by_key(rows, "{} steps"), verdict(comparisons(measures["nll"], measures), origins)]


RUNS = OwnDataRuns()
