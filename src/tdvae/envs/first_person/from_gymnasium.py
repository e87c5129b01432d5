"""Adapter for any Gymnasium environment with RGB image observations and discrete actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tdvae.data.images import check_image
from tdvae.envs.first_person.world import Moves, Pose, Step, View, check_repeat, one_line
from tdvae.errors import InputError

Env = gymnasium.Env[Any, Any]
Info = dict[str, Any]


def pose_from_info(info: Info) -> Pose | None:
    """``info["pose"]`` (x, y, heading in radians), or None if the environment provides none."""
    if "pose" not in info:
        return None
    pose = tuple(float(number) for number in np.ravel(info["pose"]))
    if len(pose) != 3:
        raise InputError(f"info['pose']: expected x, y and heading, got {len(pose)} numbers")
    return pose[0], pose[1], pose[2]


class GymnasiumWorld:
    """A Gymnasium environment as a world. An observation is an image or a dictionary that contains one.

    ``image`` is the key of the image in the dictionary; it is needed if there are several. An action is repeated for
    ``repeat`` steps, and their rewards are added. ``shows_end=False`` is for environments whose last observation is
    not an image of the world; that observation is then dropped.
    """

    def __init__(
        self,
        env: Env,
        repeat: int = 1,
        moves: Moves | None = None,
        image: str | None = None,
        pose: Callable[[Info], Pose | None] = pose_from_info,
        actions: Sequence[str] | None = None,
        shows_end: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.env, self.repeat, self.shows_end = env, check_repeat(repeat), shows_end
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self._image, self._pose, self._settings = _image_key(env, image), pose, settings or {}
        space = env.action_space
        if not isinstance(space, spaces.Discrete):
            raise InputError(f"env: expected Discrete actions, got {one_line(space)} in {self.name}")
        self._first_action = int(space.start)
        self.actions = tuple(actions) if actions else tuple(f"action {number}" for number in range(int(space.n)))
        self.moves = moves
        if moves is not None:
            _check_moves(moves, len(self.actions))

    def settings(self) -> dict[str, Any]:
        return {"repeat": self.repeat, **self._settings}

    def reset(self, seed: int) -> View:
        observation, info = self.env.reset(seed=seed)
        return self._view(observation, info)

    def step(self, action: int) -> Step:
        total_reward = 0.0
        for _ in range(self.repeat):
            observation, reward, terminated, truncated, info = self.env.step(self._first_action + action)
            total_reward += float(reward)
            if terminated or truncated:
                break
        done = terminated or truncated
        view = self._view(observation, info) if self.shows_end or not done else None
        return Step(view, total_reward, bool(terminated), bool(truncated))

    def close(self) -> None:
        self.env.close()

    def _view(self, observation: Any, info: Info) -> View:
        frame = np.asarray(observation if self._image is None else observation[self._image])
        return View(frame.copy(), self._pose(info))  # a copy, because some environments reuse the memory of a frame


def _image_key(env: Env, wanted: str | None) -> str | None:
    """The key of the image in a dictionary observation; None if the observation is the image."""
    space = env.observation_space
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    if not isinstance(space, spaces.Dict):
        if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
            raise InputError(
                f"env: expected images (height, width, 3) of uint8, got observations {one_line(space)} of {name}; "
                "gymnasium.wrappers.AddRenderObservation makes images of what an environment renders"
            )
        check_image(f"env: observations of {name}", space.shape, space.dtype)
        return None
    images = [key for key, part in space.spaces.items() if _is_image(part)]
    if wanted is not None and wanted in images:
        return wanted
    if wanted is not None or len(images) != 1:
        raise InputError(
            f"env: expected {wanted or 'exactly one'} as RGB image among the observations {list(space.spaces)} "
            f"of {name}, got {images or 'none'}"
        )
    return str(images[0])


def _is_image(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[2] == 3


def _check_moves(moves: Moves, n: int) -> None:
    numbers = (moves.forward, moves.left, moves.right)
    if len(set(numbers)) < 3 or not all(0 <= number < n for number in numbers):
        raise InputError(f"moves: expected three different actions from 0 to {n - 1}, got {numbers}")
