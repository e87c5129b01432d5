"""Composition of jumps: forecasts 20 steps ahead by one jump of 20, by two of 10 and by twenty of 1.

With the observation in the state, a rollout samples an observation after each jump. This experiment measures the cost
of composition with and without that option, on a pendulum with hidden velocity and on the noisy oscillator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tdvae.data import OscillatorSettings, from_arrays, simulate, split
from tdvae.envs.pendulum import record_pendulum
from tdvae.likelihood import forecast
from tdvae.models import LinearRecurrence, Model, Readout, ResidualMaps
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
COLOURS = ("#d1495b", "#2e6f95")  # of the kinds of state


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
        model={"latent": 2, "maps": ResidualMaps(8), "belief": LinearRecurrence(6), "readout": Readout(8, hidden=8)},
    ),
    "cpu": Preset(),
}


def _oscillator(sequences: int, length: int, seed: int) -> Sequences:
    return from_arrays(simulate(OscillatorSettings(length=length), sequences, seed).x)


RECORD: dict[str, Callable[[int, int, int], Sequences]] = {"pendulum": record_pendulum, "oscillator": _oscillator}


def parts(preset: Preset, task: Task) -> tuple[Sequences, Sequences, Sequences]:
    """Training, validation and test sequences of the data set of a task."""
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
        name, _, state = task.variant.partition(",")
        training = curriculum(
            train, validation, AHEAD, preset.steps, task.seed, state == "observed_state", **preset.model
        )
        return replace(training, info={"data": name, "longest_jump": AHEAD})

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
        path = folder / f"{self.name}.png"
        draw(content["measures"], path)
        return [path]

    def made(self, content: dict[str, Any]) -> str:
        return f"`{content['command']}`, seeds {seeds_of(content)}: {time_of(content)}."


def draw(measures: Measures, path: Path) -> None:
    """Draw a dot for each way to forecast 20 steps ahead, with its spread if there are several seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(SETS), figsize=(10, 3), layout="constrained", squeeze=False, sharey=True)
    for panel, (name, title) in zip(axes[0], SETS.items(), strict=True):
        for number, (colour, state) in enumerate(zip(COLOURS, STATES, strict=True)):
            by_way = measures["nll"][name][state]
            means = [entry["mean"] for entry in by_way.values()]
            spreads = [entry["spread"] or 0 for entry in by_way.values()]
            rows = [row + 0.16 * (2 * number - 1) for row in range(len(means))]
            panel.errorbar(means, rows, xerr=spreads, fmt="o", ms=8, capsize=4, color=colour, label=STATES[state])
        panel.set_title(title, fontsize=11)
        panel.set_xlabel("NLL 20 steps ahead, nats (← lower is better)")
        panel.set_yticks(range(len(by_way)), list(by_way))
        panel.grid(axis="y", alpha=0.3)
        panel.margins(x=0.15, y=0.25)
    axes[0, 0].invert_yaxis()
    axes[0, 0].legend(fontsize=10, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


EXPERIMENT = Composition()
