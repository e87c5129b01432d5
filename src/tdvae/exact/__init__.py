"""Exact Bayesian inference for the oscillator data, as a reference for learned models."""

from tdvae.exact.kalman import BankPosterior, GaussianMixture, KalmanBank, OneStepSmoother
from tdvae.exact.oscillator import OscillatorOracle

__all__ = [
    "BankPosterior",
    "GaussianMixture",
    "KalmanBank",
    "OneStepSmoother",
    "OscillatorOracle",
]
