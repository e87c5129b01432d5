"""tdvae: belief-state world models. Learn an abstract state, an explicit belief about it, and jumpy predictions.

Public names are imported when they are first used, so ``import tdvae`` is quick and loads neither torch nor any other
dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors, which do not run `__getattr__`
    from tdvae import agents, data, envs, exact, jumps, likelihood, models, objectives
    from tdvae.errors import ArgumentTypeError, CheckpointError, DivergenceError, InputError, TDVAEError
    from tdvae.forecasting import Forecaster, Forecasts, OwnData, fit_forecaster, prepare
    from tdvae.forecasting.fitting import Recipe, recipe
    from tdvae.likelihood import Forecast, forecast
    from tdvae.models import TDVAE, TDVAEConfig
    from tdvae.objectives import Learner
    from tdvae.rollouts import belief_at, rollout
    from tdvae.saved import load
    from tdvae.training import FitResult, Monitor, TrainConfig, fit
    from tdvae.types import Belief, Latent, LossTerms, Pairs, Sequences, State

__version__ = "0.2.0"

__all__ = [
    "TDVAE",
    "ArgumentTypeError",
    "Belief",
    "CheckpointError",
    "DivergenceError",
    "FitResult",
    "Forecast",
    "Forecaster",
    "Forecasts",
    "InputError",
    "Latent",
    "Learner",
    "LossTerms",
    "Monitor",
    "OwnData",
    "Pairs",
    "Recipe",
    "Sequences",
    "State",
    "TDVAEConfig",
    "TDVAEError",
    "TrainConfig",
    "agents",
    "belief_at",
    "data",
    "envs",
    "exact",
    "fit",
    "fit_forecaster",
    "forecast",
    "jumps",
    "likelihood",
    "load",
    "models",
    "objectives",
    "prepare",
    "recipe",
    "rollout",
]

# Where each public name is defined. Those of `__all__` that are not here are modules.
_DEFINED_IN = {
    "TDVAE": "tdvae.models",
    "TDVAEConfig": "tdvae.models",
    "Learner": "tdvae.objectives",
    "fit": "tdvae.training",
    "FitResult": "tdvae.training",
    "Monitor": "tdvae.training",
    "TrainConfig": "tdvae.training",
    "Recipe": "tdvae.forecasting",
    "recipe": "tdvae.forecasting",
    "fit_forecaster": "tdvae.forecasting",
    "prepare": "tdvae.forecasting",
    "OwnData": "tdvae.forecasting",
    "Forecaster": "tdvae.forecasting",
    "Forecasts": "tdvae.forecasting",
    "load": "tdvae.saved",
    "belief_at": "tdvae.rollouts",
    "rollout": "tdvae.rollouts",
    "forecast": "tdvae.likelihood",
    "Forecast": "tdvae.likelihood",
    "Belief": "tdvae.types",
    "Latent": "tdvae.types",
    "LossTerms": "tdvae.types",
    "Pairs": "tdvae.types",
    "Sequences": "tdvae.types",
    "State": "tdvae.types",
    "ArgumentTypeError": "tdvae.errors",
    "CheckpointError": "tdvae.errors",
    "DivergenceError": "tdvae.errors",
    "InputError": "tdvae.errors",
    "TDVAEError": "tdvae.errors",
}


if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _DEFINED_IN.get(name)
        value = import_module(f"{__name__}.{name}") if module is None else getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
