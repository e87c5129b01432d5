"""Agents that choose the actions of a recording. All their random choices come from a given generator.

- The **walker** alternates between walking forward and turning. It walks for a number of steps drawn from a geometric
  distribution with mean ``walk``, then turns for 1 to ``longest_turn`` steps to a random side, and walks again. When a
  wall stops it, it turns at once, for ``away`` additional steps. Until it has moved again it turns to the same side, so
  that it leaves corners. If the world provides the pose, a step of less than a fifth of the longest step so far counts
  as stopped by a wall. Otherwise a frame that is unchanged after the step does.
- The **holder** draws an action uniformly and repeats it for a number of steps drawn from a geometric distribution with
  mean ``hold``. It is for environments where it is not known which actions walk and turn.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from tdvae.envs.first_person.world import Moves, View, World
from tdvae.errors import InputError


@dataclass(frozen=True)
class WalkerSettings:
    """Settings of the walker; see :mod:`tdvae.envs.first_person.agents`."""

    walk: float = 12.0
    """Mean number of steps forward, if no wall stops the walker."""
    longest_turn: int = 4
    """Maximum number of steps of a turn; the minimum is 1."""
    away: int = 6
    """Number of additional steps of a turn at a wall."""

    def __post_init__(self) -> None:
        if not self.walk >= 1:
            raise InputError(f"walk: expected a mean of at least 1 step, got {self.walk}")
        if self.longest_turn < 1:
            raise InputError(f"longest_turn: expected at least 1 step, got {self.longest_turn}")
        if self.away < 0:
            raise InputError(f"away: expected at least 0 steps, got {self.away}")


@dataclass(frozen=True)
class HolderSettings:
    """Settings of the holder; see :mod:`tdvae.envs.first_person.agents`."""

    hold: float = 4.0
    """Mean number of steps for which an action is repeated."""

    def __post_init__(self) -> None:
        if not self.hold >= 1:
            raise InputError(f"hold: expected a mean of at least 1 step, got {self.hold}")


AgentSettings = WalkerSettings | HolderSettings


class Agent(Protocol):
    def act(self, view: View) -> int:
        """The next action, given the current view."""
        ...


_ACCELERATION_STEPS = 2  # at the start of a walk, in which the agent may still be slow
_MIN_FRAME_CHANGE = 0.5  # mean absolute difference of pixels (0 to 255) below which a frame counts as unchanged


class Walker:
    """An agent that walks and turns, for one episode; see the module docstring."""

    def __init__(self, moves: Moves, settings: WalkerSettings, random: np.random.Generator) -> None:
        self.moves, self.settings, self.random = moves, settings, random
        self.side = moves.left
        self.previous: View | None = None
        self.longest_stride = 0.0
        self.made_progress = True  # whether any step since the last turn moved the agent
        self._walk()

    def act(self, view: View) -> int:
        if self._hit_wall(view):
            if self.made_progress:
                self._choose_side()
            self._turn(self.settings.away)
        elif self.steps_left == 0 and self.action == self.moves.forward:
            self._choose_side()
            self._turn(0)
        elif self.steps_left == 0:
            self._walk()
        self.steps_left -= 1
        self.steps_done += 1
        self.previous = view
        return self.action

    def _hit_wall(self, view: View) -> bool:
        """Whether the last action was a step forward that a wall stopped."""
        if self.action != self.moves.forward or self.previous is None:
            return False
        if view.pose is None or self.previous.pose is None:
            stopped = bool(np.abs(view.frame.astype(np.int16) - self.previous.frame).mean() < _MIN_FRAME_CHANGE)
        else:
            stride = math.dist(view.pose[:2], self.previous.pose[:2])
            self.longest_stride = max(self.longest_stride, stride)
            threshold = 0.05 if self.steps_done <= _ACCELERATION_STEPS else 0.2
            stopped = stride <= threshold * self.longest_stride
        self.made_progress = self.made_progress or not stopped
        return stopped

    def _walk(self) -> None:
        self._start(self.moves.forward, int(self.random.geometric(1 / self.settings.walk)))

    def _turn(self, extra_steps: int) -> None:
        self.made_progress = False
        self._start(self.side, extra_steps + int(self.random.integers(1, self.settings.longest_turn + 1)))

    def _start(self, action: int, steps: int) -> None:
        self.action, self.steps_left, self.steps_done = action, steps, 0

    def _choose_side(self) -> None:
        self.side = self.moves.left if self.random.random() < 0.5 else self.moves.right


class Holder:
    """An agent that repeats random actions; see the module docstring."""

    def __init__(self, actions: int, settings: HolderSettings, random: np.random.Generator) -> None:
        self.actions, self.settings, self.random = actions, settings, random
        self.action, self.steps_left = 0, 0

    def act(self, view: View) -> int:
        if self.steps_left == 0:
            self.action = int(self.random.integers(self.actions))
            self.steps_left = int(self.random.geometric(1 / self.settings.hold))
        self.steps_left -= 1
        return self.action


def default_agent(world: World) -> AgentSettings:
    """The walker's settings if the world's moves are known, otherwise the holder's."""
    return HolderSettings() if world.moves is None else WalkerSettings()


def make_agent(world: World, settings: AgentSettings, random: np.random.Generator) -> Agent:
    if isinstance(settings, HolderSettings):
        return Holder(len(world.actions), settings, random)
    if world.moves is None:
        raise InputError(f"agent: expected HolderSettings, or moves for {world.name}, got WalkerSettings without moves")
    return Walker(world.moves, settings, random)


def describe(settings: AgentSettings) -> dict[str, Any]:
    return {"kind": "walker" if isinstance(settings, WalkerSettings) else "holder", **asdict(settings)}
