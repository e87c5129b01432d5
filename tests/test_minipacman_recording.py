"""The player plays sensibly and knows no more than it may; recordings are what was played."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from tdvae.envs.minipacman import MODES, Cell, Games, Player, PlayerSettings, Recording, View, record, recording, spawn
from tdvae.envs.minipacman.games import ABSENT
from tdvae.envs.minipacman.maze import DISTANCE, FREE, MOVE

CALM = PlayerSettings(roam=0.0, whim=0.0)


def play(n: int, steps: int, settings: PlayerSettings, level: int = 1, seed: int = 0) -> tuple[Games, Any]:
    games, player, score = Games(spawn(seed, n), level=level), Player(n, settings), np.zeros(n)
    for _ in range(steps):
        score += games.step(player(games)).rewards
    return games, score


# The player


def test_it_eats_far_more_than_chance_and_lives_longer() -> None:
    games, score = play(200, 200, PlayerSettings())
    random, luck = Games(spawn(0, 200)), np.zeros(200)
    for actions in np.random.default_rng(0).integers(0, 5, (200, 200)):
        luck += random.step(actions).rewards
    assert score.mean() > 5 * luck.mean()
    assert score.mean() > 100
    assert games.terminated.mean() < 0.1 < random.terminated.mean()


def test_without_whims_it_takes_the_shortest_way_to_the_nearest_food() -> None:
    games, player = Games(spawn(1, 300)), Player(300, CALM)
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


def test_it_runs_from_a_ghost_in_sight_and_hunts_it_under_power() -> None:
    n = 138 * 4
    games = Games(spawn(2, n))
    games.pacman[:] = np.tile(FREE, 4)
    games.ghosts[:] = np.concatenate([MOVE[way, MOVE[way, FREE]] for way in range(1, 5)])
    two_away = DISTANCE[games.pacman, games.ghosts[0]] == 2
    apart = DISTANCE[MOVE[Player(n, CALM)(games), games.pacman], games.ghosts[0]]
    assert (apart[two_away] == 3).all()
    games.power[:] = 9
    apart = DISTANCE[MOVE[Player(n, CALM)(games), games.pacman], games.ghosts[0]]
    assert (apart[two_away] == 1).all()
    games.power[:] = 2  # over before the ghost is reached
    apart = DISTANCE[MOVE[Player(n, CALM)(games), games.pacman], games.ghosts[0]]
    assert (apart[two_away] == 3).all()


def test_ghosts_out_of_sight_change_nothing() -> None:
    def actions(hidden: bool) -> Any:
        games, player = Games(spawn(3, 400), level=3), Player(400, PlayerSettings(sight=2))
        if hidden:
            games.ghosts[:] = ABSENT
        return player(games)

    assert np.array_equal(actions(False), actions(True))  # at the start all ghosts are at least 5 away


def test_it_roams_and_comes_back() -> None:
    # Nearly every game leaves its quarter of the maze, and many frames show cells eaten long ago.
    truth = record(200, 100, seed=4).truth
    assert truth is not None
    eaten = 138 - truth.food[:, -1].sum(axis=(1, 2))
    assert eaten.mean() > 60
    assert (np.ptp(truth.pacman[:, :, 1], axis=1) >= 9).mean() > 0.9


def test_each_whim_has_its_effect() -> None:
    base = play(100, 50, CALM)[0].pacman
    for changed in (PlayerSettings(roam=0.5, whim=0.0), PlayerSettings(roam=0.0, whim=0.2)):
        assert not np.array_equal(play(100, 50, changed)[0].pacman, base)


def test_without_food_it_walks_about() -> None:
    games, player = Games(spawn(5, 20), "hunt"), Player(20)
    games.board[:, FREE], games.food_left[:], games.ghosts[:] = Cell.EMPTY, 0, ABSENT
    games.ghosts_left[:] = 1
    visited = np.zeros((20, 286), bool)
    for _ in range(150):
        games.step(player(games))
        visited[np.arange(20), games.pacman] = True
    assert visited.sum(axis=1).min() > 30


def test_a_restarted_game_is_played_as_a_new_one() -> None:
    games, player = Games(spawn(6, 3)), Player(3)
    for _ in range(30):
        games.step(player(games))
    games.restart(np.array([1]), [77])
    alone, fresh = Games([77]), Player(1)
    for _ in range(30):
        games.step(player(games))
        alone.step(fresh(alone))
    assert games.pacman[1] == alone.pacman[0]
    assert np.array_equal(games.board[1], alone.board[0])


# Recordings


def same(a: Recording, b: Recording, n: int) -> bool:
    """Whether the first ``n`` sequences agree."""
    assert a.truth is not None
    assert b.truth is not None
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "truth"]
    pairs += [(getattr(a.truth, f.name), getattr(b.truth, f.name)) for f in fields(a.truth)]
    return all(np.array_equal(left[:n], right[:n]) for left, right in pairs)


@pytest.mark.parametrize("mode", MODES)
def test_a_recording_can_be_played_again(mode: str) -> None:
    tape = record(30, 40, seed=3, mode=mode, level=5, player=PlayerSettings(danger=0))
    truth = tape.truth
    assert truth is not None
    games, view = Games(spawn(3, 30), mode, 5), View(5)
    for t in range(40):
        real = t < tape.lengths
        if t:
            rewards = games.step(tape.actions[:, t].argmax(axis=-1)).rewards
            assert np.array_equal(tape.rewards[real, t], rewards[real].astype(np.float32))
        assert np.array_equal(tape.x[real, t], view(games)[real])
        assert np.array_equal(truth.pacman[real, t], games.pacman_place[real])
        assert np.array_equal(truth.food[real, t], games.food[real])
        assert np.array_equal(truth.power[real, t], games.power[real])
        assert np.array_equal(truth.level[real, t], games.level[real])
        count = len(games.ghosts)
        assert np.array_equal(truth.ghosts[real, t, :count], games.ghost_places[real])
        assert (truth.ghosts[:, t, count:] == ABSENT).all()
    assert np.array_equal(tape.died, games.terminated)
    assert tape.died.any()


def test_sequences_begin_without_an_action_and_end_with_death() -> None:
    tape = record(200, 30, seed=0, mode="hunt", level=9)
    real = np.arange(30) < tape.lengths[:, None]
    caused = tape.actions.sum(axis=-1)
    assert (caused[:, 0] == 0).all()
    assert np.array_equal(caused[:, 1:] == 1, real[:, 1:])
    assert (tape.rewards[:, 0] == 0).all()
    assert np.array_equal(tape.died, tape.lengths < 30) or tape.died[tape.lengths == 30].any()
    last = tape.rewards[np.arange(200), tape.lengths - 1]
    assert (last[tape.died] <= -19).all()
    assert 0 < tape.died.sum() < 200


def test_padding_is_empty() -> None:
    tape = record(200, 30, seed=0, level=9)
    padding = np.arange(30) >= tape.lengths[:, None]
    assert padding.any()
    assert tape.truth is not None
    for zeros in (tape.x, tape.actions, tape.rewards, tape.truth.food, tape.truth.power, tape.truth.level):
        assert not zeros[padding].any()
    assert (tape.truth.pacman[padding] == ABSENT).all()
    assert (tape.truth.ghosts[padding] == ABSENT).all()


def test_shapes_and_types() -> None:
    tape = record(4, 6, seed=0, level=3)
    assert tape.truth is not None
    arrays = {f.name: getattr(tape, f.name) for f in fields(tape) if f.name != "truth"}
    arrays |= {f"truth.{f.name}": getattr(tape.truth, f.name) for f in fields(tape.truth)}
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
    assert same(few, many, 7)
    assert not same(few, other, 7)
    monkeypatch.setattr(recording, "_BATCH", 3)
    assert same(many, record(20, 50, seed=8), 20)


def test_sequences_for_training() -> None:
    tape = record(5, 12, seed=1, level=9, truth=False)
    assert tape.truth is None
    data = tape.sequences()
    assert data.x.dtype == torch.int64
    assert data.x.tolist() == tape.x.tolist()
    assert data.lengths.tolist() == tape.lengths.tolist()
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
        ({"games": 0}, "games: got 0, expected a whole number of at least 1"),
        ({"steps": 0}, "steps: got 0, expected a whole number of at least 1"),
        ({"seed": -1}, "seed: got -1, expected a whole number from 0"),
        ({"mode": "easy"}, "mode: got 'easy'"),
        ({"window": 6}, "window: got 6, expected an odd number"),
    ],
)
def test_record_names_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        record(**({"games": 1, "steps": 1, "seed": 0} | changes))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("sight", -1, "whole"), ("danger", -1, "whole"), ("wander", -1, "whole"), ("roam", 1.5, "probability")],
)
def test_player_settings_name_what_is_wrong(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: got {value}, expected a {expected}"):
        PlayerSettings(**{name: value})


def test_a_player_is_made_for_a_number_of_games() -> None:
    with pytest.raises(ValueError, match=r"^games: got 2, expected the 3 this player was made for"):
        Player(3)(Games([0, 1]))
