r"""The Bayes-optimal forecaster of the noisy oscillator.

Given its frequency, the oscillator is linear-Gaussian except for the distribution of its initial state. A bank of
Kalman filters over a fine grid of frequencies therefore gives :math:`p(x_{t+dt}\mid x_{\le t})`, the best predictive
density that any model can have.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from tdvae.checks import NonNegative, Range, checked
from tdvae.data.oscillator import OscillatorSettings
from tdvae.errors import InputError
from tdvae.exact.kalman import BankPosterior, GaussianMixture, KalmanBank

# Spacing of quadrature nodes in standard deviations: Gaussians of standard deviation s at a spacing of 0.9 s add up to
# a constant, up to 2 exp(-2 (pi/0.9)^2) = 5e-11.
NODE_SPACING = 0.9
# Standard deviation of a ring component divided by the distance to its neighbours: a ripple of 0.2 %.
RING_WIDTH = 0.6
# Gauss-Hermite nodes per dimension for the mean of |(u, v)|.
AMPLITUDE_NODES = 5
MAX_HYPOTHESES = 2_000_000


class OscillatorOracle:
    r"""Bayes-optimal forecasts of the oscillator from any number of observations.

    The uniform frequency is integrated by the midpoint rule on ``frequencies`` points. The initial state is
    uniform in amplitude and phase, which is a ring and not a Gaussian. By default (``rings=0``) it is approximated
    by the Gaussian with the same moments, :math:`\mathcal N(0, \tfrac12 E[a^2] I)`. With ``rings=k`` it is
    approximated by Gaussians on k circles, which converge to the ring as k grows and take about :math:`9 k^2` times
    as long.

    Measured at the reference settings after 60 observations, in nats of mean NLL: the Gaussian instead of the ring
    (``rings=5``, 192 frequencies, 1,000 sequences) costs 0.00006, 0.00007, 0.00014 and 0.0003 (standard error of
    the last 0.0002) at dt = 1, 5, 20 and 100. Doubling the grid from 512 to 1,024 on 2,000 sequences changes the
    NLL by less than 0.00001. After 10 observations the Gaussian costs about 0.01, after 5 about 0.05; use rings
    there. Less noise or longer sequences make the posterior of the frequency narrower and need a finer grid.
    """

    @checked
    def __init__(
        self,
        settings: OscillatorSettings,
        frequencies: Annotated[int, Range(1, 100_000)] = 512,
        rings: Annotated[int, Range(0, 100)] = 0,
    ) -> None:
        if frequencies * max(1, 9 * rings**2) > MAX_HYPOTHESES:
            raise InputError(
                f"frequencies, rings: expected at most {MAX_HYPOTHESES:,} hypotheses, got {frequencies} × 9 · {rings}²"
            )
        if settings.observation_noise <= 0:
            raise InputError(f"observation_noise: expected above 0, got {settings.observation_noise}")
        self.settings = settings
        low, high = settings.frequency
        midpoints = (torch.arange(frequencies, dtype=torch.float64) + 0.5) / frequencies
        self.frequencies = low + (high - low) * midpoints
        self.bank = _bank(settings, self.frequencies, rings)

    @checked
    def observe(self, x: Tensor) -> BankPosterior:
        """The posterior given x (N, t, 1) from index 0, of the state at index t - 1. NaN values are missing."""
        return self.bank.filter(x)

    @checked
    def forecast(self, posterior: BankPosterior, dt: int) -> GaussianMixture:
        """The density of the observation dt steps after the last one, batch shape (N, 1)."""
        return self.bank.predict(posterior, dt)

    @checked
    def frequency_weights(self, posterior: BankPosterior) -> Tensor:
        """Posterior probabilities of ``self.frequencies``, (N, F)."""
        components = len(self.bank.m0) // len(self.frequencies)
        return posterior.weights.reshape(-1, len(self.frequencies), components).sum(-1)

    @checked
    def frequency(self, posterior: BankPosterior) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of the frequency, each (N,)."""
        weights = self.frequency_weights(posterior)
        mean = weights @ self.frequencies
        variance = (weights * (self.frequencies - mean.unsqueeze(-1)) ** 2).sum(-1)
        return mean, variance.sqrt()

    @checked
    def amplitude(self, posterior: BankPosterior) -> tuple[Tensor, Tensor]:
        r"""Posterior mean and standard deviation of :math:`|(u, v)|` at the last observed time, each (N,).

        The second moment :math:`\sum_h w_h(|m_h|^2 + \operatorname{tr} P_h)` is exact. The mean is computed for each
        hypothesis by Gauss-Hermite quadrature on 5 x 5 nodes, one node at a time to save memory.
        """
        rule = np.polynomial.hermite_e.hermegauss(AMPLITUDE_NODES)
        nodes, node_weights = torch.from_numpy(rule[0]), torch.from_numpy(rule[1] / rule[1].sum())
        factor = torch.linalg.cholesky(posterior.cov)
        weights = posterior.weights
        mean = torch.zeros(len(weights), dtype=torch.float64)
        for node in torch.cartesian_prod(torch.arange(AMPLITUDE_NODES), torch.arange(AMPLITUDE_NODES)):
            radius = (posterior.mean + factor @ nodes[node]).norm(dim=-1)
            mean += node_weights[node].prod() * (weights * radius).sum(-1)
        trace = posterior.cov.diagonal(dim1=-2, dim2=-1).sum(-1)
        second = (weights * ((posterior.mean**2).sum(-1) + trace)).sum(-1)
        return mean, (second - mean**2).clamp_min(0).sqrt()

    @checked
    def marginal(self, t: NonNegative) -> GaussianMixture:
        r"""The density of x_t without any observation, batch shape (1,), for x[:, t] of shape (N, 1).

        The phase is uniform at all times: :math:`x_t = a\cos\varphi + \mathcal N(0, t\sigma_s^2 + \sigma_x^2)`.
        The integral over a (Gauss-Legendre) and :math:`\varphi` (midpoints of a half turn) has enough nodes for a
        quadrature error of the density below 1e-10 at this noise.
        """
        settings = self.settings
        low, high = settings.amplitude
        variance = t * settings.process_noise**2 + settings.observation_noise**2
        spacing = NODE_SPACING * math.sqrt(variance)
        phases = math.ceil(math.pi * high / spacing) + 8
        nodes, node_weights = np.polynomial.legendre.leggauss(math.ceil((high - low) / spacing) + 8)
        radii = torch.from_numpy(0.5 * (low + high) + 0.5 * (high - low) * nodes)
        angles = math.pi * (torch.arange(phases, dtype=torch.float64) + 0.5) / phases
        weights = torch.from_numpy(node_weights / node_weights.sum() / phases)
        return GaussianMixture(
            log_weights=weights.log().repeat_interleave(phases).unsqueeze(0),
            means=(radii.unsqueeze(-1) * angles.cos()).reshape(1, -1),
            variances=torch.full((1, 1), variance, dtype=torch.float64),
        )


def rotations(frequencies: Tensor) -> Tensor:
    """The rotation matrices of one step, (F, 2, 2)."""
    cos, sin = frequencies.cos(), frequencies.sin()
    return torch.stack((cos, -sin, sin, cos), dim=-1).reshape(-1, 2, 2)


def _bank(settings: OscillatorSettings, frequencies: Tensor, rings: int) -> KalmanBank:
    """The bank whose hypotheses are frequency x component of the initial state; the frequency varies slowest."""
    amplitude = settings.amplitude
    log_prior, means, variance = _ring_prior(amplitude, rings) if rings else _matched_prior(amplitude)
    count, components = len(frequencies), len(means)
    identity = torch.eye(2, dtype=torch.float64)
    return KalmanBank(
        A=rotations(frequencies).repeat_interleave(components, dim=0),
        Q=settings.process_noise**2 * identity,
        C=torch.tensor([[1.0, 0.0]]),
        R=torch.tensor([[settings.observation_noise**2]], dtype=torch.float64),
        m0=means.repeat(count, 1),
        P0=(variance * identity).expand(count * components, 2, 2),
        log_prior=log_prior.repeat(count),
    )


def _matched_prior(amplitude: tuple[float, float]) -> tuple[Tensor, Tensor, float]:
    """Log weights (1,), means (1, 2) and variance E[a^2] / 2 of the Gaussian with the moments of the ring."""
    low, high = amplitude
    variance = (low**2 + low * high + high**2) / 6
    return torch.zeros(1, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64), variance


def _ring_prior(amplitude: tuple[float, float], rings: int) -> tuple[Tensor, Tensor, float]:
    """Log weights (K,), means (K, 2) and common variance of Gaussians on ``rings`` circles."""
    low, high = amplitude
    # The variance between the circles and the variance of the components add up to that of the uniform amplitude, so
    # that the error at the edges of the ring is of second order.
    spacing = (high - low) / math.sqrt(rings**2 - 1 + 12 * RING_WIDTH**2)
    # With a known amplitude all circles coincide, and only the arc between components is free.
    arc = spacing or 0.5 * high / rings
    variance = (RING_WIDTH * arc) ** 2
    phases = math.ceil(2 * math.pi * high / arc)
    offsets = torch.arange(rings, dtype=torch.float64) - 0.5 * (rings - 1)
    amplitudes = 0.5 * (low + high) + spacing * offsets
    # The width increases |(u, v)|^2 in both directions, but only the radial one counts as variance of the amplitude:
    # E|(u, v)|^2 = radius^2 + 2 variance has to equal amplitude^2 + variance.
    radii = (amplitudes**2 - variance).clamp_min(0).sqrt()
    angles = 2 * math.pi * torch.arange(phases, dtype=torch.float64) / phases
    circle = torch.stack((angles.cos(), angles.sin()), dim=-1)
    means = (radii[:, None, None] * circle).reshape(-1, 2)
    return torch.zeros(len(means), dtype=torch.float64), means, variance
