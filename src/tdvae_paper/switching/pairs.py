"""Distributions of pairs (t1, t2) around the last switch and across the separating interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from tdvae.errors import InputError
from tdvae.jumps import Jumps, refuse_outermost, uniform_integers
from tdvae.types import Pairs

UNINFORMATIVE_STEPS = (
    3  # first steps of the last interval; they depend little on its frequency, so no bridge ends there
)


@dataclass(frozen=True)
class Around(Jumps):
    """Pairs around an event that every sequence has at a fixed distance from its end.

    A ``share`` of the pairs has t1 within ``reach`` steps of length - ``ending``. The other t1, and all δt, follow
    ``steps``.
    """

    outermost = True
    share: float
    ending: int
    reach: int
    steps: Jumps

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_outermost(self.steps)
        if not 0 <= self.share <= 1:
            raise InputError(f"share: expected between 0 and 1, got {self.share}")
        if self.reach < 0 or self.ending < self.reach + self.steps.longest:
            raise InputError(
                f"ending: expected room for {self.reach} steps and a jump of {self.steps.longest}, got {self.ending}"
            )

    @property
    def longest(self) -> int:
        return max(self.steps.longest, self.ending + self.reach)

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return self.steps.draw(shape, generator, progress)

    def limited(self, limit: int) -> Around:
        return replace(self, steps=self.steps.limited(limit))

    def sample(self, lengths: Tensor, k: int, generator: Generator, progress: float = 1.0) -> Pairs:
        self.check_room(lengths)
        pairs = self.steps.sample(lengths, k, generator, progress)
        offset = torch.randint(-self.reach, self.reach + 1, pairs.t1.shape, generator=generator)
        t1 = lengths.cpu()[:, None] - self.ending + offset
        t1 = torch.where(torch.rand(t1.shape, generator=generator) < self.share, t1, pairs.t1)
        return replace(pairs, t1=t1, t2=t1 + pairs.dt)


@dataclass(frozen=True)
class Bridging(Jumps):
    """Pairs with t1 in the middle of a sequence and t2 in its end, a ``share`` of all; the others follow ``steps``.

    The middle begins after ``opening`` steps; the end is the last ``ending`` steps. Such pairs train the belief at
    every time between them to predict the end from the opening, at any distance.
    """

    outermost = True
    share: float
    opening: int
    ending: int
    steps: Jumps
    since: float = 0.0  # share of the training without bridges: the state must be learned first

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_outermost(self.steps.steps if isinstance(self.steps, Around) else self.steps)
        for name in ("share", "since"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: expected between 0 and 1, got {getattr(self, name)}")
        if self.opening < 0 or self.ending < 1:
            raise InputError(
                f"opening and ending: expected opening >= 0 and ending >= 1, got {self.opening} and {self.ending}"
            )

    @property
    def longest(self) -> int:
        return max(self.steps.longest, self.opening + self.ending)

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return self.steps.draw(shape, generator, progress)

    def limited(self, limit: int) -> Bridging:
        return replace(self, steps=self.steps.limited(limit))

    def sample(self, lengths: Tensor, k: int, generator: Generator, progress: float = 1.0) -> Pairs:
        self.check_room(lengths)
        pairs = self.steps.sample(lengths, k, generator, progress)
        last_middle = lengths.cpu()[:, None].expand(-1, k) - self.ending  # last time step of the middle
        t1 = self.opening + uniform_integers(last_middle - self.opening, generator)
        t2 = last_middle + 1 + uniform_integers(torch.full_like(last_middle, self.ending - 1), generator)
        bridge = torch.rand(t1.shape, generator=generator) < (self.share if progress >= self.since else 0.0)
        return replace(pairs, t1=torch.where(bridge, t1, pairs.t1), t2=torch.where(bridge, t2, pairs.t2))
