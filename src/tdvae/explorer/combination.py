"""The combined forecast of a run of `tdvae fit`: its TD-VAE, which has the states that are shown, is one part of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from tdvae.explorer.library import (
    CorrelatedNormal,
    Density,
    GaussianMixture,
    MixtureDensity,
    Normals,
    Origins,
    Sequences,
    Stack,
)
from tdvae.explorer.subjects import Subject

NAME = "combination, as in `tdvae forecast`"
SAMPLES = 64  # states or futures behind the density of each network


def densities(
    subject: Subject, rows: Tensor, t: int, horizons: list[int], actions: Tensor | None, channel: int
) -> list[GaussianMixture]:
    """The density of one channel in units at each of the horizons after t ≥ 1, of batch shape (rows,).

    ``actions`` (rows, steps, A) are those after t.
    """
    stack: Stack | None = subject.combination
    assert stack is not None
    seen = _followed(subject.sequences.select(rows).until(t), max(horizons), actions)
    row = torch.arange(len(rows))
    found = stack.densities(seen, Origins(row, torch.full_like(row, t), row), horizons, SAMPLES)
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
