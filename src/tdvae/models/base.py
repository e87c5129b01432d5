"""The contract every model keeps. An agent needs only these verbs; training and evaluation are written against them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.distributions import Distribution
from tdvae.errors import InputError
from tdvae.models.config import ModelConfig
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, Sequences


@dataclass(frozen=True)
class Beliefs:
    """The belief codes b_0 … b_T of a batch. ``at`` reads out those that are needed, which are few."""

    codes: Tensor  # (N, T + 1, C)
    read: Callable[[Tensor], Tensor]

    def at(self, t: Tensor) -> Tensor:
        """b_t for times t (N, ...) of each sequence: (N, ..., B)."""
        rows = torch.arange(len(t), device=t.device).view(-1, *[1] * (t.ndim - 1))
        return self.read(self.codes[rows, t])


class Model(nn.Module, ABC):
    """Beliefs, states and predictions of one kind of world model; ``config`` is all it takes to build it again."""

    config: ModelConfig

    def describe(self) -> dict[str, object]:
        """The config as JSON can hold it; `tdvae.models.config.config_from_dict` reads it back."""
        return {"kind": self.config.kind, **asdict(self.config)}

    @abstractmethod
    def initial(self, batch: int) -> Belief:
        """The belief before any observation, for ``batch`` sequences."""

    @abstractmethod
    def update(self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None) -> Belief:
        """One online step: action ``a`` (N, A) was taken, then ``x`` (N, *event) seen, with reward ``r`` (N,)."""

    @abstractmethod
    def filter(self, sequences: Sequences) -> Beliefs:
        """The beliefs at every time of whole sequences: `update`, scanned."""

    @abstractmethod
    def sample_state(self, belief: Belief, n: int) -> Latent:
        """``n`` states from the belief, each layer (n, N, size)."""

    @abstractmethod
    def transition(self, z: Latent, dt: int | Tensor, a: Tensor | None = None) -> Latent:
        """A state ``dt`` steps later. With actions, ``a`` (..., dt, A) holds those of the jump, in order."""

    @abstractmethod
    def decode(self, z: Latent) -> Distribution:
        """The distribution of the observation in state z."""

    @abstractmethod
    def predict(self, z: Latent, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        """The observation ``dt`` steps after z: `transition` and `decode`, integrated where that is exact."""


GROUPS = 8  # of sequences of like length
SMALLEST_GROUP = 32  # smaller ones cost more in overhead than they save
WASTE = 0.15  # share of padding from which grouping pays


def _of_like_length(sequences: Sequences) -> list[Tensor]:
    """Rows of sequences that are encoded together: all, or in groups sorted by length if padding would cost much."""
    count, lengths = len(sequences), sequences.lengths
    groups = min(GROUPS, count // SMALLEST_GROUP)
    if groups < 2 or float(lengths.sum()) > (1 - WASTE) * count * sequences.horizon:
        return [torch.arange(count, device=lengths.device)]
    return list(lengths.argsort().tensor_split(groups))


class RecurrentModel(Model):
    """The half of a model that looks back: an encoder, a belief network, and a map that reads its code.

    What is left to a kind of model is what it makes of the belief: states, transitions and predictions.
    """

    def __init__(self, config: ModelConfig, encoder: nn.Module, belief: BeliefNetwork, read: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.belief, self.read = encoder, belief, read

    def initial(self, batch: int) -> Belief:
        return self.belief.initial(batch)

    def update(self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None) -> Belief:
        self._check_event(x, lead=1)
        inputs = self._inputs(x[:, None], None if a is None else a[:, None], None if r is None else r[:, None])
        return self.belief.scan(belief, inputs)[1]

    def filter(self, sequences: Sequences) -> Beliefs:
        """Codes beyond a sequence's length mean nothing; where lengths differ much, most of them are not computed."""
        self._check_event(sequences.x, lead=2)
        groups = _of_like_length(sequences)
        if len(groups) == 1:
            return Beliefs(self._codes(sequences), self.read)
        parts = [self._codes(sequences.select(rows).until(int(sequences.lengths[rows].max()))) for rows in groups]
        padded = [F.pad(part, (0, 0, 0, sequences.horizon + 1 - part.shape[1])) for part in parts]
        back = torch.cat(groups).argsort()
        return Beliefs(torch.cat(padded)[back], self.read)

    def _codes(self, sequences: Sequences) -> Tensor:
        """b_0 … b_T before they are read, (N, T + 1, C)."""
        first = self.belief.initial(len(sequences))
        inputs = self._inputs(sequences.x, sequences.actions, sequences.rewards)
        codes, _ = self.belief.scan(first, inputs)
        return torch.cat([first.code[:, None], codes], dim=1)

    def jump(self, z: Latent, dt: int | Tensor, a: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """δt and the actions of a jump as a user gives them, checked and broadcast to z's leading shape."""
        lead = z.layers[0].shape[:-1]
        dt = torch.as_tensor(dt, device=z.layers[0].device).expand(lead)
        if dt.is_floating_point() or bool((dt < 1).any()):
            raise InputError(f"dt: expected whole jumps of at least 1 step, got {dt.min().item()}")
        check_given("actions of the jump", a, self.config.actions > 0)
        if a is not None:
            self._check_action_size(a)
            if a.shape[-2] < int(dt.max()):
                raise InputError(f"a: expected one action for each of the {int(dt.max())} steps, got {a.shape[-2]}")
            a = a.expand(*lead, *a.shape[-2:])
        return dt, a

    def step_by_step(
        self, z: Latent, dt: int | Tensor, a: Tensor | None, step: Callable[[Latent, Tensor | None], Latent]
    ) -> Latent:
        """A transition of a model that knows single steps only: each state goes on until it has made its δt."""
        steps, a = self.jump(z, dt, a)
        for done in range(int(steps.max())):
            after = step(z, None if a is None else a[..., done, :])
            going = (done < steps)[..., None]
            moved = zip(after.layers, z.layers, strict=True)
            z = Latent(tuple(torch.where(going, new, old) for new, old in moved))
        return z

    def _check_action_size(self, a: Tensor) -> None:
        if a.shape[-1] != self.config.actions:
            raise InputError(f"actions: expected size {self.config.actions}, got {a.shape[-1]}")

    def _inputs(self, x: Tensor, a: Tensor | None, r: Tensor | None) -> Tensor:
        """What the belief network reads at each step: x_t, the action before it and the reward with it."""
        check_given("actions", a, self.config.actions > 0)
        check_given("rewards", r, self.config.rewards)
        parts = [self.encoder(x)]
        if a is not None:
            self._check_action_size(a)
            parts.append(a.to(parts[0].dtype))
        if r is not None:
            parts.append(r[..., None].to(parts[0].dtype))
        return torch.cat(parts, dim=-1)

    def _check_event(self, x: Tensor, lead: int) -> None:
        expected = tuple(self.config.event_shape)
        if x.ndim != lead + len(expected) or tuple(x.shape[lead:]) != expected:
            raise InputError(f"x: this model expects observations of shape {expected}, got {tuple(x.shape)[lead:]}")


def check_given(name: str, value: Tensor | None, expected: bool) -> None:
    """A model with actions must get them; one without must not, since it would silently ignore them."""
    if expected and value is None:
        raise InputError(f"{name}: this model was built with them, but none came")
    if not expected and value is not None:
        raise InputError(f"{name}: they came, but this model was built without them; leave them out or rebuild")
