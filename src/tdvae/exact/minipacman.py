"""Exact inference in MiniPacman, level 1, with known rules: what can be known about the next frame and about the ghost.

The filter keeps weighted hypotheses: Pacman's place and power, and what every cell contains. Given a hypothesis, the
belief about the ghost is a table over its cell and direction, and the pills that were not found yet are equally likely
in all cells where one could still be. A hypothesis that a frame contradicts is dropped; after the first frames few are
left. The density of a frame is given that the game goes on. The tables are computed here from the walls, independently
of the engine, so that a test can compare the two, and small mazes can be enumerated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from tdvae.envs.minipacman import Recording
from tdvae.envs.minipacman.maze import FAR, WALLS
from tdvae.envs.minipacman.rules import PILLS, POWER, STRAY, Cell
from tdvae.errors import InputError

STEPS = ((0, 0), (0, 1), (-1, 0), (0, -1), (1, 0))  # stay, right, up, left, down
SPEED = (0.5, 0.25)  # probability that the ghost moves in level 1, without power and under power
UNKNOWN, FOOD, PILL, EMPTY, WALL = range(5)  # what a hypothesis knows of a cell; UNKNOWN: food that may hide a pill
AT_ONCE = 100  # games
PARTS = ("place", "food", "ghost", "pills")
# What the ghost's next place is predicted from: all of the past, the last frame alone, or nothing.
GhostMemory = Literal["exact", "last frame", "nothing"]


class Maze:
    """Tables of a maze. The F free cells are numbered in order; F stands for all walls. A ghost's state is
    4 · cell + direction - 1."""

    def __init__(self, walls: npt.NDArray[np.bool_] = WALLS, window: int = 5, far: int = FAR) -> None:
        self.places = np.argwhere(~walls)
        self.cells = len(self.places)
        number = np.full(walls.shape, self.cells)
        number[~walls] = np.arange(self.cells)
        padded = np.pad(number, window, constant_values=self.cells)

        def beside(offsets: npt.NDArray[np.int64]) -> Tensor:
            """(F, n) the cells at n offsets from each free cell."""
            return torch.tensor(padded[tuple(np.moveaxis(self.places[:, None] + window + offsets, -1, 0))])

        ahead, here = beside(np.array(STEPS)), torch.arange(self.cells)[:, None]
        self.move = torch.where(ahead == self.cells, here, ahead).T  # (5, F)
        side = np.arange(window) - window // 2
        self.view = beside(np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2))  # (F, window²)
        self.stray, self.aligned = self._ghost_moves()
        exits = torch.tensor([[d in self._exits(cell) for d in range(1, 5)] for cell in range(self.cells)]).double()
        apart = torch.tensor(np.abs(self.places[:, None] - self.places).max(-1) >= far)
        start = (apart[..., None] * exits / exits.sum(1, keepdim=True)).flatten(1)
        self.ghost_start = F.pad(start / start.sum(1, keepdim=True), (0, 4))  # by Pacman's place
        moved = self.stray.clone().fill_diagonal_(0).sum(0) > 0
        self.possible = (moved | (self.ghost_start.sum(0) > 0)).double()  # (states,) whether a ghost can have it

    def _exits(self, cell: int) -> list[int]:
        return [direction for direction in range(1, 5) if int(self.move[direction, cell]) != cell]

    def _turns(self, cell: int, facing: int) -> list[int]:
        """The directions a ghost may take: straight on in a corridor, all but the way back at a junction."""
        exits = self._exits(cell)
        if len(exits) == 2 and facing in exits:
            return [facing]
        return [direction for direction in exits if direction != (facing + 1) % 4 + 1]

    def _ghost_moves(self) -> tuple[Tensor, Tensor]:
        """(states, states) the transitions of a ghost that strays, and (2, F, states) the next state of one that goes
        towards Pacman, or away from him under power; the second index is Pacman's place."""
        states = 4 * (self.cells + 1)
        stray, aligned = torch.eye(states, dtype=torch.float64), torch.arange(states).repeat(2, self.cells, 1)
        for cell in range(self.cells):
            towards = (self.places - self.places[cell]) @ np.array(STEPS).T  # (F, 5)
            for facing in range(1, 5):
                turns = self._turns(cell, facing)
                if not turns:  # no ghost can be here in this direction
                    continue
                after = torch.tensor([4 * int(self.move[d, cell]) + d - 1 for d in turns])
                stray[4 * cell + facing - 1] = torch.zeros(states).double().index_fill(0, after, 1 / len(turns))
                for power, sign in enumerate((1, -1)):
                    best = (sign * towards[:, turns]).argmax(1)
                    aligned[power, :, 4 * cell + facing - 1] = after[torch.tensor(best)]
        return stray, aligned


@dataclass(frozen=True)
class _Hypotheses:
    """Rows of hypotheses about games; the weights of a game's rows sum to 1."""

    game: Tensor  # (R,)
    place: Tensor  # (R,) Pacman's
    weight: Tensor  # (R,)
    power: Tensor  # (R,) steps
    content: Tensor  # (R, F + 1)
    hidden: Tensor  # (R,) pills that were not found yet
    ghost: Tensor  # (R, states)
    eaten: Tensor  # (R,) probability that the ghost was eaten; with those of its states the sum is 1

    def rows(self, index: Tensor) -> _Hypotheses:
        return _Hypotheses(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @property
    def pill_share(self) -> Tensor:
        """(R,) probability that a cell where a pill could be has one."""
        return self.hidden / (self.content == UNKNOWN).sum(1).clamp(min=1).double()


@dataclass(frozen=True)
class ExactGames:
    """What exact inference says about N games of T frames, in nats."""

    parts: dict[str, Tensor]  # (N, T) each: −log p of the frame given the past, by what it is about
    factorised: Tensor  # (N, T) the same of the best predictor that scores the cells of a frame independently
    ghost: Tensor  # (N, T, F) the ghost's cell given all frames so far, and that it was not eaten

    @property
    def surprise(self) -> Tensor:
        """(N, T) −log p(x_t | x_<t)."""
        return torch.stack(list(self.parts.values())).sum(0)


class MiniPacmanFilter:
    """The exact filter. ``ghost`` limits what the ghost's next place is predicted from, for reference."""

    def __init__(self, maze: Maze | None = None, ghost: GhostMemory = "exact") -> None:
        self.maze, self.memory = maze or Maze(), ghost
        self.beside = torch.arange(self.maze.view.shape[1]) != self.maze.view.shape[1] // 2  # all but Pacman's cell

    def of_recording(self, recording: Recording) -> ExactGames:
        """Exact inference in recorded games of level 1 with windows of classes."""
        side = int(self.maze.view.shape[1] ** 0.5)
        if recording.x.shape[2:] != (side, side) or recording.x.max() > Cell.EDIBLE:
            raise InputError(f"recording: expected windows of {side} × {side} classes, got {recording.x.shape[2:]}")
        if recording.truth is not None and recording.truth.level.max() > 1:
            raise InputError(f"recording: expected level 1, the only one known, got {recording.truth.level.max()}")
        if recording.lengths.min() < recording.x.shape[1]:
            raise InputError(f"recording: expected {recording.x.shape[1]} frames, got {recording.lengths.min()}")
        return self.games(torch.as_tensor(recording.x).flatten(2).long(), torch.as_tensor(recording.actions).argmax(2))

    @torch.no_grad()
    def games(self, x: Tensor, actions: Tensor) -> ExactGames:
        """Of frames (N, T, window²) and actions (N, T), the first of which has no effect."""
        some = [self._games(*both) for both in zip(x.split(AT_ONCE), actions.split(AT_ONCE), strict=True)]
        parts = {name: torch.cat([part.parts[name] for part in some]) for name in PARTS}
        return ExactGames(parts, torch.cat([p.factorised for p in some]), torch.cat([p.ghost for p in some]))

    def _games(self, x: Tensor, actions: Tensor) -> ExactGames:
        rows, frames = self._start(len(x)), []
        for t in range(x.shape[1]):
            rows = rows if t == 0 else self._predict(rows, actions[:, t])
            rows, *costs = self._observe(rows, x[:, t])
            if not bool(torch.isfinite(costs[0]).all()):
                raise InputError(f"x: expected frames of level 1, got an impossible one: number {t + 1} of a game")
            ghost = _by_game(rows, rows.weight[:, None] * rows.ghost, len(x)).unflatten(1, (-1, 4)).sum(-1)[:, :-1]
            frames.append((*costs, ghost / ghost.sum(1, keepdim=True).clamp(min=1e-300)))
            rows = self._forget(rows, x[:, t])
        by_part, factorised, belief = (torch.stack(values, dim=1) for values in zip(*frames, strict=True))
        return ExactGames(dict(zip(PARTS, by_part.unbind(-1), strict=True)), factorised, belief)

    def _start(self, games: int) -> _Hypotheses:
        """Every place, in each of the games."""
        game, place = torch.ones(games, self.maze.cells).nonzero().T
        content = torch.full((len(game), self.maze.cells + 1), UNKNOWN)
        content[:, -1] = WALL
        weight = torch.full((len(game),), 1 / self.maze.cells, dtype=torch.float64)
        none = torch.zeros_like(game)
        ghost = self.maze.ghost_start[place]
        return _Hypotheses(game, place, weight, none, content, none + PILLS, ghost, none.double())

    def _predict(self, rows: _Hypotheses, actions: Tensor) -> _Hypotheses:
        """The step of the game: power, Pacman, the ghost."""
        rows = replace(rows, power=(rows.power - 1).clamp(min=0), place=self.maze.move[actions[rows.game], rows.place])
        rows = self._meet(self._eat(rows))
        under = (rows.power > 0).long()
        ahead = torch.zeros_like(rows.ghost).scatter_add(1, self.maze.aligned[under, rows.place], rows.ghost)
        strayed = (1 - STRAY) * ahead + STRAY * (rows.ghost @ self.maze.stray)
        speed = rows.ghost.new_tensor(SPEED)[under][:, None]
        moved = (1 - speed) * rows.ghost + speed * torch.where(under[:, None] > 0, ahead, strayed)
        rows = self._meet(replace(rows, ghost=moved))
        survival = rows.eaten + rows.ghost.sum(1)
        weight = rows.weight * survival
        weight = weight / _by_game(rows, weight, len(actions))[rows.game]
        return replace(rows, weight=weight, ghost=rows.ghost / survival[:, None], eaten=rows.eaten / survival)

    def _eat(self, rows: _Hypotheses) -> _Hypotheses:
        """Pacman eats what is in his cell. If that may be a pill, there is a hypothesis for each case."""
        before = rows.content.gather(1, rows.place[:, None])[:, 0]
        share = torch.where(before == UNKNOWN, rows.pill_share, (before == PILL).double())
        emptied = replace(rows, content=rows.content.scatter(1, rows.place[:, None], EMPTY))
        with_pill = replace(
            emptied,
            weight=rows.weight * share,
            power=torch.full_like(rows.power, POWER),
            hidden=rows.hidden - (before == UNKNOWN).long(),
        )
        cases = with_pill, replace(emptied, weight=rows.weight * (1 - share))
        both = _Hypotheses(*(torch.cat([getattr(c, name) for c in cases]) for name in rows.__dataclass_fields__))
        return both.rows((both.weight > 0).nonzero()[:, 0])

    @staticmethod
    def _meet(rows: _Hypotheses) -> _Hypotheses:
        """A ghost on Pacman's cell is eaten under power. Otherwise the game would end."""
        states = 4 * rows.place[:, None] + torch.arange(4)
        met = rows.ghost.gather(1, states).sum(1)
        eaten = rows.eaten + torch.where(rows.power > 0, met, 0)
        return replace(rows, ghost=rows.ghost.scatter(1, states, 0), eaten=eaten)

    def _observe(self, rows: _Hypotheses, x: Tensor) -> tuple[_Hypotheses, Tensor, Tensor]:
        """Condition on a frame: the hypotheses that remain, −log p by parts (N, 4), and that of independent cells."""
        cells, shown = self.maze.view[rows.place], x[rows.game]
        content, is_ghost = rows.content.gather(1, cells), shown >= Cell.GHOST
        open_ = (content != WALL) & self.beside
        ghost_at = rows.ghost.unflatten(1, (-1, 4)).sum(-1).gather(1, cells) * open_
        seen = is_ghost.any(1)
        unseen = (rows.eaten + rows.ghost.sum(1) - ghost_at.sum(1)).clamp(min=0)
        looks = torch.where(rows.power > 0, Cell.EDIBLE, Cell.GHOST)[:, None]
        at = torch.where(is_ghost & (shown == looks), ghost_at, 0).sum(1) * (is_ghost.sum(1) == 1)
        place = ((content == WALL) == (shown == Cell.WALL)).all(1) & ((shown == Cell.PACMAN) == ~self.beside).all(1)
        bare = open_ & ~is_ghost
        food = (~bare | ((content == EMPTY) == (shown == Cell.EMPTY))).all(1)
        new = bare & (content == UNKNOWN)
        pills = _pill_choice(rows, new, shown == Cell.PILL)
        pills = pills * (~bare | new | ((content == PILL) == (shown == Cell.PILL))).all(1)
        factors = torch.stack([place.double(), food.double(), torch.where(seen, at, unseen), pills], dim=1)
        weights = rows.weight[:, None] * factors.cumprod(1)
        totals = _by_game(rows, weights, len(x))
        before = torch.cat([torch.ones(len(x), 1), totals[:, :-1]], dim=1)
        independent = -torch.log(_by_game(rows, rows.weight[:, None] * self._each_cell(rows, shown, ghost_at), len(x)))

        found = torch.where(new, torch.where(shown == Cell.PILL, PILL, FOOD), content)
        covered = torch.where(seen[:, None], ~is_ghost, open_)  # cells in view without a ghost
        excluded = torch.zeros_like(rows.content, dtype=torch.bool).scatter(1, cells, covered & (content != WALL))
        excluded = excluded | (seen[:, None] & ~torch.zeros_like(excluded).scatter(1, cells, True))
        ghost = rows.ghost.masked_fill(excluded.repeat_interleave(4, dim=1), 0)
        eaten = torch.where(seen, 0, rows.eaten)
        total = (ghost.sum(1) + eaten).clamp(min=1e-300)
        rows = replace(
            rows,
            weight=weights[:, -1] / totals[rows.game, -1],
            content=rows.content.scatter(1, cells, found),
            hidden=rows.hidden - (new & (shown == Cell.PILL)).sum(1),
            ghost=ghost / total[:, None],
            eaten=eaten / total,
        )
        return rows.rows((rows.weight > 0).nonzero()[:, 0]), -torch.log(totals / before), independent.sum(1)

    def _each_cell(self, rows: _Hypotheses, shown: Tensor, ghost_at: Tensor) -> Tensor:
        """(R, window²) the probability of what each cell shows."""
        content = rows.content.gather(1, self.maze.view[rows.place])
        share = rows.pill_share[:, None]
        pill = torch.where(content == UNKNOWN, share, (content == PILL).double())
        food = torch.where(content == UNKNOWN, 1 - share, (content == FOOD).double())
        bare = torch.stack([(content == EMPTY).double(), (content == WALL).double(), food, pill], dim=-1)
        of_content = bare.gather(2, shown.clamp(max=int(Cell.PILL))[..., None])[..., 0] * (1 - ghost_at)
        looks = torch.where(rows.power > 0, Cell.EDIBLE, Cell.GHOST)[:, None]
        of_ghost = torch.where(shown == looks, ghost_at, 0)
        chances = torch.where(shown >= Cell.GHOST, of_ghost, of_content)
        return torch.where(self.beside, chances, (shown == Cell.PACMAN).double())

    def _forget(self, rows: _Hypotheses, x: Tensor) -> _Hypotheses:
        """Replace the belief about the ghost by one that remembers less."""
        if self.memory == "exact":
            return rows
        possible = self.maze.possible.repeat(len(rows.game), 1)
        if self.memory == "last frame":
            cells, is_ghost = self.maze.view[rows.place], x[rows.game] >= Cell.GHOST
            in_view = torch.zeros_like(rows.content, dtype=torch.bool).scatter(1, cells, True)
            at_ghost = torch.zeros_like(in_view).scatter(1, cells, is_ghost)
            kept = torch.where(is_ghost.any(1, keepdim=True), at_ghost, ~in_view)
            possible = possible * kept.repeat_interleave(4, dim=1)
        return replace(rows, ghost=possible / possible.sum(1, keepdim=True), eaten=torch.zeros_like(rows.eaten))


def _by_game(rows: _Hypotheses, values: Tensor, games: int) -> Tensor:
    """Sums of the rows' values over the hypotheses of each game."""
    return values.new_zeros(games, *values.shape[1:]).index_add(0, rows.game, values)


def _pill_choice(rows: _Hypotheses, new: Tensor, pill: Tensor) -> Tensor:
    """(R,) the probability of which of the newly seen cells have a pill: of all cells where pills could be, every
    choice of as many as are hidden is equally likely."""
    places, hidden = (rows.content == UNKNOWN).sum(1).double(), rows.hidden.double()
    seen, found = new.sum(1).double(), (new & pill).sum(1).double()

    def log_choices(n: Tensor, k: Tensor) -> Tensor:
        ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        return torch.where((k >= 0) & (k <= n), ways, -torch.inf)

    return torch.exp(log_choices(places - seen, hidden - found) - log_choices(places, hidden))
