"""The exact filter of MiniPacman: against the engine, against an enumeration of a small maze, and its calibration."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from tdvae.envs.minipacman import Games, Recording, record
from tdvae.envs.minipacman.maze import FREE, MOVE
from tdvae.envs.minipacman.rules import PILLS, POWER, STRAY, Cell
from tdvae.errors import InputError
from tdvae.exact import ExactGames, Maze, MiniPacmanFilter
from tdvae.exact.minipacman import SPEED, STEPS, GhostMemory

PLACE_AMONG_FREE = {int(cell): number for number, cell in enumerate(FREE)}
MAZE = Maze()


@pytest.fixture(scope="module")
def games() -> Recording:
    return record(150, 50, seed=21)


@pytest.fixture(scope="module")
def exact(games: Recording) -> ExactGames:
    return MiniPacmanFilter(MAZE).of_recording(games)


@pytest.mark.parametrize("power", [0, 10])
@pytest.mark.parametrize(
    ("ghost", "facing", "pacman"), [(3 * 19 + 1, 2, 7 * 19 + 5), (3 * 19 + 5, 1, 11 * 19 + 9), (5 * 19 + 8, 3, 20)]
)
def test_ghost_moves_as_in_the_engine(power: int, ghost: int, facing: int, pacman: int) -> None:
    """The frequencies of the ghost's next states in many games agree with the filter's transition (χ² test)."""
    count = 20_000
    engine = Games(np.arange(count))
    engine.pacman[:], engine.ghosts[0], engine.facing[0], engine.power[:] = pacman, ghost, facing, power
    engine.board[:, pacman] = Cell.EMPTY  # no pill to eat
    engine.step(np.zeros(count, np.int64))
    cells = np.vectorize(PLACE_AMONG_FREE.get)(engine.ghosts[0])
    seen = np.bincount(4 * cells + engine.facing[0] - 1, minlength=4 * (MAZE.cells + 1))
    state = 4 * PLACE_AMONG_FREE[ghost] + facing - 1
    ahead = torch.zeros(4 * (MAZE.cells + 1), dtype=torch.float64)
    ahead[MAZE.aligned[int(power > 1), PLACE_AMONG_FREE[pacman], state]] = 1
    if power <= 1:
        ahead = (1 - STRAY) * ahead + STRAY * MAZE.stray[state]
    speed = SPEED[int(power > 1)]
    expected = speed * ahead
    expected[state] += 1 - speed
    possible = expected.numpy() > 0
    assert seen[~possible].sum() == 0
    assert stats.chisquare(seen[possible], count * expected.numpy()[possible]).pvalue > 1e-4


def test_no_frame_is_impossible_and_the_limit_is_known(exact: ExactGames) -> None:
    """About .427 nats per frame, .71 of independent cells; all food follows from Pacman's path."""
    assert torch.isfinite(exact.surprise).all()
    assert float(exact.surprise.mean()) == pytest.approx(0.427, abs=0.03)
    assert float(exact.factorised.mean()) == pytest.approx(0.708, abs=0.04)
    assert float(exact.parts["food"].abs().max()) < 1e-9
    assert (exact.factorised.sum(1) > exact.surprise.sum(1)).float().mean() > 0.95


def test_belief_about_the_ghost_is_calibrated(games: Recording, exact: ExactGames) -> None:
    """On average the true cell costs the entropy of the belief, and it is never excluded."""
    assert games.truth is not None
    ghost = games.truth.ghosts[:, :, 0].astype(int)
    there = torch.as_tensor(ghost[..., 0] >= 0)
    cells = torch.as_tensor(
        np.vectorize(lambda cell: PLACE_AMONG_FREE.get(cell, 0))(ghost[..., 0] * 19 + ghost[..., 1])
    )
    p = exact.ghost.gather(2, cells[..., None])[..., 0]
    assert bool((p[there] > 0).all())
    entropy = -(exact.ghost * exact.ghost.clamp(min=1e-300).log()).sum(-1)
    difference = torch.where(there, -p.clamp(min=1e-300).log() - entropy, 0).mean(1)  # by game
    assert abs(float(difference.mean())) < 4 * float(difference.std()) / len(difference) ** 0.5


def test_place_known_from_few_frames(exact: ExactGames) -> None:
    assert float(exact.parts["place"][:, 0].mean()) > 3
    assert float(exact.parts["place"][:, 10:].mean()) < 0.005


@pytest.mark.parametrize("memory", ["last frame", "nothing"])
def test_remembering_less_of_the_ghost_costs_more(games: Recording, exact: ExactGames, memory: GhostMemory) -> None:
    less = MiniPacmanFilter(MAZE, memory).of_recording(games)
    assert float((less.parts["ghost"] - exact.parts["ghost"]).mean()) > 0.05
    assert torch.allclose(less.parts["pills"], exact.parts["pills"], atol=0.2)


def test_games_it_does_not_know(games: Recording) -> None:
    with pytest.raises(InputError, match="expected level 1, the only one known, got 3"):
        MiniPacmanFilter(MAZE).of_recording(record(2, 5, seed=1, level=3))
    with pytest.raises(InputError, match="expected windows of 5 × 5 classes"):
        MiniPacmanFilter(MAZE).of_recording(record(2, 5, seed=1, window=7))
    changed = games.x.copy()
    changed[0, 20, 0, 0] = Cell.PACMAN
    with pytest.raises(InputError, match="impossible one: number 21"):
        MiniPacmanFilter(MAZE).of_recording(replace(games, x=changed))


# --- A small maze, enumerated state by state: (Pacman, pills, food, power, ghost's cell and direction, or None) ---
TEXT = ("#######", "#.....#", "#.#.#.#", "#.....#", "#######")
WINDOW, NEAR = 3, 2
Place = tuple[int, int]
State = tuple[Place, frozenset[Place], frozenset[Place], int, tuple[Place, int] | None]
OPEN: list[Place] = [(y, x) for y, row in enumerate(TEXT) for x, cell in enumerate(row) if cell == "."]


def ahead(cell: Place, direction: int) -> Place:
    to = cell[0] + STEPS[direction][0], cell[1] + STEPS[direction][1]
    return to if to in OPEN else cell


def directions(cell: Place, facing: int) -> list[int]:
    exits = [d for d in range(1, 5) if ahead(cell, d) != cell]
    if len(exits) == 2 and facing in exits:
        return [facing]
    return [d for d in exits if d != {1: 3, 3: 1, 2: 4, 4: 2}[facing]]


def beginnings() -> Iterator[tuple[State, float]]:
    for pacman in OPEN:
        far = [c for c in OPEN if max(abs(c[0] - pacman[0]), abs(c[1] - pacman[1])) >= NEAR]
        for pills in itertools.combinations(OPEN, PILLS):
            for ghost in far:
                exits = [d for d in range(1, 5) if ahead(ghost, d) != ghost]
                for facing in exits:
                    p = 1 / len(OPEN) / 78 / len(far) / len(exits)
                    yield (pacman, frozenset(pills), frozenset(OPEN), 0, (ghost, facing)), p


def followers(state: State, action: int) -> list[tuple[State, float]]:
    """The states after a step with their probabilities; those in which Pacman died are left out."""
    pacman, pills, food, power, ghost = state
    pacman, power = ahead(pacman, action), max(power - 1, 0)
    power = POWER if pacman in pills else power
    pills, food = pills - {pacman}, food - {pacman}
    if ghost is None:
        return [((pacman, pills, food, power, None), 1.0)]
    cell, facing = ghost
    if cell == pacman:
        return [((pacman, pills, food, power, None), 1.0)] if power else []
    ways = directions(cell, facing)
    towards = {d: sum((b - a) * s for a, b, s in zip(cell, pacman, STEPS[d], strict=True)) for d in ways}
    best = max(ways, key=lambda d: (towards[d] if not power else -towards[d], -d))
    speed = 0.25 if power else 0.5
    chances = {d: (float(d == best) if power else 0.95 * (d == best) + 0.05 / len(ways)) for d in ways}
    after = [((cell, facing), 1 - speed), *(((ahead(cell, d), d), speed * p) for d, p in chances.items())]
    result: list[tuple[State, float]] = []
    for (to, way), p in after:
        if to != pacman:
            result.append(((pacman, pills, food, power, (to, way)), p))
        elif power:
            result.append(((pacman, pills, food, power, None), p))
    return [(s, p) for s, p in result if p > 0]


def frame(state: State) -> tuple[int, ...]:
    pacman, pills, food, power, ghost = state
    shown = []
    for dy, dx in itertools.product(range(-1, 2), repeat=2):
        cell = pacman[0] + dy, pacman[1] + dx
        if cell == pacman:
            shown.append(Cell.PACMAN)
        elif cell not in OPEN:
            shown.append(Cell.WALL)
        elif ghost is not None and ghost[0] == cell:
            shown.append(Cell.EDIBLE if power else Cell.GHOST)
        else:
            shown.append(Cell.PILL if cell in pills else Cell.FOOD if cell in food else Cell.EMPTY)
    return tuple(int(cell) for cell in shown)


def test_enumeration_of_a_small_maze() -> None:
    """Every state of a maze of 13 cells, frame by frame: density, that of independent cells, and the ghost."""
    drawn = random.Random(4)
    start = dict(beginnings())
    assert sum(start.values()) == pytest.approx(1)
    maze = Maze(np.array([[c == "#" for c in row] for row in TEXT]), WINDOW, NEAR)
    for _ in range(2):
        truth = drawn.choices(list(start), list(start.values()))[0]
        actions, frames = [0], [frame(truth)]
        while len(frames) < 6:
            action = drawn.randrange(5)
            options = followers(truth, action)
            if not options:
                continue
            truth = drawn.choices([s for s, _ in options], [p for _, p in options])[0]
            actions.append(action)
            frames.append(frame(truth))
        found = MiniPacmanFilter(maze).games(torch.tensor([frames]), torch.tensor([actions]))
        belief = start
        for t, shown in enumerate(frames):
            if t > 0:
                after: dict[State, float] = {}
                for state, p in belief.items():
                    for follower, q in followers(state, actions[t]):
                        after[follower] = after.get(follower, 0.0) + p * q
                survival = sum(after.values())
                belief = {state: p / survival for state, p in after.items()}
            chance = sum(p for state, p in belief.items() if frame(state) == shown)
            each = [sum(p for s, p in belief.items() if frame(s)[slot] == shown[slot]) for slot in range(9)]
            assert float(found.surprise[0, t]) == pytest.approx(-np.log(chance), abs=1e-9)
            assert float(found.factorised[0, t]) == pytest.approx(-np.log(each).sum(), abs=1e-9)
            belief = {state: p / chance for state, p in belief.items() if frame(state) == shown}
            present = sum(p for s, p in belief.items() if s[4] is not None)
            for number, cell in enumerate(OPEN):
                at = sum(p for s, p in belief.items() if s[4] is not None and s[4][0] == cell)
                assert float(found.ghost[0, t, number]) == pytest.approx(at / max(present, 1e-300), abs=1e-9)


def test_moves_agree_with_the_engine() -> None:
    for action, number in itertools.product(range(5), range(MAZE.cells)):
        assert int(MAZE.move[action, number]) == PLACE_AMONG_FREE[int(MOVE[action, FREE[number]])]
