"""Densities of games under each model, in nats per frame: bounds, importance-sampled estimates, their parts."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tdvae.distributions import Bernoulli, Categorical, Distribution
from tdvae.envs.minipacman import PALETTE
from tdvae.envs.minipacman.rules import POWER, Cell
from tdvae.likelihood import (
    joint_log_weights,
    log_mean_exp,
    pair_log_weights,
    particle_log_prob,
    trajectory_log_weights,
)
from tdvae.models import TDVAE, Model, NextStep, StateSpace
from tdvae.models.ssm import one_action
from tdvae.objectives import actions_between, elbo_terms, pair_terms
from tdvae.reporting.results import Measures
from tdvae.types import Pairs, Sequences, State, Terms
from tdvae_paper.minipacman.presets import CLASSES

AT_ONCE = 100  # sequences whose densities are estimated together
# A class does not tell how long the power still lasts: an edible ghost is shown as in the middle of it.
COLOURS = torch.tensor(PALETTE[[*range(Cell.EDIBLE), Cell.GHOST + POWER // 2]] / 255.0, dtype=torch.float32)


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
    decoded = model.predictions(sequences) if isinstance(model, NextStep) else frames_in_bound(model, sequences)
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


def frames_in_bound(model: Model, sequences: Sequences) -> Distribution:
    """p_D of every frame, given states as the model's own bound draws them, (N, T)."""
    beliefs = model.filter(sequences)
    if isinstance(model, StateSpace):
        z = model.infer(beliefs.read(beliefs.codes[:, 1:]), sequences)
        return model.step(model.before(z, sequences), one_action(sequences.actions)).p_D(z)
    assert isinstance(model, TDVAE)
    pairs = every_step(sequences)
    b1, b2, actions = beliefs.at(pairs.t1), beliefs.at(pairs.t2), actions_between(sequences, pairs)
    z2, _ = model.p_B.sample(b2)
    z1, _ = model.q_S.sample(z2, b1, b2, pairs.dt, actions)
    return model.step(State(z1, model.features_at(sequences, pairs.t1)), pairs.dt, actions).p_D(z2)


def _in_colours(model: Model, sequences: Sequences) -> Tensor:
    """The bound with every colour of every cell as a bit of its own, as the paper may have it; per dimension, (N, T).

    The bits' means are the expected colours. Latent terms are the model's own, so this scores no model that was trained
    for it: it only shows the numbers' scale.
    """
    terms = frame_terms(model, sequences).named()
    reconstruction = terms.pop("reconstruction")
    decoded = frames_in_bound(model, sequences)
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
