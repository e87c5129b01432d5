"""Forecasts by networks: TD-VAE, whose forecast is one jump or several, and the next-step predictor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tdvae.distributions import DiagonalNormal
from tdvae.forecasting.predictors.density import SAMPLES, Density, Normals
from tdvae.forecasting.predictors.gaps import fill, steps_without_observation, takes_gaps
from tdvae.forecasting.predictors.origins import Origins, targets
from tdvae.likelihood import log_mean_exp, pair_log_weights
from tdvae.models import TDVAE, Model
from tdvae.types import Belief, Pairs, Sequences, State, missing_as_nan

MOST_ROWS = 20_000  # samples × origins at once: more are not faster and need more memory
FEW_DIMENSIONS = 3  # up to here a joint density is estimated from states drawn from the past


@dataclass(frozen=True)
class Network:
    """A model of vectors of numbers that forecasts by sampling.

    ``composed`` are the horizons at which the forecast of a TD-VAE is made of single steps, and ``scales`` are the
    calibrated factors of the spread around the mean, both at the horizons that validation scored.
    """

    model: Model
    longest_jump: int
    composed: frozenset[int] = frozenset()
    scales: Mapping[int, float] = field(default_factory=dict)

    @torch.no_grad()
    def densities(
        self, sequences: Sequences, at: Origins, horizons: Sequence[int], samples: int = SAMPLES
    ) -> dict[int, Density]:
        parts: dict[int, list[DiagonalNormal]] = {h: [] for h in horizons}
        order = []
        missing = steps_without_observation(sequences, at)
        for rows in torch.arange(len(at)).split(max(1, MOST_ROWS // samples)):
            start = replace(at.select(rows), t=(at.t - missing)[rows])
            chosen, belief = beliefs_at(self.model, sequences, start)
            for gap in missing[rows].unique().tolist():
                index = (missing[rows] == gap).nonzero()[:, 0]
                order.append(rows[index])
                actions = actions_after(chosen.select(index), start.select(index), max(horizons) + gap)
                for h, normal in self._components(belief[index], actions, horizons, samples, gap):
                    parts[h].append(normal)
        back = torch.argsort(torch.cat(order))
        return {h: Normals(_spread(_joined(parts[h], back), interpolated(self.scales, h, 1.0))) for h in horizons}

    def _components(
        self, belief: Belief, actions: Tensor | None, horizons: Sequence[int], samples: int, gap: int
    ) -> Iterator[tuple[int, DiagonalNormal]]:
        """The normal densities at each horizon, from beliefs that are ``gap`` steps older than the origin.

        If nothing was observed in these steps, sampled futures show how they may have gone on, and a single belief at
        the origin would not.
        """
        state = self.model.sample_state(belief, samples)
        single = {h for h in horizons if self._is_composed(h)}
        for h in sorted(set(horizons) - single):
            *before, last = compose(h + gap, self.longest_jump)
            reached, done = state, 0
            for jump in before:
                reached = self.model.transition(reached, jump, _between(actions, done, done + jump))
                done += jump
            yield h, _flat(self.model.predict(reached, last, _between(actions, done, h + gap)))
        for step in range(1, max(single, default=-gap) + gap + 1):
            state = self.model.transition(state, 1, _between(actions, step - 1, step))
            if step - gap in single:
                yield step - gap, _flat(self.model.decode(state))

    def _is_composed(self, h: int) -> bool:
        """Whether a forecast is made of single steps: as at the nearest horizon that was scored."""
        if not isinstance(self.model, TDVAE):
            return True
        return bool(self.scales) and nearest(self.scales, h) in self.composed

    @torch.no_grad()
    def paths(self, sequences: Sequences, at: Origins, steps: Sequence[int], count: int) -> Tensor:
        parts = [self._paths(sequences, batch, steps, count) for batch in at.batches(max(1, MOST_ROWS // count))]
        return torch.cat(parts, dim=1)

    def _paths(self, sequences: Sequences, at: Origins, steps: Sequence[int], count: int) -> Tensor:
        chosen, belief = beliefs_at(self.model, sequences, at)
        actions = actions_after(chosen, at, max(steps))
        state, done, drawn = self.model.sample_state(belief, count), 0, {}
        for step in sorted(set(steps)):
            for jump in [1] * (step - done) if self._is_composed(step) else compose(step - done, self.longest_jump):
                state = self.model.transition(state, jump, _between(actions, done, done + jump))
                done += jump
            drawn[step] = self._observation(state)
        return torch.stack([drawn[step] for step in steps], dim=2)

    def _observation(self, state: State) -> Tensor:
        """The observations (count, M, D) that later ones follow, if the state has them; else a draw."""
        if isinstance(self.model, TDVAE) and state.x is not None:
            return self.model.observation(state).flatten(2).double()
        return self.model.decode(state).sample().flatten(2).double()

    @torch.no_grad()
    def log_prob(self, sequences: Sequences, at: Origins, h: int, density: Density, samples: int) -> Tensor:
        """The log density (M,) of what was observed ``h`` steps after the origins.

        A joint density of many dimensions is hit by few of the states drawn from the past alone, and its estimate is
        then too low. So above `FEW_DIMENSIONS` it is also estimated from states drawn from the posterior given the
        target (`tdvae.likelihood.importance_log_prob`). Both are too low on average, never too high: the higher counts.
        """
        x, seen = targets(sequences, at, h)
        found = density.log_prob(x, seen)
        if not self.needs_posterior(sequences, h):
            return found
        scale = interpolated(self.scales, h, 1.0)
        shrunk = density.mean + (x - density.mean) / scale  # the density of x is that of this, before calibration
        parts = [
            _importance(self.model, sequences, at.select(index), h, shrunk[index], samples)
            for index in torch.arange(len(at)).split(max(1, MOST_ROWS // samples))
        ]
        weighted = torch.cat(parts) - seen.sum(1) * math.log(scale)
        return weighted if float(weighted.mean()) > float(found.mean()) else found

    def needs_posterior(self, sequences: Sequences, h: int) -> bool:
        """Whether the density of a target is also estimated from states drawn from the posterior given the target."""
        if not isinstance(self.model, TDVAE) or self._is_composed(h) or h > self.longest_jump:
            return False
        if math.prod(sequences.x.shape[2:]) <= FEW_DIMENSIONS:
            return False
        return sequences.observed is None or takes_gaps(self.model)  # else the posterior cannot be given the target


def _importance(model: Model, sequences: Sequences, at: Origins, h: int, x: Tensor, samples: int) -> Tensor:
    """log p(x) for targets x (M, D), from states drawn from their posterior; from before a gap, as `densities`."""
    assert isinstance(model, TDVAE)
    start = at.t - steps_without_observation(sequences, at)
    chosen = sequences.select(at.row)
    changed = chosen.x.clone()
    changed[torch.arange(len(at)), at.t + h - 1] = x.to(changed.dtype).view(len(at), *changed.shape[2:])
    pairs = Pairs(start[:, None], at.t[:, None] + h)
    return log_mean_exp(pair_log_weights(model, replace(chosen, x=changed), pairs, samples))[..., 0].double()


def _flat(distribution: object) -> DiagonalNormal:
    assert isinstance(distribution, DiagonalNormal)
    return DiagonalNormal(distribution.mean.flatten(2).double(), distribution.log_sigma.flatten(2).double())


def _joined(parts: list[DiagonalNormal], order: Tensor) -> DiagonalNormal:
    """The densities of all origins, in this order."""
    mean, log_sigma = torch.cat([p.mean for p in parts], 1), torch.cat([p.log_sigma for p in parts], 1)
    return DiagonalNormal(mean[:, order], log_sigma[:, order])


def _spread(normal: DiagonalNormal, scale: float) -> DiagonalNormal:
    """The mixture of S normal densities, scaled around its mean."""
    if scale == 1.0:
        return normal
    centre = normal.mean.mean(0)
    return DiagonalNormal(centre + scale * (normal.mean - centre), normal.log_sigma + math.log(scale))


def scaled(density: Density, scale: float) -> Density:
    """The density, scaled around its mean."""
    assert isinstance(density, Normals)
    return Normals(_spread(density.components, scale))


def compose(step: int, longest: int) -> list[int]:
    """As few jumps as possible that together have ``step`` steps, each about equally long and at most ``longest``.

    >>> compose(45, 20)
    [15, 15, 15]
    """
    count = math.ceil(step / longest)
    return [(step * (index + 1)) // count - (step * index) // count for index in range(count)]


def nearest(values: Mapping[int, float], h: int) -> int:
    """The key nearest to h, as a ratio."""
    return min(values, key=lambda key: abs(math.log(key / h)))


def interpolated(values: Mapping[int, float], h: int, default: float) -> float:
    """The value at h, linear in log h between the nearest keys and constant beyond them; without any, the default."""
    if not values:
        return default
    below, above = [k for k in values if k <= h], [k for k in values if k >= h]
    if not below or not above:
        return values[min(above) if above else max(below)]
    low, high = max(below), min(above)
    share = 0.0 if low == high else math.log(h / low) / math.log(high / low)
    return (1 - share) * values[low] + share * values[high]


# Beliefs at origins


def beliefs_at(model: Model, sequences: Sequences, at: Origins) -> tuple[Sequences, Belief]:
    """The sequence of each origin, and the belief after its first t observations.

    A belief of a TD-VAE is for sampling states only: its codes are computed for all steps at once, without the carry
    that an online update would need. Missing values are filled if the model does not take gaps.
    """
    chosen = sequences.select(at.row)
    seen = fill(model, chosen.until(at.t))
    last = int(at.t.max())
    if isinstance(model, TDVAE):
        codes = model.filter(seen).codes[torch.arange(len(at)), at.t]
        return chosen, Belief(codes, (), model.features_at(seen, at.t))
    belief = model.initial(len(at))
    kept: list[Tensor | None] = _tensors(belief)
    for t in range(1, last + 1):
        belief = _update(model, belief, seen, t)
        reached = at.t == t
        kept = [_put(old, new, reached) for old, new in zip(kept, _tensors(belief), strict=True)]
    code, x, *carry = kept
    assert code is not None
    return chosen, Belief(code, tuple(part for part in carry if part is not None), x)


def actions_after(sequences: Sequences, at: Origins, dt: int) -> Tensor | None:
    """The actions of a jump from each origin, (M, dt, A), given the sequence of each origin."""
    if sequences.actions is None:
        return None
    return sequences.actions[torch.arange(len(at))[:, None], at.t[:, None] + torch.arange(dt)]


def _between(actions: Tensor | None, start: int, stop: int) -> Tensor | None:
    return None if actions is None else actions[..., start:stop, :]


def _update(model: Model, belief: Belief, sequences: Sequences, t: int) -> Belief:
    a = None if sequences.actions is None else sequences.actions[:, t - 1]
    r = None if sequences.rewards is None else sequences.rewards[:, t - 1]
    return model.update(belief, missing_as_nan(*sequences.at(t)), a, r)


def _tensors(belief: Belief) -> list[Tensor | None]:
    return [belief.code, belief.x, *belief.carry]


def _put(old: Tensor | None, new: Tensor | None, rows: Tensor) -> Tensor | None:
    if old is None or new is None:
        return new
    return torch.where(rows.view(-1, *[1] * (new.ndim - 1)), new, old)
