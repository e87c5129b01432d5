"""Policies on beliefs and on other inputs, at equal interactions in all; planning in jumps on the pendulum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tdvae.agents.policies import PolicySettings
from tdvae.agents.rounds import Rounds
from tdvae.models import LSTM, ResidualMaps
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, by_key, cell
from tdvae.training import FitResult
from tdvae_paper.agents import inputs, planning
from tdvae_paper.agents.inputs import Learning
from tdvae_paper.agents.planning import Planning
from tdvae_paper.experiment import Experiment, Task, TrainedRun, by_seed

INPUTS = {
    "last": "last observation",
    "frames": "8 observations and actions",
    "recurrent": "RecurrentPPO",
    "next_step": "code of the belief network",
    "belief_random": "belief p_B, random recordings only",
    "belief": "belief p_B of TD-VAE",
    "kalman": "Kalman filter, dynamics known",
    "full": "full state",
}
TASKS = {"noisy_cartpole": "Noisy cart-pole, return 0 to 1", "pendulum_no_velocity": "Pendulum without velocity"}
PLANNERS = {"jumps": "in jumps of 5", "steps": "in single steps", "true": "true dynamics and state"}
PLANNING = "planning"
COLOURS = ("#8d99ae", "#6c757d", "#edae49", "#2e6f95", "#f4a6b0", "#d1495b", "#00798c", "#333333")


@dataclass(frozen=True)
class Preset:
    """What is learned by which inputs, the planning if there is any, and the seeds."""

    learning: dict[str, Learning]
    inputs: dict[str, tuple[str, ...]]
    planning: Planning | None = None
    seeds: tuple[int, ...] = (0,)


SMALL = {"belief": LSTM(8), "maps": ResidualMaps(8), "layers": 1, "latent": 2}
BRIEF = PolicySettings(envs=2, n_steps=32, batch_size=32)
CARTPOLE_INPUTS = ("last", "frames", "next_step", "kalman")
PRESETS = {
    "smoke": Preset(
        {
            "noisy_cartpole": Learning(
                Rounds(2, 64, 128, 128, longest_jump=3, fit_steps=2, refit_steps=2, model=SMALL, policy=BRIEF), 8, 400
            )
        },
        {"noisy_cartpole": ("last", "frames", "next_step", "belief", "kalman")},
        Planning(200, 2, 2, 2, {"horizon": 2, "candidates": 4, "iterations": 1, "elites": 2}, 2, 4, 8),
    ),
    "cpu": Preset({"noisy_cartpole": Learning(Rounds())}, {"noisy_cartpole": CARTPOLE_INPUTS}),
    "full": Preset(
        {"noisy_cartpole": Learning(Rounds())},
        {"noisy_cartpole": (*CARTPOLE_INPUTS, "belief", "belief_random", "recurrent")},
        Planning(),
        seeds=(0, 1, 2),
    ),
}


class Agents(Experiment[Preset]):
    """One training for each task, input and seed, and one for planning."""

    name = "agents"
    title = "agents"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        names = [(task, name) for task, names in preset.inputs.items() for name in names]
        names += [(PLANNING, "pendulum")] if preset.planning is not None else []
        return [Task(seed, f"{task}-{name}-seed-{seed}", f"{task},{name}") for seed in seeds for task, name in names]

    def training(self, preset: Preset, task: Task) -> Callable[..., FitResult]:
        world, _, name = task.variant.partition(",")
        if world == PLANNING:
            assert preset.planning is not None
            return partial(planning.train_planning, preset.planning, task.seed)
        return partial(inputs.train_input, preset.learning[world], world, name, task.seed)

    def measure_run(self, preset: Preset, run: TrainedRun) -> Measures:
        return (planning if run.task.variant.startswith(PLANNING) else inputs).measured(run.folder)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        """By measure, task and input; those of planning by planner."""
        replicates = []
        for variants in by_seed(measures).values():
            nested: Measures = {}
            for variant, found in variants.items():
                world, _, name = variant.partition(",")
                if world == PLANNING:
                    nested |= found
                    continue
                for measure, value in found.items():
                    if measure != "curve":
                        nested.setdefault(measure, {}).setdefault(world, {})[name] = value
            replicates.append(nested)
        return replicates

    def complete(self, preset: Preset, content: dict[str, Any], replicates: list[Measures]) -> None:
        for world, by_input in content["measures"].get("return", {}).items():
            for name in by_input:
                content.setdefault("runs", {}).setdefault(world, {})[name] = [
                    one["return"][world][name] for one in replicates
                ]

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        measures = content["measures"]
        tables: dict[str, list[Block]] = {}
        for world, title in TASKS.items():
            if world not in measures.get("return", {}):
                continue
            columns = [title, "return", "interactions", "CPU-seconds"]
            by_measure = [measures[name][world] for name in ("return", "environment_steps", "seconds")]
            rows = [
                [
                    label,
                    cell(by_measure[0][name]),
                    f"{by_measure[1][name]['mean']:,.0f}",
                    f"{by_measure[2][name]['mean']:.0f}",
                ]
                for name, label in INPUTS.items()
                if name in by_measure[0]
            ]
            tables[f"agents_{world}"] = [Table(columns, rows)]
            probed = measures.get("belief_r2", {}).get(world, {})
            tables[f"agents_{world}_r2"] = [
                by_key(
                    ((INPUTS[name], probed[name]) for name in INPUTS if name in probed), corner="R² of a linear probe"
                )
            ]
        if "planning_return" in measures:
            rows = [
                [
                    label,
                    cell(measures["planning_return"][name]),
                    f"{1e3 * measures['planning_seconds'][name]['mean']:.1f}",
                ]
                for name, label in PLANNERS.items()
            ]
            tables["agents_planning"] = [Table(["Planning on the pendulum", "return", "CPU-ms a decision"], rows)]
        return tables

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        path = folder / f"{self.name}.png"
        curves: dict[str, dict[str, list[dict[str, float]]]] = {}
        for run in runs:
            world, _, name = run.task.variant.partition(",")
            if world != PLANNING:
                curves.setdefault(world, {}).setdefault(name, []).append(inputs.measured(run.folder)["curve"])
        _draw(curves, path)
        return [path]


def _draw(curves: dict[str, dict[str, list[dict[str, float]]]], path: Path) -> None:
    """Learning curves of each task, one line per run."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(8.5 * len(curves), 4.2), layout="constrained", squeeze=False)
    for panel, (world, by_input) in zip(axes[0], curves.items(), strict=True):
        for (name, label), colour in zip(INPUTS.items(), COLOURS, strict=True):
            for number, curve in enumerate(by_input.get(name, [])):
                steps = [float(step) / 1_000 for step in curve]
                text = label if number == 0 else None
                panel.plot(steps, list(curve.values()), color=colour, label=text, lw=2 if name == "belief" else 1.2)
        panel.set_title(TASKS[world], fontsize=10)
        panel.set_xlabel("thousand interactions in all (returns of exploring policies)")
        panel.set_ylabel("return")
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


EXPERIMENT = Agents()
