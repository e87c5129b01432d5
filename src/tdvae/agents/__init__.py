"""Beliefs for agents: wrappers, learning in rounds, imagined environments, planning in jumps.

Wrappers of single environments, imagined environments and planning need nothing but Gymnasium. `VecBelief`, `learn` and
`train_policy` need the extra ``agents`` (Stable-Baselines3), which is imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tdvae.agents.gym import BeliefObservation
    from tdvae.agents.imagined import ImaginedEnv
    from tdvae.agents.models import fit_model
    from tdvae.agents.outcomes import Outcomes, fit_outcomes
    from tdvae.agents.planning import Planner
    from tdvae.agents.rounds import Learned, Rounds, learn
    from tdvae.agents.tracking import BeliefTracker
    from tdvae.agents.vector import VecBelief

__all__ = [
    "BeliefObservation",
    "BeliefTracker",
    "ImaginedEnv",
    "Learned",
    "Outcomes",
    "Planner",
    "Rounds",
    "VecBelief",
    "fit_model",
    "fit_outcomes",
    "learn",
]

_DEFINED_IN = {
    "BeliefObservation": "gym",
    "BeliefTracker": "tracking",
    "ImaginedEnv": "imagined",
    "Learned": "rounds",
    "Outcomes": "outcomes",
    "Planner": "planning",
    "Rounds": "rounds",
    "VecBelief": "vector",
    "fit_model": "models",
    "fit_outcomes": "outcomes",
    "learn": "rounds",
}

if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> object:
        """Import a name when it is first used (PEP 562)."""
        if name not in _DEFINED_IN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
