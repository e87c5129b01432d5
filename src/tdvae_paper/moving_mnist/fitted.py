"""`tdvae fit` on pictures of moving digits, with the same processor time: a TD-VAE of codes, and one of pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tdvae.forecasting import Forecaster, OwnData, fit_forecaster, prepare
from tdvae.forecasting.fitting.recipes import NetworkKind
from tdvae.forecasting.own_data import evaluate_run
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.training import FitResult
from tdvae.training.log import Progress
from tdvae_paper.experiment import Experiment, Task, TrainedRun, by_seed, seeds_of, time_of
from tdvae_paper.moving_mnist.moving_digits import draw_sequences, synthetic_digits

VARIANTS: dict[str, NetworkKind] = {"codes": "latent", "pixels": "convolutional"}
LABELS = {
    "codes": "TD-VAE of codes",
    "pixels": "TD-VAE of pixels",
    "naive": "last picture",
    "climatology": "random pictures",
}
MEASURES = {"energy": "energy score", "rmse": "error of the mean picture"}


@dataclass(frozen=True)
class Preset:
    """Settings of the data and of both fits."""

    sequences: int = 400
    length: int = 20
    longest: int = 10
    minutes: float | None = 1.0  # of processor time, with the codec
    steps: int = 100_000
    model: dict[str, Any] = field(default_factory=dict)  # options that differ
    seeds: tuple[int, ...] = (0,)

    def data(self, seed: int) -> OwnData:
        """Bytes (N, T, 28, 28) of digits that move by one pixel per frame, prepared as a user's file is."""
        moving = draw_sequences(synthetic_digits(200, seed), self.sequences, seed, self.length)
        pictures = 255 * moving.select(torch.arange(self.sequences)).x
        return prepare(pictures.byte().numpy(), self.longest, seed=seed)


PRESETS = {
    "smoke": Preset(20, 8, 2, None, 2, {"belief": 8, "layers": 1, "latent": 2, "batch_size": 2}),
    "cpu": Preset(),
}


class FittedDigits(Experiment[Preset]):
    """For each seed, one fit of each kind; scores in pixels, beside the last picture and random ones."""

    name = "moving_mnist_fitted"
    results_name = "moving_mnist"
    block = "fitted"
    title = "moving digits, fitted as a user's pictures"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"{variant}-seed-{seed}", variant) for seed in seeds for variant in VARIANTS]

    def training(self, preset: Preset, task: Task) -> Callable[..., FitResult]:
        return partial(_fit, preset, task)

    def measure_run(self, preset: Preset, run: TrainedRun) -> Measures:
        forecaster = Forecaster.load(run.folder)
        assert forecaster.info is not None
        found = evaluate_run(forecaster, run.task.seed).measures
        steps = float(forecaster.info["trained"][forecaster.info["main"]])
        return {**{name: found[name] for name in MEASURES}, "steps": steps}

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        replicates = []
        for variants in by_seed(measures).values():
            one: Measures = {"steps": {variant: found["steps"] for variant, found in variants.items()}}
            for name in MEASURES:
                of_models = {variant: found[name]["combination"] for variant, found in variants.items()}
                one[name] = {**variants["codes"][name], **of_models}
                del one[name]["combination"]
            replicates.append(one)
        return replicates

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        rows = [
            (f"{label}, {LABELS[name]}", by_horizon)
            for measure, label in MEASURES.items()
            for name, by_horizon in content["measures"][measure].items()
        ]
        return {self.name: [by_key(rows, "{} steps")]}

    def made(self, content: dict[str, Any]) -> str:
        return f"`{content['command']}`, seed {seeds_of(content)}: {time_of(content)}, with the codec."


EXPERIMENT = FittedDigits()
"""For each seed, a fit on codes and one on pixels."""


def _fit(
    preset: Preset, task: Task, run_dir: Path, resume: bool, info: dict[str, Any], progress: Progress
) -> FitResult:
    fitted = fit_forecaster(
        preset.data(task.seed),
        run_dir,
        preset.steps,
        task.seed,
        preset.minutes,
        networks=[VARIANTS[task.variant]],
        resume=resume and run_dir.is_dir(),
        info=info,
        progress=progress,
        **preset.model,
    )
    assert fitted.info is not None
    trained = fitted.info["trained"][fitted.info["main"]]
    return FitResult(run_dir, trained, trained, None, fitted.info["cpu_seconds"])
