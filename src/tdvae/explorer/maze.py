"""Beliefs about the ghost of MiniPacman, as heat maps: what a reader finds in the model's belief, and the exact one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tdvae.envs.minipacman import Recording, View
from tdvae.envs.minipacman.maze import CELLS, FREE, HEIGHT, WALLS, WIDTH
from tdvae.errors import InputError
from tdvae.exact import MiniPacmanFilter
from tdvae.models import Model
from tdvae_paper.minipacman.probes import SKIPPED, Hidden, features, hidden

Heat = npt.NDArray[np.floating[Any]]
Reader = Callable[[Tensor, Hidden], Tensor]  # beliefs, and what is told beside them → logits of the free cells


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
    """Those of a model in recorded games of level 1. Without a reader only the exact ones are known."""

    def __init__(self, model: Model, recording: Recording, reader: Reader | None = None) -> None:
        self._model, self._recording, self._reader = model, recording, reader

    def at(self, sequence: int, t: int) -> MazeBelief:
        truth = self._recording.truth
        assert truth is not None
        (row, column), ghost = truth.pacman[sequence, t - 1], truth.ghosts[sequence, t - 1, 0]
        in_view = View().seen_from(int(row) * WIDTH + int(column))
        eaten, shown = int(ghost[0]) < 0, bool(in_view[tuple(ghost)])
        exact = None if eaten else _on_map(self._exact[sequence, t - 1])
        learned = None
        if self._learned is not None and not eaten and t > SKIPPED:
            # A ghost in view is plain to see; the reader tells where it is otherwise.
            learned = exact if shown else _on_map(self._learned[sequence, t - 1 - SKIPPED])
        place = None if eaten else (int(ghost[0]), int(ghost[1]))
        return MazeBelief(WALLS, in_view, (int(row), int(column)), place, learned, exact)

    @cached_property
    def _exact(self) -> Tensor:
        return MiniPacmanFilter().of_recording(self._recording).ghost

    @cached_property
    def _learned(self) -> Tensor | None:
        if self._reader is None:
            return None
        about = hidden(self._recording)
        logits = self._reader(features(self._model, self._recording)["belief"], about).masked_fill(about.seen, -1e9)
        return torch.softmax(logits, -1).unflatten(0, (len(self._recording.x), -1))


def _on_map(probabilities: Tensor) -> Heat:
    """Probabilities of the free cells on the map, which add up to 1."""
    heat = np.zeros(CELLS)
    heat[FREE] = probabilities.double().numpy()
    return heat.reshape(HEIGHT, WIDTH) / max(heat.sum(), 1e-12)
