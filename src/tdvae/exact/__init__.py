"""Exact Bayesian inference for the oscillator data and MiniPacman, as a reference for learned models."""

from typing import TYPE_CHECKING, Any

from tdvae.exact.kalman import BankPosterior, GaussianMixture, KalmanBank, OneStepSmoother
from tdvae.exact.oscillator import OscillatorOracle

if TYPE_CHECKING:
    from tdvae.exact.minipacman import ExactGames, Maze, MiniPacmanFilter

__all__ = [
    "BankPosterior",
    "ExactGames",
    "GaussianMixture",
    "KalmanBank",
    "Maze",
    "MiniPacmanFilter",
    "OneStepSmoother",
    "OscillatorOracle",
]


def __getattr__(name: str) -> Any:
    """Import what is about MiniPacman when it is first used: the game needs Gymnasium."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tdvae.exact import minipacman

    return getattr(minipacman, name)
