"""The MiniPacman engine: many games in parallel, one array per quantity. A game does not depend on its batch.

In a step, the power timer decreases by one. Pacman moves, unless a wall blocks him, and eats what is in his cell. Then
the ghosts take their turns in order. A ghost on Pacman's cell meets him. Any other ghost moves with probability
0.5 + 0.1 (level - 1), or half of that under power, and meets him if it moved onto his cell. Pacman and a ghost can
therefore not pass through each other. When they meet, Pacman eats the ghost under power; otherwise the game ends.
Ghosts go straight on in corridors and never reverse at junctions. There they take the direction that is best aligned
with Pacman (with probability 5 %, any direction); under power, always the least aligned one.

Choices of this implementation where the sources are silent:

- The two pills are on different cells. Pacman may start on a pill, and ghosts may share a cell. Food and pill on
  Pacman's initial cell are not eaten at once, but in the first step that ends with him on that cell.
- The initial direction of a ghost is uniform over the exits of its cell. Of equally aligned directions the first one is
  taken, in the order right, up, left, down.
- After a ghost is eaten, the ghosts after it neither move nor meet Pacman in this step. Eaten ghosts return in the next
  level. The reward for death is given once.
- When the last food or pill ends a level, the ghosts have no turn in that step. The next level is laid out within the
  same step, and the observation of that step shows it: new food, pills, Pacman and ghosts, power 0, before any move.
- In mode "avoid", a death in the step in which the level would end by time counts as death.
- A game that is over does not change in further steps and has reward 0, until it is restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.envs.minipacman.draws import Keys, keys_of, uniform, uniform_int
from tdvae.envs.minipacman.maze import (
    ACTIONS,
    CELLS,
    FAR_CELLS,
    FAR_COUNTS,
    FREE,
    GHOST_DIRECTION,
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
_LAYOUT_DRAWS = 1 << 23  # number of the first draw for the layout of a level; the ghosts' moves use those from 0
_INITIAL_BOARD = np.append(np.where(WALLS, Cell.WALL, Cell.FOOD).reshape(-1), Cell.WALL).astype(np.uint8)


@dataclass(frozen=True)
class Outcome:
    """The result of a step for each game. Death terminates a game; the frame limit truncates it."""

    rewards: Floats
    terminated: Bools
    truncated: Bools


class Games:
    """A batch of games in one mode. The arrays are public, but only ``step`` and ``restart`` should change them."""

    def __init__(
        self,
        seeds: Sequence[int] | npt.NDArray[Any],
        mode: str = "regular",
        level: int = 1,
        max_frames: int = MAX_FRAMES,
    ) -> None:
        """Start one game per seed, at ``level``."""
        self.mode = mode_named(mode)
        check_at_least_one("level", level)
        check_at_least_one("max_frames", max_frames)
        self.keys: Keys = keys_of(seeds)
        n = len(self.keys)
        if n == 0:
            raise InputError("seeds: expected one seed per game, got none")
        self.first_level, self.max_frames = level, max_frames
        self.board = np.tile(_INITIAL_BOARD, (n, 1))
        """(N, 286) wall, empty, food or pill; the last column is the wall outside the map."""
        self.pacman, self.power, self.level, self.frame = (np.zeros(n, np.int64) for _ in range(4))
        self.level_frame, self.food_left, self.pills_left, self.ghosts_left = (np.zeros(n, np.int64) for _ in range(4))
        self.ghosts: Ints = np.full((0, n), ABSENT)
        """(G, N) cells; ``ABSENT`` if eaten or not in this level. G increases with the level."""
        self.facing: Ints = np.zeros((0, n), np.int64)
        self.terminated, self.truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self._row_offset = np.arange(n) * (CELLS + 1)
        self._begin_level(np.arange(n), self.level + level)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def over(self) -> Bools:
        return self.terminated | self.truncated

    @property
    def food(self) -> Bools:
        """(N, 15, 19) cells with food."""
        return (self.board[:, :CELLS] >= Cell.FOOD).reshape(-1, HEIGHT, WIDTH)

    @property
    def pills(self) -> Bools:
        """(N, 15, 19) cells with a pill."""
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
        """Replace the games with indices ``games`` by new ones."""
        keys = keys_of(seeds)
        if len(keys) != len(games):
            raise InputError(f"seeds: expected {len(games)}, one for each game to restart, got {len(keys)}")
        self.keys[games] = keys
        self.frame[games] = 0
        self.terminated[games] = self.truncated[games] = False
        self._begin_level(games, np.full(len(games), self.first_level))

    def step(self, actions: npt.ArrayLike) -> Outcome:
        """Take one action per game: 0 stay, 1 right, 2 up, 3 left, 4 down."""
        playing = ~self.over
        actions = np.where(playing, self._check_actions(actions), STAY)
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

    def _check_actions(self, actions: npt.ArrayLike) -> Ints:
        given = np.asarray(actions)
        if given.shape != (len(self),) or given.dtype.kind not in "iu":
            raise InputError(f"actions: expected shape ({len(self)},) of integers, got {given.shape} of {given.dtype}")
        if given.min() < 0 or given.max() >= len(ACTIONS):
            raise InputError(f"actions: expected 0 to {len(ACTIONS) - 1}, got {given.min()} to {given.max()}")
        return given.astype(np.int64)

    def _move_pacman(self, actions: Ints, rewards: Floats) -> None:
        self.pacman = MOVE[actions, self.pacman]
        cells = self.board.reshape(-1)
        index = self._row_offset + self.pacman
        contents = cells.take(index)
        cells[index] = Cell.EMPTY
        food, pill = contents >= Cell.FOOD, contents == Cell.PILL
        self.food_left -= food
        self.pills_left -= pill
        self.power[pill] = POWER
        rewards += self.mode.food * food
        rewards += self.mode.pill * pill

    def _move_ghosts(self, acting: Bools, rewards: Floats) -> Bools:
        """Take every ghost's turn in the games ``acting``; returns the games in which Pacman died."""
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
        directions = GHOST_DIRECTION[power.astype(np.int64), cells, facing, pacman]
        strays = np.flatnonzero(~power & (uniform(keys, frames, 3 * ghost + 1) < STRAY))
        if len(strays):
            at, to = cells[strays], facing[strays]
            choice = uniform_int(TURN_COUNTS[at, to], keys[strays], frames[strays], 3 * ghost + 2)
            directions[strays] = TURNS[at, to, choice]
        self.facing[ghost, games] = directions
        self.ghosts[ghost, games] = MOVE[directions, cells]

    def _goal_reached(self) -> Bools:
        left = {"food": self.food_left, "pills": self.pills_left, "ghosts": self.ghosts_left}
        return left[self.mode.goal] == 0

    def _end_levels(self, playing: Bools) -> None:
        ended = self._goal_reached()
        if self.mode.level_frames is not None:
            ended |= self.level_frame >= self.mode.level_frames
        games = np.flatnonzero(ended & playing)
        if len(games):
            self._begin_level(games, self.level[games] + 1)

    def _begin_level(self, games: Ints, levels: Ints) -> None:
        """Lay out a level in ``games``."""
        self.level[games] = levels
        self.power[games] = self.level_frame[games] = 0
        self.food_left[games], self.pills_left[games] = len(FREE), PILLS
        self._place_items(games)
        n_ghosts = ghosts_at_level(int(levels.max())) if len(games) else 0
        if n_ghosts > len(self.ghosts):
            padding = ((0, n_ghosts - len(self.ghosts)), (0, 0))
            self.ghosts = np.pad(self.ghosts, padding, constant_values=ABSENT)
            self.facing = np.pad(self.facing, padding)
        self.ghosts[:, games] = ABSENT
        self.ghosts_left[games] = 1 + (levels - 1) // 2
        for ghost in range(n_ghosts):
            self._place_ghost(ghost, games[self.ghosts_left[games] > ghost])

    def _place_items(self, games: Ints) -> None:
        """Put food on all free cells, two pills on different cells, and Pacman on a random cell."""
        keys, frames = self.keys[games], self.frame[games]
        first = uniform_int(len(FREE), keys, frames, _LAYOUT_DRAWS)
        second = (first + 1 + uniform_int(len(FREE) - 1, keys, frames, _LAYOUT_DRAWS + 1)) % len(FREE)
        self.board[games] = _INITIAL_BOARD
        self.board[games, FREE[first]] = self.board[games, FREE[second]] = Cell.PILL
        self.pacman[games] = FREE[uniform_int(len(FREE), keys, frames, _LAYOUT_DRAWS + 2)]

    def _place_ghost(self, ghost: int, games: Ints) -> None:
        keys, frames, pacman = self.keys[games], self.frame[games], self.pacman[games]
        number = _LAYOUT_DRAWS + 3 + 2 * ghost
        cells = FAR_CELLS[pacman, uniform_int(FAR_COUNTS[pacman], keys, frames, number)]
        self.ghosts[ghost, games] = cells
        self.facing[ghost, games] = TURNS[cells, STAY, uniform_int(TURN_COUNTS[cells, STAY], keys, frames, number + 1)]
