"""`VecBelief`: a wrapper of Stable-Baselines3's vector environments whose observations are beliefs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tdvae.agents.extra import VecEnv, VecEnvWrapper
from tdvae.agents.tracking import BeliefTracker
from tdvae.checks import Positive, checked
from tdvae.data.episodes import Recorder
from tdvae.data.lanes import replaced_rows
from tdvae.data.spaces import observations, vectors
from tdvae.models import Model
from tdvae.models.base import FeatureKind

Features = npt.NDArray[np.float32]


class VecBelief(VecEnvWrapper):
    """`BeliefObservation` for several environments at once: one update for all of them.

    The last observation of an episode, which Stable-Baselines3 keeps as ``terminal_observation``, becomes features,
    too. With ``model=None`` observations pass through unchanged, which is of use with a ``recorder``.
    """

    @checked
    def __init__(
        self,
        venv: VecEnv,
        model: Model | None,
        kind: FeatureKind = "code",
        observe_every: Positive = 1,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(venv)
        self.recorder = recorder
        self.tracker: BeliefTracker | None = None
        if model is not None:
            own = venv.observation_space, venv.action_space
            self.tracker = BeliefTracker(model, *own, venv.num_envs, kind, observe_every)
            self.observation_space = spaces.Box(-np.inf, np.inf, (self.tracker.size,), np.float32)

    def use(self, model: Model) -> None:
        """Take another model with the same features, from the next reset on."""
        assert self.tracker is not None
        self.tracker.use(model)

    def reset(self) -> Any:
        given = self.venv.reset()
        if self.recorder is not None:
            self.recorder.begin(observations(self.venv.observation_space, given), range(self.num_envs))
        return given if self.tracker is None else self.tracker.begin(given)

    def step_async(self, actions: Any) -> None:
        self.actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        given, rewards, done, infos = self.venv.step_wait()
        ended = np.flatnonzero(done)
        final = replaced_rows(given, [info.get("terminal_observation") for info in infos], ended)
        if self.recorder is not None:
            self._record(given, final, rewards, done, infos)
        if self.tracker is None:
            return given, rewards, done, infos
        features = self.tracker.step(self.actions, final, rewards)
        for row in ended:
            infos[row]["terminal_observation"] = features[row]
        return self.tracker.begin(given, done) if len(ended) else features, rewards, done, infos

    def _record(self, given: Any, final: Any, rewards: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        assert self.recorder is not None
        space = self.venv.observation_space
        truncated = done & np.array([info.get("TimeLimit.truncated", False) for info in infos])
        taken = vectors(self.venv.action_space, self.actions)
        rows = np.arange(self.num_envs)
        self.recorder.step(taken, observations(space, final), rewards, done & ~truncated, truncated, rows)
        if done.any():
            self.recorder.begin(observations(space, given), np.flatnonzero(done))
