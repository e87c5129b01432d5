"""The stacked forecast: a mixture of the densities of several forecasters, with weights by horizon.

The weights maximise the likelihood of forecasts of the validation part (stacking of predictive distributions, Yao et
al. 2018). Neighbouring horizons share what was observed, and a few validation blocks change the weights little: with
fewer than `LEAST_BLOCKS`, the simplest member is used alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tdvae.errors import InputError
from tdvae.forecasting.predictors.density import SAMPLES, Density, MixtureDensity, Predictor, mixed_log_prob
from tdvae.forecasting.predictors.networks import Network, interpolated, scaled
from tdvae.forecasting.predictors.origins import LEAST_BLOCKS, Origins, mean_and_error, targets
from tdvae.models import TDVAE
from tdvae.types import Sequences

PRIOR_BLOCKS = 0.3  # the simplest member counts as if it had been right in this many more blocks
NEIGHBOURS = 0.5  # width of the kernel that shares observations between horizons, in log steps
ITERATIONS = 300
LEAST_WEIGHT = 0.005  # members with less are left out
EIGHTHS = range(-12, 13)  # of an octave: the factors of the spread that are compared
FEW_EIGHTHS = (-4, -2, 0, 2, 4)  # … where each needs a new estimate of the density


@dataclass(frozen=True)
class Stack:
    """A mixture of forecasters with weights by horizon, interpolated between those that validation scored."""

    members: Mapping[str, Predictor]
    weights: Mapping[str, Mapping[int, float]]

    def __post_init__(self) -> None:
        for h in {h for by_horizon in self.weights.values() for h in by_horizon} or {0}:
            given = [by_horizon.get(h, 0.0) for by_horizon in self.weights.values()]
            if min(given, default=-1.0) < 0 or not math.isclose(sum(given), 1):
                raise InputError(f"weights: expected shares that sum to 1 at {h} steps, got {given}")

    def weights_at(self, h: int) -> dict[str, float]:
        """The weights of the members at a horizon; small ones are left out."""
        found = {name: interpolated(by_horizon, h, 0.0) for name, by_horizon in self.weights.items()}
        kept = {name: weight for name, weight in found.items() if weight >= LEAST_WEIGHT}
        return {name: weight / sum(kept.values()) for name, weight in kept.items()}

    def densities(
        self, sequences: Sequences, at: Origins, horizons: Sequence[int], samples: int = SAMPLES
    ) -> dict[int, Density]:
        weights = {h: self.weights_at(h) for h in horizons}
        parts: dict[int, dict[str, Density]] = {h: {} for h in horizons}
        for name, member in self.members.items():
            if used := [h for h in horizons if name in weights[h]]:
                for h, density in member.densities(sequences, at, used, samples).items():
                    parts[h][name] = density
        return {h: self.mixture(parts[h], h) for h in horizons}

    def mixture(self, parts: Mapping[str, Density], h: int) -> MixtureDensity:
        """The mixture of the densities of the members at a horizon."""
        weights = self.weights_at(h)
        return MixtureDensity(tuple(parts[name] for name in weights), tuple(weights.values()))

    def paths(self, sequences: Sequences, at: Origins, steps: Sequence[int], count: int) -> Tensor:
        """Futures whose steps have the densities of the stack, and depend on each other as those of its main member.

        This is ensemble copula coupling (Schefzik et al. 2013): draws from the density of each step are put into the
        order of the main member's futures.
        """
        template = self.members[self.main(max(steps))].paths(sequences, at, steps, count)
        found = []
        densities = self.densities(sequences, at, sorted(set(steps)))
        for number, step in enumerate(steps):
            draws = densities[step].sample(count).sort(0).values
            found.append(draws.gather(0, template[:, :, number].argsort(0).argsort(0)))
        return torch.stack(found, dim=2)

    def main(self, h: int) -> str:
        """The member with the largest weight at a horizon."""
        weights = self.weights_at(h)
        return max(weights, key=lambda name: weights[name])

    def best(self, names: Sequence[str]) -> str:
        """The one of these members with the largest weight, on average over horizons."""
        return max(names, key=lambda name: sum(self.weights[name].values()))

    def log_probs(self, of_members: Mapping[str, Tensor], h: int) -> Tensor:
        """The log density of the mixture from those of its members."""
        weights = self.weights_at(h)
        return mixed_log_prob([of_members[name] for name in weights], list(weights.values()))

    @property
    def kept(self) -> dict[str, tuple[float, float]]:
        """The least and the largest weight over horizons of each member that is used, those with most weight first."""
        horizons = sorted({h for by_horizon in self.weights.values() for h in by_horizon})
        used = {name: [self.weights_at(h).get(name, 0.0) for h in horizons] for name in self.members}
        order = sorted((name for name in used if any(used[name])), key=lambda name: -sum(used[name]))
        return {name: (min(used[name]), max(used[name])) for name in order}


def log_prob(
    predictor: Predictor, sequences: Sequences, at: Origins, h: int, density: Density, samples: int = SAMPLES
) -> Tensor:
    """The log density of what was observed ``h`` steps after the origins, (M,)."""
    if isinstance(predictor, Network):
        return predictor.log_prob(sequences, at, h, density, samples)
    return density.log_prob(*targets(sequences, at, h))


@torch.no_grad()
def fit_stack(
    members: Mapping[str, Predictor],
    simple: str,
    sequences: Sequences,
    at: Origins,
    horizons: Sequence[int],
    samples: int = SAMPLES,
) -> Stack:
    """Calibrate the networks among the members and weight all of them, by forecasts of validation sequences.

    ``simple`` is the member that counts without evidence. All origins have room for all horizons.
    """
    members = {
        name: calibrated(each, sequences, at, horizons, samples) if isinstance(each, Network) else each
        for name, each in members.items()
    }
    scored = {h: targets(sequences, at, h)[1].any(1).nonzero()[:, 0] for h in horizons}
    log_probs: dict[str, dict[int, Tensor]] = {name: {} for name in members}
    for name, member in members.items():
        densities = member.densities(sequences, at, horizons, samples)
        for h, index in scored.items():
            log_probs[name][h] = log_prob(member, sequences, at, h, densities[h], samples).double()[index]
    return Stack(members, stacking_weights(log_probs, {h: at.block[index] for h, index in scored.items()}, simple))


def calibrated(
    network: Network, sequences: Sequences, at: Origins, horizons: Sequence[int], samples: int = SAMPLES
) -> Network:
    """The network with the way of each forecast, one jump or single steps, and the spread that suit validation."""
    ways: tuple[bool, ...] = (False, True) if isinstance(network.model, TDVAE) else (True,)
    found: dict[int, dict[bool, tuple[float, float]]] = {h: {} for h in horizons}  # NLL and factor of the spread
    for way in ways:
        one = replace(network, composed=frozenset(horizons if way else ()), scales=dict.fromkeys(horizons, 1.0))
        for h, density in one.densities(sequences, at, horizons, samples).items():
            found[h][way] = _spread_factor(one, sequences, at, h, density, samples)
    best = {h: min(by_way, key=lambda way: by_way[way][0]) for h, by_way in found.items()}
    return replace(
        network,
        composed=frozenset(h for h in horizons if best[h]),
        scales={h: found[h][best[h]][1] for h in horizons},
    )


def _spread_factor(
    network: Network, sequences: Sequences, at: Origins, h: int, density: Density, samples: int
) -> tuple[float, float]:
    """The NLL, and the factor of the spread with the lowest one; 1 unless another is better by a standard error."""
    costly = network.needs_posterior(sequences, h)
    nll: dict[int, Tensor] = {}
    for eighths in FEW_EIGHTHS if costly else EIGHTHS:
        factor = 2.0 ** (eighths / 8)
        one = replace(network, scales={**network.scales, h: factor})
        nll[eighths] = -one.log_prob(sequences, at, h, scaled(density, factor), samples // 4).double()
    best = min(nll, key=lambda eighths: float(nll[eighths].mean()))
    gain, error = mean_and_error(nll[0] - nll[best], at.block)
    chosen = best if gain > error else 0
    return float(nll[chosen].mean()), 2.0 ** (chosen / 8)


def stacking_weights(
    log_probs: Mapping[str, Mapping[int, Tensor]], blocks: Mapping[int, Tensor], simple: str
) -> dict[str, dict[int, float]]:
    """The weights by member and horizon that maximise the likelihood, by expectation maximisation.

    At each horizon the forecasts of all count, those of neighbouring horizons more than those of distant ones, and
    together as much as the blocks of this horizon. The prior adds `PRIOR_BLOCKS` to the simple member.
    """
    names = list(log_probs)
    prior = torch.tensor([PRIOR_BLOCKS if name == simple else 0.0 for name in names], dtype=torch.float64)
    weights: dict[str, dict[int, float]] = {name: {} for name in names}
    tables = {h: torch.stack([log_probs[name][h] for name in names]) for h in blocks}  # (K, M)
    for h in blocks:
        count = len(blocks[h].unique())
        if count < LEAST_BLOCKS:
            found = (prior > 0).double()
        else:
            nearness = {k: math.exp(-0.5 * (math.log(k / h) / NEIGHBOURS) ** 2) for k in tables}
            share = torch.cat([torch.full((tables[k].shape[1],), nearness[k] / tables[k].shape[1]) for k in tables])
            share = share.double() * count / share.sum()
            found = _maximised(torch.cat([tables[k] for k in tables], dim=1), share, prior)
        for name, weight in zip(names, found.tolist(), strict=True):
            weights[name][h] = weight
    return weights


def _maximised(log_probs: Tensor, share: Tensor, prior: Tensor) -> Tensor:
    """The weights (K,) that maximise Σ_i share_i log Σ_k w_k p_k(i) + Σ_k prior_k log w_k."""
    weights = torch.full((len(log_probs),), 1 / len(log_probs), dtype=torch.float64)
    for _ in range(ITERATIONS):
        responsibility = torch.softmax(log_probs + weights.clamp(min=1e-300).log()[:, None], dim=0)
        weights = responsibility @ share + prior
        weights = weights / weights.sum()
    return weights
