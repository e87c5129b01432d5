"""The truth about what recorded frames do not show: where the ghost is, and what has been eaten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tdvae.envs.minipacman import Recording, View
from tdvae.envs.minipacman.maze import FREE, HEIGHT, WIDTH
from tdvae.types import Sequences

SKIPPED = 10  # first frames of a game: there is nothing to remember yet
LONG_AGO = 8  # steps since a ghost was seen, and more
NEVER = 1_000_000
FREE_CELLS = torch.as_tensor(FREE)
_PLACE_AMONG_FREE = torch.full((HEIGHT * WIDTH,), -1).index_put((FREE_CELLS,), torch.arange(len(FREE)))
_VIEW = View()
_SEEN_FROM = torch.as_tensor(np.stack([_VIEW.seen_from(int(cell)).reshape(-1)[FREE] for cell in FREE]))


def observed(recording: Recording) -> Sequences:
    """What the models are given: windows and actions. Rewards are left out: what Pacman eats is in the window."""
    return replace(recording.sequences(), rewards=None)


@dataclass(frozen=True)
class Hidden:
    """The truth about frames, one row each: cells are counted among the free ones."""

    seen: Tensor  # (M, 138) which free cells are in view
    ghost: Tensor  # (M,) where the ghost is, -1 if it has been eaten
    eaten: Tensor  # (M, 138) whether the food is gone
    last_seen: Tensor  # (M,) where a ghost was seen last, 138 if never
    since: Tensor  # (M,) how many steps ago, at most LONG_AGO
    time: Tensor  # (M,) number of the frame
    pacman: Tensor  # (M,) where Pacman is
    age: Tensor  # (M,) how many steps ago a ghost was seen; NEVER if it was not

    @property
    def out_of_sight(self) -> Tensor:
        """(M,) whether there is a ghost, and it is not in view."""
        shown = self.seen.gather(1, self.ghost.clamp(min=0)[:, None])[:, 0]
        return (self.ghost >= 0) & ~shown


def hidden(recording: Recording, skipped: int = SKIPPED) -> Hidden:
    """Of all frames after the first few, game by game."""
    truth = recording.truth
    assert truth is not None  # recorded for probes
    pacman = number_of(torch.as_tensor(truth.pacman).long())
    ghost = number_of(torch.as_tensor(truth.ghosts).long())[..., 0]
    seen = _SEEN_FROM[pacman]
    shown = (ghost >= 0) & seen.gather(2, ghost.clamp(min=0)[..., None])[..., 0]
    last, age = torch.full_like(ghost, len(FREE)), torch.full_like(ghost, NEVER)
    for t in range(ghost.shape[1]):
        if t > 0:
            last[:, t], age[:, t] = last[:, t - 1], (age[:, t - 1] + 1).clamp(max=NEVER)
        last[:, t] = torch.where(shown[:, t], ghost[:, t], last[:, t])
        age[:, t] = torch.where(shown[:, t], 0, age[:, t])
    age = torch.where(last == len(FREE), NEVER, age)
    eaten = ~torch.as_tensor(truth.food).flatten(2)[..., FREE_CELLS]
    time = torch.arange(ghost.shape[1]).expand_as(ghost)
    parts = seen, ghost, eaten, last, age.clamp(max=LONG_AGO), time, pacman, age
    return Hidden(*(part[:, skipped:].flatten(0, 1) for part in parts))


def number_of(place: Tensor) -> Tensor:
    """(row, column) → number among the free cells; -1 stays -1."""
    index = place[..., 0] * WIDTH + place[..., 1]
    return torch.where(index >= 0, _PLACE_AMONG_FREE[index.clamp(min=0)], -1)


def rows_of(about: Hidden, rows: Tensor) -> Hidden:
    return Hidden(*(getattr(about, name)[rows] for name in Hidden.__dataclass_fields__))
