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

from tdvae.checks import NonNegative
from tdvae.config import Config, Size

AGES = (2.0, 8.0, 32.0)  # time constants of the features of how long ago a place was seen, in steps
RARE_UPDATES = -1.5  # initial bias of the gate of a learned state, so that it lasts for some steps at first
BESIDE = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))  # a place and the four around it
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
    """Config of `MapMemory`, for grid worlds in which an agent sees a window of classes around itself.

    With ``channels``, config of `LivingMap`.
    """

    size: tuple[Size, Size]  # rows and columns; the world must fit
    moves: tuple[tuple[int, int], ...]  # rows and columns that each action moves the agent by
    obstacles: tuple[int, ...] = ()  # classes that block a move
    features: Size = 128  # size of the learned summary of the whole map
    channels: NonNegative = 0  # numbers of a learned state of every place

    def build(self, event_shape: Sequence[int], classes: int) -> MapMemory:
        return (LivingMap if self.channels else MapMemory)(event_shape, classes, self)

    def features_size(self, event_shape: Sequence[int], classes: int) -> int:
        """The number of features of a map: the window where an action leads, one-hot, the learned states of its places,
        and the summary."""
        return math.prod(event_shape) * (classes + self.channels) + self.features


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
        self.size = self.recorded = 2 * self.places
        self.register_buffer("moves", torch.tensor([*config.moves, (0, 0)]), persistent=False)  # the last: no action
        rows, columns = (torch.arange(side) - side // 2 for side in event_shape)
        window = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1)
        self.register_buffer("window", window, persistent=False)  # offsets (cells, 2) from the agent
        blocks = torch.zeros(classes + 1, dtype=torch.bool)
        blocks[list(config.obstacles)] = True
        self.register_buffer("blocks", blocks, persistent=False)
        self.register_buffer("features_of", _features_of_places(classes), persistent=False)
        self.whole = nn.Linear(self.places * (classes + len(AGES)), config.features)
        self.features_size = config.features_size(event_shape, classes)

    def place(self, offset: Tensor) -> Tensor:
        """The number of the place at an offset (..., 2) from the agent; the map's edges are joined."""
        return offset[..., 0] % self.sides[0] * self.sides[1] + offset[..., 1] % self.sides[1]

    def first(self) -> Tensor:
        """Nothing was seen."""
        empty = self.whole.weight.new_zeros(2, self.places)
        empty[0] = self.classes
        return empty.flatten()

    def walk(self, memory: Tensor, dt: Tensor, actions: Tensor) -> Tensor:
        """The offset (M, 2) after ``dt`` (M,) of the actions (M, J, A), given maps (M, size)."""
        chosen = torch.where(actions.any(-1), actions.argmax(-1), len(self.moves) - 1)
        offset = torch.zeros(len(memory), 2, dtype=torch.long, device=memory.device)
        for step in range(int(dt.max())):
            ahead = offset + self.moves[chosen[:, step]]
            blocked = self.blocks[memory.gather(1, self.place(ahead)[:, None])[:, 0].long()]
            offset = torch.where((blocked | (step >= dt))[:, None], offset, ahead)
        return offset

    def around(self, offset: Tensor) -> Tensor:
        """The numbers (M, places) of all places as they are counted from an offset (M, 2)."""
        rows = (torch.arange(self.sides[0], device=offset.device) + offset[:, :1]) % self.sides[0] * self.sides[1]
        columns = (torch.arange(self.sides[1], device=offset.device) + offset[:, 1:]) % self.sides[1]
        return (rows[:, :, None] + columns[:, None]).flatten(1)

    def _moved(self, memory: Tensor, dt: Tensor, offset: Tensor) -> Tensor:
        """The map (M, 2, places) as seen from an offset that was reached after ``dt`` (M,) steps."""
        index = self.around(offset)[:, None].expand(-1, 2, -1)
        moved = memory[:, : self.recorded].unflatten(1, (2, self.places)).gather(2, index)
        moved[:, 1] += dt[:, None]
        return moved

    def _seen(self, moved: Tensor, x: Tensor) -> Tensor:
        """The map (M, 2, places) with an observation (M, *event) entered."""
        window = self.place(self.window)
        moved[:, 0, window] = x.flatten(1).to(moved.dtype)
        moved[:, 1, window] = 0
        return moved

    @torch.no_grad()
    def after(self, memory: Tensor, x: Tensor, features: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        assert actions is not None  # the config checks that there are actions
        flat, steps = memory.reshape(-1, self.recorded), dt.reshape(-1)
        offset = self.walk(flat, steps, actions.flatten(0, -3))
        return self._seen(self._moved(flat, steps, offset), x.reshape(len(flat), -1)).view(*memory.shape)

    @torch.no_grad()
    def through(self, x: Tensor, features: Tensor, actions: Tensor | None) -> Tensor:
        assert actions is not None
        memories = [self.first()[: self.recorded].expand(len(x), -1)]
        one = torch.ones(len(x), dtype=torch.long, device=x.device)
        for t in range(x.shape[1]):
            memories.append(MapMemory.after(self, memories[-1], x[:, t], features[:, t], one, actions[:, t, None]))
        return torch.stack(memories, dim=1)

    def observation(self, memory: Tensor) -> Tensor:
        """The last observation (..., *event): the window in the map around the agent."""
        return memory[..., self.place(self.window)].long().unflatten(-1, self.event_shape)

    def _features(self, moved: Tensor) -> Tensor:
        """The features (M, places, classes + ages) of what each place of maps (M, 2, places) is."""
        return F.embedding(self._kind(moved), self.features_of)

    def _kind(self, moved: Tensor) -> Tensor:
        """The row (M, places) of ``features_of`` for each place of maps (M, 2, places)."""
        return (moved[:, 0] * (OLDEST + 1) + moved[:, 1].clamp(max=OLDEST)).long()

    def classes_and_ages(self, memory: Tensor) -> Tensor:
        """The features (M, classes + ages, rows, columns) of maps (M, size), the agent in the corner."""
        recorded = memory[:, : self.recorded].unflatten(-1, (2, self.places))
        return self._features(recorded).mT.unflatten(-1, self.sides)

    def forward(self, memory: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        """Features of the map around the place that the actions lead to: the window there as it was seen last, one-hot,
        and a learned summary of the whole map."""
        assert actions is not None
        lead = memory.shape[:-1]
        if len(lead) > 1 and lead[0] > 1 and memory.stride(0) == dt.stride(0) == actions.stride(0) == 0:
            return self(memory[0], dt[0], actions[0]).expand(*lead, -1)  # the same for all samples of a state
        flat, steps = memory.reshape(-1, self.size), dt.reshape(-1)
        with torch.no_grad():
            offset = self.walk(flat, steps, actions.flatten(0, -3))
            places = self._features(self._moved(flat, steps, offset))
            there = places[:, self.place(self.window), : self.classes].flatten(1)
        parts = [there, *self._learned(flat, offset), F.relu(self.whole(places.flatten(1)))]
        return torch.cat(parts, dim=-1).view(*lead, -1)

    def _learned(self, memory: Tensor, offset: Tensor) -> list[Tensor]:
        """What a learned map (M, size) holds of the window at an offset (M, 2)."""
        return []


class LivingMap(MapMemory):
    """A map in which every place also has a learned state, which goes on to change while the place is out of sight.

    The state is that of a gated recurrent unit. It reads what was seen last at the place and at the four beside it, how
    long ago, and their states, so things that move can be followed where they cannot be seen. It is the same function
    for all places, but for a bias by where the place is from the agent.

    The states follow the class and the age of all places in a map, (..., (2 + channels) · rows · columns). In a jump
    they are moved with the map, and not advanced.
    """

    def __init__(self, event_shape: Sequence[int], classes: int, config: GridMap) -> None:
        super().__init__(event_shape, classes, config)
        self.channels = config.channels
        self.size = (2 + self.channels) * self.places
        self.kinds = nn.Linear(classes + len(AGES), self.channels, bias=False)
        self.cell = nn.Linear(len(BESIDE) * 2 * self.channels, 2 * self.channels, bias=False)
        bias = torch.tensor([RARE_UPDATES, 0.0]).repeat_interleave(self.channels)
        self.bias = nn.Parameter(bias.expand(self.places, -1).clone())  # by where a place is from the agent

    def first(self) -> Tensor:
        return F.pad(super().first(), (0, self.channels * self.places))

    def states(self, memory: Tensor) -> Tensor:
        """The learned states (M, places, channels) in maps (M, size)."""
        return memory[:, self.recorded :].unflatten(1, (self.places, self.channels))

    def _read(self, recorded: Tensor) -> Tensor:
        """What the cell is given of each place of maps (M, 2 · places), (M, places, channels)."""
        moved = recorded.unflatten(1, (2, self.places))
        return F.embedding(self._kind(moved), self.kinds(self.features_of))

    def _advance(self, states: Tensor, read: Tensor, offset: Tensor) -> Tensor:
        """The states (M, places, channels) after a move by an offset (M, 2), given what the cell reads of the map."""
        index = self.around(offset)[:, :, None].expand_as(states)
        states = states.gather(1, index)
        here = torch.cat([states, read], dim=2).unflatten(1, self.sides)
        beside = torch.cat([here if at == (0, 0) else here.roll(at, (1, 2)) for at in BESIDE], dim=3).flatten(1, 2)
        update, new = (self.cell(beside) + self.bias).chunk(2, 2)
        return torch.lerp(states, torch.tanh(new), torch.sigmoid(update))

    def after(self, memory: Tensor, x: Tensor, features: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor:
        assert actions is not None
        flat = memory.reshape(-1, self.size)
        with torch.no_grad():
            offset = self.walk(flat, dt.reshape(-1), actions.flatten(0, -3))
        recorded = super().after(memory[..., : self.recorded], x, features, dt, actions).flatten(0, -2)
        states = self._advance(self.states(flat), self._read(recorded), offset)
        return torch.cat([recorded, states.flatten(1)], dim=1).view(*memory.shape)

    def through(self, x: Tensor, features: Tensor, actions: Tensor | None) -> Tensor:
        assert actions is not None
        recorded = super().through(x, features, actions)
        one = torch.ones(len(x), dtype=torch.long, device=x.device)
        states = [self.states(self.first().expand(len(x), -1))]
        for t in range(x.shape[1]):
            offset = self.walk(recorded[:, t], one, actions[:, t, None])
            states.append(self._advance(states[-1], self._read(recorded[:, t + 1]), offset))
        return torch.cat([recorded, torch.stack(states, dim=1).flatten(2)], dim=2)

    def _learned(self, memory: Tensor, offset: Tensor) -> list[Tensor]:
        there = self.place(offset[:, None] + self.window)
        return [self.states(memory).gather(1, there[:, :, None].expand(-1, -1, self.channels)).flatten(1)]


def _features_of_places(classes: int) -> Tensor:
    """The features of a place of each class and age, ((classes + 1) · (OLDEST + 1), classes + len(AGES)): its class,
    one-hot, and its age; zeros if it was never seen."""
    ages = torch.exp(-torch.arange(OLDEST + 1)[:, None] / torch.tensor(AGES))
    table = torch.zeros(classes + 1, OLDEST + 1, classes + len(AGES))
    table[:classes, :, :classes] = torch.eye(classes)[:, None]
    table[:classes, :, classes:] = ages
    return table.flatten(0, 1)
