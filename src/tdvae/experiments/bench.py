"""Speed as ratios measured in one run: what pairs cost beside the encoding, and what a jump saves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Generator, nn

from tdvae.data import from_arrays
from tdvae.experiments import oscillator
from tdvae.jumps import paper_mixture
from tdvae.models import build
from tdvae.objectives import Learner
from tdvae.rollout import rollout
from tdvae.training.config import make_optimizers

PRESETS = ("paper", "cpu")


def bench_oscillator(repeats: int) -> None:
    """Print the ratios for App. D's model and for the published one."""
    title = "one thread, ratios of times taken in turn"
    table = Table("", "preset", "median", "lowest", "highest", title=title, title_justify="left")
    for name in PRESETS:
        preset = oscillator.PRESETS[name]
        learner = Learner(build(preset.model))
        for label, ratios in (
            ("training step: 32 pairs per sequence / 1 pair", _pairs_ratio(learner, preset, repeats)),
            ("100 steps ahead: 100 transitions / 1 jump", _jump_ratio(learner, repeats)),
        ):
            numbers = (statistics.median(ratios), min(ratios), max(ratios))
            table.add_row(label, name, *(f"{number:.2f}" for number in numbers))
    Console().print(table)


def _pairs_ratio(learner: Learner, preset: oscillator.Preset, repeats: int) -> list[float]:
    """A whole training step (loss, gradients, clipping, optimisers) on the same 32 sequences."""
    batch = from_arrays(oscillator.record(preset.settings, 32, 0, oscillator.TRAIN).x)
    optimizers = make_optimizers(preset.train, learner)

    def step(pairs: int) -> None:
        times = paper_mixture().sample(batch.lengths, pairs, Generator().manual_seed(0))
        learner.zero_grad()
        learner(batch, times).total.backward()
        nn.utils.clip_grad_norm_(learner.parameters(), preset.train.clip)
        for optimizer in optimizers:
            optimizer.step()

    return _ratios(lambda: step(32), lambda: step(1), repeats)


def _jump_ratio(learner: Learner, repeats: int) -> list[float]:
    """256 states, a hundred steps ahead."""
    model = learner.model
    with torch.no_grad():
        state = model.sample_state(model.initial(64), 4)
    return _ratios(lambda: rollout(model, state, [1] * 100), lambda: rollout(model, state, [100]), repeats)


def _ratios(numerator: Callable[[], object], denominator: Callable[[], object], repeats: int) -> list[float]:
    """Both are timed in turn, so that a busy machine disturbs them alike."""
    numerator(), denominator()  # warm caches
    return [_seconds(numerator) / _seconds(denominator) for _ in range(repeats)]


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
