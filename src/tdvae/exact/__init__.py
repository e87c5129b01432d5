"""Exact Bayesian inference for the oscillator data and MiniPacman, as a reference for learned models."""

from tdvae.exact.kalman import BankPosterior, GaussianMixture, KalmanBank, OneStepSmoother
from tdvae.exact.minipacman import ExactGames, Maze, MiniPacmanFilter
from tdvae.exact.oscillator import OscillatorOracle

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
