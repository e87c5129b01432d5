"""The interface between the recorder and a first-person world, which each adapter implements."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tdvae.errors import InputError

Bytes = npt.NDArray[np.uint8]
Pose = tuple[float, float, float]
"""x, y, and the heading in radians, counter-clockwise from the x axis; the unit of length depends on the world."""


@dataclass(frozen=True)
class View:
    """The current frame, and the pose if the world provides it."""

    frame: Bytes  # (height, width, 3) RGB
    pose: Pose | None


@dataclass(frozen=True)
class Step:
    """The result of an action. ``view`` is None if the episode is over and the world shows no last frame."""

    view: View | None
    reward: float
    terminated: bool = False
    truncated: bool = False


@dataclass(frozen=True)
class Moves:
    """The numbers of the actions that walk forward, turn left and turn right."""

    forward: int
    left: int
    right: int


class World(Protocol):
    """A world with discrete actions. The same seed and the same actions must give the same frames."""

    @property
    def name(self) -> str: ...

    @property
    def actions(self) -> tuple[str, ...]:
        """The name of each action, by number."""
        ...

    @property
    def moves(self) -> Moves | None:
        """The actions that walk and turn; None if they are not known."""
        ...

    def settings(self) -> dict[str, Any]:
        """The settings of the world as JSON values, to be stored in the recording."""
        ...

    def reset(self, seed: int) -> View: ...

    def step(self, action: int) -> Step: ...

    def close(self) -> None: ...


def optional_package(module: str, env_id: str, install_hint: str) -> Any:
    """Import an optional package; if it is missing, raise an error with the installation hint."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"env: {env_id} requires the package {module}, which cannot be imported ({error}); {install_hint}"
        ) from (error)


def one_line(value: object) -> str:
    """``str(value)`` on one line, for messages: some spaces and exceptions have several lines."""
    return " ".join(str(value).split())


def check_repeat(repeat: int) -> int:
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
        raise InputError(f"repeat: expected an integer of at least 1, got {repeat!r}")
    return repeat
