"""MiniPacman as a Gymnasium environment: one game of the vectorised engine."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tdvae.envs.minipacman.games import ABSENT, Games
from tdvae.envs.minipacman.maze import ACTIONS, WALLS
from tdvae.envs.minipacman.rules import MAX_FRAMES
from tdvae.envs.minipacman.view import N_CLASSES, Kind, View, as_text
from tdvae.errors import InputError

Bytes = npt.NDArray[np.uint8]
_PIXELS = 16  # side of a rendered cell


class MiniPacmanEnv(gymnasium.Env[Bytes, np.int64]):
    """MiniPacman, observed through a window around Pacman. ``reset(seed=7)`` starts the same game as ``Games([7])``.

    The rules are in :mod:`tdvae.envs.minipacman.games`, the kinds of observation in :mod:`tdvae.envs.minipacman.view`.
    Death terminates an episode; the frame limit truncates it. ``info`` contains the full state, for probes: ``pacman``
    (row, column), ``ghosts`` (number present, 2), ``power``, ``level``, ``frame``, and the maps (15, 19) ``food`` (not
    yet eaten), ``eaten`` and ``pills``. Rendering shows the whole maze; images are darker outside the window.
    """

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 8}  # noqa: RUF012

    def __init__(
        self,
        mode: str = "regular",
        window: int | None = 5,
        observation: Kind = "classes",
        level: int = 1,
        max_frames: int = MAX_FRAMES,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise InputError(f"render_mode: expected None, 'rgb_array' or 'ansi', got {render_mode!r}")
        self.render_mode = render_mode
        self._view, self._whole_maze = View(window, observation), View(None, "classes")
        self._colours = View(None, "rgb")
        self._mode, self._level, self._max_frames = mode, level, max_frames
        self._new_game(0)  # checks the settings here and not at the first reset
        self._games: Games | None = None
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = _observation_space(self._view)

    def _new_game(self, seed: int) -> Games:
        return Games([seed], self._mode, self._level, self._max_frames)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Bytes, dict[str, Any]]:
        """Start a new game. Without a seed, the environment's generator draws one."""
        super().reset(seed=seed)
        self._games = self._new_game(int(self.np_random.integers(2**63)) if seed is None else seed)
        return self._view(self._games)[0], self._info(self._games)

    def step(self, action: np.int64 | int) -> tuple[Bytes, float, bool, bool, dict[str, Any]]:
        games = self._current_games()
        if games.over[0]:
            raise InputError("step: expected a reset after the end of a game, got another step")
        if not self.action_space.contains(action):
            raise InputError(f"action: expected 0 to {len(ACTIONS) - 1} ({', '.join(ACTIONS)}), got {action!r}")
        outcome = games.step([int(action)])
        done = bool(outcome.terminated[0]), bool(outcome.truncated[0])
        return self._view(games)[0], float(outcome.rewards[0]), *done, self._info(games)

    def render(self) -> Any:
        """The whole maze as an image (240, 304, 3), or as text below a line with level, power and frame."""
        if self.render_mode is None:
            return None
        games = self._current_games()
        if self.render_mode == "ansi":
            status = f"level {games.level[0]}  power {games.power[0]}  frame {games.frame[0]}"
            return f"{status}\n{as_text(self._whole_maze(games)[0])}\n"
        image = self._colours(games)[0]
        image[~self._view.seen_from(int(games.pacman[0]))] //= 3
        return image.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)

    def _current_games(self) -> Games:
        if self._games is None:
            raise InputError("reset: expected a reset before the first step or rendering, got none")
        return self._games

    @staticmethod
    def _info(games: Games) -> dict[str, Any]:
        food = games.food[0]
        return {
            "pacman": games.pacman_place[0],
            "ghosts": games.ghost_places[0, games.ghosts[:, 0] != ABSENT],
            "power": int(games.power[0]),
            "level": int(games.level[0]),
            "frame": int(games.frame[0]),
            "food": food,
            "eaten": ~(food | WALLS),
            "pills": games.pills[0],
        }


def _observation_space(view: View) -> spaces.Space[Bytes]:
    if view.kind == "rgb":
        return spaces.Box(0, 255, view.shape, np.uint8)
    return spaces.MultiDiscrete(np.full(view.shape, N_CLASSES[view.kind]), np.uint8)
