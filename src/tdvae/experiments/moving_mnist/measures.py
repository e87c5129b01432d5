"""Measures of rollouts of moving digits: which digit they show, where it goes, and its density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tdvae.data.moving_mnist import MovingSequences
from tdvae.experiments.moving_mnist.digits import Classifier, displacement, register
from tdvae.experiments.moving_mnist.presets import LONGEST
from tdvae.experiments.moving_mnist.sequences import TEST
from tdvae.jumps import Uniform
from tdvae.likelihood import importance_log_prob
from tdvae.models import Model
from tdvae.objectives import TDVAEParts, pair_terms
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at
from tdvae.training.config import derive_seed

JUMPS = 6  # per rollout
SEEN = (10, 13, 16)  # frames filtered before a rollout
KEPT_AFTER = (0, 1, 3, 6)  # jumps; 0 is the belief's own sample, decoded


@torch.no_grad()
def evaluate(
    model: Model, test: MovingSequences, network: Classifier, samples: int, given_dt: bool, seed: int
) -> Measures:
    torch.manual_seed(derive_seed(seed, TEST, 1))
    rolled = [roll(model, test, seen, given_dt) for seen in SEEN]
    frames = torch.cat([one.frames for one in rolled], dim=1)  # (1 + JUMPS, N, 28, 28)
    moved = torch.cat([one.moved for one in rolled], dim=1)
    asked = torch.cat([one.asked for one in rolled], dim=1)
    shown = network.says(frames) == test.labels.repeat(len(SEEN))
    measures: Measures = {
        "direction_kept": float(((moved >= 0).all(0) & (moved.sum(0) > 0)).float().mean()),
        "forward_jumps": float((moved > 0).float().mean()),
        "digit_kept": {str(n): float(shown[n].float().mean()) for n in KEPT_AFTER},
        "classifier_accuracy": _accuracy(network, test),
        "nats_per_frame": _nats(model, test, samples),
    }
    if given_dt:
        measures["exact_displacement"] = float((moved == asked).float().mean())
        return measures
    law = torch.stack([(moved == step).float().mean() for step in range(1, LONGEST + 1)])
    # Half the summed difference: what is missing on 1 … 4 has gone elsewhere.
    measures["displacement_tv"] = float(0.5 * ((law - 1 / LONGEST).abs().sum() + 1 - law.sum()))
    measures["displacement_law"] = {str(step + 1): float(share) for step, share in enumerate(law)}
    return measures


@dataclass(frozen=True)
class Rolled:
    """Rollouts from one time: the decoded belief and then each jump, and how far each jump went the true way."""

    frames: Tensor  # (1 + JUMPS, N, 28, 28)
    moved: Tensor  # (JUMPS, N) pixels
    asked: Tensor  # (JUMPS, N) the δt that each jump was told (if the model listens)


@torch.no_grad()
def roll(model: Model, test: MovingSequences, seen: int, given_dt: bool) -> Rolled:
    """(a) filter ``seen`` frames, (b) sample a state from the belief, (c) roll it in jumps, (d) decode (Fig. 3)."""
    rows = torch.arange(len(test))
    z = model.sample_state(belief_at(model, test.select(rows).until(seen), seen), 1)
    states, asked = [z], torch.randint(1, LONGEST + 1, (JUMPS, len(test)))
    for dt in asked:
        states.append(model.transition(states[-1], dt[None] if given_dt else 1))
    frames = torch.stack([model.decode(state).mean[0] for state in states])
    moved = displacement(register(frames, test.still(rows)))
    return Rolled(frames, moved * test.direction, asked)


def _accuracy(network: Classifier, test: MovingSequences) -> float:
    frames = test.select(torch.arange(len(test))).x[:, ::7]
    return float((network.says(frames) == test.labels[:, None]).float().mean())


def _nats(model: Any, test: MovingSequences, samples: int) -> dict[str, float]:
    """−log p(x_t2 | x_≤t1) over the training's law of pairs: the sampled bound (Eq. 6) and its tightening."""
    parts: TDVAEParts = model
    law, generator = Uniform(1, LONGEST), torch.Generator().manual_seed(0)
    bounds, tight = [], []
    for rows in torch.arange(len(test)).split(100):
        sequences = test.select(rows)
        pairs = law.sample(sequences.lengths, 4, generator)
        bounds.append(pair_terms(parts, sequences, pairs).total.mean(1))
        tight.append(-importance_log_prob(parts, sequences, pairs, samples).mean(1))
    return {"bound": float(torch.cat(bounds).mean()), "importance": float(torch.cat(tight).mean())}
