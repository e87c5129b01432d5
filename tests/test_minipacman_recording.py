"""Tests of the scripted player and of recordings of played games."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from tdvae.envs.minipacman import MODES, Cell, Games, Player, PlayerSettings, Recording, View, record, recording, spawn
from tdvae.envs.minipacman.games import ABSENT
from tdvae.envs.minipacman.maze import DISTANCE, FREE, MOVE

NO_EXPLORATION = PlayerSettings(roam=0.0, whim=0.0)


def play(n: int, steps: int, settings: PlayerSettings, level: int = 1, seed: int = 0) -> tuple[Games, Any]:
    games, player, score = Games(spawn(seed, n), level=level), Player(n, settings), np.zeros(n)
    for _ in range(steps):
        score += games.step(player(games)).rewards
    return games, score


# The player


def test_player_scores_more_and_survives_longer_than_random_actions() -> None:
    games, score = play(200, 200, PlayerSettings())
    random, random_score = Games(spawn(0, 200)), np.zeros(200)
    for actions in np.random.default_rng(0).integers(0, 5, (200, 200)):
        random_score += random.step(actions).rewards
    assert score.mean() > 5 * random_score.mean()
    assert score.mean() > 100
    assert games.terminated.mean() < 0.1 < random.terminated.mean()


def test_player_takes_a_shortest_path_to_the_nearest_food() -> None:
    games, player = Games(spawn(1, 300)), Player(300, NO_EXPLORATION)
    games.ghosts[:] = ABSENT
    games.board[:, FREE[::3]], games.food_left[:] = Cell.EMPTY, 92
    for _ in range(40):
        nearest = np.where(games.board >= Cell.FOOD, DISTANCE[games.pacman], 255).min(axis=1)
        actions = player(games)
        assert (games.board[np.arange(300), player.target] >= Cell.FOOD).all()
        assert np.array_equal(DISTANCE[games.pacman, player.target], nearest)
        after = DISTANCE[MOVE[actions, games.pacman], player.target]
        assert np.array_equal(after, np.maximum(nearest, 1) - 1)
        games.step(actions)


def test_player_flees_from_a_visible_ghost_and_hunts_it_under_power() -> None:
    n = 138 * 4
    games = Games(spawn(2, n))
    games.pacman[:] = np.tile(FREE, 4)
    games.ghosts[:] = np.concatenate([MOVE[way, MOVE[way, FREE]] for way in range(1, 5)])
    two_away = DISTANCE[games.pacman, games.ghosts[0]] == 2
    distance = DISTANCE[MOVE[Player(n, NO_EXPLORATION)(games), games.pacman], games.ghosts[0]]
    assert (distance[two_away] == 3).all()
    games.power[:] = 9
    distance = DISTANCE[MOVE[Player(n, NO_EXPLORATION)(games), games.pacman], games.ghosts[0]]
    assert (distance[two_away] == 1).all()
    games.power[:] = 2  # ends before the ghost is reached
    distance = DISTANCE[MOVE[Player(n, NO_EXPLORATION)(games), games.pacman], games.ghosts[0]]
    assert (distance[two_away] == 3).all()


def test_player_ignores_ghosts_that_are_not_visible() -> None:
    def actions(hidden: bool) -> Any:
        games, player = Games(spawn(3, 400), level=3), Player(400, PlayerSettings(sight=2))
        if hidden:
            games.ghosts[:] = ABSENT
        return player(games)

    assert np.array_equal(actions(False), actions(True))  # all ghosts start at least 5 cells away


def test_player_crosses_the_maze() -> None:
    # In nearly every game the player crosses half of the maze.
    truth = record(200, 100, seed=4).truth
    assert truth is not None
    eaten = 138 - truth.food[:, -1].sum(axis=(1, 2))
    assert eaten.mean() > 60
    assert (np.ptp(truth.pacman[:, :, 1], axis=1) >= 9).mean() > 0.9


def test_roam_and_whim_change_the_game() -> None:
    baseline = play(100, 50, NO_EXPLORATION)[0].pacman
    for changed in (PlayerSettings(roam=0.5, whim=0.0), PlayerSettings(roam=0.0, whim=0.2)):
        assert not np.array_equal(play(100, 50, changed)[0].pacman, baseline)


def test_player_explores_without_food() -> None:
    games, player = Games(spawn(5, 20), "hunt"), Player(20)
    games.board[:, FREE], games.food_left[:], games.ghosts[:] = Cell.EMPTY, 0, ABSENT
    games.ghosts_left[:] = 1
    visited = np.zeros((20, 286), bool)
    for _ in range(150):
        games.step(player(games))
        visited[np.arange(20), games.pacman] = True
    assert visited.sum(axis=1).min() > 30


def test_player_treats_a_restarted_game_as_new() -> None:
    games, player = Games(spawn(6, 3)), Player(3)
    for _ in range(30):
        games.step(player(games))
    games.restart(np.array([1]), [77])
    single, new_player = Games([77]), Player(1)
    for _ in range(30):
        games.step(player(games))
        single.step(new_player(single))
    assert games.pacman[1] == single.pacman[0]
    assert np.array_equal(games.board[1], single.board[0])


# Recordings


def are_equal(a: Recording, b: Recording, n: int) -> bool:
    """Return whether the first ``n`` sequences are equal."""
    assert a.truth is not None
    assert b.truth is not None
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "truth"]
    pairs += [(getattr(a.truth, f.name), getattr(b.truth, f.name)) for f in fields(a.truth)]
    return all(np.array_equal(left[:n], right[:n]) for left, right in pairs)


@pytest.mark.parametrize("mode", MODES)
def test_recording_can_be_replayed(mode: str) -> None:
    recorded = record(30, 40, seed=3, mode=mode, level=5, player=PlayerSettings(danger=0))
    truth = recorded.truth
    assert truth is not None
    games, view = Games(spawn(3, 30), mode, 5), View(5)
    for t in range(40):
        real = t < recorded.lengths
        if t:
            rewards = games.step(recorded.actions[:, t].argmax(axis=-1)).rewards
            assert np.array_equal(recorded.rewards[real, t], rewards[real].astype(np.float32))
        assert np.array_equal(recorded.x[real, t], view(games)[real])
        assert np.array_equal(truth.pacman[real, t], games.pacman_place[real])
        assert np.array_equal(truth.food[real, t], games.food[real])
        assert np.array_equal(truth.power[real, t], games.power[real])
        assert np.array_equal(truth.level[real, t], games.level[real])
        count = len(games.ghosts)
        assert np.array_equal(truth.ghosts[real, t, :count], games.ghost_places[real])
        assert (truth.ghosts[:, t, count:] == ABSENT).all()
    assert np.array_equal(recorded.died, games.terminated)
    assert recorded.died.any()


def test_sequences_begin_without_an_action_and_end_with_death() -> None:
    recorded = record(200, 30, seed=0, mode="hunt", level=9)
    real = np.arange(30) < recorded.lengths[:, None]
    n_actions = recorded.actions.sum(axis=-1)
    assert (n_actions[:, 0] == 0).all()
    assert np.array_equal(n_actions[:, 1:] == 1, real[:, 1:])
    assert (recorded.rewards[:, 0] == 0).all()
    assert np.array_equal(recorded.died, recorded.lengths < 30) or recorded.died[recorded.lengths == 30].any()
    last = recorded.rewards[np.arange(200), recorded.lengths - 1]
    assert (last[recorded.died] <= -19).all()
    assert 0 < recorded.died.sum() < 200


def test_padding_values() -> None:
    recorded = record(200, 30, seed=0, level=9)
    padding = np.arange(30) >= recorded.lengths[:, None]
    assert padding.any()
    assert recorded.truth is not None
    for zeros in (
        recorded.x,
        recorded.actions,
        recorded.rewards,
        recorded.truth.food,
        recorded.truth.power,
        recorded.truth.level,
    ):
        assert not zeros[padding].any()
    assert (recorded.truth.pacman[padding] == ABSENT).all()
    assert (recorded.truth.ghosts[padding] == ABSENT).all()


def test_shapes_and_types() -> None:
    recorded = record(4, 6, seed=0, level=3)
    assert recorded.truth is not None
    arrays = {f.name: getattr(recorded, f.name) for f in fields(recorded) if f.name != "truth"}
    arrays |= {f"truth.{f.name}": getattr(recorded.truth, f.name) for f in fields(recorded.truth)}
    assert {name: (a.shape, str(a.dtype)) for name, a in arrays.items()} == {
        "x": ((4, 6, 5, 5), "uint8"),
        "actions": ((4, 6, 5), "float32"),
        "rewards": ((4, 6), "float32"),
        "lengths": ((4,), "int64"),
        "died": ((4,), "bool"),
        "truth.pacman": ((4, 6, 2), "int16"),
        "truth.ghosts": ((4, 6, 2, 2), "int16"),
        "truth.food": ((4, 6, 15, 19), "bool"),
        "truth.power": ((4, 6), "int16"),
        "truth.level": ((4, 6), "int16"),
    }


def test_more_games_do_not_change_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many, other = record(7, 50, seed=8), record(20, 50, seed=8), record(7, 50, seed=9)
    assert are_equal(few, many, 7)
    assert not are_equal(few, other, 7)
    monkeypatch.setattr(recording, "_BATCH", 3)
    assert are_equal(many, record(20, 50, seed=8), 20)


def test_sequences_for_training() -> None:
    recorded = record(5, 12, seed=1, level=9, truth=False)
    assert recorded.truth is None
    data = recorded.sequences()
    assert data.x.dtype == torch.int64
    assert data.x.tolist() == recorded.x.tolist()
    assert data.lengths.tolist() == recorded.lengths.tolist()
    assert data.actions is not None
    assert data.actions.shape == (5, 12, 5)
    assert data.rewards is not None
    colours = record(5, 12, seed=1, observation="rgb", window=None).sequences()
    assert colours.x.shape == (5, 12, 15, 19, 3)
    assert colours.x.dtype == torch.float32
    assert colours.x.max() == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"games": 0}, "games: expected an integer of at least 1, got 0"),
        ({"steps": 0}, "steps: expected an integer of at least 1, got 0"),
        ({"seed": -1}, "seed: expected an integer from 0 .*, got -1"),
        ({"mode": "easy"}, "mode: .*got 'easy'"),
        ({"window": 6}, "window: expected an odd number .*, got 6"),
    ],
)
def test_invalid_record_arguments_raise(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        record(**({"games": 1, "steps": 1, "seed": 0} | changes))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("sight", -1, "integer"), ("danger", -1, "integer"), ("wander", -1, "integer"), ("roam", 1.5, "probability")],
)
def test_invalid_player_settings_raise(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected an? {expected} .*, got {value}"):
        PlayerSettings(**{name: value})


def test_player_requires_its_number_of_games() -> None:
    with pytest.raises(ValueError, match=r"^games: expected 3, the number given to the player, got 2"):
        Player(3)(Games([0, 1]))
