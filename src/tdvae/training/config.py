"""Training config, seeds, schedule, optimisers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch

from tdvae.checks import NonNegative, Positive, PositiveNumber, Range, Seed, Share, check_fields
from tdvae.errors import InputError
from tdvae.objectives import Learner
from tdvae.training.muon import Muon

# With muon_matrices="all", Muon updates matrices with sides above the minimum, since smaller ones have few directions
# to orthogonalise, and at most the maximum, since larger ones cost too much.
MUON_MIN_SIDE, MUON_MAX_SIDE = 8, 600


@dataclass(frozen=True)
class TrainConfig:
    """Config of a training run. On resume, only the fields in ``RESUMABLE`` may change.

    >>> import tdvae
    >>> config = tdvae.TrainConfig(steps=5_000, schedule="cosine")
    >>> config.learning_rate
    0.0005
    """

    steps: Positive = 20_000
    batch_size: Annotated[int, Range(1, 1_000_000)] = 32  # sequences per training step, over all processes
    pairs: Annotated[int, Range(1, 1_000_000)] = (
        32  # pairs (t1, t2) per sequence; the belief network runs once for all of them
    )
    shuffle: bool = True  # visit the data in random order; False for data in the order of a curriculum
    optimizer: Literal["adam", "muon"] = "adam"  # muon: Muon for muon_matrices, Adam for all other parameters
    muon_matrices: Literal["inner", "all"] = "inner"  # those marked as inner, or all of suitable size
    learning_rate: PositiveNumber = 5e-4
    # Lower values suit data that change during training, as in a curriculum.
    adam_beta2: Annotated[float, Range(above=0, below=1)] = 0.999
    muon_learning_rate: PositiveNumber = 0.01
    # cosine: decays to 0 at the last step; restart: does so after a third of the steps, too, and starts anew from there
    schedule: Literal["constant", "cosine", "restart"] = "constant"
    warmup: NonNegative = 0  # steps of linear warm-up
    clip: PositiveNumber = 10.0  # maximum gradient norm
    kl_start: Share = 1.0  # initial weight of all loss terms but the observation's; it grows linearly to 1
    kl_warmup: Share = 0.0  # fraction of the training during which this weight grows
    seed: Seed = 0
    validate_every: Positive = 1_000
    patience: NonNegative = 0  # stop after this many validations without a better one; 0: never
    checkpoint_every: Positive = 1_000
    log_every: Positive = 50
    accelerator: str = "auto"
    devices: Positive = 1  # processes per machine; several have to be started with torchrun
    nodes: Positive = 1  # number of machines
    # If bf16 fails on a virtual processor that reports AMX but does not support it, set
    # ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16.
    precision: Literal["32-true", "bf16-mixed", "64-true"] = "32-true"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch_size % (self.devices * self.nodes):
            raise InputError(
                f"batch_size: expected a multiple of the {self.devices * self.nodes} processes, got {self.batch_size}"
            )


# The number of processes may change, because the noise belongs to the sequences: the loss is the same up to rounding.
RESUMABLE = ("steps", "warmup", "validate_every", "checkpoint_every", "log_every", "devices", "nodes", "tensorboard")


def rate_factor(config: TrainConfig, step: int) -> float:
    """The factor of the learning rates at a step. It depends on the step only, so that a resumed run continues it."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "constant":
        return warm
    progress = step / config.steps
    if config.schedule == "restart":  # a warm restart (Loshchilov & Hutter 2017)
        progress = 3 * progress if progress < 1 / 3 else (3 * progress - 1) / 2
    return warm * 0.5 * (1 + math.cos(math.pi * progress))


def kl_weight(config: TrainConfig, step: int) -> float:
    """The weight of all loss terms but the observation's at a step. It depends on the step only, like `rate_factor`."""
    grown = min(1.0, step / (config.kl_warmup * config.steps)) if config.kl_warmup else 1.0
    return config.kl_start + (1 - config.kl_start) * grown


def make_optimizers(config: TrainConfig, learner: Learner) -> list[torch.optim.Optimizer]:
    """Adam for all parameters, or Muon for some matrices and Adam for all others."""
    parameters = [p for p in learner.parameters() if p.requires_grad]
    muon_ids: set[int] = set()
    if config.optimizer == "muon":
        muon_ids = {id(weight) for weight in learner.inner_weights()}
        if config.muon_matrices == "all":
            muon_ids |= {id(p) for p in parameters if _is_suitable(p.shape[1:] if learner.stacked else p.shape)}
    muon_parameters = [p for p in parameters if id(p) in muon_ids]
    adam_parameters = [p for p in parameters if id(p) not in muon_ids]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Adam(adam_parameters, lr=config.learning_rate, betas=(0.9, config.adam_beta2))
    ]
    if muon_parameters:
        optimizers.append(Muon(muon_parameters, lr=config.muon_learning_rate))
    return optimizers


def _is_suitable(shape: torch.Size) -> bool:
    """Whether Muon updates a matrix of this shape with ``muon_matrices="all"``."""
    return len(shape) == 2 and min(shape) > MUON_MIN_SIDE and max(shape) <= MUON_MAX_SIDE


def derive_seed(*parts: int) -> int:
    """An independent seed for each combination of seed, purpose, step and rank.

    The random state of a run is thus determined by (seed, step). Trailing zeros have no effect: (3, 1) and (3, 1, 0)
    give the same seed, so different uses need different purposes.
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
