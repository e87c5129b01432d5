"""Adapter for ViZDoom, which runs Doom's engine without a screen and is deterministic given a seed.

The weapon, the status bar and the crosshair are not rendered, so that frames show the world only. The engine renders
320 × 240 pixels and takes each pixel from one point of a texture; the average over pixels keeps distant walls and
floors from flickering. An action is repeated for 4 of Doom's 35 tics per second: a turn of about 14° or a walk of 20
map units. The game shows no frame after its last step; the reward of that step is stored as `unseen_reward`.
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
_RENDER_SETTINGS: dict[str, Any] = {
    "screen_resolution": "RES_320X240",
    "render_weapon": False,
    "render_hud": False,
    "render_crosshair": False,
}

_ENGINE_ERRORS = (
    "ViZDoomErrorException",
    "ViZDoomIsNotRunningException",
    "ViZDoomUnexpectedExitException",
    "MessageQueueException",
    "SharedMemoryException",
)


class VizdoomWorld(GymnasiumWorld):
    """A ViZDoom scenario, given its Gymnasium id. The pose comes from the game variables, in map units."""

    def __init__(self, env_id: str, repeat: int | None = None) -> None:
        repeat = check_repeat(REPEAT if repeat is None else repeat)
        vizdoom = optional_package("vizdoom", env_id, "install it with: pip install 'tdvae[vizdoom]'")
        optional_package("vizdoom.gymnasium_wrapper", env_id, "install it with: pip install 'tdvae[vizdoom]'")
        self._folder = TemporaryDirectory(prefix="tdvae-vizdoom-")
        try:
            env = gymnasium.make(
                env_id,
                frame_skip=repeat,
                disable_env_checker=True,  # the checker warns about the engine's game variables
                **_RENDER_SETTINGS,
            )
        except (gymnasium.error.Error, TypeError) as error:
            self._folder.cleanup()
            raise InputError(f"env: cannot open {env_id} ({one_line(error)})") from error
        game: Any = env.unwrapped
        self._engine = game.game
        self._engine_errors = tuple(getattr(vizdoom, name) for name in _ENGINE_ERRORS)
        variables = [getattr(vizdoom.GameVariable, name) for name in ("POSITION_X", "POSITION_Y", "ANGLE")]

        def pose(info: Info) -> Pose:
            x, y, angle = (self._engine.get_game_variable(variable) for variable in variables)
            return x, y, math.radians(angle)

        try:
            names = _action_names(game, env_id)
            super().__init__(
                env,
                1,
                _find_moves(names),
                "screen",
                pose,
                names,
                shows_end=False,
                settings={"repeat": repeat, **_RENDER_SETTINGS},
            )
        except BaseException:
            env.close()
            self._folder.cleanup()
            raise

    def reset(self, seed: int) -> View:
        with self._convert_errors():
            if self._engine.is_running():
                return super().reset(seed)
            # On start the engine writes a folder and a config file to the working directory, here a temporary one.
            with chdir(self._folder.name):
                return super().reset(seed)

    def step(self, action: int) -> Step:
        with self._convert_errors():
            return super().step(action)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert the exceptions of the engine to an `InputError`.

        The engine is a separate process, so Ctrl-C can stop it before Python handles the interruption.
        """
        try:
            yield
        except self._engine_errors as error:
            raise InputError(f"env: the game of {self.name} has stopped ({one_line(error)})") from error

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def _action_names(game: Any, env_id: str) -> list[str]:
    """The name of each action, made of the buttons that it holds."""
    if not isinstance(game.action_space, gymnasium.spaces.Discrete):
        raise InputError(
            f"env: expected Discrete actions, got {one_line(game.action_space)} in {env_id}; choose a scenario "
            "without MultiBinary in its id and without continuous buttons"
        )
    buttons = [button.name for button in game.game.get_available_buttons()]
    return [
        "+".join(b for b, held in zip(buttons, states, strict=True) if held) or "NONE" for states in game.button_map
    ]


def _find_moves(names: list[str]) -> Moves | None:
    required = ("MOVE_FORWARD", "TURN_LEFT", "TURN_RIGHT")
    if not all(name in names for name in required):
        return None
    forward, left, right = map(names.index, required)
    return Moves(forward, left, right)
