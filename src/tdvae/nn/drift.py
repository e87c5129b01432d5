"""Where a state would be after δt if nothing new happened: what the transition's mean is measured from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tdvae.errors import InputError
from tdvae.nn.dense import ResidualMap
from tdvae.types import Latent


class Drift(nn.Module, ABC):
    """A deterministic motion of the state that is undone by going back in time."""

    @abstractmethod
    def forward(self, z: Latent, dt: Tensor) -> Latent:
        """The state ``dt`` steps later; ``dt`` has z's leading shape."""

    def back(self, z: Latent, dt: Tensor) -> Latent:
        """The state ``dt`` steps earlier, at the rates of the later state."""
        moved: Latent = self(z, -dt)
        return moved


class Stay(Drift):
    """The state stays where it is: mean = z_{t1} + change."""

    def forward(self, z: Latent, dt: Tensor) -> Latent:
        return z


class Turn(Drift):
    """Coordinates turn in pairs, each pair at its own rate r(z): the angle is r(z)·δt.

    At rate 0 a pair stays, so the motion starts near the identity. A rate learnt from short jumps holds for long ones,
    and a chain of jumps is consistent with a single one as long as z keeps what r reads.
    """

    HIDDEN = 48
    FIRST_RATES = 0.02  # spread of the initial rates, rad/step: slow, but not all alike

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        if any(size % 2 for size in sizes):
            raise InputError(
                f"latent: a turning transition pairs coordinates, so sizes must be even, got {tuple(sizes)}"
            )
        self.sizes = list(sizes)
        self.rates = ResidualMap(sum(sizes), sum(sizes) // 2, hidden=self.HIDDEN, blocks=1, gain=0.1)
        nn.init.normal_(self.rates.out.bias, std=self.FIRST_RATES)

    def forward(self, z: Latent, dt: Tensor) -> Latent:
        flat = z.flat
        angle = self.rates(flat) * dt.to(flat.dtype)[..., None]
        u, v = flat[..., 0::2], flat[..., 1::2]
        cos, sin = torch.cos(angle), torch.sin(angle)
        turned = torch.stack([cos * u - sin * v, sin * u + cos * v], dim=-1).flatten(-2)
        return Latent(turned.split(self.sizes, dim=-1))
