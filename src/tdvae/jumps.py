"""Distributions over the time points (t1, t2) that the TD-VAE loss relates.

Every pair is drawn for its own sequence. First the jump δt, then t1 uniformly from all times that leave room for it
(0 … length - δt, where 0 is the moment before the first observation): so δt keeps exactly its stated law, and nothing
is clipped at the end of the sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from tdvae.errors import InputError
from tdvae.types import Pairs


def _refuse_outermost(*laws: Jumps) -> None:
    """A law that says where jumps begin is the outermost: `Subsequences(n, Widening(…))`, not the other way round."""
    for law in laws:
        if isinstance(law, Subsequences | Bridging | Around):
            name = type(law).__name__
            raise InputError(f"jumps: put {name} outside of other laws, as in {name}(..., Widening(...))")


def _uniform_integers(high: Tensor, generator: Generator) -> Tensor:
    """Uniform integers in [0, high], elementwise. Double precision: the largest real length leaves no visible bias."""
    uniform = torch.rand(high.shape, generator=generator, dtype=torch.float64)
    return (uniform * (high + 1)).long().minimum(high)


class Jumps(ABC):
    """A law of δt, and by it of pairs. ``progress`` in [0, 1] is the share of training that is done."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest number of steps that one draw can span."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        """Jump lengths δt."""

    @abstractmethod
    def limited(self, limit: int) -> Jumps:
        """The same law with every range cut off at ``limit``: how a curriculum begins."""

    def sample(self, lengths: Tensor, k: int, generator: Generator, progress: float = 1.0) -> Pairs:
        """K pairs for each sequence, (N, K)."""
        self.check_room(lengths)
        dt = self.draw((len(lengths), k), generator, progress)
        t1 = _uniform_integers(lengths.cpu()[:, None] - dt, generator)
        return Pairs(t1, t1 + dt)

    def check_room(self, lengths: Tensor) -> None:
        """Refuse sequences that cannot hold the longest jump: drawing shorter ones would change the law."""
        if len(lengths) == 0 or int(lengths.min()) < self.longest:
            shortest = int(lengths.min()) if len(lengths) else 0
            raise InputError(
                f"sequences: the shortest has {shortest} steps, but the longest jump spans {self.longest}; "
                "use shorter jumps or leave short sequences out"
            )


@dataclass(frozen=True)
class Uniform(Jumps):
    """δt uniform on [low, high]."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise InputError(f"jumps: expected 1 <= low <= high, got low={self.low}, high={self.high}")

    @property
    def longest(self) -> int:
        return self.high

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return torch.randint(self.low, self.high + 1, shape, generator=generator)

    def limited(self, limit: int) -> Uniform:
        return Uniform(self.low, max(self.low, min(self.high, limit)))


def Consecutive() -> Uniform:
    """δt = 1: sequential TD-VAE, Eq. 5."""
    return Uniform(1, 1)


@dataclass(frozen=True)
class Mixture(Jumps):
    """δt from one of several laws, chosen by weight for each pair."""

    parts: tuple[Jumps, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        _refuse_outermost(*self.parts)
        if len(self.parts) != len(self.weights) or not self.parts:
            raise InputError(f"weights: expected one for each of the {len(self.parts)} parts, got {len(self.weights)}")
        if min(self.weights) < 0 or abs(sum(self.weights) - 1) > 1e-9:
            raise InputError(f"weights: expected shares that add up to 1, got {self.weights}")

    @property
    def longest(self) -> int:
        return max(part.longest for part in self.parts)

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        edges = torch.tensor(self.weights, dtype=torch.float64).cumsum(0)[:-1]
        choice = torch.bucketize(torch.rand(shape, generator=generator, dtype=torch.float64), edges, right=True)
        draws = torch.stack([part.draw(shape, generator, progress) for part in self.parts])
        return draws.gather(0, choice[None])[0]

    def limited(self, limit: int) -> Mixture:
        return Mixture(tuple(part.limited(limit) for part in self.parts), self.weights)


def paper_mixture() -> Mixture:
    """The oscillator's law (section "Noisy harmonic oscillator"): 0.8 × [1, 10] + 0.2 × [1, 120]."""
    return Mixture((Uniform(1, 10), Uniform(1, 120)), (0.8, 0.2))


@dataclass(frozen=True)
class Widening(Jumps):
    """A curriculum: the upper limit of δt doubles from ``start`` at even intervals, and after ``until`` of the training
    the law is ``final``. Short jumps teach what long ones need: velocity first, then frequency."""

    final: Jumps
    start: int = 2
    until: float = 0.5

    def __post_init__(self) -> None:
        _refuse_outermost(self.final)
        if self.start < 1 or not 0 < self.until <= 1:
            raise InputError(
                f"curriculum: expected start >= 1 and 0 < until <= 1, got start={self.start}, until={self.until}"
            )

    @property
    def longest(self) -> int:
        return self.final.longest

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return self._current(progress).draw(shape, generator, progress)

    def limited(self, limit: int) -> Widening:
        return Widening(self.final.limited(limit), self.start, self.until)

    def _current(self, progress: float) -> Jumps:
        doublings = 0
        while self.start << doublings < self.longest:
            doublings += 1
        stage = int(progress / self.until * doublings)
        return self.final if stage >= doublings else self.final.limited(self.start << stage)


@dataclass(frozen=True)
class InTurn(Jumps):
    """The law ``first`` for the share ``switch`` of the training, which is its whole progress; after that ``then``."""

    first: Jumps
    then: Jumps
    switch: float

    def __post_init__(self) -> None:
        _refuse_outermost(self.first, self.then)
        if not 0 < self.switch < 1:
            raise InputError(f"switch: expected between 0 and 1, got {self.switch}")

    @property
    def longest(self) -> int:
        return max(self.first.longest, self.then.longest)

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        if progress < self.switch:
            return self.first.draw(shape, generator, progress / self.switch)
        return self.then.draw(shape, generator, (progress - self.switch) / (1 - self.switch))

    def limited(self, limit: int) -> InTurn:
        return InTurn(self.first.limited(limit), self.then.limited(limit), self.switch)


@dataclass(frozen=True)
class Subsequences(Jumps):
    """App. A: n time points, each a jump of law ``steps`` after the one before; the start is uniform over all that fit.

    The pairs are (N, K, n - 1), consecutive points of each subsequence, for `subsequence_loss`.
    """

    points: int
    steps: Jumps

    def __post_init__(self) -> None:
        _refuse_outermost(self.steps)
        if self.points < 2:
            raise InputError(f"points: a subsequence needs at least 2, got {self.points}")

    @property
    def longest(self) -> int:
        return (self.points - 1) * self.steps.longest

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return self.steps.draw((*shape, self.points - 1), generator, progress)

    def limited(self, limit: int) -> Subsequences:
        return Subsequences(self.points, self.steps.limited(limit))

    def sample(self, lengths: Tensor, k: int, generator: Generator, progress: float = 1.0) -> Pairs:
        self.check_room(lengths)
        ends = self.draw((len(lengths), k), generator, progress).cumsum(-1)
        start = _uniform_integers(lengths.cpu()[:, None] - ends[..., -1], generator)[..., None]
        return Pairs(torch.cat([start, start + ends[..., :-1]], dim=-1), start + ends)


@dataclass(frozen=True)
class Around(Jumps):
    """A ``share`` of the jumps begins within ``reach`` steps of the time ``ending`` steps before the last: around an
    event that is there in every sequence. Others begin anywhere; all have the law ``steps``."""

    share: float
    ending: int
    reach: int
    steps: Jumps

    def __post_init__(self) -> None:
        _refuse_outermost(self.steps)
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
        off = torch.randint(-self.reach, self.reach + 1, pairs.t1.shape, generator=generator)
        t1 = lengths.cpu()[:, None] - self.ending + off
        t1 = torch.where(torch.rand(t1.shape, generator=generator) < self.share, t1, pairs.t1)
        return Pairs(t1, t1 + pairs.dt)


@dataclass(frozen=True)
class Bridging(Jumps):
    """A ``share`` of the pairs leads from anywhere in the middle of a sequence into its end; others follow ``steps``.

    The middle begins after ``opening`` steps and ends ``ending`` steps before the last. What the opening says about the
    ending is then asked of every belief between them, however far apart they are.
    """

    share: float
    opening: int
    ending: int
    steps: Jumps
    since: float = 0.0  # share of the training before the first bridges: a state has to be there before it is asked for

    def __post_init__(self) -> None:
        _refuse_outermost(self.steps.steps if isinstance(self.steps, Around) else self.steps)
        for name in ("share", "since"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: expected between 0 and 1, got {getattr(self, name)}")
        if self.opening < 0 or self.ending < 1:
            raise InputError(
                f"bridges: expected opening >= 0 and ending >= 1, got opening={self.opening}, ending={self.ending}"
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
        before = lengths.cpu()[:, None].expand(-1, k) - self.ending  # the middle's last time
        t1 = self.opening + _uniform_integers(before - self.opening, generator)
        t2 = before + 1 + _uniform_integers(torch.full_like(before, self.ending - 1), generator)
        bridge = torch.rand(t1.shape, generator=generator) < (self.share if progress >= self.since else 0.0)
        return Pairs(torch.where(bridge, t1, pairs.t1), torch.where(bridge, t2, pairs.t2))
