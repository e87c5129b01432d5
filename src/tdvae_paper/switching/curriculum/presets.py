"""Presets of the experiment with a curriculum: the grid of cells, the models of both methods, the curriculum."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from tdvae.errors import InputError
from tdvae.jumps import Consecutive, Jumps, Mixture, Uniform, Widening
from tdvae.models.config import RecurrentConfig
from tdvae.objectives import Objective, next_step_loss, tdvae_loss
from tdvae.training import TrainConfig
from tdvae.training.config import derive_seed
from tdvae_paper.switching.grid import STAGES, TRAIN, Grid, next_step_config, tdvae_config
from tdvae_paper.switching.pairs import UNINFORMATIVE_STEPS, Around, Bridging
from tdvae_paper.switching.simulation import LAST, OPENING, SwitchingCurriculum, SwitchingSettings

METHODS: dict[str, Objective] = {"tdvae": tdvae_loss, "next_step": next_step_loss}


@dataclass(frozen=True, kw_only=True)
class Preset(Grid):
    """A grid of cells and its training settings, the same for both methods."""

    stages: tuple[tuple[int, int], ...]  # the curriculum: (interval, training steps)
    mixed: float = 0.5  # share of the steps whose interval is uniform on 1 … the stage's interval
    sizes: tuple[int, ...] = (10, 40, 128)
    intervals: tuple[int, ...] = (20, 50, 100)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stages:
            raise InputError("stages: expected at least one entry, got none")
        if max(self.intervals) > max(interval for interval, _ in self.stages):
            raise InputError(f"intervals: expected at most the longest interval of the stages, got {self.intervals}")


# docs/switching.md explains these choices.
_TRAIN = TrainConfig(
    batch_size=32,
    pairs=32,
    learning_rate=5e-3,
    adam_beta2=0.99,
    schedule="cosine",
    warmup=50,
    clip=10.0,
    validate_every=500,
    checkpoint_every=500,
    accelerator="cpu",
)

PRESETS = {
    "smoke": Preset(
        train=replace(_TRAIN, batch_size=4, pairs=4, validate_every=3, checkpoint_every=3, log_every=3),
        stages=((2, 3), (4, 3)),
        sizes=(4, 6),
        intervals=(2, 4),
        runs=2,
        probe="logistic",
        probe_sequences=60,
        watched_sequences=40,
        bayes_sequences=50,
        bayes_grid=8,
    ),
    "cpu": Preset(
        train=_TRAIN,
        stages=((5, 1200), (8, 400), (12, 500), (18, 500), (27, 500), (40, 600), (60, 600), (80, 500), (100, 700)),
    ),
    # As far as the paper states: no curriculum, long training.
    "paper": Preset(train=replace(_TRAIN, learning_rate=5e-4, schedule="constant"), stages=((100, 100_000),)),
}


def config(method: str, size: int) -> RecurrentConfig:
    """Return the model config of a method. Both methods have the same LSTM."""
    return tdvae_config(size) if method == "tdvae" else next_step_config(size)


def jumps() -> Jumps:
    """Return TD-VAE's jumps: short ones, many around the last switch, and a few bridges into the last interval."""
    short = Mixture((Consecutive(), Widening(Uniform(1, 6), start=1, until=0.25)), (0.8, 0.2))
    return Bridging(0.06, OPENING, LAST - UNINFORMATIVE_STEPS, Around(0.4, LAST, 5, short), since=0.05)


def curriculum(preset: Preset, seed: int) -> SwitchingCurriculum:
    """Return the training sequences, one block per training step. The separating interval grows stage by stage.

    A share of the steps has a shorter interval, so that earlier stages are not forgotten.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, STAGES))
    intervals: list[int] = []
    for interval, steps in preset.stages:
        shorter = torch.randint(1, interval + 1, (steps,), generator=generator)
        mixed = torch.rand(steps, generator=generator) < preset.mixed
        intervals += torch.where(mixed, shorter, interval).tolist()
    batch = preset.train.batch_size * preset.runs
    settings = SwitchingSettings(interval=max(preset.intervals))
    return SwitchingCurriculum(settings, tuple(intervals), batch, derive_seed(seed, TRAIN) % 2**62)
