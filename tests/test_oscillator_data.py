"""Tests of the oscillator simulation: noiseless dynamics, statistics of the noise, random state, invalid input."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tdvae.data.oscillator import OscillatorSettings, simulate

NOISELESS = OscillatorSettings(process_noise=0.0, observation_noise=0.0)


@given(seed=st.integers(0, 2**31), length=st.integers(1, 300))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=20)
def test_noiseless_state_is_an_exact_rotation(seed: int, length: int) -> None:
    record = simulate(replace(NOISELESS, length=length), n=5, seed=seed)
    u0, v0 = record.state[:, 0].double().unbind(-1)
    angle = record.frequency.double().unsqueeze(-1) * torch.arange(length)
    expected = torch.stack(
        (
            angle.cos() * u0.unsqueeze(-1) - angle.sin() * v0.unsqueeze(-1),
            angle.sin() * u0.unsqueeze(-1) + angle.cos() * v0.unsqueeze(-1),
        ),
        dim=-1,
    )
    # The tolerance follows from the rounding of float32 frequencies over 300 steps.
    torch.testing.assert_close(record.state.double(), expected, atol=5e-5, rtol=0)
    torch.testing.assert_close(record.x, record.state[..., :1], atol=0, rtol=0)
    torch.testing.assert_close(record.state[:, 0].norm(dim=-1), record.amplitude)


def test_shapes_and_types() -> None:
    record = simulate(OscillatorSettings(length=7), n=3, seed=0)
    shapes = {name: tuple(getattr(record, name).shape) for name in ("x", "frequency", "amplitude", "state")}
    assert shapes == {"x": (3, 7, 1), "frequency": (3,), "amplitude": (3,), "state": (3, 7, 2)}
    assert all(getattr(record, name).dtype == torch.float32 for name in shapes)


def test_length_one_gives_the_initial_state() -> None:
    record = simulate(OscillatorSettings(length=1, observation_noise=0.0), n=4, seed=0)
    torch.testing.assert_close(record.state[:, 0].norm(dim=-1), record.amplitude)


def test_variances_of_the_noise() -> None:
    settings = OscillatorSettings(process_noise=0.05, observation_noise=0.3, length=100)
    record = simulate(settings, n=1000, seed=3)
    state, frequency = record.state.double(), record.frequency.double().unsqueeze(-1)
    u, v = state[:, :-1].unbind(-1)
    cos, sin = frequency.cos(), frequency.sin()
    rotated = torch.stack((cos * u - sin * v, sin * u + cos * v), dim=-1)
    process_noise = (state[:, 1:] - rotated).reshape(-1, 2)
    noise = (record.x - record.state[..., :1]).double()
    # Tolerance: 5 standard errors. The relative standard error of a variance of n draws is sqrt(2 / n).
    n = len(process_noise)
    covariance = process_noise.T @ process_noise / n
    bound = 5 * math.sqrt(2 / n) * 0.05**2
    torch.testing.assert_close(covariance, 0.05**2 * torch.eye(2, dtype=torch.float64), atol=bound, rtol=0)
    assert abs(noise.var().item() / 0.3**2 - 1) < 5 * math.sqrt(2 / noise.numel())
    assert abs(process_noise.mean().item()) < 5 * 0.05 / math.sqrt(2 * n)


def test_frequency_amplitude_and_phase_are_uniform() -> None:
    n = 20_000
    record = simulate(OscillatorSettings(length=1), n=n, seed=4)
    phase = torch.atan2(record.state[:, 0, 1], record.state[:, 0, 0])
    ranges = ((record.frequency, 0.15, 0.6), (record.amplitude, 0.5, 1.5), (phase, -math.pi, math.pi))
    for values, low, high in ranges:
        assert values.min() >= low - 1e-6
        assert values.max() <= high + 1e-6
        ranks = (values.double().sort().values - low) / (high - low)
        distance = (ranks - (torch.arange(n) + 0.5) / n).abs().max().item()
        assert distance < 2.0 / math.sqrt(n)  # Kolmogorov-Smirnov, level 7e-4


def test_amplitude_and_frequency_are_independent() -> None:
    record = simulate(OscillatorSettings(length=1), n=20_000, seed=5)
    correlation = torch.corrcoef(torch.stack((record.frequency, record.amplitude)))[0, 1].item()
    assert abs(correlation) < 5 / math.sqrt(20_000)


def test_data_depend_on_the_seed() -> None:
    first, again, other = (simulate(OscillatorSettings(), n=4, seed=seed) for seed in (1, 1, 2))
    for name in ("x", "frequency", "amplitude", "state"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


def test_global_random_state_is_unchanged() -> None:
    before = torch.random.get_rng_state()
    simulate(OscillatorSettings(), n=4, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_range_can_be_a_single_value() -> None:
    record = simulate(OscillatorSettings(frequency=(0.3, 0.3), amplitude=(1.0, 1.0), length=2), n=3, seed=0)
    torch.testing.assert_close(record.frequency, torch.full((3,), 0.3))
    torch.testing.assert_close(record.amplitude, torch.ones(3))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frequency", (0.6, 0.15)),
        ("frequency", (0.1, math.nan)),
        ("frequency", (0.1, 0.2, 0.3)),
        ("amplitude", (0.0, 1.0)),
        ("amplitude", (1.5, 0.5)),
        ("process_noise", -0.1),
        ("observation_noise", math.inf),
        ("length", 0),
    ],
)
def test_invalid_settings_raise(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected .*, got "):
        OscillatorSettings(**{name: value})


def test_zero_sequences_raise() -> None:
    with pytest.raises(ValueError, match=r"^n: expected at least 1, got 0"):
        simulate(NOISELESS, n=0, seed=0)
