"""The first-person experiment's presets: model, training, jumps and recording of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tdvae.experiments.shared.recipe import MUON
from tdvae.jumps import Jumps, Uniform, Widening
from tdvae.models import ConvTDVAEConfig
from tdvae.training import TrainConfig

MODELS = {
    # The sizes that the paper states; how large z, the canvas and the encoder are, it does not.
    "paper": ConvTDVAEConfig(
        encoder=(32, 64, 128, 256), belief=512, belief_layers=4, layers=16, channels=256, latent=16, canvas=64
    ),
    # A step of the preset below takes about a second of one core.
    "cpu": ConvTDVAEConfig(
        encoder=(16, 32, 64, 32),
        belief=256,
        belief_layers=1,
        input_skip=1,
        layers=4,
        channels=32,
        latent=4,
        canvas=16,
        init_log_sigma=-2.0,  # the noise of a fresh state is below its signal
    ),
    "smoke": ConvTDVAEConfig(
        event_shape=(3, 32, 32), encoder=(8, 8, 8), belief=16, belief_layers=1, layers=2, channels=8, latent=4, canvas=8
    ),
}


@dataclass(frozen=True)
class Walk:
    """What is recorded: equal walks are equal to the byte."""

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
    """Everything about a run but its seed."""

    model: ConvTDVAEConfig
    train: TrainConfig
    walk: Walk = field(default_factory=Walk)
    jumps: Jumps = field(default_factory=lambda: Widening(Uniform(1, 40), start=2, until=0.3))  # of `tdvae`
    window: int = 56  # frames of a training sequence
    stride: int = 4  # a window begins at every so many frames of an episode
    seen: int = 16  # t1 of all measures
    measured: tuple[int, ...] = (1, 5, 20, 40)  # δt
    validated: int = 64  # windows
    moments: int = 256  # held-out windows that are measured
    samples: int = 8  # of a density's estimate
    states: int = 6  # z's of one belief
    futures: int = 5  # of each z
    counted: int = 4_000  # training windows that the baselines are fitted on, one frame or pair of frames each
    probed: int = 1_500  # training windows that the pose is learned from
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
