"""DeepMind Lab, for those who have built its Python module ``deepmind_lab``.

An action is held for 4 of Lab's 60 frames a second; turning is 20 of Lab's "pixels per frame", about 8° in that time.
Lab draws the frames at the size of the recording. Position and heading are recorded where a level has Lab's debug
observations. Lab shows no frame after the last step, and does not say why a level ended: it counts as terminated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tdvae.data.images import check_image
from tdvae.envs.first_person.world import Moves, Pose, Step, View, check_repeat, optional_package
from tdvae.errors import InputError

PREFIX = "deepmind_lab:"
REPEAT = 4
_FRAME, _PLACE, _ROTATION = "RGB_INTERLEAVED", "DEBUG.POS.TRANS", "DEBUG.POS.ROT"
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
_HOW = (
    "build it from DeepMind Lab's sources (no package index has it), or turn its public recordings into one with: "
    "tdvae convert"
)


class LabWorld:
    """A level of DeepMind Lab by its name, such as ``seekavoid_arena_01``."""

    def __init__(self, level: str, repeat: int | None = None, size: int = 64, renderer: str = "software") -> None:
        self.repeat, self.size, self.renderer = check_repeat(REPEAT if repeat is None else repeat), size, renderer
        self.name = PREFIX + level
        self.actions = tuple(_ACTIONS)
        self.moves = Moves(*(self.actions.index(name) for name in ("forward", "turn left", "turn right")))
        if not level:
            raise InputError(f"env: got {self.name!r}, expected a level after the colon")
        lab = optional_package("deepmind_lab", self.name, _HOW)
        asked = lab.Lab(level, [])
        offered = {spec["name"] for spec in asked.observation_spec()}
        asked.close()
        if _FRAME not in offered:
            raise InputError(f"env: {self.name} shows no pictures: {_FRAME} is not among {sorted(offered)}")
        self._tells_pose = {_PLACE, _ROTATION} <= offered
        wanted = [_FRAME, _PLACE, _ROTATION] if self._tells_pose else [_FRAME]
        config = {"width": str(size), "height": str(size)}
        self._lab = lab.Lab(level, wanted, config=config, renderer=renderer)
        inputs = [spec["name"] for spec in self._lab.action_spec()]
        self._amounts = [np.array([amounts.get(name, 0) for name in inputs], np.intc) for amounts in _ACTIONS.values()]

    def settings(self) -> dict[str, Any]:
        return {"repeat": self.repeat, "width": self.size, "height": self.size, "renderer": self.renderer}

    def reset(self, seed: int) -> View:
        self._lab.reset(seed=seed)
        return self._view()

    def step(self, action: int) -> Step:
        reward = float(self._lab.step(self._amounts[action], num_steps=self.repeat))
        if not self._lab.is_running():
            return Step(None, reward, terminated=True)
        return Step(self._view(), reward)

    def close(self) -> None:
        self._lab.close()

    def _view(self) -> View:
        seen = self._lab.observations()
        frame = np.array(seen[_FRAME])
        check_image(f"env: {_FRAME} of {self.name}", frame.shape, frame.dtype)
        pose: Pose | None = None
        if self._tells_pose:
            (x, y, _), (_, yaw, _) = seen[_PLACE], seen[_ROTATION]
            pose = float(x), float(y), math.radians(float(yaw))
        return View(frame, pose)
