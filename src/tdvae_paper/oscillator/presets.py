"""Presets of the oscillator experiment: model, training, jumps and data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tdvae.data import OscillatorSettings
from tdvae.jumps import Consecutive, InTurn, Jumps, Mixture, SemiGradient, Widening, paper_mixture
from tdvae.models import Coordinates, LinearRecurrence, Number, Readout, ResidualMaps, TDVAEConfig
from tdvae.training import TrainConfig

SWITCH = 0.75  # fraction of the training before its last stage


def widening(until: float) -> Widening:
    """Jumps widen to the paper's distribution until the fraction ``until`` of the whole training."""
    return Widening(paper_mixture(), start=2, until=until / SWITCH)


def half_consecutive() -> Mixture:
    return Mixture((Consecutive(), paper_mixture()), (0.5, 0.5))


def curriculum(until: float) -> InTurn:
    """Widening jumps; in the last stage only consecutive pairs train the belief at t2 (docs/oscillator.md)."""
    return InTurn(widening(until), SemiGradient(half_consecutive()), SWITCH)


@dataclass(frozen=True)
class Preset:
    """All settings of a run except its seed."""

    model: TDVAEConfig
    train: TrainConfig
    jumps: Jumps
    settings: OscillatorSettings = field(default_factory=OscillatorSettings)
    train_sequences: int = 50_000
    test_sequences: int = 1_000
    seeds: tuple[int, ...] = (0,)


# App. D as printed: LSTM and D maps of size 50, two layers of 8, Adam 5e-4, q_S without b_t2, δt as a number.
_PAPER_MODEL = TDVAEConfig(decoder=Coordinates(), dt=Number(), smoothing_sees_b2=False)
# docs/oscillator.md explains these choices.
_MODEL = TDVAEConfig(
    decoder=Coordinates(sigma=0.1),
    belief=LinearRecurrence(64, max_frequency=0.75),
    readout=Readout(96),
    maps=ResidualMaps(96),
    drift="rotation",
    posterior="product",
)
_TRAIN = TrainConfig(
    optimizer="muon",
    learning_rate=2e-3,
    schedule="cosine",
    warmup=300,
    clip=1.0,
    validate_every=500,
    checkpoint_every=500,
    accelerator="cpu",
)

PRESETS = {
    "smoke": Preset(
        replace(
            _MODEL,
            belief=LinearRecurrence(16, max_frequency=0.75),
            readout=Readout(16, hidden=16),
            maps=ResidualMaps(16),
        ),
        replace(_TRAIN, steps=20, batch_size=8, pairs=4, validate_every=10, checkpoint_every=10, log_every=5),
        curriculum(until=0.34),
        train_sequences=64,
        test_sequences=32,
    ),
    "demo": Preset(_MODEL, replace(_TRAIN, steps=2_400), curriculum(until=0.34), test_sequences=500),
    "cpu": Preset(
        _MODEL,
        replace(_TRAIN, steps=4_000, learning_rate=1.4e-3, muon_learning_rate=7e-3),
        curriculum(until=0.25),
        seeds=tuple(range(10)),
    ),
    "paper": Preset(_PAPER_MODEL, TrainConfig(steps=200_000, batch_size=32, pairs=1), paper_mixture(), seeds=(0, 1, 2)),
}
