"""Any Gymnasium environment that shows RGB pictures and has a list of actions."""

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
    """An environment that puts its ``pose`` (x, y, heading in radians) into ``info`` has it recorded."""
    if "pose" not in info:
        return None
    pose = tuple(float(number) for number in np.ravel(info["pose"]))
    if len(pose) != 3:
        raise InputError(f"info['pose']: got {len(pose)} numbers, expected x, y and heading")
    return pose[0], pose[1], pose[2]


class GymnasiumWorld:
    """An environment as a world. Observations are pictures, or a dictionary in which exactly one is (or name it).

    An action lasts ``repeat`` steps; their rewards are added. ``shows_end=False`` is for environments whose last
    observation is not a picture of the world: it is then left out.
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
            raise InputError(
                f"env: the actions of {self.name} are {one_line(space)}, expected Discrete: a list to choose from"
            )
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
        total = 0.0
        for _ in range(self.repeat):
            observation, reward, terminated, truncated, info = self.env.step(self._first_action + action)
            total += float(reward)
            if terminated or truncated:
                break
        over = terminated or truncated
        view = self._view(observation, info) if self.shows_end or not over else None
        return Step(view, total, bool(terminated), bool(truncated))

    def close(self) -> None:
        self.env.close()

    def _view(self, observation: Any, info: Info) -> View:
        frame = np.asarray(observation if self._image is None else observation[self._image])
        return View(frame.copy(), self._pose(info))  # some environments draw each frame into the same memory


def _image_key(env: Env, wanted: str | None) -> str | None:
    """Where in an observation the picture is; None if it is all of it."""
    space = env.observation_space
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    if not isinstance(space, spaces.Dict):
        if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
            raise InputError(
                f"env: {name} shows no pictures: its observations are {one_line(space)}, expected bytes "
                "(height, width, 3); gymnasium.wrappers.AddRenderObservation turns what it draws into pictures"
            )
        check_image(f"env: observations of {name}", space.shape, space.dtype)
        return None
    pictures = [key for key, part in space.spaces.items() if _is_image(part)]
    if wanted is not None and wanted in pictures:
        return wanted
    if wanted is not None or len(pictures) != 1:
        raise InputError(
            f"env: of the observations {list(space.spaces)} of {name}, {pictures or 'none'} are RGB pictures; "
            f"expected {wanted or 'exactly one'}"
        )
    return str(pictures[0])


def _is_image(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[2] == 3


def _check_moves(moves: Moves, n: int) -> None:
    numbers = (moves.forward, moves.left, moves.right)
    if len(set(numbers)) < 3 or not all(0 <= number < n for number in numbers):
        raise InputError(f"moves: got {numbers}, expected three different actions from 0 to {n - 1}")
