"""Memories: what of the observed past is a part of the state, beside z. They are functions of the past, not learned
distributions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.config import Config, Size

AGES = (2.0, 8.0, 32.0)  # time constants of the features of how long ago a place was seen, in steps
OLDEST = 127  # steps; a place that was seen longer ago has the features of this age


class Memory(nn.Module, ABC):
    """m_t in a state s_t = (z_t, m_t): a vector that follows from x_≤t and the actions.

    Observations come as x and as ``features``, those of the observation encoder.
    """

    size: int  # of m_t
    features_size: int  # of what p_T and p_D are given of it

    @abstractmethod
    def first(self) -> Tensor:
        """m_0 (size,), before the first observation."""

    @abstractmethod
    def after(self, memory: Tensor, x: Tensor, features: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        """m_t2 (..., size), given m_t1, the observation x_t2, and the actions (..., J, A) of a jump of ``dt`` steps."""

    @abstractmethod
    def through(self, x: Tensor, features: Tensor, actions: Tensor | None) -> Tensor:
        """m_0 … m_T (N, T + 1, size) of whole sequences."""

    @abstractmethod
    def forward(self, memory: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        """The features (..., features_size) that p_T and p_D are given of m_t1 in a jump."""


class LastObservation(Memory):
    """m_t is the features of x_t; those of x_0 are learned."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = self.features_size = size
        self.x_0 = nn.Parameter(torch.zeros(size))

    def first(self) -> Tensor:
        return self.x_0

    def after(self, memory: Tensor, x: Tensor, features: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        return features

    def through(self, x: Tensor, features: Tensor, actions: Tensor | None) -> Tensor:
        return torch.cat([self.x_0.expand(len(x), 1, -1), features], dim=1)

    def forward(self, memory: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        return memory


@dataclass(frozen=True)
class GridMap(Config):
    """Config of `MapMemory`, for grid worlds in which an agent sees a window of classes around itself."""

    size: tuple[Size, Size]  # rows and columns; the world must fit
    moves: tuple[tuple[int, int], ...]  # rows and columns that each action moves the agent by
    obstacles: tuple[int, ...] = ()  # classes that block a move
    features: Size = 128  # size of the learned summary of the whole map

    def build(self, event_shape: Sequence[int], classes: int) -> MapMemory:
        return MapMemory(event_shape, classes, self)

    def features_size(self, event_shape: Sequence[int], classes: int) -> int:
        """The number of features of a map: the window where an action leads, one-hot, and the summary."""
        return math.prod(event_shape) * classes + self.features


class MapMemory(Memory):
    """A map of a grid world: what was seen last at every place, and how long ago, registered by the actions.

    In many grid worlds an agent sees a window around itself and moves by one cell, unless an obstacle blocks it. Where
    it is relative to its start then follows from its actions and from what it has seen, and every window can be entered
    in a map. z is then free for what was not seen. Nothing of a particular maze is built in: the world must fit into
    the map, whose edges are joined.

    A map is a vector (..., 2 · rows · columns): two numbers for each place, its class and its age in steps. Its first
    place is the agent's; a place that was never seen has the class ``classes``.
    """

    moves: Tensor
    window: Tensor
    blocks: Tensor
    features_of: Tensor

    def __init__(self, event_shape: Sequence[int], classes: int, config: GridMap) -> None:
        super().__init__()
        self.sides, self.classes, self.event_shape = config.size, classes, tuple(event_shape)
        self.places = math.prod(config.size)
        self.size = 2 * self.places
        self.register_buffer("moves", torch.tensor([*config.moves, (0, 0)]), persistent=False)  # the last: no action
        rows, columns = (torch.arange(side) - side // 2 for side in event_shape)
        window = self._place(torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1))
        self.register_buffer("window", window, persistent=False)
        blocks = torch.zeros(classes + 1, dtype=torch.bool)
        blocks[list(config.obstacles)] = True
        self.register_buffer("blocks", blocks, persistent=False)
        self.register_buffer("features_of", _features_of_places(classes), persistent=False)
        self.whole = nn.Linear(self.places * (classes + len(AGES)), config.features)
        self.features_size = config.features_size(event_shape, classes)

    def _place(self, offset: Tensor) -> Tensor:
        """The number of the place at an offset (..., 2) from the agent; the map's edges are joined."""
        return offset[..., 0] % self.sides[0] * self.sides[1] + offset[..., 1] % self.sides[1]

    def first(self) -> Tensor:
        """Nothing was seen."""
        empty = self.whole.weight.new_zeros(2, self.places)
        empty[0] = self.classes
        return empty.flatten()

    def _walk(self, board: Tensor, dt: Tensor, actions: Tensor) -> Tensor:
        """The offset (M, 2) after ``dt`` (M,) of the actions (M, J, A), given the classes (M, places)."""
        chosen = torch.where(actions.any(-1), actions.argmax(-1), len(self.moves) - 1)
        offset = torch.zeros(len(board), 2, dtype=torch.long, device=board.device)
        for step in range(int(dt.max())):
            ahead = offset + self.moves[chosen[:, step]]
            blocked = self.blocks[board.gather(1, self._place(ahead)[:, None])[:, 0].long()]
            offset = torch.where((blocked | (step >= dt))[:, None], offset, ahead)
        return offset

    def _moved(self, memory: Tensor, dt: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Classes and ages (M, places) around the place that the actions lead to."""
        board, age = memory.unflatten(-1, (2, self.places)).unbind(-2)
        offset = self._walk(board, dt, actions)
        everywhere = torch.arange(self.places, device=board.device)
        source = torch.stack([everywhere // self.sides[1], everywhere % self.sides[1]], dim=-1) + offset[:, None]
        index = self._place(source)
        return board.gather(1, index), age.gather(1, index) + dt[:, None]

    @torch.no_grad()
    def after(self, memory: Tensor, x: Tensor, features: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        assert actions is not None  # the config checks that there are actions
        lead = memory.shape[:-1]
        board, age = self._moved(memory.reshape(-1, 2 * self.places), dt.reshape(-1), actions.flatten(0, -3))
        seen = x.reshape(len(board), -1).to(board.dtype)
        board = board.index_copy(1, self.window, seen)
        age = age.index_fill(1, self.window, 0)
        return torch.cat([board, age], dim=-1).view(*lead, -1)

    @torch.no_grad()
    def through(self, x: Tensor, features: Tensor, actions: Tensor | None) -> Tensor:
        assert actions is not None
        memories, one = [self.first().expand(len(x), -1)], torch.ones(len(x), dtype=torch.long, device=x.device)
        for t in range(x.shape[1]):
            memories.append(self.after(memories[-1], x[:, t], features[:, t], one, actions[:, t, None]))
        return torch.stack(memories, dim=1)

    def observation(self, memory: Tensor) -> Tensor:
        """The last observation (..., *event): the window in the map around the agent."""
        return memory[..., self.window].long().unflatten(-1, self.event_shape)

    def _features(self, board: Tensor, age: Tensor) -> Tensor:
        """The features (M, places, classes + ages) of what each place is."""
        return F.embedding((board * (OLDEST + 1) + age.clamp(max=OLDEST)).long(), self.features_of)

    def classes_and_ages(self, memory: Tensor) -> Tensor:
        """The features (M, classes + ages, rows, columns) of a map (M, 2 · places), the agent in the corner."""
        board, age = memory.unflatten(-1, (2, self.places)).unbind(-2)
        return self._features(board, age).mT.unflatten(-1, self.sides)

    def forward(self, memory: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        """Features of the map around the place that the actions lead to: the window there as it was seen last, one-hot,
        and a learned summary of the whole map."""
        assert actions is not None
        lead = memory.shape[:-1]
        if len(lead) > 1 and lead[0] > 1 and memory.stride(0) == dt.stride(0) == actions.stride(0) == 0:
            return self(memory[0], dt[0], actions[0]).expand(*lead, -1)  # the same for all samples of a state
        with torch.no_grad():
            board, age = self._moved(memory.reshape(-1, 2 * self.places), dt.reshape(-1), actions.flatten(0, -3))
            places = self._features(board, age)
            there = places[:, self.window, : self.classes].flatten(1)
        return torch.cat([there, F.relu(self.whole(places.flatten(1)))], dim=-1).view(*lead, -1)


def _features_of_places(classes: int) -> Tensor:
    """The features of a place of each class and age, ((classes + 1) · (OLDEST + 1), classes + len(AGES)): its class,
    one-hot, and its age; zeros if it was never seen."""
    ages = torch.exp(-torch.arange(OLDEST + 1)[:, None] / torch.tensor(AGES))
    table = torch.zeros(classes + 1, OLDEST + 1, classes + len(AGES))
    table[:classes, :, :classes] = torch.eye(classes)[:, None]
    table[:classes, :, classes:] = ages
    return table.flatten(0, 1)
