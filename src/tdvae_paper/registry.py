"""Registry of experiments by name. `load` imports an experiment, so listing the names imports nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tdvae.errors import InputError

if TYPE_CHECKING:
    from tdvae_paper.experiment import Experiment

# Command-line name → "module:attribute" of its `Experiment`. A run's info has the name with "_" in place of "-".
EXPERIMENTS: dict[str, str] = {
    "oscillator": "tdvae_paper.oscillator.experiment:EXPERIMENT",
    "oscillator-demo-seeds": "tdvae_paper.oscillator.experiment:DEMO_SEEDS",
    "oscillator-ablations": "tdvae_paper.oscillator.experiment:ABLATIONS",
    "switching": "tdvae_paper.switching:EXPERIMENT",
    "switching-semi-gradient": "tdvae_paper.switching:SEMI_GRADIENT",
    "switching-curriculum": "tdvae_paper.switching:CURRICULUM",
    "moving-mnist": "tdvae_paper.moving_mnist.experiment:EXPERIMENT",
    "moving-mnist-fitted": "tdvae_paper.moving_mnist.fitted:EXPERIMENT",
    "minipacman": "tdvae_paper.minipacman:EXPERIMENT",
    "minipacman-observed-state": "tdvae_paper.minipacman:OBSERVED_STATE",
    "minipacman-jumps": "tdvae_paper.minipacman:JUMPS",
    "minipacman-map": "tdvae_paper.minipacman:MAP",
    "minipacman-living-map": "tdvae_paper.minipacman:LIVING_MAP",
    "minipacman-shared-futures": "tdvae_paper.minipacman:SHARED_FUTURES",
    "own-data": "tdvae_paper.own_data:EXPERIMENT",
    "own-data-lorenz": "tdvae_paper.own_data:LORENZ",
    "composition": "tdvae_paper.composition:EXPERIMENT",
    "first-person": "tdvae_paper.first_person.experiment:EXPERIMENT",
    "agents": "tdvae_paper.agents:EXPERIMENT",
    "first-person-corridors": "tdvae_paper.first_person.codes:EXPERIMENT",
}


def load(name: str) -> Experiment[Any]:
    """The experiment with this command-line name."""
    if name not in EXPERIMENTS:
        raise InputError(f"experiment: expected one of {', '.join(EXPERIMENTS)}; got {name}")
    module, _, attribute = EXPERIMENTS[name].partition(":")
    experiment: Experiment[Any] = getattr(import_module(module), attribute)
    return experiment
