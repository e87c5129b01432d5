"""Tests of the maze, the layout of levels, the independence of games in a batch, and invalid input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tdvae.envs.minipacman import MODES, Cell, Games, spawn
from tdvae.envs.minipacman.draws import uniform
from tdvae.envs.minipacman.games import ABSENT
from tdvae.envs.minipacman.maze import DISTANCE, FREE, HEIGHT, MOVE, OUTSIDE, PLACE, TOWARDS, WALLS, WIDTH
from tests.test_minipacman_rules import DOWN, EXITS, LEFT, RIGHT, STATE, UP, state_of

# The map


def test_map_size_and_symmetry() -> None:
    assert WALLS.shape == (15, 19)
    assert WALLS.sum() == 147
    assert len(FREE) == 138
    assert np.array_equal(WALLS, WALLS[::-1])
    assert np.array_equal(WALLS, WALLS[:, ::-1])
    assert WALLS[[0, -1]].all()
    assert WALLS[:, [0, -1]].all()


def test_all_free_cells_are_connected_and_none_is_a_dead_end() -> None:
    assert DISTANCE[np.ix_(FREE, FREE)].max() < 100
    assert EXITS[FREE].min() == 2


@given(st.sampled_from(FREE.tolist()), st.sampled_from(FREE.tolist()))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=200)
def test_each_move_on_a_shortest_path_reduces_the_distance_by_one(start: int, end: int) -> None:
    assert DISTANCE[start, end] == DISTANCE[end, start]
    assert DISTANCE[start, end] >= np.abs(PLACE[start] - PLACE[end]).sum()
    if start != end:
        assert DISTANCE[MOVE[TOWARDS[start, end], start], end] == DISTANCE[start, end] - 1


def test_ghosts_start_far_from_pacman() -> None:
    games = Games(spawn(0, 3000), level=9)
    separation = np.abs(games.ghost_places - games.pacman_place[:, None]).max(axis=-1)
    assert games.ghosts.shape == (5, 3000)
    assert separation.min() == 5
    assert np.isin(games.ghosts, FREE).all()
    assert len(np.unique(games.pacman)) == len(np.unique(games.ghosts)) == 138


def test_level_starts_with_food_everywhere_and_two_pills() -> None:
    games = Games(spawn(0, 3000))
    assert np.array_equal(games.food, np.broadcast_to(~WALLS, (3000, HEIGHT, WIDTH)))
    assert (games.pills.sum(axis=(1, 2)) == 2).all()
    assert games.pills.any(axis=0).sum() == 138
    assert (games.power == 0).all()


def test_ghost_starts_facing_an_exit() -> None:
    games = Games(spawn(0, 3000))
    assert (MOVE[games.facing[0], games.ghosts[0]] != games.ghosts[0]).all()
    assert np.unique(games.facing).tolist() == [RIGHT, UP, LEFT, DOWN]


# The batch


@given(seed=st.integers(0, 2**64 - 1), mode=st.sampled_from(sorted(MODES)), level=st.integers(1, 9))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=15)
def test_game_is_the_same_alone_and_in_a_batch(seed: int, mode: str, level: int) -> None:
    n, steps = 5, 60
    seeds = [seed, *spawn(seed, n - 1).tolist()]
    actions = (uniform(spawn(seed, steps * n), np.zeros(steps * n, np.int64), 0) * 5).astype(int).reshape(steps, n)
    batch = Games(seeds, mode, level)
    singles = [Games([one], mode, level) for one in seeds]
    for step in actions:
        outcome = batch.step(step)
        for n, game in enumerate(singles):
            assert game.step(step[n : n + 1]).rewards[0] == outcome.rewards[n]
    for n, game in enumerate(singles):
        count = len(game.ghosts)
        assert (batch.ghosts[count:, n] == ABSENT).all()
        batch_state, single_state = state_of(batch, n), state_of(game, 0)
        for which in (STATE.index("ghosts") - 1, STATE.index("facing") - 1):
            batch_state[which] = batch_state[which][:count]
        assert batch_state == single_state


def test_game_depends_on_its_seed() -> None:
    first, again, other = (Games([seed], level=5) for seed in (1, 1, 2))
    assert state_of(first, 0) == state_of(again, 0)
    assert state_of(first, 0) != state_of(other, 0)
    assert spawn(7, 3).tolist() == spawn(7, 9).tolist()[:3]


def test_outside_of_the_map_is_wall() -> None:
    assert (Games([0]).board[:, OUTSIDE] == Cell.WALL).all()


# Invalid input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "easy"}, r"mode: expected one of regular, avoid, hunt, ambush, rush, got 'easy'"),
        ({"seeds": []}, r"seeds: .*got none"),
        ({"seeds": [-1]}, r"seeds: expected an integer from 0 .*, got -1"),
        ({"seeds": [1.5]}, r"seeds: .*got 1\.5"),
        ({"level": 0}, r"level: expected an integer of at least 1, got 0"),
        ({"max_frames": 0}, r"max_frames: .*got 0"),
    ],
)
def test_invalid_arguments_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}"):
        Games(**({"seeds": [0]} | arguments))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([5, 0], "actions: expected 0 to 4, got 0 to 5"),
        ([-1, 0], "actions: expected 0 to 4, got -1 to 0"),
        ([0], r"actions: expected shape \(2,\) of integers, got \(1,\) of int64"),
        ([0.0, 1.0], r"actions: expected shape \(2,\) of integers, got \(2,\) of float64"),
    ],
)
def test_invalid_actions_raise_and_change_nothing(actions: list[Any], message: str) -> None:
    games = Games([0, 1])
    before = state_of(games, 0)
    with pytest.raises(ValueError, match=f"^{message}"):
        games.step(actions)
    assert state_of(games, 0) == before


def test_restart_requires_one_seed_per_game() -> None:
    with pytest.raises(ValueError, match=r"^seeds: expected 2, one for each game to restart, got 1"):
        Games([0, 1]).restart(np.array([0, 1]), [3])
