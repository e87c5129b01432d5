"""Tests of each rule of the game, in positions set up by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tdvae.envs.minipacman import Cell, Games, spawn
from tdvae.envs.minipacman.games import ABSENT
from tdvae.envs.minipacman.maze import (
    FREE,
    MOVE,
    TURN_COUNTS,
    WALLS,
    WIDTH,
    reverse,
)

STAY, RIGHT, UP, LEFT, DOWN = range(5)
EXITS = TURN_COUNTS[:, STAY]
STATE = ("board", "pacman", "power", "level", "frame", "ghosts", "facing", "terminated", "truncated", "food_left")


def cell(row: int, column: int) -> int:
    return row * WIDTH + column


def position(pacman: int, ghosts: list[int], mode: str = "regular", n: int = 1, **numbers: Any) -> Games:
    """``n`` games with Pacman and ghosts at given cells, one piece of food far away, and no pills."""
    games = Games(spawn(1, n), mode, level=2 * len(ghosts) - 1)
    games.board[:, FREE] = Cell.EMPTY
    games.board[:, cell(13, 17)] = Cell.FOOD
    games.food_left[:], games.pills_left[:] = 1, 2
    games.pacman[:], games.ghosts[:] = pacman, np.array(ghosts)[:, None]
    for name, value in numbers.items():
        getattr(games, name)[:] = value
    return games


def state_of(games: Games, n: int) -> list[Any]:
    return [getattr(games, name)[..., n].tolist() for name in STATE if name != "board"] + [games.board[n].tolist()]


# Pacman


@pytest.mark.parametrize(
    ("action", "expected"), [(STAY, (3, 3)), (RIGHT, (3, 4)), (UP, (2, 3)), (LEFT, (3, 2)), (DOWN, (4, 3))]
)
def test_actions_move_pacman(action: int, expected: tuple[int, int]) -> None:
    games = position(cell(3, 3), [cell(13, 1)])
    games.step([action])
    assert tuple(games.pacman_place[0]) == expected


@pytest.mark.parametrize("action", [UP, LEFT])
def test_walls_block(action: int) -> None:
    games = position(cell(1, 1), [cell(13, 17)])
    games.step([action])
    assert games.pacman[0] == cell(1, 1)


def test_food_is_eaten_once() -> None:
    games = position(cell(3, 3), [cell(13, 1)])
    games.board[:, cell(3, 4)], games.food_left[:] = Cell.FOOD, 2
    assert games.step([RIGHT]).rewards == 1
    assert games.food_left == 1
    assert games.step([STAY]).rewards == 0


@pytest.mark.parametrize(
    ("mode", "reward"), [("regular", 3.0), ("avoid", -5.0), ("hunt", 1.0), ("ambush", -0.1), ("rush", 9.9)]
)
def test_pill_cell_contains_food_and_gives_power_for_20_steps(mode: str, reward: float) -> None:
    games = position(cell(3, 3), [cell(13, 1)], mode)
    games.board[:, cell(3, 4)], games.food_left[:] = Cell.PILL, 2
    assert games.step([RIGHT]).rewards == pytest.approx(reward)
    assert (games.power[0], games.pills_left[0], games.food_left[0]) == (20, 1, 1)
    powers = []
    for _ in range(22):
        games.ghosts[:], games.terminated[:] = cell(13, 1), False
        games.step([STAY])
        powers.append(int(games.power[0]))
    assert powers == [*range(19, -1, -1), 0, 0]


# Meeting ghosts


@pytest.mark.parametrize(("mode", "reward"), [("regular", 0.0), ("avoid", -19.9), ("hunt", -20.0), ("rush", 0.0)])
def test_walking_onto_a_ghost_ends_the_game(mode: str, reward: float) -> None:
    games = position(cell(3, 3), [cell(3, 4)], mode)
    outcome = games.step([RIGHT])
    assert outcome.terminated
    assert not outcome.truncated
    assert outcome.rewards == pytest.approx(reward)


def test_pacman_and_ghost_cannot_swap_cells() -> None:
    games = position(cell(3, 8), [cell(3, 9)], n=200, facing=LEFT)
    games.step(np.full(200, RIGHT))
    assert games.terminated.all()
    assert (games.ghosts == cell(3, 9)).all()  # they met before it could move


def test_ghost_that_moves_onto_pacman_ends_the_game() -> None:
    games = position(cell(3, 8), [cell(3, 9)], n=200, facing=LEFT)
    games.step(np.full(200, STAY))
    assert np.array_equal(games.terminated, games.ghosts[0] == cell(3, 8))
    assert 60 < games.terminated.sum() < 140  # it moves with probability 0.5


@pytest.mark.parametrize(("mode", "reward"), [("regular", 5.0), ("avoid", -9.9), ("ambush", 10.0), ("rush", 0.0)])
def test_ghost_is_eaten_under_power(mode: str, reward: float) -> None:
    games = position(cell(3, 3), [cell(3, 4), cell(13, 1)], mode, power=5)
    outcome = games.step([RIGHT])
    assert outcome.rewards == pytest.approx(reward)
    assert not outcome.terminated
    assert games.ghosts[:, 0].tolist()[0] == ABSENT
    assert games.ghosts_left == 1


def test_eating_a_ghost_ends_the_turn_of_the_ghosts() -> None:
    near, far = cell(3, 4), cell(13, 1)
    games = position(cell(3, 3), [near, near, far], n=50, power=9)
    rewards = games.step(np.full(50, RIGHT)).rewards
    assert (rewards == 5).all()
    assert np.array_equal(games.ghosts, np.tile([[ABSENT], [near], [far]], (1, 50)))
    assert (games.step(np.full(50, STAY)).rewards == 5).all()
    assert (games.ghosts_left == 1).all()


def test_power_ends_when_the_timer_reaches_zero() -> None:
    games = position(cell(3, 3), [cell(3, 4)], n=2)
    games.power[:] = [2, 1]
    assert games.step([RIGHT, RIGHT]).terminated.tolist() == [False, True]


# How ghosts move


@pytest.mark.parametrize(("level", "power"), [(1, 0), (1, 9), (3, 0), (3, 9), (6, 0), (6, 9)])
def test_ghost_speed(level: int, power: int) -> None:
    n = 4000
    games = Games(spawn(2, n), level=level)
    games.power[:] = power
    before = games.ghosts.copy()
    games.step(np.full(n, STAY))
    speed = (0.5 + 0.1 * (level - 1)) / (2 if power else 1)
    powered = games.power > 0
    moved = (games.ghosts != before)[:, powered == (power > 0)].mean()
    assert abs(moved - speed) < 5 * np.sqrt(speed * (1 - speed) / n) + 1e-9


def test_ghosts_never_reverse_and_go_straight_in_corridors() -> None:
    n = 500
    games = Games(spawn(3, n), "rush", level=8)
    for _ in range(60):
        games.power[:] = np.arange(n) % 3  # without and with power
        cells, facing, level = games.ghosts.copy(), games.facing.copy(), games.level.copy()
        games.step(np.full(n, STAY))
        same = (games.level == level) & (games.ghosts != ABSENT) & (cells != ABSENT)
        moved = same & (games.ghosts != cells)
        assert np.array_equal(games.ghosts[moved], MOVE[games.facing[moved], cells[moved]])
        reversed_ = np.isin(
            games.facing[moved] * 10 + facing[moved], [direction * 10 + reverse(direction) for direction in range(1, 5)]
        )
        assert not reversed_.any()
        straight = moved & (MOVE[facing, cells] != cells) & (EXITS[cells] == 2)
        assert np.array_equal(games.facing[straight], facing[straight])


@pytest.mark.parametrize("power", [0, 9])
def test_ghost_chases_at_a_junction_and_flees_under_power(power: int) -> None:
    # The ghost is at the junction (3, 3) and comes from the left; Pacman is to the right and further down.
    n = 20_000
    games = position(cell(5, 13), [cell(3, 3)], n=n, facing=RIGHT, power=power)
    games.step(np.full(n, STAY))
    directions = games.facing[0][games.ghosts[0] != cell(3, 3)]
    share = {direction: np.mean(directions == direction) for direction in (RIGHT, UP, LEFT, DOWN)}
    assert share[LEFT] == 0
    if power:
        assert share[UP] == 1  # under power, ghosts never stray
    else:
        for direction, expected in ((RIGHT, 0.95 + 0.05 / 3), (UP, 0.05 / 3), (DOWN, 0.05 / 3)):
            assert abs(share[direction] - expected) < 5 * np.sqrt(expected * (1 - expected) / len(directions))


def test_first_of_equally_aligned_directions_is_taken() -> None:
    games = position(cell(1, 5), [cell(3, 3)], n=400, facing=RIGHT)  # up and right are equally aligned
    games.step(np.full(400, STAY))
    directions = games.facing[0][games.ghosts[0] != cell(3, 3)]
    assert np.mean(directions == RIGHT) > 0.9


# Levels and ends


@pytest.mark.parametrize(
    ("mode", "setup"),
    [
        ("regular", {"food_left": 1, "pacman": cell(13, 16)}),
        ("avoid", {"food_left": 1, "pacman": cell(13, 16)}),
        ("avoid", {"level_frame": 127}),
        ("hunt", {"power": 5, "pacman": cell(3, 3)}),
        ("ambush", {"power": 5, "pacman": cell(3, 3)}),
        ("rush", {"pills_left": 1, "board": None, "pacman": cell(13, 16)}),
    ],
)
def test_end_of_a_level_starts_the_next(mode: str, setup: dict[str, Any]) -> None:
    games = position(cell(9, 9), [cell(3, 4)], mode)
    if "board" in setup:
        games.board[:, cell(13, 17)] = setup.pop("board") or Cell.PILL
    for name, value in setup.items():
        getattr(games, name)[:] = value
    outcome = games.step([RIGHT])
    assert not (outcome.terminated | outcome.truncated)
    assert (games.level[0], games.power[0], games.level_frame[0], games.frame[0]) == (2, 0, 0, 1)
    assert np.array_equal(games.food[0], ~WALLS)
    assert (games.pills.sum(), games.food_left[0], games.pills_left[0], games.ghosts_left[0]) == (2, 138, 2, 1)


@pytest.mark.parametrize(("mode", "goal"), [("regular", "ghosts"), ("hunt", "food"), ("ambush", "pills")])
def test_only_the_goal_of_the_mode_ends_a_level(mode: str, goal: str) -> None:
    games = position(cell(3, 3), [cell(13, 1)], mode, **{f"{goal}_left": 0})
    if goal == "ghosts":
        games.ghosts[:] = ABSENT
    games.step([STAY])
    assert games.level == 1


def test_last_food_ends_the_level_before_the_ghosts_move() -> None:
    games = position(cell(13, 16), [cell(13, 17)])
    outcome = games.step([RIGHT])
    assert outcome.rewards == 1
    assert not outcome.terminated
    assert games.level == 2


def test_death_takes_precedence_over_the_end_of_a_level_by_time() -> None:
    games = position(cell(3, 3), [cell(3, 4)], "avoid", level_frame=127)
    assert games.step([RIGHT]).terminated
    assert games.level == 1


def test_number_of_ghosts_increases_every_second_level() -> None:
    games = Games(spawn(0, 50), "rush")
    counts = []
    for _ in range(6):
        counts.append(np.unique(games.ghosts_left).item())
        games.board[:, FREE], games.pills_left[:] = Cell.FOOD, 0
        games.step(np.zeros(50, int))
    assert counts == [1, 1, 2, 2, 3, 3]
    assert ((games.ghosts != ABSENT).sum(axis=0) == games.ghosts_left).all()


@pytest.mark.parametrize("limit", [3000, 7])
def test_frame_limit_truncates(limit: int) -> None:
    games = Games([0]) if limit == 3000 else Games([0], max_frames=limit)
    for frame in range(limit):
        assert not games.over
        games.ghosts[:] = ABSENT
        outcome = games.step([frame % 5])
    assert outcome.truncated
    assert not outcome.terminated


def test_game_that_is_over_does_not_change_until_restart() -> None:
    games = position(cell(3, 3), [cell(3, 4)], "avoid")
    games.step([RIGHT])
    before = state_of(games, 0)
    assert games.step([LEFT]).rewards == 0
    assert state_of(games, 0) == before
    games.restart(np.array([0]), [9])
    assert state_of(games, 0) == state_of(Games([9], "avoid"), 0)
