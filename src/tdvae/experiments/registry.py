"""Registry of experiments by name. `load` imports an experiment, so listing the names imports nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tdvae.errors import InputError

if TYPE_CHECKING:
    from tdvae.experiments.shared.evaluation import RunKind
    from tdvae.experiments.shared.experiment import Experiment

# Command-line name → "module:attribute" of its `Experiment`. A run's info has the name with "_" in place of "-".
EXPERIMENTS: dict[str, str] = {
    "oscillator": "tdvae.experiments.oscillator:EXPERIMENT",
    "oscillator-demo-seeds": "tdvae.experiments.oscillator:DEMO_SEEDS",
    "oscillator-ablations": "tdvae.experiments.oscillator:ABLATIONS",
    "switching": "tdvae.experiments.switching:EXPERIMENT",
    "switching-semi-gradient": "tdvae.experiments.switching:SEMI_GRADIENT",
    "switching-curriculum": "tdvae.experiments.switching:CURRICULUM",
    "moving-mnist": "tdvae.experiments.moving_mnist:EXPERIMENT",
    "minipacman": "tdvae.experiments.minipacman:EXPERIMENT",
    "minipacman-observed-state": "tdvae.experiments.minipacman:OBSERVED_STATE",
    "minipacman-jumps": "tdvae.experiments.minipacman:JUMPS",
    "minipacman-map": "tdvae.experiments.minipacman:MAP",
    "minipacman-shared-futures": "tdvae.experiments.minipacman:SHARED_FUTURES",
    "own-data": "tdvae.experiments.own_data:EXPERIMENT",
    "composition": "tdvae.experiments.composition:EXPERIMENT",
    "first-person": "tdvae.experiments.first_person:EXPERIMENT",
}
OTHER_RUNS = {"fit": "tdvae.forecasting:RUNS"}  # runs of other commands


def load(name: str) -> Experiment[Any]:
    """Return the experiment with this command-line name."""
    if name not in EXPERIMENTS:
        raise InputError(f"experiment: expected one of {', '.join(EXPERIMENTS)}; got {name}")
    experiment: Experiment[Any] = _import(EXPERIMENTS[name])
    return experiment


def kind_of_run(name: str) -> RunKind | None:
    """Return what evaluates runs whose info has this experiment name, or None if the name is unknown."""
    path = OTHER_RUNS.get(name) or EXPERIMENTS.get(name.replace("_", "-"))
    if path is None:
        return None
    kind: RunKind = _import(path)
    return kind


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
