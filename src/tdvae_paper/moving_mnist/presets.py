"""Presets of the moving MNIST experiment: model, training, jumps and data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tdvae.jumps import Jumps, Uniform, Widening
from tdvae.models import LSTM, Bits, ResidualMaps, TDVAEConfig, Unknown
from tdvae.training import TrainConfig
from tdvae_paper.moving_mnist.moving_digits import MovingDigits
from tdvae_paper.recipe import MUON

LONGEST = 4  # δt is uniform on 1 … 4


@dataclass(frozen=True)
class Preset:
    """All settings of a run except its seed and whether δt is given."""

    model: TDVAEConfig
    train: TrainConfig
    jumps: Jumps = field(default_factory=lambda: Widening(Uniform(1, LONGEST), start=1, until=0.35))
    frames: MovingDigits = field(default_factory=MovingDigits)
    synthetic: bool = False  # synthetic digits instead of MNIST: no download
    train_sequences: int = 200_000
    test_sequences: int = 1_000
    steps_given_dt: int | None = None  # training steps of the variant with δt given; by default as without
    samples: int = 50  # samples of the importance-sampled likelihood
    classifier_steps: int = 2_500
    seeds: tuple[int, ...] = (0,)


# App. D as printed: two ReLU layers before an LSTM and in the decoder, two layers of z, δt withheld.
_PAPER_MODEL = TDVAEConfig(
    event_shape=(28, 28),
    encoder=(784, 784),
    decoder=Bits((200, 200)),
    dt=Unknown(),
)
# docs/moving_mnist.md explains these choices.
_MODEL = TDVAEConfig(
    event_shape=(28, 28),
    encoder=(384, 128),
    decoder=Bits((384, 384)),
    belief=LSTM(128, input_skip=2),
    latent=16,
    maps=ResidualMaps(128, blocks=1),
    dt=Unknown(lengths=LONGEST, octaves=3),
    drift="rotation",
    posterior="product",
    init_log_sigma=-2.0,
)
_TRAIN = replace(MUON, batch_size=64, pairs=8)

PRESETS = {
    "smoke": Preset(
        replace(
            _MODEL,
            encoder=(24, 16),
            decoder=Bits((24, 24)),
            belief=LSTM(16, input_skip=2),
            latent=4,
            maps=ResidualMaps(16, blocks=1),
        ),
        replace(_TRAIN, steps=10, batch_size=8, pairs=2, validate_every=5, checkpoint_every=5, log_every=5),
        synthetic=True,
        train_sequences=80,
        test_sequences=20,
        samples=2,
        classifier_steps=10,
    ),
    "cpu": Preset(_MODEL, replace(_TRAIN, steps=3_600), steps_given_dt=900, seeds=(0, 1, 2)),
    "paper": Preset(
        _PAPER_MODEL, TrainConfig(steps=200_000, batch_size=512, pairs=1), Uniform(1, LONGEST), seeds=(0, 1, 2)
    ),
}
