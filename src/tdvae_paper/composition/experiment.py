"""The composition experiment: two data sets, models with and without the observed state, NLL by sequence of jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tdvae.data import OscillatorSettings, from_arrays, simulate, split
from tdvae.envs.pendulum import record_pendulum
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.rollouts import belief_at
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.curriculum import curriculum
from tdvae_paper.experiment import Experiment, Task, TrainedRun, Training, by_seed, seeds_of, time_of

SETS = {"pendulum": "Pendulum with hidden velocity", "oscillator": "noisy oscillator"}
STATES = {"observed_state": "state (z, x)", "latent_state": "state z"}
AHEAD = 20  # steps ahead of all forecasts
WAYS: dict[str, list[int]] = {"one jump of 20": [20], "two jumps of 10": [10, 10], "twenty steps": [1] * 20}
ORIGINS = (20, 28, 36)  # number of observations before each forecast
DATA, MEASURE = 701, 702  # purposes of derived seeds


@dataclass(frozen=True)
class Preset:
    """Settings of data, models and trainings."""

    sequences: dict[str, int] = field(default_factory=lambda: {"pendulum": 400, "oscillator": 1_000})
    length: int = 60
    steps: int = 1_500
    samples: int = 2_000
    model: dict[str, Any] = field(default_factory=dict)  # model options that differ from the recipe's
    seeds: tuple[int, ...] = (0,)


PRESETS = {
    "smoke": Preset(
        {"pendulum": 20, "oscillator": 20},
        steps=2,
        samples=4,
        model={"latent": 2, "hidden": 8, "belief": 6, "readout": 8, "readout_hidden": 8},
    ),
    "cpu": Preset(),
}


def _oscillator(sequences: int, length: int, seed: int) -> Sequences:
    return from_arrays(simulate(OscillatorSettings(length=length), sequences, seed).x)


RECORD: dict[str, Callable[[int, int, int], Sequences]] = {"pendulum": record_pendulum, "oscillator": _oscillator}


def parts(preset: Preset, task: Task) -> tuple[Sequences, Sequences, Sequences]:
    """Return training, validation and test sequences of the data set of a task."""
    name = task.variant.partition(",")[0]
    seed = derive_seed(task.seed, DATA) % 2**20  # Gymnasium takes 32-bit seeds
    train, validation, test = split(RECORD[name](preset.sequences[name], preset.length, seed), task.seed)
    return train, validation, test


class Composition(Experiment[Preset]):
    """One training for each data set and each kind of state."""

    name = "composition"
    title = "forecasts 20 steps ahead"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [
            Task(seed, f"{name}-{state}-seed-{seed}", f"{name},{state}")
            for seed in seeds
            for name in SETS
            for state in STATES
        ]

    def training(self, preset: Preset, task: Task) -> Training:
        train, validation, _ = parts(preset, task)
        observed_state = task.variant.endswith("observed_state")
        return curriculum(train, validation, AHEAD, preset.steps, task.seed, observed_state, **preset.model)

    @torch.no_grad()
    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        test, model = parts(preset, task)[2], models[0]
        torch.manual_seed(derive_seed(task.seed, MEASURE))
        nll: dict[str, list[torch.Tensor]] = {way: [] for way in WAYS}
        for origin in ORIGINS:
            belief, future = belief_at(model, test, origin), test.x[:, origin + AHEAD - 1]
            actions = None if test.actions is None else test.actions[:, origin : origin + AHEAD]
            for way, jumps in WAYS.items():
                nll[way].append(-forecast(model, belief, jumps, preset.samples, actions).log_prob(future))
        scores = {way: torch.cat(values) for way, values in nll.items()}
        return {
            "nll": {way: float(score.mean()) for way, score in scores.items()},
            "nll_median": {way: float(score.median()) for way, score in scores.items()},
        }

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        replicates = []
        for variants in by_seed(measures).values():
            nll, median = (
                {name: {state: variants[f"{name},{state}"][measure] for state in STATES} for name in SETS}
                for measure in ("nll", "nll_median")
            )
            one, *composed = WAYS
            cost = {
                name: {state: {way: of[way] - of[one] for way in composed} for state, of in by_state.items()}
                for name, by_state in nll.items()
            }
            replicates.append({"nll": nll, "nll_median": median, "cost_of_composition": cost})
        return replicates

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        rows = (
            (f"{SETS[name]}, {STATES[state]}{note}", content["measures"][measure][name][state])
            for name in SETS
            for state in STATES
            for measure, note in (("nll", ""), ("nll_median", ", median"))
        )
        return {self.name: [by_key(rows, corner=f"NLL of x, {AHEAD} steps ahead, nats")]}

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.composition import figure

        path = folder / f"{self.name}.png"
        figure.draw(content["measures"], SETS, STATES, path)
        return [path]

    def made(self, content: dict[str, Any]) -> str:
        return f"`{content['command']}`, seeds {seeds_of(content)}: {time_of(content)}."
