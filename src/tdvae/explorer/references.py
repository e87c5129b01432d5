"""What the page draws beside a model's forecasts: exact inference, and the combination that the model is a part of."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from tdvae.data import OscillatorSettings
from tdvae.exact import BankPosterior, GaussianMixture, KalmanBank, OscillatorOracle
from tdvae.explorer.subjects import Subject
from tdvae.forecasting.predictors import CorrelatedNormal, Density, MixtureDensity, Normals, Origins, Stack
from tdvae.types import Sequences

COARSE_UNTIL = 40  # observations: until then the posterior of the frequency is wide, and a coarse grid is enough
COARSE, FINE = 128, 512  # frequencies
NEGLIGIBLE = 1e-7  # weight of a hypothesis that is left out
STRIDE = 16  # filtering starts from the posterior after a multiple of so many observations
MOST_KEPT = 16  # posteriors, of up to a megabyte each
COMBINATION = "combination, as in `tdvae forecast`"
COMBINATION_SAMPLES = 64  # states or futures behind the density of each network


class ExactOscillator:
    """The Bayes-optimal forecasts of the noisy oscillator."""

    name = "exact inference"

    def __init__(self, settings: OscillatorSettings) -> None:
        self._coarse, self._fine = OscillatorOracle(settings, COARSE), OscillatorOracle(settings, FINE)
        self._posteriors: dict[tuple[int, bytes], BankPosterior] = {}  # the one that was used last is the last

    def now(self, seen: Tensor) -> GaussianMixture:
        """The density of another observation now, given (N, t, 1): batch shape (N, 1)."""
        return self.densities(seen, [0])

    def densities(self, seen: Tensor, horizons: list[int]) -> GaussianMixture:
        """Those after each of the horizons: batch shape (N, horizons)."""
        count, t = seen.shape[:2]
        if t == 0:
            return _joined([self._coarse.marginal(max(0, dt - 1)) for dt in horizons], count)
        bank = (self._coarse if t < COARSE_UNTIL else self._fine).bank
        likely, posterior = _without_negligible(bank, self._posterior(bank, seen))
        return _joined([likely.predict(posterior, dt) for dt in horizons], count)

    def _posterior(self, bank: KalmanBank, seen: Tensor) -> BankPosterior:
        key = len(bank.m0), seen.numpy().tobytes()
        found = self._posteriors.pop(key, None)
        if found is None:
            start = (seen.shape[1] - 1) // STRIDE * STRIDE
            found = bank.filter(seen[:, start:], self._posterior(bank, seen[:, :start]) if start else None)
            while len(self._posteriors) >= MOST_KEPT:
                del self._posteriors[next(iter(self._posteriors))]
        self._posteriors[key] = found
        return found


def _joined(mixtures: list[GaussianMixture], count: int) -> GaussianMixture:
    """Mixtures of scalars, (count or 1, …) each, as one of batch shape (count, mixtures)."""
    most = max(mixture.means.shape[-1] for mixture in mixtures)
    fills = {"log_weights": -torch.inf, "means": 0.0, "variances": 1.0}

    def joined(name: str) -> Tensor:
        parts = []
        for mixture in mixtures:
            values = getattr(mixture, name).expand_as(mixture.means).flatten(0, -2).expand(count, -1)
            parts.append(functional.pad(values, (0, most - values.shape[-1]), value=fills[name]))
        return torch.stack(parts, dim=1)

    return GaussianMixture(joined("log_weights"), joined("means"), joined("variances"))


def _without_negligible(bank: KalmanBank, posterior: BankPosterior) -> tuple[KalmanBank, BankPosterior]:
    """Leave out the hypotheses whose weight is negligible for all sequences; most are, after some observations."""
    kept = (posterior.weights.amax(0) > NEGLIGIBLE).nonzero()[:, 0]
    likely = replace(bank, **{name: getattr(bank, name)[kept] for name in ("A", "m0", "P0", "log_prior")})
    log_weights, evidence = (each[:, kept] for each in (posterior.log_weights, posterior.log_evidence))
    return likely, BankPosterior(log_weights, evidence, posterior.mean[:, kept], posterior.cov[kept])


def combined(
    subject: Subject, rows: Tensor, t: int, horizons: list[int], actions: Tensor | None, channel: int
) -> list[GaussianMixture]:
    """The density of one channel in units at each of the horizons after t ≥ 1, of batch shape (rows,).

    ``actions`` (rows, steps, A) are those after t.
    """
    stack: Stack | None = subject.combination
    assert stack is not None
    seen = _followed(subject.sequences.select(rows).until(t), max(horizons), actions)
    row = torch.arange(len(rows))
    found = stack.densities(seen, Origins(row, torch.full_like(row, t), row), horizons, COMBINATION_SAMPLES)
    shift, scale = float(subject.units.shift[channel]), float(subject.units.scale[channel])
    mixtures = []
    for horizon in horizons:
        log_weights, means, variances = _marginal(found[horizon], channel)
        mixtures.append(GaussianMixture(log_weights, shift + scale * means, scale**2 * variances))
    return mixtures


def _followed(seen: Sequences, ahead: int, actions: Tensor | None) -> Sequences:
    """The sequences, followed by empty steps with the given actions."""
    fields = {
        name: functional.pad(tensor, (*[0, 0] * (tensor.ndim - 2), 0, ahead))
        for name, tensor in seen.named().items()
        if name not in ("lengths", "actions")
    }
    if seen.actions is not None and actions is not None:
        fields["actions"] = torch.cat([seen.actions, actions[:, :ahead]], dim=1)
    return Sequences(lengths=seen.lengths + ahead, **fields)


def _marginal(density: Density, channel: int) -> tuple[Tensor, Tensor, Tensor]:
    """One channel of a joint density as normal components: log weights, means and variances, all (M, components)."""
    if isinstance(density, MixtureDensity):
        parts = [_marginal(part, channel) for part in density.parts]
        log_weights = [math.log(weight) + part[0] for weight, part in zip(density.weights, parts, strict=True)]
        return torch.cat(log_weights, 1), torch.cat([part[1] for part in parts], 1), torch.cat([p[2] for p in parts], 1)
    if isinstance(density, Normals):
        means, sigma = (part[..., channel].double().T for part in (density.components.mean, density.components.sigma))
        return torch.full_like(means, -math.log(means.shape[1])), means, sigma.square()
    assert isinstance(density, CorrelatedNormal)
    mean = density.mean[:, channel, None].double()
    return torch.zeros_like(mean), mean, density.covariance[channel, channel].double().expand_as(mean)
