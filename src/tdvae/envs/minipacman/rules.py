"""Constants of the game: the classes of cells, and the rewards and goals of each mode."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from tdvae.errors import InputError

PILLS = 2
POWER = 20
"""Number of steps for which a pill makes the ghosts edible."""
MAX_FRAMES = 3000
STRAY = 0.05
"""Probability that a ghost takes a random direction at a junction instead of the one towards Pacman."""


class Cell(IntEnum):
    """The class of a cell in a categorical observation. A cell with a pill also contains food."""

    EMPTY = 0
    WALL = 1
    FOOD = 2
    PILL = 3
    PACMAN = 4
    GHOST = 5
    EDIBLE = 6


@dataclass(frozen=True)
class Mode:
    """The rewards of a mode, and the goal that ends a level: what must be eaten, or a number of frames."""

    step: float
    food: float
    pill: float
    ghost: float
    death: float
    goal: Literal["food", "pills", "ghosts"]
    level_frames: int | None = None


MODES = {
    "regular": Mode(step=0.0, food=1.0, pill=2.0, ghost=5.0, death=0.0, goal="food"),
    "avoid": Mode(step=0.1, food=-0.1, pill=-5.0, ghost=-10.0, death=-20.0, goal="food", level_frames=128),
    "hunt": Mode(step=0.0, food=0.0, pill=1.0, ghost=10.0, death=-20.0, goal="ghosts"),
    "ambush": Mode(step=0.0, food=-0.1, pill=0.0, ghost=10.0, death=-20.0, goal="ghosts"),
    "rush": Mode(step=0.0, food=-0.1, pill=10.0, ghost=0.0, death=0.0, goal="pills"),
}


def mode_named(name: str) -> Mode:
    if name not in MODES:
        raise InputError(f"mode: expected one of {', '.join(MODES)}, got {name!r}")
    return MODES[name]


def ghosts_at_level(level: int) -> int:
    return 1 + (level - 1) // 2


def check_at_least_one(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name}: expected an integer of at least 1, got {value!r}")
