"""Adapter for DeepMind Lab; requires its Python module ``deepmind_lab``, which must be built from source.

An action is repeated for 4 of Lab's 60 frames per second. A turn has a speed of 20 of Lab's "pixels per frame", about
8° per action. Lab renders the frames at the size of the recording. Position and heading are recorded if a level
provides Lab's debug observations. Lab shows no frame after the last step and gives no reason for the end of an episode,
which therefore counts as terminated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tdvae.data.images import check_image
from tdvae.data.recording import check_size
from tdvae.envs import first_person as worlds
from tdvae.envs.first_person.world import Moves, Pose, Step, View, World, check_repeat, optional_package
from tdvae.errors import InputError

PREFIX = "deepmind_lab:"
REPEAT = 4
_FRAME, _POSITION, _ROTATION = "RGB_INTERLEAVED", "DEBUG.POS.TRANS", "DEBUG.POS.ROT"
_LOOK, _STRAFE, _MOVE = "LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", "STRAFE_LEFT_RIGHT", "MOVE_BACK_FORWARD"
_ACTIONS = {
    "none": {},
    "forward": {_MOVE: 1},
    "backward": {_MOVE: -1},
    "turn left": {_LOOK: -20},
    "turn right": {_LOOK: 20},
    "strafe left": {_STRAFE: -1},
    "strafe right": {_STRAFE: 1},
}
_INSTALL_HINT = (
    "build it from DeepMind Lab's sources (no package index has it), or convert public recordings with: tdvae convert"
)


def open_world(env: str, repeat: int | None = None, size: int = 64, moves: Moves | None = None) -> World:
    """Open a level of DeepMind Lab, given as ``deepmind_lab:LEVEL``, or what `tdvae.envs.first_person` opens."""
    if not env.startswith(PREFIX):
        return worlds.open_world(env, repeat, size, moves)
    check_size(size)
    if moves is not None:
        raise InputError(f"moves: expected None, because the moves of {env} are known, got {moves}")
    return LabWorld(env.removeprefix(PREFIX), repeat, size)


class LabWorld:
    """A level of DeepMind Lab, given its name, such as ``seekavoid_arena_01``."""

    def __init__(self, level: str, repeat: int | None = None, size: int = 64, renderer: str = "software") -> None:
        self.repeat, self.size, self.renderer = check_repeat(REPEAT if repeat is None else repeat), size, renderer
        self.name = PREFIX + level
        self.actions = tuple(_ACTIONS)
        self.moves = Moves(*(self.actions.index(name) for name in ("forward", "turn left", "turn right")))
        if not level:
            raise InputError(f"env: expected a level after the colon, got {self.name!r}")
        lab = optional_package("deepmind_lab", self.name, _INSTALL_HINT)
        probe = lab.Lab(level, [])
        available = {spec["name"] for spec in probe.observation_spec()}
        probe.close()
        if _FRAME not in available:
            raise InputError(f"env: expected the observation {_FRAME} in {self.name}, got {sorted(available)}")
        self._has_pose = {_POSITION, _ROTATION} <= available
        observations = [_FRAME, _POSITION, _ROTATION] if self._has_pose else [_FRAME]
        config = {"width": str(size), "height": str(size)}
        self._lab = lab.Lab(level, observations, config=config, renderer=renderer)
        input_names = [spec["name"] for spec in self._lab.action_spec()]
        self._raw_actions = [
            np.array([values.get(name, 0) for name in input_names], np.intc) for values in _ACTIONS.values()
        ]

    def settings(self) -> dict[str, Any]:
        return {"repeat": self.repeat, "width": self.size, "height": self.size, "renderer": self.renderer}

    def reset(self, seed: int) -> View:
        self._lab.reset(seed=seed)
        return self._view()

    def step(self, action: int) -> Step:
        reward = float(self._lab.step(self._raw_actions[action], num_steps=self.repeat))
        if not self._lab.is_running():
            return Step(None, reward, terminated=True)
        return Step(self._view(), reward)

    def close(self) -> None:
        self._lab.close()

    def _view(self) -> View:
        observations = self._lab.observations()
        frame = np.array(observations[_FRAME])
        check_image(f"env: {_FRAME} of {self.name}", frame.shape, frame.dtype)
        pose: Pose | None = None
        if self._has_pose:
            (x, y, _), (_, yaw, _) = observations[_POSITION], observations[_ROTATION]
            pose = float(x), float(y), math.radians(float(yaw))
        return View(frame, pose)
