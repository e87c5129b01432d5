"""Tests of the corridors: mazes, rays, frames, the environment, the agent that follows them and its recordings."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tdvae.data.recording import Recording
from tdvae.envs.corridors import CELL, STRIDE, TURNS, Maze, look, render
from tdvae.envs.corridors_walk import FORWARD, LEFT, RIGHT, Follower, Walk, record_walks, walk
from tdvae.envs.first_person.corridors import CorridorsEnv
from tdvae.errors import InputError


def hall(length: int = 7) -> Maze:
    """A straight corridor along x, open from cell 1 to cell ``length``."""
    walls = np.ones((length + 2, 3), bool)
    walls[1:-1, 1] = False
    return Maze(np.pad(walls, ((0, 0), (0, length - 1)), constant_values=True))


def test_all_rooms_of_a_maze_are_connected() -> None:
    for seed in range(5):
        maze = Maze.draw(5, np.random.default_rng(seed))
        reached, new = set(), {(1, 1)}
        while new:
            reached |= new
            steps = {(x + dx, y + dy) for x, y in new for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))}
            new = {cell for cell in steps if not maze.walls[cell]} - reached
        assert len(reached) == (~maze.walls).sum()
        assert maze.walls[[0, -1]].all()
        assert maze.walls[:, [0, -1]].all()


def test_rays_measure_distances_and_name_faces() -> None:
    maze, middle = hall(), 1.5 * CELL
    for heading, distance, face, cell in (
        (0.0, 7 * CELL - 1.0, 2, (8, 1)),  # the east end shows the face that looks west
        (math.pi, 1.0, 0, (0, 1)),
        (math.pi / 2, CELL / 2, 3, (1, 2)),
        (-math.pi / 2, CELL / 2, 1, (1, 0)),
    ):
        sight = look(maze, (CELL + 1.0, middle, heading), 63)
        assert sight.distance[0, 31] == pytest.approx(distance)
        assert sight.face[0, 31] == face
        assert tuple(sight.cell[0, 31]) == cell


def test_rays_agree_with_small_steps_along_them() -> None:
    random = np.random.default_rng(0)
    maze = Maze.draw(4, random)
    for cell in np.argwhere(~maze.walls)[::5]:
        pose = (*((cell + random.uniform(0.2, 0.8, 2)) * CELL), random.uniform(0, math.tau))
        sight = look(maze, pose, 8)
        for column in range(8):
            across = 1 - (2 * column + 1) / 8
            ray = np.array(
                [math.cos(pose[2]) - across * math.sin(pose[2]), math.sin(pose[2]) + across * math.cos(pose[2])]
            )
            t = 0.0
            while maze.is_open(*(np.array(pose[:2]) + t * ray)):
                t += 1e-3
            assert sight.distance[0, column] == pytest.approx(t, abs=3e-3)


def test_near_walls_are_higher_and_brighter() -> None:
    frames = render(hall(), [(x, 1.5 * CELL, 0.0) for x in (CELL + 1, 5 * CELL, 7 * CELL)], 64).astype(int)
    wall = np.abs(frames[:, :, 32] - frames[:, 32:33, 32]).sum(-1) == 0
    heights = wall.sum(1)
    assert heights.tolist() == sorted(heights.tolist())
    assert heights[1] == pytest.approx(64 / (3 * CELL), abs=1)
    assert frames[0, 32, 32].sum() < frames[2, 32, 32].sum()


def test_batches_of_frames_equal_single_ones() -> None:
    drawn = Walk.draw(3, 300)
    frames = drawn.frames(32)
    assert frames.shape == (300, 32, 32, 3)
    for t in (0, 127, 128, 299):
        assert np.array_equal(frames[t], render(drawn.maze, drawn.poses[t], 32)[0])


def test_environment_shows_what_the_walk_of_its_seed_shows() -> None:
    drawn, env = Walk.draw(11, 80), CorridorsEnv(size=32)
    frame, info = env.reset(seed=11)
    frames = drawn.frames(32)
    assert np.array_equal(env.maze.walls, drawn.maze.walls)
    for t in range(80):
        if t:
            frame, _, _, _, info = env.step(int(drawn.actions[t]))
        assert np.array_equal(frame, frames[t])
        assert info["pose"] == pytest.approx(tuple(drawn.poses[t]))


def test_walls_stop_a_step_and_a_full_turn_returns() -> None:
    maze, pose = hall(), (CELL + 1.0, 1.5 * CELL, 0.0)
    assert walk(pose, [LEFT] * TURNS, maze)[-1] == pytest.approx(pose)
    assert walk(pose, [LEFT, RIGHT], maze)[-1] == pytest.approx(pose)
    poses = walk(pose, [FORWARD] * 100, maze)
    assert poses[1, 0] - poses[0, 0] == pytest.approx(STRIDE)
    assert poses[-1, 0] == pytest.approx(8 * CELL - 0.5, abs=STRIDE)
    sliding = walk(pose, [LEFT] * 2 + [FORWARD] * 8, maze)
    assert sliding[-1, 0] - sliding[-2, 0] == pytest.approx(STRIDE * math.cos(math.pi / 4))
    assert sliding[-1, 1] == sliding[-2, 1]


def test_follower_stays_in_corridors_and_seldom_turns_back() -> None:
    back = rooms = 0
    for seed in range(8):
        drawn = Walk.draw(seed, 400, agent=Follower(around=0))
        assert all(drawn.maze.is_open(x, y) for x, y, _ in drawn.poses)
        assert np.allclose(drawn.poses, walk(tuple(drawn.poses[0]), drawn.actions[1:], drawn.maze))
        walking = drawn.actions == FORWARD
        headings = drawn.poses[walking, 2]
        turned = np.abs(np.exp(1j * headings[1:]) + np.exp(1j * headings[:-1])) < 1e-6
        centre = np.abs(drawn.poses[walking][1:, :2] / CELL % 2 - 1.5).max(1) < 0.3
        rooms += centre.sum()
        dead_ends = [
            len(drawn.maze.exits((int(x / CELL), int(y / CELL)))) == 1 for x, y, _ in drawn.poses[walking][:-1]
        ]
        back += (turned & ~np.array(dead_ends)).sum()
    assert 0 <= back < 0.1 * rooms


def test_follower_looks_around() -> None:
    drawn = Walk.draw(0, 200, agent=Follower(around=1.0))
    first = drawn.actions[1 : 1 + TURNS]
    assert len(set(first.tolist())) == 1
    assert first[0] in (LEFT, RIGHT)


def test_recordings_are_walks_and_shorter_ones_are_prefixes(tmp_path: Path) -> None:
    for name, frames in (("a", 150), ("few", 80)):
        record_walks(tmp_path / name, frames, seed=4, episode=60, size=16)
    with Recording(tmp_path / "a") as a, Recording(tmp_path / "few") as few:
        assert a.lengths.tolist() == [60, 60, 30]
        assert np.array_equal(a.frames(0, 80), few.frames(0, 80))
        drawn = Walk.draw(int(a.seeds[1]), 60)
        assert np.array_equal(a.frames(60, 120), drawn.frames(16))
        assert np.array_equal(a.actions(60, 120), drawn.actions)
        assert np.allclose(a.pose(60, 120), drawn.poses)


def test_invalid_settings_raise_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^rooms: expected at least 2, got 1$"):
        record_walks(tmp_path / "a", 10, rooms=1)
    with pytest.raises(InputError, match=r"^back: expected .*, got 2"):
        Follower(back=2.0)
