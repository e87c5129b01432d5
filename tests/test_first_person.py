"""Tests of tdvae.envs.first_person: agents, the corridors, the recorder, the adapters and the commands."""

from __future__ import annotations

import math
import os
import re
import sys
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from tdvae import InputError, cli
from tdvae.data import Recording
from tdvae.data.recording import Ending
from tdvae.envs.first_person import (
    GymnasiumWorld,
    HolderSettings,
    Moves,
    Step,
    View,
    VizdoomWorld,
    WalkerSettings,
    World,
    record,
)
from tdvae.envs.first_person.agents import Holder, Walker, make_agent
from tdvae.envs.first_person.corridors import ACTIONS, MOVES, CorridorsEnv
from tdvae.envs.first_person.recorder import episode_seed
from tdvae_paper.first_person.lab import LabWorld, open_world
from tests.tf_files import example, lab_episode, write

CORRIDORS = "tdvae/Corridors-v0"


def corridors(size: int = 16) -> World:
    return open_world(CORRIDORS, size=size)


def read_all(path: Path) -> dict[str, Any]:
    """Read all arrays that depend on the seed."""
    with Recording(path) as r:
        end = len(r)
        arrays = {"frames": r.frames(0, end), "actions": r.actions(0, end), "rewards": r.rewards(0, end)}
        if r.has_pose:
            arrays["pose"] = r.pose(0, end)
        return arrays | {"starts": r.starts, "seeds": r.seeds, "endings": r.endings}


def are_equal(a: dict[str, Any], b: dict[str, Any], frames: int) -> bool:
    return all(np.array_equal(a[name][:frames], b[name][:frames]) for name in ("frames", "actions", "rewards", "pose"))


# The walker


def views(*positions: tuple[float, float] | None) -> list[View]:
    """Views with different frames and the given positions, which may be None."""
    frames = [np.full((4, 4, 3), 9 * number, np.uint8) for number in range(len(positions))]
    return [View(f, None if p is None else (*p, 0.0)) for f, p in zip(frames, positions, strict=True)]


def make_walker(seed: int = 0, **settings: Any) -> Walker:
    return Walker(Moves(0, 1, 2), WalkerSettings(**settings), np.random.default_rng(seed))


def runs(actions: list[int]) -> list[tuple[int, int]]:
    """Return the runs of equal actions as (action, length)."""
    changes = [0, *[i for i in range(1, len(actions)) if actions[i] != actions[i - 1]], len(actions)]
    return [(actions[a], b - a) for a, b in pairwise(changes)]


def test_walker_follows_its_settings_without_walls() -> None:
    walker, frames = make_walker(walk=6, longest_turn=3), views((0.0, 0.0), (1.0, 0.0))
    # Every step has length 1, back and forth.
    actions = [walker.act(frames[t % 2]) for t in range(20_000)]
    walks = [n for action, n in runs(actions)[:-1] if action == 0]
    turns = [n for action, n in runs(actions)[:-1] if action != 0]
    assert np.mean(walks) == pytest.approx(6, rel=0.1)
    assert Counter(turns).keys() == {1, 2, 3}
    assert np.mean(turns) == pytest.approx(2, rel=0.1)
    left = np.mean([action == 1 for action, _ in runs(actions) if action != 0])
    assert left == pytest.approx(0.5, abs=0.05)


def test_walker_turns_to_one_side_at_a_wall() -> None:
    walker = make_walker(walk=1e9, longest_turn=2, away=3)
    here, there = views((0.0, 0.0), (1.0, 0.0))
    assert [walker.act(here), walker.act(there), walker.act(here)] == [0, 0, 0]
    actions = [walker.act(here) for _ in range(200)]  # from now on, no step moves it
    assert {n for action, n in runs(actions)[:-1] if action != 0} == {4, 5}
    assert {n for action, n in runs(actions)[1:-1] if action == 0} == {1}
    assert len({action for action in actions if action != 0}) == 1


def test_walker_does_not_mistake_acceleration_for_a_wall() -> None:
    walker = make_walker(walk=1e9)
    strides = [30.0] * 3 + [0.0]  # a wall stops it; then it turns and accelerates again
    position, actions = 0.0, []
    for stride in strides:
        actions.append(walker.act(views((position, 0.0))[0]))
        position += stride
    while (action := walker.act(views((position, 0.0))[0])) != 0:
        actions.append(action)
    for stride in (4.0, 12.0, 20.0, 28.0):
        position += stride
        assert walker.act(views((position, 0.0))[0]) == 0


def test_walker_without_pose_detects_a_wall_by_an_unchanged_frame() -> None:
    walker, (a, b) = make_walker(walk=1e9), views(None, None)
    assert [walker.act(a), walker.act(b), walker.act(a)] == [0, 0, 0]
    assert walker.act(a) != 0


def test_holder_repeats_uniform_actions() -> None:
    holder = Holder(4, HolderSettings(hold=3), np.random.default_rng(0))
    actions = [holder.act(views(None)[0]) for _ in range(12_000)]
    assert [n / 12_000 for _, n in sorted(Counter(actions).items())] == pytest.approx([0.25] * 4, abs=0.03)
    repeats = np.mean(np.diff(actions) == 0)
    assert repeats == pytest.approx(2 / 3 + 1 / 3 / 4, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (WalkerSettings, {"walk": 0.5}, "walk: .*got 0.5"),
        (WalkerSettings, {"walk": math.nan}, "walk: .*got nan"),
        (WalkerSettings, {"longest_turn": 0}, "longest_turn: .*got 0"),
        (WalkerSettings, {"away": -1}, "away: .*got -1"),
        (HolderSettings, {"hold": 0}, "hold: .*got 0"),
    ],
)
def test_invalid_agent_settings_raise(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        kind(**settings)


# Corridors


def test_corridors_pass_the_gymnasium_checker() -> None:
    check_env(CorridorsEnv(size=16), skip_render_check=True)


def test_corridors_reward_new_cells_once() -> None:
    env = CorridorsEnv(size=16, max_steps=400)
    env.reset(seed=1)
    visited, total, over, walker = {env._cell()}, 0.0, False, make_walker()
    frame, info = env._render_frame(), env._info()
    while not over:
        frame, reward, _, over, info = env.step(walker.act(View(frame, info["pose"])))
        assert reward == (env._cell() not in visited)
        visited.add(env._cell())
        total += reward
    assert total == len(visited) - 1 > 5


def test_invalid_corridor_arguments_raise() -> None:
    with pytest.raises(InputError, match=r"^cells: expected at least 2, got 1"):
        CorridorsEnv(cells=1)
    env = CorridorsEnv(size=8)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"^action: expected 0 to 2 .*, got 3"):
        env.step(3)


# The recorder


def test_recording_can_be_replayed(tmp_path: Path) -> None:
    world = corridors()
    summary = record(world, tmp_path / "a.h5", 250, seed=4, episode=100, size=16)
    assert (summary.frames, summary.episodes, summary.has_pose) == (250, 3, True)
    with Recording(tmp_path / "a.h5") as recording:
        assert recording.lengths.tolist() == [100, 100, 50]
        assert recording.action_names == ACTIONS
        reward = 0.0
        for number in range(3):
            episode = recording.episode(number)
            assert episode.seed == episode_seed(4, number)
            assert episode.ending == Ending.CUT
            assert episode.pose is not None
            view: View | None = world.reset(episode.seed)
            for t, action in enumerate(episode.actions):
                if t:
                    step = world.step(int(action))
                    view = step.view
                    assert step.reward == episode.rewards[t]
                assert view is not None
                assert np.array_equal(view.frame, episode.frames[t])
                assert view.pose == pytest.approx(tuple(episode.pose[t]), abs=1e-4)
            assert (episode.actions[0], episode.rewards[0]) == (-1, 0)
            reward += float(episode.rewards.sum())
        assert reward == summary.reward
        about = recording.about
    assert about["world"] == CORRIDORS
    assert about["seed"] == 4
    assert about["agent"] == {"kind": "walker", "walk": 12.0, "longest_turn": 4, "away": 6}
    assert about["settings"] == {"repeat": 1}
    assert about["versions"]["h5py"]


def test_recording_depends_on_the_seed_and_shorter_ones_are_prefixes(tmp_path: Path) -> None:
    for name, frames, seed in (("a", 150, 1), ("b", 150, 1), ("few", 80, 1), ("other", 150, 2)):
        record(corridors(), tmp_path / name, frames, seed, episode=60, size=16)
    a, b, few, other = (read_all(tmp_path / name) for name in ("a", "b", "few", "other"))
    assert are_equal(a, b, 150)
    assert are_equal(a, few, 80)
    assert not are_equal(a, other, 150)
    assert len(np.unique(a["seeds"])) == 3


def test_world_can_truncate_an_episode(tmp_path: Path) -> None:
    world = GymnasiumWorld(CorridorsEnv(size=16, max_steps=20), moves=MOVES)
    summary = record(world, tmp_path / "a.h5", 50, size=16)
    assert summary.endings == {"truncated": 2, "cut": 1}
    with Recording(tmp_path / "a.h5") as recording:
        assert recording.lengths.tolist() == [21, 21, 8]
        assert recording.endings.tolist() == [Ending.TRUNCATED, Ending.TRUNCATED, Ending.CUT]


class ShortWorld:
    """A world of three frames that shows no frame after the last step but gives a reward for it."""

    name, actions, moves = "short", ("on",), None

    def settings(self) -> dict[str, Any]:
        return {}

    def reset(self, seed: int) -> View:
        self.left = 3
        return View(np.zeros((20, 30, 3), np.uint8), None)

    def step(self, action: int) -> Step:
        self.left -= 1
        view = View(np.full((20, 30, 3), self.left, np.uint8), None)
        return Step(view if self.left else None, 1.0 + (not self.left), terminated=not self.left)

    def close(self) -> None:
        pass


def test_reward_without_a_last_frame_is_recorded(tmp_path: Path) -> None:
    summary = record(ShortWorld(), tmp_path / "a.h5", 7)
    assert summary.agent == "holder"
    assert summary.reward == 2 * (1 + 1 + 2)
    with Recording(tmp_path / "a.h5") as recording:
        assert recording.size == 64
        assert recording.lengths.tolist() == [3, 3, 1]
        assert recording.rewards(0, 3).tolist() == [0, 1, 1]
        assert recording.unseen_rewards.tolist() == [2, 2, 0]
        assert not recording.has_pose


def test_no_file_is_left_after_an_error(tmp_path: Path) -> None:
    class Failing(ShortWorld):
        def step(self, action: int) -> Step:
            raise OSError("the game has crashed")

    class Vanishing(ShortWorld):
        def step(self, action: int) -> Step:
            return Step(None, 0.0)

    with pytest.raises(OSError, match="crashed"):
        record(Failing(), tmp_path / "a.h5", 10)
    with pytest.raises(InputError, match="expected a frame from short until the episode ends, got none"):
        record(Vanishing(), tmp_path / "a.h5", 10)
    calls = 0

    def interrupt(frames: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(ShortWorld(), tmp_path / "a.h5", 10, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": 0}, "frames: expected at least 1, got 0"),
        ({"episode": 1}, "episode: .*got 1$"),
        ({"seed": -1}, "seed: .*got -1$"),
        ({"seed": 2**64}, "seed: expected an integer of at most 64 bits, got one of 65 bits"),
        ({"size": 4}, "size: .*got 4$"),
        ({"agent": WalkerSettings()}, "agent: expected HolderSettings, or moves for short, got WalkerSettings"),
        ({"out": "nowhere/a.h5"}, "out: expected an existing folder"),
    ],
)
def test_invalid_record_arguments_raise(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"world": ShortWorld(), "out": tmp_path / "a.h5", "frames": 5} | changes
    if "out" in changes:
        arguments["out"] = tmp_path / changes["out"]
    with pytest.raises(InputError, match=f"^{message}"):
        record(**arguments)
    assert list(tmp_path.iterdir()) == []


# Gymnasium environments


class CountingEnv(gymnasium.Env[Any, Any]):
    """An environment with the given spaces, whose pixels show the number of steps."""

    def __init__(self, observation: Any, action: Any = None) -> None:
        self.observation_space, self.action_space = observation, action or spaces.Discrete(3)

    def _show(self) -> Any:
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {name: np.full(part.shape, self.count, part.dtype) for name, part in space.spaces.items()}
        return np.full(space.shape, self.count, space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        self.taken: list[Any] = []
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.taken.append(action)
        return self._show(), 0.5, self.count == 10, False, {}


def box(*shape: int, kind: Any = np.uint8) -> spaces.Box:
    return spaces.Box(0, 255 if kind is np.uint8 else 1, shape, kind)


def test_action_is_repeated_and_its_rewards_are_added() -> None:
    env = CountingEnv(box(12, 16, 3), spaces.Discrete(3, start=5))
    world = GymnasiumWorld(env, repeat=4)
    assert world.reset(0).frame.shape == (12, 16, 3)
    step = world.step(2)
    assert (step.reward, env.taken) == (2.0, [7, 7, 7, 7])
    assert step.view is not None
    assert (step.view.frame == 4).all()
    world.step(0)
    last = world.step(1)  # the episode ends after two of the four steps
    assert (last.reward, last.terminated, len(env.taken)) == (1.0, True, 10)


def test_image_is_found_in_a_dictionary_observation() -> None:
    parts = spaces.Dict({"pixels": box(9, 9, 3), "depth": box(9, 9, 1), "speed": box(2, kind=np.float32)})
    assert GymnasiumWorld(CountingEnv(parts)).reset(0).frame.shape == (9, 9, 3)
    two = spaces.Dict({"left": box(9, 9, 3), "right": box(8, 8, 3)})
    assert GymnasiumWorld(CountingEnv(two), image="right").reset(0).frame.shape == (8, 8, 3)
    with pytest.raises(InputError, match=r"^env: expected exactly one as RGB image .*got \['left', 'right'\]"):
        GymnasiumWorld(CountingEnv(two))
    with pytest.raises(InputError, match=r"^env: expected middle as RGB image"):
        GymnasiumWorld(CountingEnv(two), image="middle")
    with pytest.raises(InputError, match=r"^env: expected exactly one as RGB image .*got none"):
        GymnasiumWorld(CountingEnv(spaces.Dict({"depth": box(9, 9, 1)})))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (box(4, kind=np.float32), "expected images .*, got observations Box"),
        (spaces.Discrete(3), "expected images .*, got observations Discrete"),
        (box(3, 64, 64), "channels seem to be first"),
        (box(64, 64), "grey"),
        (box(64, 64, 1), "grey"),
        (box(64, 64, 3, kind=np.float32), "got .* of float32"),
    ],
)
def test_environment_without_rgb_images_raises(space: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"^env: .*{message}"):
        GymnasiumWorld(CountingEnv(space))


def test_invalid_actions_moves_and_repeat_raise() -> None:
    with pytest.raises(InputError, match=r"^env: expected Discrete actions, got Box.* in CountingEnv"):
        GymnasiumWorld(CountingEnv(box(8, 8, 3), box(2, kind=np.float32)))
    for wrong in ((0, 0, 1), (0, 1, 3), (-1, 0, 1)):
        with pytest.raises(InputError, match=r"^moves: expected three different actions from 0 to 2, got "):
            GymnasiumWorld(CountingEnv(box(8, 8, 3)), moves=Moves(*wrong))
    with pytest.raises(InputError, match=r"^repeat: .*got 0"):
        GymnasiumWorld(CountingEnv(box(8, 8, 3)), repeat=0)
    world = GymnasiumWorld(CountingEnv(box(8, 8, 3)), pose=lambda info: pytest.fail("called before a reset"))
    assert world.actions == ("action 0", "action 1", "action 2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nowhere-v0", "cannot open 'Nowhere-v0'"),
        ("nowhere:Else-v0", "cannot open 'nowhere:Else-v0'"),
        ("CartPole-v1", "expected images .* of CartPole-v1"),
        ("deepmind_lab:", "expected a level after the colon"),
    ],
)
def test_unknown_or_unsuitable_environment_raises(name: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"^env: .*{message}") as caught:
        open_world(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [CORRIDORS, "deepmind_lab:seekavoid_arena_01"])
def test_moves_of_a_known_environment_raise(name: str) -> None:
    with pytest.raises(InputError, match=f"^moves: expected None, because the moves of {name} are known"):
        open_world(name, moves=Moves(0, 1, 2))


@pytest.mark.parametrize(
    ("name", "module", "hint"),
    [
        ("VizdoomMyWayHome-v1", "vizdoom", r"pip install 'tdvae\[vizdoom\]'"),
        ("MiniWorld-FourRooms-v0", "pyglet", r"pip install 'tdvae\[miniworld\]'"),
        ("deepmind_lab:seekavoid_arena_01", "deepmind_lab", "tdvae convert"),
    ],
)
def test_missing_package_raises_with_install_hint(
    name: str, module: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"^env: {name} requires the package {module}, .*{hint}"):
        open_world(name)


# DeepMind Lab, with a mock that follows its documentation


class FakeLab:
    """A mock of ``deepmind_lab.Lab`` with the methods that the adapter uses."""

    available: tuple[str, ...] = ("RGB_INTERLEAVED", "RGB", "DEBUG.POS.TRANS", "DEBUG.POS.ROT")
    closed = 0

    def __init__(self, level: str, observations: list[str], config: Any = None, renderer: str = "software") -> None:
        assert set(observations) <= set(self.available)
        self.level, self.selected, self.config = level, observations, config or {}

    def observation_spec(self) -> list[dict[str, Any]]:
        return [{"name": name, "dtype": np.uint8, "shape": ()} for name in self.available]

    def action_spec(self) -> list[dict[str, Any]]:
        names = (
            "LOOK_LEFT_RIGHT_PIXELS_PER_FRAME",
            "LOOK_DOWN_UP_PIXELS_PER_FRAME",
            "STRAFE_LEFT_RIGHT",
            "MOVE_BACK_FORWARD",
            "FIRE",
            "JUMP",
            "CROUCH",
        )
        return [{"name": name, "min": -512, "max": 512} for name in names]

    def reset(self, episode: int = -1, seed: int | None = None) -> None:
        assert isinstance(seed, int)
        self.steps, self.x, self.yaw, self.red = 0, 0.0, 0.0, seed % 200

    def step(self, action: Any, num_steps: int = 1) -> float:
        assert action.dtype == np.intc
        assert action.shape == (7,)
        self.steps += num_steps
        self.x += action[3] * num_steps
        self.yaw -= action[0] * num_steps * 360 / 57 / 60
        return 0.25 * num_steps

    def is_running(self) -> bool:
        return self.steps < 40

    def observations(self) -> dict[str, Any]:
        assert self.is_running()
        frame = np.zeros((int(self.config["height"]), int(self.config["width"]), 3), np.uint8)
        frame[..., 0] = self.red
        frame[..., 2] = self.steps
        position, rotation = np.array([self.x, 2.0, 3.0]), np.array([0.0, self.yaw, 0.0])
        observations = {"RGB_INTERLEAVED": frame, "DEBUG.POS.TRANS": position, "DEBUG.POS.ROT": rotation}
        return {name: observations[name] for name in self.selected}

    def close(self) -> None:
        FakeLab.closed += 1


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> type[FakeLab]:
    kind = type("Lab", (FakeLab,), {})
    monkeypatch.setitem(sys.modules, "deepmind_lab", SimpleNamespace(Lab=kind))
    return kind


def test_record_deepmind_lab(lab: type[FakeLab], tmp_path: Path) -> None:
    world = open_world("deepmind_lab:seekavoid_arena_01", size=32)
    assert isinstance(world, LabWorld)
    record(world, tmp_path / "lab.h5", 25, size=32)
    world.close()
    with Recording(tmp_path / "lab.h5") as recording:
        assert recording.about["world"] == "deepmind_lab:seekavoid_arena_01"
        assert recording.lengths.tolist() == [10, 10, 5]  # 40 frames in steps of 4; the last one is not shown
        assert recording.unseen_rewards.tolist() == [1, 1, 0]
        assert recording.rewards(1, 10).tolist() == [1] * 9
        frames = recording.frames(0, 10)
        assert (frames[..., 0] == episode_seed(0, 0) % 200).all()  # the red channel is first
        assert frames[:, 0, 0, 2].tolist() == list(range(0, 40, 4))
        pose, actions = recording.pose(0, 10), recording.actions(0, 10)
        assert np.array_equal(np.diff(pose[:, 0]), 4.0 * (actions[1:] == world.moves.forward))
        turned = np.degrees(np.diff(pose[:, 2]))
        assert turned[actions[1:] == world.moves.left] == pytest.approx(8.42, abs=0.01)


def test_lab_level_without_debug_observations_has_no_pose(lab: type[FakeLab]) -> None:
    lab.available = ("RGB_INTERLEAVED",)
    assert LabWorld("x").reset(1).pose is None
    lab.available = ("RGB",)
    with pytest.raises(InputError, match=r"^env: expected the observation RGB_INTERLEAVED in deepmind_lab:x"):
        LabWorld("x")


# ViZDoom and MiniWorld, if they are installed


vizdoom_installed = pytest.mark.skipif(find_spec("vizdoom") is None, reason="vizdoom is not installed")


@vizdoom_installed
@pytest.mark.parametrize("scenario", ["VizdoomMyWayHome-v1", "VizdoomHealthGatheringSupreme-v1"])
def test_record_vizdoom(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("a", "b"):
        monkeypatch.chdir(tmp_path / "empty")
        world = open_world(scenario)
        summary = record(world, tmp_path / name, 150, seed=3, episode=100)
        world.close()
        assert list((tmp_path / "empty").iterdir()) == []  # the engine writes no files to the working directory
    a, b = read_all(tmp_path / "a"), read_all(tmp_path / "b")
    assert are_equal(a, b, 150)
    assert summary.agent == "walker"
    assert a["frames"].shape == (150, 64, 64, 3)
    assert a["frames"].std() > 10
    # No frame is the black one that the game returns at the end of an episode.
    assert (a["frames"].reshape(150, -1).max(axis=1) > 0).all()
    assert summary.actions["MOVE_FORWARD"] > 0.35 * 150


@vizdoom_installed
def test_vizdoom_pose_follows_the_actions() -> None:
    world = open_world("VizdoomMyWayHome-v1")
    assert world.moves is not None
    poses = {}
    for name, action in (("left", world.moves.left), ("right", world.moves.right), ("forward", world.moves.forward)):
        views = [world.reset(5), *[world.step(action).view for _ in range(3)]]
        poses[name] = np.array([view.pose for view in views if view is not None])
    world.close()
    assert poses["left"][0] == pytest.approx(poses["right"][0])
    turned = {name: np.angle(np.exp(1j * (pose[-1, 2] - pose[0, 2]))) for name, pose in poses.items()}
    assert turned["left"] > 0.4
    assert turned["right"] < -0.4
    assert turned["forward"] == pytest.approx(0)
    x, y, heading = poses["forward"][0]
    moved = poses["forward"][1, :2] - (x, y)
    assert moved @ (math.cos(heading), math.sin(heading)) == pytest.approx(np.hypot(*moved), rel=0.05)


@vizdoom_installed
def test_stopped_vizdoom_game_raises() -> None:
    world = open_world("VizdoomMyWayHome-v1")
    assert isinstance(world, VizdoomWorld)
    world.reset(0)
    world._engine.close()
    with pytest.raises(InputError, match=r"^env: the game of VizdoomMyWayHome-v1 has stopped"):
        world.step(0)
    world.close()


@vizdoom_installed
def test_vizdoom_scenarios_without_forward_use_the_holder(tmp_path: Path) -> None:
    world = open_world("VizdoomBasic-v1", repeat=2)
    assert world.moves is None
    assert "ATTACK" in world.actions
    assert record(world, tmp_path / "a.h5", 20).agent == "holder"
    world.close()
    with pytest.raises(InputError, match=r"^env: expected Discrete actions, got .* in VizdoomBasic-MultiBinary-v1"):
        open_world("VizdoomBasic-MultiBinary-v1")
    with pytest.raises(InputError, match=r"^env: cannot open VizdoomNowhere-v1"):
        open_world("VizdoomNowhere-v1")


@pytest.mark.skipif(find_spec("miniworld") is None, reason="miniworld is not installed")
def test_record_miniworld(tmp_path: Path) -> None:
    try:
        worlds = [open_world("MiniWorld-FourRooms-v0", size=32) for _ in range(2)]
    except InputError as error:
        pytest.skip(f"OpenGL is not available: {error}")
    for name, world in zip("ab", worlds, strict=True):
        assert world.actions == ("turn_left", "turn_right", "move_forward")
        record(world, tmp_path / name, 60, seed=1, episode=40, size=32)
        world.close()
    a, b = read_all(tmp_path / "a"), read_all(tmp_path / "b")
    assert are_equal(a, b, 60)
    assert a["frames"].std() > 5
    # Headings are counter-clockwise in (x, y), so a step forward has the direction of the heading.
    walked = np.flatnonzero((a["actions"][1:40] == 2) & (np.hypot(*np.diff(a["pose"][:40, :2], axis=0).T) > 0.05))
    moved, heading = np.diff(a["pose"][:40, :2], axis=0)[walked], a["pose"][walked, 2]
    ahead = moved[:, 0] * np.cos(heading) + moved[:, 1] * np.sin(heading)
    assert ahead == pytest.approx(np.hypot(*moved.T), rel=0.01)


# The command line


def tdvae(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr("sys.argv", ["tdvae", *map(str, arguments)])
    cli.main()


def test_record_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "a.h5"
    tdvae(monkeypatch, "record", CORRIDORS, "--out", out, "--frames", "60", "--episode", "25", "--size", "16")
    output = capsys.readouterr().out
    for word in ("60 frames of 16 × 16 in 3 episodes", "walker", "forward", "3 cut", "frames/s", "poses"):
        assert word in output
    before = out.read_bytes()
    with pytest.raises(SystemExit) as stop:
        tdvae(monkeypatch, "record", CORRIDORS, "--out", out, "--frames", "60")
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"tdvae: out: expected a new file, got {out}, which exists already\n"
    assert out.read_bytes() == before


def test_record_command_with_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("record", "tdvae.envs:tdvae/Corridors-v0", "--frames", "30", "--size", "16")
    tdvae(monkeypatch, *arguments, "--out", tmp_path / "walked.h5", "--moves", "0", "1", "2")
    tdvae(monkeypatch, *arguments, "--out", tmp_path / "held.h5")
    kinds = {}
    for name in ("walked", "held"):
        with Recording(tmp_path / f"{name}.h5") as recording:
            kinds[name] = recording.about["agent"]["kind"]
    assert kinds == {"walked": "walker", "held": "holder"}


@pytest.mark.parametrize("command", ["record", "convert"])
def test_interrupted_command_writes_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tdvae.envs.first_person.recorder.RecordingWriter.append", interrupt)
    rgb = np.zeros((2, 72, 96, 3), np.uint8)
    file = write(tmp_path / "tfrecord", [example(lab_episode(rgb, [0, 1], [0.0, 0.0]))])
    source = CORRIDORS if command == "record" else str(file)
    with pytest.raises(SystemExit) as stop:
        tdvae(monkeypatch, command, source, "--out", tmp_path / "a.h5", "--frames", "20")
    assert stop.value.code == 130
    assert capsys.readouterr().err == "tdvae: interrupted; nothing was written\n"
    assert os.listdir(tmp_path) == ["tfrecord"]


def test_convert_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    rgb = np.zeros((3, 72, 96, 3), np.uint8)
    file = write(tmp_path / "tfrecord", [example(lab_episode(rgb, [0, 1, 2], [0.0, 0.0, 1.0]))] * 2)
    tdvae(monkeypatch, "convert", file, file, "--out", tmp_path / "a.h5")
    assert "12 frames of 64 × 64 in 4 episodes" in capsys.readouterr().out
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(SystemExit) as stop:
        tdvae(monkeypatch, "convert", file, "--out", tmp_path / "b.h5")
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"tdvae: file: expected a readable file, got {file} ")
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "tfrecord"]


def test_code_of_the_documentation_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[1] / "docs" / "first_person_worlds.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block, "first_person_worlds.md", "exec"), names)
    assert names["batch"].x.shape == (8, 20, 3, 32, 32)
    assert names["batch"].actions.shape == (8, 20, 3)
    assert names["poses"].shape == (8, 20, 3)
    names["recording"].close()


def test_make_agent_returns_the_agent_of_the_settings() -> None:
    random = np.random.default_rng(0)
    assert isinstance(make_agent(corridors(), WalkerSettings(), random), Walker)
    assert isinstance(make_agent(corridors(), HolderSettings(), random), Holder)
