"""The Kalman bank and the oscillator oracle, against brute-force computations and simulated data."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from tdvae.data.oscillator import OscillatorRecord, OscillatorSettings, simulate
from tdvae.exact import BankPosterior, GaussianMixture, KalmanBank, OscillatorOracle

SETTINGS = OscillatorSettings()
JUMPS = (1, 5, 20, 100)
LAST = 59


def random_bank(seed: int, h: int, d: int, o: int) -> KalmanBank:
    """Stable random models with full covariances, so that swapped indices change the results."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def covariance(*shape: int) -> Tensor:
        root = normal(*shape, shape[-1])
        return root @ root.mT + 0.1 * torch.eye(shape[-1], dtype=torch.float64)

    dynamics = normal(h, d, d)
    dynamics = 0.9 * dynamics / torch.linalg.matrix_norm(dynamics, ord=2)[:, None, None]
    noises = {"Q": covariance(d), "R": covariance(o), "P0": covariance(h, d)}
    return KalmanBank(A=dynamics, C=normal(o, d), m0=normal(h, d), log_prior=normal(h), **noises)


def joint(bank: KalmanBank, h: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hypothesis h as one joint Gaussian: mean and covariance of all states, then of all observations."""
    a, d = bank.A[h], bank.Q.shape[0]
    mean, cov = [bank.m0[h]], torch.zeros(length * d, length * d, dtype=torch.float64)
    cov[:d, :d] = bank.P0[h]
    for t in range(1, length):
        mean.append(a @ mean[-1])
        now, past = slice(t * d, (t + 1) * d), slice(0, t * d)
        cov[now, past] = a @ cov[(t - 1) * d : t * d, past]
        cov[past, now] = cov[now, past].T
        cov[now, now] = a @ cov[(t - 1) * d : t * d, (t - 1) * d : t * d] @ a.T + bank.Q
    states, eye = torch.cat(mean), torch.eye(length, dtype=torch.float64)
    observe = torch.kron(eye, bank.C)
    return states, cov, observe @ states, observe @ cov @ observe.T + torch.kron(eye, bank.R)


def conditional(bank: KalmanBank, h: int, x: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """Brute-force mean (N, D) and covariance of the state at ``index`` given x (N, T, O) and h."""
    length, d = max(x.shape[1], index + 1), bank.Q.shape[0]
    states, cov, seen_mean, seen_cov = joint(bank, h, length)
    seen = x.shape[1] * bank.C.shape[0]
    observe = torch.kron(torch.eye(length, dtype=torch.float64), bank.C)
    at = slice(index * d, (index + 1) * d)
    cross = (cov @ observe.T)[at, :seen]
    gain = cross @ torch.linalg.inv(seen_cov[:seen, :seen])
    return states[at] + (x.flatten(1) - seen_mean[:seen]) @ gain.T, cov[at, at] - gain @ cross.T


def log_normal(value: Tensor, mean: Tensor, cov: Tensor) -> Tensor:
    """log N(value; mean, cov) of values (..., D), by the definition."""
    error = value - mean
    distance: Tensor = (torch.linalg.solve(cov, error.unsqueeze(-1)).squeeze(-1) * error).sum(-1)
    log_det: Tensor = torch.logdet(2 * math.pi * cov)
    return -0.5 * (distance + log_det)


def random_x(bank: KalmanBank, n: int, length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((n, length, bank.C.shape[0]), generator=generator, dtype=torch.float64)


@given(seed=st.integers(0, 10_000), d=st.integers(1, 3), o=st.integers(1, 2), length=st.integers(1, 6))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=25)
def test_filter_equals_the_conditional_of_the_joint_gaussian(seed: int, d: int, o: int, length: int) -> None:
    bank = random_bank(seed, 1, d, o)
    x = random_x(bank, 3, length, seed)
    posterior = bank.filter(x)
    mean, cov = conditional(bank, 0, x, length - 1)
    torch.testing.assert_close(posterior.mean[:, 0], mean, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(posterior.cov[0], cov, atol=1e-8, rtol=1e-8)
    _, _, seen_mean, seen_cov = joint(bank, 0, length)
    density = log_normal(x.flatten(1), seen_mean, seen_cov)
    torch.testing.assert_close(posterior.log_evidence[:, 0], density, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(bank.log_likelihood(posterior), posterior.log_evidence[:, 0])


@pytest.mark.parametrize("dt", [0, 1, 2, 3, 7, 12])
def test_prediction_equals_the_conditional_of_the_joint_gaussian(dt: int) -> None:
    bank = random_bank(5, 3, 2, 2)
    x = random_x(bank, 4, 5)
    posterior = bank.filter(x)
    state, mixture = bank.advance(posterior, dt), bank.predict(posterior, dt)
    for h in range(3):
        mean, cov = conditional(bank, h, x, 4 + dt)
        torch.testing.assert_close(state.mean[:, h], mean)
        torch.testing.assert_close(state.cov[h], cov)
        torch.testing.assert_close(mixture.means[..., h], mean @ bank.C.T)
        torch.testing.assert_close(mixture.variances[..., h], (bank.C @ cov @ bank.C.T + bank.R).diagonal())
    assert mixture.batch_shape == (4, 2)


def test_jump_equals_repeated_single_steps() -> None:
    bank = random_bank(6, 2, 3, 1)
    phi, noise = torch.eye(3, dtype=torch.float64).expand(2, 3, 3), torch.zeros(2, 3, 3, dtype=torch.float64)
    for dt in range(40):
        jump_phi, jump_noise = bank.jump(dt)
        torch.testing.assert_close(jump_phi, phi)
        torch.testing.assert_close(jump_noise, noise)
        phi, noise = bank.A @ phi, bank.A @ noise @ bank.A.mT + bank.Q


def test_weights_follow_bayes_rule() -> None:
    bank = random_bank(7, 4, 2, 1)
    x = random_x(bank, 3, 4)
    log_joint = torch.log_softmax(bank.log_prior, -1) + torch.stack(
        [log_normal(x.flatten(1), *joint(bank, h, 4)[2:]) for h in range(4)], dim=-1
    )
    evidence = torch.logsumexp(log_joint, dim=-1)
    posterior = bank.filter(x)
    torch.testing.assert_close(posterior.log_weights, log_joint - evidence[:, None], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(bank.log_likelihood(posterior), evidence, rtol=1e-8, atol=1e-8)


def test_filtering_in_blocks_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = random_bank(8, 3, 2, 1)
    x = random_x(bank, 7, 5)
    whole = bank.filter(x)
    monkeypatch.setattr("tdvae.exact.kalman.BLOCK_ELEMENTS", 12)  # two sequences at a time
    parts = bank.filter(x)
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.log_evidence, whole.log_evidence)


def test_smoother_equals_the_conditional_of_the_joint_gaussian() -> None:
    """p(z_2 | z_3, x_0..x_2), from the joint of (z_2, z_3) given x_0..x_2."""
    bank = random_bank(9, 2, 3, 2)
    x, z = random_x(bank, 4, 3), torch.randn(5, 4, 2, 3, generator=torch.Generator().manual_seed(1)).double()
    smoother = bank.smoother(bank.filter(x))
    for h in range(2):
        mean, cov = conditional(bank, h, x, 2)
        after_mean, after_cov = conditional(bank, h, x, 3)
        gain = cov @ bank.A[h].T @ torch.linalg.inv(after_cov)
        torch.testing.assert_close(smoother.mean(z)[:, :, h], mean + (z[:, :, h] - after_mean) @ gain.T)
        torch.testing.assert_close(smoother.cov[h], cov - gain @ after_cov @ gain.T)


def test_integrand_of_eq_5_has_zero_variance_with_filter_and_smoother() -> None:
    """log p_T p_D p_B1 / (p_B2 q_S) = log p(x_t | x_<t) for all z_{t-1} and z_t."""
    bank = random_bank(10, 1, 2, 2)
    x = random_x(bank, 3, 5)
    before, after = bank.filter(x[:, :-1]), bank.filter(x)
    smoother = bank.smoother(before)
    z1, z2 = (torch.randn(6, 3, 2, generator=torch.Generator().manual_seed(s)).double() for s in (2, 3))

    integrand = (
        log_normal(z1, before.mean[:, 0], before.cov[0])
        + log_normal(z2, z1 @ bank.A[0].T, bank.Q)
        + log_normal(x[:, -1], z2 @ bank.C.T, bank.R)
        - log_normal(z2, after.mean[:, 0], after.cov[0])
        - log_normal(z1, smoother.mean(z2.unsqueeze(-2)).squeeze(-2), smoother.cov[0])
    )
    expected = (after.log_evidence - before.log_evidence)[:, 0].expand(6, 3)
    torch.testing.assert_close(integrand, expected, atol=1e-9, rtol=1e-9)


# Missing values


def with_gaps(x: Tensor, share: float = 0.5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.where(torch.rand(x.shape, generator=generator) < share, torch.nan, x)


def conditional_on_observed(bank: KalmanBank, h: int, x: Tensor, index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Brute-force mean and covariance of the state at ``index`` given the numbers in x (T, O), and their evidence."""
    length, d = max(len(x), index + 1), bank.Q.shape[0]
    states, cov, seen_mean, seen_cov = joint(bank, h, length)
    seen = (~x.flatten().isnan()).nonzero()[:, 0]
    observe = torch.kron(torch.eye(length, dtype=torch.float64), bank.C)[seen]
    at, value, cov_x = slice(index * d, (index + 1) * d), x.flatten()[seen], seen_cov[seen][:, seen]
    cross = (cov @ observe.T)[at]
    gain = cross @ torch.linalg.inv(cov_x)
    evidence = log_normal(value, seen_mean[seen], cov_x)
    return states[at] + gain @ (value - seen_mean[seen]), cov[at, at] - gain @ cross.T, evidence


@given(seed=st.integers(0, 10_000), d=st.integers(1, 3), o=st.integers(1, 3), length=st.integers(1, 6))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=25)
def test_filter_with_missing_values_equals_the_conditional_of_the_joint_gaussian(
    seed: int, d: int, o: int, length: int
) -> None:
    bank = random_bank(seed, 2, d, o)
    x = with_gaps(random_x(bank, 3, length, seed), 0.6, seed)
    x[0, -1] = torch.nan  # a whole observation
    x[1] = torch.nan  # a whole sequence: what is left is the prior
    posterior = bank.filter(x)
    for dt in (0, 3):
        state, mixture = bank.advance(posterior, dt), bank.predict(posterior, dt)
        for row in range(3):
            for h in range(2):
                mean, cov, evidence = conditional_on_observed(bank, h, x[row], length - 1 + dt)
                torch.testing.assert_close(state.mean[row, h], mean, atol=1e-8, rtol=1e-8)
                torch.testing.assert_close(state.cov[row, h], cov, atol=1e-8, rtol=1e-8)
                torch.testing.assert_close(posterior.log_evidence[row, h], evidence, atol=1e-8, rtol=1e-8)
                torch.testing.assert_close(mixture.means[row, :, h], bank.C @ mean, atol=1e-8, rtol=1e-8)
                variance = (bank.C @ cov @ bank.C.T + bank.R).diagonal()
                torch.testing.assert_close(mixture.variances[row, :, h], variance, atol=1e-8, rtol=1e-8)


def assert_same_posterior(first: BankPosterior, second: BankPosterior) -> None:
    for name in ("log_weights", "log_evidence", "mean", "cov"):
        torch.testing.assert_close(getattr(first, name), getattr(second, name))


def test_gaps_of_one_sequence_do_not_change_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = random_bank(8, 3, 2, 2)
    x = random_x(bank, 7, 5)
    gaps = torch.cat([with_gaps(x[:3]), x[3:]])
    mixed, complete = bank.filter(gaps), bank.filter(x)
    torch.testing.assert_close(mixed.mean[3:], complete.mean[3:])
    torch.testing.assert_close(mixed.cov[3:], complete.cov.expand(4, 3, 2, 2))
    monkeypatch.setattr("tdvae.exact.kalman.BLOCK_ELEMENTS", 12)  # two sequences at a time
    assert_same_posterior(bank.filter(gaps), mixed)


def test_a_continued_filter_keeps_the_gaps_of_its_past() -> None:
    bank = random_bank(8, 3, 2, 2)
    x = random_x(bank, 4, 6)
    for gaps in (torch.cat([with_gaps(x[:, :3]), x[:, 3:]], 1), torch.cat([x[:, :3], with_gaps(x[:, 3:])], 1)):
        assert_same_posterior(bank.filter(gaps[:, 3:], after=bank.filter(gaps[:, :3])), bank.filter(gaps))


def test_smoother_after_gaps_equals_that_of_the_sequence_alone() -> None:
    """Its covariance depends on what the sequence has observed."""
    bank = random_bank(9, 2, 3, 2)
    x, z = with_gaps(random_x(bank, 4, 3)), torch.randn(5, 4, 2, 3, generator=torch.Generator().manual_seed(1)).double()
    together = bank.smoother(bank.filter(x))
    for row in range(4):
        mean, cov, _ = zip(*(conditional_on_observed(bank, h, x[row], 2) for h in range(2)), strict=True)
        after_mean, after_cov, _ = zip(*(conditional_on_observed(bank, h, x[row], 3) for h in range(2)), strict=True)
        for h in range(2):
            gain = cov[h] @ bank.A[h].T @ torch.linalg.inv(after_cov[h])
            expected = mean[h] + (z[:, row, h] - after_mean[h]) @ gain.T
            torch.testing.assert_close(together.mean(z)[:, row, h], expected)
            torch.testing.assert_close(together.cov[row, h], cov[h] - gain @ after_cov[h] @ gain.T)


def random_mixture(seed: int) -> GaussianMixture:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn((3, 4, 2, 5), generator=generator, dtype=torch.float64)
    return GaussianMixture(torch.log_softmax(normal[0], -1), 3 * normal[1], normal[2].exp())


@given(seed=st.integers(0, 10_000), p=st.floats(1e-6, 1 - 1e-6))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=25)
def test_quantile_inverts_the_cdf(seed: int, p: float) -> None:
    mixture = random_mixture(seed)
    torch.testing.assert_close(mixture.cdf(mixture.quantile(p)), torch.full((4, 2), p, dtype=torch.float64))
    x = mixture.sample(3, torch.Generator().manual_seed(seed))
    # A rounding error of the cdf changes its inverse by the error divided by the density.
    assert ((mixture.quantile(mixture.cdf(x)) - x).abs() * mixture.log_prob(x).exp()).max() < 1e-13


def test_mixture_density_moments_and_samples_are_consistent() -> None:
    mixture = random_mixture(0)
    grid = torch.linspace(-30, 30, 6001, dtype=torch.float64)[:, None, None].expand(-1, 4, 2)
    density = mixture.log_prob(grid).exp()
    integral = torch.trapezoid(density, dx=0.01, dim=0)
    torch.testing.assert_close(integral, torch.ones_like(integral))
    torch.testing.assert_close(torch.trapezoid(grid * density, dx=0.01, dim=0), mixture.mean)
    second = torch.trapezoid((grid - mixture.mean) ** 2 * density, dx=0.01, dim=0)
    torch.testing.assert_close(second, mixture.variance)
    cumulative = torch.cumulative_trapezoid(density, dx=0.01, dim=0)
    torch.testing.assert_close(cumulative, mixture.cdf(grid)[1:], atol=1e-5, rtol=0)
    draws = mixture.sample(20_000, torch.Generator().manual_seed(1))
    assert draws.shape == (20_000, 4, 2)
    ranks = mixture.cdf(draws).sort(dim=0).values
    expected = ((torch.arange(20_000) + 0.5) / 20_000)[:, None, None]
    assert (ranks - expected).abs().max() < 2.2 / math.sqrt(20_000)  # Kolmogorov-Smirnov, eight tests at level 1e-4


def test_mixture_rejects_shapes_that_would_broadcast_silently() -> None:
    mixture = random_mixture(0)
    with pytest.raises(ValueError, match=r"^x: expected shape \(..., 4, 2\), got \(4,\)"):
        mixture.log_prob(torch.zeros(4))
    with pytest.raises(ValueError, match=r"^p: expected 0 < p < 1, got values"):
        mixture.quantile(1.0)


def test_bank_rejects_wrong_shapes() -> None:
    bank = random_bank(0, 2, 3, 1)
    with pytest.raises(ValueError, match=r"^C: expected shape \(1, 3\), got \(1, 2\)"):
        KalmanBank(bank.A, bank.Q, bank.C[:, :2], bank.R, bank.m0, bank.P0, bank.log_prior)
    with pytest.raises(ValueError, match=r"^x: expected shape .*, got \(4, 2\)"):
        bank.filter(torch.zeros(4, 2))
    with pytest.raises(ValueError, match=r"^dt: expected at least 0, got -1"):
        bank.jump(-1)


# ---------------------------------------------------------------- the oscillator


@pytest.fixture(scope="module")
def record() -> OscillatorRecord:
    return simulate(SETTINGS, n=600, seed=11)


@pytest.fixture(scope="module")
def oracle() -> OscillatorOracle:
    return OscillatorOracle(SETTINGS, frequencies=256)


@pytest.fixture(scope="module")
def posterior(oracle: OscillatorOracle, record: OscillatorRecord) -> BankPosterior:
    return oracle.observe(record.x[:, : LAST + 1])


def test_frequency_posterior_equals_brute_force_evidence_on_the_grid() -> None:
    """By the covariance E[x_s x_t] = cos(w (t - s)) (E[a^2] / 2 + min(s, t) q), plus r if s = t."""
    length, grid = 12, 40
    x = simulate(SETTINGS, n=5, seed=2).x[:, :length].double()
    oracle = OscillatorOracle(SETTINGS, frequencies=grid)
    steps = torch.arange(length, dtype=torch.float64)
    power = (1.5**3 - 0.5**3) / 3 / 2 + torch.minimum(steps[:, None], steps) * 0.02**2
    noise = 0.1**2 * torch.eye(length, dtype=torch.float64)
    log_evidence = torch.empty(5, grid, dtype=torch.float64)
    for i, frequency in enumerate(oracle.frequencies):
        cov = torch.cos(frequency * (steps[:, None] - steps)) * power + noise
        log_evidence[:, i] = log_normal(x[..., 0], torch.zeros_like(steps), cov)
    expected = torch.softmax(log_evidence, dim=-1)
    posterior = oracle.observe(x)
    torch.testing.assert_close(oracle.frequency_weights(posterior), expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(oracle.frequency(posterior)[0], expected @ oracle.frequencies)


def test_ring_prior_against_importance_sampling() -> None:
    """After four observations the ring prior makes a difference; the proposal is the true prior."""
    settings = OscillatorSettings(process_noise=0.1, observation_noise=0.3)
    seen = simulate(settings, n=3, seed=5).x[:, :4].double()
    particles = simulate(OscillatorSettings(process_noise=0.1, length=6), n=400_000, seed=6)
    u = particles.state.double()[..., 0]
    log_weight = -0.5 * ((seen[:, None, :, 0] - u[:, :4]) / 0.3).pow(2).sum(-1)
    weight = torch.softmax(log_weight, dim=-1)
    reference = (weight * u[:, 5]).sum(-1)
    second = (weight * u[:, 5] ** 2).sum(-1)
    exact = OscillatorOracle(settings, frequencies=24, rings=8)
    forecast = exact.forecast(exact.observe(seen), 2)
    torch.testing.assert_close(forecast.mean[:, 0], reference, atol=0.01, rtol=0)
    torch.testing.assert_close(forecast.variance[:, 0] - 0.09, second - reference**2, atol=0.01, rtol=0)
    # The forecast of the Gaussian prior differs here, so the test distinguishes the two priors.
    gaussian = OscillatorOracle(settings, frequencies=24)
    assert (gaussian.forecast(gaussian.observe(seen), 2).mean[:, 0] - reference).abs().max() > 0.05


def test_gaussian_and_ring_prior_agree_after_sixty_observations(record: OscillatorRecord) -> None:
    """The bound is loose for these few sequences; the docstring of the oracle has the value for many."""
    x = record.x[:16]
    gaussian, ring = (OscillatorOracle(SETTINGS, frequencies=128, rings=rings) for rings in (0, 3))
    after_gaussian, after_ring = (oracle.observe(x[:, : LAST + 1]) for oracle in (gaussian, ring))
    for dt in JUMPS:
        future = x[:, LAST + dt]
        change = gaussian.forecast(after_gaussian, dt).log_prob(future)
        change = change - ring.forecast(after_ring, dt).log_prob(future)
        assert abs(change.mean().item()) < 5e-3


def test_ring_prior_has_the_moments_of_the_true_prior() -> None:
    for amplitude in ((0.5, 1.5), (1.0, 1.0)):
        bank = OscillatorOracle(OscillatorSettings(amplitude=amplitude), frequencies=1, rings=6).bank
        covariance = bank.m0.T @ bank.m0 / len(bank.m0) + bank.P0[0]
        # With a known amplitude, the ring prior is wider by the width of its components.
        power = sum(a**2 for a in (*amplitude, math.sqrt(amplitude[0] * amplitude[1]))) / 6
        expected = power * torch.eye(2, dtype=torch.float64)
        torch.testing.assert_close(covariance, expected, atol=2e-3, rtol=0)


def test_posterior_of_frequency_and_amplitude_is_calibrated(
    oracle: OscillatorOracle, posterior: BankPosterior, record: OscillatorRecord
) -> None:
    n = len(record.frequency)
    truth = (record.frequency, record.state[:, LAST].norm(dim=-1))
    inferred = (oracle.frequency(posterior), oracle.amplitude(posterior))
    for (mean, std), true in zip(inferred, truth, strict=True):
        score = (true - mean) / std
        assert abs(score.mean().item()) < 5 / math.sqrt(n)
        assert abs(score.pow(2).mean().item() - 1) < 8 * math.sqrt(
            2 / n
        )  # the tails are heavier than those of a Gaussian


def test_a_forecast_after_missing_steps_is_a_longer_forecast(
    oracle: OscillatorOracle, posterior: BankPosterior, record: OscillatorRecord
) -> None:
    few, gap = 5, 7
    x = torch.cat([record.x[:few, : LAST + 1], torch.full((few, gap, 1), torch.nan)], dim=1)
    through = oracle.observe(x)
    for dt in (1, 20):
        nearer, farther = oracle.forecast(through, dt), oracle.forecast(posterior, dt + gap)
        torch.testing.assert_close(nearer.mean, farther.mean[:few])
        torch.testing.assert_close(nearer.variance, farther.variance[:few])
    torch.testing.assert_close(oracle.frequency(through)[0], oracle.frequency(posterior)[0][:few])
    assert bool((oracle.amplitude(through)[1] > oracle.amplitude(posterior)[1][:few]).all())  # process noise adds up


def test_amplitude_quadrature_matches_samples(oracle: OscillatorOracle, record: OscillatorRecord) -> None:
    posterior = oracle.observe(record.x[:2, :5])  # few observations, for a broad posterior
    generator = torch.Generator().manual_seed(0)
    chosen = torch.multinomial(posterior.weights, 50_000, replacement=True, generator=generator)
    noise = torch.randn((2, 50_000, 2, 1), generator=generator, dtype=torch.float64)
    spread = (torch.linalg.cholesky(posterior.cov)[chosen] @ noise).squeeze(-1)
    radius = (posterior.mean.gather(1, chosen[..., None].expand(-1, -1, 2)) + spread).norm(dim=-1)
    mean, std = oracle.amplitude(posterior)
    torch.testing.assert_close(mean, radius.mean(-1), atol=0.01, rtol=0)
    torch.testing.assert_close(std, radius.std(-1), atol=0.01, rtol=0)


@pytest.mark.parametrize("dt", JUMPS)
def test_forecast_is_calibrated(
    dt: int, oracle: OscillatorOracle, posterior: BankPosterior, record: OscillatorRecord
) -> None:
    rank = oracle.forecast(posterior, dt).cdf(record.x[:, LAST + dt])
    for level in (0.5, 0.9):
        inside = ((rank - 0.5).abs() < level / 2).double().mean().item()
        assert abs(inside - level) < 4 * math.sqrt(level * (1 - level) / len(rank))


def test_forecast_is_better_than_the_marginal_and_gets_worse_with_dt(
    oracle: OscillatorOracle, posterior: BankPosterior, record: OscillatorRecord
) -> None:
    bayes, marginal = [], []
    for dt in JUMPS:
        x = record.x[:, LAST + dt]
        bayes.append(-oracle.forecast(posterior, dt).log_prob(x).mean().item())
        marginal.append(-oracle.marginal(LAST + dt).log_prob(x).mean().item())
    assert bayes == sorted(bayes)
    assert all(forecast < prior - 0.5 for forecast, prior in zip(bayes, marginal, strict=True))


def test_default_grid_is_fine_enough(record: OscillatorRecord) -> None:
    """Doubling the default grid moves the mean NLL at dt = 100 by less than 1e-3 nats."""
    x = record.x[:150]
    nll = []
    for frequencies in (512, 1024):
        oracle = OscillatorOracle(SETTINGS, frequencies)
        forecast = oracle.forecast(oracle.observe(x[:, : LAST + 1]), 100)
        nll.append(-forecast.log_prob(x[:, LAST + 100]).mean().item())
    assert abs(nll[0] - nll[1]) < 1e-3


@pytest.mark.parametrize("t", [0, 60, 199])
def test_marginal_is_a_density_and_matches_simulation(t: int, oracle: OscillatorOracle) -> None:
    marginal = oracle.marginal(t)
    grid = torch.linspace(-4, 4, 4001, dtype=torch.float64).unsqueeze(-1)
    integral = torch.trapezoid(marginal.log_prob(grid).exp(), dx=0.002, dim=0)
    assert integral.item() == pytest.approx(1, abs=1e-8)
    power = (1.5**3 - 0.5**3) / 3 / 2
    assert marginal.mean.item() == pytest.approx(0, abs=1e-12)
    assert marginal.variance.item() == pytest.approx(power + t * 0.02**2 + 0.1**2, rel=1e-10)
    n = 4000
    x = simulate(OscillatorSettings(length=t + 1), n=n, seed=t).x[:, t]
    ranks = marginal.cdf(x).squeeze(-1).sort().values
    assert (ranks - (torch.arange(n) + 0.5) / n).abs().max() < 2.0 / math.sqrt(n)  # Kolmogorov-Smirnov


def test_marginal_equals_direct_integration(oracle: OscillatorOracle) -> None:
    x = torch.tensor([[-1.6], [0.0], [0.45], [1.2]], dtype=torch.float64)
    std = math.sqrt(30 * 0.02**2 + 0.1**2)
    radii = 0.5 + (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    centres = radii.unsqueeze(-1) * torch.cos(math.pi * (torch.arange(1000) + 0.5) / 1000)
    density = torch.stack([torch.exp(-0.5 * ((value - centres) / std) ** 2).mean() for value in x])
    density = density / (std * math.sqrt(2 * math.pi))
    torch.testing.assert_close(oracle.marginal(30).log_prob(x).exp().squeeze(-1), density, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("frequencies", {"frequencies": 0}),
        ("rings", {"rings": -1}),
        ("observation_noise", {"settings": OscillatorSettings(observation_noise=0.0)}),
    ],
)
def test_oracle_rejects_invalid_arguments(name: str, arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected .*, got"):
        OscillatorOracle(**{"settings": SETTINGS, **arguments})  # type: ignore[arg-type]


def test_marginal_rejects_a_negative_index(oracle: OscillatorOracle) -> None:
    with pytest.raises(ValueError, match=r"^t: expected .*, got -1"):
        oracle.marginal(-1)
