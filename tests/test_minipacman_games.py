"""The maze, how a level starts, and the batch: no game knows of another. And what is refused."""

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


def test_map_facts() -> None:
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
def test_each_move_on_a_shortest_way_is_one_nearer(start: int, end: int) -> None:
    assert DISTANCE[start, end] == DISTANCE[end, start]
    assert DISTANCE[start, end] >= np.abs(PLACE[start] - PLACE[end]).sum()
    if start != end:
        assert DISTANCE[MOVE[TOWARDS[start, end], start], end] == DISTANCE[start, end] - 1


def test_ghosts_find_a_place_far_from_every_pacman() -> None:
    games = Games(spawn(0, 3000), level=9)
    apart = np.abs(games.ghost_places - games.pacman_place[:, None]).max(axis=-1)
    assert games.ghosts.shape == (5, 3000)
    assert apart.min() == 5
    assert np.isin(games.ghosts, FREE).all()
    assert len(np.unique(games.pacman)) == len(np.unique(games.ghosts)) == 138


def test_a_level_starts_with_food_everywhere_and_two_pills() -> None:
    games = Games(spawn(0, 3000))
    assert np.array_equal(games.food, np.broadcast_to(~WALLS, (3000, HEIGHT, WIDTH)))
    assert (games.pills.sum(axis=(1, 2)) == 2).all()
    assert games.pills.any(axis=0).sum() == 138
    assert (games.power == 0).all()


def test_a_ghost_starts_facing_a_way_out() -> None:
    games = Games(spawn(0, 3000))
    assert (MOVE[games.facing[0], games.ghosts[0]] != games.ghosts[0]).all()
    assert np.unique(games.facing).tolist() == [RIGHT, UP, LEFT, DOWN]


# The batch


@given(seed=st.integers(0, 2**64 - 1), mode=st.sampled_from(sorted(MODES)), level=st.integers(1, 9))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=15)
def test_a_game_is_the_same_alone_and_among_others(seed: int, mode: str, level: int) -> None:
    n, steps = 5, 60
    seeds = [seed, *spawn(seed, n - 1).tolist()]
    actions = (uniform(spawn(seed, steps * n), np.zeros(steps * n, np.int64), 0) * 5).astype(int).reshape(steps, n)
    together = Games(seeds, mode, level)
    alone = [Games([one], mode, level) for one in seeds]
    for step in actions:
        outcome = together.step(step)
        for n, game in enumerate(alone):
            assert game.step(step[n : n + 1]).rewards[0] == outcome.rewards[n]
    for n, game in enumerate(alone):
        count = len(game.ghosts)
        assert (together.ghosts[count:, n] == ABSENT).all()
        together_state, alone_state = state_of(together, n), state_of(game, 0)
        for which in (STATE.index("ghosts") - 1, STATE.index("facing") - 1):
            together_state[which] = together_state[which][:count]
        assert together_state == alone_state


def test_same_seed_same_game_other_seed_other_game() -> None:
    first, again, other = (Games([seed], level=5) for seed in (1, 1, 2))
    assert state_of(first, 0) == state_of(again, 0)
    assert state_of(first, 0) != state_of(other, 0)
    assert spawn(7, 3).tolist() == spawn(7, 9).tolist()[:3]


def test_the_outside_counts_as_wall() -> None:
    assert (Games([0]).board[:, OUTSIDE] == Cell.WALL).all()


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "easy"}, r"mode: got 'easy', expected one of regular, avoid, hunt, ambush, rush"),
        ({"seeds": []}, r"seeds: got none"),
        ({"seeds": [-1]}, r"seeds: got -1, expected a whole number from 0"),
        ({"seeds": [1.5]}, r"seeds: got 1\.5"),
        ({"level": 0}, r"level: got 0, expected a whole number of at least 1"),
        ({"max_frames": 0}, r"max_frames: got 0"),
    ],
)
def test_games_name_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}"):
        Games(**({"seeds": [0]} | arguments))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([5, 0], "actions: got 0 to 5, expected 0 to 4"),
        ([-1, 0], "actions: got -1 to 0, expected 0 to 4"),
        ([0], r"actions: got shape \(1,\) of int64, expected \(2,\) of integers"),
        ([0.0, 1.0], r"actions: got shape \(2,\) of float64, expected \(2,\) of integers"),
    ],
)
def test_actions_are_checked(actions: list[Any], message: str) -> None:
    games = Games([0, 1])
    before = state_of(games, 0)
    with pytest.raises(ValueError, match=f"^{message}"):
        games.step(actions)
    assert state_of(games, 0) == before


def test_restarting_needs_as_many_seeds_as_games() -> None:
    with pytest.raises(ValueError, match=r"^seeds: got 1, expected one for each of the 2 games"):
        Games([0, 1]).restart(np.array([0, 1]), [3])
