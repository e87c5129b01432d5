"""A user's own sequences: fit a model, and compare its forecasts of held-out ones with two baselines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae.data import from_npz, split
from tdvae.distributions import Bernoulli, Categorical, DiagonalNormal, Distribution
from tdvae.errors import CheckpointError, InputError
from tdvae.forecasting.recipe import Recipe, recipe
from tdvae.likelihood import Forecast, forecast
from tdvae.models import Model
from tdvae.models.build import check_classes
from tdvae.models.config import RecurrentConfig
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.rollouts import belief_at
from tdvae.saved import SavedModel
from tdvae.storage.files import sha256_of
from tdvae.training import FitResult
from tdvae.training.config import derive_seed
from tdvae.types import Sequences

NAME = "fit"
HORIZONS = (1, 2, 5, 10, 20, 50, 100)
SAMPLES = 200
ORIGINS = 5  # of forecasts in each test sequence, as far as they leave room for δt
LABELS = {
    "nll": "NLL of the model, nats per step",
    "coverage_50": "coverage of its 50 % interval",
    "coverage_90": "coverage of its 90 % interval",
    "nll_last_value": "… of the last value, with fitted spread",
    "nll_marginal": "… of the marginal",
}


@dataclass(frozen=True)
class OwnData:
    """Where a run's sequences come from, and how they were split: enough to find its test sequences again."""

    file: Path
    split_seed: int
    longest_jump: int

    @cached_property
    def parts(self) -> tuple[Sequences, Sequences, Sequences]:
        """Training, validation and test sequences; read from the file once."""
        return split(from_npz(self.file), self.split_seed)

    def info(self) -> dict[str, Any]:
        return {
            "experiment": NAME,
            "file": str(self.file.resolve()),
            "sha256": sha256_of(self.file),
            "split_seed": self.split_seed,
            "longest_jump": self.longest_jump,
        }

    @classmethod
    def from_info(cls, info: dict[str, Any]) -> OwnData:
        if missing := {"file", "sha256", "split_seed", "longest_jump"} - set(info):
            raise CheckpointError(f"run: expected the info of a run of `tdvae fit`, got one without {sorted(missing)}")
        own = cls(Path(info["file"]), info["split_seed"], info["longest_jump"])
        if not own.file.exists() or own.info()["sha256"] != info["sha256"]:
            raise InputError(f"file: {own.file}, which this run was trained on, is gone or has changed")
        return own

    def recipe(self, steps: int, seed: int, **model_options: Any) -> Recipe:
        """The recipe for the training part. Classes are counted over all parts, since a rare one may be in one only."""
        data = self.parts[0]
        if not data.x.is_floating_point() and data.x.dtype != torch.bool:
            classes = max(int(part.x.max()) for part in self.parts) + 1
            check_classes(classes)
            model_options["classes"] = classes
        return recipe(data, self.longest_jump, steps, seed, **model_options)


def train(own: OwnData, recipe: Recipe, run_dir: Path, resume: bool) -> FitResult:
    """Fit the recipe's model to the file's training part, with its validation part for the choice of weights."""
    data, validation, test = own.parts
    shortest = min(int(part.lengths.min()) for part in (data, validation))
    if own.longest_jump > shortest:
        raise InputError(f"longest_jump: {own.longest_jump} steps do not fit the shortest sequence of {shortest}")
    if int(test.lengths.min()) < 2:
        raise InputError("lengths: a test sequence of a single step has nothing to forecast, expected at least 2")
    return recipe.fit(data, validation, run_dir, resume, own.info())


@torch.no_grad()
def evaluate(model: Model, own: OwnData, seed: int) -> Measures:
    """Forecasts of the test sequences by δt, from several origins. The baselines are fitted on the training part."""
    data, _, test = own.parts
    torch.manual_seed(derive_seed(seed))
    shortest = int(test.lengths.min())
    origins = _origins(shortest)
    beliefs = {origin: belief_at(model, test, origin) for origin in origins}
    scores: dict[str, dict[str, list[Tensor]]] = {}
    for dt in HORIZONS:
        if dt > own.longest_jump or dt >= int(data.lengths.max()):
            continue
        for origin in (origin for origin in origins if origin + dt <= shortest):
            actions = None if test.actions is None else test.actions[:, origin : origin + dt]
            density = forecast(model, beliefs[origin], dt, SAMPLES, actions)
            last, future = test.x[:, origin - 1], test.x[:, origin + dt - 1]
            for name, values in _scores(density, data, model, last, future, dt).items():
                scores.setdefault(name, {}).setdefault(str(dt), []).append(values)
    return {name: {dt: float(torch.cat(v).mean()) for dt, v in by_dt.items()} for name, by_dt in scores.items()}


def _origins(shortest: int) -> list[int]:
    """After how many observations forecasts begin: evenly spaced from the first third of the shortest sequence on."""
    first = max(1, shortest // 3)
    return sorted(set(torch.linspace(first, max(first, shortest - 1), ORIGINS).long().tolist()))


def _scores(
    density: Forecast, data: Sequences, model: Model, last: Tensor, future: Tensor, dt: int
) -> dict[str, Tensor]:
    """The model's and the baselines' scores of each sequence."""
    scores = {"nll": -density.log_prob(future)}
    if data.x.is_floating_point():
        place = (density.cdf(future) - 0.5).abs()
        for width in (50, 90):
            scores[f"coverage_{width}"] = (place <= width / 200).float().flatten(1).mean(1)
        scores["nll_last_value"] = -_last_value(data, last, dt).log_prob(future)
    scores["nll_marginal"] = -_marginal(data, model).log_prob(future)
    return scores


class OwnDataRuns:
    """How `tdvae eval` and `tdvae rollout` treat the runs of `tdvae fit`."""

    @property
    def paper(self) -> Measures:
        return {}

    def evaluate(self, found: SavedModel, seed: int) -> Measures:
        return evaluate(found.model, OwnData.from_info(found.info), seed)

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        return tables(content["measures"])

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        """One of the test sequences, chosen by ``seed``."""
        test = OwnData.from_info(found.info).parts[2]
        return test.select(torch.tensor([seed % len(test)]))


def tables(measures: Measures) -> list[Block]:
    """The summarised measures: a row for each forecaster, a column for each δt."""
    return [by_key(((label, measures[name]) for name, label in LABELS.items() if name in measures), "δt = {}")]


RUNS = OwnDataRuns()


def _marginal(data: Sequences, model: Model) -> Distribution:
    """The best density that ignores time: each dimension's own frequencies, or mean and spread."""
    steps, ndim = data.x[data.mask], data.x.ndim - 2
    if data.x.is_floating_point():
        return DiagonalNormal(steps.mean(0), _log_spread(steps - steps.mean(0)), event_ndim=ndim)
    if data.x.dtype == torch.bool:
        share = (steps.float().sum(0) + 0.5) / (len(steps) + 1)
        return Bernoulli(torch.logit(share), event_ndim=ndim)
    assert isinstance(model.config, RecurrentConfig)  # only such models have classes
    counts = torch.nn.functional.one_hot(steps, model.config.classes or -1).sum(0) + 0.5
    return Categorical(counts.log(), event_ndim=ndim)


def _last_value(data: Sequences, last: Tensor, dt: int) -> DiagonalNormal:
    """Tomorrow as today: the last value, with the spread that changes over δt had in training."""
    change = data.x[:, dt:] - data.x[:, :-dt]
    real = data.mask[:, dt:]
    return DiagonalNormal(last, _log_spread(change[real]).expand_as(last), event_ndim=last.ndim - 1)


def _log_spread(values: Tensor) -> Tensor:
    """log of the root mean square; a constant sensor gets a small one instead of 0."""
    return values.square().mean(0).sqrt().clamp(min=1e-6).log()
