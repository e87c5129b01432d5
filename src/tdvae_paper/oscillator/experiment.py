"""The oscillator experiment: one training per seed, compared with exact inference."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from tdvae.data import OscillatorSettings, from_arrays
from tdvae.models import Model, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.saved import SavedModel
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.experiment import Experiment, Task, TrainedRun, Training, seeds_of, time_of
from tdvae_paper.oscillator.measures import HORIZONS, START, TEST, TRAIN, VALIDATION, evaluate, record
from tdvae_paper.oscillator.monitor import OscillatorMonitor
from tdvae_paper.oscillator.presets import PRESETS, Preset

LABELS = {
    "information_share": "share of attainable information",
    "information_share_worst": "… of the worst seed",
    "coverage_50": "coverage of the 50 % interval",
    "coverage_90": "coverage of the 90 % interval",
    "nll": "NLL, nats",
    "nll_bayes": "NLL of exact inference (the limit)",
    "nll_marginal": "NLL of knowing nothing",
    "frequency_error": "frequency error of rollouts, rad/step",
    "frequency_error_exact": "… of the exact posterior's rollouts",
    "amplitude_error": "amplitude error of rollouts",
    "amplitude_error_exact": "… of the exact posterior's rollouts",
}


class Oscillator(Experiment[Preset]):
    """Forecasts and rollouts of a noisy oscillator, compared with those of the Bayes-optimal forecaster."""

    name = "oscillator"
    title = "oscillator"
    presets = PRESETS
    rollout_options = f"--from {START} --jumps 20,1,1,1"

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"seed-{seed}", label=str(seed)) for seed in seeds]

    def training(self, preset: Preset, task: Task) -> Training:
        validation_sequences = max(32, preset.train_sequences // 100)
        data = record(preset.settings, preset.train_sequences, task.seed, TRAIN)
        validation = record(preset.settings, validation_sequences, task.seed, VALIDATION)
        torch.manual_seed(derive_seed(task.seed))  # the initial weights
        model = build(preset.model)
        return Training(
            Learner(model),
            from_arrays(data.x),
            preset.jumps,
            replace(preset.train, seed=task.seed),
            from_arrays(validation.x),
            {"settings": asdict(preset.settings), "test_sequences": preset.test_sequences},
            OscillatorMonitor.watching(model, preset.settings, from_arrays(validation.x), task.seed),
        )

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        return evaluate(models[0], preset.settings, preset.test_sequences, task.seed)

    def overall(self, preset: Preset, seeds: list[int], replicates: list[Measures]) -> Measures:
        shares = [measures["information_share"] for measures in replicates]
        worst = {dt: min(share[dt] for share in shares) for dt in shares[0]}
        return {
            "information_share_worst": {
                dt: {"mean": share, "spread": None, "n": len(shares)} for dt, share in worst.items()
            }
        }

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        measures = content["measures"]
        table = by_key([(label, measures[name]) for name, label in LABELS.items() if name in measures], "δt = {}")
        near, far = (measures["information_share"][str(dt)]["mean"] for dt in (HORIZONS[0], HORIZONS[-1]))
        meaning = (
            f"Of what the observations so far tell about the future, forecasts of one step use {near:.0%}, and one "
            f"jump of {HORIZONS[-1]} steps uses {far:.0%}: 100 % is exact inference, 0 % is to know nothing."
        )
        return {self.name: [table, meaning]}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`, seeds {seeds_of(content)}: mean ± standard deviation; {time_of(content)}. "
            f"The paper shows this experiment in a figure and gives no number."
        )

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.oscillator import figure

        path = folder / "oscillator.png"
        figure.draw(runs[0].models[0], preset.settings, runs[0].task.seed, path)
        return [path]

    def evaluate(self, found: SavedModel, seed: int) -> Measures:
        return evaluate(found.model, settings_of(found.info), found.info["test_sequences"], seed)

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        return from_arrays(record(settings_of(found.info), 1, seed, TEST).x)


DEMO_SEEDS_PRESETS = {
    "smoke": replace(PRESETS["smoke"], seeds=(0, 1)),
    "demo": replace(PRESETS["demo"], seeds=tuple(range(10))),
}


class DemoSeeds(Oscillator):
    """The preset of `make demo` with ten seeds: does it depend on luck?"""

    name = "oscillator_demo_seeds"
    title = "oscillator, the demo with several seeds"
    results_name = "oscillator"
    block = "demo_seeds"
    presets = DEMO_SEEDS_PRESETS
    published = "demo"
    rollout_options = ""

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        return []


def settings_of(info: dict[str, Any]) -> OscillatorSettings:
    """Return the settings of the oscillator that a run was trained on, from its info."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in info["settings"].items()}
    return OscillatorSettings(**values)
