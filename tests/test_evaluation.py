"""Baselines, rolling origins and scores of forecasts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tdvae.forecasting.linear import Candidate, Fitted, average, fit_linear_part
from torch import Tensor

import tdvae
from tdvae import InputError, cli
from tdvae.distributions import DiagonalNormal
from tdvae.forecasting import figure
from tdvae.forecasting.baselines import PENALTIES, Standard, find_season, fit_baselines, last_observed, regress
from tdvae.forecasting.evaluation import (
    Evaluation,
    Scores,
    _score_batch,
    beliefs_at,
    evaluate,
    gaussian_crps,
    gaussian_scores,
    model_scores,
    sample_crps,
)
from tdvae.forecasting.origins import Origins, held_out_origins, observed, rolling_origins
from tdvae.forecasting.verdict import Comparison, comparisons, verdict
from tdvae.models import LSTM, GatedMaps, Model
from tdvae.models.config import NextStepConfig
from tdvae.models.decoders import GaussianDecoder
from tdvae.types import Sequences

SMALL: dict[str, Any] = {"latent": 2, "hidden": 8, "belief": 4, "readout": 8, "readout_hidden": 8, "decoder": (8,)}


def waves(n: int = 6, steps: int = 60, season: float = 12.0, noise: float = 0.1, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6.28, (n, 1))
    return tdvae.data.from_arrays(
        np.sin(2 * np.pi * np.arange(steps) / season + phase) + noise * rng.normal(size=(n, steps))
    )


def normal(mean: float, sigma: float) -> DiagonalNormal:
    return DiagonalNormal(torch.tensor([[mean]]).double(), torch.tensor([[math.log(sigma)]]).double())


# Scores


@pytest.mark.parametrize(("mean", "sigma", "x"), [(0.0, 1.0, 0.0), (1.0, 0.3, -0.5), (-2.0, 4.0, 3.0)])
def test_the_crps_of_a_normal_density_is_the_integral_that_defines_it(mean: float, sigma: float, x: float) -> None:
    density = normal(mean, sigma)
    y = torch.linspace(mean - 12 * sigma - abs(x), mean + 12 * sigma + abs(x), 400_001).double()
    step = (density.cdf(y[:, None])[:, 0] - (y >= x).double()).square()
    integral = torch.trapezoid(step, y)
    torch.testing.assert_close(gaussian_crps(density, torch.tensor([[x]]))[0, 0], integral, rtol=1e-4, atol=1e-5)


def test_the_crps_from_samples_has_no_bias() -> None:
    """With three samples each; the usual estimator would be too high by E|X - X'| / 6 = 0.19."""
    torch.manual_seed(0)
    samples, x = torch.randn(3, 200_000).double(), torch.tensor(0.7).double()
    exact = gaussian_crps(normal(0.0, 1.0), x)
    torch.testing.assert_close(sample_crps(samples, x.expand(200_000)).mean(), exact[0, 0], rtol=0, atol=5e-3)
    with pytest.raises(InputError, match="samples: expected at least 2, got 1"):
        sample_crps(samples[:1], x)


def test_normal_scores_of_a_known_case_leave_missing_numbers_out() -> None:
    density = DiagonalNormal(torch.zeros(1, 2).double(), torch.zeros(1, 2).double())
    x = torch.tensor([[1.0, 100.0]]).double()
    scores = gaussian_scores(density, x, torch.tensor([[True, False]]))
    assert float(scores.nll) == pytest.approx(0.5 * math.log(2 * math.pi) + 0.5)
    assert scores.measures()["rmse"] == pytest.approx(1.0)
    assert scores.measures()["coverage_50"] == 0.0  # the 50 % interval ends at 0.674
    assert scores.measures()["coverage_90"] == 1.0


# Origins


def test_origins_begin_after_a_third_of_each_own_length() -> None:
    data = Sequences(torch.zeros(2, 90, 1), torch.tensor([6, 90]))
    origins = rolling_origins(data)
    assert origins.t[origins.row == 0].tolist() == [2, 3, 4, 5]
    assert origins.t[origins.row == 1].tolist() == list(range(20, 90))
    assert origins.with_target(data, 4).t[:1].tolist() == [2]
    assert len(rolling_origins(data, most=7)) == 7


def test_windows_of_a_series_have_one_origin_each_and_share_blocks() -> None:
    data = Sequences(torch.zeros(7, 8, 1), torch.full((7,), 8))
    origins = held_out_origins(data, context=5, ahead=3)
    assert origins.t.tolist() == [5] * 7
    assert origins.block.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert len(held_out_origins(data, context=0, ahead=3)) == len(rolling_origins(data))


# Baselines


def test_ridge_regression_is_the_closed_form_and_leaves_one_out() -> None:
    torch.manual_seed(1)
    X, y = torch.randn(30, 3).double(), torch.randn(30, 1).double()
    found = regress(X, y, torch.ones_like(y, dtype=torch.bool))
    assert found.penalty in PENALTIES

    def solve(rows: Tensor, targets: Tensor) -> Tensor:
        rows = torch.cat([rows, torch.ones(len(rows), 1).double()], dim=1)
        return torch.linalg.solve(rows.T @ rows + found.penalty * torch.eye(4).double(), rows.T @ targets)

    torch.testing.assert_close(found.weights, solve(X, y))
    errors = []
    for i in range(30):
        rest = torch.arange(30) != i
        weights = solve(X[rest], y[rest])
        errors.append(y[i] - X[i] @ weights[:-1] - weights[-1])
    torch.testing.assert_close(found.spread, torch.stack(errors).square().mean(0).sqrt())


def test_linear_regression_finds_an_autoregression_and_its_noise() -> None:
    rng = np.random.default_rng(0)
    x = np.zeros((40, 100))
    for t in range(2, 100):
        x[:, t] = 1.2 * x[:, t - 1] - 0.5 * x[:, t - 2] + 0.3 * rng.normal(size=40)
    data = tdvae.data.from_arrays(x)
    standard, origins = Standard.of(data), Origins(*torch.tensor([[3], [50], [3]]))
    density = fit_baselines(data, 1, standard, None)["linear"](data, origins)
    expected = (1.2 * data.x[3, 49] - 0.5 * data.x[3, 48]).double()
    torch.testing.assert_close(density.mean[0] * standard.scale + standard.mean, expected, rtol=0, atol=0.03)
    torch.testing.assert_close(density.sigma[0] * standard.scale, torch.tensor([0.3]).double(), rtol=0.05, atol=0)


def test_linear_regression_is_given_the_actions_of_the_jump() -> None:
    rng = np.random.default_rng(0)
    actions = rng.normal(size=(30, 40, 1))
    data = tdvae.data.from_arrays(np.cumsum(actions, axis=1), actions)
    for dt in (1, 5):
        density = fit_baselines(data, dt, Standard.of(data), None)["linear"](
            data, Origins(*torch.tensor([[0], [20], [0]]))
        )
        assert float(density.sigma) < 0.01
        values = Standard.of(data).values(data)
        torch.testing.assert_close(density.mean[0], values[0, 20 + dt - 1], rtol=0, atol=0.02)


def test_last_value_and_seasonal_naive_repeat_what_they_saw() -> None:
    data = tdvae.data.from_arrays(torch.arange(40.0)[None] % 7)
    standard, at = Standard.of(data), Origins(*torch.tensor([[0], [30], [0]]))
    for dt in (1, 3, 7, 9):
        found = fit_baselines(data, dt, standard, 7)
        mean = {name: float(found[name](data, at).mean * standard.scale + standard.mean) for name in found}
        assert mean["last_value"] == pytest.approx(29 % 7)
        assert mean["seasonal"] == pytest.approx((29 + dt) % 7)
        assert mean["marginal"] == pytest.approx(float(data.x.mean()))
        assert float(found["seasonal"](data, at).sigma) < 1e-5


@pytest.mark.parametrize("season", [5, 12, 24])
def test_the_season_of_a_known_signal_is_found_beside_a_trend(season: int) -> None:
    steps = torch.arange(240.0)
    torch.manual_seed(0)
    x = torch.sin(2 * torch.pi * steps / season) + 0.05 * steps + 0.3 * torch.randn(2, 240)
    assert find_season(tdvae.data.from_arrays(x)) == season


def test_noise_has_no_season() -> None:
    torch.manual_seed(0)
    assert find_season(tdvae.data.from_arrays(torch.randn(2, 200))) is None


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(20, 50), st.sampled_from([1, 2, 5]))
def test_no_baseline_uses_the_future(seed: int, t: int, dt: int) -> None:
    data, at = waves(), Origins(torch.tensor([2]), torch.tensor([t]), torch.tensor([0]))
    changed = data.x.clone()
    torch.manual_seed(seed)
    changed[:, t:] = torch.randn_like(changed[:, t:])
    standard = Standard.of(data)
    for name, forecaster in fit_baselines(data, dt, standard, 12).items():
        first, second = (forecaster(replace(data, x=x), at) for x in (data.x, changed))
        assert torch.equal(first.mean, second.mean), name


def test_large_offsets_and_small_units_do_not_change_the_scores() -> None:
    data = waves()
    at = rolling_origins(data).with_target(data, 2)
    nll = {}
    for name, x in {"plain": data.x.double(), "large": 1.7e9 + 100 * data.x.double(), "small": 1e-8 * data.x}.items():
        other = replace(data, x=x)
        standard = Standard.of(other)
        density = fit_baselines(other, 2, standard, None)["linear"](other, at)
        target = standard.values(other)[at.row, at.t + 1]
        nll[name] = float(gaussian_scores(density, target, torch.ones_like(target, dtype=torch.bool)).nll.mean())
    assert nll["large"] == pytest.approx(nll["plain"], abs=1e-3)
    assert nll["small"] == pytest.approx(nll["plain"], abs=1e-3)


# Missing values


def test_the_last_observed_value_of_the_phase() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])[None, :, None]
    there = torch.tensor([False, True, True, False, False])[None, :, None]
    assert last_observed(values, there)[0, :, 0].tolist() == [0, 2, 3, 3, 3]
    assert last_observed(values, there, season=2)[0, :, 0].tolist() == [0, 2, 3, 2, 3]


def test_missing_values_have_no_effect_on_baselines() -> None:
    data = waves()
    torch.manual_seed(0)
    there = torch.rand(data.x.shape) > 0.2
    means = []
    for hidden in (0.0, 1e6, math.nan):
        x = torch.where(there, data.x, torch.tensor(hidden))
        masked = Sequences(x, data.lengths, observed=there)
        standard, at = Standard.of(masked), rolling_origins(masked).with_target(masked, 3)
        assert bool(observed(masked)[at.row, at.t + 2].all())  # only observed targets
        means.append({name: f(masked, at).mean for name, f in fit_baselines(masked, 3, standard, 12).items()})
    for name, mean in means[0].items():
        assert torch.isfinite(mean).all()
        assert torch.equal(mean, means[1][name]), name
        assert torch.equal(mean, means[2][name]), name


# The model


def small_model(data: Sequences) -> tdvae.TDVAE:
    torch.manual_seed(0)
    return tdvae.models.for_data(data, **SMALL)


@pytest.mark.parametrize("next_step", [False, True])
def test_beliefs_at_different_times_are_those_of_online_updates(next_step: bool) -> None:
    data = waves()
    model: Model = tdvae.models.build(NextStepConfig(belief=LSTM(4))) if next_step else small_model(data)
    at = Origins(torch.tensor([0, 3, 3]), torch.tensor([5, 9, 2]), torch.tensor([0, 1, 1]))
    _, belief = beliefs_at(model, data, at)
    for index in range(3):
        one = tdvae.belief_at(model, data.select(at.row[index : index + 1]), int(at.t[index]))
        torch.testing.assert_close(belief.code[index], one.code[0])
        if next_step:
            for part, expected in zip(belief.carry, one.carry, strict=True):
                torch.testing.assert_close(part[index], expected[0])
        else:
            assert belief.x is not None
            assert one.x is not None
            torch.testing.assert_close(belief.x[index], one.x[0])


def test_the_model_is_scored_like_a_baseline_with_the_same_density() -> None:
    """A model whose p_D ignores the state: its scores are those of that normal density, up to sampling."""
    data = waves()
    model = small_model(data)
    assert isinstance(model.p_D, GaussianDecoder)
    for parameter in model.p_D.parameters():
        torch.nn.init.zeros_(parameter)
    at = {2: rolling_origins(data).with_target(data, 2)}
    scores = model_scores(model, data, data, at, seed=0, samples=2_000)[2]
    x, there = Standard.of(data).values(data)[at[2].row, at[2].t + 1], torch.ones(len(at[2]), 1, dtype=torch.bool)
    exact = gaussian_scores(DiagonalNormal(torch.zeros_like(x), torch.zeros_like(x)), x, there)
    # The model standardises with n - 1 and in single precision.
    assert float(scores.nll.mean()) == pytest.approx(float(exact.nll.mean()), abs=5e-3)
    assert scores.crps is not None
    assert exact.crps is not None
    assert float(scores.crps.mean()) == pytest.approx(float(exact.crps.mean()), abs=0.01)
    assert scores.measures()["coverage_90"] == pytest.approx(exact.measures()["coverage_90"], abs=0.02)
    assert scores.sampling_error < 1e-6


def test_evaluation_does_not_use_the_future_and_is_the_same_every_time() -> None:
    data = waves()
    model = small_model(data)
    at = Origins(torch.tensor([1]), torch.tensor([30]), torch.tensor([0]))
    found = [evaluate(model, data, data, (1, 3), origins=at, samples=20).measures["nll"] for _ in range(2)]
    assert found[0] == found[1]
    changed = data.x.clone()
    changed[1, 33:] = 9.0  # after the last target
    later = evaluate(model, data, replace(data, x=changed), (1, 3), origins=at, samples=20)
    assert later.measures["nll"] == found[0]
    assert set(found[0]) == {"tdvae", "last_value", "seasonal", "linear", "marginal"}
    with pytest.raises(InputError, match="season: expected 1 to 59 steps, as in the training sequences, got 60"):
        evaluate(model, data, data, (1,), season=60)
    with pytest.raises(InputError, match="horizons: expected one that fits the test sequences"):
        evaluate(model, data, data, (100,))


def test_importance_sampling_and_plain_samples_agree_where_both_are_good() -> None:
    data = waves(n=4, steps=30)
    model = small_model(data)
    assert isinstance(model.p_D, GaussianDecoder)
    torch.nn.init.ones_(model.p_D.log_sigma)
    at = {1: rolling_origins(data, 20).with_target(data, 1)}
    plain = model_scores(model, data, data, at, seed=0, samples=3_000)[1]
    chosen = _score_batch(model, data, at[1], 1, Standard.of(data), 3_000, importance=True)
    assert float(chosen.nll.mean()) == pytest.approx(float(plain.nll.mean()), abs=0.05)


@pytest.mark.parametrize("dtype", [bool, np.int64])
def test_bits_and_classes_are_compared_with_their_frequencies(dtype: type) -> None:
    x: Any = (np.random.default_rng(0).random((8, 20, 3)) < 0.3).astype(dtype)
    data = tdvae.data.from_arrays(x)
    model = tdvae.models.for_data(data, **SMALL)
    found = evaluate(model, data, data, (1,), samples=5).measures
    assert set(found) == {"nll"}
    share = x[:, 7:].mean()
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert found["nll"]["marginal"]["1"] == pytest.approx(entropy, abs=0.02)


# The verdict


def evaluation_of(differences: dict[int, float], error: float = 0.1) -> Evaluation:
    blocks = torch.arange(40)
    noise = error * math.sqrt(40) * torch.tensor([1.0, -1.0]).repeat(20).double()
    scores = {
        "tdvae": {dt: Scores(d + noise) for dt, d in differences.items()},
        "linear": {dt: Scores(torch.zeros(40).double()) for dt in differences},
    }
    return Evaluation(scores, dict.fromkeys(differences, blocks))


def test_the_verdict_names_where_the_model_is_better_and_what_serves_as_well() -> None:
    found = evaluation_of({1: 0.5, 2: 0.05, 5: -0.4, 10: -1.0})
    assert found.difference(5, "tdvae", "linear") == pytest.approx((-0.4, 0.1), abs=2e-3)
    assert found.verdict() == (
        "The model is worth using at δt = 5, 10: its NLL is 0.40 to 1.00 nats per dimension below the best simple "
        "forecaster. At δt = 1 linear regression is better, at δt = 2 linear regression serves as well."
    )
    assert evaluation_of({1: 0.0}).verdict() == (
        "The model is not worth using on these data: at δt = 1 linear regression serves as well."
    )
    assert verdict({3: Comparison("seasonal", -0.2, 0.01)}) == (
        "The model is worth using at δt = 3: its NLL is 0.20 nats per dimension below the best simple forecaster."
    )


def test_the_verdict_says_if_the_test_part_is_too_short() -> None:
    whole = evaluation_of({1: -0.4, 5: 0.4})
    short = replace(whole, maps=GatedMaps())
    said = (
        "The test part is too short to tell whether the model is worth using: at δt = 1 it is ahead of linear "
        "regression, perhaps by chance, at δt = 5 linear regression serves as well."
    )
    assert short.verdict() == said
    stored = {name: summarised(values) for name, values in short.with_differences().items()}
    assert verdict(comparisons(stored["nll"], stored)) == said


def summarised(measures: Any) -> Any:
    """As in a results file."""
    if isinstance(measures, dict):
        return {name: summarised(value) for name, value in measures.items()}
    return {"mean": measures, "spread": None, "n": 1}


def test_the_standard_error_is_that_of_blocks() -> None:
    """Ten copies of each of eight values are worth eight values, not eighty."""
    torch.manual_seed(0)
    values = torch.randn(8).double()
    scores = {"tdvae": {1: Scores(values.repeat_interleave(10))}, "linear": {1: Scores(torch.zeros(80).double())}}
    found = Evaluation(scores, {1: torch.arange(8).repeat_interleave(10)})
    mean, error = found.difference(1, "tdvae", "linear")
    assert mean == pytest.approx(float(values.mean()))
    assert error == pytest.approx(float(values.std()) / math.sqrt(8))


# The linear part of the model


def test_before_training_the_model_is_the_regression() -> None:
    """It has zero weights in the network's output, so every sample of z gives the same density."""
    train, held_out = waves(seed=0), waves(seed=1)
    model = tdvae.recipe(train, longest_jump=5, steps=1, **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    assert model.linear is not None
    weights = fit_linear_part(model, train)
    assert weights is not None
    assert all(sum(of.values()) == pytest.approx(1) for of in weights.values())
    at = rolling_origins(held_out).with_target(held_out, 5)
    chosen, belief = beliefs_at(model, held_out, at)
    density = tdvae.forecast(model, belief, 5, samples=3).components
    assert isinstance(density, DiagonalNormal)
    assert torch.equal(density.mean[0], density.mean[1])
    window = model.features_at(chosen, at.t)
    assert window is not None
    expected = window @ model.linear.weight[4] + model.linear.bias[4]
    assert isinstance(model.p_D, GaussianDecoder)
    torch.testing.assert_close(density.mean[0], model.p_D.shift + model.p_D.scale * expected, rtol=1e-4, atol=1e-4)
    nll = evaluate(model, train, held_out, (1, 5), samples=3).measures["nll"]
    for dt in ("1", "5"):
        assert nll["tdvae"][dt] < nll["linear"][dt] + 0.05


def linear_weights(train: Sequences, longest_jump: int, season: int | None = None) -> dict[int, dict[str, float]]:
    """The weight of each base in the average of regressions, by δt."""
    model = tdvae.recipe(train, longest_jump=longest_jump, steps=1, **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    found = fit_linear_part(model, train, season)
    assert found is not None
    bases: dict[int, dict[str, float]] = {}
    for dt, weights in found.items():
        for candidate, weight in weights.items():
            bases.setdefault(dt, {}).setdefault(candidate.base, 0.0)
            bases[dt][candidate.base] += weight
    return bases


def test_a_random_walk_is_forecast_from_its_last_value_and_noise_is_not() -> None:
    torch.manual_seed(0)
    noise = torch.randn(1_000)
    for x, of_last in ((noise.cumsum(0), 1.0), (noise, 0.0)):
        train = tdvae.data.from_arrays(x[None, :, None])
        model = tdvae.recipe(train, longest_jump=5, steps=1, **SMALL).learner.model
        assert isinstance(model, tdvae.TDVAE)
        assert model.linear is not None
        fit_linear_part(model, train)
        assert float(model.linear.weight[4, 0]) == pytest.approx(of_last, abs=0.15)


def test_a_season_is_a_base_of_the_regression() -> None:
    """A pattern without any relation between its phases, for which the last season is the best simple forecast."""
    torch.manual_seed(0)
    pattern = torch.randn(12).repeat(10) + 0.01 * torch.randn(120).cumsum(0)
    found = linear_weights(tdvae.data.from_arrays(pattern[None, :, None]), 5, season=12)
    assert found[5]["season"] > 0.5
    assert "season" not in linear_weights(tdvae.data.from_arrays(pattern[None, :, None]), 5, season=100)[5]


def test_left_out_blocks_show_errors_that_single_steps_hide() -> None:
    """Long jumps have overlapping targets: leaving out one step leaves nearly the same step in."""
    torch.manual_seed(0)
    walk = torch.randn(240).cumsum(0)
    train, later = (tdvae.data.from_arrays(part[None, :, None]) for part in (walk[:160], walk[80:]))
    model = tdvae.recipe(train, longest_jump=20, steps=1, **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    fit_linear_part(model, train)
    found = evaluate(model, train, later, (20,), samples=2).measures["coverage_90"]
    assert found["tdvae"]["20"] >= found["linear"]["20"]


def test_the_regression_is_less_certain_of_what_was_not_observed_lately() -> None:
    """A random walk whose last four values are missing in one of two columns: from there five steps, not one."""
    torch.manual_seed(0)
    x = torch.randn(60, 40, 2).cumsum(1)
    observed = torch.ones_like(x, dtype=torch.bool)
    observed[0, 5] = False  # so that the model takes gaps
    train = Sequences(x, torch.full((60,), 40), observed=observed)
    model = tdvae.recipe(train, longest_jump=8, steps=1, state="linear", **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    assert model.linear is not None
    fit_linear_part(model, train)
    late = observed.clone()
    late[:, 16:20, 1] = False
    sigma = {}
    for name, mask in (("whole", observed), ("gap", late)):
        belief = tdvae.belief_at(model, Sequences(x, torch.full((60,), 40), observed=mask), 20)
        density = tdvae.forecast(model, belief, 1, samples=2).components
        assert isinstance(density, DiagonalNormal)
        sigma[name] = density.sigma[0, 1]
    assert float(sigma["gap"][0]) == pytest.approx(float(sigma["whole"][0]))
    assert float(sigma["gap"][1] / sigma["whole"][1]) == pytest.approx(math.sqrt(5), rel=0.15)


def driven(n: int, steps: int = 30, seed: int = 0) -> Sequences:
    """A decaying response to actions, observed with noise: past actions tell what single observations do not."""
    torch.manual_seed(seed)
    actions, noise, y, x = torch.randn(n, steps, 1), 0.5 * torch.randn(n, steps, 1), torch.zeros(n, 1), []
    for t in range(steps):
        y = 0.9 * y + actions[:, t]
        x.append(y + noise[:, t])
    return tdvae.data.from_arrays(torch.stack(x, 1), actions=actions)


def test_the_regression_is_given_past_actions_where_they_help() -> None:
    """Without noise in the dynamics the last 20 actions determine the next observation up to its noise of 0.5."""
    train, held_out = driven(100), driven(50, seed=1)
    model = tdvae.recipe(train, longest_jump=3, steps=1, state="linear", **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    assert model.linear is not None
    weights = fit_linear_part(model, train)
    assert weights is not None
    assert all(candidate.past_actions for of_dt in weights.values() for candidate in of_dt)
    measures = evaluate(model, train, held_out, (1, 3), samples=3).measures
    for dt in ("1", "3"):
        assert measures["nll"]["tdvae"][dt] < measures["nll"]["linear"][dt] + 0.03
    model.linear.past_action_weight.zero_()
    without = evaluate(model, train, held_out, (1, 3), samples=3).measures
    assert without["nll"]["tdvae"]["1"] > measures["nll"]["tdvae"]["1"] + 0.5


def test_past_actions_are_not_used_where_they_say_nothing() -> None:
    torch.manual_seed(0)
    train = tdvae.data.from_arrays(torch.randn(40, 30, 1).cumsum(1), actions=torch.randn(40, 30, 2))
    model = tdvae.recipe(train, longest_jump=3, steps=1, state="linear", **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    weights = fit_linear_part(model, train)
    assert weights is not None
    assert not any(candidate.past_actions for candidate in weights[1])


def test_many_rows_make_the_average_of_regressions_sharp() -> None:
    """An error 5 % larger leaves little weight if it is that of 10,000 rows, and much if it is that of 100."""
    share = {}
    for rows in (100, 10_000):
        there, nothing = torch.ones(rows, 1, dtype=torch.bool), torch.zeros(1, 0, 1)
        fits = {
            Candidate("last", lags): Fitted(
                torch.zeros(1, 1, 1), nothing, nothing[0], torch.zeros(1), torch.full((rows, 1), error), there
            )
            for lags, error in ((1, 1.0), (2, 1.05))
        }
        share[rows] = average(fits)[1][Candidate("last", 2)]
    assert share[100] == pytest.approx(1 / (1 + 1.05**10))
    assert share[10_000] == pytest.approx(1 / (1 + 1.05**100), rel=1e-4)


def test_past_actions_of_a_window_are_known_after_a_jump() -> None:
    """Observations between are not, but the actions of the jump are given."""
    data = driven(3, steps=20)
    model = tdvae.recipe(data, longest_jump=4, steps=1, state="linear", **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    assert model.linear is not None
    assert data.actions is not None
    first = model.features_at(data, torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(model.initial(3).x, first)
    belief = tdvae.belief_at(model, data, 1)
    torch.testing.assert_close(belief.x, model.features_at(data, torch.ones(3, dtype=torch.long)))
    belief = tdvae.belief_at(model, data, 10)
    torch.testing.assert_close(belief.x, model.features_at(data, torch.full((3,), 10)))
    dt = torch.tensor([3, 1, 2])
    ends = data.x[torch.arange(3), 9 + dt]
    jumped = model.features_after(belief.x, ends, dt, data.actions[:, 10:13])
    expected = model.features_at(data, 10 + dt)
    assert jumped is not None
    assert expected is not None
    torch.testing.assert_close(model.linear.past_actions(jumped), model.linear.past_actions(expected))
    torch.testing.assert_close(model.linear.values(jumped)[:, 0], model.linear.values(expected)[:, 0])


def test_a_window_after_a_jump_keeps_what_is_known() -> None:
    data = waves(n=3, steps=20)
    model = tdvae.recipe(data, longest_jump=4, steps=1, **SMALL).learner.model
    assert isinstance(model, tdvae.TDVAE)
    belief = tdvae.belief_at(model, data, 10)
    torch.testing.assert_close(belief.x, model.features_at(data, torch.full((3,), 10)))
    assert belief.x is not None
    one = model.features_after(belief.x, data.x[:, 10], torch.ones(3, dtype=torch.long))
    torch.testing.assert_close(one, model.features_at(data, torch.full((3,), 11)))
    jumped = model.features_after(belief.x, data.x[:, 12], torch.full((3,), 3))
    assert jumped is not None
    now, before = (model.features_at(data, torch.full((3,), t)) for t in (13, 10))
    assert now is not None
    assert before is not None
    torch.testing.assert_close(jumped[:, 0], now[:, 0])
    torch.testing.assert_close(jumped[:, 3:], before[:, :-3])
    torch.testing.assert_close(jumped[:, 1], (2 * now[:, 0] + before[:, 0]) / 3)  # interpolated


# The figure and the experiment


def test_the_figure_of_an_evaluation() -> None:
    data = waves(steps=30)
    model = small_model(data)
    origins = rolling_origins(data)
    found = evaluate(model, data, data, (1, 2), origins=origins, samples=5)
    assert figure.draw(found, model, data, origins, "waves").startswith(b"\x89PNG")


def test_the_fans_are_in_the_users_units() -> None:
    from matplotlib.figure import Figure

    own = tdvae.prepare(1.7e9 + 100 * np.sin(0.3 * np.arange(200)), 3)
    model, origins = small_model(own.history), held_out_origins(own.test.sequences, own.test.context, 3)
    axis = Figure().subplots()
    figure.draw_fan(axis, model, own.test.sequences, origins.select(torch.tensor([0])), 3, own.encoding)
    for line in axis.get_lines()[:2]:  # the median and what was observed
        assert np.abs(np.asarray(line.get_ydata(), dtype=np.float64) - 1.7e9).max() < 1e3


def test_the_own_data_command_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["tdvae", "run", "own-data", "--preset", "smoke", "--run-dir", str(tmp_path / "run")]
    )
    cli.main()
    measures = json.loads((tmp_path / "run" / "own_data.json").read_text())["measures"]
    for measure in ("nll", "crps", "rmse", "coverage_50", "coverage_90"):
        for name in ("tdvae", "last_value", "linear", "marginal", "next_step"):
            assert set(measures[measure]["pendulum"][name]) == {"1", "5"}
    best = min(measures["nll"]["pendulum"][name]["1"]["mean"] for name in ("last_value", "linear", "marginal"))
    difference = measures["nll_difference"]["pendulum"]["1"]["mean"]
    assert difference == pytest.approx(measures["nll"]["pendulum"]["tdvae"]["1"]["mean"] - best, abs=1e-9)
    assert (tmp_path / "run" / "own_data.png").exists()
