"""Evaluation of forecasts from rolling origins, by δt, beside simple forecasters.

Scores are in units of the training sequences: each dimension is divided by its standard deviation there, so that all
dimensions have the same weight. NLL and CRPS are per dimension.

The NLL of the model is estimated from sampled states. A joint density of many dimensions is hit by few of the states
drawn from the past alone, and the estimate is then too high. Above `FEW_DIMENSIONS` dimensions states are also drawn
from the posterior given the target (`tdvae.likelihood.importance_log_prob`), which estimates the same density. Both
estimates are too high on average, never too low, so the lower one counts at each δt. `Evaluation.sampling_errors` has
its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.distributions import LOG_2PI, Bernoulli, Categorical, DiagonalNormal, Distribution
from tdvae.errors import InputError
from tdvae.forecasting.baselines import Standard, find_season, fit_baselines
from tdvae.forecasting.gaps import fill, takes_gaps
from tdvae.forecasting.origins import Origins, mean_and_error, observed, rolling_origins
from tdvae.forecasting.verdict import Comparison, verdict
from tdvae.likelihood import forecast, log_mean_exp, pair_log_weights
from tdvae.models import TDVAE, Model
from tdvae.models.config import RecurrentConfig
from tdvae.reporting.results import Measures
from tdvae.training.config import derive_seed
from tdvae.types import Belief, Pairs, Sequences, missing_as_nan

SAMPLES = 200
FEW_DIMENSIONS = 3  # up to here the NLL is estimated from states drawn from the past
BATCH = 256  # origins at once
MOST_ORIGINS = 500
MEASURES = ("nll", "crps", "rmse", "coverage_50", "coverage_90")


@dataclass(frozen=True)
class Scores:
    """The scores of one forecaster at one δt, a number for each origin, (M,)."""

    nll: Tensor
    crps: Tensor | None = None
    squared_error: Tensor | None = None
    place: Tensor | None = None  # (M, D) cumulative distribution function at the observation; NaN where it is missing
    sampling_error: float = 0.0  # standard error of the mean NLL from the sampling of states

    def measures(self) -> dict[str, float]:
        found = {"nll": float(self.nll.mean())}
        if self.crps is not None and self.squared_error is not None and self.place is not None:
            distance = (self.place - 0.5).abs()[~self.place.isnan()]
            found["crps"] = float(self.crps.mean())
            found["rmse"] = float(self.squared_error.mean().sqrt())
            found |= {f"coverage_{width}": float((distance <= width / 200).double().mean()) for width in (50, 90)}
        return found


@dataclass(frozen=True)
class Evaluation:
    """The scores of all forecasters: forecaster → δt → `Scores`, and the blocks of the origins at each δt."""

    scores: dict[str, dict[int, Scores]]
    blocks: dict[int, Tensor]
    season: int | None = None

    @property
    def measures(self) -> Measures:
        """measure → forecaster → δt."""
        found: Measures = {}
        for name, by_dt in self.scores.items():
            for dt, scores in by_dt.items():
                for measure, value in scores.measures().items():
                    found.setdefault(measure, {}).setdefault(name, {})[str(dt)] = value
        return found

    def with_differences(self) -> Measures:
        """The measures, and the NLL of the model minus that of the best other, with its standard error, by δt."""
        comparisons = self.comparisons()
        return {
            **self.measures,
            "nll_difference": {str(dt): each.difference for dt, each in comparisons.items()},
            "nll_difference_error": {str(dt): each.error for dt, each in comparisons.items()},
            "nll_difference_blocks": {str(dt): float(each.blocks) for dt, each in comparisons.items()},
            "nll_sampling_error": self.sampling_errors,
        }

    @property
    def sampling_errors(self) -> dict[str, float]:
        """The standard error of the model's NLL from the sampling of states, by δt."""
        return {str(dt): scores.sampling_error for dt, scores in self.scores["tdvae"].items()}

    def difference(self, dt: int, first: str, second: str) -> tuple[float, float]:
        """The mean difference of the NLL of two forecasters at the same origins, and its standard error over blocks."""
        return mean_and_error(self.scores[first][dt].nll - self.scores[second][dt].nll, self.blocks[dt])

    def best_baseline(self, dt: int, forecaster: str = "tdvae") -> str:
        """The forecaster with the least NLL beside the given one."""
        others = {name: float(of[dt].nll.mean()) for name, of in self.scores.items() if name != forecaster}
        return min(others, key=others.__getitem__)

    def verdict(self) -> str:
        """One or two sentences: whether the model is worth using, at which δt, and what serves as well elsewhere."""
        return verdict(self.comparisons())

    def comparisons(self) -> dict[int, Comparison]:
        """The model and the best of the others, by δt."""
        best = {dt: self.best_baseline(dt) for dt in self.scores["tdvae"]}
        return {
            dt: Comparison(name, *self.difference(dt, "tdvae", name), len(self.blocks[dt].unique()))
            for dt, name in best.items()
        }


@torch.no_grad()
def evaluate(
    model: Model,
    train: Sequences,
    test: Sequences,
    horizons: Sequence[int],
    season: int | None = None,
    seed: int = 0,
    origins: Origins | None = None,
    samples: int = SAMPLES,
) -> Evaluation:
    """Score the model's forecasts of test sequences, and those of simple forecasters fitted on the training sequences.

    Args:
        model: any model with the interface of `tdvae.models.Model`.
        train: the sequences that the simple forecasters are fitted on.
        test: held-out sequences.
        horizons: the δt of the forecasts. A δt that no test sequence has room for is left out.
        season: steps of a season. By default it is looked for in the training sequences.
        seed: seed of the samples.
        origins: where forecasts begin. By default everywhere from the first third of each test sequence on, at most
            `MOST_ORIGINS` of them.
        samples: sampled states of each forecast.
    """
    for dt in horizons:
        if dt < 1:
            raise InputError(f"horizons: expected at least 1, got {dt}")
    if season is not None and not 1 <= season < train.horizon:
        raise InputError(f"season: expected 1 to {train.horizon - 1} steps, as in the training sequences, got {season}")
    origins = rolling_origins(test, MOST_ORIGINS) if origins is None else origins
    used = {dt: at for dt in horizons if len(at := origins.with_target(test, dt))}
    used = {dt: at for dt, at in used.items() if dt < int(train.lengths.max())}
    if not used:
        raise InputError(f"horizons: expected one that fits the test sequences, got {list(horizons)}")
    blocks = {dt: at.block for dt, at in used.items()}
    scored = model_scores(model, train, test, used, seed, samples)
    if not test.x.is_floating_point():
        marginal = _discrete_marginal(train, model)
        others = {dt: _discrete(marginal, test, at, dt) for dt, at in used.items()}
        return Evaluation({"tdvae": scored, "marginal": others}, blocks)
    standard = Standard.of(train)
    season = find_season(train) if season is None else season
    found: dict[str, dict[int, Scores]] = {"tdvae": scored}
    for dt, at in used.items():
        x, there = _targets(test, at, dt, standard)
        for name, forecaster in fit_baselines(train, dt, standard, season).items():
            found.setdefault(name, {})[dt] = gaussian_scores(forecaster(test, at), x, there)
    return Evaluation(found, blocks, season)


# The model


@torch.no_grad()
def model_scores(
    model: Model, train: Sequences, test: Sequences, origins: dict[int, Origins], seed: int, samples: int = SAMPLES
) -> dict[int, Scores]:
    """The scores of a model by δt. ``train`` determines the units."""
    standard = Standard.of(train) if test.x.is_floating_point() else None
    many = isinstance(model, TDVAE) and math.prod(test.x.shape[2:]) > FEW_DIMENSIONS and standard is not None
    many = many and (test.observed is None or takes_gaps(model))  # else the posterior cannot be given the target
    found = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed))
        for dt, at in origins.items():
            batches = [at.select(index) for index in torch.arange(len(at)).split(BATCH)]
            estimates = [
                _joined([_score_batch(model, test, batch, dt, standard, samples, importance) for batch in batches])
                for importance in ((False, True) if many else (False,))
            ]
            found[dt] = min(estimates, key=lambda scores: float(scores.nll.mean()))
    return found


def _score_batch(
    model: Model, test: Sequences, at: Origins, dt: int, standard: Standard | None, samples: int, importance: bool
) -> Scores:
    """The scores of a batch of origins. With ``importance`` the NLL is from states drawn from their posterior."""
    sequences, belief = beliefs_at(model, test, at)
    components = forecast(model, belief, dt, samples, actions_after(sequences, at, dt)).components
    if standard is None:
        x = test.x[at.row, at.t + dt - 1]
        return _discrete_scores(components.log_prob(x), x)
    assert isinstance(components, DiagonalNormal)
    units = DiagonalNormal(
        (components.mean.flatten(2).double() - standard.mean) / standard.scale,
        components.log_sigma.flatten(2).double() - standard.scale.log(),
    )
    x, there = _targets(test, at, dt, standard)
    dimensions = there.sum(1)
    log_weights = torch.where(there, _log_probs(units, x), 0).sum(-1)
    if importance:
        assert isinstance(model, TDVAE)
        pairs = Pairs(at.t[:, None], at.t[:, None] + dt)
        log_weights = pair_log_weights(model, sequences, pairs, samples)[..., 0].double()
        log_weights = log_weights + torch.where(there, standard.scale.log(), 0).sum(-1)
    draws = units.sample()
    error = torch.where(there, units.mean.mean(0) - x, 0).square().sum(1) / dimensions
    return Scores(
        nll=-log_mean_exp(log_weights) / dimensions,
        crps=torch.where(there, sample_crps(draws, x), 0).sum(1) / dimensions,
        squared_error=error,
        place=torch.where(there, units.cdf(x).mean(0), math.nan),
        sampling_error=float((_log_mean_error(log_weights) / dimensions).square().sum()),  # summed, see _joined
    )


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


def _log_probs(normal: DiagonalNormal, x: Tensor) -> Tensor:
    """The log density of each dimension."""
    return -0.5 * (((x - normal.mean) / normal.sigma).square() + LOG_2PI) - normal.log_sigma


def _log_mean_error(log_weights: Tensor) -> Tensor:
    """The standard error of the log of a mean of weights (S, M), to first order."""
    weights = torch.softmax(log_weights, dim=0)
    return (weights.square().sum(0) - 1 / len(weights)).clamp(min=0).sqrt()


def _joined(parts: list[Scores]) -> Scores:
    """Join batches of origins. Their ``sampling_error`` holds the sum of squares over origins."""

    def cat(name: str) -> Tensor | None:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values)

    nll = cat("nll")
    assert nll is not None
    error = math.sqrt(sum(part.sampling_error for part in parts)) / len(nll)
    return Scores(nll, cat("crps"), cat("squared_error"), cat("place"), error)


# Scores of densities


def gaussian_scores(density: DiagonalNormal, x: Tensor, there: Tensor) -> Scores:
    """The scores of normal densities (M, D), all in closed form. ``there`` is False for missing numbers."""
    dimensions = there.sum(1)

    def mean(values: Tensor) -> Tensor:
        return torch.where(there, values, 0).sum(1) / dimensions

    return Scores(
        nll=mean(-_log_probs(density, x)),
        crps=mean(gaussian_crps(density, x)),
        squared_error=mean((density.mean - x).square()),
        place=torch.where(there, density.cdf(x), math.nan),
    )


def gaussian_crps(density: DiagonalNormal, x: Tensor) -> Tensor:
    r"""The continuous ranked probability score :math:`\int (F(y) - [x \le y])^2 dy` of each dimension."""
    z = (x - density.mean) / density.sigma
    normal = torch.exp(-0.5 * (z.square() + LOG_2PI))
    return density.sigma * (z * torch.erf(z / math.sqrt(2)) + 2 * normal - 1 / math.sqrt(math.pi))


def sample_crps(samples: Tensor, x: Tensor) -> Tensor:
    """The CRPS of each dimension from samples (S, …): E|X - x| - E|X - X'| / 2, both without bias."""
    count = len(samples)
    if count < 2:
        raise InputError(f"samples: expected at least 2, got {count}")
    rank = torch.arange(1, count + 1, dtype=samples.dtype).view(-1, *[1] * x.ndim)
    half_spread = ((2 * rank - count - 1) * samples.sort(0).values).sum(0) / (count * (count - 1))
    return (samples - x).abs().mean(0) - half_spread


def _targets(sequences: Sequences, origins: Origins, dt: int, standard: Standard) -> tuple[Tensor, Tensor]:
    place = (origins.row, origins.t + dt - 1)
    return standard.values(sequences)[place], observed(sequences).flatten(2)[place]


def _discrete(marginal: Distribution, test: Sequences, at: Origins, dt: int) -> Scores:
    x = test.x[at.row, at.t + dt - 1]
    return _discrete_scores(marginal.log_prob(x)[None], x)


def _discrete_scores(log_weights: Tensor, x: Tensor) -> Scores:
    dimensions = math.prod(x.shape[1:])
    return Scores(nll=-log_mean_exp(log_weights.double()) / dimensions)


def _discrete_marginal(data: Sequences, model: Model) -> Distribution:
    """The frequencies of bits or classes in each dimension."""
    steps, ndim = data.x[data.mask], data.x.ndim - 2
    if data.x.dtype == torch.bool:
        return Bernoulli(torch.logit((steps.double().sum(0) + 0.5) / (len(steps) + 1)), event_ndim=ndim)
    assert isinstance(model.config, RecurrentConfig)  # only such models have classes
    counts = torch.nn.functional.one_hot(steps, model.config.classes or -1).sum(0) + 0.5
    return Categorical(counts.double().log(), event_ndim=ndim)
