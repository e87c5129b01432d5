"""Model-predictive control in state space by the cross-entropy method, with actions that are held over a jump."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from tdvae.agents.outcomes import Outcomes, jump
from tdvae.checks import Positive, Seed, Share, checked
from tdvae.data.spaces import vector_size
from tdvae.errors import InputError
from tdvae.models import TDVAE
from tdvae.types import Belief

Score = Callable[[Tensor], Tensor]  # plans (C, N, H, A) → returns (C, N)
LEAST_SPREAD = 0.05  # of proposals, in units of half the range of an action


class Proposals:
    """Distributions of plans of H actions for N environments: normal within a Box, or choices of a Discrete space."""

    def __init__(self, space: Any, n: int, horizon: int) -> None:
        size = vector_size(space)
        self.discrete = isinstance(space, spaces.Discrete)
        if not self.discrete and not (isinstance(space, spaces.Box) and space.is_bounded()):
            raise InputError(f"action_space: expected Discrete or a bounded Box, got {space}")
        self.mean = torch.full((n, horizon, size), 1 / size if self.discrete else 0.0)
        self.spread = torch.ones(n, horizon, size)
        if not self.discrete:
            low, high = (torch.from_numpy(np.asarray(end, np.float32).reshape(-1)) for end in (space.low, space.high))
            self.middle, self.half = (low + high) / 2, (high - low) / 2

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Plans (count, N, H, A), as the model is given actions."""
        if self.discrete:
            choices = torch.multinomial(self.mean.flatten(0, 1), count, replacement=True, generator=generator)
            return torch.eye(self.mean.shape[-1])[choices.T].unflatten(1, self.mean.shape[:2])
        noise = torch.randn(count, *self.mean.shape, generator=generator)
        return self.middle + self.half * (self.mean + self.spread * noise).clamp(-1, 1)

    def follow(self, elites: Tensor) -> None:
        """Move to the best plans (E, N, H, A)."""
        if self.discrete:
            uniform = 1 / elites.shape[-1]
            self.mean = (1 - LEAST_SPREAD) * elites.mean(0) + LEAST_SPREAD * uniform
        else:
            scaled = (elites - self.middle) / self.half
            self.mean, self.spread = scaled.mean(0), scaled.std(0).clamp(min=LEAST_SPREAD)

    def first(self) -> Tensor:
        """The first action of the best plan of each environment (N, A)."""
        return self.mean[:, 0] if self.discrete else self.middle + self.half * self.mean[:, 0]


def cross_entropy(
    score: Score, proposals: Proposals, generator: Generator, candidates: int, iterations: int, elites: int
) -> Tensor:
    """The first actions (N, A) of the plans with the highest scores."""
    for _ in range(iterations):
        plans = proposals.draw(candidates, generator)
        best = score(plans).topk(elites, dim=0).indices
        proposals.follow(plans.gather(0, best[..., None, None].expand(-1, -1, *plans.shape[2:])))
    return proposals.first()


@torch.no_grad()
def imagined_returns(
    model: TDVAE,
    outcomes: Outcomes,
    belief: Belief,
    jump_length: int,
    single_steps: bool,
    discount: float,
    plans: Tensor,
) -> Tensor:
    """The sums of rewards of plans (C, N, H, A), each from a state that is drawn from the belief."""
    state = model.sample_state(belief, len(plans))
    dt, times = (1, jump_length) if single_steps else (jump_length, 1)
    total, going_on = torch.zeros(plans.shape[:2]), torch.ones(plans.shape[:2])
    for action in plans.unbind(2):
        for _ in range(times):
            state, reward, survived = jump(model, outcomes, state, dt, action[..., None, :])
            total = total + going_on * reward
            going_on = going_on * survived * discount**dt
    return total


class Planner:
    """Chooses actions by planning with a learned model, for N environments at once.

    Plans are ``horizon`` actions, each held for ``jump`` steps, which the model imagines as one jump. With
    ``single_steps`` it imagines the same plans step by step, for comparison. Calling it with a belief returns actions
    of the environment (N, …).
    """

    @checked
    def __init__(
        self,
        model: TDVAE,
        outcomes: Outcomes,
        action_space: Any,
        jump: Positive = 5,
        horizon: Positive = 6,
        candidates: Positive = 100,
        iterations: Positive = 3,
        elites: Positive = 10,
        discount: Share = 1.0,
        single_steps: bool = False,
        seed: Seed = 0,
    ) -> None:
        if vector_size(action_space) != model.config.actions:
            raise InputError(
                f"action_space: expected {model.config.actions} numbers, as the model has, got {action_space}"
            )
        if elites > candidates:
            raise InputError(f"elites: expected at most the {candidates} candidates, got {elites}")
        self.action_space, self.horizon = action_space, horizon
        self.search = partial(cross_entropy, candidates=candidates, iterations=iterations, elites=elites)
        self.returns = partial(
            imagined_returns, model, outcomes, jump_length=jump, single_steps=single_steps, discount=discount
        )
        self.generator = Generator().manual_seed(seed)

    def __call__(self, belief: Belief) -> Any:
        proposals = Proposals(self.action_space, len(belief.code), self.horizon)
        score = lambda plans: self.returns(belief, plans=plans)  # noqa: E731
        return as_actions(self.action_space, self.search(score, proposals, self.generator))


def as_actions(space: Any, chosen: Tensor) -> Any:
    """Vectors (N, A) as actions of a Box or of a Discrete space."""
    if isinstance(space, spaces.Discrete):
        return chosen.argmax(-1).numpy() + space.start
    return chosen.numpy().reshape(-1, *space.shape).astype(space.dtype)
