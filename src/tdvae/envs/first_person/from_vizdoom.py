"""ViZDoom: Doom's engine as a world, installable, without a screen, and the same under the same seed.

The engine draws without weapon, status bar and crosshair: what is seen then is the world and nothing else. It draws
320 × 240 pixels, each from one point of a texture; averaged down, far walls and floors do not flicker. An action is
held for 4 of Doom's tics (of which there are 35 a second), about 14° of a turn or 20 units of a walk. The game shows
no frame after its last step, but a reward comes with it (`unseen_reward` of the recording).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium

from tdvae.envs.first_person.from_gymnasium import GymnasiumWorld, Info
from tdvae.envs.first_person.world import Moves, Pose, Step, View, check_repeat, one_line, optional_package
from tdvae.errors import InputError

REPEAT = 4
_LOOKS: dict[str, Any] = {
    "screen_resolution": "RES_320X240",
    "render_weapon": False,
    "render_hud": False,
    "render_crosshair": False,
}

_FAILURES = (
    "ViZDoomErrorException",
    "ViZDoomIsNotRunningException",
    "ViZDoomUnexpectedExitException",
    "MessageQueueException",
    "SharedMemoryException",
)


class VizdoomWorld(GymnasiumWorld):
    """A ViZDoom scenario by its Gymnasium id; pose from the game's own variables, in map units."""

    def __init__(self, env_id: str, repeat: int | None = None) -> None:
        repeat = check_repeat(REPEAT if repeat is None else repeat)
        vizdoom = optional_package("vizdoom", env_id, "install it with: pip install 'tdvae[vizdoom]'")
        optional_package("vizdoom.gymnasium_wrapper", env_id, "install it with: pip install 'tdvae[vizdoom]'")
        self._folder = TemporaryDirectory(prefix="tdvae-vizdoom-")
        try:
            env = gymnasium.make(
                env_id,
                frame_skip=repeat,
                disable_env_checker=True,  # it complains about the engine's own game variables
                **_LOOKS,
            )
        except (gymnasium.error.Error, TypeError) as error:
            self._folder.cleanup()
            raise InputError(f"env: {env_id} cannot be opened ({one_line(error)})") from error
        game: Any = env.unwrapped
        self._engine = game.game
        self._failures = tuple(getattr(vizdoom, name) for name in _FAILURES)
        variables = [getattr(vizdoom.GameVariable, name) for name in ("POSITION_X", "POSITION_Y", "ANGLE")]

        def pose(info: Info) -> Pose:
            x, y, angle = (self._engine.get_game_variable(variable) for variable in variables)
            return x, y, math.radians(angle)

        try:
            names = _action_names(game, env_id)
            super().__init__(
                env, 1, _moves(names), "screen", pose, names, shows_end=False, settings={"repeat": repeat, **_LOOKS}
            )
        except BaseException:
            env.close()
            self._folder.cleanup()
            raise

    def reset(self, seed: int) -> View:
        with self._explained():
            if self._engine.is_running():
                return super().reset(seed)
            # The engine starts now, and leaves a folder and a configuration where it starts: not where the user is.
            with chdir(self._folder.name):
                return super().reset(seed)

    def step(self, action: int) -> Step:
        with self._explained():
            return super().step(action)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The engine is a process of its own, and may be stopped: by Ctrl-C, before Python hears of it."""
        try:
            yield
        except self._failures as error:
            raise InputError(f"env: the game of {self.name} has stopped ({one_line(error)})") from error

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def _action_names(game: Any, env_id: str) -> list[str]:
    """Each action by the buttons it holds."""
    if not isinstance(game.action_space, gymnasium.spaces.Discrete):
        raise InputError(
            f"env: the actions of {env_id} are {one_line(game.action_space)}, expected Discrete: a scenario "
            "whose id has no MultiBinary in it and which has no buttons with amounts"
        )
    buttons = [button.name for button in game.game.get_available_buttons()]
    return ["+".join(b for b, held in zip(buttons, which, strict=True) if held) or "NONE" for which in game.button_map]


def _moves(names: list[str]) -> Moves | None:
    wanted = ("MOVE_FORWARD", "TURN_LEFT", "TURN_RIGHT")
    if not all(name in names for name in wanted):
        return None
    forward, left, right = map(names.index, wanted)
    return Moves(forward, left, right)
