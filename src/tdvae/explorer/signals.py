"""Views of signals: bands, sampled futures and scores, by a jump, by steps, by exact inference and by a combination."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tdvae.exact import GaussianMixture
from tdvae.explorer.futures import (
    FUTURES,
    Clock,
    Stop,
    actions_of,
    belief_samples,
    decoded,
    jump,
    moments,
    seeded,
    single_steps,
)
from tdvae.explorer.references import COMBINATION, combined
from tdvae.explorer.requests import Query
from tdvae.explorer.states import Projection
from tdvae.explorer.subjects import Subject, rows_of
from tdvae.forecasting.evaluation import sample_crps
from tdvae.forecasting.predictors import compose
from tdvae.likelihood import forecast
from tdvae.types import State

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # the ends of the 90 % and the 50 % band, and the median
BAND_POINTS = 32  # horizons of a band
COMBINATION_POINTS = 8  # … of the combination, which takes longer
CURVE_POINTS = 61
TAIL = 12  # single steps drawn after a jump
SCORE_DRAWS = 200


def jump_view(subject: Subject, query: Query, projection: Projection, stop: Stop) -> dict[str, Any]:
    """One jump: samples of the belief, each followed over δt, with the bands of all shorter jumps."""
    clock = Clock()
    channels = len(subject.channels)
    with seeded(query):
        state = belief_samples(subject, query)
        actions = actions_of(subject, query, query.dt)
        with clock.of("jump"):
            end = jump(subject, state, query.dt, actions)
            arrived = moments(subject.model.decode(end), channels)
        now = moments(subject.model.decode(state), channels)
        stop()
        tail = _tail(subject, query, end)
        stop()
        horizons = _horizons(query.dt)
        band = subject.density(*_all_jumps(subject, state, horizons, actions), query.channel)
        stop()
        combination = _combination(subject, query, actions)
    shown = slice(0, query.samples)
    density = subject.density(*arrived, query.channel)
    return {
        "now": {"samples": subject.in_units(now[0][shown, 0], query.channel), "band": _band(subject, query, now)},
        "end": {
            "samples": subject.in_units(arrived[0][shown, 0], query.channel),
            "spread": np.abs(subject.units.scale[query.channel]) * arrived[1][shown, 0, query.channel].double().numpy(),
            "curve": curve(density),
        },
        "tail": tail,
        "band": {"dt": horizons, "quantiles": quantiles(band)[:, 0]},
        "scores": _scores_here(subject, query, density),
        "states": {"now": projection.of(state[shown]), "end": projection.of(end[shown])},
        "evaluations": len(compose(query.dt, subject.longest_jump)),
        "futures": FUTURES,
        "exact": _exact(subject, query, horizons),
        "combination": combination,
        "milliseconds": clock.spent,
    }


def steps_view(subject: Subject, query: Query, stop: Stop) -> dict[str, Any]:
    """The same futures step by step: one evaluation of the model for each time step."""
    clock = Clock()
    with seeded(query):
        state = belief_samples(subject, query)
        actions = actions_of(subject, query, query.dt)
        with clock.of("steps"):
            states = single_steps(subject, state, query.dt, actions, stop)
            mean, sigma = decoded(subject, states)
    horizons = _horizons(query.dt)
    chosen = torch.tensor(horizons) - 1
    band = subject.density(mean[:, chosen], sigma[:, chosen], query.channel)
    last = subject.density(mean[:, -1:], sigma[:, -1:], query.channel)
    return {
        "paths": subject.in_units(mean[: query.samples], query.channel),
        "band": {"dt": horizons, "quantiles": quantiles(band)},
        "curve": curve(last),
        "scores": _scores_here(subject, query, last),
        "evaluations": query.dt,
        "futures": FUTURES,
        "milliseconds": clock.spent,
    }


def scores_view(subject: Subject, query: Query, stop: Stop) -> dict[str, Any]:
    """NLL, CRPS and coverage at this horizon, over all held-out sequences that are long enough."""
    step = query.t + query.dt - 1
    if step >= subject.sequences.horizon:
        return {"count": 0}
    targets = torch.from_numpy(subject.observed[:, step, query.channel])
    rows = (~targets.isnan()).nonzero()[:, 0]
    if len(rows) == 0:
        return {"count": 0}
    targets = targets[rows]
    with seeded(query):
        belief = rows_of(subject.beliefs[query.t], rows)
        actions = None
        if subject.sequences.actions is not None:
            actions = subject.sequences.actions[rows, query.t : query.t + query.dt]
        jumps = compose(query.dt, subject.longest_jump)
        components = forecast(subject.model, belief, jumps, FUTURES, actions).components
        stop()
        density = subject.density(*moments(components, len(subject.channels)), query.channel)
        found = {"count": len(rows), "model": _scores(density, targets), "exact": None, "combination": None}
        if subject.exact is not None:
            exact = subject.exact.densities(subject.sequences.x[rows, : query.t], [query.dt])
            found["exact"] = _scores(exact, targets[:, None])
        if subject.combination is not None and query.t > 0:
            stop()
            (density,) = combined(subject, rows, query.t, [query.dt], actions, query.channel)
            found["combination"] = _scores(density, targets)
    return found


def quantiles(density: GaussianMixture) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(levels, *batch)."""
    levels = torch.tensor(LEVELS, dtype=torch.float64).view(-1, *[1] * len(density.batch_shape))
    return density.quantile(levels.expand(len(LEVELS), *density.batch_shape)).numpy()


def curve(density: GaussianMixture) -> dict[str, Any]:
    """A density of batch shape (1,) or (1, 1) as points of a curve."""
    middle, spread = density.mean, density.variance.sqrt()
    x = middle + spread * torch.linspace(-3.2, 3.2, CURVE_POINTS, dtype=torch.float64).view(-1, *[1] * middle.ndim)
    return {"x": x.flatten().numpy(), "density": density.log_prob(x).exp().flatten().numpy()}


def _horizons(dt: int, most: int = BAND_POINTS) -> list[int]:
    """At most this many numbers from 1 to dt, evenly spaced, with both ends."""
    return sorted({round(each) for each in np.linspace(1, dt, min(dt, most))})


def _all_jumps(subject: Subject, state: State, horizons: list[int], actions: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (S, 1, horizons, channels) after a jump to each of the horizons, at once."""
    channels, near = len(subject.channels), [dt for dt in horizons if dt <= subject.longest_jump]
    model = subject.model
    known = None if actions is None else actions[:, : near[-1]]
    repeated = state.map(lambda part: part.expand(part.shape[0], len(near), part.shape[-1]))
    parts = [moments(model.predict(repeated, torch.tensor(near), known), channels)]
    for dt in horizons[len(near) :]:
        parts.append(moments(model.decode(jump(subject, state, dt, actions)), channels))
    mean, sigma = (torch.cat([part[index] for part in parts], dim=1)[:, None] for index in (0, 1))
    return mean, sigma


def _tail(subject: Subject, query: Query, end: State) -> Any:
    """Single steps after the jump, (samples, steps): where each future goes on."""
    actions = actions_of(subject, query, query.dt + TAIL)
    count = TAIL if actions is None else actions.shape[1] - query.dt
    if count < 1:
        return []
    known = None if actions is None else actions[:, query.dt :]
    states = single_steps(subject, end[: query.samples], count, known, lambda: None)
    return subject.in_units(decoded(subject, states)[0], query.channel)


def _band(subject: Subject, query: Query, now: tuple[Tensor, Tensor]) -> Any:
    return quantiles(subject.density(*now, query.channel))[:, 0]


def _target(subject: Subject, query: Query) -> float | None:
    """The observation at t + δt, if there is one."""
    step = query.t + query.dt - 1
    if step >= subject.length(query.sequence):
        return None
    value = float(subject.observed[query.sequence, step, query.channel])
    return None if np.isnan(value) else value


def _scores_here(subject: Subject, query: Query, density: GaussianMixture) -> dict[str, Any] | None:
    """The scores of one forecast of batch shape (1,); None if the observation is not known."""
    value = _target(subject, query)
    return None if value is None else _scores(density, torch.full(density.batch_shape, value, dtype=torch.float64))


def _scores(density: GaussianMixture, x: Tensor) -> dict[str, Any]:
    """Means over the batch: NLL in nats, CRPS in units, and the shares inside the 50 % and the 90 % interval."""
    place = (density.cdf(x) - 0.5).abs()
    draws = density.sample(SCORE_DRAWS, torch.Generator().manual_seed(0))
    return {
        "nll": round(-float(density.log_prob(x).mean()), 5),
        "crps": float(f"{float(sample_crps(draws, x).mean()):.5g}"),
        "inside_50": float((place <= 0.25).double().mean()),
        "inside_90": float((place <= 0.45).double().mean()),
    }


def _exact(subject: Subject, query: Query, horizons: list[int]) -> dict[str, Any] | None:
    """The same by exact inference, if it is known."""
    if subject.exact is None:
        return None
    seen = subject.sequences.x[query.sequence : query.sequence + 1, : query.t]
    if query.t == 0:  # nothing is known: the density hardly changes with the horizon, and has many components
        horizons = sorted({horizons[round(place)] for place in np.linspace(0, len(horizons) - 1, 4)})
    densities = subject.exact.densities(seen, horizons)
    last = GaussianMixture(*(part[:, -1] for part in (densities.log_weights, densities.means, densities.variances)))
    return {
        "name": subject.exact.name,
        "now": quantiles(subject.exact.now(seen))[:, 0, 0],
        "band": {"dt": horizons, "quantiles": quantiles(densities)[:, 0]},
        "curve": curve(last),
        "scores": _scores_here(subject, query, last),
    }


def _combination(subject: Subject, query: Query, actions: Tensor | None) -> dict[str, Any] | None:
    """The same by the combination of the run, if it has one; it needs an observation."""
    if subject.combination is None or query.t == 0:
        return None
    horizons = _horizons(query.dt, COMBINATION_POINTS)
    rows = torch.tensor([query.sequence])
    densities = combined(subject, rows, query.t, horizons, actions, query.channel)
    return {
        "name": COMBINATION,
        "band": {"dt": horizons, "quantiles": np.concatenate([quantiles(each) for each in densities], axis=1)},
        "curve": curve(densities[-1]),
        "scores": _scores_here(subject, query, densities[-1]),
    }
