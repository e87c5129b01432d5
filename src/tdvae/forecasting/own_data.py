"""How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`, and the tables of their scores."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tdvae.codes import encode_sequences
from tdvae.forecasting.evaluation import ENERGY_WORDS, LABELS, Evaluation, comparisons, evaluate, verdict
from tdvae.forecasting.forecaster import Forecaster, RunData
from tdvae.forecasting.preparation import Encoding, HeldOut
from tdvae.forecasting.preparation.overlaps import shared_steps
from tdvae.forecasting.reading import Source
from tdvae.forecasting.series import Array
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, by_key, significant
from tdvae.saved import SavedModel
from tdvae.types import Sequences

SEEN = 0.01  # share of the steps of new data that may be in the training part without a warning
MAIN = ("combination", "tdvae", "next_step", "linear")  # the forecasters of the short table, and the best other one
OTHERS = ("seasonal_naive", "naive", "climatology")
MEASURE_LABELS = {
    "nll": "NLL, nats",
    "energy": "energy score of pictures",
    "crps": "CRPS, standard deviations",
    "rmse": "root mean square error, standard deviations",
    "coverage_50": "inside its 50 % interval",
    "coverage_90": "inside its 90 % interval",
}


def evaluate_run(forecaster: Forecaster, seed: int, held_out: HeldOut | None = None) -> Evaluation:
    """Evaluate a run on its test part, or on other sequences."""
    data = forecaster.data
    test = data.test if held_out is None else held_out
    return evaluate(
        forecaster.model,
        forecaster.stack,
        data.history,
        test,
        data.longest_jump,
        data.seasons,
        seed,
        bar=True,
        codec=data.encoding.codec,
    )


def measures_of(evaluation: Evaluation, encoding: Encoding) -> Measures:
    """The measures of an evaluation, and for measurements the standard deviation of each column in training."""
    measures = evaluation.with_differences()
    if encoding.scaling is not None:
        scales = encoding.scaling.scale.ravel().tolist()
        measures["standard_deviation"] = dict(zip(encoding.channels, scales, strict=True))
    return measures


class OwnDataRuns:
    """How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`."""

    @property
    def paper(self) -> Measures:
        return {}

    def evaluate(self, found: SavedModel, seed: int, source: Source | None = None) -> Measures:
        """Evaluate a run on its test part, or on new data."""
        forecaster = Forecaster.of(found)
        held_out = None
        if source is not None:
            held_out = forecaster.data.held_out(source)
            codec, given = forecaster.encoding.codec, held_out.sequences
            share = shared_steps(
                _steps(forecaster.data.history), _steps(given if codec is None else encode_sequences(codec, given))
            )
            if share > SEEN:
                print(
                    f"warning: {share:.0%} of the steps of {source} are in the training part of the run; forecasts of "
                    "new data may be worse than these",
                    file=sys.stderr,
                )
        return measures_of(evaluate_run(forecaster, seed, held_out), forecaster.encoding)

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        return tables(content["measures"])

    def details_of_run(self, content: dict[str, Any]) -> list[Block]:
        return [details(content["measures"])]

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        """One of the test sequences, chosen by ``seed``."""
        data = RunData.of(found)
        test = data.test.sequences
        chosen, codec = test.select(torch.tensor([seed % len(test)])), data.encoding.codec
        return chosen if codec is None else encode_sequences(codec, chosen)

    def times(self, found: SavedModel, seed: int) -> Callable[[int], str] | None:
        """The text of a time step of this sequence, counted from 1."""
        data = RunData.of(found)
        if not data.times:
            return None
        grid = data.times[seed % len(data.times)]
        return lambda step: grid.text(np.array([step - 1]))[0]

    def channels(self, found: SavedModel) -> Sequence[str]:
        return RunData.of(found).encoding.channels

    def in_units(self, found: SavedModel, x: Tensor) -> Array:
        return RunData.of(found).encoding.decode(x)


def _steps(sequences: Sequences) -> list[Array]:
    return [x[:length].numpy() for x, length in zip(sequences.x, sequences.lengths.tolist(), strict=True)]


def tables(measures: Measures) -> list[Block]:
    """The scores that decide, from summarised `measures_of`: a table in the user's units, and the verdict in words.

    Several columns may have different units; their scores are then in standard deviations of the training part.
    """
    scales = measures.get("standard_deviation", {})
    origins = {int(h): round(entry["mean"]) for h, entry in measures["origins"].items()}
    if "energy" in measures:
        scores = measures["energy"]
        rows = [(LABELS[name], scores[name], _plain) for name in scores]
        said = verdict(comparisons(scores, measures, "energy"), origins, *ENERGY_WORDS)
        return [_by_horizon("energy score, of the pixels' range", list(scores["combination"]), rows), said]
    nll = measures["nll"]
    said = verdict(comparisons(nll, measures), origins, "nats" if len(scales) == 1 else "nats per dimension")
    horizons = list(nll["combination"])
    if "crps" not in measures:
        return [_by_horizon("NLL, nats per dimension", horizons, ((LABELS[n], nll[n], _plain) for n in nll)), said]
    unit, scale = f"standard deviations, mean of {len(scales)} columns", 1.0
    if len(scales) == 1:
        (unit, scale) = next((name, entry["mean"]) for name, entry in scales.items())
    crps = measures["crps"]
    simple = min((name for name in OTHERS if name in crps), key=lambda name: _mean(crps[name]))
    least = min(scale * entry["mean"] for entry in crps["combination"].values())

    def in_unit(value: float) -> str:
        return significant(scale * value, least)

    rows = [(f"CRPS of {LABELS[name]}", crps[name], in_unit) for name in (*MAIN, simple) if name in crps]
    rows.append(("RMSE of the combination", measures["rmse"]["combination"], in_unit))
    rows.append(("inside its 90 % interval", measures["coverage_90"]["combination"], _share))
    return [_by_horizon(f"in units of {unit}" if len(scales) == 1 else f"in {unit}", horizons, rows), said]


def _by_horizon(corner: str, horizons: list[str], rows: Iterable[tuple[str, Measures, Any]]) -> Table:
    cells = [[label, *[write(by[h]["mean"]) if h in by else "" for h in horizons]] for label, by, write in rows]
    return Table([corner, *[f"{h} step{'s' if h != '1' else ''}" for h in horizons]], cells)


def _mean(by_horizon: Measures) -> float:
    return sum(entry["mean"] for entry in by_horizon.values()) / len(by_horizon)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _plain(value: float) -> str:
    return f"{value:.3f}"


def details(measures: Measures) -> Table:
    """All scores of all forecasters by horizon, and the weights."""
    rows = [
        (f"{label}: {LABELS.get(forecaster, forecaster)}", by_horizon)
        for measure, label in MEASURE_LABELS.items()
        for forecaster, by_horizon in measures.get(measure, {}).items()
    ]
    rows += [(f"weight of {LABELS.get(name, name)}", by) for name, by in measures.get("weights", {}).items()]
    return by_key(rows, "{} steps")


def kept(weights: Mapping[str, tuple[float, float]]) -> str:
    """What a combination uses, in words, from `Stack.kept`."""
    if len(weights) == 1:
        return f"{LABELS[next(iter(weights))]} alone"
    return ", ".join(f"{LABELS[name]} {_percent(low, high)}" for name, (low, high) in weights.items())


def _percent(low: float, high: float) -> str:
    low, high = round(100 * low), round(100 * high)
    return f"{high} %" if low == high else f"{low} to {high} %"


RUNS = OwnDataRuns()
