"""MiniWorld: rooms and mazes drawn with OpenGL, without a screen.

Its z axis points towards whoever looks at the map with x to the right, so y here is -z: headings are then
counter-clockwise, as everywhere in recordings.
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

_HOW = "install it with: pip install 'tdvae[miniworld]' (Debian: apt install libegl1 libgl1 libglu1-mesa)"


class MiniworldWorld(GymnasiumWorld):
    """A MiniWorld environment by its Gymnasium id, drawn at the size of the recording."""

    def __init__(self, env_id: str, repeat: int | None = None, size: int = 64) -> None:
        repeat = check_repeat(1 if repeat is None else repeat)
        pyglet = optional_package("pyglet", env_id, _HOW)
        if not os.environ.get("DISPLAY"):
            pyglet.options["headless"] = True  # must be said before MiniWorld asks for a window
        try:
            with redirect_stdout(sys.stderr):  # it tells there what its renderer can do
                optional_package("miniworld", env_id, _HOW)
                env = gymnasium.make(env_id, obs_width=size, obs_height=size, disable_env_checker=True)
        except InputError:
            raise
        except gymnasium.error.Error as error:
            raise InputError(f"env: {env_id} cannot be opened ({one_line(error)})") from error
        except Exception as error:  # pyglet has as many kinds of them as there are ways to have no screen
            raise InputError(
                f"env: {env_id} cannot be opened ({type(error).__name__}: {one_line(error)}); {_HOW}"
            ) from error
        place: Any = env.unwrapped

        def pose(info: Info) -> Pose:
            x, _, z = place.agent.pos
            return float(x), -float(z), float(place.agent.dir)

        names = [action.name for action in list(place.actions)][: int(place.action_space.n)]
        moves = Moves(names.index("move_forward"), names.index("turn_left"), names.index("turn_right"))
        super().__init__(env, repeat, moves, pose=pose, actions=names, settings={"obs_width": size, "obs_height": size})
