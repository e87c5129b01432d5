"""Coloured corridors as a Gymnasium environment: first-person frames in NumPy, without an installed game.

Maze and frames are those of `tdvae.envs.corridors`. The reward is 1 for each cell that is reached for the first time.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tdvae.envs.corridors import CELL, STRIDE, TURN, Bytes, Maze, render
from tdvae.envs.corridors_walk import ACTIONS, FORWARD, LEFT, RIGHT, pose_in, start, walk
from tdvae.envs.first_person.world import Moves, Pose
from tdvae.errors import InputError

__all__ = ["ACTIONS", "ID", "MOVES", "STRIDE", "TURN", "CorridorsEnv"]

ID = "tdvae/Corridors-v0"
MOVES = Moves(FORWARD, LEFT, RIGHT)


class CorridorsEnv(gymnasium.Env[Bytes, np.int64]):
    """A maze of ``cells`` × ``cells`` rooms, a new one after each reset.

    ``info["pose"]`` is x and y (x to the right and y up; a cell is 2 wide) and the heading in radians; ``maze`` is the
    true maze. A seed has the maze and the first pose of `tdvae.envs.corridors_walk.Walk.draw`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, size: int = 64, cells: int = 5, max_steps: int = 300) -> None:
        for name, value in (("size", size), ("cells", cells), ("max_steps", max_steps)):
            if value < 2:
                raise InputError(f"{name}: expected at least 2, got {value}")
        self.size, self.cells, self.max_steps = size, cells, max_steps
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = spaces.Discrete(len(ACTIONS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Bytes, dict[str, Any]]:
        super().reset(seed=seed)
        self.maze = Maze.draw(self.cells, self.np_random)
        self.pose: Pose = pose_in(*start(self.maze, self.np_random))
        self._visited, self._steps = {self._cell()}, 0
        return self._render_frame(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Bytes, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise InputError(f"action: expected 0 to {len(ACTIONS) - 1} ({', '.join(ACTIONS)}), got {action!r}")
        x, y, heading = walk(self.pose, [int(action)], self.maze)[-1].tolist()
        self.pose = x, y, heading
        self._steps += 1
        reward = float(self._cell() not in self._visited)
        self._visited.add(self._cell())
        return self._render_frame(), reward, False, self._steps >= self.max_steps, self._info()

    def _cell(self) -> tuple[int, int]:
        return int(self.pose[0] / CELL), int(self.pose[1] / CELL)

    def _info(self) -> dict[str, Any]:
        return {"pose": self.pose}

    def _render_frame(self) -> Bytes:
        return render(self.maze, self.pose, self.size)[0]
