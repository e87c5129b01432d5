"""A scripted player for recordings: it collects food, flees from ghosts, hunts them under power, and explores.

The player uses only information that past observations through the window contain: the maze, its position, the cells
where it has eaten (which give the food map, since only Pacman eats food), its power, and the visible ghosts. It does
not remember ghosts that are no longer visible. Its actions therefore carry no information about hidden state. With
``sight=None`` it sees every ghost.

- Its target is the nearest food, with ties broken at random. With probability ``roam``, and always after it has fled,
  the target is random food instead, so that it crosses the maze and returns to cells that it saw long ago. If no food
  is left, the target is a random cell.
- With probability ``whim`` per step it walks at random for up to ``wander`` steps, without reversing.
- It flees from a visible ghost within ``danger`` steps, with the move that maximises the distance to the nearest ghost.
- It hunts a visible ghost that it can reach before the power ends, if the mode rewards eating ghosts.

The target is food in every mode. In "avoid", "ambush" and "rush", which penalise food, the player therefore explores
but does not maximise the reward. Random choices are drawn from the key of the game, so that a game does not depend on
its batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tdvae.envs.minipacman.draws import Keys, mix, splitmix64, uniform, uniform_int
from tdvae.envs.minipacman.games import ABSENT, Games
from tdvae.envs.minipacman.maze import (
    ACTIONS,
    CELLS,
    DISTANCE,
    FREE,
    MOVE,
    OUTSIDE,
    PLACE,
    STAY,
    TOWARDS,
    TURN_COUNTS,
    TURNS,
)
from tdvae.envs.minipacman.rules import Cell
from tdvae.errors import InputError

Ints = npt.NDArray[np.int64]

_SALT = np.uint64(0x706C61796572)  # makes the player's random numbers independent of the game's
_N_ORDERS = 256
_MAX_COST = np.uint16(2**16 - 1)


@dataclass(frozen=True)
class PlayerSettings:
    """Settings of the player. ``roam`` is a probability per choice of a target, ``whim`` a probability per step."""

    sight: int | None = 2
    """Ghosts are visible up to this many rows and columns away (2 for a 5×5 window). None: all ghosts are visible."""
    danger: int = 4
    roam: float = 0.1
    whim: float = 0.02
    wander: int = 8

    def __post_init__(self) -> None:
        for name in ("sight", "danger", "wander"):
            value = getattr(self, name)
            if not (value is None and name == "sight") and value < 0:
                raise InputError(f"{name}: expected an integer of at least 0, got {value}")
        for name in ("roam", "whim"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"{name}: expected a probability from 0 to 1, got {value}")


def _random_permutations() -> npt.NDArray[np.uint16]:
    """(256, 286) fixed permutations, which break ties between equally near food."""
    index = np.arange(_N_ORDERS * (CELLS + 1), dtype=np.uint64)
    return splitmix64(np.array([_SALT]), index).reshape(_N_ORDERS, -1).argsort(axis=1).astype(np.uint16)


_TIE_BREAK = _random_permutations()
_DISTANCE_COST = np.minimum(DISTANCE, 126).astype(np.uint16) << np.uint16(9)  # above the 9 bits of the tie-break
_DISTANCE_COST[OUTSIDE] = 0  # for choices that ignore the distance
_IS_FREE = np.isin(np.arange(CELLS + 1), FREE)


class Player:
    """Plays every game of a batch. Keeps the target and the state of the random walk of each game."""

    def __init__(self, n: int, settings: PlayerSettings | None = None) -> None:
        self.settings = settings or PlayerSettings()
        self.target = np.full(n, ABSENT)
        self.fled = np.zeros(n, np.bool_)
        self.heading, self.wandering = np.zeros(n, np.int64), np.zeros(n, np.int64)

    def __call__(self, games: Games) -> Ints:
        """The next action of each game, (N,)."""
        if len(games) != len(self.target):
            raise InputError(f"games: expected {len(self.target)}, the number given to the player, got {len(games)}")
        keys = mix(games.keys ^ _SALT)
        new = games.frame == 0
        self.target[new], self.fled[new], self.wandering[new] = ABSENT, False, 0
        self._choose_targets(games, keys)
        actions = TOWARDS[games.pacman, self.target].astype(np.int64)
        self._wander(games, keys, actions)
        self._react_to_ghosts(games, actions)
        return actions

    def _choose_targets(self, games: Games, keys: Keys) -> None:
        """Choose a new target in games whose target is eaten or reached, and after the player has fled."""
        has_food = games.board[np.arange(len(games)), self.target] >= Cell.FOOD
        underway = (games.food_left == 0) & (self.target != games.pacman) & (self.target != ABSENT)
        which = np.flatnonzero(~(has_food | underway) | self.fled)
        keys, frames = keys[which], games.frame[which]
        candidates = games.board[which] >= Cell.FOOD
        no_food = games.food_left[which] == 0
        candidates[no_food] = _IS_FREE
        ignore_distance = (uniform(keys, frames, 0) < self.settings.roam) | no_food | self.fled[which]
        distance = _DISTANCE_COST[np.where(ignore_distance, OUTSIDE, games.pacman[which])]
        cost = _TIE_BREAK[uniform_int(_N_ORDERS, keys, frames, 1)] | distance
        self.target[which] = np.where(candidates, cost, _MAX_COST).argmin(axis=1)
        self.fled[which] = False

    def _wander(self, games: Games, keys: Keys, actions: Ints) -> None:
        starts = np.flatnonzero((self.wandering == 0) & (uniform(keys, games.frame, 2) < self.settings.whim))
        self.wandering[starts] = uniform_int(self.settings.wander + 1, keys[starts], games.frame[starts], 3)
        self.heading[starts] = STAY
        which = np.flatnonzero(self.wandering)
        at, to = games.pacman[which], self.heading[which]
        chosen = TURNS[at, to, uniform_int(TURN_COUNTS[at, to], keys[which], games.frame[which], 4)]
        actions[which] = self.heading[which] = chosen
        self.wandering[which] -= 1

    def _react_to_ghosts(self, games: Games, actions: Ints) -> None:
        """Overwrite ``actions`` in games where the player hunts or flees from a visible ghost."""
        visible = self._visible_ghosts(games)
        steps = np.where(visible, DISTANCE[games.pacman, games.ghosts], 255)
        nearest, prey = steps.min(axis=0), games.ghosts[steps.argmin(axis=0), np.arange(len(games))]
        reachable = games.power > nearest
        if self.settings.danger:
            harmless = reachable & (games.mode.ghost >= 0)
            self._flee(games, visible, np.flatnonzero((nearest <= self.settings.danger) & ~harmless), actions)
        if games.mode.ghost > 0:
            hunting = np.flatnonzero(reachable)
            actions[hunting] = TOWARDS[games.pacman[hunting], prey[hunting]]

    def _visible_ghosts(self, games: Games) -> npt.NDArray[np.bool_]:
        """Which ghosts are visible, (G, N)."""
        present = games.ghosts != ABSENT
        if self.settings.sight is None:
            return present
        separation = np.abs(PLACE[games.ghosts] - PLACE[games.pacman]).max(axis=-1)
        return present & (separation <= self.settings.sight)

    def _flee(self, games: Games, visible: npt.NDArray[np.bool_], which: Ints, actions: Ints) -> None:
        moves = MOVE[:, games.pacman[which]]
        distance = np.where(visible[:, which], DISTANCE[moves[:, None], games.ghosts[:, which]], 255).min(axis=1)
        preferred = np.arange(len(ACTIONS))[:, None] == actions[which]  # ties keep the chosen action
        actions[which] = (2 * distance.astype(np.int64) + preferred).argmax(axis=0)
        self.fled[which] = True
        self.wandering[which] = 0
