"""MiniPacman's presets: the models that are compared, their training and their games."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tdvae.envs.minipacman import N_CLASSES, Cell
from tdvae.jumps import Consecutive, EveryStep, Jumps, Mixture, SemiGradient, SharedFutures, Uniform
from tdvae.models import (
    LSTM,
    Classes,
    FilteringConfig,
    GatedMaps,
    GridMap,
    MeanFieldConfig,
    NextStepConfig,
    ResidualMaps,
    TDVAEConfig,
    Unknown,
    Waves,
)
from tdvae.models.config import ModelConfig
from tdvae.nn.dense import Maps
from tdvae.objectives import Objective, next_step_loss, state_space_loss, tdvae_loss
from tdvae.reporting.results import Measures
from tdvae.training import TrainConfig
from tdvae_paper.experiment import MUON

OBJECTIVES: dict[str, Objective] = {
    "tdvae": partial(tdvae_loss, gradient="path"),
    "filtering": state_space_loss,
    "mean_field": state_space_loss,
    "next_step": next_step_loss,
}
COMPARED = ("tdvae", "filtering", "mean_field")  # the paper's; the next-step predictor has no state
LABELS = {
    "tdvae": "TD-VAE",
    "filtering": "filtering model",
    "mean_field": "mean-field model",
    "next_step": "next-step predictor",
}
CLASSES = N_CLASSES["classes"]

# Test set, units not stated: bits or nats, per frame, dimension or pixel.
PAPER: Measures = {
    "elbo": {"tdvae": 0.0773, "filtering": 0.1169, "mean_field": 0.1987},
    "nll": {"tdvae": 0.0553, "filtering": 0.0962, "mean_field": 0.1678},
    "elbo_ratio": {"tdvae": 0.0773 / 0.1169, "mean_field": 0.1987 / 0.1169},
    "nll_ratio": {"tdvae": 0.0553 / 0.0962, "mean_field": 0.1678 / 0.0962},
}


@dataclass(frozen=True)
class Preset:
    """Everything about a run but its seed."""

    models: dict[str, ModelConfig]
    train: TrainConfig
    rates: dict[str, float] = field(default_factory=dict)  # by which a model's learning rates are multiplied
    kl_warmup: tuple[str, ...] = ()  # models whose loss terms of z are weighted by less than 1 at first
    jumps: Jumps = field(default_factory=Consecutive)  # TD-VAE's pairs
    frames: int = 50  # of each game
    train_games: int = 20_000
    test_games: int = 300
    samples: int = 100  # of the importance-sampled likelihoods
    probe_games: int = 2_500
    probe_test: int = 0  # games to test probes on; 0: as many as they are fitted to
    probe_every: int = 1  # probes are fitted to every so many frames of a game
    reader_steps: int = 1_500  # of fitting a probe
    seeds: tuple[int, ...] = (0,)


_WINDOWS: dict[str, Any] = {"event_shape": (5, 5), "actions": 5}


def _models(
    maps: tuple[Maps, Maps, Maps], of_state: dict[str, Any], smoothing_sees_b2: bool = False, **settings: Any
) -> dict[str, ModelConfig]:
    """The models; ``of_state`` is what those with a state share beside ``settings``. Of the three that are compared
    TD-VAE has the most maps, so the others' are wider: as many parameters in all."""
    settings = _WINDOWS | settings
    latent = settings | of_state
    tdvae = TDVAEConfig(dt=Unknown(), maps=maps[0], posterior="product", smoothing_sees_b2=smoothing_sees_b2, **latent)
    return {
        "tdvae": tdvae,
        "filtering": FilteringConfig(maps=maps[1], **latent),
        "mean_field": MeanFieldConfig(maps=maps[2], **latent),
        "next_step": NextStepConfig(**settings),
    }


_TRAIN = replace(MUON, batch_size=32, pairs=50, learning_rate=4e-3, muon_learning_rate=0.04)

_SMOKE_MAPS = (GatedMaps(8), GatedMaps(14), GatedMaps(16))
_SMOKE: dict[str, Any] = {"encoder": (16,), "decoder": Classes(CLASSES, (16,)), "belief": LSTM(12)}
_SIZES: dict[str, Any] = {
    "encoder": (128,),
    "decoder": Classes(CLASSES, (256, 256)),
    "belief": LSTM(128, input_skip=1),
}

PRESETS = {
    "smoke": Preset(
        _models(_SMOKE_MAPS, {"latent": 3}, **_SMOKE),
        replace(_TRAIN, steps=6, batch_size=4, pairs=4, validate_every=3, checkpoint_every=3, log_every=3),
        frames=40,
        train_games=24,
        test_games=6,
        samples=3,
        probe_games=8,
        reader_steps=20,
    ),
    "cpu": Preset(
        _models(
            (ResidualMaps(128, 1), ResidualMaps(196, 1), ResidualMaps(197, 1)),
            {"latent": 6, "init_log_sigma": -0.5},
            **_SIZES,
        ),
        replace(_TRAIN, steps=3_000, validate_every=200),
        rates={"filtering": 0.5},
        seeds=(0, 1, 2),
    ),
    # The paper does not print its sizes; these are App. D's.
    "paper": Preset(
        _models(
            (GatedMaps(50), GatedMaps(116), GatedMaps(136)), {"latent": 8}, encoder=(200, 200), decoder=Classes(CLASSES)
        ),
        TrainConfig(steps=200_000, batch_size=32, pairs=50),
        seeds=(0, 1, 2),
    ),
}


# How the settings were chosen is in docs/minipacman.md. Each model has the state and the training that suit it best.
_OBSERVED: dict[str, Any] = {**_WINDOWS, **_SIZES, "layers": 1, "state": "observed"}
_OBSERVED_TDVAE = TDVAEConfig(
    **_OBSERVED,
    maps=ResidualMaps(128, 1),
    latent=8,
    init_log_sigma=-2.5,
    drift="residual",
    posterior="product",
    dt=Unknown(),
)
OBSERVED_PRESETS: dict[str, Preset] = {
    "smoke": replace(
        PRESETS["smoke"],
        models=_models(_SMOKE_MAPS, {"latent": 3, "state": "observed"}, True, **_SMOKE),
        kl_warmup=("tdvae",),
    ),
    "cpu": replace(
        PRESETS["cpu"],
        models={
            "tdvae": _OBSERVED_TDVAE,
            "filtering": FilteringConfig(**_OBSERVED, maps=ResidualMaps(252, 1), latent=16, init_log_sigma=-0.5),
            "mean_field": MeanFieldConfig(
                **_OBSERVED, maps=ResidualMaps(262, 1), latent=8, init_log_sigma=-2.5, drift="residual"
            ),
            "next_step": PRESETS["cpu"].models["next_step"],
        },
        kl_warmup=("tdvae", "mean_field"),
    ),
}

# TD-VAE alone, half of whose pairs span 2 to 8 steps with the actions between given.
_JUMPS = Mixture((Consecutive(), Uniform(2, 8)), (0.5, 0.5))
JUMPS_PRESETS: dict[str, Preset] = {
    "smoke": replace(
        OBSERVED_PRESETS["smoke"],
        models={
            "tdvae": replace(
                _OBSERVED_TDVAE, maps=ResidualMaps(8, 1), latent=3, belief=LSTM(12, input_skip=1), dt=Waves(4)
            )
        },
        jumps=_JUMPS,
    ),
    "cpu": replace(
        OBSERVED_PRESETS["cpu"],
        models={"tdvae": replace(_OBSERVED_TDVAE, dt=Waves(4))},
        train=replace(PRESETS["cpu"].train, pairs=16),
        jumps=_JUMPS,
        seeds=(0,),
    ),
}


# The same with a map of the grid world in belief and state, and every step of a game in each update. The map fits the
# maze with a margin for the window; all else about the maze has to be learned.
def _map(features: int = 128) -> GridMap:
    moves = ((0, 0), (0, 1), (-1, 0), (0, -1), (1, 0))
    return GridMap((17, 21), moves, obstacles=(int(Cell.WALL),), features=features)


_MAP_SIZES: dict[str, Any] = {
    "encoder": (96,),
    "belief": LSTM(144, input_skip=1),
    "decoder": Classes(CLASSES, (256, 256)),
    "memory": _map(),
}
_MAP_SMOKE: dict[str, Any] = {
    "encoder": (8,),
    "belief": LSTM(8),
    "decoder": Classes(CLASSES, (16,)),
    "memory": _map(features=8),
}


def _map_models(sizes: dict[str, Any], hidden: tuple[int, int, int], latent: int) -> dict[str, ModelConfig]:
    settings = _WINDOWS | sizes
    state: dict[str, Any] = {**settings, "layers": 1, "latent": latent, "state": "observed"}
    started: dict[str, Any] = {"init_log_sigma": -2.5, "drift": "residual"}
    tdvae, mean_field, filtering = (ResidualMaps(size, 1) for size in hidden)
    return {
        "tdvae": TDVAEConfig(**state, **started, maps=tdvae, posterior="product", dt=Unknown()),
        "filtering": FilteringConfig(**state, maps=filtering, init_log_sigma=-0.5),
        "mean_field": MeanFieldConfig(**state, **started, maps=mean_field),
        "next_step": NextStepConfig(**settings),
    }


MAP_PRESETS: dict[str, Preset] = {
    "smoke": replace(
        OBSERVED_PRESETS["smoke"],
        models=_map_models(_MAP_SMOKE, (8, 14, 16), 3),
        train=replace(PRESETS["smoke"].train, pairs=40),
        jumps=EveryStep(),
        kl_warmup=("tdvae", "mean_field"),
    ),
    "cpu": replace(
        OBSERVED_PRESETS["cpu"],
        models=_map_models(_MAP_SIZES, (128, 262, 264), 16),
        train=replace(_TRAIN, steps=800, validate_every=100, checkpoint_every=100),
        jumps=EveryStep(),
        samples=20,
        probe_games=2_500,
        probe_test=250,
        probe_every=2,
        reader_steps=400,
        seeds=(0,),
    ),
}

# TD-VAE alone: groups of futures that share z_t1, one of them the next step and the others fixed targets.
_FUTURES = SemiGradient(SharedFutures(2, Uniform(2, 12)))
SHARED_PRESETS: dict[str, Preset] = {
    name: replace(
        preset,
        models={"tdvae": replace(preset.models["tdvae"], dt=Waves(4))},  # type: ignore[call-arg]
        jumps=_FUTURES,
        train=replace(preset.train, pairs=16 if name == "smoke" else 76),
    )
    for name, preset in MAP_PRESETS.items()
}

# TD-VAE alone, with a learned state of every place of the map, which goes on while the place is out of sight.
LIVING_PRESETS: dict[str, Preset] = {
    name: replace(
        preset,
        models={"tdvae": replace(preset.models["tdvae"], memory=replace(memory, channels=8))},  # type: ignore[call-arg]
        train=preset.train if name == "smoke" else replace(preset.train, steps=500),
    )
    for (name, preset), memory in zip(MAP_PRESETS.items(), (_map(features=8), _map()), strict=True)
}
