"""The maze and what follows from it alone, as tables indexed by cells: a move, a turn or a distance is a look-up.

A cell is one number, row * 19 + column; cell 285 stands for everything outside the map. Directions are the actions
right, up, left, down (1 to 4); 0 is "stay", and for a ghost "no direction yet".
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
"""A ghost starts at least this far from Pacman, in rows or in columns."""

ACTIONS = ("stay", "right", "up", "left", "down")
STAY = 0
_STEPS = np.array([(0, 0), (0, 1), (-1, 0), (0, -1), (1, 0)])

WALLS: npt.NDArray[np.bool_] = np.array([[cell == "#" for cell in row] for row in MAP])
FREE: Ints = np.flatnonzero(~WALLS).astype(np.int64)
"""The free cells."""
PLACE: Ints = np.stack(np.divmod(np.arange(CELLS + 1), WIDTH), axis=-1).astype(np.int64)
"""(286, 2) row and column of each cell; (-1, -1) of the last, so that an absent ghost (cell -1) has no place."""
PLACE[OUTSIDE] = -1


def reverse(direction: int) -> int:
    return (direction + 1) % 4 + 1


def _moves() -> Ints:
    """(5, 286): the cell an action leads to; a wall, or the map's end, leaves everything where it is."""
    moves = np.tile(np.arange(CELLS + 1), (len(ACTIONS), 1))
    for action, (down, right) in enumerate(_STEPS):
        ahead = FREE + down * WIDTH + right
        moves[action, FREE] = np.where(WALLS.flat[ahead], FREE, ahead)
    return moves


MOVE = _moves()


def turns(cell: int, direction: int) -> list[int]:
    """The ways a ghost may take: on in a corridor, anything but back at a junction, any way if it has no direction."""
    exits = [way for way in range(1, 5) if MOVE[way, cell] != cell]
    if direction == STAY:
        return exits
    if len(exits) == 2 and direction in exits:
        return [direction]
    return [way for way in exits if way != reverse(direction)]


def _turn_tables() -> tuple[Ints, Ints]:
    """(286, 5, 4) the ways by cell and direction, and (286, 5) how many they are."""
    ways, counts = np.zeros((CELLS + 1, 5, 4), np.int64), np.zeros((CELLS + 1, 5), np.int64)
    for cell in FREE:
        for direction in range(5):
            found = turns(int(cell), direction)
            counts[cell, direction] = len(found)
            ways[cell, direction, : len(found)] = found
    return ways, counts


TURNS, TURN_COUNTS = _turn_tables()


def _aligned(sign: int) -> Bytes:
    """(286, 5, 286): of a ghost's ways the one best (+1) or least (-1) aligned with Pacman, by cell, direction, Pacman.

    Alignment is the inner product of the way with the vector from ghost to Pacman; of equals the first way counts.
    """
    table = np.zeros((CELLS + 1, 5, CELLS + 1), np.uint8)
    for cell in FREE:
        towards = (PLACE - PLACE[cell]) @ _STEPS.T * sign
        for direction in range(5):
            ways = TURNS[cell, direction, : TURN_COUNTS[cell, direction]]
            table[cell, direction] = ways[towards[:, ways].argmax(axis=1)]
    return table


GHOST_WAY = np.stack((_aligned(1), _aligned(-1)))
"""(2, 286, 5, 286): the way of a ghost that does not stray, without power and under it."""


def _far_tables() -> tuple[Ints, Ints]:
    """(286, 138) free cells far enough from each cell for a ghost to start, and (286,) how many they are."""
    cells, counts = np.zeros((CELLS + 1, len(FREE)), np.int64), np.zeros(CELLS + 1, np.int64)
    for cell in FREE:
        found = FREE[np.abs(PLACE[FREE] - PLACE[cell]).max(axis=1) >= FAR]
        counts[cell] = len(found)
        cells[cell, : len(found)] = found
    return cells, counts


FAR_CELLS, FAR_COUNTS = _far_tables()


def _distances() -> Bytes:
    """(286, 286) steps of the shortest way between two cells; 255 where there is none."""
    steps = np.full((CELLS + 1, CELLS + 1), 254, np.uint8)
    steps[FREE, FREE] = 0
    while True:
        shorter = np.minimum(steps, steps[MOVE].min(axis=0) + np.uint8(1))
        if np.array_equal(shorter, steps):
            return np.where(steps == 254, np.uint8(255), steps)
        steps = shorter


DISTANCE = _distances()


def _towards() -> Bytes:
    """(286, 286): the first action of a shortest way from one cell to another; "stay" where there is none."""
    nearer = DISTANCE[MOVE] < DISTANCE
    return nearer.argmax(axis=0).astype(np.uint8)


TOWARDS = _towards()
