"""An agent that follows the corridors of a maze, and recordings of it.

The agent goes from the centre of a room to the centre of the next. In a room it chooses an open direction at random;
it turns back only at a dead end, or with a small probability. Sometimes it first looks around: a full turn on the spot.
It knows the maze and its pose, so its path does not depend on frames, and an episode is rendered at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tdvae.checks import Range, check_fields, whole
from tdvae.data.recording import NO_ACTION, Ending, Episode, RecordingWriter, check_new_file
from tdvae.envs.corridors import CELL, DIRECTIONS, STRIDE, TURN, TURNS, Floats, Maze, render

FORWARD, LEFT, RIGHT = 0, 1, 2
ACTIONS = ("forward", "turn left", "turn right")
RADIUS = 0.5  # of the agent: its least distance to walls
_QUARTER = TURNS // 4
_STEPS = round(2 * CELL / STRIDE)  # from room to room


@dataclass(frozen=True)
class Follower:
    """Settings of the agent."""

    back: Annotated[float, Range(0, 1)] = 0.03  # probability of turning back where another way is open
    around: Annotated[float, Range(0, 1)] = 0.06  # probability of looking around in a room

    def __post_init__(self) -> None:
        check_fields(self)

    def actions(self, maze: Maze, room: tuple[int, int], heading: int, random: np.random.Generator) -> Iterator[int]:
        """Choose actions without end, from the centre of a room, for a heading of 0 (east) to 3 (south)."""
        x, y = room
        while True:
            if random.random() < self.around:
                yield from [LEFT if random.random() < 0.5 else RIGHT] * TURNS
            chosen = self._choose(maze.exits((x, y)), heading, random)
            yield from _turns((chosen - heading) % 4, random)
            yield from [FORWARD] * _STEPS
            heading = chosen
            dx, dy = DIRECTIONS[heading]
            x, y = x + 2 * dx, y + 2 * dy

    def _choose(self, exits: list[int], heading: int, random: np.random.Generator) -> int:
        back = (heading + 2) % 4
        onward = [way for way in exits if way != back]
        if not onward or (back in exits and random.random() < self.back):
            return back
        return onward[random.integers(len(onward))]


def _turns(quarters: int, random: np.random.Generator) -> list[int]:
    if quarters == 2:
        return [LEFT if random.random() < 0.5 else RIGHT] * (2 * _QUARTER)
    return [LEFT] * _QUARTER if quarters == 1 else [RIGHT] * _QUARTER if quarters == 3 else []


def start(maze: Maze, random: np.random.Generator) -> tuple[tuple[int, int], int]:
    """Draw a room and a heading from 0 to 3 that faces an open way."""
    x, y = (2 * int(random.integers(maze.rooms)) + 1 for _ in range(2))
    exits = maze.exits((x, y))
    return (x, y), exits[random.integers(len(exits))]


def pose_in(room: tuple[int, int], heading: int) -> tuple[float, float, float]:
    """The pose in the centre of a room, with a heading of 0 (east) to 3 (south)."""
    return (room[0] + 0.5) * CELL, (room[1] + 0.5) * CELL, heading * _QUARTER * TURN


def walk(pose: tuple[float, float, float], actions: npt.ArrayLike, maze: Maze | None = None) -> Floats:
    """The poses after each of ``actions``, from ``pose``, which comes first.

    An agent that walks into a wall of ``maze`` at an angle slides along it.
    """
    x, y, heading = pose
    turn = round(heading / TURN)  # whole turns, so that sums of angles have no rounding errors
    poses = [(x, y, turn * TURN)]
    for action in np.asarray(actions).tolist():
        if action == FORWARD:
            for dx, dy in ((STRIDE * math.cos(turn * TURN), 0.0), (0.0, STRIDE * math.sin(turn * TURN))):
                x, y = (x + dx, y + dy) if maze is None or _is_free(maze, x + dx, y + dy) else (x, y)
        elif action != NO_ACTION:
            turn = (turn + (1 if action == LEFT else -1)) % TURNS
        poses.append((x, y, turn * TURN))
    return np.array(poses)


def _is_free(maze: Maze, x: float, y: float) -> bool:
    return all(maze.is_open(x + dx, y + dy) for dx in (-RADIUS, RADIUS) for dy in (-RADIUS, RADIUS))


@dataclass(frozen=True, eq=False)
class Walk:
    """A maze, and the poses and actions of an agent in it. ``actions[t]`` led to ``poses[t]``; the first is none."""

    maze: Maze
    poses: Floats  # (T, 3)
    actions: npt.NDArray[np.int16]  # (T,)

    @classmethod
    def draw(cls, seed: int, steps: int, rooms: int = 5, agent: Follower | None = None) -> Walk:
        """Draw the maze and the walk of one seed. A shorter walk is the beginning of a longer one."""
        random = np.random.default_rng(seed)
        maze = Maze.draw(rooms, random)
        room, heading = start(maze, random)
        chosen = (agent or Follower()).actions(maze, room, heading, random)
        actions = [next(chosen) for _ in range(steps - 1)]
        return cls(maze, walk(pose_in(room, heading), actions), np.array([NO_ACTION, *actions], np.int16))

    def frames(self, size: int) -> npt.NDArray[np.uint8]:
        return render(self.maze, self.poses, size)


def record_walks(
    out: str | Path,
    frames: int,
    seed: int = 0,
    episode: int = 200,
    size: int = 64,
    rooms: int = 5,
    agent: Follower | None = None,
    progress: Callable[[int], None] = lambda frames: None,
) -> Path:
    """Record ``frames`` frames of the follower, a new maze for each episode, as a `tdvae.data.Recording`.

    Episode i depends only on ``seed`` and i. Its maze is that of ``Walk.draw(recording.seeds[i], …)``.
    """
    for name, value, minimum in (
        ("frames", frames, 1),
        ("episode", episode, 2),
        ("seed", seed, 0),
        ("rooms", rooms, 2),
    ):
        Range(minimum).check(name, whole(name, value))
    out, agent = check_new_file(out), agent or Follower()
    about: dict[str, Any] = {
        "world": "tdvae/Corridors-v0",
        "settings": {"rooms": rooms},
        "agent": {"kind": "follower", **asdict(agent)},
        "seed": seed,
        "longest_episode": episode,
    }
    with RecordingWriter(out, size, ACTIONS, True, about) as writer:
        while writer.frames < frames:
            number = int(np.random.SeedSequence((seed, writer.episodes)).generate_state(1)[0] >> 1)
            steps = min(episode, frames - writer.frames)
            drawn = Walk.draw(number, steps, rooms, agent)
            rewards = np.zeros(steps, np.float32)
            pose = drawn.poses.astype(np.float32)
            writer.append(Episode(drawn.frames(size), drawn.actions, rewards, pose, Ending.CUT, number))
            progress(writer.frames)
    return out
