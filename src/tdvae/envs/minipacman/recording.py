"""Recordings of played games: observations, actions and rewards for training, and the full state for probes.

A sequence starts with a new game. x_1 is its first frame, which no action caused: its action is all zeros and its
reward 0. Later, a_t leads to x_t and r_t. A sequence ends with the frame of Pacman's death or of the frame limit. The
rest of the arrays is padding (zeros; -1 for positions), and ``lengths`` gives the number of real frames. No sequence is
discarded or cut elsewhere, so there is no selection of games that last long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tdvae.data.arrays import from_arrays
from tdvae.envs.minipacman.draws import spawn
from tdvae.envs.minipacman.games import ABSENT, Games
from tdvae.envs.minipacman.maze import ACTIONS, HEIGHT, WIDTH
from tdvae.envs.minipacman.policy import Player, PlayerSettings
from tdvae.envs.minipacman.rules import check_at_least_one
from tdvae.envs.minipacman.view import Kind, View
from tdvae.types import Sequences

Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int64]
_BATCH = 2048  # games played in parallel; their state fits in the processor's cache


@dataclass(frozen=True, eq=False)
class Truth:
    """The full state at each observation. Positions are (row, column); -1 for ghosts that are absent."""

    pacman: Shorts  # (N, T, 2)
    ghosts: Shorts  # (N, T, G, 2)
    food: npt.NDArray[np.bool_]  # (N, T, 15, 19) cells with food
    power: Shorts  # (N, T)
    level: Shorts  # (N, T)


@dataclass(frozen=True, eq=False)
class Recording:
    """N played games of up to T frames."""

    x: Bytes  # (N, T, *shape of the view)
    actions: npt.NDArray[np.float32]  # (N, T, 5) one-hot; zeros for the first frame
    rewards: npt.NDArray[np.float32]  # (N, T)
    lengths: npt.NDArray[np.int64]  # (N,)
    died: npt.NDArray[np.bool_]  # (N,) whether the sequence ends with Pacman's death
    truth: Truth | None

    def sequences(self) -> Sequences:
        """The sequences for training: classes as integers, colours as floats from 0 to 1."""
        x = self.x / np.float32(255) if self.x.ndim == 5 else self.x
        return from_arrays(x, self.actions, self.rewards, self.lengths)


def record(
    games: int,
    steps: int,
    seed: int,
    mode: str = "regular",
    window: int | None = 5,
    observation: Kind = "classes",
    level: int = 1,
    player: PlayerSettings | None = None,
    truth: bool = True,
) -> Recording:
    """Play ``games`` games for up to ``steps`` frames each. Game i does not depend on the number of games.

    By default the player sees the ghosts that the window shows. ``truth=False`` omits the full state, of which the food
    map is by far the largest part (285 bytes per frame).
    """
    check_at_least_one("games", games)
    check_at_least_one("steps", steps)
    view = View(window, observation)
    player = player or PlayerSettings(sight=None if window is None else window // 2)
    seeds = spawn(seed, games)
    recording = _empty_recording(games, steps, view, truth)
    ghosts: list[Shorts] = []
    for start in range(0, games, _BATCH):
        batch = Games(seeds[start : start + _BATCH], mode, level)
        ghosts.append(_play_batch(batch, view, Player(len(batch), player), recording, start))
    return (
        recording
        if recording.truth is None
        else replace(recording, truth=replace(recording.truth, ghosts=_concatenate(ghosts)))
    )


def _empty_recording(n: int, steps: int, view: View, truth: bool) -> Recording:
    """A recording of padding only. The ghosts, whose number is known only at the end, are added later."""
    state = Truth(
        pacman=np.full((n, steps, 2), ABSENT, np.int16),
        ghosts=np.zeros((n, steps, 0, 2), np.int16),
        food=np.zeros((n, steps, HEIGHT, WIDTH), np.bool_),
        power=np.zeros((n, steps), np.int16),
        level=np.zeros((n, steps), np.int16),
    )
    return Recording(
        x=np.zeros((n, steps, *view.shape), np.uint8),
        actions=np.zeros((n, steps, len(ACTIONS)), np.float32),
        rewards=np.zeros((n, steps), np.float32),
        lengths=np.zeros(n, np.int64),
        died=np.zeros(n, np.bool_),
        truth=state if truth else None,
    )


def _play_batch(games: Games, view: View, player: Player, recording: Recording, start: int) -> Shorts:
    """Play a batch of games and write them to rows ``start`` and following; returns the ghosts (N, T, G, 2)."""
    steps = recording.rewards.shape[1]
    ghosts = [_write_frame(recording, start, 0, games, view, np.arange(len(games)))]
    for t in range(1, steps):
        playing = np.flatnonzero(~games.over)
        if len(playing) == 0:
            break
        actions = player(games)
        rewards = games.step(actions).rewards
        recording.rewards[start + playing, t] = rewards[playing]
        recording.actions[start + playing, t, actions[playing]] = 1
        ghosts.append(_write_frame(recording, start, t, games, view, playing))
    part = slice(start, start + len(games))
    recording.lengths[part], recording.died[part] = games.frame + 1, games.terminated
    places = np.full((len(games), steps, len(games.ghosts), 2), ABSENT, np.int16)
    for t, present in enumerate(ghosts):
        places[:, t, : present.shape[1]] = present
    return places


def _write_frame(recording: Recording, start: int, t: int, games: Games, view: View, playing: Ints) -> Shorts:
    """Write one frame of the games that are not over; returns the positions of their ghosts."""
    rows = start + playing
    recording.x[rows, t] = view(games)[playing]
    if recording.truth is None:
        return np.zeros((len(games), 0, 2), np.int16)
    recording.truth.pacman[rows, t] = games.pacman_place[playing]
    recording.truth.food[rows, t] = games.food[playing]
    recording.truth.power[rows, t] = games.power[playing]
    recording.truth.level[rows, t] = games.level[playing]
    ghosts = np.full((len(games), len(games.ghosts), 2), ABSENT, np.int16)
    ghosts[playing] = games.ghost_places[playing]
    return ghosts


def _concatenate(parts: list[Shorts]) -> Shorts:
    """Concatenate the ghosts of all batches, padded to the largest number of ghosts."""
    most = max(part.shape[2] for part in parts)
    padded = [np.pad(p, ((0, 0), (0, 0), (0, most - p.shape[2]), (0, 0)), constant_values=ABSENT) for p in parts]
    return np.concatenate(padded)
