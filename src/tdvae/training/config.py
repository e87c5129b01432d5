"""What a training is told, and what follows from it: seeds, schedule, optimisers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from tdvae.errors import InputError
from tdvae.training.muon import Muon

THIN, LONG = 8, 600  # sides of a matrix: thinner ones have few directions to orthogonalise, longer ones cost too much


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training. Only what is in ``RESUMABLE`` may change on resume.

    >>> import tdvae
    >>> config = tdvae.TrainConfig(steps=5_000, schedule="cosine")
    >>> config.learning_rate
    0.0005
    """

    steps: int = 20_000
    batch_size: int = 32  # sequences per step, over all processes
    pairs: int = 32  # pairs (t1, t2) per sequence, all on one encoding
    shuffle: bool = True  # visit the data in a random order; without, in their own: a curriculum's
    optimizer: Literal["adam", "muon"] = "adam"  # muon: for the matrices named below, and Adam for the rest
    muon_matrices: Literal["inner", "all"] = "inner"  # those that modules mark as inner, or all of a fitting size
    learning_rate: float = 5e-4
    adam_beta2: float = 0.999  # lower: squared gradients are soon forgotten, for data that change as in a curriculum
    muon_learning_rate: float = 0.01
    schedule: Literal["constant", "cosine"] = "constant"  # cosine: decays to 0 at the last step
    warmup: int = 0  # steps of linear warm-up
    clip: float = 10.0  # largest gradient norm
    kl_start: float = 1.0  # weight of the loss's terms of z at the first step; it grows linearly to 1
    kl_warmup: float = 0.0  # share of the training during which it grows
    seed: int = 0
    validate_every: int = 1_000
    checkpoint_every: int = 1_000
    log_every: int = 50
    accelerator: str = "auto"
    devices: int = 1  # processes on each machine; more than one are started by torchrun
    nodes: int = 1  # machines
    # bf16 on a virtual processor that announces AMX without offering it: set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
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
                raise InputError(f"{name}: expected between 0 and 1, got {getattr(self, name)}")
        if not 0 < self.adam_beta2 < 1:
            raise InputError(f"adam_beta2: expected between 0 and 1, got {self.adam_beta2}")
        if self.seed < 0 or self.warmup < 0:
            raise InputError(f"seed and warmup: expected at least 0, got {self.seed} and {self.warmup}")
        if self.batch_size % (self.devices * self.nodes):
            raise InputError(
                f"batch_size: {self.batch_size} sequences cannot be shared evenly by "
                f"{self.devices * self.nodes} processes"
            )


RESUMABLE = ("steps", "warmup", "validate_every", "checkpoint_every", "log_every", "tensorboard")


def rate_factor(config: TrainConfig, step: int) -> float:
    """What the learning rates are multiplied with at a step: a pure function, so that a resumed run continues it."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "constant":
        return warm
    return warm * 0.5 * (1 + math.cos(math.pi * step / config.steps))


def kl_weight(config: TrainConfig, step: int) -> float:
    """The weight of the loss's terms of z at a step: a pure function, as `rate_factor`."""
    grown = min(1.0, step / (config.kl_warmup * config.steps)) if config.kl_warmup else 1.0
    return config.kl_start + (1 - config.kl_start) * grown


def make_optimizers(config: TrainConfig, module: nn.Module) -> list[torch.optim.Optimizer]:
    """Adam for all parameters, or Muon for some matrices and Adam for the rest."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if config.optimizer != "adam" and getattr(module, "stacked", False):
        raise InputError(f"optimizer: a stack's matrices belong to many runs, expected adam, got {config.optimizer}")
    chosen: set[int] = set()
    if config.optimizer == "muon":
        chosen = {id(m.get_parameter("weight")) for m in module.modules() if getattr(m, "inner", False)}
        if config.muon_matrices == "all":
            chosen |= {id(p) for p in parameters if p.ndim == 2 and min(p.shape) > THIN and max(p.shape) <= LONG}
    inner = [p for p in parameters if id(p) in chosen]
    rest = [p for p in parameters if id(p) not in chosen]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Adam(rest, lr=config.learning_rate, betas=(0.9, config.adam_beta2))
    ]
    if inner:
        optimizers.append(Muon(inner, lr=config.muon_learning_rate))
    return optimizers


def derive_seed(*parts: int) -> int:
    """An independent seed for each purpose, step and rank: the whole random state of a run is (seed, step).

    Zeros at the end do not count, (3, 1) and (3, 1, 0) are one seed: what must differ needs another purpose.
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
