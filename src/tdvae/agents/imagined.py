"""`ImaginedEnv`: a learned model as a Gymnasium environment, in which a step is a jump."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from tdvae.agents.outcomes import Outcomes, jump
from tdvae.checks import Positive, checked
from tdvae.data.spaces import batched, vector_size, vectors
from tdvae.errors import InputError
from tdvae.models import TDVAE
from tdvae.types import Belief, State

Features = npt.NDArray[np.float32]


class ImaginedEnv(gymnasium.Env[Features, Any]):
    """Episodes that the model imagines, from a belief on. The observation is the state z.

    Args:
        model: a trained TD-VAE.
        outcomes: its rewards and ends, from `fit_outcomes`.
        action_space: that of the real environment.
        dt: steps of the real environment in one step here, during which the action is held.
        start: beliefs (N, …) of which each episode begins with one, chosen at random; by default b_0.
        length: steps here, after which an episode is truncated.
    """

    @checked
    def __init__(
        self,
        model: TDVAE,
        outcomes: Outcomes,
        action_space: spaces.Space[Any],
        dt: Positive = 1,
        start: Belief | None = None,
        length: Positive = 200,
    ) -> None:
        if vector_size(action_space) != model.config.actions:
            raise InputError(
                f"action_space: expected {model.config.actions} numbers, as the model has, got {action_space}"
            )
        self.model, self.outcomes, self.action_space, self.dt, self.length = model, outcomes, action_space, dt, length
        self.start = model.initial(1) if start is None else start
        self.observation_space = spaces.Box(-np.inf, np.inf, (sum(model.state_sizes),), np.float32)
        self.state: State | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        super().reset(seed=seed)
        row = int(self.np_random.integers(len(self.start.code)))
        with self._random():
            self.state = self.model.sample_state(self.start[row : row + 1], 1)
        self.age = 0
        return self._features(self.state), {}

    def step(self, action: Any) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """The reward is the mean of the sum over the jump; the episode ends with the probability of the model."""
        if self.state is None:
            raise InputError("reset: expected a reset before the first step, got none")
        a = torch.from_numpy(vectors(self.action_space, batched(self.action_space, action)))
        with self._random():
            self.state, reward, going_on = jump(self.model, self.outcomes, self.state, self.dt, a[None, :, None])
        self.age += 1
        terminated = bool(self.np_random.random() > float(going_on))
        return self._features(self.state), float(reward), terminated, self.age >= self.length, {}

    @contextmanager
    def _random(self) -> Iterator[None]:
        """Draws of the model follow the environment's generator."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(int(self.np_random.integers(2**62)))
            yield

    @staticmethod
    def _features(state: State) -> Features:
        features: Features = state.z.flat[0, 0].detach().numpy().astype(np.float32)
        return features
