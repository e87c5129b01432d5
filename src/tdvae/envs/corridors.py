"""Mazes of wide corridors and their first-person frames, in NumPy.

A maze is a square grid of cells, 2 × 2 units each, open or filled. Each face of a wall has the colour of the compass
direction it looks to, so a frame shows which way the agent looks and a junction is visible from afar. Walls, floor and
ceiling are darker with distance. Frames are rendered by ray casting, one ray per column of pixels: the crossings of a
ray with all lines of the grid are computed at once, and the first that enters a filled cell is what is seen there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CELL = 2.0  # side of a cell; also the height of a wall, so that a corridor is as high as it is wide
STRIDE = 0.5
TURNS = 16  # in a full turn
TURN = math.tau / TURNS
DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # east, north, west, south
_FACES = np.array([(214, 84, 66), (64, 118, 200), (232, 180, 70), (92, 168, 98)], float)  # by the side it looks to
_CEILING, _FLOOR = np.array([158.0, 174.0, 190.0]), np.array([122.0, 104.0, 88.0])
_FOG = 0.09  # light falls as 1 / (1 + fog · distance)
_CHUNK = 128  # frames rendered at once, so that the arrays stay in the cache


@dataclass(frozen=True, eq=False)
class Maze:
    """The filled cells of a maze, (side, side), indexed [x, y]. The rooms are at odd indices."""

    walls: Bools

    @classmethod
    def draw(cls, rooms: int, random: np.random.Generator) -> Maze:
        """Draw a maze of ``rooms`` × ``rooms`` rooms, connected by corridors with a few loops."""
        walls = np.ones((2 * rooms + 1, 2 * rooms + 1), bool)
        walls[1::2, 1::2] = False
        visited, path = {(0, 0)}, [(0, 0)]
        while path:
            x, y = path[-1]
            near = [(x + dx, y + dy) for dx, dy in DIRECTIONS if 0 <= x + dx < rooms and 0 <= y + dy < rooms]
            unvisited = [room for room in near if room not in visited]
            if not unvisited:
                path.pop()
                continue
            room = unvisited[random.integers(len(unvisited))]
            walls[x + room[0] + 1, y + room[1] + 1] = False
            visited.add(room)
            path.append(room)
        # So far there is one path between any two rooms; a few more openings add loops.
        inner = np.argwhere(walls[1:-1, 1:-1]) + 1
        between_rooms = inner[(inner % 2 == 0).sum(axis=1) == 1]
        for x, y in between_rooms[random.permutation(len(between_rooms))[:rooms]]:
            walls[x, y] = False
        return cls(walls)

    @property
    def rooms(self) -> int:
        return len(self.walls) // 2

    def is_open(self, x: float, y: float) -> bool:
        return not self.walls[int(x / CELL), int(y / CELL)]

    def exits(self, cell: tuple[int, int]) -> list[int]:
        """The compass directions (0 east, 1 north, 2 west, 3 south) in which the next cell is open."""
        return [n for n, (dx, dy) in enumerate(DIRECTIONS) if not self.walls[cell[0] + dx, cell[1] + dy]]


@dataclass(frozen=True, eq=False)
class Sight:
    """What each column of each frame shows, (N, size): the wall's distance along the view, its face and its cell."""

    distance: Floats
    face: Ints  # the compass direction to which the face looks
    cell: Ints  # (N, size, 2) index of the filled cell

    @property
    def walls(self) -> Ints:
        """A number for each face of each wall of the maze, (N, size)."""
        return (self.cell[..., 0] * 1024 + self.cell[..., 1]) * 4 + self.face


def look(maze: Maze, poses: npt.ArrayLike, size: int) -> Sight:
    """Cast a ray for each of ``size`` columns, from left to right, for poses (N, 3) of x, y and heading."""
    x, y, heading = np.asarray(poses, float).reshape(-1, 3).T[:, :, None]
    across = 1 - (2 * np.arange(size) + 1) / size  # a field of view of 90°, through the middle of each pixel
    ray_x, ray_y = np.cos(heading) - across * np.sin(heading), np.sin(heading) + across * np.cos(heading)
    by_axis = [_first_wall(maze.walls, x, y, ray_x, ray_y), _first_wall(maze.walls.T, y, x, ray_y, ray_x)]
    (east, wall_x, along_x), (north, wall_y, along_y) = by_axis
    first = east <= north
    cell = np.where(first[..., None], np.stack([wall_x, along_x], -1), np.stack([along_y, wall_y], -1))
    face = np.where(first, np.where(ray_x > 0, 2, 0), np.where(ray_y > 0, 3, 1))
    return Sight(np.where(first, east, north), face, cell)


def _first_wall(walls: Bools, x: Floats, y: Floats, ray_x: Floats, ray_y: Floats) -> tuple[Floats, Ints, Ints]:
    """The distance at which each ray first enters a filled cell through a line of constant x, and that cell."""
    side = len(walls)
    ray_x = np.where(np.abs(ray_x) < 1e-9, 1e-9, ray_x)
    forward = ray_x > 0
    number = np.arange(side)[:, None, None]  # of the cell that would be entered
    distance = ((number + ~forward) * CELL - x) / ray_x
    along = ((y + distance * ray_y) * (1 / CELL)).astype(np.int64)
    inside = (distance > 0) & (along >= 0) & (along < side)
    hit = inside & walls[number, np.where(inside, along, 0)]
    distance = np.where(hit, distance, np.inf)
    first = distance.argmin(axis=0)[None]
    return np.take_along_axis(distance, first, 0)[0], first[0], np.take_along_axis(along, first, 0)[0]


def render(maze: Maze, poses: npt.ArrayLike, size: int = 64) -> Bytes:
    """Render the frames at poses (N, 3), as RGB (N, size, size, 3)."""
    poses = np.asarray(poses, float).reshape(-1, 3)
    parts = [_render(maze, poses[start : start + _CHUNK], size) for start in range(0, len(poses), _CHUNK)]
    return np.concatenate(parts) if parts else np.zeros((0, size, size, 3), np.uint8)


def _render(maze: Maze, poses: Floats, size: int) -> Bytes:
    sight = look(maze, poses, size)
    wall = (_FACES[sight.face] / (1 + _FOG * sight.distance)[..., None]).astype(np.uint8)
    half_height = (0.5 * size / np.maximum(sight.distance, 1e-3)).astype(np.float32)
    row = np.abs(np.arange(size, dtype=np.float32) + 0.5 - size / 2)
    # A byte of each pixel is chosen by bit operations: this is several times faster than `where` over colours.
    is_wall = np.negative((row[:, None] < half_height[:, None, :]).astype(np.uint8))[..., None]
    background = _background(size)[:, None, :]
    frames: Bytes = background ^ ((background ^ wall[:, None]) & is_wall)
    return frames


def _background(size: int) -> Bytes:
    """The colour of ceiling or floor in each row, (size, 3)."""
    row = np.arange(size) + 0.5 - size / 2
    distance = 0.5 * size / np.abs(row)
    colour = np.where((row < 0)[:, None], _CEILING, _FLOOR)
    return (colour / (1 + 2 * _FOG * distance)[:, None]).astype(np.uint8)
