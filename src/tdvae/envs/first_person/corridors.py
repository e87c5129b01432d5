"""Coloured corridors: a small first-person environment in NumPy, for tests and examples without an installed game.

The world is a maze of square cells, drawn from the seed. Each wall has the colour of its cell, darker with distance and
on two of its four sides. Frames are rendered by ray casting, one ray per column of pixels. The reward is 1 for each
cell that is reached for the first time.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tdvae.envs.first_person.world import Moves
from tdvae.errors import InputError

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

ID = "tdvae/Corridors-v0"
ACTIONS = ("forward", "turn left", "turn right")
MOVES = Moves(0, 1, 2)
STRIDE, TURN = 0.25, math.radians(15)
_RADIUS = 0.25  # of the agent: its minimum distance to walls
_COLOURS = np.array([(200, 60, 60), (60, 160, 60), (70, 90, 200), (200, 170, 50), (150, 70, 170), (60, 170, 170)])
_SKY, _GROUND = np.array([90, 110, 140]), np.array([80, 70, 60])


class CorridorsEnv(gymnasium.Env[Bytes, np.int64]):
    """The maze as a Gymnasium environment.

    ``info["pose"]`` is x and y (in cells, x to the right and y up) and the heading in radians.
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
        self._walls = _maze(self.cells, self.np_random)
        self._colour = self.np_random.integers(len(_COLOURS), size=self._walls.shape)
        free = np.argwhere(~self._walls)
        self._x, self._y = free[self.np_random.integers(len(free))] + 0.5
        self._heading = float(self.np_random.integers(24)) * TURN
        self._visited, self._steps = {self._cell()}, 0
        return self._render_frame(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Bytes, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise InputError(f"action: expected 0 to {len(ACTIONS) - 1} ({', '.join(ACTIONS)}), got {action!r}")
        if action == MOVES.forward:
            self._walk(STRIDE * math.cos(self._heading), STRIDE * math.sin(self._heading))
        else:
            self._heading = (self._heading + (TURN if action == MOVES.left else -TURN)) % math.tau
        self._steps += 1
        reward = float(self._cell() not in self._visited)
        self._visited.add(self._cell())
        return self._render_frame(), reward, False, self._steps >= self.max_steps, self._info()

    def _walk(self, dx: float, dy: float) -> None:
        """Move in x and then in y, so that an agent that walks into a wall at an angle slides along it."""
        for step_x, step_y in ((dx, 0.0), (0.0, dy)):
            x, y = self._x + step_x, self._y + step_y
            corners = [(x + a, y + b) for a in (-_RADIUS, _RADIUS) for b in (-_RADIUS, _RADIUS)]
            if not any(self._walls[int(a), int(b)] for a, b in corners):
                self._x, self._y = x, y

    def _cell(self) -> tuple[int, int]:
        return int(self._x), int(self._y)

    def _info(self) -> dict[str, Any]:
        return {"pose": (float(self._x), float(self._y), self._heading)}

    def _render_frame(self) -> Bytes:
        """Render a frame with a field of view of 90°; columns go from left to right, so their angles decrease."""
        across = np.linspace(1, -1, self.size)
        ahead = math.cos(self._heading), math.sin(self._heading)
        rays = np.stack([ahead[0] - across * ahead[1], ahead[1] + across * ahead[0]])
        distance, cell, side = self._cast(rays)
        height = 0.5 * self.size / np.maximum(distance, 1e-3)
        row = np.abs(np.arange(self.size) + 0.5 - self.size / 2)[:, None]
        light = (1 / (1 + 0.15 * distance) * np.where(side == 0, 1.0, 0.75))[:, None]
        wall = _COLOURS[self._colour[cell[0], cell[1]]] * light
        background = np.where((np.arange(self.size) < self.size / 2)[:, None], _SKY, _GROUND)
        frame = np.where((row < height)[..., None], wall[None], background[:, None])
        return frame.astype(np.uint8)

    def _cast(self, rays: Floats) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return each ray's length, the wall cell it hits, and whether it enters that cell along x (0) or y (1)."""
        start = np.array([self._x, self._y])[:, None]
        cell = np.repeat(start.astype(np.int64), rays.shape[1], axis=1)
        rays = np.where(np.abs(rays) < 1e-9, 1e-9, rays)
        cell_length, direction = np.abs(1 / rays), np.sign(rays).astype(np.int64)
        crossing = np.where(direction > 0, cell + 1 - start, start - cell) * cell_length  # distance to the next cell
        columns, side = np.arange(rays.shape[1]), np.zeros(rays.shape[1], np.int64)
        active = np.ones(rays.shape[1], bool)
        while active.any():
            side = np.where(active, crossing.argmin(axis=0), side)
            cell[side[active], columns[active]] += direction[side[active], columns[active]]
            crossing[side[active], columns[active]] += cell_length[side[active], columns[active]]
            active &= ~self._walls[cell[0], cell[1]]
        return (crossing - cell_length)[side, columns], cell, side


def _maze(cells: int, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw the walls of a maze of ``cells`` × ``cells`` rooms, connected by corridors with a few loops."""
    walls = np.ones((2 * cells + 1, 2 * cells + 1), bool)
    walls[1::2, 1::2] = False
    directions = ((1, 0), (-1, 0), (0, 1), (0, -1))
    visited, path = {(0, 0)}, [(0, 0)]
    while path:
        x, y = path[-1]
        inside = [d for d in directions if 0 <= x + d[0] < cells and 0 <= y + d[1] < cells]
        unvisited = [d for d in inside if (x + d[0], y + d[1]) not in visited]
        if not unvisited:
            path.pop()
            continue
        dx, dy = unvisited[random.integers(len(unvisited))]
        walls[2 * x + 1 + dx, 2 * y + 1 + dy] = False
        visited.add((x + dx, y + dy))
        path.append((x + dx, y + dy))
    # So far there is one path between any two rooms; a few more openings add loops.
    inner = np.argwhere(walls[1:-1, 1:-1]) + 1
    between_rooms = inner[(inner % 2 == 0).sum(axis=1) == 1]
    for x, y in between_rooms[random.permutation(len(between_rooms))[:cells]]:
        walls[x, y] = False
    return walls
