"""Adapter for MiniWorld: rooms and mazes rendered with OpenGL, which works without a screen.

On a map with x to the right, MiniWorld's z axis points down. The pose therefore has y = -z, so that headings are
counter-clockwise, as in all recordings.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import Any

import gymnasium

from tdvae.envs.first_person.from_gymnasium import GymnasiumWorld, Info
from tdvae.envs.first_person.world import Moves, Pose, check_repeat, one_line, optional_package
from tdvae.errors import InputError

_INSTALL_HINT = "install it with: pip install 'tdvae[miniworld]' (Debian: apt install libegl1 libgl1 libglu1-mesa)"


class MiniworldWorld(GymnasiumWorld):
    """A MiniWorld environment, given its Gymnasium id, rendered at the size of the recording."""

    def __init__(self, env_id: str, repeat: int | None = None, size: int = 64) -> None:
        repeat = check_repeat(1 if repeat is None else repeat)
        pyglet = optional_package("pyglet", env_id, _INSTALL_HINT)
        if not os.environ.get("DISPLAY"):
            pyglet.options["headless"] = True  # must be set before MiniWorld opens a window
        try:
            with redirect_stdout(sys.stderr):  # MiniWorld prints the capabilities of its renderer
                optional_package("miniworld", env_id, _INSTALL_HINT)
                env = gymnasium.make(env_id, obs_width=size, obs_height=size, disable_env_checker=True)
        except InputError:
            raise
        except gymnasium.error.Error as error:
            raise InputError(f"env: cannot open {env_id} ({one_line(error)})") from error
        except Exception as error:  # without a screen, pyglet raises many different exceptions
            raise InputError(
                f"env: cannot open {env_id} ({type(error).__name__}: {one_line(error)}); {_INSTALL_HINT}"
            ) from error
        miniworld: Any = env.unwrapped

        def pose(info: Info) -> Pose:
            x, _, z = miniworld.agent.pos
            return float(x), -float(z), float(miniworld.agent.dir)

        names = [action.name for action in list(miniworld.actions)][: int(miniworld.action_space.n)]
        moves = Moves(names.index("move_forward"), names.index("turn_left"), names.index("turn_right"))
        super().__init__(env, repeat, moves, pose=pose, actions=names, settings={"obs_width": size, "obs_height": size})
