"""The experiments by name. An experiment is imported when it is loaded, so that listing them costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tdvae.errors import InputError

if TYPE_CHECKING:
    from tdvae.experiments.shared.evaluation import RunKind
    from tdvae.experiments.shared.experiment import Experiment

# The name on the command line → where its `Experiment` is. In a run's info, "_" stands for "-".
EXPERIMENTS: dict[str, str] = {
    "oscillator": "tdvae.experiments.oscillator:EXPERIMENT",
    "oscillator-ablations": "tdvae.experiments.oscillator:ABLATIONS",
    "switching": "tdvae.experiments.switching:EXPERIMENT",
    "moving-mnist": "tdvae.experiments.moving_mnist:EXPERIMENT",
    "minipacman": "tdvae.experiments.minipacman:EXPERIMENT",
    "minipacman-observed-state": "tdvae.experiments.minipacman:OBSERVED_STATE",
    "first-person": "tdvae.experiments.first_person:EXPERIMENT",
}
OTHER_RUNS = {"fit": "tdvae.forecasting:RUNS"}  # runs that are of no experiment


def load(name: str) -> Experiment[Any]:
    """The experiment of a name on the command line."""
    if name not in EXPERIMENTS:
        raise InputError(f"experiment: expected one of {', '.join(EXPERIMENTS)}; got {name}")
    experiment: Experiment[Any] = _import(EXPERIMENTS[name])
    return experiment


def kind_of_run(name: str) -> RunKind | None:
    """What evaluates a run whose info says that it is of ``name``; none, where the name is not known."""
    path = OTHER_RUNS.get(name) or EXPERIMENTS.get(name.replace("_", "-"))
    if path is None:
        return None
    kind: RunKind = _import(path)
    return kind


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
