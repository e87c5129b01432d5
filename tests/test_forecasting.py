"""Users' own sequences: the recipe, and what `tdvae fit` makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tdvae.forecasting.calibration import calibrate

import tdvae
from tdvae import cli
from tdvae.data import from_npz, split
from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.monitor import ForecastMonitor
from tdvae.models.decoders import GaussianDecoder
from tdvae.models.tdvae import TransitionLadder


def save_signals(path: Path, n: int = 40, steps: int = 20) -> Path:
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 6.28, (n, 1))
    np.savez(path, x=np.sin(0.4 * np.arange(steps) + phase)[..., None], actions=rng.normal(size=(n, steps, 2)))
    return path


def test_command_line_and_python_train_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tdvae fit` and the documented Python code give the same config and, to the bit, the same weights."""
    monkeypatch.chdir(tmp_path)
    file = save_signals(tmp_path / "signals.npz")
    monkeypatch.setattr("sys.argv", ["tdvae", "fit", str(file), "--steps", "4", "--longest-jump", "3", "--seed", "5"])
    cli.main()
    runs = [tmp_path / "runs" / "signals", tmp_path / "python", tmp_path / "arrays"]
    for source, run in zip((file, dict(np.load(file))), runs[1:], strict=True):
        data = tdvae.prepare(source, longest_jump=3, seed=5)
        tdvae.recipe(data, steps=4, seed=5).fit(data, run_dir=run, progress="none")
    configs = [json.loads((run / "config.json").read_text()) for run in runs]
    assert configs[0] == configs[1]
    for part in ("model", "train", "jumps", "objective", "data"):
        assert configs[0][part] == configs[2][part], part
    of_command, *others = (tdvae.load(run).state_dict() for run in runs)
    for other in others:
        assert all(torch.equal(value, other[name]) for name, value in of_command.items())


def overdispersed() -> tuple[tdvae.TDVAE, tdvae.Sequences]:
    """An untrained model on white noise whose σ is four times too wide."""
    data = tdvae.data.from_arrays(np.random.default_rng(1).normal(size=(60, 24, 1)))
    model = tdvae.models.for_data(data, latent=2, hidden=8, belief=4, readout=8, decoder=(8,), init_log_sigma=-4.0)
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
        data, latent=2, hidden=8, belief=4, readout=8, decoder=(8,), init_log_sigma=-4.0, noise="learned"
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
        data, latent=2, hidden=8, belief=4, readout=8, init_log_sigma=1.0, observed_state=False
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
    model = tdvae.models.for_data(data, classes=2)
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


def test_weights_are_chosen_by_forecasts(tmp_path: Path) -> None:
    """The score is the NLL of forecasts averaged over δt, with the same noise each time."""
    model, data = overdispersed()
    monitor = ForecastMonitor.up_to(5, model, data)
    before = monitor.measure()
    assert before == monitor.measure()
    assert before["score"] == pytest.approx(np.mean([before[f"forecast/{dt}"] for dt in (1, 2, 5)]))
    calibrate(model, monitor.horizons, monitor.forecasts)
    assert monitor.measure()["score"] < before["score"] - 0.5
    no_room = ForecastMonitor.up_to(5, model, data.until(torch.ones(len(data), dtype=torch.long)))
    assert no_room.measure() == {}
    recipe = tdvae.recipe(data, longest_jump=2, steps=6)
    result = recipe.fit(data, data, tmp_path / "run", progress="none")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["score"] for line in lines if "score" in line}
    assert result.best_score == min(scores.values()) == scores[result.best_step]


def test_a_run_keeps_its_calibration_and_logs_it(tmp_path: Path) -> None:
    train, validation, _ = split(from_npz(save_signals(tmp_path / "signals.npz")), seed=0)
    recipe = tdvae.recipe(train, longest_jump=2, steps=3)
    result = recipe.fit(train, validation, tmp_path / "run", progress="none")
    assert result.finished["improved"] == 0  # three steps teach nothing: the model stays the regression
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    name = "calibration/jump_noise_scales/2"
    scale = next(line[name] for line in lines if name in line)
    loaded = tdvae.load(tmp_path / "run")
    assert isinstance(loaded, tdvae.TDVAE)
    assert isinstance(loaded.p_D, GaussianDecoder)
    assert float(loaded.p_D.jump_scale.log_factors[1]) == pytest.approx(np.log(scale), abs=1e-6)


def test_a_recipe_leaves_the_random_state_alone() -> None:
    data = tdvae.data.from_arrays(np.random.default_rng(0).normal(size=(10, 12)))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = tdvae.recipe(data, seed=1).learner.state_dict()
    assert torch.equal(torch.rand(2), expected)
    second = tdvae.recipe(data, seed=1).learner.state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize(("option", "value"), [("longest_jump", 0), ("steps", 0)])
def test_a_recipe_refuses_lengths_below_one(option: str, value: int) -> None:
    data = tdvae.data.from_arrays(np.zeros((4, 6)))
    with pytest.raises(tdvae.InputError, match=f"{option}: expected at least 1, got 0"):
        tdvae.recipe(data, **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "observed_state", "noise"),
    [
        (np.zeros((4, 6, 3)), True, "predicted"),
        (np.zeros((4, 6, 5), dtype=bool), True, "learned"),
        (np.zeros((4, 6, 5, 5), dtype=np.int64), True, "learned"),
        (np.zeros((4, 6, 8, 8)), False, "predicted"),
    ],
    ids=["vector", "bits", "classes", "picture"],
)
def test_compact_observations_are_part_of_the_state_by_default(x: np.ndarray, observed_state: bool, noise: str) -> None:
    config = tdvae.models.for_data(tdvae.data.from_arrays(x)).config
    assert isinstance(config, tdvae.TDVAEConfig)
    assert (config.observed_state, config.noise) == (observed_state, noise)


def test_options_that_rule_the_observed_state_out_turn_its_default_off() -> None:
    data = tdvae.data.from_arrays(np.zeros((4, 6, 3)))
    for options in ({"likelihood": "coordinates"}, {"max_latent_dt": 3, "dt": "none"}, {"smoothing_sees_b2": False}):
        config = tdvae.models.for_data(data, **options).config
        assert isinstance(config, tdvae.TDVAEConfig)
        assert not config.observed_state
