"""Density estimates against exact values: from a Kalman filter, and from sums over a fine grid."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import tdvae
from tdvae import InputError
from tdvae.distributions import DiagonalNormal
from tdvae.exact import KalmanBank
from tdvae.likelihood import (
    joint_log_weights,
    log_mean_exp,
    pair_log_weights,
    particle_log_prob,
    resample,
    steps_log_weights,
    trajectory_log_weights,
)
from tdvae.models import (
    Classes,
    Filtering,
    FilteringConfig,
    GatedMaps,
    Gaussian,
    MeanFieldConfig,
    StateSpace,
    TDVAEConfig,
    build,
)
from tdvae.models.config import LatentConfig
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.memory import LastObservation
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.objectives import elbo_terms
from tdvae.types import Belief, Latent, Pairs, Sequences, State, missing_as_nan
from tests.test_objective import (
    NOISE,
    A,
    ExactModel,
    ExactObservedModel,
    FirstCoordinates,
    GaussianLadder,
    LinearTransition,
    Q,
    exact_log_prob,
    observed_log_prob,
)


def standard_error(log_weights: Tensor) -> Tensor:
    """Standard error of the log of the mean weight, by the delta method."""
    weights = torch.exp(log_weights - log_weights.amax(0))
    return weights.std(0) / weights.mean(0) / math.sqrt(len(weights))


class ExactModelWithB0(ExactModel):
    """An exact model with a b_0 from which one step leads to the bank's prior of the first state."""

    def _filter(self, sequences: Sequences) -> tdvae.models.base.Beliefs:
        beliefs = super()._filter(sequences)
        inverse = torch.linalg.inv(A)
        beliefs.codes[:, 0, 2:] = (inverse @ (torch.eye(2, dtype=A.dtype) - Q) @ inverse.mT).flatten()
        return beliefs

    def log_prob(self, sequences: Sequences) -> Tensor:
        """log p(x_1 … x_T)."""
        first = DiagonalNormal(
            torch.zeros(1, 1, dtype=A.dtype), torch.full((1, 1), 0.5 * math.log(1 + NOISE**2), dtype=A.dtype)
        )
        return first.log_prob(sequences.x[:, 0]) + exact_log_prob(self, sequences).sum(1)


@pytest.fixture
def sequences() -> Sequences:
    return Sequences(torch.randn(5, 12, 1, dtype=torch.float64), torch.full((5,), 12))


def test_joint_weights_of_an_exact_model_equal_the_likelihood(sequences: Sequences) -> None:
    model = ExactModelWithB0()
    weights = joint_log_weights(model, sequences, samples=3)
    torch.testing.assert_close(weights, model.log_prob(sequences).expand(3, -1), rtol=0, atol=1e-8)


@pytest.mark.parametrize("channels", [1, 2])
def test_joint_weights_equal_the_likelihood_of_what_was_observed(channels: int) -> None:
    x = torch.randn(5, 12, channels, dtype=torch.float64)
    gaps = Sequences(x, torch.full((5,), 12), observed=torch.rand(x.shape) > 0.5)
    model = ExactModelWithB0(channels=channels)
    truth = observed_log_prob(model, gaps)
    weights = joint_log_weights(model, gaps, samples=3)
    torch.testing.assert_close(weights, truth.sum(1).expand(3, -1), rtol=0, atol=1e-8)
    step = steps_log_weights(model, gaps, 5, 6, samples=3)
    torch.testing.assert_close(step, truth[:, 5].expand(3, -1), rtol=0, atol=1e-8)


def test_joint_weights_with_a_wide_smoother_estimate_the_likelihood(sequences: Sequences) -> None:
    model = ExactModelWithB0(widen=1.3)
    weights = joint_log_weights(model, sequences, samples=4_000)
    assert float(weights.std(0).min()) > 0.01
    errors = (log_mean_exp(weights) - model.log_prob(sequences)).abs() / standard_error(weights)
    assert float(errors.max()) < 4
    assert bool((weights.mean(0) < model.log_prob(sequences)).all())  # the mean log weight is a lower bound


def predictive(model: ExactModel, sequences: Sequences, t1: int, t2: int) -> DiagonalNormal:
    """The distribution of x_t2 given x_≤t1, by the Kalman filter."""
    code = model.filter(sequences).codes[:, t1]
    mean, cov = code[:, :2, None], code[0, 2:].view(2, 2)
    for _ in range(t1, t2):
        mean, cov = A @ mean, A @ cov @ A.mT + Q
    log_sigma = 0.5 * torch.log(cov[0, 0] + NOISE**2)
    return DiagonalNormal(mean[:, 0], log_sigma.expand_as(mean[:, 0]))


def test_steps_weights_of_one_step_equal_pair_weights(sequences: Sequences) -> None:
    model = ExactModel()
    weights = steps_log_weights(model, sequences, 5, 6, samples=3)
    t1 = torch.full((5, 1), 5)
    pair_weights = pair_log_weights(model, sequences, Pairs(t1, t1 + 1), samples=3)[..., 0]
    torch.testing.assert_close(weights, pair_weights, rtol=0, atol=1e-8)  # weights of an exact model are constant
    exact = predictive(model, sequences, 5, 6).log_prob(sequences.x[:, 5])
    torch.testing.assert_close(weights, exact.expand(3, -1), rtol=0, atol=1e-8)


def test_steps_weights_integrate_over_states_in_between(sequences: Sequences) -> None:
    """The proposal is conditioned on the observation in between, the density is not, so the weights vary."""
    torch.manual_seed(0)
    small = Sequences(0.5 * torch.randn_like(sequences.x), sequences.lengths)
    model = ExactModel(widen=1.3)
    weights = steps_log_weights(model, small, 4, 6, samples=20_000)
    assert float(weights.std(0).min()) > 0.1
    torch.testing.assert_close(
        log_mean_exp(weights), predictive(model, small, 4, 6).log_prob(small.x[:, 5]), rtol=0, atol=0.05
    )


def test_steps_weights_reject_invalid_times(sequences: Sequences) -> None:
    for t1, t2 in ((4, 4), (-1, 3), (4, 13)):
        with pytest.raises(InputError, match="t1, t2"):
            steps_log_weights(ExactModel(), sequences, t1, t2, samples=1)


def test_joint_weights_of_an_exact_model_with_observed_state_equal_the_likelihood(sequences: Sequences) -> None:
    model = ExactObservedModel()
    weights = joint_log_weights(model, sequences, samples=4)
    torch.testing.assert_close(weights, model.exact_filter(sequences)[1].sum(1).expand(4, -1), rtol=0, atol=1e-8)


def test_steps_weights_with_observed_state_integrate_over_observations_in_between(sequences: Sequences) -> None:
    """Two steps ahead, x is normal; its mean and standard deviation are estimated from samples of the model."""
    model, t1 = ExactObservedModel(), 4
    small = Sequences(0.3 * sequences.x, sequences.lengths)
    code = model.filter(small).codes[:, t1]
    mean, cov = code[:, :2], code[:, 2:6].unflatten(-1, (2, 2))
    count = 200_000
    z = mean[:1] + torch.randn(count, 2, dtype=A.dtype) @ torch.linalg.cholesky(cov[0]).mT
    state, dt = State(Latent((z[:, :1], z[:, 1:])), code[:1, 6:7].expand(count, 1)), torch.ones(count).long()
    for _ in range(2):
        step = model.step(state, dt)
        z2, _ = step.p_T.sample()
        x = step.p_D(z2).sample()
        state = State(z2, x)
    expected = DiagonalNormal(x.mean(0), x.std(0).log()).log_prob(small.x[0, t1 + 1])
    weights = steps_log_weights(model, small, t1, t1 + 2, samples=20_000)[:, 0]
    torch.testing.assert_close(log_mean_exp(weights), expected, rtol=0, atol=0.03)


class IdentityBelief(BeliefNetwork):
    """b_t = x_t, which is sufficient for the optimal encoder q(z_t | z_{t-1}, b_t) of a linear-Gaussian model."""

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.size = size

    def initial(self, batch: int) -> Belief:
        return Belief(torch.zeros(batch, self.size, dtype=A.dtype), ())

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        return inputs, Belief(inputs[:, -1], ())


class OptimalEncoder(GaussianLadder):
    """p(z_t | z_{t-1}, x_t)."""

    def moments(self, b: Tensor, before: State, actions: None) -> tuple[Tensor, Tensor]:
        predicted = before.z.flat @ A.mT
        gain = Q[:, 0] / (Q[0, 0] + NOISE**2)
        cov = Q - gain[:, None] * Q[0]
        return predicted + (b - predicted[..., :1]) * gain, cov.expand(*predicted.shape, 2)


class OptimalEncoderWithGaps(OptimalEncoder):
    """p(z_t | z_{t-1}, x_t) if x_t is observed, p(z_t | z_{t-1}) if not; b is (x_t, mask)."""

    def moments(self, b: Tensor, before: State, actions: None) -> tuple[Tensor, Tensor]:
        mean, cov = super().moments(b[..., :1], before, actions)
        seen = b[..., 1:] > 0.5
        return torch.where(seen, mean, before.z.flat @ A.mT), torch.where(seen[..., None], cov, Q)


def linear_filtering() -> Filtering:
    config = FilteringConfig(latent=1, layers=2)
    parts = (
        ObservationEncoder((1,)),
        IdentityBelief(),
        nn.Identity(),
        OptimalEncoder(),
        LinearTransition(),
        FirstCoordinates(),
    )
    return Filtering(config, *parts).double()  # type: ignore[arg-type]


def kalman_bank() -> KalmanBank:
    return KalmanBank(
        A=A[None],
        Q=Q,
        C=torch.tensor([[1.0, 0.0]]),
        R=torch.tensor([[NOISE**2]], dtype=torch.float64),
        m0=torch.zeros(1, 2),  # z_0 = 0, so the first state is process noise
        P0=Q[None],
        log_prior=torch.zeros(1),
    )


def kalman_log_prob(x: Tensor) -> Tensor:
    """log p(x_t | x_<t) of `linear_filtering`, (N, T)."""
    bank = kalman_bank()
    first = DiagonalNormal(torch.zeros(1, 1, dtype=A.dtype), 0.5 * (Q[:1, :1] + NOISE**2).log())
    later = [bank.predict(bank.filter(x[:, :t]), 1).log_prob(x[:, t])[:, 0] for t in range(1, x.shape[1])]
    return torch.stack([first.log_prob(x[:, 0]), *later], dim=1)


def linear_data(steps: int) -> Sequences:
    return Sequences(0.5 * torch.randn(4, steps, 1, dtype=torch.float64), torch.full((4,), steps))


def linear_filtering_with_gaps() -> Filtering:
    """The encoder of a model with missing values gives value and mask, and p(z_t | z_{t-1}) is optimal without x_t."""
    model = linear_filtering()
    config = FilteringConfig(latent=1, layers=2, decoder=Gaussian(missing_values=True))
    parts = ObservationEncoder((1,), missing_values=True), IdentityBelief(2), nn.Identity(), OptimalEncoderWithGaps()
    return Filtering(config, *parts, model.p_T, model.p_D).double()


def test_state_space_likelihoods_with_missing_values() -> None:
    model, data = linear_filtering_with_gaps(), linear_data(5)
    data = replace(data, observed=torch.rand(data.x.shape) > 0.4)
    x = missing_as_nan(data.x, data.observed)
    evidence = torch.cat([kalman_bank().filter(x[:, :t]).log_evidence for t in range(1, 6)], dim=1)
    truth = torch.diff(evidence, dim=1, prepend=torch.zeros(4, 1))
    weights = trajectory_log_weights(model, data, samples=5_000)
    assert float(((log_mean_exp(weights) - truth.sum(1)).abs() / standard_error(weights)).max()) < 4
    runs = torch.stack([particle_log_prob(model, data, particles=1_000) for _ in range(20)])
    error = runs.std(0) / len(runs) ** 0.5
    assert float((runs.mean(0) - truth).abs().sub(4 * error).max()) < 0.01
    assert data.observed is not None
    assert float(runs[:, ~data.observed[..., 0]].abs().max()) < 1e-9  # nothing observed: the likelihood is 1


def test_trajectory_weights_estimate_the_likelihood() -> None:
    model, data = linear_filtering(), linear_data(5)
    truth = kalman_log_prob(data.x)
    weights = trajectory_log_weights(model, data, samples=5_000)
    errors = (log_mean_exp(weights) - truth.sum(1)).abs() / standard_error(weights)
    assert float(errors.max()) < 4
    one_step = trajectory_log_weights(model, data.until(1), samples=3)  # here the encoder is the exact posterior
    torch.testing.assert_close(one_step, truth[:, 0].expand(3, -1), rtol=0, atol=1e-9)


def test_particle_filter_estimates_the_likelihood_of_each_step() -> None:
    model, data = linear_filtering(), linear_data(5)
    truth = kalman_log_prob(data.x)
    runs = torch.stack([particle_log_prob(model, data, particles=2_000) for _ in range(20)])
    error = runs.std(0) / len(runs) ** 0.5
    assert float((runs.mean(0) - truth).abs().sub(4 * error).max()) < 0.01  # the bias is of order 1 / particles
    single = particle_log_prob(model, data, particles=1)
    torch.testing.assert_close(single[:, 0], truth[:, 0], rtol=0, atol=1e-9)  # there the encoder is the exact posterior


def test_particle_filter_is_more_accurate_than_trajectory_weights() -> None:
    """In long sequences one trajectory has nearly all the weight; resampling avoids this."""
    model, data = linear_filtering(), linear_data(60)
    truth = kalman_log_prob(data.x).sum(1)
    particle_error = truth - particle_log_prob(model, data, particles=500).sum(1)
    trajectory_error = truth - log_mean_exp(trajectory_log_weights(model, data, samples=500))
    assert float(particle_error.abs().mean()) < 0.2 * float(trajectory_error.mean())


def test_resampling_counts_are_proportional_to_weights() -> None:
    weights = torch.tensor([0.5, 0.0, 0.3, 0.2])
    log_weight = weights.log()[:, None].expand(-1, 5_000)
    counts = torch.stack([(resample(log_weight) == particle).sum(0) for particle in range(4)]).float()
    torch.testing.assert_close(counts.mean(1), 4 * weights, rtol=0, atol=0.03)
    assert float((counts - 4 * weights[:, None]).abs().max()) < 1 + 1e-5  # counts are rounded up or down


SMALL: dict[str, Any] = {
    "event_shape": (2,),
    "decoder": Classes(3),
    "layers": 1,
    "latent": 1,
    "maps": GatedMaps(6),
}
GRID = torch.linspace(-7, 7, 500)[:, None]


def grid_log_mass(model: StateSpace | tdvae.TDVAE, data: Sequences, t: int) -> Tensor:
    """Log probability mass of p(z_t, x_t | s_{t-1}) from each grid point to each other, (N, from, to)."""
    shape = (len(data), len(GRID), len(GRID))
    source, target = (Latent((grid.expand(*shape, 1),)) for grid in (GRID[:, None], GRID))
    x = model.features_at(data, torch.full((len(data),), t - 1))
    before = State(source, None if x is None else x[:, None, None].expand(*shape, -1))
    if isinstance(model, StateSpace):
        step = model.step(before)
    else:
        step = model.step(before, torch.ones(shape, dtype=torch.long))
    log_prob_x = step.p_D(target).log_prob(data.x[:, t - 1, None, None])
    return step.p_T.given(target).log_prob(target) + log_prob_x + math.log(float(GRID[1] - GRID[0]))


@pytest.mark.parametrize("state", ["latent", "observed"])
@pytest.mark.parametrize("kind", [TDVAEConfig, FilteringConfig, MeanFieldConfig])
def test_estimates_agree_with_sums_over_a_grid(kind: type[LatentConfig], state: Literal["latent", "observed"]) -> None:
    """For a one-dimensional z, the integrals over z_0, z_1 and z_2 are computed as sums over a grid."""
    model = build(kind(**SMALL, state=state))
    assert isinstance(model, StateSpace | tdvae.TDVAE)
    if isinstance(model.memory, LastObservation):
        torch.nn.init.normal_(model.memory.x_0)
    data = Sequences(torch.tensor([[[0, 2], [1, 1]], [[2, 2], [0, 1]]]), torch.tensor([2, 2]))
    cell = math.log(float(GRID[1] - GRID[0]))
    with torch.no_grad():
        steps = [grid_log_mass(model, data, t) for t in (1, 2)]
        if isinstance(model, StateSpace):
            z, s_0 = Latent((GRID,)), model.initial_state(len(GRID))
            step = model.step(s_0)
            alpha = step.p_T.given(z).log_prob(z) + cell
            alpha = alpha + step.p_D(z).log_prob(data.x[:, 0, None])
            weights = trajectory_log_weights(model, data, samples=6_000)
        else:
            b_0 = model.read(model.initial(1).code).expand(len(GRID), -1)
            prior = model.p_B.given(Latent((GRID,)), b_0).log_prob(Latent((GRID,))) + cell
            alpha = torch.logsumexp(prior[:, None] + steps[0], 1)
            weights = joint_log_weights(model, data, samples=6_000)
        first = torch.logsumexp(alpha, 1)
        truth = torch.logsumexp(torch.logsumexp(alpha[:, :, None] + steps[1], 1), 1)
        assert float(((log_mean_exp(weights) - truth).abs() / standard_error(weights)).max()) < 4
        if isinstance(model, StateSpace):
            by_step = particle_log_prob(model, data, particles=20_000)
            torch.testing.assert_close(by_step, torch.stack([first, truth - first], dim=1), rtol=0, atol=0.05)
        if isinstance(model, tdvae.TDVAE):  # for t1 = 0 the conditional density equals the joint one
            pairs = Pairs(torch.zeros(2, 1).long(), torch.ones(2, 1).long())
            weights = pair_log_weights(model, data, pairs, samples=6_000)[..., 0]
            assert float(((log_mean_exp(weights) - first).abs() / standard_error(weights)).max()) < 4


@pytest.mark.parametrize("config", [FilteringConfig(**SMALL), MeanFieldConfig(**SMALL)])
def test_elbo_with_closed_kl_is_the_mean_log_weight(config: LatentConfig) -> None:
    model = build(config)
    assert isinstance(model, StateSpace)
    data = Sequences(torch.randint(3, (1, 4, 2)), torch.tensor([4]))
    weights = trajectory_log_weights(model, data, samples=5_000)[:, 0]
    with torch.no_grad():
        totals = elbo_terms(model, data.select(torch.zeros(2_000, dtype=torch.long))).total.sum(1)
    error = math.hypot(float(weights.std()) / 5_000**0.5, float(totals.std()) / 2_000**0.5)
    assert abs(float(weights.mean() + totals.mean())) < 4 * error


def test_invalid_arguments() -> None:
    model = build(FilteringConfig(**SMALL))
    data = Sequences(torch.zeros(2, 4, 2, dtype=torch.long), torch.tensor([4, 3]))
    with pytest.raises(InputError, match=r"sequences: .* lengths 3 to 4"):
        trajectory_log_weights(model, data, samples=2)
    with pytest.raises(InputError, match="samples"):
        trajectory_log_weights(model, data.until(3), samples=0)
    with pytest.raises(InputError, match=r"sequences: .* lengths 3 to 4"):
        particle_log_prob(model, data, particles=2)
    with pytest.raises(InputError, match="particles: expected at least 1, got 0"):
        particle_log_prob(model, data.until(3), particles=0)
