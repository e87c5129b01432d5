"""The training recipe for users' own sequences: one for `tdvae fit` and for Python."""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import safetensors.torch
import torch

from tdvae.checks import NonNegative, Positive, PositiveNumber, Seed, check_fields, checked
from tdvae.errors import InputError
from tdvae.forecasting.monitor import ForecastMonitor
from tdvae.forecasting.preparation import HeldOut, OwnData
from tdvae.jumps import Consecutive, InTurn, Jumps, Mixture, SemiGradient, Uniform, Widening
from tdvae.models import TDVAE, Classes, ConvTDVAEConfig, Waves, for_data, for_pictures
from tdvae.models.config import LatentConfig
from tdvae.models.defaults import check_classes
from tdvae.objectives import Learner
from tdvae.training import FitResult, Monitor, TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress
from tdvae.types import Sequences, SequenceSource

VALIDATIONS = 20  # per training
PATIENCE = 8  # validations without a better one, after which training stops
CURRICULUM = 0.35  # share of the training in which the longest jump grows from 2 steps to its final length
LAST_STAGE = 0.25  # share of the training with semi-gradients, if z alone is the state
SHORT = 10  # steps; z alone learns from as many jumps up to here as from all others
WARMUP = 200  # steps; at most a tenth of the training
LEAST_STEPS = 100  # of a training within a number of minutes
TRAINING_SHARE = 0.85  # of these minutes; the rest is for validation and evaluation
DATA_FILE = "data.safetensors"  # in a run folder

# What a dense model carries from step to step: its latent state and the observation, or the latent state alone.
StateKind = Literal["observed", "latent"]


@dataclass(frozen=True)
class Recipe:
    """A model with its objective, the jumps and the training config; `fit` trains and calibrates it.

    >>> import numpy as np, tdvae
    >>> recipe = tdvae.recipe(tdvae.data.from_arrays(np.random.randn(20, 30)), longest_jump=5)
    >>> recipe.jumps.longest
    5
    """

    learner: Learner
    jumps: Jumps
    config: TrainConfig
    state: StateKind = "latent"

    def __post_init__(self) -> None:
        check_fields(self)

    @checked
    def fit(
        self,
        data: SequenceSource | OwnData,
        validation: SequenceSource | None = None,
        run_dir: str | Path = "runs/own",
        resume: bool = False,
        info: dict[str, Any] | None = None,
        progress: Progress = "bar",
    ) -> FitResult:
        """Train with `tdvae.fit`. Forecasts of the validation sequences choose the weights and calibrate them.

        Prepared data have a validation part of their own, and the run keeps what it needs of them to be evaluated and
        to forecast. For pictures, whose forecasts take long, the loss chooses the weights.
        """
        files: dict[str, bytes] = {}
        if isinstance(data, OwnData):
            held_out, own = data.validated, data
            train, validation, info = own.train, own.validation, {**own.info(), "state": self.state, **(info or {})}
            files = {DATA_FILE: _stored(own)}
        else:
            train = data
            if validation is None:
                raise InputError("validation: expected sequences, unless the data come from tdvae.prepare; got None")
            held_out = HeldOut(validation.select(torch.arange(len(validation))))
        monitor, model = None, self.learner.model
        if isinstance(model, TDVAE) and not isinstance(model.config, ConvTDVAEConfig):
            monitor = self.monitor(held_out)
        return fit(
            self.learner, train, self.jumps, self.config, run_dir, validation, resume, info, progress, monitor, files
        )

    def monitor(self, held_out: HeldOut) -> ForecastMonitor:
        """Forecasts of held-out sequences by this model."""
        longest, model = self.jumps.longest, self.learner.model
        return ForecastMonitor.up_to(longest, model, held_out.sequences, self.config.seed, held_out.context)

    def describe(self) -> str:
        """The kind of model and its size, in words."""
        model = self.learner.model
        kind = "convolutional" if isinstance(model.config, ConvTDVAEConfig) else "dense"
        return f"{kind} TD-VAE with {sum(p.numel() for p in model.parameters()):,} parameters"

    @checked
    def seconds_per_step(self, data: SequenceSource | OwnData) -> float:
        """The time of a training step, measured on a copy of the model."""
        train = data.train if isinstance(data, OwnData) else data
        clock = _Clock()
        config = replace(self.config, steps=10, validate_every=2, checkpoint_every=10, tensorboard=False)
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
            fit(deepcopy(self.learner), train, self.jumps, config, Path(folder) / "run", progress="none", monitor=clock)
        return median(later - earlier for earlier, later in itertools.pairwise(clock.times)) / 2


class _Clock(Monitor):
    """Notes the time of each validation."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def measure(self) -> dict[str, float]:
        self.times.append(time.monotonic())
        return {}


def _stored(own: OwnData) -> bytes:
    """The stored parts as a safetensors file, with tensors named PART.FIELD."""
    tensors = {
        f"{part}.{name}": tensor.contiguous()
        for part, sequences in own.stored.items()
        for name, tensor in sequences.named().items()
    }
    return safetensors.torch.save(tensors)


@checked
def recipe(
    data: Sequences | OwnData,
    longest_jump: Positive | None = None,
    steps: Positive = 10_000,
    seed: Seed = 0,
    minutes: PositiveNumber | None = None,
    patience: NonNegative = PATIENCE,
    batch_size: Positive | None = None,
    state: StateKind | None = None,
    **model_options: Any,
) -> Recipe:
    """The model and the training that `tdvae fit` uses for sequences like ``data``, with a given state.

    `tdvae.candidates` trains several states and keeps the best.

    Args:
        data: the training sequences, or data from `tdvae.prepare`. They determine the likelihood, the kind of model
            (convolutional for pictures), the sizes and the standardisation.
        longest_jump: jumps of 1 to this many steps are learned; by default 10, or that of the prepared data.
        steps: training steps. The curriculum and the learning-rate schedule are shares of it.
        seed: seed of the initial weights and of the training.
        minutes: choose the number of steps for a training of about this many minutes, from the time of a few steps.
        patience: training stops after this many of its 20 validations without a better one, by default 8; 0: never.
        batch_size: sequences per training step.
        state: what the model carries from step to step. "observed": its latent state and the observation. "latent": the
            latent state alone, for very noisy observations. By default observed for vectors and classes.
        **model_options: fields of the model's config that differ from the defaults.

    >>> import numpy as np, tdvae
    >>> data = tdvae.data.from_arrays(np.sin(np.arange(40) * np.linspace(0.2, 0.6, 50)[:, None]))
    >>> recipe = tdvae.recipe(data, longest_jump=5, steps=100, latent=4)
    >>> recipe.config.schedule, recipe.learner.model.config.latent
    ('cosine', 4)

    To train: ``recipe.fit(data, validation, run_dir="runs/mine")``.
    """
    longest = _longest_jump(data, longest_jump)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        model = _model(data, longest, model_options if state is None else {"state": state, **model_options})
    config = _schedule(_train_config(model, seed, batch_size), steps, patience)
    made = Recipe(Learner(model), _jumps(model, longest), config, getattr(model.config, "state", "latent"))
    if minutes is None:
        return made
    affordable = int(TRAINING_SHARE * 60 * minutes / made.seconds_per_step(data))
    return replace(made, config=_schedule(config, max(LEAST_STEPS, affordable), patience))


def _longest_jump(data: Sequences | OwnData, given: int | None) -> int:
    if not isinstance(data, OwnData):
        return 10 if given is None else given
    if given not in (None, data.longest_jump):
        raise InputError(f"longest_jump: expected {data.longest_jump}, as the data were prepared for, got {given}")
    return data.longest_jump


def _model(data: Sequences | OwnData, longest_jump: int, options: dict[str, Any]) -> TDVAE:
    dt = Waves(max(8, math.ceil(math.log2(longest_jump)) + 1))  # δt up to twice the longest jump is distinguished
    if isinstance(data, OwnData):
        some = data.history
        if data.encoding.kind == "picture":
            if options.pop("state", "latent") != "latent":
                raise InputError("state: expected latent, the default, for pictures, got observed")
            return for_pictures(
                tuple(some.x.shape[2:]), data.encoding.actions, rewards=some.rewards is not None, **options
            )
        if data.encoding.classes is not None:
            check_classes(data.encoding.classes, tuple(some.x.shape[2:]))
            options = {"decoder": Classes(data.encoding.classes), **options}
        return for_data(some, **{"dt": dt, **options})
    return for_data(data, **{"dt": dt, **options})


def _jumps(model: TDVAE, longest: int) -> Jumps:
    """Jumps that widen. Without x in the state, p_B must be as narrow as a filter: semi-gradients see to that.

    See docs/oscillator.md. With x in the state they make no difference.
    """
    config = model.config
    if not isinstance(config, LatentConfig) or config.state == "observed":
        return Widening(Uniform(1, longest), start=2, until=CURRICULUM)
    jumps: Jumps = Uniform(1, longest)
    if longest > SHORT:
        jumps = Mixture((Uniform(1, SHORT), jumps), (0.5, 0.5))
    switch = 1 - LAST_STAGE
    last_stage = SemiGradient(Mixture((Consecutive(), jumps), (0.5, 0.5)))
    return InTurn(Widening(jumps, start=2, until=CURRICULUM / switch), last_stage, switch)


def _train_config(model: TDVAE, seed: int, batch_size: int | None) -> TrainConfig:
    """The optimiser and the batches; those of pictures are the first-person experiment's."""
    pictures = isinstance(model.config, ConvTDVAEConfig)
    return TrainConfig(
        batch_size=batch_size if batch_size is not None else 8 if pictures else 32,
        pairs=8 if pictures else 32,
        optimizer="muon",
        muon_matrices="inner" if pictures else "all",
        learning_rate=3e-3 if pictures else 2e-3,
        muon_learning_rate=0.1 if pictures else 0.01,
        clip=10.0 if pictures else 1.0,
        schedule="cosine",
        seed=seed,
    )


def _schedule(config: TrainConfig, steps: int, patience: int) -> TrainConfig:
    interval = max(1, steps // VALIDATIONS)
    return replace(
        config,
        steps=steps,
        warmup=min(WARMUP, steps // 10),
        patience=patience,
        validate_every=interval,
        checkpoint_every=interval,
    )
