r"""Simulation of the noisy harmonic oscillator: a rotating state with process noise, observed in one component.

.. math::
    s_0 = a\,(\cos\varphi, \sin\varphi), \qquad
    s_t = R(\omega)\,s_{t-1} + \mathcal N(0, \sigma_s^2 I), \qquad
    x_t = u_t + \mathcal N(0, \sigma_x^2), \qquad s_t = (u_t, v_t)

The frequency :math:`\omega` and the amplitude :math:`a` are uniform in their ranges and the phase :math:`\varphi` is
uniform on the circle. They are drawn once per sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from tdvae.checks import Range, Samples, Seed, check_fields, checked
from tdvae.errors import InputError


@dataclass(frozen=True)
class OscillatorSettings:
    """Ranges, noise levels and length; the defaults are the reference settings of every published number."""

    frequency: tuple[float, float] = (0.15, 0.6)
    r"""Range of :math:`\omega`, in radians per time step."""
    amplitude: tuple[float, float] = (0.5, 1.5)
    """Range of the initial amplitude :math:`a`."""
    process_noise: Annotated[float, Range(0)] = 0.02
    """Standard deviation of the noise on each state component at each time step."""
    observation_noise: Annotated[float, Range(0)] = 0.1
    """Standard deviation of the noise on x."""
    length: Samples = 200
    """Number of observations T of a simulated sequence."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("frequency", "amplitude"):
            _check_range(name, getattr(self, name))
        if self.amplitude[0] <= 0:
            raise InputError(f"amplitude: expected a range above 0, got {self.amplitude}")


def _check_range(name: str, value: tuple[float, float]) -> None:
    if value[0] > value[1]:
        raise InputError(f"{name}: expected (low, high) with low <= high, got {value}")


@dataclass(frozen=True, eq=False)
class OscillatorRecord:
    """Simulated sequences with the parameters and states that generated them (float32)."""

    x: Tensor
    """Observations, (n, T, 1)."""
    frequency: Tensor
    """Frequency in radians per time step, (n,)."""
    amplitude: Tensor
    """Amplitude at index 0, before any process noise, (n,)."""
    state: Tensor
    """States (u, v), (n, T, 2)."""


@checked
def simulate(settings: OscillatorSettings, n: Samples, seed: Seed) -> OscillatorRecord:
    """Draw ``n`` sequences. The same seed gives the same data; the global random state is not used."""
    generator = torch.Generator().manual_seed(seed)
    frequency = uniform(settings.frequency, n, generator)
    amplitude = uniform(settings.amplitude, n, generator)
    phase = uniform((0.0, 2 * math.pi), n, generator)
    state, x = oscillate(settings, frequency[:, None].expand(n, settings.length - 1), amplitude, phase, generator)
    return OscillatorRecord(x.float(), frequency.float(), amplitude.float(), state.float())


def oscillate(
    settings: OscillatorSettings, frequency: Tensor, amplitude: Tensor, phase: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Simulate states (n, T, 2) and observations (n, T, 1); ``frequency`` (n, T - 1) gives the angle of each step."""
    state = _simulate_states(settings, frequency, amplitude, phase, generator)
    noise = torch.randn((*state.shape[:2], 1), generator=generator, dtype=torch.float64)
    return state, state[..., :1] + settings.observation_noise * noise


def uniform(bounds: tuple[float, float], n: int, generator: torch.Generator) -> Tensor:
    low, high = bounds
    return low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)


def _simulate_states(
    settings: OscillatorSettings,
    frequency: Tensor,
    amplitude: Tensor,
    phase: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """Simulate the states (n, T, 2), in float64 so that rounding errors do not accumulate over many rotations."""
    noise = torch.randn((*frequency.shape, 2), generator=generator, dtype=torch.float64)
    process_noise = settings.process_noise * noise
    rotations = zip(torch.cos(frequency).unbind(1), torch.sin(frequency).unbind(1), strict=True)
    u, v = amplitude * torch.cos(phase), amplitude * torch.sin(phase)
    states = [torch.stack((u, v), dim=-1)]
    for step, (cos, sin) in enumerate(rotations):
        u, v = cos * u - sin * v + process_noise[:, step, 0], sin * u + cos * v + process_noise[:, step, 1]
        states.append(torch.stack((u, v), dim=-1))
    return torch.stack(states, dim=1)
