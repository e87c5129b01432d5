"""What a recorder needs of a world seen by someone who walks in it: each adapter makes its environment look so."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tdvae.errors import InputError

Bytes = npt.NDArray[np.uint8]
Pose = tuple[float, float, float]
"""x, y, and the heading in radians, counter-clockwise from the x axis; the unit of length is the world's own."""


@dataclass(frozen=True)
class View:
    """What is seen, and from where if the world tells."""

    frame: Bytes  # (height, width, 3) RGB
    pose: Pose | None


@dataclass(frozen=True)
class Step:
    """What an action led to. ``view`` is None where a world that is over shows nothing."""

    view: View | None
    reward: float
    terminated: bool = False
    truncated: bool = False


@dataclass(frozen=True)
class Moves:
    """The numbers of the actions that walk and turn."""

    forward: int
    left: int
    right: int


class World(Protocol):
    """A world with a list of actions. The same seed and the same actions show the same frames."""

    @property
    def name(self) -> str: ...

    @property
    def actions(self) -> tuple[str, ...]:
        """The name of each action, by its number."""
        ...

    @property
    def moves(self) -> Moves | None:
        """None where it is not known which actions walk and turn."""
        ...

    def settings(self) -> dict[str, Any]:
        """What makes the world this one, as JSON: kept in the recording."""
        ...

    def reset(self, seed: int) -> View: ...

    def step(self, action: int) -> Step: ...

    def close(self) -> None: ...


def optional_package(module: str, wanted_by: str, how: str) -> Any:
    """Import a package that not everyone has; without it, say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"env: {wanted_by} needs the package {module}, which cannot be imported ({error}); {how}"
        ) from (error)


def one_line(what: object) -> str:
    """For messages: some spaces and errors of others say what they are on several lines."""
    return " ".join(str(what).split())


def check_repeat(repeat: int) -> int:
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
        raise InputError(f"repeat: got {repeat!r}, expected a whole number of at least 1")
    return repeat
