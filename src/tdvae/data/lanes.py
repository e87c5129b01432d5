"""One interface of single and vector environments: ``count`` environments side by side, each reset when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.data.spaces import batched
from tdvae.errors import InputError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Stepped:
    """What one step of all environments gave; arrays are (N, …)."""

    final: Any  # the observations that the actions led to
    given: Any  # the observations to act on: the first of the next episode where one has ended
    rewards: Array
    terminated: Array
    truncated: Array


class Lanes:
    """A single environment."""

    count, several = 1, False

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, seed: int) -> Any:
        return self._batch(self.env.reset(seed=seed)[0])

    def step(self, actions: Any) -> Stepped:
        final, reward, terminated, truncated, _ = self.env.step(self.first(actions))
        given = self.env.reset()[0] if terminated or truncated else final
        ends = np.array([terminated]), np.array([truncated])
        return Stepped(self._batch(final), self._batch(given), np.array([reward], np.float32), *ends)

    def _batch(self, value: Any) -> Any:
        return batched(self.observation_space, value)

    @staticmethod
    def first(batch: Any) -> Any:
        """The only value of a batch."""
        if isinstance(batch, dict):
            return {name: Lanes.first(part) for name, part in batch.items()}
        return batch[0]

    def close(self) -> None:
        """An environment that was given stays open."""


class MadeLanes(Lanes):
    """A single environment that is made from its id, and closed at the end."""

    def __init__(self, name: str) -> None:
        import gymnasium

        try:
            env = gymnasium.make(name)
        except gymnasium.error.Error as error:
            raise InputError(f"env: expected the id of a Gymnasium environment, got {name!r} ({error})") from error
        super().__init__(env)

    def close(self) -> None:
        self.env.close()


class VectorLanes(Lanes):
    """A Gymnasium vector environment that resets in the same step, or is stepped once more by hand."""

    several = True

    def __init__(self, env: Any) -> None:
        self.env, self.count = env, env.num_envs
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        mode = getattr(env.metadata.get("autoreset_mode"), "name", None)
        if mode != "SAME_STEP":
            raise InputError(
                f"env: expected a vector environment with AutoresetMode.SAME_STEP, got {mode}; make_vec takes "
                "vector_kwargs={'autoreset_mode': …}"
            )

    def reset(self, seed: int) -> Any:
        return self.env.reset(seed=seed)[0]

    def step(self, actions: Any) -> Stepped:
        given, rewards, terminated, truncated, info = self.env.step(actions)
        rows = np.flatnonzero(terminated | truncated)
        return Stepped(replaced_rows(given, info.get("final_obs"), rows), given, rewards, terminated, truncated)


class StableBaselinesLanes(Lanes):
    """A vector environment of Stable-Baselines3."""

    several = True

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.count = env.num_envs

    def reset(self, seed: int) -> Any:
        self.env.seed(seed)
        return self.env.reset()

    def step(self, actions: Any) -> Stepped:
        given, rewards, done, infos = self.env.step(actions)
        truncated = done & np.array([info.get("TimeLimit.truncated", False) for info in infos])
        final = [info.get("terminal_observation") for info in infos]
        return Stepped(replaced_rows(given, final, np.flatnonzero(done)), given, rewards, done & ~truncated, truncated)


def replaced_rows(batch: Any, values: Any, rows: Array) -> Any:
    """A copy of a batch with other values in some rows."""
    if isinstance(batch, dict):
        return {name: replaced_rows(part, [v and v[name] for v in values], rows) for name, part in batch.items()}
    batch = np.array(batch)
    for row in rows:
        batch[row] = values[row]
    return batch


def lanes_of(env: Any) -> Lanes:
    """The interface of an environment, or of a new one with this id."""
    import gymnasium

    if isinstance(env, str):
        return MadeLanes(env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return VectorLanes(env)
    if isinstance(env, gymnasium.Env):
        return Lanes(env)
    if hasattr(env, "step_async") and hasattr(env, "num_envs"):
        return StableBaselinesLanes(env)
    raise InputError(f"env: expected a Gymnasium environment, its id or a vector environment, got {type(env).__name__}")
