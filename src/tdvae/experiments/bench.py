"""Speed as ratios measured in one run: what pairs cost beside the encoding, and what a jump saves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Generator

from tdvae.data import from_arrays
from tdvae.experiments import oscillator
from tdvae.jumps import paper_mixture
from tdvae.models import build
from tdvae.objectives import Learner
from tdvae.rollout import rollout


def ratio(numerator: Callable[[], object], denominator: Callable[[], object], repeats: int) -> list[float]:
    """Times of one thing over another, taken in turn so that a busy machine disturbs both alike; sorted."""
    numerator(), denominator()  # warm caches
    return sorted(_seconds(numerator) / _seconds(denominator) for _ in range(repeats))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def bench_oscillator(repeats: int) -> None:
    """Print the ratios for the published model and for App. D's."""
    torch.set_num_threads(1)
    table = Table(
        "", "model", "median", "lowest", "highest", title="one thread, ratios within this run", title_justify="left"
    )
    for name in ("cpu", "paper"):
        preset = oscillator.PRESETS[name]
        learner = Learner(build(preset.model))
        batch = from_arrays(oscillator.record(preset.settings, 32, 0, oscillator.TRAIN).x)

        def step(pairs: int, learner: Learner = learner) -> None:
            times = paper_mixture().sample(batch.lengths, pairs, Generator().manual_seed(0))  # noqa: B023
            learner(batch, times).total.backward()  # noqa: B023

        with torch.no_grad():
            state = learner.model.sample_state(learner.model.initial(64), 4)
        rows = {
            "training step, 32 pairs per sequence / 1 pair": ratio(lambda: step(32), lambda: step(1), repeats),
            "100 steps ahead, 100 transitions / 1 jump": ratio(
                lambda: rollout(learner.model, state, [1] * 100),  # noqa: B023
                lambda: rollout(learner.model, state, [100]),  # noqa: B023
                repeats,
            ),
        }
        for label, times in rows.items():
            table.add_row(label, name, f"{statistics.median(times):.2f}", f"{times[0]:.2f}", f"{times[-1]:.2f}")
    Console().print(table)
