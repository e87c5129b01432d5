"""MiniPacman's presets: the models that are compared, their training and their games."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tdvae.envs.minipacman import N_CLASSES, Cell
from tdvae.experiments.shared.recipe import MUON
from tdvae.jumps import Consecutive, EveryStep, Jumps, Mixture, SemiGradient, SharedFutures, Uniform
from tdvae.models import FilteringConfig, MeanFieldConfig, NextStepConfig, TDVAEConfig
from tdvae.models.config import ModelConfig
from tdvae.objectives import Objective, next_step_loss, state_space_loss, tdvae_loss
from tdvae.reporting.results import Measures
from tdvae.training import TrainConfig

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


_WINDOWS: dict[str, Any] = {"event_shape": (5, 5), "likelihood": "categorical", "classes": CLASSES, "actions": 5}


def _models(
    hidden: tuple[int, int, int], state: dict[str, Any], smoothing_sees_b2: bool = False, **settings: Any
) -> dict[str, ModelConfig]:
    """The models; ``state`` is what those with a state share beside ``settings``. Of the three that are compared
    TD-VAE has the most maps, so the others' are wider: as many parameters in all."""
    settings = _WINDOWS | settings
    of_state = settings | state
    return {
        "tdvae": TDVAEConfig(
            dt="none", hidden=hidden[0], posterior="product", smoothing_sees_b2=smoothing_sees_b2, **of_state
        ),
        "filtering": FilteringConfig(hidden=hidden[1], **of_state),
        "mean_field": MeanFieldConfig(hidden=hidden[2], **of_state),
        "next_step": NextStepConfig(**settings),
    }


_TRAIN = replace(MUON, batch_size=32, pairs=50, learning_rate=4e-3, muon_learning_rate=0.04)

PRESETS = {
    "smoke": Preset(
        _models((8, 14, 16), {"latent": 3}, encoder=(16,), decoder=(16,), belief=12),
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
            (128, 196, 197),
            {"latent": 6, "maps": "residual", "blocks": 1, "init_log_sigma": -0.5},
            encoder=(128,),
            decoder=(256, 256),
            belief=128,
            input_skip=1,
        ),
        replace(_TRAIN, steps=3_000, validate_every=200),
        rates={"filtering": 0.5},
        seeds=(0, 1, 2),
    ),
    # The paper does not print its sizes; these are App. D's.
    "paper": Preset(
        _models((50, 116, 136), {"latent": 8}, encoder=(200, 200)),
        TrainConfig(steps=200_000, batch_size=32, pairs=50),
        seeds=(0, 1, 2),
    ),
}


# How the settings were chosen is in docs/minipacman.md. Each model has the state and the training that suit it best.
_SIZES: dict[str, Any] = {"maps": "residual", "blocks": 1, "decoder": (256, 256), "encoder": (128,), "belief": 128}
_OBSERVED: dict[str, Any] = {**_WINDOWS, **_SIZES, "input_skip": 1, "layers": 1, "observed_state": True}
_OBSERVED_TDVAE = TDVAEConfig(
    **_OBSERVED, hidden=128, latent=8, init_log_sigma=-2.5, drift="residual", posterior="product", dt="none"
)
OBSERVED_PRESETS: dict[str, Preset] = {
    "smoke": replace(
        PRESETS["smoke"],
        models=_models(
            (8, 14, 16), {"latent": 3, "observed_state": True}, True, encoder=(16,), decoder=(16,), belief=12
        ),
        kl_warmup=("tdvae",),
    ),
    "cpu": replace(
        PRESETS["cpu"],
        models={
            "tdvae": _OBSERVED_TDVAE,
            "filtering": FilteringConfig(**_OBSERVED, hidden=252, latent=16, init_log_sigma=-0.5),
            "mean_field": MeanFieldConfig(**_OBSERVED, hidden=262, latent=8, init_log_sigma=-2.5, drift="residual"),
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
        models={"tdvae": replace(_OBSERVED_TDVAE, hidden=8, latent=3, belief=12, dt="waves", octaves=4)},
        jumps=_JUMPS,
    ),
    "cpu": replace(
        OBSERVED_PRESETS["cpu"],
        models={"tdvae": replace(_OBSERVED_TDVAE, dt="waves", octaves=4)},
        train=replace(PRESETS["cpu"].train, pairs=16),
        jumps=_JUMPS,
        seeds=(0,),
    ),
}


# The same with a map of the grid world in belief and state, and every step of a game in each update. The map fits the
# maze with a margin for the window; all else about the maze has to be learned.
_MAP: dict[str, Any] = {
    **_WINDOWS,
    "map_size": (17, 21),
    "moves": ((0, 0), (0, 1), (-1, 0), (0, -1), (1, 0)),
    "obstacles": (int(Cell.WALL),),
}
_MAP_SIZES: dict[str, Any] = {"encoder": (96,), "belief": 144, "input_skip": 1, "decoder": (256, 256), "blocks": 1}
_MAP_SMOKE: dict[str, Any] = {"encoder": (8,), "belief": 8, "decoder": (16,), "blocks": 1, "map_features": 8}


def _map_models(sizes: dict[str, Any], hidden: tuple[int, int, int], latent: int) -> dict[str, ModelConfig]:
    settings = _MAP | sizes
    state: dict[str, Any] = {**settings, "maps": "residual", "layers": 1, "latent": latent, "observed_state": True}
    started: dict[str, Any] = {"init_log_sigma": -2.5, "drift": "residual"}
    return {
        "tdvae": TDVAEConfig(**state, **started, hidden=hidden[0], posterior="product", dt="none"),
        "filtering": FilteringConfig(**state, hidden=hidden[2], init_log_sigma=-0.5),
        "mean_field": MeanFieldConfig(**state, **started, hidden=hidden[1]),
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
        probe_games=400,
        probe_test=150,
        reader_steps=150,
        seeds=(0,),
    ),
}

# TD-VAE alone: groups of futures that share z_t1, one of them the next step and the others fixed targets.
_FUTURES = SharedFutures(2, SemiGradient(Uniform(2, 12)))
SHARED_PRESETS: dict[str, Preset] = {
    name: replace(
        preset,
        models={"tdvae": replace(preset.models["tdvae"], dt="waves", octaves=4)},  # type: ignore[call-arg]
        jumps=_FUTURES,
        train=replace(preset.train, pairs=16 if name == "smoke" else 76),
    )
    for name, preset in MAP_PRESETS.items()
}
