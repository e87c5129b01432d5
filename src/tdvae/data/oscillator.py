r"""The noisy harmonic oscillator: a state that turns, is disturbed, and is seen only in part.

.. math::
    s_0 = a\,(\cos\varphi, \sin\varphi), \qquad
    s_t = R(\omega)\,s_{t-1} + \mathcal N(0, \sigma_s^2 I), \qquad
    x_t = u_t + \mathcal N(0, \sigma_x^2), \qquad s_t = (u_t, v_t)

with :math:`\omega` and :math:`a` uniform in their ranges and :math:`\varphi` uniform on the circle, drawn
once per sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.errors import InputError


@dataclass(frozen=True)
class OscillatorSettings:
    """Ranges and noises; the defaults are the reference settings of every published number."""

    frequency: tuple[float, float] = (0.15, 0.6)
    r"""Range of :math:`\omega`, in radians per step."""
    amplitude: tuple[float, float] = (0.5, 1.5)
    """Range of the initial amplitude :math:`a`."""
    process_noise: float = 0.02
    """Standard deviation of the disturbance of each state component, each step."""
    observation_noise: float = 0.1
    """Standard deviation of the noise on x."""
    length: int = 200
    """Number of observations T of a simulated sequence."""

    def __post_init__(self) -> None:
        for name in ("frequency", "amplitude"):
            _check_range(name, getattr(self, name))
        if self.amplitude[0] <= 0:
            raise InputError(f"amplitude: got {self.amplitude}, expected a range above 0")
        for name in ("process_noise", "observation_noise"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name}: got {value}, expected a finite standard deviation >= 0")
        if self.length < 1:
            raise InputError(f"length: got {self.length}, expected at least 1")


def _check_range(name: str, value: tuple[float, float]) -> None:
    if len(value) != 2 or not all(math.isfinite(end) for end in value) or value[0] > value[1]:
        raise InputError(f"{name}: got {value}, expected two finite numbers (low, high) with low <= high")


@dataclass(frozen=True, eq=False)
class OscillatorRecord:
    """Simulated sequences together with what generated them (float32)."""

    x: Tensor
    """Observations, (n, T, 1)."""
    frequency: Tensor
    """Radians per step, (n,)."""
    amplitude: Tensor
    """Amplitude at index 0, before any disturbance, (n,)."""
    state: Tensor
    """(u, v) at every index, (n, T, 2)."""


def simulate(settings: OscillatorSettings, n: int, seed: int) -> OscillatorRecord:
    """Draw ``n`` sequences: the same seed gives the same data, and the global random state is left alone."""
    if n < 1:
        raise InputError(f"n: got {n}, expected at least 1 sequence")
    generator = torch.Generator().manual_seed(seed)
    frequency = uniform(settings.frequency, n, generator)
    amplitude = uniform(settings.amplitude, n, generator)
    phase = uniform((0.0, 2 * math.pi), n, generator)
    state, x = oscillate(settings, frequency[:, None].expand(n, settings.length - 1), amplitude, phase, generator)
    return OscillatorRecord(x.float(), frequency.float(), amplitude.float(), state.float())


def oscillate(
    settings: OscillatorSettings, frequency: Tensor, amplitude: Tensor, phase: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """States (n, T, 2) and observations (n, T, 1), turned by ``frequency`` (n, T - 1) from each index to the next."""
    state = _states(settings, frequency, amplitude, phase, generator)
    noise = torch.randn((*state.shape[:2], 1), generator=generator, dtype=torch.float64)
    return state, state[..., :1] + settings.observation_noise * noise


def uniform(bounds: tuple[float, float], n: int, generator: torch.Generator) -> Tensor:
    low, high = bounds
    return low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)


def _states(
    settings: OscillatorSettings,
    frequency: Tensor,
    amplitude: Tensor,
    phase: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """The states (n, T, 2), in float64 so that hundreds of rotations add no error of their own."""
    noise = torch.randn((*frequency.shape, 2), generator=generator, dtype=torch.float64)
    disturbance = settings.process_noise * noise
    turn = zip(torch.cos(frequency).unbind(1), torch.sin(frequency).unbind(1), strict=True)
    u, v = amplitude * torch.cos(phase), amplitude * torch.sin(phase)
    states = [torch.stack((u, v), dim=-1)]
    for step, (cos, sin) in enumerate(turn):
        u, v = cos * u - sin * v + disturbance[:, step, 0], sin * u + cos * v + disturbance[:, step, 1]
        states.append(torch.stack((u, v), dim=-1))
    return torch.stack(states, dim=1)
