"""MiniPacman (paper, section "Partially observed MiniPacman"): sequential TD-VAE against two state-space models.

All three share the belief network, the decoder, the size of the state and the number of parameters, and are trained by
the same loop on the same recordings. What differs is the objective: Eq. 5 for TD-VAE, Eq. 1 for the others. A next-step
predictor with the same belief network and decoder, whose −log p(x) is exact, shows how much can be known at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae import saved
from tdvae.distributions import Bernoulli, Categorical
from tdvae.envs.minipacman import N_CLASSES, PALETTE, Recording, record
from tdvae.envs.minipacman.rules import POWER, Cell
from tdvae.experiments import minipacman_probes
from tdvae.experiments.recipe import MUON
from tdvae.experiments.report import Measures
from tdvae.jumps import Consecutive
from tdvae.likelihood import (
    joint_log_weights,
    log_mean_exp,
    pair_log_weights,
    particle_log_prob,
    trajectory_log_weights,
)
from tdvae.models import (
    TDVAE,
    FilteringConfig,
    MeanFieldConfig,
    Model,
    NextStep,
    NextStepConfig,
    StateSpace,
    TDVAEConfig,
    build,
)
from tdvae.models.config import ModelConfig
from tdvae.objectives import (
    Learner,
    Objective,
    elbo_terms,
    next_step_loss,
    pair_terms,
    state_space_loss,
    tdvae_loss,
)
from tdvae.training import FitResult, TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress
from tdvae.types import Pairs, Sequences, State, Terms

NAME = "minipacman"
METHODS: dict[str, Objective] = {
    "tdvae": partial(tdvae_loss, gradient="path"),
    "filtering": state_space_loss,
    "mean_field": state_space_loss,
    "next_step": next_step_loss,
}
COMPARED = ("tdvae", "filtering", "mean_field")  # the paper's; the next-step predictor is a yardstick: it has no state
LABELS = {
    "tdvae": "TD-VAE",
    "filtering": "filtering model",
    "mean_field": "mean-field model",
    "next_step": "next-step predictor",
}
TRAIN, VALIDATION, TEST, PROBE, WEIGHTS = 501, 502, 503, 504, 505  # purposes of derived seeds
AT_ONCE = 100  # sequences whose densities are estimated together
CLASSES = N_CLASSES["classes"]
# A class does not tell how long the power still lasts: an edible ghost is shown as in the middle of it.
COLOURS = torch.tensor(PALETTE[[*range(Cell.EDIBLE), Cell.GHOST + POWER // 2]] / 255.0, dtype=torch.float32)

# Test set, units not stated: bits or nats, per frame, dimension or pixel.
PAPER: Measures = {
    "elbo": {"tdvae": 0.0773, "filtering": 0.1169, "mean_field": 0.1987},
    "nll": {"tdvae": 0.0553, "filtering": 0.0962, "mean_field": 0.1678},
    "elbo_ratio": {"tdvae": 0.0773 / 0.1169, "mean_field": 0.1987 / 0.1169},
    "nll_ratio": {"tdvae": 0.0553 / 0.0962, "mean_field": 0.1678 / 0.0962},
}

TABLE = {
    "elbo": "−ELBO, nats per frame",
    "nll": "−log p(x), frame by frame",
    "nll_joint": "−log p(x), whole games",
    "elbo_ratio": "−ELBO over the filtering model's",
    "nll_ratio": "−log p(x) over the filtering model's",
    "elbo_per_dimension": "−ELBO per RGB dimension (Bernoulli)",
}


@dataclass(frozen=True)
class Preset:
    """Everything about a run but its seed."""

    models: dict[str, ModelConfig]
    train: TrainConfig
    rates: dict[str, float] = field(default_factory=dict)  # by which a model's learning rates are multiplied
    frames: int = 50  # of each game
    train_games: int = 20_000
    test_games: int = 300
    samples: int = 100  # of the importance-sampled likelihoods
    probe_games: int = 2_500
    reader_steps: int = 1_500  # of fitting a probe
    seeds: tuple[int, ...] = (0,)


def _models(hidden: tuple[int, int, int], state: dict[str, Any], **settings: Any) -> dict[str, ModelConfig]:
    """The models; ``state`` is what those with a state share beside ``settings``. Of the three that are compared
    TD-VAE has the most maps, so the others' are wider: as many parameters in all."""
    windows: dict[str, Any] = {"event_shape": (5, 5), "likelihood": "categorical", "classes": CLASSES, "actions": 5}
    settings = windows | settings
    of_state = settings | state
    return {
        "tdvae": TDVAEConfig(dt="none", hidden=hidden[0], smoothing="product", smoothing_sees_b2=False, **of_state),
        "filtering": FilteringConfig(hidden=hidden[1], **of_state),
        "mean_field": MeanFieldConfig(hidden=hidden[2], **of_state),
        "next_step": NextStepConfig(**settings),
    }


_TRAIN = replace(MUON, batch=32, pairs=50, learning_rate=4e-3, muon_learning_rate=0.04)

PRESETS = {
    "smoke": Preset(
        _models((8, 14, 16), {"latent": 3}, encoder=(16,), decoder=(16,), belief=12),
        replace(_TRAIN, steps=6, batch=4, pairs=4, validate_every=3, checkpoint_every=3, log_every=3),
        frames=40,
        train_games=24,
        test_games=6,
        samples=3,
        probe_games=8,
        reader_steps=20,
    ),
    "cpu": Preset(
        _models(
            (128, 196, 197),
            {"latent": 6, "maps": "residual", "blocks": 1, "log_sigma": -0.5},
            encoder=(128,),
            decoder=(256, 256),
            belief=128,
            shown=1,
        ),
        replace(_TRAIN, steps=3_000, validate_every=200),
        rates={"filtering": 0.5},
        seeds=(0, 1, 2),
    ),
    # The paper does not print its sizes; these are App. D's.
    "paper": Preset(
        _models((50, 116, 136), {"latent": 8}, encoder=(200, 200)),
        TrainConfig(steps=200_000, batch=32, pairs=50),
        seeds=(0, 1, 2),
    ),
}


def played(preset: Preset, games: int, seed: int, *purpose: int, truth: bool = False) -> Recording:
    """Recorded games, the same for every model; all are of one length, since nobody dies so early in level 1."""
    return record(games, preset.frames, derive_seed(seed, *purpose) % 2**62, truth=truth)


def train(
    preset: Preset, name: str, method: str, seed: int, run_dir: Path, resume: bool, progress: Progress
) -> FitResult:
    """One training of one of the models."""
    data = minipacman_probes.observed(played(preset, preset.train_games, seed, TRAIN))
    validation = minipacman_probes.observed(played(preset, preset.test_games, seed, VALIDATION))
    torch.manual_seed(derive_seed(seed, WEIGHTS))
    learner = Learner(build(preset.models[method]), METHODS[method])
    info = {"experiment": NAME, "preset": name, "method": method, "frames": preset.frames}
    rate = preset.rates.get(method, 1.0)
    config = replace(
        preset.train,
        seed=seed,
        learning_rate=rate * preset.train.learning_rate,
        muon_learning_rate=rate * preset.train.muon_learning_rate,
    )
    return fit(learner, data, Consecutive(), config, run_dir, validation, resume, info, progress)


def measure(preset: Preset, method: str, seed: int, run_dir: Path) -> Measures:
    """Every measure of a finished training, on games it has not seen."""
    model = saved.load(run_dir)
    torch.manual_seed(derive_seed(seed, TEST, 1))
    measures = densities(
        model, minipacman_probes.observed(played(preset, preset.test_games, seed, TEST)), preset.samples
    )
    if isinstance(model, NextStep):
        return measures
    return measures | minipacman_probes.measure(model, *probed(preset, seed), preset.reader_steps)


def probed(preset: Preset, seed: int) -> tuple[Recording, Recording]:
    """Games to fit probes on, and others to test them on."""
    fit_on, test = (played(preset, preset.probe_games, seed, PROBE, part, truth=True) for part in range(2))
    return fit_on, test


@torch.no_grad()
def densities(model: Model, test: Sequences, samples: int) -> Measures:
    """−log p(x), in nats per frame; of a model with a state also −ELBO."""
    parts = [test.select(rows) for rows in torch.arange(len(test)).split(AT_ONCE)]
    by_class = torch.stack([_by_class(model, part) for part in parts]).sum(0) / test.lengths.sum()
    measures: Measures = {"frame_by_class": {cell.name.lower(): float(by_class[cell]) for cell in Cell}}
    if isinstance(model, NextStep):
        return measures | {"nll": float(by_class.sum())}  # exact: nothing is integrated out
    terms = [frame_terms(model, part) for part in parts]
    measures["elbo"] = float(torch.cat([term.total for term in terms]).mean())
    measures["elbo_terms"] = {
        name: float(torch.cat([term.named()[name] for term in terms]).mean()) for name in terms[0].named()
    }
    measures["elbo_first_frame"] = float(torch.cat([term.total[:, 0] for term in terms]).mean())
    measures["elbo_per_dimension"] = float(torch.cat([_in_colours(model, part) for part in parts]).mean())
    if isinstance(model, TDVAE):
        joint = torch.cat([joint_log_weights(model, part, samples) for part in parts], dim=1)
        per_frame = torch.cat([pair_log_weights(model, part, every_step(part), samples) for part in parts], dim=1)
        measures["nll_by_samples"] = _convergence(per_frame, 1)
    else:
        assert isinstance(model, StateSpace)
        joint = torch.cat([trajectory_log_weights(model, part, samples) for part in parts], dim=1)
        measures["nll_by_samples"] = {
            str(n): -float(torch.cat([particle_log_prob(model, part, n) for part in parts]).mean())
            for n in _counts(samples)
        }
    measures["nll_joint_by_samples"] = _convergence(joint, test.horizon)
    for name in ("nll", "nll_joint"):
        measures[name] = measures[f"{name}_by_samples"][str(samples)]
    return measures


def _by_class(model: Model, sequences: Sequences) -> Tensor:
    """−log p of all cells, summed by the class that each of them shows: nats, (CLASSES,).

    Given a state as the model's own bound draws it; of a model without one, given what it has seen.
    """
    if isinstance(model, NextStep):
        decoded = model.predictions(sequences)
    else:
        decoded = model.decode(State(minipacman_probes.states(model, sequences)))
    assert isinstance(decoded, Categorical)
    cells = -replace(decoded, event_ndim=0).log_prob(sequences.x)
    return cells.new_zeros(CLASSES).index_add(0, sequences.x.long().flatten(), cells.flatten())


def every_step(sequences: Sequences) -> Pairs:
    """(0, 1), (1, 2), … (T - 1, T) for each sequence."""
    t1 = torch.arange(sequences.horizon).expand(len(sequences), -1)
    return Pairs(t1, t1 + 1)


def frame_terms(model: Model, sequences: Sequences) -> Terms:
    """The terms of the model's own bound for every frame, (N, T) each."""
    if isinstance(model, TDVAE):
        return pair_terms(model, sequences, every_step(sequences))
    assert isinstance(model, StateSpace)
    return elbo_terms(model, sequences)


def _in_colours(model: Model, sequences: Sequences) -> Tensor:
    """The bound with every colour of every cell as a bit of its own, as the paper may have it; per dimension, (N, T).

    The bits' means are the expected colours. Latent terms are the model's own, so this scores no model that was trained
    for it: it only shows the numbers' scale.
    """
    terms = frame_terms(model, sequences).named()
    reconstruction = terms.pop("reconstruction")
    decoded = model.decode(State(minipacman_probes.states(model, sequences)))
    assert isinstance(decoded, Categorical)
    mean = (decoded.mean @ COLOURS).clamp(1e-6, 1 - 1e-6)
    bits = -Bernoulli(torch.logit(mean), event_ndim=3).log_prob(COLOURS[sequences.x.long()])
    return (sum(terms.values(), torch.zeros_like(reconstruction)) + bits) / mean[0, 0].numel()


def _convergence(log_weights: Tensor, per: int) -> Measures:
    """The estimate of −log p(x) per frame with 1, 2, 5, 10, … and all of the samples."""
    return {str(n): float(-log_mean_exp(log_weights[:n]).mean()) / per for n in _counts(len(log_weights))}


def _counts(samples: int) -> list[int]:
    """1, 2, 5, 10, … up to ``samples``."""
    return [n * 10**k for k in range(5) for n in (1, 2, 5) if n * 10**k < samples] + [samples]


def together(by_method: dict[str, Measures]) -> Measures:
    """The measures of a seed, by measure and then by model, with what needs several models: ratios and baselines."""
    names = dict.fromkeys(name for measures in by_method.values() for name in measures)
    measures: Measures = {
        name: {method: of[name] for method, of in by_method.items() if name in of}
        for name in names
        if name not in minipacman_probes.MEASURES
    }
    for name in ("elbo", "nll"):
        of = measures[name]
        measures[f"{name}_ratio"] = {
            method: value / of["filtering"] for method, value in of.items() if method != "filtering"
        }
    for name in minipacman_probes.MEASURES:
        measures[name] = dict(by_method["tdvae"][name]["without a model"])
        for method in COMPARED:
            measures[name] |= {
                f"{method}, {read}": value for read, value in by_method[method][name]["read from"].items()
            }
    return measures


def learning_curve(run_dir: Path) -> tuple[list[int], list[float]]:
    """Training steps, and the validation bound after each, in nats per frame."""
    entries = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    validated = [(entry["step"], entry["validation"]) for entry in entries if "validation" in entry]
    return [step for step, _ in validated], [total for _, total in validated]


def parameters(preset: Preset) -> dict[str, int]:
    """How many each model has."""
    return {method: sum(p.numel() for p in build(config).parameters()) for method, config in preset.models.items()}
