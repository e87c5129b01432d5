"""Training config, seeds, schedule, optimisers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from tdvae.errors import InputError
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

    steps: int = 20_000
    batch_size: int = 32  # sequences per training step, over all processes
    pairs: int = 32  # pairs (t1, t2) per sequence; the belief network runs once for all of them
    shuffle: bool = True  # visit the data in random order; False for data in the order of a curriculum
    optimizer: Literal["adam", "muon"] = "adam"  # muon: Muon for muon_matrices, Adam for all other parameters
    muon_matrices: Literal["inner", "all"] = "inner"  # those marked as inner, or all of suitable size
    learning_rate: float = 5e-4
    adam_beta2: float = 0.999  # lower values suit data that change during training, as in a curriculum
    muon_learning_rate: float = 0.01
    schedule: Literal["constant", "cosine"] = "constant"  # cosine: decays to 0 at the last step
    warmup: int = 0  # steps of linear warm-up
    clip: float = 10.0  # maximum gradient norm
    kl_start: float = 1.0  # initial weight of all loss terms but the observation's; it grows linearly to 1
    kl_warmup: float = 0.0  # fraction of the training during which this weight grows
    seed: int = 0
    validate_every: int = 1_000
    patience: int = 0  # stop after this many validations without a better one; 0: never
    checkpoint_every: int = 1_000
    log_every: int = 50
    accelerator: str = "auto"
    devices: int = 1  # processes per machine; several have to be started with torchrun
    nodes: int = 1  # number of machines
    # If bf16 fails on a virtual processor that reports AMX but does not support it, set
    # ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16.
    precision: Literal["32-true", "bf16-mixed", "64-true"] = "32-true"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "batch_size",
            "pairs",
            "validate_every",
            "checkpoint_every",
            "log_every",
            "devices",
            "nodes",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "muon_learning_rate", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name}: expected a positive number, got {value}")
        for name in ("kl_start", "kl_warmup"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: expected a number between 0 and 1, got {getattr(self, name)}")
        if not 0 < self.adam_beta2 < 1:
            raise InputError(f"adam_beta2: expected a number between 0 and 1, got {self.adam_beta2}")
        for name in ("seed", "warmup", "patience"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}: expected at least 0, got {getattr(self, name)}")
        if self.batch_size % (self.devices * self.nodes):
            raise InputError(
                f"batch_size: expected a multiple of the {self.devices * self.nodes} processes, got {self.batch_size}"
            )


RESUMABLE = ("steps", "warmup", "validate_every", "checkpoint_every", "log_every", "tensorboard")


def rate_factor(config: TrainConfig, step: int) -> float:
    """The factor of the learning rates at a step. It depends on the step only, so that a resumed run continues it."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "constant":
        return warm
    return warm * 0.5 * (1 + math.cos(math.pi * step / config.steps))


def kl_weight(config: TrainConfig, step: int) -> float:
    """The weight of all loss terms but the observation's at a step. It depends on the step only, like `rate_factor`."""
    grown = min(1.0, step / (config.kl_warmup * config.steps)) if config.kl_warmup else 1.0
    return config.kl_start + (1 - config.kl_start) * grown


def make_optimizers(config: TrainConfig, module: nn.Module) -> list[torch.optim.Optimizer]:
    """Adam for all parameters, or Muon for some matrices and Adam for all others."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if config.optimizer != "adam" and getattr(module, "stacked", False):
        raise InputError(f"optimizer: expected adam for a stack of runs, got {config.optimizer}")
    muon_ids: set[int] = set()
    if config.optimizer == "muon":
        muon_ids = {id(m.get_parameter("weight")) for m in module.modules() if getattr(m, "inner", False)}
        if config.muon_matrices == "all":
            muon_ids |= {
                id(p)
                for p in parameters
                if p.ndim == 2 and min(p.shape) > MUON_MIN_SIDE and max(p.shape) <= MUON_MAX_SIDE
            }
    muon_parameters = [p for p in parameters if id(p) in muon_ids]
    adam_parameters = [p for p in parameters if id(p) not in muon_ids]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Adam(adam_parameters, lr=config.learning_rate, betas=(0.9, config.adam_beta2))
    ]
    if muon_parameters:
        optimizers.append(Muon(muon_parameters, lr=config.muon_learning_rate))
    return optimizers


def derive_seed(*parts: int) -> int:
    """An independent seed for each combination of seed, purpose, step and rank.

    The random state of a run is thus determined by (seed, step). Trailing zeros have no effect: (3, 1) and (3, 1, 0)
    give the same seed, so different uses need different purposes.
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
