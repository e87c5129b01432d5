"""A recipe for composition and two variants of the oscillator: jumps that widen, and calibration after training."""

from __future__ import annotations

import math
from typing import Any

import torch

from tdvae.jumps import Consecutive, InTurn, Jumps, Mixture, SemiGradient, Uniform, Widening
from tdvae.models import Waves, for_data
from tdvae.objectives import Learner
from tdvae.training import TrainConfig
from tdvae.training.config import derive_seed
from tdvae.types import Sequences, SequenceSource
from tdvae_paper.experiment import Training
from tdvae_paper.monitor import ForecastMonitor

CURRICULUM = 0.35  # share of the training in which the longest jump grows from 2 steps to its final length
LAST_STAGE = 0.25  # share of the training with semi-gradients, if z alone is the state
SHORT = 10  # steps; z alone learns from as many jumps up to here as from all others
VALIDATIONS = 20


def curriculum(
    data: Sequences,
    validation: SequenceSource,
    longest_jump: int,
    steps: int,
    seed: int,
    observed_state: bool = True,
    patience: int = 8,
    **options: Any,
) -> Training:
    """The training of a model that fits the data.

    Without x in the state, p_B must be as narrow as a filter: semi-gradients in the last stage see to that, see
    docs/oscillator.md. With x in the state they make no difference.
    """
    dt = Waves(max(8, math.ceil(math.log2(longest_jump)) + 1))
    state = "observed" if observed_state else "latent"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        model = for_data(data, **{"dt": dt, "state": state, **options})
    interval = max(1, steps // VALIDATIONS)
    config = TrainConfig(
        optimizer="muon",
        muon_matrices="all",
        learning_rate=2e-3,
        muon_learning_rate=0.01,
        clip=1.0,
        schedule="cosine",
        seed=seed,
        steps=steps,
        warmup=min(200, steps // 10),
        patience=patience,
        validate_every=interval,
        checkpoint_every=interval,
    )
    chosen = validation.select(torch.arange(len(validation)))
    monitor = ForecastMonitor.up_to(longest_jump, model, chosen, seed)
    return Training(Learner(model), data, _widening(longest_jump, observed_state), config, validation, monitor=monitor)


def _widening(longest: int, observed_state: bool) -> Jumps:
    if observed_state:
        return Widening(Uniform(1, longest), start=2, until=CURRICULUM)
    jumps: Jumps = Uniform(1, longest)
    if longest > SHORT:
        jumps = Mixture((Uniform(1, SHORT), jumps), (0.5, 0.5))
    switch = 1 - LAST_STAGE
    last_stage = SemiGradient(Mixture((Consecutive(), jumps), (0.5, 0.5)))
    return InTurn(Widening(jumps, start=2, until=CURRICULUM / switch), last_stage, switch)
