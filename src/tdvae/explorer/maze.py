"""Beliefs about the ghost of MiniPacman, as heat maps: what a reader finds in the model's belief, and the exact one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tdvae.envs.minipacman import Recording, View
from tdvae.envs.minipacman.maze import CELLS, FREE, HEIGHT, WALLS, WIDTH
from tdvae.errors import InputError
from tdvae.exact import MiniPacmanFilter

Heat = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class MazeBelief:
    """Where the ghost may be at one time. Arrays are (rows, columns); places are (row, column)."""

    walls: npt.NDArray[np.bool_]
    in_view: npt.NDArray[np.bool_]  # the cells that the observation shows
    pacman: tuple[int, int]
    ghost: tuple[int, int] | None  # where it really is; None if it has been eaten
    learned: Heat | None = None  # probabilities read from the model's belief, if there is a reader; the sum is 1
    exact: Heat | None = None  # those of exact inference, if it is known

    def __post_init__(self) -> None:
        shape = self.walls.shape
        if self.walls.ndim != 2:
            raise InputError(f"walls: expected (rows, columns), got shape {shape}")
        for name in ("in_view", "learned", "exact"):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise InputError(f"{name}: expected the shape {shape} of the maze, got {array.shape}")
        for name in ("learned", "exact"):
            heat = getattr(self, name)
            if heat is not None and not (bool((heat >= 0).all()) and abs(float(heat.sum()) - 1) < 1e-3):
                raise InputError(f"{name}: expected probabilities that add up to 1, got a sum of {float(heat.sum()):g}")

    @property
    def divergence(self) -> float | None:
        """KL(exact ‖ learned) in nats: what the learned belief misses of what could be known."""
        if self.exact is None or self.learned is None:
            return None
        some = self.exact > 0
        p, q = self.exact[some], np.maximum(self.learned[some], 1e-12)
        return float((p * np.log(p / q)).sum())


class MazeSource(Protocol):
    """Beliefs about the ghost in held-out games."""

    def at(self, sequence: int, t: int) -> MazeBelief:
        """The belief after the first t frames of a game."""
        ...


class GhostBeliefs:
    """Those in recorded games of level 1. ``learned`` (N, T, rows, columns) are read from a model's beliefs."""

    def __init__(self, recording: Recording, learned: Tensor | None = None) -> None:
        self._recording, self._learned = recording, learned

    def at(self, sequence: int, t: int) -> MazeBelief:
        truth = self._recording.truth
        assert truth is not None
        (row, column), (ghost_row, ghost_column) = truth.pacman[sequence, t - 1], truth.ghosts[sequence, t - 1, 0]
        in_view = View().seen_from(int(row) * WIDTH + int(column))
        ghost = (int(ghost_row), int(ghost_column)) if ghost_row >= 0 else None
        exact = None if ghost is None else _on_map(self._exact[sequence, t - 1])
        learned = None
        if self._learned is not None and ghost is not None:
            # A ghost in view is plain to see; what was read is where it is otherwise.
            learned = exact if in_view[ghost] else self._learned[sequence, t - 1].double().numpy()
        return MazeBelief(WALLS, in_view, (int(row), int(column)), ghost, learned, exact)

    @cached_property
    def _exact(self) -> Tensor:
        return MiniPacmanFilter().of_recording(self._recording).ghost


def _on_map(probabilities: Tensor) -> Heat:
    """Probabilities of the free cells on the map, which add up to 1."""
    heat = np.zeros(CELLS)
    heat[FREE] = probabilities.double().numpy()
    return heat.reshape(HEIGHT, WIDTH) / max(heat.sum(), 1e-12)
