"""The limit of forecasts of Lorenz' system: a bootstrap particle filter that knows the equations and the noise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tdvae.forecasting import OwnData
from tdvae.forecasting.predictors import Origins, observed
from tdvae_paper.own_data.sets import LORENZ_NOISE, Floats, lorenz_states, lorenz_step

JITTER = 0.1  # share of the spread of particles: noise that keeps them apart after resampling


def lorenz_limit(own: OwnData, origins: Mapping[int, Origins], particles: int, seed: int) -> dict[int, float]:
    """The NLL at each horizon, in units of the encoding, from the same origins and with the same gaps."""
    generator, test = np.random.default_rng(seed), own.test.sequences
    x = own.encoding.decode(test.x)[..., 0]
    seen = observed(test)[..., 0].numpy()
    scale = float(np.asarray(own.encoding.scaling.scale).ravel()[0]) if own.encoding.scaling is not None else 1.0
    start = lorenz_states(particles, generator)
    wanted: dict[int, dict[int, list[int]]] = {}  # sequence → time → horizons
    for h, at in origins.items():
        for row, t in zip(at.row.tolist(), at.t.tolist(), strict=True):
            wanted.setdefault(row, {}).setdefault(t, []).append(h)
    nll: dict[int, list[float]] = {h: [] for h in origins}
    for row, times in wanted.items():
        states = start
        for t in range(1, max(times) + 1):
            states = lorenz_step(states)
            if seen[row, t - 1]:
                states = _resampled(states, x[row, t - 1], generator)
            future = states
            for h in range(1, max(times.get(t, [0])) + 1):
                future = lorenz_step(future)
                if h in times[t]:
                    nll[h].append(-_log_density(future[:, 0], x[row, t + h - 1]) - np.log(scale))
    return {h: float(np.mean(values)) for h, values in nll.items()}


def _resampled(states: Floats, x: float, generator: np.random.Generator) -> Floats:
    log_weight = -0.5 * np.square((x - states[:, 0]) / LORENZ_NOISE)
    weight = np.exp(log_weight - log_weight.max())
    points = (np.arange(len(states)) + generator.random()) / len(states) * weight.sum()
    chosen = np.searchsorted(np.cumsum(weight), points).clip(max=len(states) - 1)
    drawn = states[chosen]
    return drawn + JITTER * drawn.std(0) * generator.normal(size=states.shape)


def _log_density(means: Floats, x: float) -> float:
    """The log density of x, given particles and the noise of an observation."""
    log_density = -0.5 * np.square((x - means) / LORENZ_NOISE) - np.log(LORENZ_NOISE * np.sqrt(2 * np.pi))
    largest = log_density.max()
    return float(largest + np.log(np.mean(np.exp(log_density - largest))))
