"""Measures of forecasts and rollouts of the oscillator, with the same measures of exact inference."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tdvae.data import OscillatorRecord, OscillatorSettings, from_arrays, simulate
from tdvae.exact import BankPosterior, OscillatorOracle
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at, rollout
from tdvae.training.config import derive_seed
from tdvae.types import Belief, Sequences
from tdvae_paper.monitor import ForecastMonitor

START = 60  # t1: number of observations before the forecast
HORIZONS = (1, 5, 20, 100)  # δt of the forecast measures
SKIPS = (20, 100)  # δt of the first jump of the paper's rollouts; STEPS single steps follow
STEPS = 20
ROLLOUTS = 8  # rollouts per sequence
SAMPLES = 200  # sampled states per forecast
# Frequencies of fitted sinusoids: low, high (rad/step), points. Wider than the true range, finer than 21 points resolve
GRID = (0.05, 0.8, 301)
WATCHED = 300  # validation sequences of the monitor
# (quantity, δt, share): the forecast δt steps ahead has more than this share of the attainable information only if the
# state contains the quantity. Without the velocity the share at δt = 5 is near 0, without the frequency that at 100.
STAGES = (("position", 1, 0.3), ("velocity", 5, 0.5), ("frequency", 100, 0.3))

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
    """Decoded means of rollouts (ROLLOUTS, N, STEPS + 1): after the jump, then after each step."""
    states = rollout(model, model.sample_state(belief, ROLLOUTS), [skip] + [1] * STEPS)
    return model.decode(states).mean[..., 0].movedim(0, -1)


def exact_signals(oracle: OscillatorOracle, posterior: BankPosterior, skip: int, n: int) -> Tensor:
    """The same by exact inference: states and frequencies of the posterior, moved by the true dynamics."""
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
    """Mean absolute errors of frequency and amplitude, fitted to signals that start at t = START + skip."""
    frequency, amplitude = fit_sinusoid(signals)
    true_amplitude = test.state[:, START + skip - 1].double().norm(dim=-1)
    frequency_error = (frequency - test.frequency.double()).abs().mean()
    return float(frequency_error), float((amplitude - true_amplitude).abs().mean())


def fit_sinusoid(signal: Tensor) -> tuple[Tensor, Tensor]:
    """Fit sinusoids to signals (..., T) by least squares over a grid. Return frequencies and amplitudes (...)."""
    frequencies = torch.linspace(*GRID[:2], GRID[2], dtype=torch.float64)
    time = torch.arange(signal.shape[-1], dtype=torch.float64)
    angles = frequencies[:, None] * time
    basis = torch.stack([torch.cos(angles), torch.sin(angles)], dim=-1)  # (F, T, 2)
    q, r = torch.linalg.qr(basis)
    projections = torch.einsum("...t,ftc->...fc", signal.double(), q)
    best = projections.square().sum(-1).argmax(-1)
    chosen = projections.gather(-2, best[..., None, None].expand(*best.shape, 1, 2))
    coefficients = torch.linalg.solve_triangular(r[best], chosen.mT, upper=True)
    return frequencies[best], coefficients.squeeze(-1).norm(dim=-1)


@dataclass(frozen=True)
class OscillatorMonitor(ForecastMonitor):
    """Forecasts of the published measures on validation sequences. ``limits`` has (exact, marginal) NLL by δt."""

    limits: dict[int, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def watching(
        cls, model: Model, settings: OscillatorSettings, validation: Sequences, seed: int
    ) -> OscillatorMonitor:
        some = validation.select(torch.arange(min(len(validation), WATCHED)))
        oracle = OscillatorOracle(settings)
        posterior = oracle.observe(some.x[:, :START])
        limits = {}
        for dt in HORIZONS:
            future = some.x[:, START + dt - 1].double()
            exact, marginal = oracle.forecast(posterior, dt), oracle.marginal(START + dt - 1)
            limits[dt] = (-float(exact.log_prob(future).mean()), -float(marginal.log_prob(future).mean()))
        return cls(model, some, HORIZONS, (START,), (START,), seed, limits=limits)

    def measure(self) -> dict[str, float]:
        """The NLL by δt with its share of the attainable information."""
        measured = super().measure()
        for dt, (exact, marginal) in self.limits.items():
            measured[f"share/{dt}"] = (marginal - measured[f"forecast/{dt}"]) / (marginal - exact)
        return measured

    def in_words(self, measured: dict[str, float]) -> str:
        """What the state contains: "has position, velocity"; "no position yet" at the start."""
        known = [quantity for quantity, dt, share in STAGES if measured[f"share/{dt}"] > share]
        return f"has {', '.join(known)}" if known else "no position yet"
