"""The contract every model keeps. An agent needs only these verbs; training and evaluation are written against them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tdvae.distributions import Distribution
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

    kind: ClassVar[str]
    config: Any

    def describe(self) -> dict[str, Any]:
        """The config as JSON can hold it; `tdvae.models.build` reads it back."""
        return {"kind": self.kind, **asdict(self.config)}

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
