"""Beliefs about a ghost in a maze, as heat maps: the interface that an exact filter and a reader of beliefs fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tdvae.explorer.library import InputError

Heat = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class MazeBelief:
    """Where the ghost may be at one time. Arrays are (rows, columns); places are (row, column)."""

    walls: npt.NDArray[np.bool_]
    in_view: npt.NDArray[np.bool_]  # the cells that the observation shows
    pacman: tuple[int, int]
    ghost: tuple[int, int] | None  # where it really is; None if it has been eaten
    learned: Heat  # probabilities read from the model's belief; they add up to one
    exact: Heat | None = None  # those of exact inference, if it is known

    def __post_init__(self) -> None:
        shape = self.walls.shape
        if self.walls.ndim != 2:
            raise InputError(f"walls: expected (rows, columns), got shape {shape}")
        for name, array in (("in_view", self.in_view), ("learned", self.learned), ("exact", self.exact)):
            if array is not None and array.shape != shape:
                raise InputError(f"{name}: expected the shape {shape} of the maze, got {array.shape}")
        for name, heat in (("learned", self.learned), ("exact", self.exact)):
            if heat is not None and not (bool((heat >= 0).all()) and abs(float(heat.sum()) - 1) < 1e-3):
                raise InputError(f"{name}: expected probabilities that add up to 1, got a sum of {float(heat.sum()):g}")

    @property
    def divergence(self) -> float | None:
        """KL(exact ‖ learned) in nats: what the learned belief misses of what could be known."""
        if self.exact is None:
            return None
        some = self.exact > 0
        p, q = self.exact[some], np.maximum(self.learned[some], 1e-12)
        return float((p * np.log(p / q)).sum())


class MazeSource(Protocol):
    """Beliefs about the ghost in held-out games."""

    def at(self, sequence: int, t: int) -> MazeBelief:
        """The belief after the first t frames of a game."""
        ...
