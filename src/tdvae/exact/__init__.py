"""Exact inference where it exists: the yardstick for learned models."""

from tdvae.exact.kalman import BankPosterior, GaussianMixture, KalmanBank, OneStepSmoother
from tdvae.exact.oscillator import OscillatorOracle
from tdvae.exact.switching import SwitchingOracle

__all__ = [
    "BankPosterior",
    "GaussianMixture",
    "KalmanBank",
    "OneStepSmoother",
    "OscillatorOracle",
    "SwitchingOracle",
]
