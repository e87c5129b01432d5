"""Fitting a forecaster: linear forecasters, a next-step predictor and TD-VAEs, combined by forecasts of the validation
part.

Every network is trained in a folder of its own inside the run folder. When all are there, the combination and a copy of
the TD-VAE with the largest weight are written to the run folder, config.json last. So the folder is a run like others.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from tdvae.checks import NonNegative, Positive, PositiveNumber, Seed, checked
from tdvae.errors import InputError
from tdvae.forecasting.fitting.monitor import validation_origins
from tdvae.forecasting.fitting.pictures import CODEC_BUDGET, trained_codec
from tdvae.forecasting.fitting.recipes import PATIENCE, STEPS, NetworkKind, Recipe, default_kind, recipe, schedule
from tdvae.forecasting.forecaster import DATA_FILE, LINEAR_FILE, Forecaster, describe_stack
from tdvae.forecasting.predictors import (
    LEAST_BLOCKS,
    Linear,
    Network,
    Predictor,
    Stack,
    climatology,
    fit_linear,
    fit_stack,
    naive,
    scored_horizons,
    seeded,
)
from tdvae.forecasting.preparation import OwnData
from tdvae.saved import CODEC
from tdvae.storage import RunFolder, files
from tdvae.storage.files import to_json
from tdvae.storage.run_folder import check_unused, create, is_started, locked
from tdvae.training import FitResult
from tdvae.training.log import Progress

FOLDER, PLAN_FILE = "networks", "plan.json"  # in a run folder
NETWORKS: tuple[NetworkKind, ...] = ("next_step", "latent", "observed")
RUNG = 0.3  # share of the training after which only one of the two TD-VAEs is trained on: latent, …
MARGIN = 0.2  # … unless observed is ahead by more, in nats per dimension; it learns faster at first
MOST_ORIGINS = 200  # of validation forecasts
# With a budget of minutes: the share of each part, and the shares of a training after which it is planned anew
NEXT_STEP_BUDGET, TDVAE_BUDGET = 0.15, 0.7
FIRST_STEPS, LEAST_STEPS, PLANNED_ANEW = 20, 100, (0.1, 0.3, 0.6, 0.8)


@dataclass
class NetworkRun:
    """The training of one network: as many steps at a time as wanted, with the number of all steps planned anew."""

    recipe: Recipe
    folder: RunFolder
    progress: Progress
    data_sha256: str  # of the data, which a resumed training must have again
    cpu: float = 0.0  # seconds
    planned: int = 0
    result: FitResult | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.planned = self.recipe.config.steps
        if (self.folder.path / PLAN_FILE).exists():
            plan = files.read_checked(self.folder.path / PLAN_FILE, ("steps", "cpu"))
            self.planned, self.cpu = int(plan["steps"]), float(plan["cpu"])

    def advance(self, data: OwnData, share: float = 1.0, seconds: float | None = None) -> float:
        """Train up to a share of all steps, and return the best score. ``seconds`` is a budget for all of them."""
        if seconds is None:
            self._train(data, max(1, round(share * self.planned)))
        else:
            if self._step < FIRST_STEPS:
                self._train(data, FIRST_STEPS)
            for part in (*(each for each in PLANNED_ANEW if each < share), share):
                self._plan(seconds)
                self._train(data, max(self._step, round(part * self.planned)))
        assert self.result is not None
        return self.result.best_score if self.result.best_score is not None else 0.0

    @property
    def _step(self) -> int:
        return 0 if self.result is None else self.result.steps

    def _train(self, data: OwnData, until: int) -> None:
        config = schedule(self.recipe.config, self.planned, self.recipe.config.patience)
        begin = time.process_time()
        self.result = replace(self.recipe, config=config).fit(
            data,
            run_dir=self.folder.path,
            resume=self.folder.has_run,
            info={"experiment": "network", "kind": self.recipe.kind, "data": self.data_sha256},
            progress=self.progress,
            until=until,
        )
        self.cpu += time.process_time() - begin
        if int(os.environ.get("RANK", "0")) == 0:  # of several processes one writes
            files.write_checked(self.folder.path / PLAN_FILE, {"steps": self.planned, "cpu": self.cpu})

    def _plan(self, seconds: float) -> None:
        """Choose the number of all steps so that they take so many seconds, from the time of those made so far."""
        left = max(0.0, seconds - self.cpu) * self._step / max(self.cpu, 1e-6)
        self.planned = max(LEAST_STEPS, self._step + int(left))


@checked
def fit_forecaster(
    data: OwnData,
    run_dir: str | Path = "runs/own",
    steps: Positive = STEPS,
    seed: Seed = 0,
    minutes: PositiveNumber | None = None,
    patience: NonNegative = PATIENCE,
    batch_size: Positive | None = None,
    networks: Sequence[NetworkKind] | None = None,
    resume: bool = False,
    info: dict[str, Any] | None = None,
    progress: Progress = "bar",
    settings: Mapping[str, Any] | None = None,
    **model_options: Any,
) -> Forecaster:
    """Fit what `tdvae fit` fits: several forecasters, combined to one with weights by horizon.

    For vectors of numbers these are linear regressions with seasonal lags, the seasonal naive forecast, a next-step
    predictor and two TD-VAEs, one with the latent state alone and one whose state also has the last observation; of the
    two, the one with worse forecasts is stopped early. So are all networks if the validation part is too short to
    weight them. Other data have one TD-VAE; that of pictures is given the codes of a codec, which is trained first
    (`OwnData.coded` takes another). An interrupted fit can be resumed.

    Args:
        data: from `tdvae.prepare`.
        run_dir: the run folder. `tdvae.load` returns its TD-VAE with the largest weight.
        steps: training steps of each network.
        seed: seed of the initial weights and of the training.
        minutes: a budget of processor time in place of ``steps``. It is watched while training.
        patience: a training stops after this many of its 20 validations without a better one; 0: never.
        batch_size: sequences per training step.
        networks: the networks to train, to their end; by default all of next_step, latent and observed, if the data
            suit them. For pictures latent (of codes) or convolutional (of pixels).
        resume: continue an interrupted fit.
        info: stored in the config of the run.
        progress: what is shown: bar, lines or none.
        settings: fields of the training config that differ, such as ``devices``.
        **model_options: fields of the config of the TD-VAEs that differ from the defaults.

    >>> import numpy as np, tdvae
    >>> data = tdvae.prepare(20 + 5 * np.sin(0.3 * np.arange(300)), longest_jump=5)
    >>> forecaster = tdvae.fit_forecaster(data, "runs/sine", steps=2, progress="none")
    >>> list(forecaster.weights(1))
    ['linear']
    """
    folder = RunFolder(run_dir)
    several, first = int(os.environ.get("WORLD_SIZE", "1")) > 1, int(os.environ.get("RANK", "0")) == 0
    if resume and not is_started(folder.path):
        raise InputError(f"run_dir: expected a run to resume, got {folder.path}, which has none")
    if not resume and first:
        check_unused(folder.path)
    if default_kind(data) == "convolutional" and tuple(networks or ()) != ("convolutional",):
        create(folder.path)
        seconds = None if minutes is None else 60 * CODEC_BUDGET * minutes
        data = data.coded(trained_codec(data, folder.path / CODEC, steps, seed, seconds, first))
    kinds = _kinds(data, [default_kind(data)] if several and networks is None else networks)
    if several and len(kinds) > 1:
        raise InputError(f"networks: expected one to train with several processes, got {list(kinds)}")
    kept = stored(data)
    runs = {}
    for kind in kinds:
        made = recipe(data, None, steps, seed, patience, batch_size, kind, **model_options)
        made = replace(made, config=replace(made.config, **(settings or {})))
        runs[kind] = NetworkRun(made, RunFolder(folder.path / FOLDER / kind), progress, _sha256(kept))
    described = {**data.info(), **(info or {})}
    if resume and folder.has_run:
        _check_same(folder, runs, described, kept)
        return Forecaster.load(folder.path, data.encoding.codec)
    create(folder.path)
    share = RUNG if networks is None and _is_regression_alone(data) else 1.0
    with nullcontext() if several else locked(folder.path):
        _train(runs, data, None if minutes is None else 60 * minutes, share)
        if first:
            _finish(folder, data, runs, seed, described, kept)
        if several:
            torch.distributed.barrier()
    forecaster = Forecaster.load(folder.path, data.encoding.codec)
    if not set(forecaster.kept) & {"tdvae", *kinds}:
        warnings.warn(
            f"no network was kept: {' and '.join(forecaster.kept)} alone forecasts the validation part best; "
            "Forecaster.kept has the weights",
            stacklevel=3,  # of the caller, beyond `checked`
        )
    return forecaster


def _check_same(folder: RunFolder, runs: dict[NetworkKind, NetworkRun], info: dict[str, Any], kept: bytes) -> None:
    """Raise if a finished run was made with another model or other data than a repeated command asks for."""
    written = folder.read_config()
    now = json.loads(to_json(info))
    different = sorted(name for name in now if written["info"].get(name) != now[name])
    if all(run.recipe.learner.describe() != written["model"] for run in runs.values()):
        different.insert(0, "model")
    if not different and written.get("files", {}).get(DATA_FILE) != _sha256(kept):
        different = ["data"]
    if different:
        raise InputError(
            f"resume: expected the same settings, but {folder.path} was started with another {', '.join(different)}"
        )


def _kinds(data: OwnData, given: Sequence[NetworkKind] | None) -> tuple[NetworkKind, ...]:
    if data.encoding.kind != "vector":
        return (default_kind(data),) if given is None else tuple(given)
    known = NETWORKS if data.history.rewards is None else NETWORKS[1:]  # a next-step predictor does not predict them
    kinds = known if given is None else tuple(dict.fromkeys(given))
    if not {"latent", "observed"} & set(kinds):
        raise InputError(f"networks: expected latent or observed among them, got {list(kinds)}")
    return tuple(sorted(kinds, key=NETWORKS.index))


def _is_regression_alone(data: OwnData) -> bool:
    """Whether the validation part is too short to give a network any weight."""
    if data.encoding.kind != "vector":
        return False
    origins, _ = validation_origins(data.validated, data.longest_jump, MOST_ORIGINS)
    return len(origins.block.unique()) < LEAST_BLOCKS


def _train(runs: dict[NetworkKind, NetworkRun], data: OwnData, seconds: float | None, share: float) -> None:
    """Train all networks, up to a share of their steps; of two TD-VAEs only the one with better forecasts after `RUNG`.

    The TD-VAEs start from the belief network of the trained next-step predictor.
    """
    models: dict[NetworkKind, NetworkRun] = {kind: run for kind, run in runs.items() if kind != "next_step"}
    if "next_step" in runs:
        runs["next_step"].advance(data, share, None if seconds is None else NEXT_STEP_BUDGET * seconds)
        for run in models.values():
            run.recipe.start_from(runs["next_step"].recipe.learner.model)
    budget = None
    if seconds is not None:
        budget = (TDVAE_BUDGET if "next_step" in runs else TDVAE_BUDGET + NEXT_STEP_BUDGET) * seconds
        budget /= 1 + RUNG * (len(models) - 1)
    if len(models) > 1:
        scores = {kind: run.advance(data, RUNG, budget) for kind, run in models.items()}
        kept: NetworkKind = "observed" if scores["observed"] < scores["latent"] - MARGIN else "latent"
        models = {kept: models[kept]}
    for run in models.values():
        run.advance(data, share, budget)


def _finish(
    folder: RunFolder,
    data: OwnData,
    runs: dict[NetworkKind, NetworkRun],
    seed: int,
    info: dict[str, Any],
    kept: bytes,
) -> None:
    """Combine what was fitted and write it to the run folder."""
    further, stack = {DATA_FILE: kept}, None
    if data.encoding.kind == "vector":
        stack = combined(data, {kind: run.recipe for kind, run in runs.items()}, seed)
        further[LINEAR_FILE] = safetensors.torch.save(
            {
                f"{name}/{key}": tensor
                for name, member in stack.members.items()
                if isinstance(member, Linear)
                for key, tensor in member.tensors().items()
            }
        )
    models = [kind for kind in runs if kind != "next_step"]
    main = models[0] if stack is None else stack.best(models)
    details = {
        "main": main,
        "steps": {kind: run.planned for kind, run in runs.items()},
        "trained": {kind: run._step for kind, run in runs.items()},
        "cpu_seconds": round(sum(run.cpu for run in runs.values()), 1),
        **({} if stack is None else describe_stack(stack)),
    }
    source = RunFolder(folder.path / FOLDER / main)
    for name in ("checkpoints", "tensorboard"):
        if (source.path / name).is_dir():
            shutil.copytree(source.path / name, folder.path / name, dirs_exist_ok=True)
    if (source.path / "metrics.jsonl").exists():
        shutil.copyfile(source.path / "metrics.jsonl", folder.path / "metrics.jsonl")
    config = {key: value for key, value in source.read_config().items() if key != "files"}
    folder.write_config({**config, "info": {**info, "forecaster": details}}, further)


def combined(data: OwnData, recipes: Mapping[NetworkKind, Recipe], seed: int) -> Stack:
    """The stack of linear forecasters and trained networks, weighted by forecasts of the validation part."""
    longest, seasons = data.longest_jump, data.seasons
    members: dict[str, Predictor] = {}
    linear = fit_linear(data.history, longest, scored_horizons(longest), seasons, context_of(data))
    if linear is not None:
        members["linear"] = linear
    if seasons:
        members["seasonal_naive"] = naive(data.history, longest, max(seasons))
    if linear is None:
        members["climatology"] = climatology(data.history, longest)
    for kind, made in recipes.items():
        members[kind] = Network(made.learner.model, longest)
    origins, horizons = validation_origins(data.validated, longest, MOST_ORIGINS)
    with seeded(seed):
        return fit_stack(members, next(iter(members)), data.validated.sequences, origins, horizons)


def context_of(data: OwnData) -> int | None:
    """How many observations are known before a forecast, if the data are cut into windows."""
    return None if data.window is None else data.window - data.longest_jump


def stored(own: OwnData) -> bytes:
    """The stored parts as a safetensors file, with tensors named PART.FIELD."""
    tensors = {
        f"{part}.{name}": tensor.contiguous()
        for part, sequences in own.stored.items()
        for name, tensor in sequences.named().items()
    }
    return safetensors.torch.save(tensors)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
