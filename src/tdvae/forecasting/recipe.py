"""The training recipe for users' own sequences: one for `tdvae fit` and for Python."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tdvae.checks import Positive, Seed, check_fields, checked
from tdvae.forecasting.calibration import calibrate
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

    def __post_init__(self) -> None:
        check_fields(self)

    @checked
    def fit(
        self,
        data: Sequences,
        validation: Sequences,
        run_dir: str | Path,
        resume: bool = False,
        info: dict[str, Any] | None = None,
        progress: Progress = "bar",
    ) -> FitResult:
        """Train with `tdvae.fit`, then calibrate the forecasts on the validation sequences."""

        def finish() -> dict[str, float]:
            assert isinstance(self.learner.model, TDVAE)
            found = calibrate(self.learner.model, validation, self.jumps.longest, self.config.seed)
            return {} if found is None else {f"calibration/{name}": value for name, value in asdict(found).items()}

        return fit(
            self.learner, data, self.jumps, self.config, run_dir, validation, resume, info, progress, finish=finish
        )


@checked
def recipe(
    data: Sequences, longest_jump: Positive = 10, steps: Positive = 10_000, seed: Seed = 0, **model_options: Any
) -> Recipe:
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
        model = for_data(data, **{"octaves": octaves, **model_options})
    return Recipe(Learner(model), Widening(Uniform(1, longest_jump), start=2, until=CURRICULUM), config)
