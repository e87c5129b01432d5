"""Measures of rollouts of moving digits: digit, displacement and density."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.jumps import Uniform
from tdvae.likelihood import importance_log_prob
from tdvae.models import Model
from tdvae.objectives import TDVAEParts, pair_terms
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at
from tdvae.storage import checkpoint
from tdvae.training.config import derive_seed
from tdvae_paper.moving_mnist.mnist import SIDE, Digits
from tdvae_paper.moving_mnist.moving_digits import MovingSequences, draw_sequences

JUMPS = 6  # per rollout
LONGEST = 4  # δt is uniform on 1 … 4
SEEN = (10, 13, 16)  # frames filtered before a rollout
CLASSIFIED_AFTER = (0, 1, 3, 6)  # numbers of jumps; 0 is the decoded sample of the belief
TEST = 303  # purpose of derived seeds
BATCH, RATE, SMOOTHING = 128, 3e-3, 0.05  # of the classifier


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


# Recognition of decoded frames: the digit by a classifier, its position by registration with the true digit


class Classifier(nn.Module):
    """Two convolutions and two dense layers. Columns are padded circularly because the moving digits wrap around."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 5, stride=2), nn.Conv2d(16, 32, 3)
        self.hidden, self.out = nn.Linear(32 * 6 * 7, 128), nn.Linear(128, 10)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the logits (N, 10) of frames (N, 28, 28)."""
        h = F.pad(F.pad(frames[:, None], (2, 2, 0, 0), mode="circular"), (0, 0, 2, 2))
        h = F.relu(self.first(h))
        h = F.relu(self.second(F.pad(h, (1, 1, 0, 0), mode="circular")))
        return self.out(F.relu(self.hidden(F.max_pool2d(h, 2).flatten(1))))

    @torch.no_grad()
    def predict(self, frames: Tensor) -> Tensor:
        """Return the most likely digit of each frame (..., 28, 28)."""
        parts = frames.reshape(-1, SIDE, SIDE).split(1000)
        return torch.cat([self(part).argmax(-1) for part in parts]).view(frames.shape[:-2])


def classifier(folder: Path, digits: Digits, steps: int, seed: int) -> Classifier:
    """Load the classifier from ``folder``. If there is none, train it on frames of ``digits`` and save it there."""
    torch.manual_seed(derive_seed(seed))
    network = Classifier()
    if (folder / checkpoint.MANIFEST).exists():
        network.load_state_dict(checkpoint.load(folder).tensors["weights"])
        return network.eval()
    frames = draw_sequences(digits, steps * BATCH, derive_seed(seed, 1), length=1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for rows in torch.arange(len(frames)).split(BATCH):
        loss = F.cross_entropy(network(frames.select(rows).x[:, 0]), frames.labels[rows], label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    checkpoint.save(folder, {"weights": network.state_dict()}, {"steps": steps, "seed": seed})
    return network.eval()


def register(frames: Tensor, still: Tensor) -> Tensor:
    """Return the shift to the right of each frame (..., N, 28, 28) relative to its digit ``still`` (N, 28, 28).

    This is the circular shift with the largest correlation. All shifts of an image have the same norm, so the
    correlation needs no normalisation. A frame that does not show the digit gets a shift, too.
    """
    spectrum = torch.fft.rfft(frames, dim=-1) * torch.fft.rfft(still, dim=-1).conj()
    return torch.fft.irfft(spectrum.sum(-2), n=SIDE).argmax(-1)


def displacement(shifts: Tensor) -> Tensor:
    """Return the shift of each frame from the previous one along the first axis, in −13 … 14 pixels."""
    half = SIDE // 2
    return (shifts.diff(dim=0) + half - 1) % SIDE - half + 1
