"""Tests of the MiniPacman environment and its observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import tdvae.envs
from tdvae.envs.minipacman import MODES, N_CLASSES, PALETTE, Cell, Games, View, as_text, spawn
from tdvae.envs.minipacman.env import MiniPacmanEnv
from tdvae.envs.minipacman.games import ABSENT
from tdvae.envs.minipacman.maze import MAP

ID = "tdvae/MiniPacman-v0"


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(ID, **settings)


# Gymnasium


def test_import_registers_the_environment() -> None:
    assert tdvae.envs.minipacman.Games is Games
    assert isinstance(make().unwrapped, MiniPacmanEnv)
    assert isinstance(gymnasium.make(f"tdvae.envs:{ID}").unwrapped, MiniPacmanEnv)


@pytest.mark.parametrize("observation", ["classes", "powers", "rgb"])
@pytest.mark.parametrize("window", [5, None])
@pytest.mark.parametrize("render_mode", [None, "rgb_array", "ansi"])
def test_gymnasium_checker(observation: str, window: int | None, render_mode: str | None) -> None:
    check_env(make(observation=observation, window=window, render_mode=render_mode).unwrapped)


@pytest.mark.parametrize("mode", MODES)
def test_environment_equals_a_batch_of_one_game(mode: str) -> None:
    env, games, view = make(mode=mode, level=3, max_frames=60), Games([11], mode, 3, max_frames=60), View(5)
    random = np.random.default_rng(0)
    observation, _ = env.reset(seed=11)
    assert np.array_equal(observation, view(games)[0])
    done = False
    while not done:
        action = int(random.integers(5))
        observation, reward, terminated, truncated, info = env.step(action)
        outcome = games.step([action])
        done = terminated or truncated
        assert np.array_equal(observation, view(games)[0])
        assert (reward, terminated, truncated) == (outcome.rewards[0], outcome.terminated[0], outcome.truncated[0])
        assert info["frame"] == games.frame[0]


def test_resets_without_a_seed_are_reproducible_and_differ() -> None:
    series = []
    for _ in range(2):
        env = make()
        env.reset(seed=5)
        series.append([tuple(env.reset()[1]["pacman"]) for _ in range(6)])
    assert series[0] == series[1]
    assert len(set(series[0])) > 1


def test_info_contains_the_full_state() -> None:
    env = make(window=None, level=5)
    observation, info = env.reset(seed=2)
    for action in [1, 2, 3, 4] * 5:
        observation, _, done, _, info = env.step(action)
        if done:
            break
    assert tuple(info["pacman"]) == tuple(np.argwhere(observation == Cell.PACMAN)[0])
    assert info["ghosts"].shape == (3, 2)
    shown = {tuple(place) for place in info["ghosts"]} - {tuple(info["pacman"])}
    assert shown == {tuple(place) for place in np.argwhere(observation >= Cell.GHOST)}
    assert info["food"].sum() + info["eaten"].sum() == 138
    assert info["eaten"].any()
    assert (info["pills"] <= info["food"]).all()
    assert (info["level"], info["power"]) == (5, 0)


def test_changes_of_info_do_not_change_the_game() -> None:
    env = make()
    _, info = env.reset(seed=3)
    for value in info.values():
        if isinstance(value, np.ndarray):
            value[...] = 0
    assert env.step(0)[4]["food"].sum() == 137


def test_ansi_rendering() -> None:
    env = make(render_mode="ansi")
    env.reset(seed=1)
    text = env.render()
    assert isinstance(text, str)
    status, *rows = text.splitlines()
    assert status == "level 1  power 0  frame 0"
    assert "".join(rows).translate(str.maketrans("oPG", "...")) == "".join(MAP)
    assert sorted("".join(rows).translate(str.maketrans("", "", "#."))) in (list("GPoo"), list("GPo"), list("GP"))


def test_rendered_image_is_darker_outside_the_window() -> None:
    image = {}
    for window in (5, None):
        env = make(render_mode="rgb_array", window=window)
        _, info = env.reset(seed=1)
        image[window] = np.asarray(env.render())[::16, ::16]
    row, column = info["pacman"]
    near = np.zeros((15, 19), bool)
    near[max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3] = True
    assert np.array_equal(image[5][near], image[None][near])
    assert np.array_equal(image[5][~near], image[None][~near] // 3)
    assert image[None][row, column].tolist() == [0, 255, 0]


def test_rendering_without_a_render_mode_returns_none() -> None:
    env = MiniPacmanEnv()
    env.reset(seed=0)
    assert env.render() is None


# Observations


@given(seed=st.integers(0, 2**32), window=st.sampled_from([1, 3, 5, 7, 15]))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=25)
def test_window_is_a_crop_of_the_padded_maze(seed: int, window: int) -> None:
    games = Games(spawn(seed, 4), level=9)
    for _ in range(3):
        games.step(np.arange(4) + 1)
    games.power[:2] = 7
    half = window // 2
    walled = np.pad(View(None)(games), ((0, 0), (half, half), (half, half)), constant_values=Cell.WALL)
    for shown, whole, (row, column) in zip(View(window)(games), walled, games.pacman_place, strict=True):
        assert np.array_equal(shown, whole[row : row + window, column : column + window])
        assert shown[half, half] == Cell.PACMAN


def test_colours_follow_the_priority_of_contents() -> None:
    games = Games(spawn(0, 3), level=3)
    games.pacman[:], games.ghosts[0], games.ghosts[1] = 20, 22, 20  # ghost 1 on Pacman's cell, ghost 0 on a pill
    games.board[:, [21, 22]] = Cell.FOOD, Cell.PILL
    games.board[:, 39] = Cell.EMPTY
    games.power[:] = [0, 10, 20]
    rgb = View(None, "rgb")(games) / 255
    for shown, power in zip(rgb, (0.0, 0.5, 1.0), strict=True):
        assert shown[0, 0].tolist() == [1, 1, 1]
        assert shown[1, 1].tolist() == [0, 1, 0]
        assert shown[1, 2].tolist() == [0, 0, 1]
        assert shown[1, 3] == pytest.approx([1, power, 0], abs=0.5 / 255)
        assert shown[2, 1].tolist() == [0, 0, 0]
    games.ghosts[:] = ABSENT
    assert (View(None, "rgb")(games)[:, 1, 3] == [0, 255, 255]).all()


def test_powers_match_the_colours_and_classes_are_coarser() -> None:
    games = Games(spawn(0, 300), level=9)
    games.power[:] = np.arange(300) % 21
    powers, classes, rgb = (View(None, kind)(games) for kind in ("powers", "classes", "rgb"))
    assert np.array_equal(PALETTE[powers], rgb)
    assert len(np.unique(PALETTE, axis=0)) == N_CLASSES["powers"] == 26
    assert np.array_equal(np.minimum(powers, Cell.EDIBLE), classes)
    assert np.unique(classes).tolist() == [1, 2, 3, 4, 5, 6]
    assert N_CLASSES["classes"] == 7
    assert np.array_equal((powers - 5)[powers >= 5], np.repeat(games.power, (powers >= 5).sum(axis=(1, 2))))


def test_as_text() -> None:
    assert as_text(np.array([[0, 1, 2], [3, 4, 5], [6, 0, 0]], np.uint8)) == " #.\noPG\ne  "


# Invalid input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "easy"}, "mode: expected one of regular.*, got 'easy'"),
        ({"window": 4}, "window: expected an odd number from 1 to 15.*, got 4"),
        ({"window": 17}, "window: expected an odd number from 1 to 15.*, got 17"),
        ({"window": 0}, "window: .*got 0"),
        ({"window": 5.0}, r"window: .*got 5\.0"),
        ({"observation": "grey"}, "observation: expected one of classes, powers, rgb, got 'grey'"),
        ({"level": 0}, "level: .*got 0"),
        ({"max_frames": -3}, "max_frames: .*got -3"),
        ({"render_mode": "human"}, "render_mode: expected None, 'rgb_array' or 'ansi', got 'human'"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        MiniPacmanEnv(**settings)


@pytest.mark.parametrize("action", [5, -1, 1.0, None])
def test_invalid_action_raises(action: Any) -> None:
    env = MiniPacmanEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"^action: expected 0 to 4 \(stay, right, up, left, down\), got "):
        env.step(action)


def test_step_before_reset_or_after_the_end_raises() -> None:
    env = MiniPacmanEnv(max_frames=1)
    with pytest.raises(ValueError, match=r"^reset: expected a reset before the first step"):
        env.step(0)
    env.reset(seed=0)
    assert env.step(0)[3]
    with pytest.raises(ValueError, match=r"^step: expected a reset after the end of a game"):
        env.step(0)
    env.reset()
    env.step(0)
