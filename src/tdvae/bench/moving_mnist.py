"""Moving MNIST against the clock: the public implementations' way of training, and ours, in one run on one thread.

The plain baseline is what they share (model sizes, batch 512, Adam 5e-4): one pair per sequence, every frame encoded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Generator

from tdvae.data.moving_mnist import MovingDigits, MovingSequences, draw_sequences, synthetic_digits
from tdvae.experiments.moving_mnist.presets import LONGEST, PRESETS
from tdvae.experiments.moving_mnist.sequences import digits_of
from tdvae.jumps import Uniform
from tdvae.models import TDVAEConfig, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.timing import peak_megabytes, ratios, seconds, spread_of
from tdvae.training.config import TrainConfig, make_optimizers, rate_factor
from tdvae.types import Pairs, Sequences

PLAIN_MODEL = PRESETS["paper"].model
PLAIN_TRAIN = TrainConfig(batch_size=512, pairs=1, learning_rate=5e-4, accelerator="cpu")
LAW = Uniform(1, LONGEST)
PAIRS = 32  # per sequence, for the rate of pairs
HELD_OUT = 1_000  # sequences of test digits, 4 pairs each


class Step:
    """A whole training step (loss, gradients, clipping, optimisers) that can be repeated."""

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
    """Any digits will do where only time counts: no download."""
    drawn = draw_sequences(MovingDigits(length=length), synthetic_digits(200, 0), n, 0)
    return drawn.select(torch.arange(n))


def pairs_of(batch: Sequences, k: int) -> Pairs:
    return LAW.sample(batch.lengths, k, Generator().manual_seed(0))


def speed(repeats: int) -> Measures:
    """Ratios to the plain baseline: sequences per second with the same gradients, and pairs per second."""
    batch = frames()
    one, many = pairs_of(batch, 1), pairs_of(batch, PAIRS)
    plain, needed = (Step(PLAIN_MODEL, PLAIN_TRAIN, all_frames) for all_frames in (True, False))
    sequences = ratios(lambda: plain(batch, one), lambda: needed(batch, one), repeats)
    steps = ratios(lambda: plain(batch, one), lambda: needed(batch, many), repeats)
    return {
        "sequences_per_second_ratio": spread_of(sequences),
        "pairs_per_second_ratio": spread_of([PAIRS * ratio for ratio in steps]),
        "gradient_difference": {"mean": gradient_difference(batch, one), "spread": None, "n": 1},
    }


def gradient_difference(batch: Sequences, pairs: Pairs) -> float:
    """The largest difference between the two ways' gradients, from the same weights and noise."""
    gradients = []
    for all_frames in (True, False):
        step = Step(PLAIN_MODEL, PLAIN_TRAIN, all_frames)
        torch.manual_seed(1)
        last = batch.horizon if all_frames else None
        step.learner(batch, Pairs(pairs.t1, pairs.t2, last)).total.backward()
        gradients.append([p.grad for p in step.learner.parameters() if p.grad is not None])
    return max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True))


@dataclass(frozen=True)
class Growth:
    """How the cost of our step grows with one size, the others held."""

    name: str
    sizes: tuple[int, ...]
    step: Callable[[int], Callable[[], object]]


def growth() -> Iterator[Growth]:
    """T, K, layers and batch, around the plain model with 8 pairs."""
    train = replace(PLAIN_TRAIN, batch_size=64)

    def at(length: int = 20, k: int = 8, layers: int = 2, batch: int = 64) -> Callable[[], object]:
        sequences = frames(length, batch)
        step = Step(replace(PLAIN_MODEL, layers=layers), train, all_frames=False)
        pairs = pairs_of(sequences, k)
        return lambda: step(sequences, pairs)

    yield Growth("T", (5, 10, 20, 40, 80), lambda size: at(length=size))
    yield Growth("K", (1, 2, 4, 8, 16, 32, 64), lambda size: at(k=size))
    yield Growth("layers", (1, 2, 4, 8), lambda size: at(layers=size))
    yield Growth("batch", (16, 32, 64, 128, 256), lambda size: at(batch=size))


def costs(repeats: int) -> Measures:
    """Milliseconds of one step, by size."""
    table: Measures = {}
    for grown in growth():
        for size in grown.sizes:
            step = grown.step(size)
            step()
            times = [1e3 * seconds(step) for _ in range(repeats)]
            table[f"{grown.name}={size}"] = spread_of(times)
    return table


CONTENDERS: dict[str, tuple[TDVAEConfig, TrainConfig, bool]] = {
    # What is changed is added up: each contender has all that the ones before it have.
    # Only the batch is not kept: our model's steps cost more, so they are smaller.
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
class Lap:
    """How a contender did: seconds of training and the held-out loss at each look, every few seconds."""

    seconds: list[float]
    losses: list[float]

    def time_to(self, loss: float) -> float | None:
        return next((t for t, value in zip(self.seconds, self.losses, strict=True) if value <= loss), None)


def race(minutes: float, look_every: float) -> dict[str, Lap]:
    """Train the plain baseline for so many minutes, then each contender until it has the baseline's held-out loss.

    A contender that has not got there in a fifth of the time is stopped.
    """
    preset = PRESETS["cpu"]
    train_digits, _, test_digits = digits_of(preset)
    data = draw_sequences(preset.frames, train_digits, preset.train_sequences, 0)
    test = draw_sequences(preset.frames, test_digits, HELD_OUT, 1)
    laps: dict[str, Lap] = {}
    for name, (model, train, all_frames) in CONTENDERS.items():
        goal, limit = (laps["plain"].losses[-1], 12 * minutes) if laps else (None, 60 * minutes)
        laps[name] = _lap(Step(model, train, all_frames), data, test, limit, look_every, goal)
        print(f"{name}: {laps[name].losses[-1]:.1f} nats after {laps[name].seconds[-1]:.0f} s", flush=True)
    return laps


def _lap(
    step: Step, data: MovingSequences, test: MovingSequences, limit: float, look_every: float, goal: float | None
) -> Lap:
    """Processor time, on an idle machine the same as wall time. Making batches counts, measuring the loss does not."""
    lap = Lap([], [])
    clock, looked, number = 0.0, 0.0, 0
    while True:
        begin = time.process_time()
        generator = Generator().manual_seed(number)
        rows = torch.randint(len(data), (step.train.batch_size,), generator=generator)
        batch = data.select(rows)
        step(batch, LAW.sample(batch.lengths, step.train.pairs, generator), rate_factor(step.train, number))
        clock, number = clock + time.process_time() - begin, number + 1
        if clock - looked >= look_every or clock >= limit:
            looked = clock
            lap.seconds.append(clock)
            lap.losses.append(held_out_loss(step.learner, test))
            if clock >= limit or (goal is not None and lap.losses[-1] <= goal):
                return lap


@torch.no_grad()
def held_out_loss(learner: Learner, test: MovingSequences) -> float:
    """The sampled bound on test digits, always the same pairs and noise, nats per frame."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    generator = Generator().manual_seed(0)
    total = 0.0
    for rows in torch.arange(len(test)).split(250):
        batch = test.select(rows)
        total += float(learner(batch, LAW.sample(batch.lengths, 4, generator)).total) * len(rows)
    torch.set_rng_state(state)
    return total / len(test)


def race_measures(laps: dict[str, Lap]) -> Measures:
    """The baseline's last loss, and what share of its time the others need for it (left out: not within a fifth)."""
    goal, whole = laps["plain"].losses[-1], laps["plain"].seconds[-1]
    shares: Measures = {}
    for name, lap in laps.items():
        reached = lap.time_to(goal)
        if reached is not None:
            shares[name] = {"mean": reached / whole, "spread": None, "n": 1}
    return {
        "held_out_loss_plain": {"mean": goal, "spread": None, "n": 1},
        "time_to_loss_ratio": shares,
        "peak_megabytes": {"mean": peak_megabytes(), "spread": None, "n": 1},
    }
