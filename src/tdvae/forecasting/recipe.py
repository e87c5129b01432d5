"""The training recipe for users' own sequences: one for `tdvae fit` and for Python."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae.errors import InputError
from tdvae.forecasting.calibration import HORIZONS, MOST_ORIGINS, calibrate, is_lower
from tdvae.forecasting.evaluation import model_scores
from tdvae.forecasting.linear import fit_linear_part
from tdvae.forecasting.origins import CONTEXT_SHARE, Origins, rolling_origins
from tdvae.jumps import Jumps, Uniform, Widening
from tdvae.models import TDVAE, for_data
from tdvae.objectives import Learner
from tdvae.training import FitResult, TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress
from tdvae.types import Sequences

VALIDATIONS = 20  # per training
CURRICULUM = 0.35  # share of the training in which the longest jump grows from 2 steps to its final length
WARMUP = 200  # steps; at most a tenth of the training
SCORE_SAMPLES = 30  # of each forecast in a validation
MOST_LAGS, MOST_NUMBERS = 36, 240  # of the linear part: last observations, and numbers in them
MOST_LINEAR_JUMPS = 100


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

    def fit(
        self,
        data: Sequences,
        validation: Sequences,
        run_dir: str | Path,
        resume: bool = False,
        info: dict[str, Any] | None = None,
        progress: Progress = "bar",
        origins: Origins | None = None,
    ) -> FitResult:
        """Train with `tdvae.fit`, then calibrate the forecasts on the validation sequences.

        Before training, the linear part of the model is fitted by least squares. The weights that are kept have the best
        forecasts of the validation sequences, in NLL over all δt; ``origins`` are the places where these forecasts
        begin. If training has not improved them by more than two standard errors, the model stays the linear
        regression that it started from.
        """
        model = self.learner.model
        assert isinstance(model, TDVAE)
        at = (rolling_origins(validation) if origins is None else origins).at_most(MOST_ORIGINS)
        linear = fit_linear_part(model, data, validation, at)
        initial = copy.deepcopy(self.learner.state_dict())
        score = ForecastScore.on(validation, at, self.jumps.longest)

        def finish() -> dict[str, float]:
            if linear is not None and score is not None and not score.improved(self.learner, initial):
                self.learner.load_state_dict(initial)
            found = calibrate(model, validation, self.jumps.longest, self.config.seed, at)
            return {} if found is None else {f"calibration/{name}": value for name, value in asdict(found).items()}

        return fit(
            self.learner,
            data,
            self.jumps,
            self.config,
            run_dir,
            validation,
            resume,
            info,
            progress,
            finish=finish,
            score=None if score is None else partial(score.mean, self.learner),
        )


@dataclass(frozen=True)
class ForecastScore:
    """The NLL of forecasts of validation sequences, per dimension. It draws the same noise every time."""

    validation: Sequences
    origins: dict[int, Origins]  # by δt

    @classmethod
    def on(cls, validation: Sequences, origins: Origins, longest_jump: int) -> ForecastScore | None:
        """None if no sequence is long enough for a forecast."""
        by_dt = {dt: origins.with_target(validation, dt) for dt in HORIZONS if dt <= longest_jump}
        used = {dt: at for dt, at in by_dt.items() if len(at)}
        return cls(validation, used) if used else None

    def nll(self, learner: Learner) -> list[Tensor]:
        """For each δt, the NLL at every origin."""
        scores = model_scores(learner.model, self.validation, self.validation, self.origins, 0, SCORE_SAMPLES)
        return [each.nll for each in scores.values()]

    def mean(self, learner: Learner) -> float:
        """The mean over origins, then over δt."""
        found = self.nll(learner)
        return sum(float(each.mean()) for each in found) / len(found)

    def improved(self, learner: Learner, initial: dict[str, Tensor]) -> bool:
        """Whether the learner is better than with its initial weights, by more than two standard errors."""
        before = copy.deepcopy(learner)
        before.load_state_dict(initial)
        return is_lower(self.nll(learner), self.nll(before), [at.block for at in self.origins.values()])


def recipe(data: Sequences, longest_jump: int = 10, steps: int = 10_000, seed: int = 0, **model_options: Any) -> Recipe:
    """The model and the training that `tdvae fit` uses for sequences like ``data``.

    Args:
        data: the training sequences. They determine the likelihood, the sizes and the standardisation.
        longest_jump: jumps of 1 to this many steps are learned.
        steps: training steps. The curriculum and the learning-rate schedule are shares of it.
        seed: seed of the initial weights and of the training.
        **model_options: fields of `TDVAEConfig` that differ from those of `tdvae.models.for_data`.

    >>> import numpy as np, tdvae
    >>> data = tdvae.data.from_arrays(np.sin(np.arange(40) * np.linspace(0.2, 0.6, 50)[:, None]))
    >>> recipe = tdvae.recipe(data, longest_jump=5, steps=100, latent=4)
    >>> recipe.config.schedule, recipe.learner.model.config.latent
    ('cosine', 4)

    To train: ``recipe.fit(data, validation, run_dir="runs/mine")``.
    """
    for name, value in (("longest_jump", longest_jump), ("steps", steps)):
        if value < 1:
            raise InputError(f"{name}: expected at least 1, got {value}")
    interval = max(1, steps // VALIDATIONS)
    config = TrainConfig(
        steps=steps,
        optimizer="muon",
        muon_matrices="all",
        learning_rate=2e-3,
        clip=1.0,
        schedule="cosine",
        warmup=min(WARMUP, steps // 10),
        seed=seed,
        validate_every=interval,
        checkpoint_every=interval,
    )
    octaves = max(8, math.ceil(math.log2(longest_jump)) + 1)  # δt up to twice the longest jump is distinguished
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        model = for_data(
            data, **{"octaves": octaves, **_linear_part(data, longest_jump, model_options), **model_options}
        )
    return Recipe(Learner(model), Widening(Uniform(1, longest_jump), start=2, until=CURRICULUM), config)


def _linear_part(data: Sequences, longest_jump: int, options: dict[str, Any]) -> dict[str, int]:
    """The size of the linear part, for vectors of numbers; none if an option rules it out."""
    ruled_out = ("likelihood", "observed_state", "noise", "max_latent_dt", "smoothing_sees_b2")
    size = math.prod(data.x.shape[2:])
    if not data.x.is_floating_point() or data.x.ndim != 3 or size > MOST_NUMBERS or options.keys() & set(ruled_out):
        return {}
    lags = min(MOST_LAGS, MOST_NUMBERS // size, math.ceil(int(data.lengths.max()) / CONTEXT_SHARE))
    return {"linear_jumps": min(longest_jump, MOST_LINEAR_JUMPS), "lags": max(1, lags)}
