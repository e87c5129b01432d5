"""MiniPacman as an experiment: for each seed a training of every model, on the same games."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tdvae.models import Model, NextStep, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae.training.config import derive_seed
from tdvae_paper.experiment import Experiment, Task, TrainedRun, Training, by_seed, seeds_of, time_of
from tdvae_paper.minipacman import tables
from tdvae_paper.minipacman.games import TEST, TRAIN, VALIDATION, WEIGHTS, played, probed
from tdvae_paper.minipacman.limits import limits, shares
from tdvae_paper.minipacman.measures import densities
from tdvae_paper.minipacman.presets import (
    JUMPS_PRESETS,
    LIVING_PRESETS,
    MAP_PRESETS,
    OBJECTIVES,
    OBSERVED_PRESETS,
    PAPER,
    PRESETS,
    SHARED_PRESETS,
    Preset,
)
from tdvae_paper.minipacman.probes import MEASURES, measure_probes
from tdvae_paper.minipacman.truth import observed

KL_WARMUP: dict[str, Any] = {"kl_start": 0.1, "kl_warmup": 0.5}


class MiniPacman(Experiment[Preset]):
    """Sequential TD-VAE, two state-space models and a next-step predictor: densities, and what beliefs hold."""

    name = "minipacman"
    title = "MiniPacman"
    presets = PRESETS
    paper = PAPER

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"{method}-seed-{seed}", method) for seed in seeds for method in preset.models]

    def training(self, preset: Preset, task: Task) -> Training:
        method, rate = task.variant, preset.rates.get(task.variant, 1.0)
        data = observed(played(preset, preset.train_games, task.seed, TRAIN))
        validation = observed(played(preset, preset.test_games, task.seed, VALIDATION))
        torch.manual_seed(derive_seed(task.seed, WEIGHTS))
        learner = Learner(build(preset.models[method]), OBJECTIVES[method])
        config = replace(
            preset.train,
            seed=task.seed,
            learning_rate=rate * preset.train.learning_rate,
            muon_learning_rate=rate * preset.train.muon_learning_rate,
            **(KL_WARMUP if method in preset.kl_warmup else {}),
        )
        info = {"method": method, "frames": preset.frames}
        return Training(learner, data, preset.jumps, config, validation, info)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        torch.manual_seed(derive_seed(task.seed, TEST, 1))
        test = observed(played(preset, preset.test_games, task.seed, TEST))
        measures = densities(models[0], test, preset.samples)
        if isinstance(models[0], NextStep):
            return measures
        torch.manual_seed(derive_seed(task.seed, WEIGHTS))
        untrained = build(preset.models["tdvae"]).eval() if task.variant == "tdvae" else None
        return measures | measure_probes(models[0], probed(preset, task.seed), untrained)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        return [together(by_method) for by_method in by_seed(measures).values()]

    def complete(self, preset: Preset, content: dict[str, Any], replicates: list[Measures]) -> None:
        """Add the exact limit on the test games, and each model's share of what lies between it and knowing little."""
        known = limits(preset, content["seeds"])
        shared = shares([of_seed["nll"] for of_seed in replicates], known)
        content["measures"] |= known | {"information_share": shared}
        content["parameters"] = parameters(preset)

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        return {self.name: tables.models(content), f"{self.name}_in_full": tables.models_in_full(content)}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`, seeds {seeds_of(content)}: nats per frame (the paper states no "
            f"unit), mean ± standard deviation over seeds; {time_of(content)}."
        )

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.minipacman import figure

        seed, path = runs[0].task.seed, folder / f"{self.name}.png"
        curves = {f"{run.task.variant},{run.task.seed}": learning_curve(run.metrics) for run in runs}
        figure.draw(runs[0], probed(preset, seed), content["measures"], curves, seed, path)
        return [path]


class MiniPacmanObservedState(MiniPacman):
    """The same comparison with the observation as part of the state of all models that have one."""

    name = "minipacman_observed_state"
    title = "MiniPacman, observation in the state"
    results_name = "minipacman"
    block = "observed_state"
    presets = OBSERVED_PRESETS
    paper: Measures = {}  # noqa: RUF012 - the paper's models have z alone as their state

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        replicates = super().combine(preset, measures)
        for of_seed in replicates:
            nll = of_seed["nll"]
            if "next_step" not in nll:
                continue
            of_seed["nll_over_next_step"] = {m: nll[m] / nll["next_step"] for m in nll if m != "next_step"}
        return replicates


class MiniPacmanMap(MiniPacmanObservedState):
    """The comparison with a map of what was seen in belief and state, near the exact limit."""

    name = "minipacman_map"
    title = "MiniPacman, a map in the state"
    block = "map"
    pictures = "minipacman_beliefs"
    presets = MAP_PRESETS

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.minipacman import belief_figure

        beliefs = belief_figure.read_beliefs(runs[0], probed(preset, runs[0].task.seed))
        picture, film = folder / f"{self.pictures}.png", folder / f"{self.pictures}.gif"
        belief_figure.draw(beliefs, picture)
        belief_figure.film(beliefs, film)
        return [picture, film]


class MiniPacmanLivingMap(MiniPacmanMap):
    """TD-VAE with a map whose places have learned states: do they hold the ghost?"""

    name = "minipacman_living_map"
    title = "MiniPacman, a map with learned states"
    block = "living_map"
    pictures = "minipacman_living_beliefs"
    presets = LIVING_PRESETS


class MiniPacmanSharedFutures(MiniPacmanMap):
    """TD-VAE with a map, trained on groups of futures that share z_t1: does its belief know more of the ghost?"""

    name = "minipacman_shared_futures"
    title = "MiniPacman, a map in the state, shared futures"
    block = "map_shared_futures"
    presets = SHARED_PRESETS

    def training(self, preset: Preset, task: Task) -> Training:
        """The last weights are kept: with semi-gradients the loss does not tell which are best."""
        return replace(super().training(preset, task), validation=None)

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        return []  # one model, nothing to compare


class MiniPacmanJumps(MiniPacman):
    """TD-VAE with the observation in its state, trained on jumps too: does its belief know more of the ghost?"""

    name = "minipacman_jumps"
    title = "MiniPacman, observation in the state, jumps of up to 8 steps"
    results_name = "minipacman"
    block = "observed_state_jumps"
    presets = JUMPS_PRESETS
    paper: Measures = {}  # noqa: RUF012 - the paper trains on single steps

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        return []  # one model, nothing to compare


def together(by_method: dict[str, Measures]) -> Measures:
    """The measures of a seed, by measure and then by model, with what needs several models: ratios and baselines."""
    measures = by_model(by_method)
    for name in ("elbo", "nll") if "filtering" in by_method else ():
        of = measures[name]
        measures[f"{name}_ratio"] = {
            method: value / of["filtering"] for method, value in of.items() if method != "filtering"
        }
    return measures


def by_model(by_method: dict[str, Measures]) -> Measures:
    """The measures of a seed, by measure and then by model; probes also with what is known without a model."""
    names = dict.fromkeys(name for measures in by_method.values() for name in measures)
    measures: Measures = {
        name: {method: of[name] for method, of in by_method.items() if name in of}
        for name in names
        if name not in MEASURES
    }
    for name in MEASURES:
        measures[name] = dict(by_method["tdvae"][name]["without a model"])
        for method in (m for m in by_method if name in by_method[m]):
            measures[name] |= {
                f"{method}, {read}": value for read, value in by_method[method][name]["read from"].items()
            }
    return measures


def learning_curve(metrics: list[dict[str, Any]]) -> tuple[list[int], list[float]]:
    """Training steps, and the validation bound after each, in nats per frame."""
    validated = [(entry["step"], entry["validation"]) for entry in metrics if "validation" in entry]
    return [step for step, _ in validated], [total for _, total in validated]


def parameters(preset: Preset) -> dict[str, int]:
    """How many each model has."""
    return {method: sum(p.numel() for p in build(config).parameters()) for method, config in preset.models.items()}
