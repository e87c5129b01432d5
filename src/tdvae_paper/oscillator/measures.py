"""Measures of forecasts and rollouts of the oscillator, with the same measures of exact inference."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tdvae.data import OscillatorRecord, OscillatorSettings, from_arrays, simulate
from tdvae.exact import BankPosterior, OscillatorOracle
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at, rollout
from tdvae.training.config import derive_seed
from tdvae.types import Belief
from tdvae_paper.oscillator.signals import fit_sinusoid

START = 60  # t1: number of observations before the forecast
HORIZONS = (1, 5, 20, 100)  # δt of the forecast measures
SKIPS = (20, 100)  # δt of the first jump of the paper's rollouts; STEPS single steps follow
STEPS = 20
ROLLOUTS = 8  # rollouts per sequence
SAMPLES = 200  # sampled states per forecast

TRAIN, VALIDATION, TEST = 101, 102, 103  # purposes of derived seeds: each data set has its own


def record(settings: OscillatorSettings, n: int, seed: int, purpose: int) -> OscillatorRecord:
    return simulate(settings, n, derive_seed(seed, purpose))


@torch.no_grad()
def evaluate(model: Model, settings: OscillatorSettings, n: int, seed: int) -> Measures:
    """Compute all measures of the experiment on n held-out sequences."""
    test = record(settings, n, seed, TEST)
    torch.manual_seed(derive_seed(seed, TEST, 1))
    belief = belief_at(model, from_arrays(test.x), START)
    oracle = OscillatorOracle(settings)
    posterior = oracle.observe(test.x[:, :START])
    measures = _forecast_measures(model, belief, oracle, posterior, test.x)
    rolled_out = {skip: _model_signals(model, belief, skip) for skip in SKIPS}
    exact = {skip: exact_signals(oracle, posterior, skip, ROLLOUTS) for skip in SKIPS}
    for suffix, signals in (("", rolled_out), ("_exact", exact)):
        errors = {str(skip): _sinusoid_errors(signal, test, skip) for skip, signal in signals.items()}
        measures[f"frequency_error{suffix}"] = {skip: error[0] for skip, error in errors.items()}
        measures[f"amplitude_error{suffix}"] = {skip: error[1] for skip, error in errors.items()}
    return measures


def _forecast_measures(
    model: Model, belief: Belief, oracle: OscillatorOracle, posterior: BankPosterior, x: Tensor
) -> Measures:
    names = ("information_share", "coverage_50", "coverage_90", "nll", "nll_bayes", "nll_marginal")
    measures: Measures = {name: {} for name in names}
    for dt in HORIZONS:
        future = x[:, START + dt - 1]
        predicted = forecast(model, belief, dt, SAMPLES)
        nll = -float(predicted.log_prob(future).mean())
        bayes = -float(oracle.forecast(posterior, dt).log_prob(future.double()).mean())
        marginal = -float(oracle.marginal(START + dt - 1).log_prob(future.double()).mean())
        level = predicted.cdf(future)
        values = (
            (marginal - nll) / (marginal - bayes),
            *(float(((level - 0.5).abs() <= width / 2).float().mean()) for width in (0.5, 0.9)),
            nll,
            bayes,
            marginal,
        )
        for name, value in zip(names, values, strict=True):
            measures[name][str(dt)] = value
    return measures


def _model_signals(model: Model, belief: Belief, skip: int) -> Tensor:
    """Return decoded means of rollouts (ROLLOUTS, N, STEPS + 1): after the jump, then after each step."""
    states = rollout(model, model.sample_state(belief, ROLLOUTS), [skip] + [1] * STEPS)
    return model.decode(states).mean[..., 0].movedim(0, -1)


def exact_signals(oracle: OscillatorOracle, posterior: BankPosterior, skip: int, n: int) -> Tensor:
    """Return the same by exact inference: states and frequencies of the posterior, moved by the true dynamics."""
    noise = oracle.settings.process_noise
    hypothesis = torch.multinomial(posterior.weights, n, replacement=True)  # (N, n)
    rows = torch.arange(len(hypothesis))[:, None]
    factor = torch.linalg.cholesky(posterior.cov)[hypothesis]
    state = posterior.mean[rows, hypothesis] + (factor @ torch.randn(*hypothesis.shape, 2, 1).double())[..., 0]
    frequency = oracle.frequencies[hypothesis]
    signal = []
    # Rotated isotropic noise is isotropic, so a jump of any length is one rotation and one sample of noise.
    for steps in [skip] + [1] * STEPS:
        cos, sin = torch.cos(steps * frequency), torch.sin(steps * frequency)
        u, v = state.unbind(-1)
        state = torch.stack([cos * u - sin * v, sin * u + cos * v], dim=-1)
        state = state + noise * math.sqrt(steps) * torch.randn_like(state)
        signal.append(state[..., 0])
    return torch.stack(signal, dim=-1).transpose(0, 1)


def _sinusoid_errors(signals: Tensor, test: OscillatorRecord, skip: int) -> tuple[float, float]:
    """Return mean absolute errors of frequency and amplitude, fitted to signals that start at t = START + skip."""
    frequency, amplitude = fit_sinusoid(signals)
    true_amplitude = test.state[:, START + skip - 1].double().norm(dim=-1)
    frequency_error = (frequency - test.frequency.double()).abs().mean()
    return float(frequency_error), float((amplitude - true_amplitude).abs().mean())
