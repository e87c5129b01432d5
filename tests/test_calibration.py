"""Calibration of the experiments' models by validation forecasts, after training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tdvae
from tdvae.distributions import DiagonalNormal
from tdvae.models import Classes, Gaussian, LinearRecurrence, Readout, ResidualMaps
from tdvae.models.decoders import GaussianDecoder
from tdvae.models.tdvae import TransitionLadder
from tdvae_paper.calibration import calibrate
from tdvae_paper.monitor import ForecastMonitor


def overdispersed() -> tuple[tdvae.TDVAE, tdvae.Sequences]:
    """An untrained model on white noise whose σ is four times too wide."""
    data = tdvae.data.from_arrays(np.random.default_rng(1).normal(size=(60, 24, 1)))
    model = tdvae.models.for_data(
        data,
        latent=2,
        init_log_sigma=-4.0,
        belief=LinearRecurrence(4),
        decoder=Gaussian((8,), noise="predicted"),
        readout=Readout(8, hidden=64),
        maps=ResidualMaps(8),
    )
    assert isinstance(model.p_D, GaussianDecoder)
    with torch.no_grad():
        model.p_D.log_sigma.fill_(np.log(4.0))
    return model, data


def test_calibration_finds_the_scale_of_the_noise() -> None:
    model, data = overdispersed()
    monitor = ForecastMonitor.up_to(5, model, data)
    found = calibrate(model, monitor.horizons, monitor.forecasts)
    assert found is not None
    assert list(found.jump_noise_scales) == [1, 2, 5]
    assert list(found.jump_noise_scales.values()) == pytest.approx([0.25] * 3, rel=0.2)
    assert found.nll_after < found.nll_before - 0.5
    belief = tdvae.belief_at(model, data, 12)
    place = tdvae.forecast(model, belief, 2).cdf(data.x[:, 13])
    assert 0.8 <= float(((place - 0.5).abs() <= 0.45).float().mean()) <= 0.98
    again = calibrate(model, monitor.horizons, monitor.forecasts)  # it starts from the model without calibration
    assert again == found


def test_each_jump_has_its_own_scale_if_x_is_in_the_state() -> None:
    """A random walk, for which σ = √δt is right, forecast with one σ for all δt: calibration finds the ratios."""
    steps = np.random.default_rng(0).normal(size=(200, 40, 1))
    data = tdvae.data.from_arrays(steps.cumsum(1))
    model = tdvae.models.for_data(
        data,
        latent=2,
        init_log_sigma=-4.0,
        belief=LinearRecurrence(4),
        decoder=Gaussian((8,), noise="learned"),
        readout=Readout(8, hidden=64),
        maps=ResidualMaps(8),
    )
    assert isinstance(model.p_D, GaussianDecoder)
    assert model.p_D.linear is not None
    with torch.no_grad():  # x_t2 = x_t1 + noise with σ = 2, whatever z is
        for parameter in model.p_D.parameters():
            parameter.zero_()
        model.p_D.linear.weight.fill_(1.0)
        model.p_D.log_sigma.copy_(torch.log(2 / model.p_D.scale))
    monitor = ForecastMonitor.up_to(20, model, data)
    found = calibrate(model, monitor.horizons, monitor.forecasts)
    assert found is not None
    expected = {dt: np.sqrt(dt) / 2 for dt in (1, 2, 5, 10, 20)}
    assert found.jump_noise_scales == pytest.approx(expected, rel=0.15)
    belief = tdvae.belief_at(model, data, 10)

    def sigma(dt: int) -> float:
        normal = tdvae.forecast(model, belief, dt).components
        assert isinstance(normal, DiagonalNormal)
        return float(normal.sigma.mean())

    between = np.exp(np.interp(np.log(3), np.log([2, 5]), np.log([found.jump_noise_scales[dt] for dt in (2, 5)])))
    last = 2 * found.jump_noise_scales[20]
    expected_sigma = [2 * found.jump_noise_scales[1], 2 * between, last, last]
    assert [sigma(dt) for dt in (1, 3, 20, 200)] == pytest.approx(expected_sigma, rel=1e-4)


def test_single_steps_are_calibrated_by_composed_forecasts() -> None:
    """If z alone is the state, only δt = 1 has a scale of its own."""
    torch.manual_seed(0)
    data = tdvae.data.from_arrays(np.random.default_rng(1).normal(size=(60, 40, 1)))
    model = tdvae.models.for_data(
        data,
        latent=2,
        init_log_sigma=1.0,
        belief=LinearRecurrence(4),
        readout=Readout(8, hidden=64),
        maps=ResidualMaps(8),
        state="latent",
    )
    state = model.sample_state(model.initial(3), n=2)

    def log_sigma(dt: int) -> torch.Tensor:
        p_T = model.step(state, torch.full((2, 3), dt)).p_T.given(state.z)
        return torch.cat([layer.log_sigma for layer in p_T.layers if isinstance(layer, DiagonalNormal)])

    monitor = ForecastMonitor.up_to(20, model, data)
    before = {dt: log_sigma(dt) for dt in (1, 2)}
    found = calibrate(model, monitor.horizons, monitor.forecasts, monitor.composed)
    assert found is not None
    assert found.jump_temperatures[1] != 1

    def composed_nll() -> float:
        return sum(-float(density.log_prob(x).mean()) for _, density, x, _ in monitor.composed())

    calibrated = composed_nll()
    scale = torch.tensor([found.temperature, found.jump_temperatures[1]]).log()
    torch.testing.assert_close(log_sigma(1), before[1] + scale.sum())
    torch.testing.assert_close(log_sigma(2), before[2] + scale[0])
    assert isinstance(model.p_T, TransitionLadder)
    model.p_T.jump_scale.set({1: 1.0})
    assert calibrated < composed_nll()


def test_other_likelihoods_are_left_as_they_are() -> None:
    data = tdvae.data.from_arrays(np.zeros((6, 8, 3), dtype=np.int64))
    model = tdvae.models.for_data(data, decoder=Classes(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert ForecastMonitor.up_to(2, model, data).finish() == {}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_few_sequences_are_calibrated_from_more_starts() -> None:
    model, _ = overdispersed()
    found = {}
    for count in (20, 100, 300):
        data = tdvae.data.from_arrays(torch.randn(count, 40, 1))
        monitor = ForecastMonitor.up_to(5, model, data)
        assert list(monitor.starts) == [14, 24]
        found[count] = list(monitor.calibration_starts)
    assert found == {20: [14, 15, 16, 18, 19, 21, 22, 24], 100: [14, 17, 20, 24], 300: [14, 24]}


def test_the_score_is_the_mean_of_forecasts() -> None:
    """The NLL averaged over δt, with the same noise each time."""
    model, data = overdispersed()
    monitor = ForecastMonitor.up_to(5, model, data)
    before = monitor.measure()
    assert before == monitor.measure()
    assert before["score"] == pytest.approx(np.mean([before[f"forecast/{dt}"] for dt in (1, 2, 5)]))
    calibrate(model, monitor.horizons, monitor.forecasts)
    assert monitor.measure()["score"] < before["score"] - 0.5
    no_room = ForecastMonitor.up_to(5, model, data.until(torch.ones(len(data), dtype=torch.long)))
    assert no_room.measure() == {}
