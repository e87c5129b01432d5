"""Coloured corridors: a small first-person world in NumPy, for tests and first tries where no game is installed.

A maze of square cells, new for each seed; each wall has its cell's colour, darker with distance and on two of its four
sides. Rays are cast through the grid, one for each column of pixels. Reaching a cell for the first time is worth 1.
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
_BODY = 0.25  # distance kept to walls
_COLOURS = np.array([(200, 60, 60), (60, 160, 60), (70, 90, 200), (200, 170, 50), (150, 70, 170), (60, 170, 170)])
_SKY, _GROUND = np.array([90, 110, 140]), np.array([80, 70, 60])


class CorridorsEnv(gymnasium.Env[Bytes, np.int64]):
    """``info["pose"]`` is x, y (in cells, x to the right and y up) and the heading."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, size: int = 64, cells: int = 5, max_steps: int = 300) -> None:
        for name, value in (("size", size), ("cells", cells), ("max_steps", max_steps)):
            if value < 2:
                raise InputError(f"{name}: got {value}, expected at least 2")
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
        return self._picture(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Bytes, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise InputError(f"action: got {action!r}, expected 0 to {len(ACTIONS) - 1} ({', '.join(ACTIONS)})")
        if action == MOVES.forward:
            self._walk(STRIDE * math.cos(self._heading), STRIDE * math.sin(self._heading))
        else:
            self._heading = (self._heading + (TURN if action == MOVES.left else -TURN)) % math.tau
        self._steps += 1
        reward = float(self._cell() not in self._visited)
        self._visited.add(self._cell())
        return self._picture(), reward, False, self._steps >= self.max_steps, self._info()

    def _walk(self, dx: float, dy: float) -> None:
        """One direction after the other: who walks against a wall at an angle slides along it."""
        for across, along in ((dx, 0.0), (0.0, dy)):
            x, y = self._x + across, self._y + along
            reach = [(x + a, y + b) for a in (-_BODY, _BODY) for b in (-_BODY, _BODY)]
            if not any(self._walls[int(a), int(b)] for a, b in reach):
                self._x, self._y = x, y

    def _cell(self) -> tuple[int, int]:
        return int(self._x), int(self._y)

    def _info(self) -> dict[str, Any]:
        return {"pose": (float(self._x), float(self._y), self._heading)}

    def _picture(self) -> Bytes:
        """Seen through a lens of 90°; the columns go from left to right, so their angles fall."""
        across = np.linspace(1, -1, self.size)
        ahead = math.cos(self._heading), math.sin(self._heading)
        rays = np.stack([ahead[0] - across * ahead[1], ahead[1] + across * ahead[0]])
        distance, cell, side = self._cast(rays)
        height = 0.5 * self.size / np.maximum(distance, 1e-3)
        row = np.abs(np.arange(self.size) + 0.5 - self.size / 2)[:, None]
        light = (1 / (1 + 0.15 * distance) * np.where(side == 0, 1.0, 0.75))[:, None]
        wall = _COLOURS[self._colour[cell[0], cell[1]]] * light
        background = np.where((np.arange(self.size) < self.size / 2)[:, None], _SKY, _GROUND)
        picture = np.where((row < height)[..., None], wall[None], background[:, None])
        return picture.astype(np.uint8)

    def _cast(self, rays: Floats) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """How far each ray goes, the cell it ends in, and whether it came there across x (0) or across y (1)."""
        start = np.array([self._x, self._y])[:, None]
        cell = np.repeat(start.astype(np.int64), rays.shape[1], axis=1)
        rays = np.where(np.abs(rays) < 1e-9, 1e-9, rays)
        per_cell, way = np.abs(1 / rays), np.sign(rays).astype(np.int64)
        reach = np.where(way > 0, cell + 1 - start, start - cell) * per_cell  # to the next cell, each direction
        columns, side = np.arange(rays.shape[1]), np.zeros(rays.shape[1], np.int64)
        going = np.ones(rays.shape[1], bool)
        while going.any():
            side = np.where(going, reach.argmin(axis=0), side)
            cell[side[going], columns[going]] += way[side[going], columns[going]]
            reach[side[going], columns[going]] += per_cell[side[going], columns[going]]
            going &= ~self._walls[cell[0], cell[1]]
        return (reach - per_cell)[side, columns], cell, side


def _maze(cells: int, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Walls of a maze of ``cells`` × ``cells`` rooms with corridors between them, some of them in circles."""
    walls = np.ones((2 * cells + 1, 2 * cells + 1), bool)
    walls[1::2, 1::2] = False
    ways = ((1, 0), (-1, 0), (0, 1), (0, -1))
    found, path = {(0, 0)}, [(0, 0)]
    while path:
        x, y = path[-1]
        open_ways = [w for w in ways if 0 <= x + w[0] < cells and 0 <= y + w[1] < cells]
        new = [w for w in open_ways if (x + w[0], y + w[1]) not in found]
        if not new:
            path.pop()
            continue
        dx, dy = new[random.integers(len(new))]
        walls[2 * x + 1 + dx, 2 * y + 1 + dy] = False
        found.add((x + dx, y + dy))
        path.append((x + dx, y + dy))
    # A maze without circles has one way to each place; a few more openings make it a place to walk about in.
    inner = np.argwhere(walls[1:-1, 1:-1]) + 1
    between = inner[(inner % 2 == 0).sum(axis=1) == 1]
    for x, y in between[random.permutation(len(between))[:cells]]:
        walls[x, y] = False
    return walls
