"""Registry of experiments by name. `load` imports an experiment, so listing the names imports nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tdvae.errors import InputError

if TYPE_CHECKING:
    from tdvae_paper.evaluation import RunKind
    from tdvae_paper.experiment import Experiment

# Command-line name → "module:attribute" of its `Experiment`. A run's info has the name with "_" in place of "-".
EXPERIMENTS: dict[str, str] = {
    "oscillator": "tdvae_paper.oscillator:EXPERIMENT",
    "oscillator-demo-seeds": "tdvae_paper.oscillator:DEMO_SEEDS",
    "oscillator-ablations": "tdvae_paper.oscillator:ABLATIONS",
    "switching": "tdvae_paper.switching:EXPERIMENT",
    "switching-curriculum": "tdvae_paper.switching:CURRICULUM",
    "moving-mnist": "tdvae_paper.moving_mnist:EXPERIMENT",
    "minipacman": "tdvae_paper.minipacman:EXPERIMENT",
    "minipacman-observed-state": "tdvae_paper.minipacman:OBSERVED_STATE",
    "minipacman-jumps": "tdvae_paper.minipacman:JUMPS",
    "own-data": "tdvae_paper.own_data:EXPERIMENT",
    "composition": "tdvae_paper.composition:EXPERIMENT",
    "first-person": "tdvae_paper.first_person:EXPERIMENT",
    "first-person-corridors": "tdvae_paper.first_person.codes:EXPERIMENT",
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
