"""`BeliefObservation`: a Gymnasium wrapper whose observation is the belief."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from tdvae.agents.tracking import BeliefTracker
from tdvae.checks import Positive, checked
from tdvae.data.episodes import Recorder
from tdvae.data.spaces import batched, observations, vectors
from tdvae.models import Model
from tdvae.models.base import FeatureKind

Features = npt.NDArray[np.float32]


class BeliefObservation(gymnasium.Wrapper[Features, Any, Any, Any], RecordConstructorArgs):
    """Replaces the observation by features of the belief about it and all before.

    Args:
        env: its spaces are those that the model was trained on; discrete actions become one-hot by themselves.
        model: a trained model, such as `tdvae.load` returns. `use` takes another one.
        kind: the features, as in `tdvae.models.Model.belief_features`.
        observe_every: use only every k-th observation, and let the belief go on without in between.
        recorder: collects what passes through, for the next training of the model.
    """

    @checked
    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        model: Model,
        kind: FeatureKind = "code",
        observe_every: Positive = 1,
        recorder: Recorder | None = None,
    ) -> None:
        arguments = {"model": model, "kind": kind, "observe_every": observe_every, "recorder": recorder}
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)
        gymnasium.Wrapper.__init__(self, env)
        self.tracker = BeliefTracker(model, env.observation_space, env.action_space, 1, kind, observe_every)
        self.recorder = recorder
        self.observation_space = spaces.Box(-np.inf, np.inf, (self.tracker.size,), np.float32)

    def use(self, model: Model) -> None:
        """Take another model with the same features, from the next reset on."""
        self.tracker.use(model)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, Any]:
        observation, info = self.env.reset(seed=seed, options=options)
        given = batched(self.env.observation_space, observation)
        if self.recorder is not None:
            self.recorder.begin(observations(self.env.observation_space, given), [0])
        return self.tracker.begin(given)[0], info

    def step(self, action: Any) -> tuple[Features, Any, bool, bool, Any]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        given, taken = batched(self.env.observation_space, observation), batched(self.env.action_space, action)
        rewards = np.array([reward], dtype=np.float32)
        if self.recorder is not None:
            x = observations(self.env.observation_space, given)
            ends = np.array([terminated]), np.array([truncated])
            self.recorder.step(vectors(self.env.action_space, taken), x, rewards, *ends, rows=np.arange(1))
        return self.tracker.step(taken, given, rewards)[0], reward, terminated, truncated, info
