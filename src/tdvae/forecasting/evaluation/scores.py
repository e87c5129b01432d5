"""Evaluation of forecasts from rolling origins, by horizon: the combination, its members and simple forecasters.

Scores are in units of the encoding: each dimension has the standard deviation 1 in training, so that all have the same
weight. NLL and CRPS are per dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from tdvae.codec import FrameCodec
from tdvae.distributions import Bernoulli, Categorical, Distribution
from tdvae.errors import InputError
from tdvae.forecasting.evaluation.comparison import SIMPLE, Comparison, verdict
from tdvae.forecasting.evaluation.pictures import energy_score, picture_forecasts
from tdvae.forecasting.predictors import (
    SAMPLES,
    Density,
    Origins,
    Predictor,
    Stack,
    actions_after,
    beliefs_at,
    climatology,
    held_out_origins,
    log_prob,
    mean_and_error,
    naive,
    scored_horizons,
    seeded,
    targets,
)
from tdvae.forecasting.preparation import HeldOut
from tdvae.likelihood import forecast, log_mean_exp
from tdvae.models import ConvTDVAEConfig, Model
from tdvae.models.config import RecurrentConfig
from tdvae.reporting.results import Measures
from tdvae.types import Sequences

MOST_ORIGINS = 300
CRPS_SAMPLES = 200
COMPARED = ("nll", "energy")  # scores by which forecasters are compared
ENERGY_WORDS = ("of the pixels' range", "energy score")  # unit and name
MODEL = "combination"  # what is compared with the others; for pictures and classes it is the TD-VAE
NETWORKS = ("latent", "observed")  # the TD-VAEs among the members


@dataclass(frozen=True)
class Scores:
    """The scores of one forecaster at one horizon, a number for each origin, (M,). Pictures have an energy score."""

    nll: Tensor | None = None
    energy: Tensor | None = None
    crps: Tensor | None = None
    squared_error: Tensor | None = None
    pit: Tensor | None = None  # (M, D) cumulative distribution function at the observation; NaN where it is missing

    @property
    def main(self) -> Tensor:
        """The score by which forecasters are compared."""
        found = self.energy if self.nll is None else self.nll
        assert found is not None
        return found

    def measures(self) -> dict[str, float]:
        found = {name: float(v.mean()) for name in COMPARED if (v := getattr(self, name)) is not None}
        if self.squared_error is not None:
            found["rmse"] = float(self.squared_error.mean().sqrt())
        if self.crps is not None and self.pit is not None:
            distance = (self.pit - 0.5).abs()[~self.pit.isnan()]
            found["crps"] = float(self.crps.mean())
            found |= {f"coverage_{width}": float((distance <= width / 200).double().mean()) for width in (50, 90)}
        return found


@dataclass(frozen=True)
class Evaluation:
    """The scores of all forecasters: forecaster → horizon → `Scores`, and the blocks of the origins at each horizon."""

    scores: Mapping[str, Mapping[int, Scores]]
    blocks: Mapping[int, Tensor]
    weights: Mapping[str, Mapping[int, float]] | None = None  # of the members of the combination

    @property
    def measures(self) -> Measures:
        """measure → forecaster → horizon."""
        found: Measures = {}
        for name, by_horizon in self.scores.items():
            for h, scores in by_horizon.items():
                for measure, value in scores.measures().items():
                    found.setdefault(measure, {}).setdefault(name, {})[str(h)] = value
        return found

    def with_differences(self) -> Measures:
        """The measures, the score of the model minus that of the best other with its error, and the weights."""
        comparisons = self.comparisons()
        main = next(name for name in COMPARED if name in self.measures)
        found = {
            **self.measures,
            f"{main}_difference": {str(h): each.difference for h, each in comparisons.items()},
            f"{main}_difference_error": {str(h): each.error for h, each in comparisons.items()},
            f"{main}_difference_blocks": {str(h): float(each.blocks) for h, each in comparisons.items()},
            "origins": {str(h): float(len(self.blocks[h])) for h in comparisons},
        }
        if self.weights is not None:
            found["weights"] = {name: {str(h): w for h, w in by.items()} for name, by in self.weights.items()}
        return found

    def difference(self, h: int, first: str, second: str) -> tuple[float, float]:
        """The mean difference of two forecasters' scores at the same origins, and its standard error over blocks."""
        return mean_and_error(self.scores[first][h].main - self.scores[second][h].main, self.blocks[h])

    def best_other(self, h: int) -> str:
        """The forecaster with the least score beside the combination and the TD-VAE."""
        others = {name: float(of[h].main.mean()) for name, of in self.scores.items() if name not in (MODEL, "tdvae")}
        return min(others, key=others.__getitem__)

    def comparisons(self) -> dict[int, Comparison]:
        """The model and the best of the others, by horizon."""
        found = {}
        for h, scores in self.scores[MODEL].items():
            name, own = self.best_other(h), float(scores.main.mean())
            simple = [float(of[h].main.mean()) for other, of in self.scores.items() if other in SIMPLE]
            gain = min(simple, default=own) - own
            found[h] = Comparison(name, *self.difference(h, MODEL, name), len(self.blocks[h].unique()), gain)
        return found

    def verdict(self) -> str:
        """Whether the model is worth using, at which horizons, and what serves as well elsewhere."""
        origins = {h: len(block) for h, block in self.blocks.items()}
        words = () if "nll" in self.measures else ENERGY_WORDS
        return verdict(self.comparisons(), origins, *words)


def evaluate(
    model: Model,
    stack: Stack | None,
    history: Sequences,
    held_out: HeldOut,
    longest_jump: int,
    seasons: Sequence[int] = (),
    seed: int = 0,
    horizons: Sequence[int] | None = None,
    samples: int = SAMPLES,
    bar: bool = False,
    codec: FrameCodec | None = None,
) -> Evaluation:
    """Score forecasts of held-out sequences, beside simple forecasters fitted on the training part.

    ``stack`` is the combination for vectors of numbers; other data are forecast by the TD-VAE ``model``. A terminal
    shows a progress ``bar``. With ``codec`` the model and ``history`` are of codes, and the held-out sequences are
    pictures.
    """
    wanted = scored_horizons(longest_jump) if horizons is None else horizons
    with seeded(seed), torch.no_grad():
        if codec is not None or isinstance(model.config, ConvTDVAEConfig):
            return _evaluate_pictures(picture_forecasts(model, history, held_out.sequences, list(wanted), codec))
        used = _origins(held_out, history, longest_jump, wanted)
        if stack is None:
            return _evaluate_discrete(model, history, held_out.sequences, used)
        return _evaluate_vectors(stack, history, held_out.sequences, used, seasons, samples, bar)


def _origins(held_out: HeldOut, history: Sequences, longest_jump: int, horizons: Sequence[int]) -> dict[int, Origins]:
    """The origins of forecasts at each horizon that the test and the training part have room for."""
    origins = evaluation_origins(held_out, longest_jump)
    used = {h: origins.with_target(held_out.sequences, h) for h in horizons if h < int(history.lengths.max())}
    used = {h: at for h, at in used.items() if len(at)}
    if not used:
        raise InputError(f"horizons: expected one that fits the test sequences, got {list(horizons)}")
    return used


def evaluation_origins(held_out: HeldOut, longest_jump: int) -> Origins:
    """Where the forecasts of held-out sequences begin."""
    return held_out_origins(held_out.sequences, held_out.context, longest_jump, MOST_ORIGINS)


# Vectors of numbers


def _evaluate_vectors(
    stack: Stack,
    history: Sequences,
    test: Sequences,
    used: Mapping[int, Origins],
    seasons: Sequence[int],
    samples: int,
    bar: bool,
) -> Evaluation:
    longest = min(max(used), int(history.lengths.max()) - 1)
    others: dict[str, Predictor] = {"naive": naive(history, longest), "climatology": climatology(history, longest)}
    if seasons and "seasonal_naive" not in stack.members:
        others["seasonal_naive"] = naive(history, longest, max(seasons))
    models = [name for name in NETWORKS if name in stack.members]
    tdvae = stack.best(models) if models else None
    found: dict[str, dict[int, Scores]] = {MODEL: {}}
    console = Console(stderr=True)
    show = bar and console.is_terminal
    for h, at in track(used.items(), "evaluating, by horizon", len(used), console=console, disable=not show):
        x, seen = targets(test, at, h)
        of_members: dict[str, Tensor] = {}
        parts: dict[str, Density] = {}
        for name, predictor in {**stack.members, **others}.items():
            density = parts[name] = predictor.densities(test, at, [h], samples)[h]
            of_members[name] = log_prob(predictor, test, at, h, density, samples)
            if name in others or name not in models or name == tdvae:
                label = "tdvae" if name == tdvae else name
                found.setdefault(label, {})[h] = density_scores(density, of_members[name], x, seen)
        found[MODEL][h] = density_scores(stack.mixture(parts, h), stack.log_probs(of_members, h), x, seen)
    weights = {name: {h: stack.weights_at(h).get(name, 0.0) for h in used} for name in stack.members}
    return Evaluation(found, {h: at.block for h, at in used.items()}, weights)


def density_scores(density: Density, log_probs: Tensor, x: Tensor, seen: Tensor) -> Scores:
    """The scores of densities of M forecasts, given the log density of what was observed."""
    dimensions = seen.sum(1)

    def mean(values: Tensor) -> Tensor:
        return torch.where(seen, values, 0).sum(1) / dimensions

    return Scores(
        nll=-log_probs / dimensions,
        crps=mean(sample_crps(density.sample(CRPS_SAMPLES), x)),
        squared_error=mean((density.mean - x).square()),
        pit=torch.where(seen, density.cdf(x), math.nan),
    )


def sample_crps(samples: Tensor, x: Tensor) -> Tensor:
    """The CRPS of each dimension from samples (S, …): E|X - x| - E|X - X'| / 2, both without bias."""
    count = len(samples)
    if count < 2:
        raise InputError(f"samples: expected at least 2, got {count}")
    rank = torch.arange(1, count + 1, dtype=samples.dtype).view(-1, *[1] * x.ndim)
    half_spread = ((2 * rank - count - 1) * samples.sort(0).values).sum(0) / (count * (count - 1))
    return (samples - x).abs().mean(0) - half_spread


# Classes, bits and pictures


def _evaluate_discrete(model: Model, history: Sequences, test: Sequences, used: Mapping[int, Origins]) -> Evaluation:
    """The NLL of the TD-VAE, and of the frequencies of bits or classes in each dimension."""
    frequencies = _frequencies(history, model)
    found: dict[str, dict[int, Scores]] = {MODEL: {}, "climatology": {}}
    size = math.prod(test.x.shape[2:])
    for h, at in used.items():
        x = test.x[at.row, at.t + h - 1]
        chosen, belief = beliefs_at(model, test, at)
        density = forecast(model, belief, h, SAMPLES, actions_after(chosen, at, h))
        found[MODEL][h] = Scores(-log_mean_exp(density.components.log_prob(x).double()) / size)
        found["climatology"][h] = Scores(-frequencies.log_prob(x) / size)
    return Evaluation(found, {h: at.block for h, at in used.items()})


def _frequencies(data: Sequences, model: Model) -> Distribution:
    steps, ndim = data.x[data.mask], data.x.ndim - 2
    if data.x.dtype == torch.bool:
        return Bernoulli(torch.logit((steps.double().sum(0) + 0.5) / (len(steps) + 1)), event_ndim=ndim)
    assert isinstance(model.config, RecurrentConfig)  # only such models have classes
    counts = torch.nn.functional.one_hot(steps, model.config.classes or -1).sum(0) + 0.5
    return Categorical(counts.double().log(), event_ndim=ndim)


def _evaluate_pictures(forecasts: Mapping[str, Mapping[int, tuple[Tensor, Tensor]]]) -> Evaluation:
    """Energy scores in pixels, and the errors of the mean picture."""
    found = {
        name: {
            h: Scores(energy=energy_score(drawn, x), squared_error=(drawn.mean(1) - x).square().flatten(1).mean(1))
            for h, (drawn, x) in by.items()
        }
        for name, by in forecasts.items()
    }
    return Evaluation(found, {h: torch.arange(len(x)) for h, (_, x) in forecasts[MODEL].items()})
