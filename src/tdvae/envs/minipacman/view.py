"""Observations of games: the whole maze or a window around Pacman, as classes of cells or as colours.

In all kinds of observation, a cell shows the first of Pacman, ghost, pill, food, wall and empty that applies:

- ``classes``: the seven classes of :class:`~tdvae.envs.minipacman.rules.Cell`. A ghost is edible or not. The remaining
  power is not shown, and while no ghost is in view, nothing shows whether Pacman has power. A model must remember it.
- ``powers``: 26 classes; the class of a ghost is 5 + the power timer (0 to 20). The information is that of the colours.
- ``rgb``: three bytes per cell; a ghost is (255, 255 * power / 20, 0), other colours are those of :data:`PALETTE`.

Cells outside the map are shown as wall.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from tdvae.envs.minipacman.games import Games
from tdvae.envs.minipacman.maze import CELLS, HEIGHT, OUTSIDE, PLACE, WIDTH
from tdvae.envs.minipacman.rules import POWER, Cell
from tdvae.errors import InputError

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Kind = Literal["classes", "powers", "rgb"]

N_CLASSES = {"classes": len(Cell), "powers": Cell.GHOST + POWER + 1}
_BASE_COLOURS = [(0, 0, 0), (255, 255, 255), (0, 0, 255), (0, 255, 255), (0, 255, 0)]
PALETTE: Bytes = np.array(_BASE_COLOURS + [(255, round(255 * p / POWER), 0) for p in range(POWER + 1)], np.uint8)
"""(26, 3) the colour of each class of ``powers``."""
_LETTERS = " #.oPGe"


def check_window(window: int | None) -> None:
    largest = min(HEIGHT, WIDTH)
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= largest or window % 2 == 0:
        raise InputError(
            f"window: expected an odd number from 1 to {largest}, or None for the whole maze, got {window!r}"
        )


class View:
    """Computes observations of games. ``window`` is the side of the square around Pacman; None is the whole maze."""

    def __init__(self, window: int | None = 5, kind: Kind = "classes") -> None:
        check_window(window)
        if kind not in get_args(Kind):
            raise InputError(f"observation: expected one of {', '.join(get_args(Kind))}, got {kind!r}")
        self.window, self.kind = window, kind
        self.sides = (HEIGHT, WIDTH) if window is None else (window, window)
        self.shape = self.sides + (3,) * (kind == "rgb")
        self._cells = _cells_in_view(window)
        self._slots = _slots_in_view(self._cells)

    def __call__(self, games: Games) -> Bytes:
        """The current observations of the games, (N, *shape)."""
        row = np.arange(len(games)) * (CELLS + 1)
        shown = games.board.reshape(-1).take(self._cells[games.pacman] + row[:, None])
        for cells in games.ghosts:
            slots = self._slots[games.pacman, cells]
            seen = np.flatnonzero(slots >= 0)
            shown[seen, slots[seen]] = Cell.GHOST + games.power[seen]
        shown[np.arange(len(games)), self._slots[games.pacman, games.pacman]] = Cell.PACMAN
        if self.kind == "classes":
            np.minimum(shown, np.uint8(Cell.EDIBLE), out=shown)
        elif self.kind == "rgb":
            shown = PALETTE[shown]
        return shown.reshape(len(games), *self.shape)

    def seen_from(self, cell: int) -> npt.NDArray[np.bool_]:
        """Which cells are in view when Pacman is at ``cell``, (15, 19)."""
        return (self._slots[cell, :CELLS] >= 0).reshape(HEIGHT, WIDTH)


def _cells_in_view(window: int | None) -> Ints:
    """(286, number of cells in view): the cells in view from each cell, row by row."""
    if window is None:
        return np.tile(np.arange(CELLS), (CELLS + 1, 1))
    reach = np.arange(window) - window // 2
    rows = (PLACE[:, :1] + reach)[:, :, None]
    columns = (PLACE[:, 1:] + reach)[:, None, :]
    inside = (rows >= 0) & (rows < HEIGHT) & (columns >= 0) & (columns < WIDTH)
    return np.where(inside, rows * WIDTH + columns, OUTSIDE).reshape(CELLS + 1, -1)


def _slots_in_view(cells: Ints) -> Ints:
    """(286, 286): the index of a cell in the view from another; -1 if it is not in view or outside the map."""
    slots = np.full((CELLS + 1, CELLS + 1), -1)
    slots[np.arange(CELLS + 1)[:, None], cells] = np.arange(cells.shape[1])
    slots[:, OUTSIDE] = -1
    return slots


def as_text(classes: Bytes) -> str:
    """Rows of letters: # wall, . food, o pill, P Pacman, G ghost, e edible ghost."""
    return "\n".join("".join(_LETTERS[cell] for cell in row) for row in classes)
