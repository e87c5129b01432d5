"""Record the observations of an agent in a world.

Episode i depends only on the seed and on i, so that a shorter recording is the beginning of a longer one.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tdvae.checks import Range, whole
from tdvae.data.images import to_square
from tdvae.data.recording import NO_ACTION, Ending, Episode, RecordingWriter, check_new_file
from tdvae.envs.first_person.agents import Agent, AgentSettings, default_agent, describe, make_agent
from tdvae.envs.first_person.world import View, World
from tdvae.errors import InputError

_PACKAGES = ("tdvae", "numpy", "gymnasium", "h5py", "pillow", "vizdoom", "miniworld")


@dataclass
class Summary:
    """Statistics of a recording."""

    path: Path
    agent: str
    frames: int = 0
    seconds: float = 0.0
    actions: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    reward: float = 0.0
    has_pose: bool = False

    @property
    def episodes(self) -> int:
        return self.endings.total()


def record(
    world: World,
    out: str | Path,
    frames: int,
    seed: int = 0,
    episode: int = 300,
    size: int = 64,
    agent: AgentSettings | None = None,
    progress: Callable[[int], None] = lambda frames: None,
) -> Summary:
    """Record exactly ``frames`` frames of ``world``, resized to ``size`` × ``size`` pixels.

    An episode has at most ``episode`` frames; the last one is cut when the number of frames is reached. The default
    ``agent`` is the walker, or the holder if the moves of the world are not known. ``progress`` is called with the
    number of frames recorded so far. The world is not closed.
    """
    for name, value, minimum in (("frames", frames, 1), ("episode", episode, 2), ("seed", seed, 0)):
        Range(minimum).check(name, whole(name, value))
    out = check_new_file(out)
    settings = default_agent(world) if agent is None else agent
    about = {
        "world": world.name,
        "settings": world.settings(),
        "agent": describe(settings),
        "seed": seed,
        "longest_episode": episode,
        "versions": _versions(),
    }
    summary = Summary(out, describe(settings)["kind"])
    started = time.perf_counter()
    with ExitStack() as stack:
        writer: RecordingWriter | None = None
        while summary.frames < frames:
            number = summary.episodes
            episode_agent = make_agent(world, settings, np.random.default_rng((seed, number, 1)))
            max_frames = min(episode, frames - summary.frames)
            recorded = _play(world, episode_agent, episode_seed(seed, number), max_frames, size)
            if writer is None:
                # Created here, because only an episode shows whether the world provides poses.
                pose = summary.has_pose = recorded.pose is not None
                writer = stack.enter_context(RecordingWriter(out, size, world.actions, pose, about))
            writer.append(recorded)
            _update(summary, recorded, world.actions)
            progress(summary.frames)
    summary.seconds = time.perf_counter() - started
    return summary


def episode_seed(seed: int, number: int) -> int:
    """The seed of an episode: 31 bits, which every world accepts."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0] >> 1)


def _play(world: World, agent: Agent, seed: int, max_frames: int, size: int) -> Episode:
    """Record one episode of at most ``max_frames`` frames."""
    view: View | None = world.reset(seed)
    action, reward, ending = NO_ACTION, 0.0, Ending.CUT
    frames, actions, rewards, poses = [], [], [], []
    while view is not None:
        frame = to_square(view.frame, size)
        frames.append(frame)
        actions.append(action)
        rewards.append(reward)
        poses.append(view.pose)
        reward = 0.0
        if ending != Ending.CUT or len(frames) == max_frames:
            break
        action = agent.act(View(frame, view.pose))
        step = world.step(action)
        view, reward = step.view, step.reward
        if step.truncated or step.terminated:
            ending = Ending.TRUNCATED if step.truncated else Ending.TERMINATED
        elif view is None:
            raise InputError(f"env: expected a frame from {world.name} until the episode ends, got none")
    return Episode(
        frames=np.stack(frames),
        actions=np.array(actions, np.int16),
        rewards=np.array(rewards, np.float32),
        pose=None if None in poses else np.array(poses, np.float32),
        ending=ending,
        seed=seed,
        unseen_reward=reward,
    )


def _update(summary: Summary, episode: Episode, names: tuple[str, ...]) -> None:
    summary.frames += len(episode)
    summary.endings[episode.ending.name.lower()] += 1
    summary.reward += float(episode.rewards.sum()) + episode.unseen_reward
    for action, count in zip(*np.unique(episode.actions, return_counts=True), strict=True):
        if action != NO_ACTION:
            summary.actions[names[action]] += int(count)


def _versions() -> dict[str, Any]:
    versions: dict[str, Any] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
