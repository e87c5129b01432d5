"""A player for recordings: eats its way through the maze, runs from ghosts, hunts them under power, has whims.

It knows what a player behind a window can know: the maze, where it is and where it has eaten (food is everywhere at
first and only Pacman eats it, so that is the food map), its power, and the ghosts in sight. It forgets a ghost that
leaves its sight. So its actions tell a model nothing that past observations did not. ``sight=None`` sees every ghost.

- It heads for the nearest food, ties broken at random; for a random one with probability ``roam``, and always after a
  flight: so it crosses the maze and comes back to places it saw long ago. Without food left it walks about.
- With probability ``whim`` per step it wanders for up to ``wander`` steps, turning at random but never back.
- A ghost in sight within ``danger`` steps is fled: the move that keeps the nearest ghost farthest.
- A ghost in sight that can be reached before the power ends is hunted, if the mode rewards that.

It aims at food in every mode: in "avoid", "ambush" and "rush", which punish eating it, it explores rather than wins.
Every choice is drawn from the game's own key, so a game is played the same alone and among others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tdvae.envs.minipacman.draws import Keys, below, mix, splitmix64, uniform
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

_SALT = np.uint64(0x706C61796572)  # keeps the player's draws apart from the game's
_ORDERS = 256
_NOWHERE = np.uint16(2**16 - 1)


@dataclass(frozen=True)
class PlayerSettings:
    """How the player plays; the probabilities are per choice of a target (``roam``) and per step (``whim``)."""

    sight: int | None = 2
    """Ghosts are seen up to this many rows and columns away: 2 is a 5×5 window; None: all of them."""
    danger: int = 4
    roam: float = 0.1
    whim: float = 0.02
    wander: int = 8

    def __post_init__(self) -> None:
        for name in ("sight", "danger", "wander"):
            value = getattr(self, name)
            if not (value is None and name == "sight") and value < 0:
                raise InputError(f"{name}: got {value}, expected a whole number of at least 0")
        for name in ("roam", "whim"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"{name}: got {value}, expected a probability from 0 to 1")


def _random_orders() -> npt.NDArray[np.uint16]:
    """(256, 286) permutations, fixed for good: they break ties between equally near food."""
    index = np.arange(_ORDERS * (CELLS + 1), dtype=np.uint64)
    return splitmix64(np.array([_SALT]), index).reshape(_ORDERS, -1).argsort(axis=1).astype(np.uint16)


_ORDER = _random_orders()
_NEAR = np.minimum(DISTANCE, 126).astype(np.uint16) << np.uint16(9)  # distance first, then the order's 9 bits
_NEAR[OUTSIDE] = 0  # for a choice that does not look at distance
_IS_FREE = np.isin(np.arange(CELLS + 1), FREE)


class Player:
    """Plays every game of a batch; remembers per game where it is heading and whether it is wandering."""

    def __init__(self, n: int, settings: PlayerSettings | None = None) -> None:
        self.settings = settings or PlayerSettings()
        self.target = np.full(n, ABSENT)
        self.scared = np.zeros(n, np.bool_)
        self.heading, self.wandering = np.zeros(n, np.int64), np.zeros(n, np.int64)

    def __call__(self, games: Games) -> Ints:
        """(N,) the next action of each game."""
        if len(games) != len(self.target):
            raise InputError(f"games: got {len(games)}, expected the {len(self.target)} this player was made for")
        keys = mix(games.keys ^ _SALT)
        new = games.frame == 0
        self.target[new], self.scared[new], self.wandering[new] = ABSENT, False, 0
        self._aim(games, keys)
        ways = TOWARDS[games.pacman, self.target].astype(np.int64)
        self._wander(games, keys, ways)
        self._mind_ghosts(games, ways)
        return ways

    def _aim(self, games: Games, keys: Keys) -> None:
        """Choose a target where the old one is gone."""
        there = games.board[np.arange(len(games)), self.target] >= Cell.FOOD
        underway = (games.food_left == 0) & (self.target != games.pacman) & (self.target != ABSENT)
        which = np.flatnonzero(~(there | underway) | self.scared)
        keys, frames = keys[which], games.frame[which]
        wanted = games.board[which] >= Cell.FOOD
        nothing = games.food_left[which] == 0
        wanted[nothing] = _IS_FREE
        anywhere = (uniform(keys, frames, 0) < self.settings.roam) | nothing | self.scared[which]
        near = _NEAR[np.where(anywhere, OUTSIDE, games.pacman[which])]
        cost = _ORDER[below(_ORDERS, keys, frames, 1)] | near
        self.target[which] = np.where(wanted, cost, _NOWHERE).argmin(axis=1)
        self.scared[which] = False

    def _wander(self, games: Games, keys: Keys, ways: Ints) -> None:
        starts = np.flatnonzero((self.wandering == 0) & (uniform(keys, games.frame, 2) < self.settings.whim))
        self.wandering[starts] = below(self.settings.wander + 1, keys[starts], games.frame[starts], 3)
        self.heading[starts] = STAY
        which = np.flatnonzero(self.wandering)
        at, to = games.pacman[which], self.heading[which]
        chosen = TURNS[at, to, below(TURN_COUNTS[at, to], keys[which], games.frame[which], 4)]
        ways[which] = self.heading[which] = chosen
        self.wandering[which] -= 1

    def _mind_ghosts(self, games: Games, ways: Ints) -> None:
        """Overrule ``ways`` where a ghost in sight is to be hunted or fled."""
        seen = self._seen(games)
        steps = np.where(seen, DISTANCE[games.pacman, games.ghosts], 255)
        nearest, prey = steps.min(axis=0), games.ghosts[steps.argmin(axis=0), np.arange(len(games))]
        reachable = games.power > nearest
        if self.settings.danger:
            harmless = reachable & (games.mode.ghost >= 0)
            self._flee(games, seen, np.flatnonzero((nearest <= self.settings.danger) & ~harmless), ways)
        if games.mode.ghost > 0:
            hunts = np.flatnonzero(reachable)
            ways[hunts] = TOWARDS[games.pacman[hunts], prey[hunts]]

    def _seen(self, games: Games) -> npt.NDArray[np.bool_]:
        """(G, N) which ghosts are in sight."""
        present = games.ghosts != ABSENT
        if self.settings.sight is None:
            return present
        apart = np.abs(PLACE[games.ghosts] - PLACE[games.pacman]).max(axis=-1)
        return present & (apart <= self.settings.sight)

    def _flee(self, games: Games, seen: npt.NDArray[np.bool_], which: Ints, ways: Ints) -> None:
        moves = MOVE[:, games.pacman[which]]
        away = np.where(seen[:, which], DISTANCE[moves[:, None], games.ghosts[:, which]], 255).min(axis=1)
        wanted = np.arange(len(ACTIONS))[:, None] == ways[which]
        ways[which] = (2 * away.astype(np.int64) + wanted).argmax(axis=0)
        self.scared[which] = True
        self.wandering[which] = 0
