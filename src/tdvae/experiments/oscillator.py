"""The noisy harmonic oscillator (paper, section of that name, Fig. 4), measured against exact inference."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae import saved
from tdvae.data import OscillatorRecord, OscillatorSettings, from_arrays, simulate
from tdvae.exact import BankPosterior, OscillatorOracle
from tdvae.experiments.report import Measures
from tdvae.experiments.signals import read_sinusoid
from tdvae.jumps import Consecutive, InTurn, Jumps, Mixture, Widening, paper_mixture
from tdvae.likelihood import forecast
from tdvae.models import Model, TDVAEConfig, build
from tdvae.objectives import Learner
from tdvae.rollout import belief_at, rollout
from tdvae.training import FitResult, TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress
from tdvae.types import Belief, Sequences

NAME = "oscillator"
START = 60  # t1: observations seen before the forecast
HORIZONS = (1, 5, 20, 100)  # δt of the forecast measures
SKIPS = (20, 100)  # δt of the paper's rollouts, followed by STEPS single steps
STEPS = 20
ROLLOUTS = 8  # rolled-out signals per sequence
SAMPLES = 200  # states per forecast
PAPER: Measures = {}  # the paper shows this experiment in a figure and gives no number

TRAIN, VALIDATION, TEST = 101, 102, 103  # purposes of derived seeds: no two data sets share one

TABLE = {
    "information_share": "share of attainable information",
    "coverage_50": "coverage of the 50 % interval",
    "coverage_90": "coverage of the 90 % interval",
    "frequency_error": "frequency error of rollouts, rad/step",
    "frequency_error_exact": "… of the exact posterior's",
    "amplitude_error": "amplitude error of rollouts",
    "amplitude_error_exact": "… of the exact posterior's",
}


def curriculum() -> InTurn:
    """Jumps widen up to the paper's law; in the last quarter most pairs are consecutive (why: docs/oscillator.md)."""
    sharpen = Mixture((Consecutive(), paper_mixture()), (0.8, 0.2))
    return InTurn(Widening(paper_mixture(), start=2, until=0.45), sharpen, switch=0.75)


@dataclass(frozen=True)
class Preset:
    """Everything about a run but its seed."""

    model: TDVAEConfig
    train: TrainConfig
    jumps: Jumps = field(default_factory=curriculum)
    settings: OscillatorSettings = field(default_factory=OscillatorSettings)
    train_sequences: int = 50_000
    test_sequences: int = 1_000
    seeds: tuple[int, ...] = (0,)


# App. D as printed: LSTM and D maps of 50, two layers of 8, Adam 5e-4, b_t2 withheld from q_S, δt as a number.
_PAPER_MODEL = TDVAEConfig(likelihood="first_components", dt="number", smoothing_sees_b2=False)
# What we found to learn, and why, is in docs/oscillator.md.
_MODEL = TDVAEConfig(
    likelihood="first_components",
    noise=0.1,
    belief_network="linear_recurrence",
    belief=64,
    fastest=0.75,
    readout=96,
    maps="residual",
    hidden=96,
    drift="turn",
    smoothing="product",
)
_TRAIN = TrainConfig(
    optimizer="muon",
    learning_rate=2e-3,
    schedule="cosine",
    warmup=300,
    clip=1.0,
    validate_every=500,
    checkpoint_every=500,
    accelerator="cpu",
)

PRESETS = {
    "smoke": Preset(
        replace(_MODEL, belief=16, readout=16, readout_hidden=16, hidden=16),
        replace(_TRAIN, steps=20, batch=8, pairs=4, validate_every=10, checkpoint_every=10, log_every=5),
        train_sequences=64,
        test_sequences=32,
    ),
    "demo": Preset(_MODEL, replace(_TRAIN, steps=2_400), test_sequences=500),
    "cpu": Preset(_MODEL, replace(_TRAIN, steps=11_000), seeds=(0, 1, 2)),
    "paper": Preset(
        _PAPER_MODEL, TrainConfig(steps=200_000, batch=32, pairs=1), jumps=paper_mixture(), seeds=(0, 1, 2)
    ),
}


def record(settings: OscillatorSettings, n: int, seed: int, purpose: int) -> OscillatorRecord:
    return simulate(settings, n, derive_seed(seed, purpose))


def train(preset: Preset, name: str, seed: int, run_dir: Path, resume: bool, progress: Progress) -> FitResult:
    """One training of a preset; the run remembers how to draw its own kind of data again."""
    info = {
        "experiment": NAME,
        "preset": name,
        "settings": asdict(preset.settings),
        "test_sequences": preset.test_sequences,
    }
    data = from_arrays(record(preset.settings, preset.train_sequences, seed, TRAIN).x)
    validation = from_arrays(record(preset.settings, max(32, preset.train_sequences // 100), seed, VALIDATION).x)
    torch.manual_seed(derive_seed(seed))  # the initial weights
    learner = Learner(build(preset.model))
    config = replace(preset.train, seed=seed)
    return fit(learner, data, preset.jumps, config, run_dir, validation, resume, info, progress)


def measure(preset: Preset, seed: int, run_dir: Path) -> Measures:
    """Every measure of a finished training."""
    return evaluate(saved.load(run_dir), preset.settings, preset.test_sequences, seed)


def held_out(settings: OscillatorSettings, n: int, seed: int) -> Sequences:
    """Sequences that no training has seen, whatever its seed."""
    return from_arrays(record(settings, n, seed, TEST).x)


def settings_of(info: dict[str, Any]) -> OscillatorSettings:
    """The oscillator that a run was trained on, from what the run remembers."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in info["settings"].items()}
    return OscillatorSettings(**values)


@torch.no_grad()
def evaluate(model: Model, settings: OscillatorSettings, n: int, seed: int) -> Measures:
    """Every measure of the experiment on n fresh sequences."""
    fresh = record(settings, n, seed, TEST)
    torch.manual_seed(derive_seed(seed, TEST, 1))
    belief = belief_at(model, from_arrays(fresh.x), START)
    oracle = OscillatorOracle(settings)
    posterior = oracle.observe(fresh.x[:, :START])
    measures = _forecast_measures(model, belief, oracle, posterior, fresh.x)
    rolled = {skip: _model_signals(model, belief, skip) for skip in SKIPS}
    exact = {skip: exact_signals(oracle, posterior, skip, ROLLOUTS) for skip in SKIPS}
    for suffix, signals in (("", rolled), ("_exact", exact)):
        errors = {str(skip): _read_off_errors(signal, fresh, skip) for skip, signal in signals.items()}
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
        place = predicted.cdf(future)
        values = (
            (marginal - nll) / (marginal - bayes),
            *(float(((place - 0.5).abs() <= width / 2).float().mean()) for width in (0.5, 0.9)),
            nll,
            bayes,
            marginal,
        )
        for name, value in zip(names, values, strict=True):
            measures[name][str(dt)] = value
    return measures


def _model_signals(model: Model, belief: Belief, skip: int) -> Tensor:
    """Rolled-out signals (ROLLOUTS, N, STEPS + 1), decoded without noise: after the jump, then after each step."""
    states = rollout(model, model.sample_state(belief, ROLLOUTS), [skip] + [1] * STEPS)
    return model.decode(states).mean[..., 0].movedim(0, -1)


def exact_signals(oracle: OscillatorOracle, posterior: BankPosterior, skip: int, n: int) -> Tensor:
    """The same from exact inference: frequency and state from the posterior, then the true dynamics."""
    noise = oracle.settings.process_noise
    hypothesis = torch.multinomial(posterior.weights, n, replacement=True)  # (N, n)
    rows = torch.arange(len(hypothesis))[:, None]
    factor = torch.linalg.cholesky(posterior.cov)[hypothesis]
    state = posterior.mean[rows, hypothesis] + (factor @ torch.randn(*hypothesis.shape, 2, 1).double())[..., 0]
    frequency = oracle.frequencies[hypothesis]
    signal = []
    # A rotation of isotropic noise is isotropic: the whole skip is one turn and one draw.
    for steps in [skip] + [1] * STEPS:
        cos, sin = torch.cos(steps * frequency), torch.sin(steps * frequency)
        u, v = state.unbind(-1)
        state = torch.stack([cos * u - sin * v, sin * u + cos * v], dim=-1)
        state = state + noise * math.sqrt(steps) * torch.randn_like(state)
        signal.append(state[..., 0])
    return torch.stack(signal, dim=-1).transpose(0, 1)


def _read_off_errors(signals: Tensor, fresh: OscillatorRecord, skip: int) -> tuple[float, float]:
    """Mean absolute errors of frequency and amplitude, read off signals that start at t = START + skip."""
    frequency, amplitude = read_sinusoid(signals)
    true_amplitude = fresh.state[:, START + skip - 1].double().norm(dim=-1)
    frequency_error = (frequency - fresh.frequency.double()).abs().mean()
    return float(frequency_error), float((amplitude - true_amplitude).abs().mean())
