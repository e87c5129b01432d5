"""Distributions: log densities and KL against torch and against samples, event dimensions, and samples."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from tdvae.distributions import Bernoulli, Categorical, DiagonalNormal, DiscretisedLogistic, Distribution

torch.set_num_threads(1)

SHAPE = (3, 4, 5)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_normal(seed: int, shape: tuple[int, ...] = SHAPE, event_ndim: int = 1) -> DiagonalNormal:
    generator = seeded(seed)
    mean = torch.randn(shape, generator=generator, dtype=torch.float64)
    log_sigma = 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return DiagonalNormal(mean, log_sigma, event_ndim)


def reference(normal: DiagonalNormal) -> torch.distributions.Distribution:
    base = torch.distributions.Normal(normal.mean, normal.log_sigma.exp())
    return torch.distributions.Independent(base, normal.event_ndim)


# Normal


@pytest.mark.parametrize("event_ndim", [0, 1, 2, 3])
def test_normal_log_prob_equals_torch(event_ndim: int) -> None:
    normal = random_normal(0, event_ndim=event_ndim)
    x = torch.randn(SHAPE, generator=seeded(1), dtype=torch.float64)
    torch.testing.assert_close(normal.log_prob(x), reference(normal).log_prob(x))
    assert normal.log_prob(x).shape == SHAPE[: len(SHAPE) - event_ndim]


@pytest.mark.parametrize("event_ndim", [0, 1, 2, 3])
def test_normal_kl_equals_torch(event_ndim: int) -> None:
    one, other = random_normal(2, event_ndim=event_ndim), random_normal(3, event_ndim=event_ndim)
    expected = torch.distributions.kl_divergence(reference(one), reference(other))
    torch.testing.assert_close(one.kl(other), expected)


def test_normal_cdf_equals_torch() -> None:
    normal = random_normal(4)
    x = torch.randn(SHAPE, generator=seeded(5), dtype=torch.float64)
    expected = torch.distributions.Normal(normal.mean, normal.sigma).cdf(x)
    torch.testing.assert_close(normal.cdf(x), expected)
    assert normal.cdf(x).shape == SHAPE


def test_normal_cdf_at_the_mean_and_in_the_tails() -> None:
    normal = random_normal(6)
    far = 40 * normal.sigma
    torch.testing.assert_close(normal.cdf(normal.mean), torch.full(SHAPE, 0.5, dtype=torch.float64))
    assert torch.equal(normal.cdf(normal.mean - far), torch.zeros(SHAPE, dtype=torch.float64))
    assert torch.equal(normal.cdf(normal.mean + far), torch.ones(SHAPE, dtype=torch.float64))


def test_closed_form_kl_is_the_mean_log_ratio_of_many_samples() -> None:
    """KL(p ‖ q) = E_p[log p - log q], within five standard errors; this also checks the direction."""
    torch.manual_seed(7)
    p, q = random_normal(8, (1, 3)), random_normal(9, (1, 3))
    n = 400_000
    many = DiagonalNormal(p.mean.expand(n, 3), p.log_sigma.expand(n, 3))
    z = many.sample()
    ratios = p.log_prob(z) - q.log_prob(z)
    error = 5 * float(ratios.std()) / math.sqrt(n)
    assert abs(float(ratios.mean()) - p.kl(q).item()) < error
    assert abs(p.kl(q).item() - q.kl(p).item()) > 10 * error  # the two directions differ significantly


def test_kl_of_a_distribution_with_itself_is_zero() -> None:
    """It is computed without sampling, so it has no noise."""
    for event_ndim in (0, 1, 2):
        normal = random_normal(10, event_ndim=event_ndim)
        torch.testing.assert_close(normal.kl(normal), torch.zeros_like(normal.kl(normal)), atol=1e-14, rtol=0)


def test_kl_is_deterministic_and_does_not_change_the_random_state() -> None:
    one, other = random_normal(11), random_normal(12)
    before = torch.get_rng_state()
    first, second = one.kl(other), one.kl(other)
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


@given(
    means=st.tuples(st.floats(-50, 50), st.floats(-50, 50)),
    log_sigmas=st.tuples(st.floats(-6, 6), st.floats(-6, 6)),
)
@hypothesis_settings(deadline=None, derandomize=True, max_examples=50)
def test_kl_is_not_negative(means: tuple[float, float], log_sigmas: tuple[float, float]) -> None:
    one, other = (
        DiagonalNormal(torch.tensor([mean], dtype=torch.float64), torch.tensor([log_sigma], dtype=torch.float64))
        for mean, log_sigma in zip(means, log_sigmas, strict=True)
    )
    assert one.kl(other).item() >= -1e-12


def test_kl_of_a_shifted_unit_normal_is_half_the_squared_shift() -> None:
    zero = torch.zeros(4, dtype=torch.float64)
    shifted = DiagonalNormal(torch.tensor([1.0, -2.0, 0.0, 3.0], dtype=torch.float64), zero)
    assert shifted.kl(DiagonalNormal(zero, zero)).item() == pytest.approx(0.5 * (1 + 4 + 9))


def test_normal_samples_have_the_stated_moments() -> None:
    torch.manual_seed(13)
    n, mean, log_sigma = 200_000, torch.tensor([1.5, -3.0]), torch.tensor([-1.0, 0.7])
    samples = DiagonalNormal(mean.expand(n, 2), log_sigma.expand(n, 2)).sample()
    assert samples.shape == (n, 2)
    standardised = (samples - mean) / log_sigma.exp()
    assert float(standardised.mean(0).abs().max()) < 5 / math.sqrt(n)
    assert float((standardised.var(0) - 1).abs().max()) < 5 * math.sqrt(2 / n)
    assert abs(float(standardised.prod(-1).mean())) < 5 / math.sqrt(n)  # dimensions are independent


def test_gradients_flow_through_a_normal_sample() -> None:
    """x = mean + sigma * noise: dx/dmean = 1 and dx/dlog_sigma = x - mean."""
    torch.manual_seed(14)
    mean = torch.randn(6, requires_grad=True)
    log_sigma = torch.randn(6, requires_grad=True)
    sample = DiagonalNormal(mean, log_sigma).sample()
    by_mean, by_log_sigma = torch.autograd.grad(sample.sum(), (mean, log_sigma))
    torch.testing.assert_close(by_mean, torch.ones(6))
    torch.testing.assert_close(by_log_sigma, (sample - mean).detach())
    assert float(by_log_sigma.abs().min()) > 0


# Bernoulli


@pytest.mark.parametrize("event_ndim", [0, 1, 2, 3])
def test_bernoulli_log_prob_equals_torch_at_moderate_logits(event_ndim: int) -> None:
    logits = 3 * torch.randn(SHAPE, generator=seeded(15), dtype=torch.float64)
    bits = torch.rand(SHAPE, generator=seeded(16)) < 0.5
    base = torch.distributions.Bernoulli(logits=logits)
    expected = torch.distributions.Independent(base, event_ndim).log_prob(bits.double())
    torch.testing.assert_close(Bernoulli(logits, event_ndim).log_prob(bits), expected)


@pytest.mark.parametrize("logit", [-1e4, 1e4])
@pytest.mark.parametrize("bit", [0.0, 1.0])
def test_bernoulli_log_prob_is_finite_at_extreme_logits(logit: float, bit: float) -> None:
    logits = torch.tensor([logit], requires_grad=True)
    value = Bernoulli(logits).log_prob(torch.tensor([bit]))
    right = (logit > 0) == (bit > 0.5)
    assert value.item() == pytest.approx(0.0 if right else -1e4)
    (gradient,) = torch.autograd.grad(value, logits)
    assert bool(gradient.isfinite().all())


def test_bernoulli_log_prob_of_a_fraction_is_the_expected_log_likelihood() -> None:
    logits, grey = torch.tensor([0.3, -1.2]), torch.tensor([0.25, 0.6])
    distribution = Bernoulli(logits, event_ndim=0)
    expected = grey * distribution.log_prob(torch.ones(2)) + (1 - grey) * distribution.log_prob(torch.zeros(2))
    torch.testing.assert_close(distribution.log_prob(grey), expected)


def test_bernoulli_samples_have_the_stated_frequencies() -> None:
    torch.manual_seed(17)
    n, logits = 100_000, torch.tensor([-2.0, 0.0, 1.0])
    distribution = Bernoulli(logits.expand(n, 3))
    samples = distribution.sample()
    share = torch.sigmoid(logits)
    assert set(samples.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(distribution.mean[0], share)
    assert bool(((samples.mean(0) - share).abs() < 5 * (share * (1 - share) / n).sqrt()).all())


# Categorical


@pytest.mark.parametrize("event_ndim", [0, 1, 2])
def test_categorical_log_prob_equals_torch(event_ndim: int) -> None:
    logits = torch.randn((*SHAPE, 7), generator=seeded(18), dtype=torch.float64)
    classes = torch.randint(0, 7, SHAPE, generator=seeded(19))
    base = torch.distributions.Categorical(logits=logits)
    expected = torch.distributions.Independent(base, event_ndim).log_prob(classes)
    torch.testing.assert_close(Categorical(logits, event_ndim).log_prob(classes), expected)


def test_categorical_samples_have_the_stated_frequencies() -> None:
    torch.manual_seed(20)
    n, logits = 100_000, torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]])
    distribution = Categorical(logits.expand(n, 2, 3))
    samples = distribution.sample()
    assert samples.shape == (n, 2)
    share = torch.softmax(logits, -1)
    torch.testing.assert_close(distribution.mean[0], share)
    counted = torch.nn.functional.one_hot(samples, 3).double().mean(0)
    assert bool(((counted - share).abs() < 5 * (share * (1 - share) / n).sqrt()).all())


# Broadcasting


def _examples() -> list[tuple[Distribution, Tensor]]:
    """Distributions of each type without batch dimensions, and a batch of values (6, 4)."""
    generator = seeded(21)
    numbers = torch.randn((6, 4), generator=generator)
    return [
        (DiagonalNormal(numbers[0], numbers[1]), numbers),
        (Bernoulli(numbers[0]), numbers > 0),
        (Categorical(torch.randn((4, 3), generator=generator)), torch.randint(0, 3, (6, 4), generator=generator)),
    ]


@pytest.mark.parametrize(("distribution", "x"), _examples(), ids=["normal", "bernoulli", "categorical"])
def test_log_prob_of_a_batch_under_one_distribution(distribution: Distribution, x: Tensor) -> None:
    """Values may have batch dimensions that the parameters lack, as for the marginal of a data set."""
    log_probs = distribution.log_prob(x)
    assert log_probs.shape == (6,)
    torch.testing.assert_close(log_probs, torch.stack([distribution.log_prob(row) for row in x]))


@pytest.mark.parametrize("samples", [1, 5])
def test_log_prob_of_one_value_under_many_distributions(samples: int) -> None:
    """Parameters may have a leading sample dimension that the values lack, as in a forecast."""
    generator = seeded(22)
    parameters = torch.randn((samples, 6, 4, 3), generator=generator)
    classes = torch.randint(0, 3, (6, 4), generator=generator)
    distributions: list[tuple[Distribution, Tensor]] = [
        (DiagonalNormal(parameters[..., 0], parameters[..., 1]), torch.randn((6, 4), generator=generator)),
        (Bernoulli(parameters[..., 0]), classes > 1),
        (Categorical(parameters), classes),
    ]
    for distribution, x in distributions:
        torch.testing.assert_close(distribution.log_prob(x), distribution.log_prob(x.expand(samples, 6, 4)))
        assert distribution.log_prob(x).shape == (samples, 6)


# Discretised logistic

LEVELS = torch.arange(256, dtype=torch.float64) / 255


@pytest.mark.parametrize(("distribution", "x"), _examples(), ids=lambda part: type(part).__name__)
def test_log_prob_of_what_was_observed_is_the_sum_over_its_entries(distribution: Distribution, x: Tensor) -> None:
    observed = torch.rand(x.shape, generator=seeded(1)) > 0.5
    entries = replace(distribution, event_ndim=0).log_prob(x)  # type: ignore[type-var]
    dimensions = list(range(x.ndim - distribution.event_ndim, x.ndim))  # type: ignore[attr-defined]
    expected = torch.where(observed, entries, 0).sum(dimensions)
    torch.testing.assert_close(distribution.log_prob(x, observed), expected)
    torch.testing.assert_close(distribution.log_prob(x, torch.ones_like(observed)), distribution.log_prob(x))
    assert bool((distribution.log_prob(x, torch.zeros_like(observed)) == 0).all())


def test_missing_entries_reach_no_gradient() -> None:
    """Not even NaN: zero times NaN is NaN in the backward pass."""
    mean, log_sigma = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    x = torch.tensor([[1.0, torch.nan, torch.inf], [torch.nan, 2.0, 3.0]])
    observed = x.isfinite()
    DiagonalNormal(mean, log_sigma).log_prob(x, observed).sum().backward()
    assert mean.grad is not None
    assert log_sigma.grad is not None
    torch.testing.assert_close(mean.grad, torch.where(observed, x, 0))
    torch.testing.assert_close(log_sigma.grad, torch.where(observed, x.square() - 1, 0))


def logistic(location: float, scale: float) -> DiscretisedLogistic:
    """The distribution of a single value, in double precision."""
    parameters = torch.tensor([location, math.log(scale)], dtype=torch.float64)
    return DiscretisedLogistic(parameters[0], parameters[1], event_ndim=0)


@pytest.mark.parametrize("scale", [1e-4, 1e-3, 0.02, 0.5, 20.0])
@pytest.mark.parametrize("location", [-0.7, 0.0, 0.3, 0.5 + 1e-3, 1.0, 1.4])
def test_logistic_bins_sum_to_one_and_have_its_mean_and_median(location: float, scale: float) -> None:
    distribution = logistic(location, scale)
    mass = distribution.log_prob(LEVELS).exp()
    torch.testing.assert_close(mass.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert abs(float((mass * LEVELS).sum() - distribution.mean)) < 0.5 / 255
    assert (
        float(mass[distribution.median - 0.5 / 255 > LEVELS].sum())
        <= 0.5
        <= float(mass[distribution.median + 0.5 / 255 >= LEVELS].sum())
    )


def test_logistic_bin_is_a_difference_of_the_cdf() -> None:
    distribution = logistic(0.4, 0.05)
    inner = LEVELS[1:-1]
    upper, lower = (torch.sigmoid((inner + side / 510 - 0.4) / 0.05) for side in (1, -1))
    torch.testing.assert_close(distribution.log_prob(inner), torch.log(upper - lower))
    torch.testing.assert_close(
        distribution.log_prob(LEVELS[0]), torch.sigmoid((LEVELS[0] + 1 / 510 - 0.4) / 0.05).log()
    )


@pytest.mark.parametrize("log_scale", [-9.0, -3.0, 3.0])
def test_logistic_log_prob_and_gradients_are_finite_in_the_tails(log_scale: float) -> None:
    location = torch.tensor([-5.0, 0.5, 5.0], requires_grad=True)
    scale = torch.full((3,), log_scale, requires_grad=True)
    log_prob = DiscretisedLogistic(location, scale, event_ndim=1).log_prob(torch.tensor([1.0, 0.2, 0.0]))
    log_prob.backward()
    assert location.grad is not None
    assert scale.grad is not None
    assert all(bool(torch.isfinite(value).all()) for value in (log_prob, location.grad, scale.grad))


def test_logistic_samples_have_the_stated_frequencies() -> None:
    torch.manual_seed(0)
    location, log_scale = torch.full((200_000,), 0.02), torch.full((200_000,), math.log(0.01))
    samples = (DiscretisedLogistic(location, log_scale, event_ndim=1).sample() * 255).round().long()
    shares = torch.bincount(samples, minlength=256) / len(samples)
    torch.testing.assert_close(shares.double(), logistic(0.02, 0.01).log_prob(LEVELS).exp(), rtol=0, atol=4e-3)


def test_logistic_log_prob_is_constant_within_a_bin() -> None:
    distribution = logistic(0.5, 0.1)
    torch.testing.assert_close(distribution.log_prob(LEVELS[7] + 0.4 / 255), distribution.log_prob(LEVELS[7]))
