"""Measures of rollouts of moving digits: digit, displacement and density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tdvae.jumps import Uniform
from tdvae.likelihood import importance_log_prob
from tdvae.models import Model
from tdvae.objectives import TDVAEParts, pair_terms
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at
from tdvae.training.config import derive_seed
from tdvae_paper.moving_mnist.digits import Classifier, displacement, register
from tdvae_paper.moving_mnist.moving_digits import MovingSequences
from tdvae_paper.moving_mnist.presets import LONGEST
from tdvae_paper.moving_mnist.sequences import TEST

JUMPS = 6  # per rollout
SEEN = (10, 13, 16)  # frames filtered before a rollout
CLASSIFIED_AFTER = (0, 1, 3, 6)  # numbers of jumps; 0 is the decoded sample of the belief


@torch.no_grad()
def evaluate(
    model: Model, test: MovingSequences, network: Classifier, samples: int, given_dt: bool, seed: int
) -> Measures:
    """Compute all measures of one model on test sequences."""
    torch.manual_seed(derive_seed(seed, TEST, 1))
    rollouts = [roll(model, test, seen, given_dt) for seen in SEEN]
    frames = torch.cat([one.frames for one in rollouts], dim=1)  # (1 + JUMPS, N, 28, 28)
    moved = torch.cat([one.moved for one in rollouts], dim=1)
    dt = torch.cat([one.dt for one in rollouts], dim=1)
    correct = network.predict(frames) == test.labels.repeat(len(SEEN))
    measures: Measures = {
        "direction_kept": float(((moved >= 0).all(0) & (moved.sum(0) > 0)).float().mean()),
        "forward_jumps": float((moved > 0).float().mean()),
        "digit_kept": {str(n): float(correct[n].float().mean()) for n in CLASSIFIED_AFTER},
        "classifier_accuracy": _classifier_accuracy(network, test),
        "nats_per_frame": _nats_per_frame(model, test, samples),
    }
    if given_dt:
        measures["exact_displacement"] = float((moved == dt).float().mean())
        return measures
    shares = torch.stack([(moved == step).float().mean() for step in range(1, LONGEST + 1)])
    # Total variation: half the sum of absolute differences; 1 - shares.sum() is the probability outside 1 … 4.
    measures["displacement_tv"] = float(0.5 * ((shares - 1 / LONGEST).abs().sum() + 1 - shares.sum()))
    measures["displacement_law"] = {str(step + 1): float(share) for step, share in enumerate(shares)}
    return measures


@dataclass(frozen=True)
class Rollouts:
    """Rollouts from one time step: decoded frames, and the displacement of each jump."""

    frames: Tensor  # (1 + JUMPS, N, 28, 28): the decoded sample of the belief, then each jump
    moved: Tensor  # (JUMPS, N) pixels, positive in the true direction
    dt: Tensor  # (JUMPS, N) δt of each jump, if the model is given δt


@torch.no_grad()
def roll(model: Model, test: MovingSequences, seen: int, given_dt: bool) -> Rollouts:
    """Filter ``seen`` frames, sample a state from the belief, roll it out in jumps and decode (Fig. 3)."""
    rows = torch.arange(len(test))
    state = model.sample_state(belief_at(model, test.select(rows).until(seen), seen), 1)
    states, jumps = [state], torch.randint(1, LONGEST + 1, (JUMPS, len(test)))
    for dt in jumps:
        states.append(model.transition(states[-1], dt[None] if given_dt else 1))
    frames = torch.stack([model.decode(state).mean[0] for state in states])
    moved = displacement(register(frames, test.still(rows)))
    return Rollouts(frames, moved * test.direction, jumps)


def _classifier_accuracy(network: Classifier, test: MovingSequences) -> float:
    frames = test.select(torch.arange(len(test))).x[:, ::7]
    return float((network.predict(frames) == test.labels[:, None]).float().mean())


def _nats_per_frame(model: Any, test: MovingSequences, samples: int) -> dict[str, float]:
    """Return −log p(x_t2 | x_≤t1) for pairs drawn as in training: the sampled bound (Eq. 6) and importance sampling."""
    parts: TDVAEParts = model
    jumps, generator = Uniform(1, LONGEST), torch.Generator().manual_seed(0)
    bounds, tight = [], []
    for rows in torch.arange(len(test)).split(100):
        sequences = test.select(rows)
        pairs = jumps.sample(sequences.lengths, 4, generator)
        bounds.append(pair_terms(parts, sequences, pairs).total.mean(1))
        tight.append(-importance_log_prob(parts, sequences, pairs, samples).mean(1))
    return {"bound": float(torch.cat(bounds).mean()), "importance": float(torch.cat(tight).mean())}
