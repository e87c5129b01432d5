"""Where a state would be after δt if nothing new happened: what the transition's mean is measured from."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from tdvae.errors import InputError
from tdvae.nn.dense import ResidualMap
from tdvae.types import Latent


class Drift(nn.Module, ABC):
    """A deterministic motion of the state."""

    @abstractmethod
    def forward(self, z: Latent, dt: Tensor) -> Latent:
        """The state ``dt`` steps later; ``dt`` has z's leading shape."""

    def back(self, z: Latent, dt: Tensor) -> Latent:
        """The state ``dt`` steps earlier, at the rates of the later state."""
        moved: Latent = self(z, -dt)
        return moved


class Residual(Drift):
    """The state stays where it is: mean = z_{t1} + change."""

    def forward(self, z: Latent, dt: Tensor) -> Latent:
        return z


class Rotation(Drift):
    """Coordinates turn in pairs, each pair at its own rate r(z): the angle is r(z)·δt.

    A pair is a coordinate of one layer and the same coordinate of the next (layers 1 and 2, 3 and 4, …), so that a
    ladder can hold the two dependent, as a filter does; within a layer they would be independent. An odd top layer
    stays.
    At rate 0 a pair stays, so the motion starts near the identity. A rate learnt from short jumps holds for long ones.
    """

    HIDDEN = 48
    FIRST_RATES = 0.02  # spread of the initial rates, rad/step: slow, but not all alike

    def __init__(self, latent: int, layers: int) -> None:
        super().__init__()
        if layers < 2:
            raise InputError(f"layers: a turning transition pairs two layers, so it needs at least 2, got {layers}")
        self.pairs = layers // 2
        self.rates = ResidualMap(latent * layers, latent * self.pairs, hidden=self.HIDDEN, blocks=1, gain=0.1)
        nn.init.normal_(self.rates.out.bias, std=self.FIRST_RATES)

    def forward(self, z: Latent, dt: Tensor) -> Latent:
        angles = self.rates(z.flat) * dt.to(z.layers[0].dtype)[..., None]
        turned: list[Tensor] = []
        for pair, angle in enumerate(angles.chunk(self.pairs, dim=-1)):
            u, v = z.layers[2 * pair : 2 * pair + 2]
            cos, sin = torch.cos(angle), torch.sin(angle)
            turned += [cos * u - sin * v, sin * u + cos * v]
        return Latent((*turned, *z.layers[2 * self.pairs :]))
