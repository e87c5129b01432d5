"""Corridors: a dense TD-VAE on the codes of frames, with futures that are sharp.

A codec is trained once on the frames of the training mazes; the model is the ordinary dense TD-VAE on its codes. The
variants: ``actions`` is given the actions of a jump, so that all that is uncertain is what was not seen; ``paper`` has
jumps U(1, 40) without actions (Fig. 5), ``rollouts`` U(1, 5) without actions (Fig. 6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tdvae.codec import CodecTraining, ConvCodec, ConvCodecConfig, save_codec
from tdvae.jumps import Jumps, SemiGradient, SharedFutures, Uniform, Widening
from tdvae.models import LSTM, Gaussian, Model, ResidualMaps, TDVAEConfig, build
from tdvae.objectives import Learner, tdvae_loss
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.saved import CODEC
from tdvae.training import FitResult, TrainConfig
from tdvae.training.config import derive_seed
from tdvae_paper.experiment import MUON, Experiment, Task, TrainedRun, Training, by_seed, seeds_of, time_of
from tdvae_paper.first_person import codes_measures as measuring
from tdvae_paper.first_person.codes_data import Coded, World, coded, moments
from tdvae_paper.first_person.codes_memory import after_a_turn, seen_and_unseen

TEST = 611  # purpose of a derived seed


def model(size: int, belief: int = 192, maps: int = 128, layers: int = 3, latent: int = 20) -> TDVAEConfig:
    """The dense TD-VAE of codes of ``size`` numbers."""
    return TDVAEConfig(
        event_shape=(size,),
        encoder=(belief,),
        belief=LSTM(belief, input_skip=1),
        decoder=Gaussian(noise="predicted"),
        maps=ResidualMaps(maps, blocks=2),
        layers=layers,
        latent=latent,
        drift="residual",
        posterior="product",
        init_log_sigma=-2.0,
    )


def believing(jumps: Jumps, futures: int = 8) -> Jumps:
    """Futures that share z_t1, with beliefs that only single steps train: what is not known is in z, not in p_T."""
    return SemiGradient(SharedFutures(futures, Widening(jumps, start=5, until=0.3)))


@dataclass(frozen=True)
class Variant:
    """What differs between the models of a seed."""

    jumps: Jumps
    steps: int
    actions: bool = False  # given


@dataclass(frozen=True)
class Preset:
    """All settings of a run except its seed."""

    train: TrainConfig
    world: World = field(default_factory=World)
    model: TDVAEConfig = field(default_factory=lambda: model(64))
    variants: dict[str, Variant] = field(
        default_factory=lambda: {"actions": Variant(believing(Uniform(1, 40)), 2_000, actions=True)}
    )
    seen: int = 16  # t1 of all measures
    measured: tuple[int, ...] = (1, 5, 10, 20, 40)  # δt of the measures
    turns: tuple[int, ...] = (4, 8, 12)  # δt of the measure of memory
    validated: int = 64  # validation windows
    moments: int = 60  # held-out windows of the measures
    samples: int = 30  # futures of each moment
    states: int = 6  # states of the spread ratio
    futures: int = 5  # futures of each of them
    seeds: tuple[int, ...] = (0,)


PRESETS = {
    "smoke": Preset(
        replace(MUON, batch_size=4, pairs=2, checkpoint_every=2, log_every=2),
        World(
            frames=480,
            episode=40,
            size=32,
            codec=ConvCodecConfig((3, 32, 32), 8, (8, 8, 16)),
            training=CodecTraining(steps=4, batch_size=8, warmup=1),
            window=16,
        ),
        model(8, belief=16, maps=16, layers=2, latent=4),
        {
            "actions": Variant(believing(Uniform(1, 8), futures=2), 4, actions=True),
            "paper": Variant(Uniform(1, 8), 4),
            "rollouts": Variant(Uniform(1, 5), 4),
        },
        seen=6,
        measured=(1, 4),
        turns=(4,),
        validated=4,
        moments=6,
        samples=3,
        states=2,
        futures=2,
    ),
    "cpu": Preset(replace(MUON, batch_size=32, pairs=16, checkpoint_every=200)),
    "paper": Preset(
        replace(MUON, batch_size=32, pairs=16, checkpoint_every=500),
        variants={
            "actions": Variant(believing(Uniform(1, 40)), 8_000, actions=True),
            "paper": Variant(Widening(Uniform(1, 40), start=2, until=0.3), 8_000),
            "rollouts": Variant(Uniform(1, 5), 4_000),
        },
        moments=200,
    ),
}


class Corridors(Experiment[Preset]):
    """Skill, sharpness and spread of futures in decoded pixels, and memory of what was seen."""

    name = "first_person_corridors"
    results_name = "first_person"
    block = "corridors"
    title = "first-person, corridors"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"{variant}-seed-{seed}", variant) for seed in seeds for variant in preset.variants]

    def prepare(self, preset: Preset) -> None:
        """Record, train the codec and encode all frames, unless that is in the data cache."""
        coded(preset.world, False)

    def training(self, preset: Preset, task: Task) -> Callable[..., FitResult]:
        data, variant = _data(preset, task), preset.variants[task.variant]
        actions = len(data.train.frames.recording.action_names) if variant.actions else 0
        torch.manual_seed(derive_seed(task.seed))  # the initial weights
        learner = Learner(build(replace(preset.model, actions=actions)), partial(tdvae_loss, gradient="path"))
        # The last weights are kept: with semi-gradients the loss grows while forecasts improve.
        config = replace(preset.train, steps=variant.steps, validate_every=variant.steps, seed=task.seed)
        validation = moments(data.validation, preset.validated)
        info = {"variant": task.variant, "world": {"frames": preset.world.frames, "seed": preset.world.seed}}
        training = Training(learner, data.train, variant.jumps, config, validation, info)
        return partial(_fit_with_codec, data.codec, training)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        trained, data = models[0], _data(preset, task)
        torch.manual_seed(derive_seed(task.seed, TEST))
        variant = preset.variants[task.variant]
        return measures(preset, trained, data, variant.jumps.longest, memory=variant.actions)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        codec_error = _codec_measures(preset)
        found = []
        for by_variant in by_seed(measures).values():
            one: Measures = {"codec": codec_error}
            for variant, entries in by_variant.items():
                for name, value in entries.items():
                    one.setdefault(name, {})[variant] = value
            found.append(one)
        return found

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        rows = [
            (f"{label}, {variant}", by_jump)
            for name, label in LABELS.items()
            for variant, by_jump in content["measures"][name].items()
        ]
        return {self.name: [by_key(rows, "δt = {}")]}

    def made(self, content: dict[str, Any]) -> str:
        return f"`{content['command']}`, seed {seeds_of(content)}: {time_of(content)}, without the codec."

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.first_person import codes_figure

        trained = {run.task.variant: run.models[0] for run in runs if run.task.seed == runs[0].task.seed}
        return codes_figure.draw(preset, trained, folder, runs[0].task.seed)


LABELS = {
    "energy_skill": "skill by energy score",
    "last_frame_skill": "… of the last frame",
    "best_of": "best of 30 / best of 30 random frames",
    "sharpness": "sharpness",
    "future_spread_ratio": "squared spread of futures, across z / within z",
    "seen_error": "error where the wall was seen, of 255",
    "unseen_error": "error where it was not",
}


EXPERIMENT = Corridors()
"""The corridors: for each seed, one model of each variant."""


def _data(preset: Preset, task: Task) -> Coded:
    return coded(preset.world, preset.variants[task.variant].actions)


def _fit_with_codec(codec: ConvCodec, training: Callable[..., FitResult], run_dir: Path, **settings: Any) -> FitResult:
    """Train, and save the codec with the run: without it, the codes that the model predicts mean nothing."""
    result = training(run_dir=run_dir, **settings)
    save_codec(codec, run_dir / CODEC)
    return result


def measures(preset: Preset, trained: Model, data: Coded, jump: int, memory: bool) -> Measures:
    """Compute all measures of one model, by jumps of at most ``jump``; those of memory need a model with actions."""
    chosen, t1, longest = moments(data.test, preset.moments), preset.seen, max(preset.measured)
    random = data.train.frames.starts[torch.randperm(len(data.train))[: preset.samples]]
    found: Measures = measuring.by_jump(
        trained,
        data.codec,
        chosen,
        data.train.codes[random],
        t1,
        preset.measured,
        preset.samples,
        preset.states,
        preset.futures,
        jump,
    )
    found["time_ratio"] = measuring.time_ratio(trained, chosen.select(torch.arange(1)), t1, longest)
    if memory:
        found |= seen_and_unseen(trained, data.codec, chosen, t1, preset.measured, preset.futures)
        found["full_turn"] = after_a_turn(trained, data.codec, chosen, preset.turns, preset.futures)
    return found


def _codec_measures(preset: Preset) -> Measures:
    """What the codec loses on held-out frames: mean absolute error of 255, and bits per dimension given the code."""
    data = coded(preset.world, False)
    frames = moments(data.test, preset.moments).frames
    pictures = torch.cat([frames.select(index).x[:, -1] for index in torch.arange(len(frames)).split(32)])
    decoded = data.codec.decode(data.codec.encode(pictures))
    return {
        "mean_absolute_error": 255 * float((decoded - pictures).abs().mean()),
        "bits_per_dim": data.codec.bits_per_dim(pictures),
        "sharpness": float(measuring.gradient(decoded).mean() / measuring.gradient(pictures).mean()),
    }
