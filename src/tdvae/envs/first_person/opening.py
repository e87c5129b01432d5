"""Open a world, given its id."""

from __future__ import annotations

from typing import Any

import gymnasium

from tdvae.data.recording import check_size
from tdvae.envs.first_person import corridors
from tdvae.envs.first_person.from_gymnasium import GymnasiumWorld
from tdvae.envs.first_person.from_miniworld import MiniworldWorld
from tdvae.envs.first_person.from_vizdoom import VizdoomWorld
from tdvae.envs.first_person.world import Moves, World, one_line
from tdvae.errors import InputError


def open_world(env: str, repeat: int | None = None, size: int = 64, moves: Moves | None = None) -> World:
    """Open the world with the id ``env``: a Gymnasium id, or ``module:id``.

    An action is repeated for ``repeat`` steps; the default is 4 in ViZDoom and 1 otherwise. ``moves``
    names the actions that walk and turn, for environments of which this package does not know them.
    """
    check_size(size)
    known = env.startswith(("Vizdoom", "MiniWorld-")) or env == corridors.ID
    if known and moves is not None:
        raise InputError(f"moves: expected None, because the moves of {env} are known, got {moves}")
    if env.startswith("Vizdoom"):
        return VizdoomWorld(env, repeat)
    if env.startswith("MiniWorld-"):
        return MiniworldWorld(env, repeat, size)
    options: dict[str, Any] = {"size": size} if env == corridors.ID else {}
    try:
        environment = gymnasium.make(env, **options)
    except (gymnasium.error.Error, ImportError) as error:
        raise InputError(f"env: cannot open {env!r} ({one_line(error)})") from error
    try:
        return GymnasiumWorld(
            environment,
            1 if repeat is None else repeat,
            corridors.MOVES if env == corridors.ID else moves,
            actions=corridors.ACTIONS if env == corridors.ID else None,
        )
    except BaseException:
        environment.close()
        raise
