"""Exact forecasters that the page draws beside a model's forecasts."""

from __future__ import annotations

import torch
from torch import Tensor

from tdvae.explorer.library import BankPosterior, GaussianMixture, OscillatorOracle, OscillatorSettings

COARSE_UNTIL = 40  # observations: until then the posterior of the frequency is wide, and a coarse grid is enough
COARSE, FINE = 128, 512  # frequencies
NEGLIGIBLE = 1e-7  # weight of a hypothesis that is left out
MOST_KEPT = 16  # posteriors, of up to a megabyte each


class ExactOscillator:
    """The Bayes-optimal forecasts of the noisy oscillator."""

    name = "exact inference"

    def __init__(self, settings: OscillatorSettings) -> None:
        self._coarse, self._fine = OscillatorOracle(settings, COARSE), OscillatorOracle(settings, FINE)
        self._posteriors: dict[bytes, BankPosterior] = {}

    def now(self, seen: Tensor) -> GaussianMixture:
        """The density of another observation now, given (N, t, 1): batch shape (N, 1)."""
        return self.densities(seen, [0])

    def densities(self, seen: Tensor, horizons: list[int]) -> GaussianMixture:
        """Those after each of the horizons: batch shape (N, horizons)."""
        count, t = seen.shape[:2]
        oracle = self._coarse if t < COARSE_UNTIL else self._fine
        if t == 0:
            return _joined([oracle.marginal(max(0, dt - 1)) for dt in horizons], count)
        posterior = self._posterior(oracle, seen)
        return _without_negligible(_joined([oracle.forecast(posterior, dt) for dt in horizons], count))

    def _posterior(self, oracle: OscillatorOracle, seen: Tensor) -> BankPosterior:
        key = seen.numpy().tobytes()
        if key not in self._posteriors:
            while len(self._posteriors) >= MOST_KEPT:
                self._posteriors.pop(next(iter(self._posteriors)), None)
            self._posteriors[key] = oracle.observe(seen)
        return self._posteriors[key]


def _joined(mixtures: list[GaussianMixture], count: int) -> GaussianMixture:
    """Mixtures of scalars, (count or 1, …) each, as one of batch shape (count, mixtures)."""
    most = max(mixture.means.shape[-1] for mixture in mixtures)
    fills = {"log_weights": -torch.inf, "means": 0.0, "variances": 1.0}

    def joined(name: str) -> Tensor:
        parts = []
        for mixture in mixtures:
            values = getattr(mixture, name).expand_as(mixture.means).flatten(0, -2).expand(count, -1)
            parts.append(torch.nn.functional.pad(values, (0, most - values.shape[-1]), value=fills[name]))
        return torch.stack(parts, dim=1)

    return GaussianMixture(joined("log_weights"), joined("means"), joined("variances"))


def _without_negligible(mixture: GaussianMixture) -> GaussianMixture:
    """Leave out the components whose weight is negligible in all mixtures; most are, after some observations."""
    kept = (mixture.log_weights.flatten(0, -2).amax(0).exp() > NEGLIGIBLE).nonzero()[:, 0]
    return GaussianMixture(mixture.log_weights[..., kept], mixture.means[..., kept], mixture.variances[..., kept])
