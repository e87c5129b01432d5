"""Presets of the first-person experiment: model, training, jumps and recording."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tdvae.jumps import Jumps, Uniform, Widening
from tdvae.models import LSTM, ConvTDVAEConfig, DeepLSTM
from tdvae.training import TrainConfig
from tdvae_paper.recipe import MUON

MODELS = {
    # The paper's sizes; those of z, the canvas and the encoder are not stated there.
    "paper": ConvTDVAEConfig(
        encoder=(32, 64, 128, 256), belief=DeepLSTM(512, layers=4), layers=16, channels=256, latent=16, canvas=64
    ),
    # A training step of the preset `cpu` takes about a second on one core.
    "cpu": ConvTDVAEConfig(
        encoder=(16, 32, 64, 32),
        belief=LSTM(256, input_skip=1),
        layers=4,
        channels=32,
        latent=4,
        canvas=16,
        init_log_sigma=-2.0,  # the noise of an untrained state is smaller than its signal
    ),
    "smoke": ConvTDVAEConfig(
        event_shape=(3, 32, 32), encoder=(8, 8, 8), belief=LSTM(16), layers=2, channels=8, latent=4, canvas=8
    ),
}


@dataclass(frozen=True)
class Walk:
    """Settings of a recording. Equal settings give identical recordings."""

    world: str = "VizdoomHealthGatheringSupreme-v1"
    frames: int = 100_000
    size: int = 64
    episode: int = 300
    seed: int = 0

    @property
    def file(self) -> str:
        world = self.world.replace("/", "-").replace(":", "-")
        return f"{world}-{self.frames}x{self.size}-episodes-{self.episode}-seed-{self.seed}.h5"


@dataclass(frozen=True)
class Preset:
    """All settings of a run except its seed."""

    model: ConvTDVAEConfig
    train: TrainConfig
    walk: Walk = field(default_factory=Walk)
    # jumps of the method `tdvae`
    jumps: Jumps = field(default_factory=lambda: Widening(Uniform(1, 40), start=2, until=0.3))
    window: int = 56  # frames per training sequence
    stride: int = 4  # frames between the starts of successive windows of an episode
    seen: int = 16  # t1 of all measures: number of observed frames
    measured: tuple[int, ...] = (1, 5, 20, 40)  # δt of the measures
    validated: int = 64  # validation windows
    moments: int = 256  # held-out windows for the measures
    samples: int = 8  # samples per density estimate
    states: int = 6  # samples of z per belief
    futures: int = 5  # sampled futures per z
    counted: int = 4_000  # training windows for fitting the baselines, one frame or pair of frames each
    probed: int = 1_500  # windows of each split for the pose regression
    seeds: tuple[int, ...] = (0,)


_TRAIN = replace(
    MUON,
    batch_size=8,
    pairs=8,
    muon_matrices="inner",
    learning_rate=3e-3,
    muon_learning_rate=0.1,
    validate_every=250,
    checkpoint_every=250,
)

PRESETS = {
    "smoke": Preset(
        MODELS["smoke"],
        replace(_TRAIN, steps=4, batch_size=4, pairs=2, validate_every=2, checkpoint_every=2, log_every=2),
        Walk("tdvae/Corridors-v0", frames=480, size=32, episode=40),
        Uniform(1, 8),
        window=16,
        seen=6,
        measured=(1, 4),
        validated=4,
        moments=6,
        samples=2,
        states=2,
        futures=2,
        counted=20,
        probed=20,
    ),
    "cpu": Preset(MODELS["cpu"], replace(_TRAIN, steps=2_500)),
    "paper": Preset(MODELS["paper"], TrainConfig(steps=200_000, batch_size=32, pairs=8), jumps=Uniform(1, 40)),
}
