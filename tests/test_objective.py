"""The losses in cases with a known result: exact linear-Gaussian inference, and hand-made indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tdvae
from tdvae import InputError, Learner, TDVAEConfig, jumps
from tdvae.distributions import DiagonalNormal
from tdvae.exact import KalmanBank
from tdvae.likelihood import importance_log_prob
from tdvae.models import (
    LSTM,
    ConvTDVAEConfig,
    Coordinates,
    DeepLSTM,
    FilteringConfig,
    GatedMaps,
    Gaussian,
    LinearRecurrence,
    MeanFieldConfig,
    NextStepConfig,
    Unknown,
    build,
)
from tdvae.models.base import Beliefs, RecurrentModel, Step
from tdvae.models.config import ModelConfig
from tdvae.models.decoders import Decoder
from tdvae.nn.ladder import Ladder
from tdvae.nn.recurrent import BeliefConfig
from tdvae.objectives import (
    Gradient,
    Objective,
    next_step_loss,
    pair_terms,
    state_space_loss,
    subsequence_loss,
    tdvae_loss,
)
from tdvae.types import Latent, Origin, Pairs, Sequences, State, Terms, missing_as_nan

NOISE = 0.3
A = torch.tensor([[math.cos(0.4), -math.sin(0.4)], [math.sin(0.4), math.cos(0.4)]], dtype=torch.float64) * 0.97
Q = torch.tensor([[0.05, 0.01], [0.01, 0.03]], dtype=torch.float64)


class GaussianLadder(Ladder):
    """A two-dimensional normal distribution as two layers: z^2, then z^1 given z^2."""

    depth = 2

    def moments(self, *conditions: Any) -> tuple[Tensor, Tensor]:
        raise AssertionError("subclasses implement moments")

    def context(self, *conditions: Any) -> tuple[Tensor, Tensor]:
        return self.moments(*conditions)

    def layer(self, index: int, context: tuple[Tensor, Tensor], above: Sequence[Tensor]) -> DiagonalNormal:
        mean, cov = context
        top = mean[..., 1:], cov[..., 1:, 1]
        if index == 1:
            return DiagonalNormal(top[0], 0.5 * top[1].log())
        gain = cov[..., :1, 1] / top[1]
        conditional = mean[..., :1] + gain * (above[0] - top[0])
        return DiagonalNormal(conditional, 0.5 * (cov[..., :1, 0] - gain * cov[..., 1:, 0]).log())


def unpack(b: Tensor) -> tuple[Tensor, Tensor]:
    return b[..., :2], b[..., 2:].unflatten(-1, (2, 2))


class KalmanBelief(GaussianLadder):
    def moments(self, b: Tensor) -> tuple[Tensor, Tensor]:
        return unpack(b)


class LinearTransition(GaussianLadder):
    def moments(self, s1: State, dt: Tensor, actions: None) -> tuple[Tensor, Tensor]:
        assert bool((dt == 1).all())
        mean = s1.z.flat @ A.mT
        return mean, Q.expand(*mean.shape, 2)


class OneStepSmoother(GaussianLadder):
    """p(z_{t-1} | z_t, x_≤t-1) with its covariance multiplied by ``widen``; exact for 1."""

    def __init__(self, widen: float) -> None:
        super().__init__()
        self.widen = widen

    def moments(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: None) -> tuple[Tensor, Tensor]:
        mean, cov = unpack(b1)
        predicted = A @ cov @ A.mT + Q
        gain = cov @ A.mT @ torch.linalg.inv(predicted)
        smoothed = mean + (gain @ (z2.flat - mean @ A.mT)[..., None])[..., 0]
        return smoothed, (cov - gain @ predicted @ gain.mT) * self.widen


class FirstCoordinates(Decoder):
    """x is the first coordinates of z plus noise."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, z: Latent, origin: Origin | None = None) -> DiagonalNormal:
        mean = z.flat[..., : self.channels]
        return DiagonalNormal(mean, torch.full_like(mean, math.log(NOISE)))


class UnobservedState:
    """Methods of a model whose state does not include the observation."""

    p_T: Ladder
    p_D: Decoder

    def step(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> Step:
        return Step(self.p_T.bind(s1, dt, actions), self.p_D)

    def features_after(self, before: Any, x: Tensor, dt: Tensor, actions: Any) -> None:
        return None


class ExactModel(UnobservedState):
    """A linear-Gaussian state-space model whose p_B and q_S are the Kalman filter and smoother."""

    def __init__(self, widen: float = 1.0, channels: int = 1) -> None:
        self.p_B, self.q_S, self.p_T = KalmanBelief(), OneStepSmoother(widen), LinearTransition()
        self.p_D = FirstCoordinates(channels)
        self.cached: Beliefs | None = None
        self.bank = KalmanBank(
            A=A[None],
            Q=Q,
            C=torch.eye(2)[:channels],
            R=NOISE**2 * torch.eye(channels, dtype=torch.float64),
            m0=torch.zeros(1, 2),
            P0=torch.eye(2)[None],
            log_prior=torch.zeros(1),
        )

    def filter(self, sequences: Sequences) -> Beliefs:
        if self.cached is None:  # each test has one batch
            self.cached = self._filter(sequences)
        return self.cached

    def _filter(self, sequences: Sequences) -> Beliefs:
        codes = [torch.zeros(len(sequences), 6, dtype=torch.float64)]  # b_0 is not used here
        for t in range(1, sequences.horizon + 1):
            posterior = self.bank.filter(missing_as_nan(sequences.x, sequences.observed)[:, :t])
            cov = posterior.cov.flatten(-3).expand(len(sequences), 4)
            codes.append(torch.cat([posterior.mean[:, 0], cov], dim=-1))
        return Beliefs(torch.stack(codes, dim=1), lambda code: code)


@pytest.fixture
def sequences() -> Sequences:
    return Sequences(torch.randn(5, 12, 1, dtype=torch.float64), torch.full((5,), 12))


def consecutive(sequences: Sequences) -> Pairs:
    t1 = torch.arange(1, sequences.horizon).expand(len(sequences), -1)
    return Pairs(t1, t1 + 1)


def exact_log_prob(model: ExactModel, sequences: Sequences) -> Tensor:
    """log p(x_t | x_<t) of the Kalman filter, for t = 2 … T."""
    rows = []
    for t in range(1, sequences.horizon):
        predictive = model.bank.predict(model.bank.filter(sequences.x[:, :t]), 1)
        rows.append(predictive.log_prob(sequences.x[:, t])[:, 0])
    return torch.stack(rows, dim=1)


def test_integrand_equals_the_likelihood_for_every_sample(sequences: Sequences) -> None:
    """The zero-variance identity of Eq. 5 with exact p_B and q_S. It checks signs, indices, KL and smoothing."""
    model = ExactModel()
    truth = exact_log_prob(model, sequences)
    for _ in range(3):
        drawn = -pair_terms(model, sequences, consecutive(sequences), kl="sampled").total
        torch.testing.assert_close(drawn, truth, rtol=0, atol=1e-9)


@pytest.fixture(params=[1, 2], ids=["one channel", "two channels"])
def sequences_with_gaps(request: pytest.FixtureRequest) -> Sequences:
    """Half of the values are missing, among them the whole of x_3 and x_4, and NaN is where they would be."""
    x = torch.randn(5, 12, request.param, dtype=torch.float64)
    observed = torch.rand(x.shape) > 0.5
    observed[:, 2:4] = False
    return Sequences(missing_as_nan(x, observed), torch.full((5,), 12), observed=observed)


def observed_log_prob(model: ExactModel, sequences: Sequences) -> Tensor:
    """log p(x_t | x_<t) of what was observed, by the Kalman filter, for t = 1 … T."""
    x = missing_as_nan(sequences.x, sequences.observed)
    evidence = [model.bank.filter(x[:, :t]).log_evidence for t in range(1, sequences.horizon + 1)]
    return torch.diff(torch.cat([torch.zeros_like(evidence[0]), *evidence], dim=1))


def test_integrand_equals_the_likelihood_of_what_was_observed(sequences_with_gaps: Sequences) -> None:
    """The zero-variance identity with missing values: the weight of each sample is the Kalman filter's likelihood."""
    sequences, pairs = sequences_with_gaps, consecutive(sequences_with_gaps)
    model = ExactModel(channels=sequences.x.shape[-1])
    truth = observed_log_prob(model, sequences)[:, 1:]
    assert bool((truth[:, 1:3] == 0).all())  # x_3 and x_4
    for _ in range(3):
        drawn = -pair_terms(model, sequences, pairs, kl="sampled").total
        torch.testing.assert_close(drawn, truth, rtol=0, atol=1e-9)
    estimate = importance_log_prob(model, sequences, pairs, samples=3)
    torch.testing.assert_close(estimate, truth, rtol=0, atol=1e-9)


B, C, D, E = torch.tensor([0.3, -0.2]), torch.tensor([1.0, 0.0]), torch.tensor([0.2, 0.5]), 0.4


class ObservedTransition(GaussianLadder):
    """z_t = A z_{t-1} + B x_{t-1} + noise. A missing x_{t-1} counts as 0."""

    def moments(self, s1: State, dt: Tensor, actions: None) -> tuple[Tensor, Tensor]:
        assert s1.x is not None
        mean = s1.z.flat @ A.mT + s1.x * B.double()
        return mean, Q.expand(*mean.shape, 2)


class ObservedDecoder(Decoder):
    """x_t = C z_t + D z_{t-1} + E x_{t-1} + noise; the features of the origin are z_{t-1}."""

    def forward(self, z: Latent, origin: Origin | None = None) -> DiagonalNormal:
        assert origin is not None
        mean = z.flat @ C.double() + origin.features @ D.double() + E * origin.x[..., 0]
        return DiagonalNormal(mean[..., None], torch.full_like(mean, math.log(NOISE))[..., None])


def _joint(mean: Tensor, cov: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (..., 5) and covariance (..., 5, 5) of (z_{t-1}, z_t, x_t), given those of z_{t-1} and x_{t-1} (..., 1)."""
    first = torch.eye(2, dtype=A.dtype)
    to_x = (C.double() @ A + D.double())[None]
    matrix = torch.cat([first, A, to_x])  # of z_{t-1}
    noise = torch.zeros(5, 5, dtype=A.dtype)
    noise[2:4, 2:4] = Q
    noise[4, 2:4] = noise[2:4, 4] = Q @ C.double()
    noise[4, 4] = C.double() @ Q @ C.double() + NOISE**2
    shift = torch.cat([torch.zeros_like(mean), x * B.double(), (C.double() @ B.double() + E) * x], dim=-1)
    return mean @ matrix.mT + shift, matrix @ cov @ matrix.mT + noise


def _condition(mean: Tensor, cov: Tensor, target: slice, known: slice, value: Tensor) -> tuple[Tensor, Tensor]:
    """The moments of some coordinates of a normal distribution, given others."""
    gain = cov[..., target, known] @ torch.linalg.inv(cov[..., known, known])
    conditional = mean[..., target] + (gain @ (value - mean[..., known])[..., None])[..., 0]
    return conditional, cov[..., target, target] - gain @ cov[..., known, target]


def _choose(condition: Tensor, *moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The first mean and covariance where ``condition`` is true, the second elsewhere."""
    (mean, cov), (other_mean, other_cov) = moments
    condition = condition[..., None]
    return torch.where(condition, mean, other_mean), torch.where(condition[..., None], cov, other_cov)


class ObservedSmoother(GaussianLadder):
    """p(z_{t-1} | z_t, x_≤t); the codes contain the moments of the belief, the observation and whether there is one."""

    def moments(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: None) -> tuple[Tensor, Tensor]:
        mean, cov = _joint(*unpack(b1[..., :6]), b1[..., 6:7])
        known = torch.cat([z2.flat, b2[..., 6:7]], dim=-1)
        with_x = _condition(mean, cov, slice(0, 2), slice(2, 5), known)
        without_x = _condition(mean, cov, slice(0, 2), slice(2, 4), known[..., :2])
        return _choose(b2[..., 7] > 0, with_x, without_x)


class ObservedBelief(GaussianLadder):
    def moments(self, b: Tensor) -> tuple[Tensor, Tensor]:
        return unpack(b[..., :6])


class ExactObservedModel:
    """A linear-Gaussian model whose state includes the observation, with exact p_B and q_S."""

    def __init__(self) -> None:
        self.p_B, self.q_S, self.p_T, self.p_D = (
            ObservedBelief(),
            ObservedSmoother(),
            ObservedTransition(),
            ObservedDecoder(),
        )

    def step(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> Step:
        assert s1.x is not None
        return Step(self.p_T.bind(s1, dt, actions), self.p_D, Origin(s1.x, s1.z.flat, dt[..., None]))

    def features_after(self, before: Any, x: Tensor, dt: Tensor, actions: Any) -> Tensor:
        return x

    def filter(self, sequences: Sequences) -> Beliefs:
        return self.exact_filter(sequences)[0]

    def exact_filter(self, sequences: Sequences) -> tuple[Beliefs, Tensor]:
        """The beliefs and log p(x_t | x_<t), (N, T), of the exact filter of this model. b_0 is N(0, I)."""
        n = len(sequences)
        mean, cov = torch.zeros(n, 2, dtype=A.dtype), torch.eye(2, dtype=A.dtype).expand(n, 2, 2)
        x = torch.zeros(n, 1, dtype=A.dtype)
        codes, log_probs = [torch.cat([mean, cov.flatten(1), x, x], dim=-1)], []
        for t in range(1, sequences.horizon + 1):
            after, observed = sequences.at(t)
            seen = torch.ones(n, 1, dtype=torch.bool) if observed is None else observed
            joint = _joint(mean, cov, x)
            predicted = DiagonalNormal(joint[0][..., 4:], 0.5 * joint[1][..., 4:, 4].log())
            x = torch.where(seen, after, 0.0)
            log_probs.append(torch.where(seen[:, 0], predicted.log_prob(x), 0.0))
            with_x, without_x = (
                _condition(*joint, slice(2, 4), slice(4, 5), x),
                (joint[0][:, 2:4], joint[1][:, 2:4, 2:4]),
            )
            mean, cov = _choose(seen[:, 0], with_x, without_x)
            codes.append(torch.cat([mean, cov.flatten(1), x, seen], dim=-1))
        remembered = torch.stack(codes, dim=1)
        return Beliefs(remembered, lambda code: code, remembered[..., -2:-1]), torch.stack(log_probs, dim=1)


@pytest.mark.parametrize("gaps", [False, True])
def test_integrand_equals_the_likelihood_with_observed_state(sequences: Sequences, gaps: bool) -> None:
    """The zero-variance identity with p_T(z_t | z_{t-1}, x_{t-1}) and p_D(x_t | z_t, z_{t-1}, x_{t-1})."""
    model = ExactObservedModel()
    if gaps:
        sequences = replace(sequences, observed=torch.rand(sequences.x.shape) > 0.5)
    truth = model.exact_filter(sequences)[1]
    t1 = torch.arange(sequences.horizon).expand(len(sequences), -1)
    for _ in range(3):
        drawn = -pair_terms(model, sequences, Pairs(t1, t1 + 1), kl="sampled").total
        torch.testing.assert_close(drawn, truth, rtol=0, atol=1e-9)


def test_closed_form_smoothing_term_is_the_mean_of_the_sampled_one(sequences: Sequences) -> None:
    model, pairs = ExactModel(widen=1.4), consecutive(sequences)
    closed = torch.stack([pair_terms(model, sequences, pairs).smoothing for _ in range(400)])
    sampled = torch.stack([pair_terms(model, sequences, pairs, kl="sampled").smoothing for _ in range(400)])
    error = (closed.mean(0) - sampled.mean(0)).abs()
    assert bool((error < 5 * (closed.std(0) + sampled.std(0)) / 20).all())
    assert float(closed.std(0).mean()) < float(sampled.std(0).mean())


def test_importance_sampling_converges_to_the_likelihood(sequences: Sequences) -> None:
    model, pairs = ExactModel(widen=1.5), consecutive(sequences)
    truth = exact_log_prob(model, sequences)
    bound = torch.stack([-pair_terms(model, sequences, pairs).total for _ in range(300)]).mean(0)
    estimate = importance_log_prob(model, sequences, pairs, samples=1500)
    assert float((truth - bound).mean()) > 0.02
    torch.testing.assert_close(estimate, truth, rtol=0, atol=0.05)
    assert float((estimate - truth).abs().mean()) < 0.2 * float((bound - truth).abs().mean())


def test_bound_of_a_network_is_below_its_importance_sampled_estimate() -> None:
    model = build(TDVAEConfig(decoder=Coordinates()))
    batch = Sequences(torch.randn(6, 30, 1), torch.full((6,), 30))
    pairs = jumps.Uniform(1, 5).sample(batch.lengths, 8, torch.Generator().manual_seed(1))
    with torch.no_grad():
        bound = torch.stack([-pair_terms(model, batch, pairs).total for _ in range(64)]).mean()
        estimates = [importance_log_prob(model, batch, pairs, samples).mean() for samples in (4, 64)]
    assert float(bound) < float(estimates[0]) < float(estimates[1])


class _Copy(Ladder):
    """A ladder that returns its first argument as the state, to check indices."""

    depth = 1

    def context(self, *conditions: Any) -> Tensor:
        first = conditions[0].z if isinstance(conditions[0], State) else conditions[0]
        return first if isinstance(first, Tensor) else first.flat

    def layer(self, index: int, context: Tensor, above: Sequence[Tensor]) -> DiagonalNormal:
        return DiagonalNormal(context, torch.full_like(context, -30.0))


class _RecordingSmoother(_Copy):
    conditions: tuple[Tensor, ...] = ()

    def context(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: None) -> Tensor:
        self.conditions = (z2.flat, b1, b2, dt)
        return b1


class _IdentityDecoder(Decoder):
    def forward(self, z: Latent, origin: Origin | None = None) -> DiagonalNormal:
        return DiagonalNormal(z.flat, torch.zeros_like(z.flat))


class _LastObservation(UnobservedState):
    """b_t is x_t, so that a wrong index gives a wrong number."""

    def __init__(self) -> None:
        self.p_B, self.q_S, self.p_T = _Copy(), _RecordingSmoother(), _Copy()
        self.p_D = _IdentityDecoder()

    def filter(self, sequences: Sequences) -> Beliefs:
        first = torch.zeros(len(sequences), 1, 1)
        return Beliefs(torch.cat([first, sequences.x], dim=1), lambda code: code)


def test_pairs_select_observations_and_beliefs_of_their_times() -> None:
    """x_t is the number t plus 100 per sequence, so that x_t2 has to match b_t2 and not b_{t2 ± 1}."""
    x = torch.arange(1.0, 21.0)[None, :, None] + 100.0 * torch.arange(3.0)[:, None, None]
    model = _LastObservation()
    pairs = jumps.Uniform(1, 7).sample(torch.full((3,), 20), 50, torch.Generator().manual_seed(0))
    terms = pair_terms(model, Sequences(x, torch.full((3,), 20)), pairs)
    torch.testing.assert_close(terms.reconstruction, torch.full((3, 50), 0.5 * math.log(2 * math.pi)))
    z2, b1, b2, dt = model.q_S.conditions
    offset = 100.0 * torch.arange(3.0)[:, None]
    torch.testing.assert_close(b2[..., 0], pairs.t2 + offset)
    torch.testing.assert_close(z2[..., 0], pairs.t2 + offset)
    torch.testing.assert_close(b1[..., 0], torch.where(pairs.t1 > 0, pairs.t1 + offset, 0.0))
    assert torch.equal(dt, pairs.t2 - pairs.t1)


@pytest.mark.parametrize("network", [LSTM(), DeepLSTM(layers=2), LinearRecurrence()], ids=str)
def test_belief_depends_on_the_past_only(network: BeliefConfig) -> None:
    """By gradients: p_B(z_t1 | b_t1) and predictions from it depend on x_≤t1 only."""
    model = build(TDVAEConfig(belief=network))
    x = torch.randn(2, 15, 1, requires_grad=True)
    b1 = model.filter(Sequences(x, torch.full((2,), 15))).at(torch.tensor([[9], [4]]))
    z1, _ = model.p_B.sample(b1)
    model.predict(State(z1), 3).mean.sum().backward()
    assert x.grad is not None
    for row, t1 in ((0, 9), (1, 4)):
        assert float(x.grad[row, t1:].abs().max()) == 0
        assert float(x.grad[row, :t1].abs().min()) > 0


def test_loss_does_not_depend_on_observations_after_the_last_t2() -> None:
    model = build(TDVAEConfig())
    x = torch.randn(2, 15, 1, requires_grad=True)
    pairs = Pairs(torch.tensor([[2], [5]]), torch.tensor([[4], [9]]))
    tdvae_loss(model, Sequences(x, torch.full((2,), 15)), pairs).total.backward()
    assert x.grad is not None
    assert float(x.grad[0, 4:].abs().max()) == 0
    assert float(x.grad[1, 9:].abs().max()) == 0
    assert float(x.grad[0, 3].abs()) > 0


def test_subsequence_loss_sums_its_pairs() -> None:
    """The loss of App. A for n points is the sum of n - 1 pair losses; for n = 2 it is the TD-VAE loss."""
    model = build(TDVAEConfig())
    batch = Sequences(torch.randn(4, 40, 1), torch.full((4,), 40))
    generator = torch.Generator().manual_seed(0)
    pairs = jumps.Subsequences(4, jumps.Uniform(1, 5)).sample(batch.lengths, 6, generator)
    torch.manual_seed(3)
    summed = Learner(model, subsequence_loss)(batch, pairs)
    torch.manual_seed(3)
    by_pair = pair_terms(model, batch, pairs)
    assert by_pair.total.shape == (4, 6, 3)
    torch.testing.assert_close(summed.total, by_pair.total.sum(-1).mean())
    with pytest.raises(tdvae.InputError, match="Subsequences"):
        subsequence_loss(model, batch, jumps.Uniform(1, 5).sample(batch.lengths, 6, generator))
    two = jumps.Subsequences(2, jumps.Uniform(1, 5)).sample(batch.lengths, 6, generator)
    torch.manual_seed(4)
    as_subsequence = subsequence_loss(model, batch, two)
    torch.manual_seed(4)
    flat = Pairs(two.t1[..., 0], two.t2[..., 0])
    torch.testing.assert_close(as_subsequence.total, tdvae_loss(model, batch, flat).total)


def test_path_gradient_has_the_same_loss_and_expected_gradient() -> None:
    """The value of Eq. 6 is the same for both gradients, and the gradients have the same mean."""
    torch.manual_seed(3)
    config = TDVAEConfig(
        layers=2, latent=2, init_log_sigma=-1.0, belief=LSTM(4), decoder=Gaussian((5,)), maps=GatedMaps(6), dt=Unknown()
    )
    model, data = build(config), Sequences(torch.randn(400, 3, 1), torch.full((400,), 3))
    pairs = Pairs(torch.ones(400, 40, dtype=torch.long), torch.full((400, 40), 2))
    weight = next(model.p_B.parameters())
    gradients: dict[str, Tensor] = {}
    kinds: tuple[Gradient, ...] = ("full", "path")
    for kind in kinds:
        rows = []
        for seed in range(30):
            torch.manual_seed(seed)
            loss = tdvae_loss(model, data, pairs, gradient=kind)
            rows.append(torch.autograd.grad(loss.total, weight)[0].flatten())
            if seed == 0:
                gradients[f"{kind} value"] = loss.total.detach()
        gradients[kind] = torch.stack(rows)
    torch.testing.assert_close(gradients["full value"], gradients["path value"])
    difference = gradients["full"].mean(0) - gradients["path"].mean(0)
    error = (gradients["full"] - gradients["path"]).std(0) / 30**0.5
    assert bool(((difference.abs() / (error + 1e-9)) < 4.5).all())
    assert float((gradients["full"] - gradients["path"]).abs().max()) > 1e-6


# The learner


@pytest.mark.parametrize(
    ("config", "objective"),
    [
        (TDVAEConfig(), tdvae_loss),
        (ConvTDVAEConfig(encoder=(4, 4, 4, 4), layers=1, channels=8, canvas=4, belief=LSTM(8)), tdvae_loss),
        (FilteringConfig(), state_space_loss),
        (MeanFieldConfig(), state_space_loss),
        (NextStepConfig(), next_step_loss),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, ModelConfig) else part.__name__,
)
def test_default_objective_of_each_model(config: ModelConfig, objective: Objective) -> None:
    assert Learner(build(config)).objective is objective


def test_given_objective_is_used() -> None:
    assert Learner(build(TDVAEConfig()), subsequence_loss).objective is subsequence_loss


def test_other_models_need_an_objective() -> None:
    class Other(RecurrentModel):
        sample_state = transition = decode = predict = None  # type: ignore[assignment]

    known = build(NextStepConfig())
    other = Other(known.config, known.encoder, known.belief, known.read)
    with pytest.raises(InputError, match=r"^objective: .* Other, got None; only TDVAE, StateSpace, NextStep have"):
        Learner(other)
    with pytest.raises(InputError, match=r"^objective: expected one for Other, got next_step_loss"):
        Learner(other, next_step_loss)

    def loss(model: object, sequences: Sequences, pairs: Pairs) -> Terms:
        """An objective for any model."""
        return Terms()

    assert Learner(other, loss).objective is loss
