"""Speed of training on moving MNIST: a plain baseline and ours, in one run on one thread.

The plain baseline is what public implementations share: their model sizes, batch size 512, Adam with rate 5e-4, one
pair per sequence, every frame encoded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Generator

from tdvae.jumps import Uniform
from tdvae.models import TDVAEConfig, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.training.config import TrainConfig, make_optimizers, rate_factor
from tdvae.types import Pairs, Sequences
from tdvae_paper.moving_mnist.experiment import PRESETS, digits_of
from tdvae_paper.moving_mnist.measures import LONGEST
from tdvae_paper.moving_mnist.moving_digits import MovingSequences, draw_sequences, synthetic_digits
from tdvae_paper.timing import median_and_range, peak_megabytes, ratios, seconds

PLAIN_MODEL = PRESETS["paper"].model
PLAIN_TRAIN = TrainConfig(batch_size=512, pairs=1, learning_rate=5e-4, accelerator="cpu")
JUMPS = Uniform(1, LONGEST)
PAIRS = 32  # pairs per sequence for the measure of pairs per second
HELD_OUT = 1_000  # number of test sequences, 4 pairs each


class Step:
    """A repeatable training step: loss, gradients, clipping, optimisers.

    With ``all_frames`` every frame is encoded, otherwise only those up to the last t2 of each sequence.
    """

    def __init__(self, model: TDVAEConfig, train: TrainConfig, all_frames: bool) -> None:
        torch.manual_seed(0)
        self.learner, self.train, self.all_frames = Learner(build(model)), train, all_frames
        self.optimizers = make_optimizers(train, self.learner)
        self.rates = [group["lr"] for o in self.optimizers for group in o.param_groups]

    def __call__(self, batch: Sequences, pairs: Pairs, factor: float = 1.0) -> float:
        last = batch.horizon if self.all_frames else None
        groups = [group for o in self.optimizers for group in o.param_groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.learner.zero_grad()
        loss = self.learner(batch, Pairs(pairs.t1, pairs.t2, last)).total
        loss.backward()
        self.learner.clip_gradients(self.train.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()


def frames(length: int = 20, n: int = 512) -> Sequences:
    """Sequences of synthetic digits. They are enough for timing, and need no download."""
    drawn = draw_sequences(synthetic_digits(200, 0), n, 0, length)
    return drawn.select(torch.arange(n))


def pairs_of(batch: Sequences, k: int) -> Pairs:
    return JUMPS.sample(batch.lengths, k, Generator().manual_seed(0))


def speed(repeats: int) -> Measures:
    """Compute ratios to the plain baseline: sequences per second with the same gradients, and pairs per second."""
    batch = frames()
    one, many = pairs_of(batch, 1), pairs_of(batch, PAIRS)
    plain, ours = (Step(PLAIN_MODEL, PLAIN_TRAIN, all_frames) for all_frames in (True, False))
    sequences = ratios(lambda: plain(batch, one), lambda: ours(batch, one), repeats)
    steps = ratios(lambda: plain(batch, one), lambda: ours(batch, many), repeats)
    return {
        "sequences_per_second_ratio": median_and_range(sequences),
        "pairs_per_second_ratio": median_and_range([PAIRS * ratio for ratio in steps]),
        "gradient_difference": {"mean": gradient_difference(batch, one), "spread": None, "n": 1},
    }


def gradient_difference(batch: Sequences, pairs: Pairs) -> float:
    """The largest difference of gradients with and without ``all_frames``, for the same weights and noise."""
    gradients = []
    for all_frames in (True, False):
        step = Step(PLAIN_MODEL, PLAIN_TRAIN, all_frames)
        torch.manual_seed(1)
        last = batch.horizon if all_frames else None
        step.learner(batch, Pairs(pairs.t1, pairs.t2, last)).total.backward()
        gradients.append([p.grad for p in step.learner.parameters() if p.grad is not None])
    return max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True))


@dataclass(frozen=True)
class SizeSweep:
    """Training steps of several sizes in one dimension, with the others fixed."""

    name: str
    sizes: tuple[int, ...]
    step: Callable[[int], Callable[[], object]]


def size_sweeps() -> Iterator[SizeSweep]:
    """Vary T, K, layers and batch size, starting from the plain model with 8 pairs."""
    train = replace(PLAIN_TRAIN, batch_size=64)

    def make_step(length: int = 20, k: int = 8, layers: int = 2, batch: int = 64) -> Callable[[], object]:
        sequences = frames(length, batch)
        step = Step(replace(PLAIN_MODEL, layers=layers), train, all_frames=False)
        pairs = pairs_of(sequences, k)
        return lambda: step(sequences, pairs)

    yield SizeSweep("T", (5, 10, 20, 40, 80), lambda size: make_step(length=size))
    yield SizeSweep("K", (1, 2, 4, 8, 16, 32, 64), lambda size: make_step(k=size))
    yield SizeSweep("layers", (1, 2, 4, 8), lambda size: make_step(layers=size))
    yield SizeSweep("batch", (16, 32, 64, 128, 256), lambda size: make_step(batch=size))


def costs(repeats: int) -> Measures:
    """The milliseconds of one training step by size."""
    table: Measures = {}
    for sweep in size_sweeps():
        for size in sweep.sizes:
            step = sweep.step(size)
            step()
            times = [1e3 * seconds(step) for _ in range(repeats)]
            table[f"{sweep.name}={size}"] = median_and_range(times)
    return table


METHODS: dict[str, tuple[TDVAEConfig, TrainConfig, bool]] = {
    # Changes are cumulative, except the batch size: it is smaller for our model, whose steps cost more.
    "plain": (PLAIN_MODEL, PLAIN_TRAIN, True),
    "+ 8 pairs, batch 64": (PLAIN_MODEL, replace(PLAIN_TRAIN, batch_size=64, pairs=8), False),
    "+ our model": (PRESETS["cpu"].model, replace(PLAIN_TRAIN, batch_size=32, pairs=8), False),
    "+ Muon, higher rates": (
        PRESETS["cpu"].model,
        replace(PRESETS["cpu"].train, schedule="constant"),
        False,
    ),
}


@dataclass(frozen=True)
class LossCurve:
    """Held-out losses during one training, and the seconds of training before each."""

    seconds: list[float]
    losses: list[float]

    def time_to(self, loss: float) -> float | None:
        """The seconds until the loss was reached, or None if it was not."""
        return next((t for t, value in zip(self.seconds, self.losses, strict=True) if value <= loss), None)


def train_to_loss(minutes: float, evaluate_every: float) -> dict[str, LossCurve]:
    """Train the plain baseline for ``minutes``, then each other method until it reaches the baseline's held-out loss.

    A method that has not reached it after a fifth of the time is stopped.
    """
    preset = PRESETS["cpu"]
    train_digits, _, test_digits = digits_of(preset)
    data = draw_sequences(train_digits, preset.train_sequences, 0)
    test = draw_sequences(test_digits, HELD_OUT, 1)
    curves: dict[str, LossCurve] = {}
    for name, (model, train, all_frames) in METHODS.items():
        goal, limit = (curves["plain"].losses[-1], 12 * minutes) if curves else (None, 60 * minutes)
        curves[name] = _train(Step(model, train, all_frames), data, test, limit, evaluate_every, goal)
        print(f"{name}: {curves[name].losses[-1]:.1f} nats after {curves[name].seconds[-1]:.0f} s", flush=True)
    return curves


def _train(
    step: Step, data: MovingSequences, test: MovingSequences, limit: float, evaluate_every: float, goal: float | None
) -> LossCurve:
    """Train until ``goal`` or ``limit`` seconds are reached.

    Seconds are processor time, on an idle machine the same as wall time. Making batches is included, evaluating the
    held-out loss is not.
    """
    curve = LossCurve([], [])
    clock, evaluated, number = 0.0, 0.0, 0
    while True:
        begin = time.process_time()
        generator = Generator().manual_seed(number)
        rows = torch.randint(len(data), (step.train.batch_size,), generator=generator)
        batch = data.select(rows)
        step(batch, JUMPS.sample(batch.lengths, step.train.pairs, generator), rate_factor(step.train, number))
        clock, number = clock + time.process_time() - begin, number + 1
        if clock - evaluated >= evaluate_every or clock >= limit:
            evaluated = clock
            curve.seconds.append(clock)
            curve.losses.append(held_out_loss(step.learner, test))
            if clock >= limit or (goal is not None and curve.losses[-1] <= goal):
                return curve


@torch.no_grad()
def held_out_loss(learner: Learner, test: MovingSequences) -> float:
    """The sampled bound on test digits in nats per frame, with the same pairs and noise in every call."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    generator = Generator().manual_seed(0)
    total = 0.0
    for rows in torch.arange(len(test)).split(250):
        batch = test.select(rows)
        total += float(learner(batch, JUMPS.sample(batch.lengths, 4, generator)).total) * len(rows)
    torch.set_rng_state(state)
    return total / len(test)


def time_to_loss_measures(curves: dict[str, LossCurve]) -> Measures:
    """The baseline's last loss, and the share of its time that each method needs to reach it.

    Methods that did not reach it within a fifth of the time are left out.
    """
    goal, baseline_seconds = curves["plain"].losses[-1], curves["plain"].seconds[-1]
    shares: Measures = {}
    for name, curve in curves.items():
        reached = curve.time_to(goal)
        if reached is not None:
            shares[name] = {"mean": reached / baseline_seconds, "spread": None, "n": 1}
    return {
        "held_out_loss_plain": {"mean": goal, "spread": None, "n": 1},
        "time_to_loss_ratio": shares,
        "peak_megabytes": {"mean": peak_megabytes(), "spread": None, "n": 1},
    }
