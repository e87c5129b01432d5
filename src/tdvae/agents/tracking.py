"""The beliefs of several environments side by side: NumPy in, features for a policy out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tdvae.checks import Positive, Samples, checked
from tdvae.data.spaces import observations, to_x, vector_size, vectors
from tdvae.errors import InputError
from tdvae.models import Model
from tdvae.models.base import FeatureKind
from tdvae.models.config import RecurrentConfig
from tdvae.types import Belief

if TYPE_CHECKING:
    from gymnasium import Space

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
GUESSES = 16  # samples, whose mean stands for an observation that is not made


def check_spaces(model: Model, observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Raise unless the spaces have the shapes that the model was trained with."""
    from gymnasium.vector.utils import create_empty_array

    empty = create_empty_array(observation_space, 1)
    shape = tuple(to_x(observations(observation_space, empty)).shape[1:])
    size = vector_size(action_space)
    config = model.config
    if shape != config.event_shape or size != config.actions:
        raise InputError(
            f"env: expected observations {config.event_shape} and actions of size {config.actions}, as in the model, "
            f"got {shape} and {size} of {observation_space} and {action_space}"
        )


class BeliefTracker:
    """One belief for each of ``n`` environments, updated together.

    With ``observe_every`` = k, only every k-th observation of an episode is used, beginning with the first. In between
    the belief goes on with the actions: a model that was trained with missing values is told that the observation is
    missing, any other is given its own forecast of it.
    """

    @checked
    def __init__(
        self,
        model: Model,
        observation_space: Any,
        action_space: Any,
        n: Samples = 1,
        kind: FeatureKind = "code",
        observe_every: Positive = 1,
    ) -> None:
        self.observation_space, self.action_space, self.n = observation_space, action_space, n
        self.kind, self.observe_every = kind, observe_every
        self.model: Model
        self.use(model)
        self.size = self._features(self.belief).shape[-1]

    def use(self, model: Model) -> None:
        """Take another model. Its beliefs begin with the next episodes, so reset the environments."""
        check_spaces(model, self.observation_space, self.action_space)
        self.model = model.eval()
        self.belief: Belief = model.initial(self.n).map(Tensor.detach)
        self.age = np.zeros(self.n, dtype=np.int64)  # observations of the episode so far
        self.nothing = torch.zeros(self.n, model.config.actions) if model.config.actions else None

    def begin(self, observation: Any, rows: Array | None = None) -> Floats:
        """First observations of new episodes, in some rows or in all; returns the features of all environments."""
        rows = np.ones(self.n, dtype=bool) if rows is None else rows
        x, rewards = to_x(observations(self.observation_space, observation)), self._rewards(np.zeros(self.n))
        first = self.model.update(self.model.initial(self.n), x, self.nothing, rewards)
        self.belief = first.where(torch.from_numpy(rows), self.belief)
        self.age[rows] = 1
        return self._features(self.belief)

    def step(self, action: Any, observation: Any, reward: Array) -> Floats:
        """One step of all environments; returns the features of the new beliefs.

        If an observation is refused, because it has NaN for example, the beliefs are as before.
        """
        a = torch.from_numpy(vectors(self.action_space, action)) if self.nothing is not None else None
        x = to_x(observations(self.observation_space, observation))
        seen = torch.from_numpy(self.age % self.observe_every == 0)
        if not bool(seen.all()):
            x = torch.where(seen.view(-1, *[1] * (x.ndim - 1)), x, self._guess(x, a))
        self.belief = self.model.update(self.belief, x, a, self._rewards(reward))
        self.age += 1
        return self._features(self.belief)

    @torch.no_grad()
    def _guess(self, x: Tensor, a: Tensor | None) -> Tensor:
        """What stands for the next observation if it is not made."""
        config = self.model.config
        if isinstance(config, RecurrentConfig) and config.missing_values:
            return torch.full_like(x, torch.nan)
        if not x.is_floating_point():
            raise InputError(f"observe_every: expected 1 for observations of {x.dtype}, got {self.observe_every}")
        state = self.model.sample_state(self.belief, GUESSES)
        return self.model.predict(state, 1, None if a is None else a[:, None]).mean.mean(0)

    def _rewards(self, rewards: Array) -> Tensor | None:
        return torch.from_numpy(np.asarray(rewards, dtype=np.float32)) if self.model.config.rewards else None

    def _features(self, belief: Belief) -> Floats:
        features: Floats = self.model.belief_features(belief, self.kind).detach().numpy()
        return features
