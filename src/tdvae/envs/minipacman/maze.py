"""The maze and precomputed tables of moves, turns and distances, indexed by cells.

A cell is the number row * 19 + column; cell 285 stands for everything outside the map. Directions are the actions
right, up, left, down (1 to 4). Action 0 is "stay"; as the direction of a ghost, it means "no direction yet".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_UPPER = (
    "###################",
    "#...#.........#...#",
    "#.#.#.#######.#.#.#",
    "#.................#",
    "#.#.#.#######.#.#.#",
    "#.#.............#.#",
    "#.####.#####.####.#",
    "#......#####......#",
)
MAP = _UPPER + _UPPER[-2::-1]
HEIGHT, WIDTH = len(MAP), len(MAP[0])
CELLS = HEIGHT * WIDTH
OUTSIDE = CELLS
FAR = 5
"""Minimum distance of a ghost from Pacman at the start of a level, in rows or in columns."""

ACTIONS = ("stay", "right", "up", "left", "down")
STAY = 0
_STEPS = np.array([(0, 0), (0, 1), (-1, 0), (0, -1), (1, 0)])

WALLS: npt.NDArray[np.bool_] = np.array([[cell == "#" for cell in row] for row in MAP])
FREE: Ints = np.flatnonzero(~WALLS).astype(np.int64)
"""The free cells."""
PLACE: Ints = np.stack(np.divmod(np.arange(CELLS + 1), WIDTH), axis=-1).astype(np.int64)
"""(286, 2) row and column of each cell; (-1, -1) for the last, which is also the index -1 of an absent ghost."""
PLACE[OUTSIDE] = -1


def reverse(direction: int) -> int:
    return (direction + 1) % 4 + 1


def _move_table() -> Ints:
    """(5, 286): the cell that an action leads to, which is the same cell if a wall or the border is ahead."""
    moves = np.tile(np.arange(CELLS + 1), (len(ACTIONS), 1))
    for action, (down, right) in enumerate(_STEPS):
        ahead = FREE + down * WIDTH + right
        moves[action, FREE] = np.where(WALLS.flat[ahead], FREE, ahead)
    return moves


MOVE = _move_table()


def turns(cell: int, direction: int) -> list[int]:
    """The directions a ghost may take: straight on in a corridor, all but reverse at a junction.

    Without a current direction, all exits are allowed.
    """
    exits = [exit_ for exit_ in range(1, 5) if MOVE[exit_, cell] != cell]
    if direction == STAY:
        return exits
    if len(exits) == 2 and direction in exits:
        return [direction]
    return [exit_ for exit_ in exits if exit_ != reverse(direction)]


def _turn_tables() -> tuple[Ints, Ints]:
    """(286, 5, 4) the allowed directions by cell and current direction, and (286, 5) their number."""
    directions, counts = np.zeros((CELLS + 1, 5, 4), np.int64), np.zeros((CELLS + 1, 5), np.int64)
    for cell in FREE:
        for direction in range(5):
            allowed = turns(int(cell), direction)
            counts[cell, direction] = len(allowed)
            directions[cell, direction, : len(allowed)] = allowed
    return directions, counts


TURNS, TURN_COUNTS = _turn_tables()


def _aligned_directions(sign: int) -> Bytes:
    """(286, 5, 286): the direction best (+1) or least (-1) aligned with Pacman, among those a ghost may take.

    The indices are the ghost's cell, its direction and Pacman's cell. Alignment is the inner product of the direction
    with the vector from the ghost to Pacman. Of equally aligned directions, the first is taken.
    """
    table = np.zeros((CELLS + 1, 5, CELLS + 1), np.uint8)
    for cell in FREE:
        towards = (PLACE - PLACE[cell]) @ _STEPS.T * sign
        for direction in range(5):
            directions = TURNS[cell, direction, : TURN_COUNTS[cell, direction]]
            table[cell, direction] = directions[towards[:, directions].argmax(axis=1)]
    return table


GHOST_DIRECTION = np.stack((_aligned_directions(1), _aligned_directions(-1)))
"""(2, 286, 5, 286): the direction of a ghost that does not stray, without power and under power."""


def _far_tables() -> tuple[Ints, Ints]:
    """(286, 138) the free cells at least ``FAR`` away from each cell, and (286,) their number."""
    cells, counts = np.zeros((CELLS + 1, len(FREE)), np.int64), np.zeros(CELLS + 1, np.int64)
    for cell in FREE:
        far_cells = FREE[np.abs(PLACE[FREE] - PLACE[cell]).max(axis=1) >= FAR]
        counts[cell] = len(far_cells)
        cells[cell, : len(far_cells)] = far_cells
    return cells, counts


FAR_CELLS, FAR_COUNTS = _far_tables()


def _distance_table() -> Bytes:
    """(286, 286) the number of steps of a shortest path between two cells; 255 if there is none."""
    steps = np.full((CELLS + 1, CELLS + 1), 254, np.uint8)
    steps[FREE, FREE] = 0
    while True:
        shorter = np.minimum(steps, steps[MOVE].min(axis=0) + np.uint8(1))
        if np.array_equal(shorter, steps):
            return np.where(steps == 254, np.uint8(255), steps)
        steps = shorter


DISTANCE = _distance_table()


def _towards_table() -> Bytes:
    """(286, 286) the first action of a shortest path from one cell to another; "stay" if there is none."""
    nearer = DISTANCE[MOVE] < DISTANCE
    return nearer.argmax(axis=0).astype(np.uint8)


TOWARDS = _towards_table()
