"""Deterministic drifts of the latent state over δt, which are added to the mean of p_T."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from tdvae.errors import InputError
from tdvae.nn.dense import ResidualMap
from tdvae.types import Latent


class Drift(nn.Module, ABC):
    """A deterministic motion of the latent state."""

    @abstractmethod
    def forward(self, z: Latent, dt: Tensor) -> Latent:
        """The state ``dt`` steps later; ``dt`` has the leading shape of ``z``."""

    def back(self, z: Latent, dt: Tensor) -> Latent:
        """The state ``dt`` steps earlier, with the rates of the later state."""
        earlier: Latent = self(z, -dt)
        return earlier


class Residual(Drift):
    """The identity: the mean of p_T is z_{t1} plus the output of the network."""

    def forward(self, z: Latent, dt: Tensor) -> Latent:
        return z


class Rotation(Drift):
    """Rotates pairs of coordinates by the angle r(z)·δt, with a learned rate r(z) for each pair.

    A pair is a coordinate of one layer and the same coordinate of the next (layers 1 and 2, 3 and 4, …). A ladder can
    represent the dependence of coordinates in different layers, as a filter does; within a layer they are independent.
    With an odd number of layers, the top layer is unchanged.

    The initial rates are small, so the drift starts near the identity. A rate learned from short jumps also holds for
    long ones. Rates that depend too little on z at the start are a saddle of the loss: the state gains nothing from a
    frequency until r(z) reads it, and r(z) learns nothing until the state contains one.
    """

    HIDDEN = 48
    GAIN = 0.5  # of the initial r(z); with 0.1, some seeds stay on the saddle
    INIT_RATE_STD = 0.02  # rad/step: slow rotations of different rates

    def __init__(self, latent: int, layers: int) -> None:
        super().__init__()
        if layers < 2:
            raise InputError(f"layers: expected at least 2 for drift='rotation', which pairs layers, got {layers}")
        self.pairs = layers // 2
        self.rates = ResidualMap(latent * layers, latent * self.pairs, hidden=self.HIDDEN, blocks=1, gain=self.GAIN)
        nn.init.normal_(self.rates.out.bias, std=self.INIT_RATE_STD)

    def forward(self, z: Latent, dt: Tensor) -> Latent:
        angles = self.rates(z.flat) * dt.to(z.layers[0].dtype)[..., None]
        rotated: list[Tensor] = []
        for pair, angle in enumerate(angles.chunk(self.pairs, dim=-1)):
            u, v = z.layers[2 * pair : 2 * pair + 2]
            cos, sin = torch.cos(angle), torch.sin(angle)
            rotated += [cos * u - sin * v, sin * u + cos * v]
        return Latent((*rotated, *z.layers[2 * self.pairs :]))
