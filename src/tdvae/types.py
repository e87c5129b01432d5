"""Data types of the library, named by the paper's symbols: sequences, pairs, beliefs, states and loss terms.

All are frozen dataclasses. Time steps are counted from 1: ``x_t`` is ``x[:, t - 1]``, and ``b_t`` summarises
``x_1 … x_t``. ``b_0`` is the learned belief before any observation, so a sequence of ``T`` observations has ``T + 1``
belief codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from tdvae import checks
from tdvae.checks import NonNegative, check_fields, checked
from tdvae.errors import InputError


@dataclass(frozen=True)
class Sequences:
    """A batch of N sequences, padded to a common horizon T.

    `tdvae.data.from_arrays` creates one from arrays and checks them. Where ``observed`` is False, a value is missing,
    and what ``x`` holds there has no effect.

    >>> import torch, tdvae
    >>> sequences = tdvae.Sequences(x=torch.zeros(2, 5, 3), lengths=torch.tensor([5, 4]))
    >>> len(sequences), sequences.horizon
    (2, 5)
    >>> sequences.until(3).lengths
    tensor([3, 3])
    """

    made_by: ClassVar[str] = "tdvae.data.from_arrays makes them from arrays"

    x: Tensor  # (N, T, *event) observations
    lengths: Tensor  # (N,) number of time steps of each sequence; the rest is padding
    actions: Tensor | None = None  # (N, T, A): a_t is the action before x_t
    rewards: Tensor | None = None  # (N, T): r_t is observed together with x_t
    observed: Tensor | None = None  # bool, in the shape of x: False where a value is missing; None if none is
    ended: Tensor | None = None  # (N, T) bool: True where an episode ended for good with x_t; None if not known

    def __post_init__(self) -> None:
        check_fields(self)
        if self.x.ndim < 2:
            raise InputError(f"x: expected shape (N, T, …), got {tuple(self.x.shape)}")
        steps = tuple(self.x.shape[:2])
        checks.integers("lengths", checks.shape("lengths", self.lengths, steps[:1]))
        if self.actions is not None:
            checks.shape("actions", self.actions, (*steps, "A"))
        if self.rewards is not None:
            checks.shape("rewards", self.rewards, steps)
        if self.observed is not None:
            checks.shape("observed", self.observed, tuple(self.x.shape))
        if self.ended is not None:
            checks.shape("ended", self.ended, steps)
        for name, mask in (("observed", self.observed), ("ended", self.ended)):
            if mask is not None and mask.dtype != torch.bool:
                raise InputError(f"{name}: expected truth values, got {mask.dtype}")

    def check_lengths(self) -> None:
        """Raise if a length is not a number of time steps. Not part of the construction, which reads no values."""
        if not checks.holds((self.lengths >= 1) & (self.lengths <= self.horizon)):
            low, high = int(self.lengths.min()), int(self.lengths.max())
            raise InputError(f"lengths: expected between 1 and the horizon {self.horizon}, got {low} to {high}")

    def __len__(self) -> int:
        return self.x.shape[0]

    @property
    def horizon(self) -> int:
        return self.x.shape[1]

    @property
    def mask(self) -> Tensor:
        """(N, T) True for the time steps of each sequence, False for padding."""
        return torch.arange(self.horizon, device=self.lengths.device) < self.lengths[:, None]

    def at(self, t: int | Tensor) -> tuple[Tensor, Tensor | None]:
        """x_t and its mask; ``t`` is one time step for all sequences, or (N, ...) with those of each.

        Both are what ``log_prob`` takes: ``density.log_prob(*sequences.at(t))`` scores the observed entries of x_t.
        """
        index = self._index(t)
        return self.x[index], None if self.observed is None else self.observed[index]

    def actions_at(self, t: int | Tensor) -> Tensor:
        """a_t, the actions that precede x_t; ``t`` as in `at`."""
        if self.actions is None:
            raise InputError("sequences: expected actions, got none")
        return self.actions[self._index(t)]

    @staticmethod
    def _index(t: int | Tensor) -> tuple[slice | Tensor, int | Tensor]:
        """The index of time t."""
        if isinstance(t, int):
            return slice(None), t - 1
        return torch.arange(len(t), device=t.device).view(-1, *[1] * (t.ndim - 1)), t - 1

    def never_observed(self) -> list[int]:
        """The channels, counted in the flattened observation, of which no value is observed in any sequence."""
        if self.observed is None:
            return []
        channels: list[int] = (~self.observed[self.mask].flatten(1).any(0)).nonzero()[:, 0].tolist()
        return channels

    def named(self) -> dict[str, Tensor]:
        """The tensors that are not None, by field name."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def _map(self, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        return {name: change(tensor) for name, tensor in self.named().items()}

    @checked
    def select(self, index: Tensor | slice) -> Sequences:
        """The sequences at ``index``. Lazily read data sets implement this method as well (`SequenceSource`)."""
        if isinstance(index, Tensor):
            checks.rows("index", index, len(self))
        return replace(self, **self._map(lambda tensor: tensor[index]))

    @checked
    def until(self, t: NonNegative | Tensor) -> Sequences:
        """The first ``t`` time steps; ``t`` is one number for all sequences, or (N,) with one for each."""
        if isinstance(t, Tensor):
            checks.integers("t", checks.shape("t", t, (len(self),)))
            if len(self) == 0 or not checks.holds(t >= 0):
                raise InputError(f"t: expected at least 0 for each sequence, got {t.tolist()[:5]}")
        last = int(t.max()) if isinstance(t, Tensor) else t
        cut = self._map(lambda tensor: tensor[:, :last] if tensor.ndim > 1 else tensor.clamp(max=t))
        return replace(self, **cut)

    def to(self, device: torch.device | str) -> Sequences:
        return replace(self, **self._map(lambda tensor: tensor.to(device)))


@runtime_checkable
class SequenceSource(Protocol):
    """Data set interface that training uses: the lengths of all sequences, and batches by index."""

    @property
    def lengths(self) -> Tensor: ...

    def __len__(self) -> int: ...

    def select(self, index: Tensor) -> Sequences: ...


@dataclass(frozen=True)
class Pairs:
    """Time points t1 < t2 for each sequence; both (N, K) or (N, K, n - 1) for subsequences of n points.

    With ``shared`` they are (N, G, K): groups of K later times t2 that share t1, and one z_t1 (`jumps.SharedFutures`).

    >>> import torch, tdvae
    >>> tdvae.Pairs(t1=torch.tensor([[0, 3]]), t2=torch.tensor([[1, 8]])).dt
    tensor([[1, 5]])
    """

    t1: Tensor
    t2: Tensor
    last: int | None = None  # the largest t2, needed under vmap, where the values of a tensor cannot be read
    semi_gradient: bool = False  # of pairs with δt > 1 the belief at t2 receives no gradient; see `jumps.SemiGradient`
    shared: bool = False  # the last dimension is a group of times t2 with one t1

    def __post_init__(self) -> None:
        check_fields(self)
        for name, value in (("t1", self.t1), ("t2", self.t2)):
            checks.integers(name, value)
        checks.shape("t2", self.t2, tuple(self.t1.shape))
        if self.t1.ndim < 1:
            raise InputError("t1: expected shape (N, K) or (N, K, n - 1), got one number")
        if self.shared and self.t1.ndim != 3:
            raise InputError(f"t1: expected shape (N, G, K) for groups that share t1, got {tuple(self.t1.shape)}")

    def check_within(self, sequences: Sequences) -> None:
        """Raise unless 0 <= t1 < t2 <= length for every pair, and there is one row for each sequence."""
        if len(self.t1) != len(sequences):
            raise InputError(f"pairs: expected one row for each of the {len(sequences)} sequences, got {len(self.t1)}")
        ends = sequences.lengths.view(-1, *[1] * (self.t1.ndim - 1))
        if self.last is None and not checks.holds((self.t1 >= 0) & (self.t1 < self.t2) & (self.t2 <= ends)):
            ranges = {"t1": self.t1, "t2": self.t2, "lengths": ends}
            given = ", ".join(f"{name} from {int(v.min())} to {int(v.max())}" for name, v in ranges.items())
            raise InputError(f"pairs: expected 0 <= t1 < t2 <= the length of the sequence, got {given}")
        if self.shared and self.last is None and not checks.holds(self.t1 == self.t1[..., :1]):
            raise InputError("pairs: expected one t1 for all times of a group, got several")

    @property
    def targets(self) -> int:
        """The number of times t2 that share a t1."""
        return self.t1.shape[-1] if self.shared else 1

    @property
    def dt(self) -> Tensor:
        return self.t2 - self.t1

    def to(self, device: torch.device | str) -> Pairs:
        return replace(self, t1=self.t1.to(device), t2=self.t2.to(device))

    def select(self, index: slice) -> Pairs:
        return replace(self, t1=self.t1[index], t2=self.t2[index])


@dataclass(frozen=True)
class Belief:
    """The belief after x_≤t: the code b_t, and the recurrent state of the belief network.

    p_B is conditioned on ``model.read(code)``.

    >>> import torch, tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig())
    >>> belief = model.initial(batch_size=2)  # b_0, before any observation
    >>> belief = model.update(belief, torch.zeros(2, 1))  # b_1
    >>> belief.code.shape
    torch.Size([2, 50])
    """

    code: Tensor  # (N, B)
    carry: tuple[Tensor, ...]  # complex in a linear recurrence
    x: Tensor | None = None  # (N, E) features of x_t, if the model's state includes the observation

    made_by: ClassVar[str] = "model.initial(batch_size) and model.update make them"

    def map(self, change: Callable[[Tensor], Tensor]) -> Belief:
        x = None if self.x is None else change(self.x)
        return Belief(change(self.code), tuple(change(part) for part in self.carry), x)

    def __getitem__(self, rows: object) -> Belief:
        """The beliefs of some sequences."""
        return self.map(lambda part: part[rows])  # type: ignore[index]

    @checked
    def where(self, rows: Tensor, other: Belief) -> Belief:
        """This belief in the rows (N,) that are True, ``other`` elsewhere: `belief.where(~ended, model.initial(N))`."""
        if checks.shape("rows", rows, (len(self.code),)).dtype != torch.bool:
            raise InputError(f"rows: expected truth values, got {rows.dtype}")
        kept = [self.code, *self.carry, *([] if self.x is None else [self.x])]
        new = [other.code, *other.carry, *([] if other.x is None else [other.x])]
        if [part.shape for part in kept] != [part.shape for part in new]:
            raise InputError("other: expected a belief of the same model about as many sequences, got another one")
        code, *rest = (
            torch.where(rows.view(-1, *[1] * (one.ndim - 1)), one, two) for one, two in zip(kept, new, strict=True)
        )
        return Belief(code, tuple(rest[: len(self.carry)]), rest[-1] if self.x is not None else None)


@dataclass(frozen=True)
class Latent:
    """A latent state z. ``layers[0]`` is z^1, the bottom layer; each layer has shape (..., size).

    >>> import torch, tdvae
    >>> z = tdvae.Latent((torch.zeros(4, 8), torch.ones(4, 8)))
    >>> z.flat.shape
    torch.Size([4, 16])
    >>> z[0].layers[1].shape
    torch.Size([8])
    """

    layers: tuple[Tensor, ...]  # complex only if z is the state of a recurrent network

    @property
    def flat(self) -> Tensor:
        """All layers concatenated, z = [z^1, z^2, …] (App. D)."""
        return torch.cat(self.layers, dim=-1)

    def map(self, change: Callable[[Tensor], Tensor]) -> Latent:
        return Latent(tuple(change(layer) for layer in self.layers))

    def __getitem__(self, index: object) -> Latent:
        return self.map(lambda layer: layer[index])  # type: ignore[index]


@dataclass(frozen=True)
class Origin:
    """Where a jump came from: what p_D(x_t2 | z_t2, s_t1, δt, a) is given beside z_t2, if the state includes x."""

    x: Tensor  # (..., E) features of x_t1
    features: Tensor  # (..., F) features of s_t1, δt and the actions of the jump
    dt: Tensor  # (..., 1)

    def map(self, change: Callable[[Tensor], Tensor]) -> Origin:
        return Origin(change(self.x), change(self.features), change(self.dt))


@dataclass(frozen=True)
class State:
    """The Markov state s_t of `Model.transition`: z_t, and in models with ``state="observed"`` also the observation.

    In all other models ``x`` and ``origin`` are None.

    >>> import tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig(event_shape=(3,), layers=2, latent=8))
    >>> state = model.sample_state(model.initial(batch_size=2), n=16)
    >>> state.z.flat.shape, state.x
    (torch.Size([16, 2, 16]), None)
    """

    z: Latent
    x: Tensor | None = None  # (..., E) features of x_t; a learned vector before the first observation
    origin: Origin | None = None  # None if x_t was observed and not drawn by a transition

    made_by: ClassVar[str] = "model.sample_state(belief, n) draws them"

    @property
    def lead(self) -> torch.Size:
        """The leading shape: all dimensions of a layer but the last."""
        return self.z.layers[0].shape[:-1]

    def map(self, change: Callable[[Tensor], Tensor]) -> State:
        x = None if self.x is None else change(self.x)
        return State(self.z.map(change), x, None if self.origin is None else self.origin.map(change))

    def __getitem__(self, index: object) -> State:
        return self.map(lambda part: part[index])  # type: ignore[index]


def combine_states(states: Sequence[State], join: Callable[[list[Tensor]], Tensor]) -> State:
    """Combine states into one, tensor by tensor, with ``join``; what any of them lacks becomes None."""
    z = Latent(tuple(join(list(layers)) for layers in zip(*(state.z.layers for state in states), strict=True)))
    xs = [state.x for state in states if state.x is not None]
    origins = [state.origin for state in states if state.origin is not None]
    origin = None
    if len(origins) == len(states):
        origin = Origin(*(join([getattr(one, f.name) for one in origins]) for f in fields(Origin)))
    return State(z, join(xs) if len(xs) == len(states) else None, origin)


def missing_as_nan(x: Tensor, observed: Tensor | None) -> Tensor:
    """x with NaN where it is missing, as `Model.update` and the exact filters take it."""
    return x if observed is None else torch.where(observed, x, torch.nan)


def repeated(value: Tensor | None, n: int) -> Tensor | None:
    """Expand a tensor to ``n`` copies along a new first dimension; None stays None."""
    return None if value is None else value.expand(n, *value.shape)


def stack_states(states: Sequence[State]) -> State:
    """Stack states along a new first dimension."""
    return combine_states(states, torch.stack)


OBSERVATION_TERMS = ("reconstruction", "prediction")  # negative log likelihoods of x; all other terms are about z


@dataclass(frozen=True)
class Terms:
    """The terms of a loss, in nats; the loss is their sum."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def total(self) -> Tensor:
        return torch.stack(list(self.named().values())).sum(0)

    def weighted(self, kl_weight: float) -> Tensor:
        """The sum, with all terms except those of the observation multiplied by ``kl_weight``."""
        parts = [term if name in OBSERVATION_TERMS else kl_weight * term for name, term in self.named().items()]
        return torch.stack(parts).sum(0)

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{name: change(term) for name, term in self.named().items()})

    def mean(self) -> Self:
        return self.map(torch.mean)

    def named(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class LossTerms(Terms):
    r"""The three terms of Eq. 6.

    - smoothing: :math:`KL(q_S(z_{t1} | z_{t2}, b_{t1}, b_{t2}) \| p_B(z_{t1} | b_{t1}))`
    - transition: :math:`\log p_B(z_{t2} | b_{t2}) - \log p_T(z_{t2} | z_{t1})`
    - reconstruction: :math:`-\log p_D(x_{t2} | z_{t2})`

    >>> import torch, tdvae
    >>> half, one, two = torch.tensor([0.5, 1.0, 2.0])
    >>> tdvae.LossTerms(smoothing=half, transition=one, reconstruction=two).total
    tensor(3.5000)
    """

    smoothing: Tensor
    transition: Tensor
    reconstruction: Tensor


@dataclass(frozen=True)
class ELBOTerms(Terms):
    r"""The two terms of Eq. 1, for one time step.

    - surprise: :math:`KL(q(z_t | \cdot) \| p_T(z_t | z_{t-1}))`
    - reconstruction: :math:`-\log p_D(x_t | z_t)`
    """

    surprise: Tensor
    reconstruction: Tensor


@dataclass(frozen=True)
class PredictionTerms(Terms):
    r"""The only term of a next-step predictor, :math:`-\log p(x_{t+1} | x_{\le t})`."""

    prediction: Tensor
