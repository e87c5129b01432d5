"""Linear forecasters, rolling origins, scores of forecasts, the verdict and the figure."""

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
from torch import Tensor

import tdvae
from tdvae import InputError, cli
from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.evaluation import (
    Comparison,
    Evaluation,
    Scores,
    comparisons,
    density_scores,
    evaluate,
    evaluation_origins,
    figure,
    sample_crps,
    verdict,
)
from tdvae.forecasting.predictors import (
    CorrelatedNormal,
    Linear,
    MixtureDensity,
    Network,
    Normals,
    Origins,
    Predictor,
    Stack,
    beliefs_at,
    climatology,
    fit_linear,
    held_out_origins,
    naive,
    observed,
    quantile,
    targets,
)
from tdvae.forecasting.predictors.origins import rolling_origins
from tdvae.forecasting.preparation import HeldOut
from tdvae.models import LSTM, Model, NextStepConfig, ResidualMaps
from tdvae.types import Sequences

SMALL: dict[str, Any] = {"latent": 2, "maps": ResidualMaps(8), "belief": LSTM(4)}


def standardised(x: Any, actions: Any = None) -> Sequences:
    """Sequences as an encoding scales them."""
    x = np.asarray(x, dtype=np.float64)
    return tdvae.data.from_arrays((x - np.nanmean(x)) / np.nanstd(x), actions)


def waves(n: int = 6, steps: int = 60, season: float = 12.0, noise: float = 0.1, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6.28, (n, 1))
    return standardised(np.sin(2 * np.pi * np.arange(steps) / season + phase) + noise * rng.normal(size=(n, steps)))


def every(x: Tensor) -> Tensor:
    return torch.ones_like(x, dtype=torch.bool)


# Densities and scores


def test_the_crps_from_samples_has_no_bias() -> None:
    """With three samples each; the usual estimator would be too high by E|X - X'| / 6 = 0.19."""
    torch.manual_seed(0)
    samples, x = torch.randn(3, 200_000).double(), torch.tensor(0.7).double()
    exact = 0.7 * math.erf(0.7 / math.sqrt(2)) + 2 * math.exp(-0.245) / math.sqrt(2 * math.pi) - 1 / math.sqrt(math.pi)
    assert float(sample_crps(samples, x.expand(200_000)).mean()) == pytest.approx(exact, abs=5e-3)
    with pytest.raises(InputError, match="samples: expected at least 2, got 1"):
        sample_crps(samples[:1], x)


def test_scores_of_a_known_case_leave_missing_numbers_out() -> None:
    density = CorrelatedNormal(torch.zeros(1, 2).double(), torch.eye(2).double())
    x, seen = torch.tensor([[1.0, 100.0]]).double(), torch.tensor([[True, False]])
    scores = density_scores(density, density.log_prob(x, seen), x, seen)
    assert float(scores.main) == pytest.approx(0.5 * math.log(2 * math.pi) + 0.5)
    assert scores.measures()["rmse"] == pytest.approx(1.0)
    assert scores.measures()["coverage_50"] == 0.0  # the 50 % interval ends at 0.674
    assert scores.measures()["coverage_90"] == 1.0


def test_a_correlated_normal_density_and_its_marginals() -> None:
    covariance = torch.tensor([[2.0, 0.9], [0.9, 1.0]]).double()
    mean = torch.tensor([[1.0, -1.0], [0.0, 0.5]]).double()
    x = torch.tensor([[0.3, 0.2], [1.0, 2.0]]).double()
    density = CorrelatedNormal(mean, covariance)
    whole = torch.distributions.MultivariateNormal(mean, covariance)
    torch.testing.assert_close(density.log_prob(x, every(x)), whole.log_prob(x))
    seen = torch.tensor([[True, False], [True, True]])
    first = torch.distributions.Normal(mean[0, 0], math.sqrt(2.0)).log_prob(x[0, 0])
    torch.testing.assert_close(density.log_prob(x, seen), torch.stack([first, whole.log_prob(x)[1]]))
    torch.manual_seed(0)
    torch.testing.assert_close(density.sample(200_000)[:, 0].T.cov(), covariance, rtol=0, atol=0.03)


def test_a_mixture_weights_densities_not_parameters() -> None:
    normal = Normals(DiagonalNormal(torch.zeros(3, 1, 1).double(), torch.zeros(3, 1, 1).double()))
    far = CorrelatedNormal(torch.full((1, 1), 10.0).double(), torch.eye(1).double())
    mixed = MixtureDensity((normal, far), (0.75, 0.25))
    x = torch.zeros(1, 1).double()
    assert float(mixed.log_prob(x, every(x))) == pytest.approx(math.log(0.75) - 0.5 * math.log(2 * math.pi), abs=1e-6)
    assert float(mixed.mean) == pytest.approx(2.5)
    assert float(mixed.cdf(torch.full((1, 1), 5.0).double())) == pytest.approx(0.75, abs=1e-5)
    assert float(quantile(mixed, 0.3)) == pytest.approx(float(torch.special.ndtri(torch.tensor(0.4))), abs=1e-4)
    torch.manual_seed(0)
    assert float((mixed.sample(4_000) > 5).double().mean()) == pytest.approx(0.25, abs=0.03)


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


# Linear forecasters


def test_linear_regression_finds_an_autoregression_and_its_noise() -> None:
    rng = np.random.default_rng(0)
    x = np.zeros((40, 100))
    for t in range(2, 100):
        x[:, t] = 1.2 * x[:, t - 1] - 0.5 * x[:, t - 2] + 0.3 * rng.normal(size=40)
    data = standardised(x)
    linear = fit_linear(data, 2, [1, 2])
    assert linear is not None
    density = linear.densities(data, Origins(*torch.tensor([[3], [50], [3]])), [1])[1]
    assert isinstance(density, CorrelatedNormal)
    expected = (1.2 * data.x[3, 49] - 0.5 * data.x[3, 48]).double()
    torch.testing.assert_close(density.mean[0], expected, rtol=0, atol=0.05)
    assert math.sqrt(float(density.covariance)) == pytest.approx(0.3 / float(np.std(x)), rel=0.05)


def test_errors_of_several_dimensions_are_correlated() -> None:
    torch.manual_seed(0)
    noise = torch.randn(40, 60, 1)
    data = standardised((noise + 0.3 * torch.randn(40, 60, 2)).numpy())
    linear = fit_linear(data, 1, [1])
    assert linear is not None
    covariance = linear.horizons[1].covariance
    assert float(covariance[0, 1] / covariance[0, 0]) == pytest.approx(1 / 1.09, abs=0.05)


def test_linear_regression_is_given_the_covariates_of_the_jump() -> None:
    rng = np.random.default_rng(0)
    actions = rng.normal(size=(30, 40, 1))
    data = standardised(np.cumsum(actions, axis=1), actions)
    linear = fit_linear(data, 5, [1, 2, 5])
    assert linear is not None
    at = Origins(*torch.tensor([[0], [20], [0]]))
    for h, density in linear.densities(data, at, [1, 5]).items():
        torch.testing.assert_close(density.mean[0], data.x[0, 20 + h - 1].double(), rtol=0, atol=0.02)


def driven(n: int, steps: int = 30, seed: int = 0) -> Sequences:
    """A decaying response to actions, observed with noise: past actions tell what single observations do not."""
    torch.manual_seed(seed)
    actions, noise, y, x = torch.randn(n, steps, 1), 0.5 * torch.randn(n, steps, 1), torch.zeros(n, 1), []
    for t in range(steps):
        y = 0.9 * y + actions[:, t]
        x.append(y + noise[:, t])
    return standardised(torch.stack(x, 1).numpy(), actions)


def test_the_regression_is_given_past_covariates_where_they_help() -> None:
    linear = fit_linear(driven(100), 1, [1])
    assert linear is not None
    assert float(linear.horizons[1].past.abs().max()) > 0.1
    torch.manual_seed(0)
    without = standardised(torch.randn(40, 30, 1).cumsum(1).numpy(), torch.randn(40, 30, 2))
    linear = fit_linear(without, 1, [1])
    assert linear is not None
    assert float(linear.horizons[1].past.abs().max()) == 0


def test_naive_and_seasonal_naive_repeat_what_they_saw() -> None:
    data = standardised(np.arange(40.0)[None] % 7)
    at = Origins(*torch.tensor([[0], [30], [0]]))
    for h in (1, 3, 7, 9):
        last, season, mean = naive(data, 9), naive(data, 9, 7), climatology(data, 9)
        torch.testing.assert_close(last.densities(data, at, [h])[h].mean[0], data.x[0, 29].double())
        torch.testing.assert_close(season.densities(data, at, [h])[h].mean[0], data.x[0, 29 + h].double())
        assert float(mean.densities(data, at, [h])[h].mean) == 0
        assert float(season.horizons[h].covariance) < 1e-9


def test_a_random_walk_is_forecast_from_its_last_value_and_noise_is_not() -> None:
    torch.manual_seed(0)
    noise = torch.randn(1_000)
    for x, of_last in ((noise.cumsum(0), 1.0), (noise, 0.0)):
        linear = fit_linear(standardised(x[None, :, None].numpy()), 5, [1, 5])
        assert linear is not None
        weights = linear.horizons[5]
        assert float(weights.values[weights.places == 0].sum()) == pytest.approx(of_last, abs=0.15)


def test_lags_at_two_seasons_forecast_what_recent_values_do_not() -> None:
    """The sum of two patterns without any relation between their phases."""
    torch.manual_seed(0)
    x = torch.randn(12).repeat(70)[:800] + torch.randn(35).repeat(30)[:800] + 0.05 * torch.randn(800)
    data = standardised(x[None, :, None].numpy())
    both, one, none = (fit_linear(data, 5, [1, 5], s, 100) for s in ((12, 35), (12,), ()))
    assert both is not None
    assert one is not None
    assert none is not None
    variance = {name: float(each.horizons[5].covariance) for name, each in (("2", both), ("1", one), ("0", none))}
    assert variance["2"] < 0.1 * variance["1"] < variance["0"]


def test_left_out_blocks_show_errors_that_single_steps_hide() -> None:
    """A random walk of 160 steps looks predictable 20 steps ahead, if its own steps may be used."""
    torch.manual_seed(0)
    covered = []
    for _ in range(10):
        walk = torch.randn(240).cumsum(0)
        walk = (walk - walk[:160].mean()) / walk[:160].std()
        train, later = (tdvae.data.from_arrays(part[None, :, None]) for part in (walk[:160], walk[80:]))
        linear = fit_linear(train, 20, [1, 20])
        assert linear is not None
        at = rolling_origins(later).with_target(later, 20)
        pit = linear.densities(later, at, [20])[20].cdf(targets(later, at, 20)[0])
        covered.append(float(((pit - 0.5).abs() < 0.45).double().mean()))
    assert np.mean(covered) > 0.7


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(20, 50), st.sampled_from([1, 2, 5, 8]))
def test_no_linear_forecaster_uses_the_future(seed: int, t: int, h: int) -> None:
    data, at = waves(), Origins(torch.tensor([2]), torch.tensor([t]), torch.tensor([0]))
    changed = data.x.clone()
    torch.manual_seed(seed)
    changed[:, t:] = torch.randn_like(changed[:, t:])
    linear = fit_linear(data, 5, [1, 5], (12,))
    assert linear is not None
    for forecaster in (linear, naive(data, 5), naive(data, 5, 12), climatology(data, 5)):
        found = []
        for x in (data.x, changed):
            torch.manual_seed(0)
            found.append(forecaster.densities(replace(data, x=x), at, [h], 20)[h].mean)
        assert torch.equal(*found)


def test_horizons_beyond_the_fitted_ones_are_simulated() -> None:
    """An autoregression of order one with coefficient 0.9: mean and spread after 12 steps are known."""
    rng = np.random.default_rng(0)
    x = np.zeros((60, 150))
    for t in range(1, 150):
        x[:, t] = 0.9 * x[:, t - 1] + rng.normal(size=60)
    data = standardised(x[:, 50:])
    linear = fit_linear(data, 3, [1, 3])
    assert linear is not None
    at = Origins(*torch.tensor([[3], [50], [3]]))
    torch.manual_seed(0)
    density = linear.densities(data, at, [12], 4_000)[12]
    assert float(density.mean) == pytest.approx(0.9**12 * float(data.x[3, 49]), abs=0.1)
    spread = float(density.sample(4_000).std())
    assert spread == pytest.approx(math.sqrt(1 - 0.9**24), abs=0.2)
    paths = linear.paths(data, at, [1, 12], 500)
    assert paths.shape == (500, 1, 2, 1)
    assert float(paths[:, 0, 1].std()) == pytest.approx(spread, abs=0.15)


def test_a_linear_forecaster_is_stored_and_read_again() -> None:
    data = driven(20)
    linear = fit_linear(data, 3, [1, 3])
    assert linear is not None
    again, at = Linear.from_tensors(linear.tensors()), Origins(*torch.tensor([[3], [20], [3]]))
    for h in (1, 2, 3):
        assert torch.equal(linear.densities(data, at, [h])[h].mean, again.densities(data, at, [h])[h].mean)


def test_the_fit_needs_no_copy_of_the_series_for_each_origin() -> None:
    """20,000 origins of a series of 20,000 steps: copies of it would need 3.2 GB."""
    import resource

    torch.manual_seed(0)
    data = standardised(torch.randn(1, 20_000, 1).numpy())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert fit_linear(data, 1, [1], context=100) is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


# Missing values


def test_missing_values_are_replaced_by_forecasts_of_one_step() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])[None, :, None]
    data = Sequences(x, torch.tensor([5]), observed=torch.tensor([False, True, True, False, False])[None, :, None])
    assert naive(data, 1).completed(data).x[0, :, 0].tolist() == [0, 2, 3, 3, 3]
    assert naive(data, 1, 2).completed(data).x[0, :, 0].tolist() == [0, 2, 3, 2, 3]
    wave = waves(noise=0.01)
    gaps = torch.ones_like(wave.x, dtype=torch.bool)
    gaps[:, 30:33] = False
    linear = fit_linear(replace(wave, observed=gaps), 2, [1, 2])
    assert linear is not None
    torch.testing.assert_close(linear.completed(replace(wave, observed=gaps)).x, wave.x, rtol=0, atol=0.15)


def test_missing_values_have_no_effect_on_linear_forecasters() -> None:
    data = waves()
    torch.manual_seed(0)
    seen = torch.rand(data.x.shape) > 0.2
    means = []
    for hidden in (0.0, 1e6, math.nan):
        masked = Sequences(torch.where(seen, data.x, torch.tensor(hidden)), data.lengths, observed=seen)
        at = rolling_origins(masked).with_target(masked, 3)
        assert bool(observed(masked)[at.row, at.t + 2].all())  # only observed targets
        linear = fit_linear(masked, 3, [1, 3], (12,))
        assert linear is not None
        forecasters = (linear, naive(masked, 3), naive(masked, 3, 12), climatology(masked, 3))
        means.append(torch.stack([each.densities(masked, at, [3])[3].mean for each in forecasters]))
    assert torch.isfinite(means[0]).all()
    assert torch.equal(means[0], means[1])
    assert torch.equal(means[0], means[2])


# Networks


def small_model(data: Sequences, **options: Any) -> tdvae.TDVAE:
    torch.manual_seed(0)
    return tdvae.models.for_data(data, **{"readout": None, **SMALL, **options})


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


@pytest.mark.parametrize("composed", [False, True])
def test_a_forecast_is_one_jump_or_single_steps(composed: bool) -> None:
    data = waves()
    model, at = small_model(data, state="latent"), Origins(*torch.tensor([[1, 2], [30, 31], [0, 1]]))
    network = Network(model, 5, frozenset({3} if composed else ()), {3: 1.0})
    torch.manual_seed(1)
    found = network.densities(data, at, [3], 2_000)[3]
    _, belief = beliefs_at(model, data, at)
    torch.manual_seed(2)
    expected = tdvae.forecast(model, belief, [1, 1, 1] if composed else 3, 2_000)
    torch.testing.assert_close(found.mean, expected.mean.double(), rtol=0, atol=0.03)
    x = torch.zeros(2, 1)
    torch.testing.assert_close(found.log_prob(x.double(), every(x)), expected.log_prob(x).double(), rtol=0, atol=0.1)


def test_the_scale_widens_a_forecast_around_its_mean() -> None:
    data = waves()
    model, at = small_model(data), Origins(*torch.tensor([[1], [30], [0]]))
    found = []
    for scale in (1.0, 2.0):
        torch.manual_seed(0)
        found.append(Network(model, 5, scales={1: scale}).densities(data, at, [1], 100)[1])
    torch.testing.assert_close(found[0].mean, found[1].mean)
    widths = [quantile(each, 0.9) - quantile(each, 0.1) for each in found]
    torch.testing.assert_close(widths[1], 2 * widths[0])


def test_importance_sampling_and_plain_samples_agree_where_both_are_good() -> None:
    data = standardised(np.random.default_rng(0).normal(size=(4, 30, 4)))
    model, at = small_model(data, init_log_sigma=-3.0), rolling_origins(data, 20).with_target(data, 1)
    for scale in (1.0, 1.5):
        network = Network(model, 5, scales={1: scale})
        torch.manual_seed(0)
        density = network.densities(data, at, [1], 3_000)[1]
        plain = density.log_prob(*targets(data, at, 1)).mean()
        weighted = network.log_prob(data, at, 1, density, 3_000).mean()
        assert float(weighted) == pytest.approx(float(plain), abs=0.1)


# Evaluation


def small_stack(data: Sequences, longest: int = 3) -> Stack:
    linear = fit_linear(data, longest, [1, longest])
    assert linear is not None
    network = Network(small_model(data, state="latent"), longest)
    members: dict[str, Predictor] = {"linear": linear, "latent": network}
    return Stack(members, {"linear": {1: 0.5, longest: 0.9}, "latent": {1: 0.5, longest: 0.1}})


def test_evaluation_does_not_use_the_future_and_is_the_same_every_time() -> None:
    data = waves()
    stack = small_stack(data)
    model = stack.members["latent"]
    assert isinstance(model, Network)
    windows = data.select(torch.tensor([1]))

    def nll(x: Tensor) -> Any:
        held_out = HeldOut(replace(windows, x=x), context=30)
        return evaluate(model.model, stack, data, held_out, 3, (12,), samples=20).measures["nll"]

    found = nll(windows.x)
    assert found == nll(windows.x)
    changed = windows.x.clone()
    changed[0, 33:] = 9.0  # after the last target
    assert found == nll(changed)
    assert set(found) == {"combination", "linear", "tdvae", "naive", "seasonal_naive", "climatology"}
    mixed = math.log(0.5 * math.exp(-found["linear"]["1"]) + 0.5 * math.exp(-found["tdvae"]["1"]))
    assert found["combination"]["1"] == pytest.approx(-mixed)
    with pytest.raises(InputError, match="horizons: expected one that fits the test sequences"):
        evaluate(model.model, stack, data, HeldOut(data), 3, horizons=(100,))


@pytest.mark.parametrize("dtype", [bool, np.int64])
def test_bits_and_classes_are_compared_with_their_frequencies(dtype: type) -> None:
    x: Any = (np.random.default_rng(0).random((8, 20, 3)) < 0.3).astype(dtype)
    data = tdvae.data.from_arrays(x)
    model = tdvae.models.for_data(data, **SMALL)
    found = evaluate(model, None, data, HeldOut(data), 1).measures
    assert set(found) == {"nll"}
    share = x[:, 7:].mean()
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert found["nll"]["climatology"]["1"] == pytest.approx(entropy, abs=0.02)


# The verdict


def evaluation_of(differences: dict[int, float], error: float = 0.1) -> Evaluation:
    blocks = torch.arange(40)
    noise = error * math.sqrt(40) * torch.tensor([1.0, -1.0]).repeat(20).double()
    scores = {
        "combination": {h: Scores(d + noise) for h, d in differences.items()},
        "tdvae": {h: Scores(d + noise - 1) for h, d in differences.items()},  # not among the others
        "next_step": {h: Scores(torch.zeros(40).double()) for h in differences},
        "naive": {h: Scores(torch.full((40,), 1.5).double()) for h in differences},
    }
    return Evaluation(scores, dict.fromkeys(differences, blocks))


def test_the_verdict_names_where_the_combination_is_better_and_what_serves_as_well() -> None:
    found = evaluation_of({1: 0.5, 2: 0.05, 5: -0.4, 10: -1.0})
    assert found.difference(5, "combination", "next_step") == pytest.approx((-0.4, 0.1), abs=2e-3)
    assert found.verdict() == (
        "The combination is worth using at 5, 10 steps: its NLL is 0.40 to 1.00 nats per dimension below the best "
        "other forecaster. At 1 step the next-step predictor alone is better, at 2 steps the next-step predictor alone "
        "serves as well. (40 origins in 40 blocks.)"
    )
    assert evaluation_of({1: 0.0}).verdict() == (
        "Forecasters without a network are 1.50 nats per dimension worse than the combination; at 1 step the next-step "
        "predictor alone serves as well. (40 origins in 40 blocks.)"
    )
    assert verdict({1: Comparison("naive", 0.0, 0.1)}) == (
        "The combination is not worth its training on these data: at 1 step the naive forecast serves as well."
    )
    assert verdict({3: Comparison("seasonal_naive", -0.2, 0.01)}) == (
        "The combination is worth using at 3 steps: its NLL is 0.20 nats per dimension below the best other forecaster."
    )


def test_the_verdict_says_if_the_test_part_is_too_short() -> None:
    """Whichever is ahead."""
    for difference in (-0.4, 0.4):
        whole = evaluation_of({1: difference})
        short = replace(whole, blocks={1: torch.arange(40) // 20})
        said = "The test part is too short to tell whether the combination is worth using. (40 origins in 2 blocks.)"
        assert short.verdict() == said
        stored = {name: summarised(values) for name, values in short.with_differences().items()}
        origins = {int(h): round(entry["mean"]) for h, entry in stored["origins"].items()}
        assert verdict(comparisons(stored["nll"], stored), origins) == said


def summarised(measures: Any) -> Any:
    """As in a results file."""
    if isinstance(measures, dict):
        return {name: summarised(value) for name, value in measures.items()}
    return {"mean": measures, "spread": None, "n": 1}


def test_the_standard_error_is_that_of_blocks() -> None:
    """Ten copies of each of eight values are worth eight values, not eighty."""
    torch.manual_seed(0)
    values = torch.randn(8).double()
    scores = {"combination": {1: Scores(values.repeat_interleave(10))}, "linear": {1: Scores(torch.zeros(80).double())}}
    found = Evaluation(scores, {1: torch.arange(8).repeat_interleave(10)})
    mean, error = found.difference(1, "combination", "linear")
    assert mean == pytest.approx(float(values.mean()))
    assert error == pytest.approx(float(values.std()) / math.sqrt(8))


# The figure and the experiment


def test_the_figure_of_an_evaluation() -> None:
    data = waves(steps=30)
    stack, held_out = small_stack(data), HeldOut(data)
    model = stack.members["latent"]
    assert isinstance(model, Network)
    found = evaluate(model.model, stack, data, held_out, 3, samples=5)
    assert figure.draw(found, stack, data, evaluation_origins(held_out, 3), "waves").startswith(b"\x89PNG")


def test_the_fans_are_in_the_users_units() -> None:
    from matplotlib.figure import Figure

    own = tdvae.prepare(1.7e9 + 100 * np.sin(0.3 * np.arange(200)), 3)
    origins = held_out_origins(own.test.sequences, own.test.context, 3)
    axis = Figure().subplots()
    stack = small_stack(own.history)
    figure.draw_fan(axis, stack, own.test.sequences, origins.select(torch.tensor([0])), 3, own.encoding)
    for line in axis.get_lines()[:2]:  # the median and what was observed
        assert np.abs(np.asarray(line.get_ydata(), dtype=np.float64) - 1.7e9).max() < 1e3


def test_the_lorenz_command_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["tdvae", "run", "own-data-lorenz", "--preset", "smoke", "--run-dir", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", command)
    cli.main()
    nll = json.loads((tmp_path / "run" / "own_data_lorenz.json").read_text())["measures"]["nll"]
    assert set(nll) == {"lorenz"}
    assert set(nll["lorenz"]["limit"]) == {"1", "2", "5"}


def test_the_own_data_command_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["tdvae", "run", "own-data", "--preset", "smoke", "--run-dir", str(tmp_path / "run")]
    )
    cli.main()
    measures = json.loads((tmp_path / "run" / "own_data.json").read_text())["measures"]
    others = ("naive", "linear", "climatology", "next_step")
    for measure in ("nll", "crps", "rmse", "coverage_50", "coverage_90"):
        for name in ("combination", "tdvae", *others):
            assert set(measures[measure]["pendulum"][name]) == {"1", "2", "5"}
    best = min(measures["nll"]["pendulum"][name]["1"]["mean"] for name in others)
    difference = measures["nll_difference"]["pendulum"]["1"]["mean"]
    assert difference == pytest.approx(measures["nll"]["pendulum"]["combination"]["1"]["mean"] - best, abs=1e-9)
    assert set(measures["nll"]["lorenz_gaps"]["limit"]) == {"1", "2", "5"}
    weights = measures["weights"]["lorenz_gaps"]
    assert sum(weights[name]["1"]["mean"] for name in weights) == pytest.approx(1)
    assert measures["seconds"]["pendulum"]["mean"] > 0
    assert all((tmp_path / "run" / f"own_data{part}.png").exists() for part in ("", "_fans"))
