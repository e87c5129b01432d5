"""Moving MNIST (paper, section of that name, Fig. 3): roll out in jumps, keep the digit and its direction."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae import saved
from tdvae.data import mnist
from tdvae.data.mnist import Digits
from tdvae.data.moving_mnist import MovingDigits, MovingSequences, draw_sequences, synthetic_digits
from tdvae.experiments.digits import Classifier, classifier, displacement, register
from tdvae.experiments.recipe import MUON
from tdvae.experiments.report import Measures
from tdvae.jumps import Jumps, Uniform, Widening
from tdvae.likelihood import importance_log_prob
from tdvae.models import Model, TDVAEConfig, build
from tdvae.objectives import Learner, TDVAEParts, pair_terms
from tdvae.rollouts import belief_at
from tdvae.training import FitResult, TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress

NAME = "moving_mnist"
JUMPS = 6  # per rollout
SEEN = (10, 13, 16)  # frames filtered before a rollout
KEPT_AFTER = (0, 1, 3, 6)  # jumps; 0 is the belief's own sample, decoded
LONGEST = 4  # δt is uniform on 1 … 4
TRAIN, VALIDATION, TEST = 301, 302, 303  # purposes of derived seeds
PAPER: Measures = {}  # the paper shows pictures and gives no number

TABLE = {
    "direction_kept": "rollouts that keep the direction: none of six jumps goes the other way",
    "forward_jumps": "jumps that go the true way (the others stand still or go back)",
    "displacement_tv": "displacement per jump: total variation from uniform on 1 … 4",
    "exact_displacement": "jumps of exactly the δt that was given",
    "digit_kept": "digit kept",
    "nats_per_frame": "nats per frame",
}


@dataclass(frozen=True)
class Preset:
    """Everything about a run but its seed and whether δt is given."""

    model: TDVAEConfig
    train: TrainConfig
    jumps: Jumps = field(default_factory=lambda: Widening(Uniform(1, LONGEST), start=1, until=0.35))
    frames: MovingDigits = field(default_factory=MovingDigits)
    synthetic: bool = False  # drawn digits in place of MNIST: no download
    train_sequences: int = 200_000
    test_sequences: int = 1_000
    steps_given_dt: int | None = None  # of the variant with δt, if it needs fewer
    samples: int = 50  # of the importance-sampled likelihood
    classifier_steps: int = 2_500
    seeds: tuple[int, ...] = (0,)


# App. D as printed: two ReLU layers before an LSTM and in the decoder, two layers of z, δt withheld.
_PAPER_MODEL = TDVAEConfig(
    event_shape=(28, 28),
    likelihood="bernoulli",
    encoder=(784, 784),
    decoder=(200, 200),
    dt="none",
)
# What we found to learn, and why, is in docs/moving_mnist.md.
_MODEL = TDVAEConfig(
    event_shape=(28, 28),
    likelihood="bernoulli",
    encoder=(384, 128),
    decoder=(384, 384),
    belief=128,
    shown=2,
    latent=16,
    maps="residual",
    hidden=128,
    blocks=1,
    dt="none",
    octaves=3,
    drift="turn",
    lengths=LONGEST,
    smoothing="product",
    log_sigma=-2.0,
)
_TRAIN = replace(MUON, batch=64, pairs=8)

PRESETS = {
    "smoke": Preset(
        replace(_MODEL, encoder=(24, 16), decoder=(24, 24), belief=16, latent=4, hidden=16),
        replace(_TRAIN, steps=10, batch=8, pairs=2, validate_every=5, checkpoint_every=5, log_every=5),
        synthetic=True,
        train_sequences=80,
        test_sequences=20,
        samples=2,
        classifier_steps=10,
    ),
    "cpu": Preset(_MODEL, replace(_TRAIN, steps=3_600), steps_given_dt=900, seeds=(0, 1, 2)),
    "paper": Preset(_PAPER_MODEL, TrainConfig(steps=200_000, batch=512, pairs=1), Uniform(1, LONGEST), seeds=(0, 1, 2)),
}


def digits_of(preset: Preset) -> tuple[Digits, Digits, Digits]:
    """Train, validation and test digits; no image is in two of them."""
    if preset.synthetic:
        return synthetic_digits(500, 0), synthetic_digits(100, 1), synthetic_digits(100, 2)
    return mnist.splits(mnist.load())


def train(
    preset: Preset, name: str, seed: int, given_dt: bool, run_dir: Path, resume: bool, progress: Progress
) -> FitResult:
    """One training, with δt given to the networks or withheld from them."""
    train_digits, validation_digits, _ = digits_of(preset)
    data = draw_sequences(preset.frames, train_digits, preset.train_sequences, derive_seed(seed, TRAIN))
    validation = draw_sequences(preset.frames, validation_digits, 512, derive_seed(seed, VALIDATION))
    torch.manual_seed(derive_seed(seed))  # the initial weights
    told = replace(preset.model, dt="waves", lengths=1)
    learner = Learner(build(told if given_dt else preset.model))
    info = {"experiment": NAME, "preset": name, "frames": asdict(preset.frames), "given_dt": given_dt}
    steps = preset.steps_given_dt if given_dt and preset.steps_given_dt else preset.train.steps
    config = replace(preset.train, steps=steps, seed=seed)
    return fit(learner, data, preset.jumps, config, run_dir, validation, resume, info, progress)


def judge_of(preset: Preset, folder: Path) -> Classifier:
    """The digit classifier kept in ``folder``; trained on the training digits if it is not there yet."""
    return classifier(folder, preset.frames, digits_of(preset)[0], preset.classifier_steps, seed=0)


def held_out(preset: Preset, seed: int) -> MovingSequences:
    """Sequences of test digits."""
    return draw_sequences(preset.frames, digits_of(preset)[2], preset.test_sequences, derive_seed(seed, TEST))


def measure(preset: Preset, seed: int, given_dt: bool, judge: Path, run_dir: Path) -> Measures:
    """Every measure of a finished training, on test digits; ``judge`` is the folder of the digit classifier."""
    test, network = held_out(preset, seed), judge_of(preset, judge)
    return evaluate(saved.load(run_dir), test, network, preset.samples, given_dt, seed)


def both(without: Measures, given: Measures) -> Measures:
    """The measures of a seed: those of the paper's model, and beside them what changes when δt is given."""
    changed = {f"{name}_given_dt": given[name] for name in ("direction_kept", "digit_kept", "nats_per_frame")}
    return {**without, "exact_displacement": given["exact_displacement"], **changed}


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
