"""Tests of the switching oscillator and of its exact inference."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tdvae import InputError
from tdvae.data import OscillatorSettings, simulate
from tdvae.exact import KalmanBank
from tdvae_paper.switching.oracle import SwitchingOracle
from tdvae_paper.switching.simulation import FIRST, LAST, OPENING, SwitchingSettings, simulate_switching
from tests.test_exact import random_bank

NOISELESS = {"process_noise": 0.0, "observation_noise": 0.0}


def test_each_interval_has_its_own_frequency() -> None:
    """Without noise, x_{t+1} + x_{t-1} = 2 cos(f) x_t if both rotations belong to one interval."""
    settings = SwitchingSettings(interval=30, **NOISELESS)  # type: ignore[arg-type]
    record = simulate_switching(settings, 50, seed=3)
    x = record.x[..., 0].double()
    assert x.shape == (50, FIRST + 10 + 30 + LAST)
    ends = torch.tensor([0, FIRST, OPENING, OPENING + 30, OPENING + 30 + LAST])
    for interval in range(4):
        # The rotation into the first index of an interval already has the frequency of that interval.
        now = torch.arange(max(1, int(ends[interval])), int(ends[interval + 1]) - 1)
        two_cos = 2 * torch.cos(record.frequencies[:, interval, None].double())
        torch.testing.assert_close(x[:, now + 1] + x[:, now - 1], two_cos * x[:, now], atol=1e-5, rtol=0)


def test_order_of_the_first_frequencies_decides_the_last() -> None:
    settings = SwitchingSettings(interval=5)
    record = simulate_switching(settings, 400, seed=0)
    first, second, third, last = record.frequencies.unbind(1)
    assert torch.equal(record.first_larger, first > second)
    f_a, f_b = settings.final
    assert torch.equal(last, torch.where(first > second, f_a, f_b))
    assert 0.4 < record.first_larger.float().mean() < 0.6
    for drawn in (first, second, third):
        assert settings.frequency[0] <= drawn.min()
        assert drawn.max() <= settings.frequency[1]


def test_sequences_depend_on_the_seed_and_global_random_state_is_unchanged() -> None:
    state = torch.get_rng_state()
    one, two, other = (simulate_switching(SwitchingSettings(interval=4), 3, seed) for seed in (1, 1, 2))
    assert torch.equal(one.x, two.x)
    assert not torch.equal(one.x, other.x)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interval": 0}, "interval: expected at least 1, got 0"),
        ({"final": (0.3, 0.3)}, "final: expected two different finite frequencies"),
        ({"final": (math.nan, 0.3)}, "final: expected a finite number, got nan"),
        ({"amplitude": (0.0, 1.0)}, "amplitude: expected a range above 0"),
    ],
)
def test_invalid_settings_raise(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SwitchingSettings(**changes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="n: expected at least 1, got 0"):
        simulate_switching(SwitchingSettings(), 0, 0)


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_filtering_in_two_parts_equals_filtering_at_once(cut: int) -> None:
    bank: KalmanBank = random_bank(seed=5, h=3, d=2, o=2)
    x = torch.randn(4, 7, 2, dtype=torch.float64)
    whole = bank.filter(x)
    in_parts = bank.filter(x[:, cut:], after=bank.filter(x[:, :cut]))
    for name in ("log_weights", "log_evidence", "mean", "cov"):
        torch.testing.assert_close(getattr(in_parts, name), getattr(whole, name))
    with pytest.raises(InputError, match="after: expected means"):
        bank.filter(x[:3], after=whole)


def test_oracle_is_calibrated() -> None:
    """The probabilities are calibrated, so the accuracy is the mean of max(p, 1 - p), here about 0.945."""
    settings = SwitchingSettings(interval=1)
    record = simulate_switching(settings, 3000, seed=11)
    p = SwitchingOracle(settings, frequencies=24).first_larger(record.x)
    accuracy = ((p > 0.5) == record.first_larger).double().mean()
    assert abs(accuracy - 0.945) < 0.012
    assert abs(accuracy - torch.maximum(p, 1 - p).mean()) < 0.015
    for low in (0.0, 0.25, 0.5, 0.75):
        chosen = (p >= low) & (p < low + 0.25)
        assert abs(record.first_larger[chosen].double().mean() - p[chosen].mean()) < 0.08


def test_oracle_is_certain_with_little_noise_and_uncertain_for_equal_frequencies() -> None:
    low_noise = SwitchingSettings(interval=1, process_noise=0.0, observation_noise=1e-3)
    record = simulate_switching(low_noise, 200, seed=0)
    distinguishable = (record.frequencies[:, 0] - record.frequencies[:, 1]).abs() > 0.03
    p = SwitchingOracle(low_noise, frequencies=32).first_larger(record.x)
    assert bool(((p > 0.5) == record.first_larger)[distinguishable].all())
    # Both halves of a plain oscillator have the same frequency, so the mean probability is one half.
    plain = simulate(replace(OscillatorSettings(), length=OPENING), 600, seed=0)
    p_plain = SwitchingOracle(SwitchingSettings(), frequencies=24).first_larger(plain.x)
    assert abs(p_plain.mean() - 0.5) < 0.02
