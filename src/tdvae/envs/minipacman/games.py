"""MiniPacman: many games at once, one array per quantity, each game exactly what it would be alone.

A step: the power timer falls by one; Pacman moves (a wall leaves him where he is) and eats what is there; then each
ghost in turn is met if Pacman stands on it, else moves with probability 0.5 + 0.1 (level - 1), half of it under power,
and is met if it came upon Pacman. So Pacman and a ghost cannot pass through one another. Meeting a ghost under power
eats it, otherwise it ends the game. Ghosts go on in corridors and never turn back at junctions; there they take the way
best aligned with Pacman (5 %: any way), under power always the least aligned.

Decided here, where the sources leave room:

- The two pills lie on different cells; Pacman may start on one, and ghosts may share a cell. The food and pill under
  Pacman at the start are eaten by the first step that leaves him there.
- A ghost starts facing one of the ways out of its cell, uniformly. Of equally aligned ways the first counts, in the
  order right, up, left, down.
- Eating a ghost ends the ghosts' turn: those after it neither move nor meet Pacman in this step. Eaten ghosts are back
  in the next level. Dying costs its reward once.
- A level that ends with the last food or pill ends at once: its ghosts get no turn. The next level is laid out within
  the same step, so that step's observation shows it: new food, pills, Pacman and ghosts, power 0. Nobody has moved yet.
- Death in the step in which "avoid" ends a level by time counts as death.
- A game that is over stands still under further steps and gets no reward, until it is restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.envs.minipacman.draws import Keys, below, keys_of, uniform
from tdvae.envs.minipacman.maze import (
    ACTIONS,
    CELLS,
    FAR_CELLS,
    FAR_COUNTS,
    FREE,
    GHOST_WAY,
    HEIGHT,
    MOVE,
    PLACE,
    STAY,
    TURN_COUNTS,
    TURNS,
    WALLS,
    WIDTH,
)
from tdvae.envs.minipacman.rules import (
    MAX_FRAMES,
    PILLS,
    POWER,
    STRAY,
    Cell,
    check_at_least_one,
    ghosts_at_level,
    mode_named,
)
from tdvae.errors import InputError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

ABSENT = -1
_START = 1 << 23  # numbers of the draws that lay out a level; the ghosts' moves use those from 0
_FRESH = np.append(np.where(WALLS, Cell.WALL, Cell.FOOD).reshape(-1), Cell.WALL).astype(np.uint8)


@dataclass(frozen=True)
class Outcome:
    """What a step brought to each game; terminated is death, truncated the end by the number of frames."""

    rewards: Floats
    terminated: Bools
    truncated: Bools


class Games:
    """A batch of games in one mode. The arrays may be read at any time; only ``step`` and ``restart`` change them."""

    def __init__(
        self,
        seeds: Sequence[int] | npt.NDArray[Any],
        mode: str = "regular",
        level: int = 1,
        max_frames: int = MAX_FRAMES,
    ) -> None:
        """One game per seed; ``level`` is the one to start with."""
        self.mode = mode_named(mode)
        check_at_least_one("level", level)
        check_at_least_one("max_frames", max_frames)
        self.keys: Keys = keys_of(seeds)
        n = len(self.keys)
        if n == 0:
            raise InputError("seeds: got none, expected one per game")
        self.first_level, self.max_frames = level, max_frames
        self.board = np.tile(_FRESH, (n, 1))
        """(N, 286) wall, empty, food or pill; the last column is the wall outside."""
        self.pacman, self.power, self.level, self.frame = (np.zeros(n, np.int64) for _ in range(4))
        self.level_frame, self.food_left, self.pills_left, self.ghosts_left = (np.zeros(n, np.int64) for _ in range(4))
        self.ghosts: Ints = np.full((0, n), ABSENT)
        """(G, N) cells, ``ABSENT`` if eaten or not in this level; G grows with the levels."""
        self.facing: Ints = np.zeros((0, n), np.int64)
        self.terminated, self.truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self._row = np.arange(n) * (CELLS + 1)
        self._begin(np.arange(n), self.level + level)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def over(self) -> Bools:
        return self.terminated | self.truncated

    @property
    def food(self) -> Bools:
        """(N, 15, 19) where food is left."""
        return (self.board[:, :CELLS] >= Cell.FOOD).reshape(-1, HEIGHT, WIDTH)

    @property
    def pills(self) -> Bools:
        """(N, 15, 19) where pills are left."""
        return (self.board[:, :CELLS] == Cell.PILL).reshape(-1, HEIGHT, WIDTH)

    @property
    def pacman_place(self) -> Ints:
        """(N, 2) row and column."""
        return PLACE[self.pacman]

    @property
    def ghost_places(self) -> Ints:
        """(N, G, 2) row and column; -1 if eaten or not in this level."""
        return PLACE[self.ghosts.T]

    def restart(self, games: Ints, seeds: Sequence[int] | npt.NDArray[Any]) -> None:
        """New games, from the first frame, in the places ``games``."""
        keys = keys_of(seeds)
        if len(keys) != len(games):
            raise InputError(f"seeds: got {len(keys)}, expected one for each of the {len(games)} games to restart")
        self.keys[games] = keys
        self.frame[games] = 0
        self.terminated[games] = self.truncated[games] = False
        self._begin(games, np.full(len(games), self.first_level))

    def step(self, actions: npt.ArrayLike) -> Outcome:
        """One action per game: 0 stay, 1 right, 2 up, 3 left, 4 down."""
        playing = ~self.over
        actions = np.where(playing, self._checked(actions), STAY)
        self.frame += playing
        self.level_frame += playing
        np.maximum(self.power - playing, 0, out=self.power)
        rewards = np.where(playing, self.mode.step, 0.0)
        self._move_pacman(actions, rewards)
        died = self._move_ghosts(playing & ~self._goal_reached(), rewards)
        rewards[died] += self.mode.death
        self.terminated |= died
        playing &= ~died
        self._end_levels(playing)
        self.truncated |= playing & (self.frame >= self.max_frames)
        return Outcome(rewards, self.terminated.copy(), self.truncated.copy())

    def _checked(self, actions: npt.ArrayLike) -> Ints:
        given = np.asarray(actions)
        if given.shape != (len(self),) or given.dtype.kind not in "iu":
            raise InputError(f"actions: got shape {given.shape} of {given.dtype}, expected ({len(self)},) of integers")
        if given.min() < 0 or given.max() >= len(ACTIONS):
            raise InputError(f"actions: got {given.min()} to {given.max()}, expected 0 to {len(ACTIONS) - 1}")
        return given.astype(np.int64)

    def _move_pacman(self, actions: Ints, rewards: Floats) -> None:
        self.pacman = MOVE[actions, self.pacman]
        cells = self.board.reshape(-1)
        where = self._row + self.pacman
        found = cells.take(where)
        cells[where] = Cell.EMPTY
        food, pill = found >= Cell.FOOD, found == Cell.PILL
        self.food_left -= food
        self.pills_left -= pill
        self.power[pill] = POWER
        rewards += self.mode.food * food
        rewards += self.mode.pill * pill

    def _move_ghosts(self, acting: Bools, rewards: Floats) -> Bools:
        """Every ghost's turn, in the games ``acting``; returns where Pacman died."""
        died = np.zeros(len(self), np.bool_)
        for ghost, cells in enumerate(self.ghosts):
            games = np.flatnonzero(acting & (cells != ABSENT))
            apart = cells[games] != self.pacman[games]
            self._move_ghost(ghost, games[apart])
            met = games[cells[games] == self.pacman[games]]
            acting[met] = False
            powered = self.power[met] > 0
            died[met[~powered]] = True
            eaten = met[powered]
            cells[eaten] = ABSENT
            self.ghosts_left[eaten] -= 1
            rewards[eaten] += self.mode.ghost
        return died

    def _move_ghost(self, ghost: int, games: Ints) -> None:
        power = self.power[games] > 0
        speed = (0.5 + 0.1 * (self.level[games] - 1)) * np.where(power, 0.5, 1.0)
        moves = uniform(self.keys[games], self.frame[games], 3 * ghost) < speed
        games, power = games[moves], power[moves]
        keys, frames = self.keys[games], self.frame[games]
        cells, facing, pacman = self.ghosts[ghost, games], self.facing[ghost, games], self.pacman[games]
        ways = GHOST_WAY[power.astype(np.int64), cells, facing, pacman]
        strays = np.flatnonzero(~power & (uniform(keys, frames, 3 * ghost + 1) < STRAY))
        if len(strays):
            at, to = cells[strays], facing[strays]
            ways[strays] = TURNS[at, to, below(TURN_COUNTS[at, to], keys[strays], frames[strays], 3 * ghost + 2)]
        self.facing[ghost, games] = ways
        self.ghosts[ghost, games] = MOVE[ways, cells]

    def _goal_reached(self) -> Bools:
        left = {"food": self.food_left, "pills": self.pills_left, "ghosts": self.ghosts_left}
        return left[self.mode.goal] == 0

    def _end_levels(self, playing: Bools) -> None:
        ended = self._goal_reached()
        if self.mode.level_frames is not None:
            ended |= self.level_frame >= self.mode.level_frames
        games = np.flatnonzero(ended & playing)
        if len(games):
            self._begin(games, self.level[games] + 1)

    def _begin(self, games: Ints, levels: Ints) -> None:
        """Lay out a level."""
        self.level[games] = levels
        self.power[games] = self.level_frame[games] = 0
        self.food_left[games], self.pills_left[games] = len(FREE), PILLS
        self._place(games)
        numbers = ghosts_at_level(int(levels.max())) if len(games) else 0
        if numbers > len(self.ghosts):
            more = ((0, numbers - len(self.ghosts)), (0, 0))
            self.ghosts = np.pad(self.ghosts, more, constant_values=ABSENT)
            self.facing = np.pad(self.facing, more)
        self.ghosts[:, games] = ABSENT
        self.ghosts_left[games] = 1 + (levels - 1) // 2
        for ghost in range(numbers):
            self._place_ghost(ghost, games[self.ghosts_left[games] > ghost])

    def _place(self, games: Ints) -> None:
        """Food everywhere, two pills on different cells, Pacman anywhere."""
        keys, frames = self.keys[games], self.frame[games]
        first = below(len(FREE), keys, frames, _START)
        second = (first + 1 + below(len(FREE) - 1, keys, frames, _START + 1)) % len(FREE)
        self.board[games] = _FRESH
        self.board[games, FREE[first]] = self.board[games, FREE[second]] = Cell.PILL
        self.pacman[games] = FREE[below(len(FREE), keys, frames, _START + 2)]

    def _place_ghost(self, ghost: int, games: Ints) -> None:
        keys, frames, pacman = self.keys[games], self.frame[games], self.pacman[games]
        number = _START + 3 + 2 * ghost
        cells = FAR_CELLS[pacman, below(FAR_COUNTS[pacman], keys, frames, number)]
        self.ghosts[ghost, games] = cells
        self.facing[ghost, games] = TURNS[cells, STAY, below(TURN_COUNTS[cells, STAY], keys, frames, number + 1)]
