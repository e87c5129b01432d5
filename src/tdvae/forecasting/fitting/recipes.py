"""The training recipe of the networks for users' own sequences: one for `tdvae fit` and for Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from tdvae.checks import NonNegative, Positive, Seed, check_fields, checked
from tdvae.errors import InputError
from tdvae.forecasting.fitting.monitor import ValidationForecasts
from tdvae.forecasting.preparation import HeldOut, OwnData
from tdvae.jumps import Consecutive, Jumps, Mixture, SemiGradient, Uniform
from tdvae.models import (
    LSTM,
    TDVAE,
    Classes,
    ConvTDVAEConfig,
    Gaussian,
    Model,
    NextStepConfig,
    ResidualMaps,
    Waves,
    build,
    for_data,
    for_pictures,
)
from tdvae.models.defaults import check_classes
from tdvae.objectives import Learner, tdvae_loss
from tdvae.training import FitResult, TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress
from tdvae.types import Sequences, SequenceSource

STEPS = 2_000
VALIDATIONS, LEAST_INTERVAL = 20, 25  # per training, and the least number of steps between them
PATIENCE = 8  # validations without a better one, after which training stops
WARMUP = 200  # steps; at most a tenth of the training
CONSECUTIVE = 0.5  # share of the pairs with δt = 1; the others have δt up to the longest jump
BELIEF = HIDDEN = 96

# A next-step predictor, a TD-VAE that carries from step to step its latent state alone, or also the observation, or a
# TD-VAE of pixels
NetworkKind = Literal["next_step", "latent", "observed", "convolutional"]
OF_CODES: dict[str, Any] = {  # sizes of a TD-VAE of codes, those of the first-person experiment
    "encoder": (192,),
    "belief": LSTM(192, input_skip=1),
    "maps": ResidualMaps(128),
    "layers": 3,
    "latent": 20,
}


@dataclass(frozen=True)
class Recipe:
    """A model with its objective, the jumps and the training config; `fit` trains it.

    >>> import numpy as np, tdvae
    >>> recipe = tdvae.recipe(tdvae.data.from_arrays(np.random.randn(20, 30)), longest_jump=5)
    >>> recipe.jumps.longest
    5
    """

    learner: Learner
    jumps: Jumps
    config: TrainConfig
    kind: NetworkKind = "latent"

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
        files: Mapping[str, bytes] | None = None,
        until: int | None = None,
    ) -> FitResult:
        """Train with `tdvae.fit`. Forecasts of the validation sequences choose the weights.

        The loss cannot choose them: with semi-gradients it grows while the forecasts improve. For pictures, whose
        forecasts take long, it does. Prepared data have a validation part of their own.
        """
        if isinstance(data, OwnData):
            held_out, train, validation = data.validated, data.train, data.validation
        else:
            if validation is None:
                raise InputError("validation: expected sequences, unless the data come from tdvae.prepare; got None")
            held_out, train = HeldOut(validation.select(torch.arange(len(validation)))), data
        model, monitor = self.learner.model, None
        if not isinstance(model.config, ConvTDVAEConfig):
            monitor = ValidationForecasts.of(model, held_out, self.jumps.longest, self.config.seed)
        return fit(
            self.learner,
            train,
            self.jumps,
            self.config,
            run_dir,
            validation,
            resume,
            info,
            progress,
            monitor,
            files,
            until,
        )

    def start_from(self, predictor: Model) -> None:
        """Take over the encoder and the belief network of a trained next-step predictor, if the sizes agree."""
        own, shared = self.learner.model.state_dict(), ("encoder.", "belief.")
        trained = {name.replace("belief.network.", "belief."): v for name, v in predictor.state_dict().items()}
        taken = {name: v for name, v in trained.items() if name.startswith(shared)}
        if all(name in own and own[name].shape == value.shape for name, value in taken.items()):
            self.learner.model.load_state_dict({**own, **taken})

    def describe(self) -> str:
        """The kind of model and its size, in words."""
        model = self.learner.model
        names = {"next_step": "next-step predictor", "latent": "TD-VAE", "observed": "TD-VAE with observed state"}
        name = names.get(self.kind, "convolutional TD-VAE")
        return f"{name} with {sum(p.numel() for p in model.parameters()):,} parameters"


@checked
def recipe(
    data: Sequences | OwnData,
    longest_jump: Positive | None = None,
    steps: Positive = STEPS,
    seed: Seed = 0,
    patience: NonNegative = PATIENCE,
    batch_size: Positive | None = None,
    kind: NetworkKind | None = None,
    **model_options: Any,
) -> Recipe:
    """One of the models that `tdvae.fit_forecaster` trains for sequences like ``data``, with its training.

    Args:
        data: the training sequences, or data from `tdvae.prepare`. They determine the likelihood, the kind of model
            (convolutional for pictures that are not codes) and the sizes.
        longest_jump: jumps of 1 to this many steps are learned; by default 10, or that of the prepared data.
        steps: training steps. The learning-rate schedule is a share of it.
        seed: seed of the initial weights and of the training.
        patience: training stops after this many of its 20 validations without a better one, by default 8; 0: never.
        batch_size: sequences per training step.
        kind: "latent": a TD-VAE with its latent state alone; "observed": the state also has the last observation;
            "next_step": a plain next-step predictor; "convolutional": a TD-VAE of pixels. By default latent, observed
            for classes and bits, and convolutional for pictures.
        **model_options: fields of the model's config that differ from the defaults; ``belief`` may be the size of the
            LSTM.

    >>> import numpy as np, tdvae
    >>> data = tdvae.data.from_arrays(np.sin(np.arange(40) * np.linspace(0.2, 0.6, 50)[:, None]))
    >>> recipe = tdvae.recipe(data, longest_jump=5, steps=100, latent=4)
    >>> recipe.config.schedule, recipe.learner.model.config.latent
    ('cosine', 4)

    To train: ``recipe.fit(data, validation, run_dir="runs/mine")``.
    """
    longest = _longest_jump(data, longest_jump)
    kind = default_kind(data) if kind is None else kind
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        model = _model(data, longest, kind, model_options)
    config = schedule(_train_config(model, seed, batch_size), steps, patience)
    objective = partial(tdvae_loss, gradient="path") if isinstance(model, TDVAE) else None
    jumps = SemiGradient(Mixture((Consecutive(), Uniform(1, longest)), (CONSECUTIVE, 1 - CONSECUTIVE)))
    return Recipe(Learner(model, objective), jumps, config, kind)


def default_kind(data: Sequences | OwnData) -> NetworkKind:
    if _of_pixels(data):
        return "convolutional"
    x = (data.history if isinstance(data, OwnData) else data).x
    return "latent" if x.is_floating_point() or (x.dtype == torch.bool and x.ndim > 3) else "observed"


def _of_pixels(data: Sequences | OwnData) -> bool:
    return isinstance(data, OwnData) and data.encoding.kind == "picture" and data.encoding.codec is None


def _longest_jump(data: Sequences | OwnData, given: int | None) -> int:
    if not isinstance(data, OwnData):
        return 10 if given is None else given
    if given not in (None, data.longest_jump):
        raise InputError(f"longest_jump: expected {data.longest_jump}, as the data were prepared for, got {given}")
    return data.longest_jump


def _model(data: Sequences | OwnData, longest_jump: int, kind: NetworkKind, options: dict[str, Any]) -> Model:
    """The only place where models for users' data are built."""
    some, classes = (data.history, data.encoding.classes) if isinstance(data, OwnData) else (data, None)
    if _of_pixels(data) != (kind == "convolutional"):
        raise InputError(f"kind: expected {default_kind(data)} for these data, got {kind}")
    if isinstance(data, OwnData) and kind == "convolutional":
        return for_pictures(tuple(some.x.shape[2:]), data.encoding.actions, rewards=some.rewards is not None, **options)
    if type(size := options.get("belief")) is int:
        if size < 1:
            raise InputError(f"belief: expected a size of at least 1, got {size}")
        options = {**options, "belief": LSTM(size)}
    if kind == "next_step":
        if not some.x.is_floating_point():
            raise InputError(f"kind: expected latent or observed for x of {some.x.dtype}, got next_step")
        settings: dict[str, Any] = {
            "event_shape": tuple(some.x.shape[2:]),
            "actions": 0 if some.actions is None else some.actions.shape[-1],
            "belief": LSTM(BELIEF),
            "decoder": Gaussian((HIDDEN,), noise="predicted", missing_values=some.observed is not None),
        }
        known = {name: value for name, value in options.items() if name in ("belief", "decoder")}
        return build(NextStepConfig(**{**settings, **known}))
    settings = {
        "belief": LSTM(BELIEF),
        "maps": ResidualMaps(HIDDEN),
        **(OF_CODES if isinstance(data, OwnData) and data.encoding.codec is not None else {}),
        "readout": None,
        "drift": "residual",
        "init_log_sigma": -2.0,
        "dt": Waves(max(8, math.ceil(math.log2(longest_jump)) + 1)),  # δt up to twice the longest jump is distinguished
        "state": "observed" if kind == "observed" else "latent",
    }
    if classes is not None:
        check_classes(classes, tuple(some.x.shape[2:]))
        settings["decoder"] = Classes(classes)
    return for_data(some, **{**settings, **options})


def _train_config(model: Model, seed: int, batch_size: int | None) -> TrainConfig:
    """The optimiser and the batches; those of pictures are the first-person experiment's.

    A next-step predictor learns fast, and overfits in a long training before the rates have decayed. With a restart its
    forecasts of the validation part choose between a short training and a longer one.
    """
    pictures = isinstance(model.config, ConvTDVAEConfig)
    fast = isinstance(model, TDVAE)
    return TrainConfig(
        batch_size=batch_size if batch_size is not None else 8 if pictures else 32,
        pairs=8 if pictures else 32,
        optimizer="muon",
        muon_matrices="inner" if pictures else "all",
        learning_rate=3e-3 if pictures else 4e-3 if fast else 2e-3,
        muon_learning_rate=0.1 if pictures else 0.02 if fast else 0.01,
        clip=10.0 if pictures else 1.0,
        schedule="cosine" if fast or pictures else "restart",
        seed=seed,
    )


def schedule(config: TrainConfig, steps: int, patience: int) -> TrainConfig:
    """The config of a training of so many steps."""
    interval = min(steps, max(LEAST_INTERVAL, steps // VALIDATIONS))
    return replace(
        config,
        steps=steps,
        warmup=min(WARMUP, steps // 10),
        patience=patience,
        validate_every=interval,
        checkpoint_every=interval,
    )
