"""Presets of the experiment with fixed intervals: the grid of cells and the training settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tdvae.training import TrainConfig
from tdvae.training.config import derive_seed
from tdvae_paper.switching.grid import TRAIN, Grid
from tdvae_paper.switching.simulation import SwitchingCurriculum, SwitchingSettings


@dataclass(frozen=True, kw_only=True)
class Preset(Grid):
    """A grid of cells. Each cell has its own trainings; the first sizes and intervals are trained first."""

    sizes: tuple[int, ...] = (40, 20)
    intervals: tuple[int, ...] = (100, 20)
    observed_state: bool = True  # whether TD-VAE's state contains the observation
    pairs: int = 0  # of a sequence; 0: as many as it has time steps


# docs/switching.md explains these choices. The number of pairs is that of the time steps: see `Switching.training`.
_TRAIN = TrainConfig(
    steps=3_000,
    batch_size=32,
    optimizer="muon",
    muon_matrices="all",
    learning_rate=1e-2,
    muon_learning_rate=0.04,
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
        train=replace(_TRAIN, steps=4, batch_size=4, validate_every=2, checkpoint_every=2, log_every=2),
        sizes=(6,),
        intervals=(4, 2),
        runs=2,
        probe="logistic",
        probe_sequences=60,
        watched_sequences=40,
        bayes_sequences=50,
        bayes_grid=8,
    ),
    "cpu": Preset(train=_TRAIN),
    # The paper's optimiser and state, a long training, and a further interval.
    "paper": Preset(
        train=replace(_TRAIN, steps=100_000, optimizer="adam", learning_rate=5e-4, schedule="constant"),
        intervals=(100, 20, 200),
        observed_state=False,
    ),
}


def sequences(preset: Preset, interval: int, seed: int) -> SwitchingCurriculum:
    """Return the training sequences, one block per training step. They are the same for all methods."""
    settings = SwitchingSettings(interval=interval)
    batch = preset.train.batch_size * preset.runs
    return SwitchingCurriculum(
        settings, (interval,) * preset.train.steps, batch, derive_seed(seed, TRAIN, interval) % 2**62
    )
