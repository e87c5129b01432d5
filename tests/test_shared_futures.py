"""Shared futures: one z_t1 for K later times. K = 1 is Eq. 6, and exact parts give the exact density of K futures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tdvae
from tdvae import InputError, TDVAEConfig, jumps
from tdvae.distributions import DiagonalNormal
from tdvae.likelihood import importance_log_prob, pair_log_weights
from tdvae.models import build
from tdvae.models.base import Beliefs, Step
from tdvae.models.decoders import Decoder
from tdvae.nn.ladder import Ladder, LadderDistribution, product, product_over_group
from tdvae.nn.recurrent import ActionSummary
from tdvae.objectives import Gradient, actions_between, pair_terms, tdvae_loss
from tdvae.types import Latent, LossTerms, Origin, Pairs, Sequences, State

Q, R, PRIOR, STEPS = 0.5, 1e-12, 2.0, 6  # hidden θ ~ N(0, PRIOR), z_t = θ + N(0, Q), x_t = z_t + N(0, R)


class Scalar(Ladder):
    depth = 1

    def context(self, *conditions: Any) -> Any:
        raise AssertionError("subclasses implement context")

    def layer(self, index: int, context: Any, above: Sequence[Tensor]) -> DiagonalNormal:
        mean, variance = context
        return DiagonalNormal(mean, 0.5 * variance.log())


class Belief(Scalar):
    """b_t1 holds mean and variance of θ given x_≤t1, b_t2 holds x_t2, which is all that p_B(z_t2) needs."""

    def context(self, b: Tensor) -> tuple[Tensor, Tensor]:
        return b[..., :1], b[..., 1:]


class Transition(Scalar):
    def context(self, s1: State, dt: Tensor, actions: None) -> tuple[Tensor, Tensor]:
        return s1.z.flat, torch.full_like(s1.z.flat, Q)


class Smoother(Scalar):
    """p(θ | x_≤t1) times N(θ; z_k, Q) of every future k."""

    def sample_shared(
        self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: None
    ) -> tuple[Latent, LadderDistribution]:
        messages = DiagonalNormal(z2.flat, torch.full_like(z2.flat, Q).log() / 2)
        prior = DiagonalNormal(b1[..., 0, :1], b1[..., 0, 1:].log() / 2)
        exact = product(prior, product_over_group(messages))
        return Latent((exact.sample(),)), LadderDistribution((exact,))


class Noise(Decoder):
    def forward(self, z: Latent, origin: Origin | None = None) -> DiagonalNormal:
        return DiagonalNormal(z.flat, torch.full_like(z.flat, R).log() / 2)


class StaticWorld:
    """Exact parts for a hidden number θ that does not change. Codes at t1 and t2 are two views of the same past."""

    p_B, q_S, p_T, p_D = Belief(), Smoother(), Transition(), Noise()

    def filter(self, sequences: Sequences) -> Beliefs:
        x, n = sequences.x[..., 0], torch.arange(STEPS + 1, dtype=torch.float64)
        precision = 1 / PRIOR + n / (Q + R)
        mean = torch.nn.functional.pad(x.cumsum(1), (1, 0)) / (Q + R) / precision
        return TwoViews(torch.stack([mean, (1 / precision).expand_as(mean)], dim=-1), lambda code: code, x)

    def step(self, s1: State, dt: Tensor, actions: Tensor | None) -> Step:
        return Step(self.p_T.bind(s1, dt, actions), self.p_D)

    def features_after(self, before: Any, x: Tensor, dt: Tensor, actions: Any) -> None:
        return None


class TwoViews(Beliefs):
    """The first call of `at` is that for t1, the second that for t2."""

    def __init__(self, codes: Tensor, read: Any, x: Tensor) -> None:
        super().__init__(codes, read)
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "calls", [])

    def at(self, t: Tensor) -> Tensor:
        self.calls.append(t)  # type: ignore[attr-defined]
        if len(self.calls) % 2:  # type: ignore[attr-defined]
            return super().at(t)
        x = self.x[torch.arange(len(t))[:, None, None], t - 1]  # type: ignore[attr-defined]
        return torch.stack([x, torch.full_like(x, R)], dim=-1)


def static_sequences(n: int = 5) -> Sequences:
    torch.manual_seed(0)
    hidden = PRIOR**0.5 * torch.randn(n, 1, 1, dtype=torch.float64)
    x = hidden + Q**0.5 * torch.randn(n, STEPS, 1, dtype=torch.float64)
    return Sequences(x, torch.full((n,), STEPS))


@pytest.mark.parametrize("futures", [1, 2, 3])
def test_exact_parts_give_the_density_of_all_futures_in_every_sample(futures: int) -> None:
    """The log weight of any sample is log p(x_t2¹ … x_t2ᴷ | x_≤t1): zero variance (up to √R)."""
    sequences, model = static_sequences(), StaticWorld()
    t1 = torch.full((5, 1, futures), 2)
    t2 = torch.tensor([4, 6, 3])[:futures].expand(5, 1, -1)
    log_weights = pair_log_weights(model, sequences, Pairs(t1, t2, shared=True), samples=7)
    precision = 1 / PRIOR + 2 / (Q + R)
    mean = sequences.x[:, :2, 0].sum(1) / (Q + R) / precision
    cov = torch.full((futures, futures), 1 / precision).double() + (Q + R) * torch.eye(futures).double()
    normal = torch.distributions.MultivariateNormal(mean[:, None].expand(-1, futures), cov)
    expected = normal.log_prob(sequences.x[:, t2[0, 0] - 1, 0])
    torch.testing.assert_close(log_weights[..., 0], expected.expand(7, -1), atol=1e-4, rtol=0)


def learned(**choices: Any) -> tuple[tdvae.TDVAE, Sequences]:
    torch.manual_seed(3)
    model = build(TDVAEConfig(event_shape=(3,), actions=2, layers=2, latent=4, posterior="product", **choices))
    return model, Sequences(torch.randn(4, 12, 3), torch.full((4,), 12), torch.randn(4, 12, 2))


@pytest.mark.parametrize("gradient", ["full", "path"])
@pytest.mark.parametrize("semi", [False, True])
@pytest.mark.parametrize("state", ["latent", "observed"])
def test_one_future_is_eq_6_to_the_bit(gradient: Gradient, semi: bool, state: str) -> None:
    model, sequences = learned(state=state)
    t1, t2 = torch.tensor([[0, 3, 5]] * 4), torch.tensor([[1, 9, 6]] * 4)
    results = []
    for pairs in (Pairs(t1, t2, None, semi), Pairs(t1[..., None], t2[..., None], None, semi, True)):
        torch.manual_seed(7)
        terms = pair_terms(model, sequences, pairs, gradient=gradient)
        model.zero_grad()
        terms.total.sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results.append((terms.named(), gradients))
    (plain, plain_gradients), (shared, shared_gradients) = results
    assert all(torch.equal(plain[name], shared[name]) for name in plain)
    for one, other in zip(plain_gradients, shared_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_same_future_twice_counts_twice() -> None:
    messages = DiagonalNormal(torch.tensor([[1.0], [1.0]]), torch.tensor([[0.3], [0.3]]))
    both = product_over_group(messages)
    torch.testing.assert_close(both.mean, torch.tensor([1.0]))
    torch.testing.assert_close(both.log_sigma, torch.tensor([0.3]) - 0.5 * torch.log(torch.tensor(2.0)))


def test_terms_are_per_observation_and_smoothing_is_paid_once() -> None:
    model, sequences = learned()
    t1 = torch.tensor([[[1, 1, 1]]] * 4)
    terms = pair_terms(model, sequences, Pairs(t1, t1 + torch.tensor([1, 4, 9]), shared=True))
    assert all(value.shape == (4, 1) for value in terms.named().values())
    density = importance_log_prob(model, sequences, Pairs(t1, t1 + torch.tensor([1, 4, 9]), shared=True), samples=50)
    assert density.shape == (4, 1)
    assert float(-density.mean()) < 3 * float(terms.total.detach().mean()) + 3  # a bound on all three, up to noise


def test_groups_are_drawn_with_one_step_first_and_fit_into_the_sequence() -> None:
    law = jumps.SemiGradient(jumps.SharedFutures(3, jumps.Uniform(2, 7)))
    pairs = law.sample(torch.tensor([9, 12]), 300, torch.Generator().manual_seed(0))
    assert pairs.t1.shape == (2, 100, 3)
    assert pairs.shared
    assert pairs.semi_gradient
    assert bool((pairs.t1 == pairs.t1[..., :1]).all())
    assert bool((pairs.dt[..., 0] == 1).all())
    assert set(pairs.dt[..., 1:].flatten().tolist()) == set(range(2, 8))
    assert int(pairs.t2[0].max()) == 9
    assert int(pairs.t2[1].max()) == 12


def test_semi_gradients_leave_the_belief_at_longer_jumps_alone() -> None:
    """With fixed targets, the code of the last time, which only a long jump ends at, has no gradient from p_B(z_t2)."""
    model, sequences = learned(smoothing_sees_b2=False)
    t1 = torch.full((4, 1, 2), 1)
    t2 = torch.tensor([2, 12]).expand(4, 1, 2)
    x = sequences.x.clone().requires_grad_()
    for semi in (False, True):
        given = Sequences(x, sequences.lengths, sequences.actions)
        terms = pair_terms(model, given, Pairs(t1, t2, None, semi, True))
        (gradient,) = torch.autograd.grad((terms.smoothing + terms.transition).sum(), x)
        assert (float(gradient[:, 11].abs().max()) == 0) == semi


def test_training_and_validation_use_the_groups_as_drawn(tmp_path: Path) -> None:
    model, sequences = learned()
    given: list[Pairs] = []

    def objective(model: tdvae.models.TDVAE, sequences: Sequences, pairs: Pairs) -> LossTerms:
        given.append(pairs)
        return tdvae_loss(model, sequences, pairs)

    law = jumps.SemiGradient(jumps.SharedFutures(2, jumps.Uniform(1, 4)))
    config = tdvae.TrainConfig(steps=1, batch_size=2, pairs=4, validate_every=1)
    tdvae.fit(tdvae.Learner(model, objective), sequences, law, config, tmp_path / "run", sequences, progress="none")
    assert [(pairs.shared, pairs.semi_gradient) for pairs in given] == [(True, True)] * 2


def test_every_step_uses_each_step_once() -> None:
    pairs = jumps.EveryStep().sample(torch.tensor([5, 5]), 5, torch.Generator().manual_seed(0))
    assert pairs.t1.tolist() == [[0, 1, 2, 3, 4]] * 2
    fewer = jumps.EveryStep().sample(torch.tensor([5, 9]), 4, torch.Generator().manual_seed(0))
    assert all(len(set(row)) == 4 for row in fewer.t1.tolist())
    assert int(fewer.t2[0].max()) <= 5
    with pytest.raises(InputError, match="pairs: expected at most 5"):
        jumps.EveryStep().sample(torch.tensor([5, 9]), 6, torch.Generator())


def test_bad_groups_are_refused_in_one_line() -> None:
    model, sequences = learned()
    with pytest.raises(InputError, match="one t1 for all times of a group"):
        pair_terms(model, sequences, Pairs(torch.tensor([[[1, 2]]] * 4), torch.tensor([[[3, 4]]] * 4), shared=True))
    with pytest.raises(InputError, match=r"expected shape \(N, G, K\)"):
        Pairs(torch.tensor([[1, 2]]), torch.tensor([[3, 4]]), shared=True)
    with pytest.raises(InputError, match="t1 < t2 <= the length"):
        pair_terms(model, sequences, Pairs(torch.tensor([[[1]]] * 4), torch.tensor([[[13]]] * 4), shared=True))
    free = build(TDVAEConfig(event_shape=(3,), actions=2))
    with pytest.raises(InputError, match="posterior='product'"):
        pair_terms(free, sequences, Pairs(torch.tensor([[[1, 1]]] * 4), torch.tensor([[[3, 4]]] * 4), shared=True))
    with pytest.raises(InputError, match="multiple of the 4 futures"):
        jumps.SharedFutures(4, jumps.Uniform(1, 3)).sample(torch.tensor([9]), 6, torch.Generator())
    with pytest.raises(InputError, match="at least 5 steps"):
        jumps.SharedFutures(2, jumps.Uniform(1, 5)).sample(torch.tensor([4]), 6, torch.Generator())
    with pytest.raises(InputError, match="outside of other jumps"):
        jumps.SharedFutures(2, jumps.SharedFutures(2, jumps.Uniform(1, 5)))


def test_actions_of_a_group_are_summarised_once_and_as_those_of_each_jump() -> None:
    torch.manual_seed(0)
    sequences = Sequences(torch.randn(3, 12, 1), torch.full((3,), 12), actions=torch.randn(3, 12, 2))
    pairs = jumps.SharedFutures(4, jumps.Uniform(1, 6)).sample(sequences.lengths, 8, torch.Generator().manual_seed(0))
    summary, rows = ActionSummary(actions=2, size=5), []
    summary.gru.register_forward_hook(lambda module, given, found: rows.append(len(given[0])))
    of_groups = summary(actions_between(sequences, pairs), pairs.dt)
    single = Pairs(pairs.t1.flatten(1), pairs.t2.flatten(1))
    of_pairs = summary(actions_between(sequences, single), single.dt)
    assert rows == [3 * 2, 3 * 8]  # once a group, then once a pair
    torch.testing.assert_close(of_groups.flatten(1, 2), of_pairs)
