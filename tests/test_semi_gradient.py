"""Semi-gradient pairs: the exact filter is a fixed point of the training, which it is not with jumps in Eq. 6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tdvae.distributions import DiagonalNormal
from tdvae.models import LSTM, GatedMaps, TDVAEConfig, build
from tdvae.models.base import Beliefs, Step
from tdvae.models.decoders import Decoder
from tdvae.nn.ladder import Ladder
from tdvae.objectives import Learner, pair_terms
from tdvae.types import Latent, Origin, Pairs, Sequences, State

A, Q, R, STEPS = 0.9, 0.2, 0.3, 6  # z' = A z + N(0, Q), x = z + N(0, R), with variances Q and R


class Scalar(Ladder):
    """A normal distribution of one number; subclasses return its mean and variance."""

    depth = 1

    def context(self, *conditions: Any) -> tuple[Tensor, Tensor]:
        raise AssertionError("subclasses implement context")

    def layer(self, index: int, context: tuple[Tensor, Tensor], above: Sequence[Tensor]) -> DiagonalNormal:
        mean, variance = context
        return DiagonalNormal(mean, 0.5 * variance.log())


class Belief(Scalar):
    """The Kalman filter, with its variance multiplied by the learned ``width``."""

    def __init__(self) -> None:
        super().__init__()
        self.width = nn.Parameter(torch.ones((), dtype=torch.float64))

    def context(self, b: Tensor) -> tuple[Tensor, Tensor]:
        return b[..., :1], b[..., 1:] * self.width


def moved(mean: Tensor, variance: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance after δt steps of the dynamics."""
    power = A ** dt[..., None].double()
    return power * mean, power.square() * variance + Q * (1 - power.square()) / (1 - A**2)


class Transition(Scalar):
    def context(self, s1: State, dt: Tensor, actions: None) -> tuple[Tensor, Tensor]:
        return moved(s1.z.flat, torch.zeros_like(s1.z.flat), dt)


class Smoother(Scalar):
    """p(z_t1 | z_t2, x_≤t1), exact for the Kalman filter."""

    def context(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: None) -> tuple[Tensor, Tensor]:
        mean, variance = b1[..., :1], b1[..., 1:]
        predicted, total = moved(mean, variance, dt)
        gain = variance * A ** dt[..., None].double() / total
        return mean + gain * (z2.flat - predicted), variance - gain.square() * total


class Noisy(Decoder):
    def forward(self, z: Latent, origin: Origin | None = None) -> DiagonalNormal:
        return DiagonalNormal(z.flat, torch.full_like(z.flat, 0.5 * torch.tensor(R).log().item()))


class Exact:
    """A model with exact parts. Only the width of its belief is learned."""

    def __init__(self) -> None:
        self.p_B, self.q_S, self.p_T, self.p_D = Belief(), Smoother(), Transition(), Noisy()

    def step(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> Step:
        return Step(self.p_T.bind(s1, dt, actions), self.p_D)

    def features_after(self, before: Any, x: Tensor, dt: Tensor, actions: Any) -> None:
        return None

    def filter(self, sequences: Sequences) -> Beliefs:
        mean, variance = torch.zeros_like(sequences.x[:, 0]), torch.ones_like(sequences.x[:, 0])
        codes = [torch.cat([mean, variance], dim=-1)]
        for x in sequences.x.unbind(1):
            mean, variance = A * mean, A**2 * variance + Q
            gain = variance / (variance + R)
            mean, variance = mean + gain * (x - mean), (1 - gain) * variance
            codes.append(torch.cat([mean, variance], dim=-1))
        return Beliefs(torch.stack(codes, dim=1), lambda code: code)


def simulated(n: int) -> Sequences:
    z, x = torch.randn(n, 1, dtype=torch.float64), []
    for _ in range(STEPS):
        z = A * z + Q**0.5 * torch.randn_like(z)
        x.append(z + R**0.5 * torch.randn_like(z))
    return Sequences(torch.stack(x, dim=1), torch.full((n,), STEPS))


def gradient_of_width(dt: int, semi_gradient: bool) -> tuple[float, float]:
    """Mean and standard error, over batches, of the derivative of the loss with respect to the belief's width."""
    gradients = []
    for batch in range(20):
        torch.manual_seed(batch)
        model, sequences = Exact(), simulated(4_000)
        t1 = torch.full((4_000, 1), STEPS - dt)
        pair_terms(model, sequences, Pairs(t1, t1 + dt, semi_gradient=semi_gradient)).total.mean().backward()
        gradients.append(model.p_B.width.grad)
    values = torch.stack([g for g in gradients if g is not None])
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


@pytest.mark.parametrize(("dt", "semi_gradient", "stationary"), [(1, False, True), (4, False, False), (4, True, True)])
def test_the_exact_filter_is_a_fixed_point(dt: int, semi_gradient: bool, stationary: bool) -> None:
    """Eq. 6 with δt = 4 rewards a wider belief than the filter's. With fixed targets it does not."""
    mean, error = gradient_of_width(dt, semi_gradient)
    if stationary:
        assert abs(mean) < 4 * error
        assert error < 0.01
    else:
        assert mean < -10 * error


def test_semi_gradient_changes_gradients_only() -> None:
    """The loss is the same. Consecutive pairs keep their gradient; with long jumps p_B(z_t2) receives none."""
    torch.manual_seed(0)
    model = build(TDVAEConfig(latent=2, belief=LSTM(6), maps=GatedMaps(8)))
    sequences = Sequences(torch.randn(3, 9, 1), torch.full((3,), 9))

    def gradients(dt: int, semi_gradient: bool) -> tuple[float, dict[str, Tensor]]:
        model.zero_grad()
        torch.manual_seed(1)
        t1 = torch.zeros(3, 2, dtype=torch.long)
        loss = Learner(model)(sequences, Pairs(t1, t1 + dt, semi_gradient=semi_gradient)).total
        loss.backward()
        return float(loss.detach()), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    for dt, same in ((1, True), (5, False)):
        (full, of_full), (semi, of_semi) = gradients(dt, False), gradients(dt, True)
        assert full == semi
        changed = {name for name in of_full if not torch.equal(of_full[name], of_semi[name])}
        assert bool(changed) is not same
        assert not any(name.startswith(("p_T", "p_D", "q_S")) for name in changed)
