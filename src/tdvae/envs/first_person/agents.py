"""Who walks while the recorder looks. All its choices come from its seed.

- The **walker** tends to walk forward and to turn. It walks for a number of steps drawn from a geometric law of mean
  ``walk``, then turns for 1 to ``longest_turn`` steps, to a side drawn anew, and walks again. When it feels that a wall
  stops it, it turns away at once, for ``away`` more steps than it would turn otherwise; as long as it gets nowhere it
  keeps to one side, so that it comes out of corners. It feels how far a step took it, if the world tells its place:
  less than a fifth of its longest stride is a wall. Else it must see it: a frame that is as it was before the step.
- The **holder** knows nothing of the actions: it draws one uniformly and holds it for a number of steps drawn from a
  geometric law of mean ``hold``. It is for environments where it is not known which actions walk and turn.
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
    """How the walker walks; see :mod:`tdvae.envs.first_person.agents`."""

    walk: float = 12.0
    """Mean number of steps forward, if no wall is met."""
    longest_turn: int = 4
    """A turn takes 1 to this many steps."""
    away: int = 6
    """A turn away from a wall takes so many more."""

    def __post_init__(self) -> None:
        if not self.walk >= 1:
            raise InputError(f"walk: got {self.walk}, expected a mean of at least 1 step")
        if self.longest_turn < 1:
            raise InputError(f"longest_turn: got {self.longest_turn}, expected at least 1 step")
        if self.away < 0:
            raise InputError(f"away: got {self.away}, expected at least 0 steps")


@dataclass(frozen=True)
class HolderSettings:
    """How long the holder holds an action; see :mod:`tdvae.envs.first_person.agents`."""

    hold: float = 4.0
    """Mean number of steps."""

    def __post_init__(self) -> None:
        if not self.hold >= 1:
            raise InputError(f"hold: got {self.hold}, expected a mean of at least 1 step")


AgentSettings = WalkerSettings | HolderSettings


class Agent(Protocol):
    def act(self, view: View) -> int:
        """The next action, from what is seen now."""
        ...


_STARTING = 2  # steps in which a body may still be gathering speed
_STILL = 0.5  # mean change of a frame's pixels, of 255, below which it is as it was


class Walker:
    """For one episode; a new one begins with a new walker."""

    def __init__(self, moves: Moves, settings: WalkerSettings, random: np.random.Generator) -> None:
        self.moves, self.settings, self.random = moves, settings, random
        self.side = moves.left
        self.before: View | None = None
        self.longest_stride = 0.0
        self.got_somewhere = True  # in the last walk
        self._walk()

    def act(self, view: View) -> int:
        if self._at_a_wall(view):
            if self.got_somewhere:
                self._choose_side()
            self._turn(self.settings.away)
        elif self.steps_left == 0 and self.action == self.moves.forward:
            self._choose_side()
            self._turn(0)
        elif self.steps_left == 0:
            self._walk()
        self.steps_left -= 1
        self.steps_done += 1
        self.before = view
        return self.action

    def _at_a_wall(self, view: View) -> bool:
        """Whether the step that led here was one forward, and into a wall."""
        if self.action != self.moves.forward or self.before is None:
            return False
        if view.pose is None or self.before.pose is None:
            stopped = bool(np.abs(view.frame.astype(np.int16) - self.before.frame).mean() < _STILL)
        else:
            stride = math.dist(view.pose[:2], self.before.pose[:2])
            self.longest_stride = max(self.longest_stride, stride)
            least = 0.05 if self.steps_done <= _STARTING else 0.2
            stopped = stride <= least * self.longest_stride
        self.got_somewhere = self.got_somewhere or not stopped
        return stopped

    def _walk(self) -> None:
        self._begin(self.moves.forward, int(self.random.geometric(1 / self.settings.walk)))

    def _turn(self, further: int) -> None:
        self.got_somewhere = False
        self._begin(self.side, further + int(self.random.integers(1, self.settings.longest_turn + 1)))

    def _begin(self, action: int, steps: int) -> None:
        self.action, self.steps_left, self.steps_done = action, steps, 0

    def _choose_side(self) -> None:
        self.side = self.moves.left if self.random.random() < 0.5 else self.moves.right


class Holder:
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
    """The walker, where it is known how to walk."""
    return HolderSettings() if world.moves is None else WalkerSettings()


def make_agent(world: World, settings: AgentSettings, random: np.random.Generator) -> Agent:
    if isinstance(settings, HolderSettings):
        return Holder(len(world.actions), settings, random)
    if world.moves is None:
        raise InputError(f"agent: a walker must know which actions of {world.name} walk and turn; say so with moves")
    return Walker(world.moves, settings, random)


def describe(settings: AgentSettings) -> dict[str, Any]:
    return {"kind": "walker" if isinstance(settings, WalkerSettings) else "holder", **asdict(settings)}
