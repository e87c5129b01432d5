"""Distributions of the pairs of time points (t1, t2) in the TD-VAE loss.

Pairs are drawn separately for each sequence. First δt is drawn, then t1 uniformly from 0 … length - δt, where 0 is the
time before the first observation. So δt has exactly the stated distribution, and no jump is clipped at the end of a
sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Generator, Tensor

from tdvae import checks
from tdvae.checks import Positive, Range, Share, check_fields, checked
from tdvae.errors import InputError
from tdvae.types import Pairs


def refuse_outermost(*parts: Jumps) -> None:
    """Raise if one of ``parts`` has to be the outermost distribution: `Subsequences(n, Widening(…))` is valid, the
    reverse is not."""
    for part in parts:
        if part.outermost:
            name = type(part).__name__
            raise InputError(
                f"jumps: expected {name} outside of other jumps, as in {name}(..., Widening(...)), got it inside"
            )


def uniform_integers(high: Tensor, generator: Generator) -> Tensor:
    """Uniform integers in [0, high], elementwise. Double precision keeps the bias negligible for long sequences."""
    uniform = torch.rand(high.shape, generator=generator, dtype=torch.float64)
    return (uniform * (high + 1)).long().minimum(high)


class Jumps(ABC):
    """A distribution of δt and, by `sample`, of pairs. ``progress`` in [0, 1] is the completed fraction of training."""

    made_by: ClassVar[str] = "tdvae.jumps has distributions of jumps, such as Uniform(1, 10)"
    outermost: ClassVar[bool] = False  # True if it overrides `sample`, so that it cannot be a part of a mixture

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest number of time steps that one draw can span."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        """Draw jump lengths δt."""

    @abstractmethod
    def limited(self, limit: int) -> Jumps:
        """The same distribution with every range cut off at ``limit``, for the start of a curriculum."""

    @checked
    def sample(self, lengths: Tensor, k: Positive, generator: Generator, progress: Share = 1.0) -> Pairs:
        """Draw ``k`` pairs for each sequence, (N, k)."""
        self.check_room(lengths)
        dt = self.draw((len(lengths), k), generator, progress)
        t1 = uniform_integers(lengths.cpu()[:, None] - dt, generator)
        return Pairs(t1, t1 + dt)

    def describe(self) -> str:
        """The distribution as text. Fields with default values are left out, so a new field changes no earlier text."""
        if not is_dataclass(self):
            return repr(self)
        settings = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return f"{type(self).__name__}({', '.join(f'{name}={_describe(value)}' for name, value in settings.items())})"

    def check_room(self, lengths: Tensor) -> None:
        """Raise if a sequence is shorter than the longest jump, since shorter jumps would change the distribution."""
        checks.integers("lengths", checks.shape("lengths", lengths, ("N",)))
        if len(lengths) == 0 or int(lengths.min()) < self.longest:
            shortest = int(lengths.min()) if len(lengths) else 0
            raise InputError(
                f"sequences: expected at least {self.longest} steps, the longest jump, got {shortest} in the shortest; "
                "use shorter jumps or leave short sequences out"
            )


def _describe(value: object) -> str:
    if isinstance(value, Jumps):
        return value.describe()
    return f"({', '.join(map(_describe, value))})" if isinstance(value, tuple) else repr(value)


@dataclass(frozen=True)
class Uniform(Jumps):
    """δt uniform on the integers low … high."""

    low: int
    high: int

    def __post_init__(self) -> None:
        super().__post_init__()
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
    """A mixture of distributions of δt; each pair draws its part by the weights."""

    parts: tuple[Jumps, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_outermost(*self.parts)
        if len(self.parts) != len(self.weights) or not self.parts:
            raise InputError(f"weights: expected one for each of the {len(self.parts)} parts, got {len(self.weights)}")
        if min(self.weights) < 0 or abs(sum(self.weights) - 1) > 1e-9:
            raise InputError(f"weights: expected non-negative numbers with sum 1, got {self.weights}")

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
    """The oscillator's distribution (section "Noisy harmonic oscillator"): 0.8 × [1, 10] + 0.2 × [1, 120]."""
    return Mixture((Uniform(1, 10), Uniform(1, 120)), (0.8, 0.2))


@dataclass(frozen=True)
class Widening(Jumps):
    """A curriculum: the upper limit of δt doubles from ``start`` at equal intervals.

    After the fraction ``until`` of the training the distribution is ``final``. Short jumps come first because long ones
    build on what they teach: first the velocity, then the frequency.
    """

    final: Jumps
    start: Positive = 2
    until: Annotated[float, Range(above=0, most=1)] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_outermost(self.final)

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
    """The distribution ``first`` until the fraction ``switch`` of the training, then ``then``.

    Each of the two gets a ``progress`` that runs from 0 to 1 over its own part of the training.
    """

    first: Jumps
    then: Jumps
    switch: Annotated[float, Range(above=0, below=1)]

    @property
    def longest(self) -> int:
        return max(self.first.longest, self.then.longest)

    @property
    def outermost(self) -> bool:  # type: ignore[override]
        return self.first.outermost or self.then.outermost

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        part, progress = self._current(progress)
        return part.draw(shape, generator, progress)

    @checked
    def sample(self, lengths: Tensor, k: Positive, generator: Generator, progress: Share = 1.0) -> Pairs:
        self.check_room(lengths)
        part, progress = self._current(progress)
        return part.sample(lengths, k, generator, progress)

    def _current(self, progress: float) -> tuple[Jumps, float]:
        """The distribution in use, and its own progress."""
        if progress < self.switch:
            return self.first, progress / self.switch
        return self.then, (progress - self.switch) / (1 - self.switch)

    def limited(self, limit: int) -> InTurn:
        return InTurn(self.first.limited(limit), self.then.limited(limit), self.switch)


@dataclass(frozen=True)
class SemiGradient(Jumps):
    """Pairs of ``jumps``, of which only the consecutive ones train the belief at t2.

    For longer jumps the states drawn from p_B(z_t2 | b_t2) are fixed targets of the other parts, as in semi-gradient
    temporal-difference learning. Eq. 6 with δt > 1 makes the belief at t2 wider than a filter's, because it conditions
    on observations between t1 and t2 that the bounded likelihood does not contain. With these pairs the exact filter,
    smoother and transition are a fixed point of the training (docs/oscillator.md).
    """

    outermost = True
    jumps: Jumps

    @property
    def longest(self) -> int:
        return self.jumps.longest

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return self.jumps.draw(shape, generator, progress)

    def limited(self, limit: int) -> SemiGradient:
        return SemiGradient(self.jumps.limited(limit))

    def check_room(self, lengths: Tensor) -> None:
        self.jumps.check_room(lengths)

    @checked
    def sample(self, lengths: Tensor, k: Positive, generator: Generator, progress: Share = 1.0) -> Pairs:
        return replace(self.jumps.sample(lengths, k, generator, progress), semi_gradient=True)


@dataclass(frozen=True)
class WithinSequence(Jumps):
    """``jumps`` limited to each sequence: a δt that is longer than the sequence is drawn anew from those that fit.

    Episodes of an agent end early where it fails. Leaving out those that are shorter than the longest jump would leave
    out the failures.
    """

    outermost = True
    jumps: Jumps

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_outermost(self.jumps)

    @property
    def longest(self) -> int:
        return self.jumps.longest

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return self.jumps.draw(shape, generator, progress)

    def limited(self, limit: int) -> WithinSequence:
        return WithinSequence(self.jumps.limited(limit))

    def check_room(self, lengths: Tensor) -> None:
        """Every sequence of at least one step has room."""
        checks.integers("lengths", checks.shape("lengths", lengths, ("N",)))
        if len(lengths) == 0 or int(lengths.min()) < 1:
            raise InputError(f"lengths: expected at least one step in each sequence, got {lengths.tolist()[:5]}")

    @checked
    def sample(self, lengths: Tensor, k: Positive, generator: Generator, progress: Share = 1.0) -> Pairs:
        self.check_room(lengths)
        room = lengths.cpu()[:, None]
        dt = self.draw((len(lengths), k), generator, progress)
        shorter = 1 + uniform_integers((room - 1).expand_as(dt), generator)
        dt = torch.where(dt <= room, dt, shorter)
        t1 = uniform_integers(room - dt, generator)
        return Pairs(t1, t1 + dt)


@dataclass(frozen=True)
class Subsequences(Jumps):
    """App. A: subsequences of n time points, with jumps drawn from ``steps`` and a uniform start.

    The pairs (N, K, n - 1) are the consecutive points of each subsequence, for `subsequence_loss`.
    """

    outermost = True
    points: Annotated[int, Range(2)]
    steps: Jumps

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_outermost(self.steps)

    @property
    def longest(self) -> int:
        return (self.points - 1) * self.steps.longest

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return self.steps.draw((*shape, self.points - 1), generator, progress)

    def limited(self, limit: int) -> Subsequences:
        return Subsequences(self.points, self.steps.limited(limit))

    @checked
    def sample(self, lengths: Tensor, k: Positive, generator: Generator, progress: Share = 1.0) -> Pairs:
        self.check_room(lengths)
        ends = self.draw((len(lengths), k), generator, progress).cumsum(-1)
        start = uniform_integers(lengths.cpu()[:, None] - ends[..., -1], generator)[..., None]
        return Pairs(torch.cat([start, start + ends[..., :-1]], dim=-1), start + ends)


@dataclass(frozen=True)
class SharedFutures(Jumps):
    """Groups of ``futures`` later times that share t1, and one z_t1 in the loss (ours, not the paper's).

    The first jump of a group is one step; the lengths of the others follow ``jumps``. What the futures have in common
    has to be in z_t1, since nothing else connects them, and it is paid for once. ``SemiGradient(SharedFutures(4, …))``
    makes the states at the end of longer jumps fixed targets. The number of pairs of a sequence counts all later times.
    """

    outermost = True
    futures: Annotated[int, Range(1, 1_000)]
    jumps: Jumps

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_outermost(self.jumps)

    @property
    def longest(self) -> int:
        return self.jumps.longest

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        dt = self.jumps.draw((*shape, self.futures), generator, progress)
        dt[..., 0] = 1
        return dt

    def limited(self, limit: int) -> SharedFutures:
        return SharedFutures(self.futures, self.jumps.limited(limit))

    @checked
    def sample(self, lengths: Tensor, k: Positive, generator: Generator, progress: Share = 1.0) -> Pairs:
        self.check_room(lengths)
        if k % self.futures:
            raise InputError(f"pairs: expected a multiple of the {self.futures} futures of a group, got {k}")
        dt = self.draw((len(lengths), k // self.futures), generator, progress)
        t1 = uniform_integers(lengths.cpu()[:, None] - dt.amax(-1), generator)[..., None].expand_as(dt)
        return Pairs(t1, t1 + dt, shared=True)


@dataclass(frozen=True)
class EveryStep(Jumps):
    """Different consecutive pairs of each sequence, none twice: all of them if there are as many pairs as steps.

    Pairs that are drawn independently leave out a third of the steps of a sequence from each update.
    """

    outermost = True

    @property
    def longest(self) -> int:
        return 1

    def draw(self, shape: tuple[int, ...], generator: Generator, progress: float = 1.0) -> Tensor:
        return torch.ones(shape, dtype=torch.long)

    def limited(self, limit: int) -> EveryStep:
        return self

    @checked
    def sample(self, lengths: Tensor, k: Positive, generator: Generator, progress: Share = 1.0) -> Pairs:
        self.check_room(lengths)
        if k > int(lengths.min()):
            raise InputError(f"pairs: expected at most {int(lengths.min())}, the steps of the shortest, got {k}")
        steps = torch.arange(int(lengths.max()))
        order = torch.rand(len(lengths), len(steps), generator=generator, dtype=torch.float64)
        order = order.masked_fill(steps >= lengths.cpu()[:, None], 2.0)  # after all steps of the sequence
        t1 = order.argsort(1)[:, :k].sort(1).values
        return Pairs(t1, t1 + 1)
