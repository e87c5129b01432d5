"""Speed as ratios measured in one run: what pairs cost, what a jump saves, how soon a loss is reached."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Generator

from tdvae.data import from_arrays
from tdvae.experiments import bench_mnist, oscillator
from tdvae.experiments.report import Measures, results, show_flat, write_results
from tdvae.experiments.timing import ratios, spread_of
from tdvae.jumps import paper_mixture
from tdvae.models import build
from tdvae.objectives import Learner
from tdvae.rollouts import rollout
from tdvae.training.config import make_optimizers

OSCILLATORS = ("paper", "cpu")
TABLE = {
    "pairs_step_ratio": "oscillator: training step with 32 pairs per sequence / with 1",
    "jump_ratio": "oscillator, 100 steps ahead: 100 transitions / 1 jump",
    "sequences_per_second_ratio": "moving MNIST: sequences/s, same gradients / plain baseline",
    "pairs_per_second_ratio": "moving MNIST: training pairs/s / plain baseline",
    "gradient_difference": "largest difference of those gradients",
    "held_out_loss_plain": "held-out loss of the plain baseline at its end, nats per frame",
    "time_to_loss_ratio": "time to that loss / the baseline's",
    "peak_megabytes": "peak memory, MB",
    "step_milliseconds": "ms per step",
}


def bench(what: str, repeats: int, minutes: float, out: Path | None) -> None:
    """Measure, print the table, and write bench.json and its plot into ``out``."""
    begin = time.monotonic()
    measures: Measures = {}
    laps: dict[str, bench_mnist.Lap] = {}
    if what in ("oscillator", "all"):
        measures |= oscillator_ratios(repeats)
    if what in ("moving-mnist", "all"):
        measures |= bench_mnist.speed(repeats)
        measures["step_milliseconds"] = bench_mnist.costs(repeats)
        if minutes > 0:
            laps = bench_mnist.race(minutes, look_every=5.0)
            measures |= bench_mnist.race_measures(laps)
    content = results("bench", what, [0], time.monotonic() - begin, [{}], {})
    content["measures"] = measures
    content["note"] = "mean is the median of n times taken in turn, spread half their range; one thread"
    show_flat("one thread; median ± half the range", measures, TABLE)
    if out is not None:
        write_results(out / "bench.json", content)
        print(f"wrote {out / 'bench.json'}")
        if "step_milliseconds" in measures:
            draw(measures["step_milliseconds"], laps, out / "bench.png")
            print(f"wrote {out / 'bench.png'}")


def oscillator_ratios(repeats: int) -> Measures:
    """For App. D's model and for the published one."""
    measures: Measures = {"pairs_step_ratio": {}, "jump_ratio": {}}
    for name in OSCILLATORS:
        preset = oscillator.PRESETS[name]
        learner = Learner(build(preset.model))
        measures["pairs_step_ratio"][name] = spread_of(_pairs_ratio(learner, preset, repeats))
        measures["jump_ratio"][name] = spread_of(_jump_ratio(learner, repeats))
    return measures


def _pairs_ratio(learner: Learner, preset: oscillator.Preset, repeats: int) -> list[float]:
    """A whole training step (loss, gradients, clipping, optimisers) on the same 32 sequences."""
    batch = from_arrays(oscillator.record(preset.settings, 32, 0, oscillator.TRAIN).x)
    optimizers = make_optimizers(preset.train, learner)

    def step(pairs: int) -> None:
        times = paper_mixture().sample(batch.lengths, pairs, Generator().manual_seed(0))
        learner.zero_grad()
        learner(batch, times).total.backward()
        learner.clip_gradients(preset.train.clip)
        for optimizer in optimizers:
            optimizer.step()

    return ratios(lambda: step(32), lambda: step(1), repeats)


def _jump_ratio(learner: Learner, repeats: int) -> list[float]:
    """256 states, a hundred steps ahead."""
    model = learner.model
    with torch.no_grad():
        state = model.sample_state(model.initial(64), 4)
    return ratios(lambda: rollout(model, state, [1] * 100), lambda: rollout(model, state, [100]), repeats)


def draw(costs: Measures, laps: dict[str, bench_mnist.Lap], path: Path) -> None:
    """How a step's cost grows with each size; and, if there was a race, held-out loss against training time."""
    names = list(dict.fromkeys(key.split("=")[0] for key in costs))
    figure, axes = plt.subplots(1, len(names) + bool(laps), figsize=(3.4 * (len(names) + bool(laps)), 3.4))
    for name, panel in zip(names, axes, strict=False):
        sizes = [int(key.split("=")[1]) for key in costs if key.startswith(f"{name}=")]
        panel.plot(sizes, [costs[f"{name}={size}"]["mean"] for size in sizes], "o-", color="#d1495b")
        panel.set(xlabel=name, ylim=(0, None))
    axes[0].set_ylabel("ms per training step")
    if laps:
        _draw_race(axes[-1], laps)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_race(axes: Axes, laps: dict[str, bench_mnist.Lap]) -> None:
    colours: list[Any] = ["#333333", "#9fc5e8", "#2e6f95", "#d1495b"]
    for colour, (name, lap) in zip(colours, laps.items(), strict=True):
        axes.plot([t / 60 for t in lap.seconds], lap.losses, color=colour, label=name)
    axes.axhline(laps["plain"].losses[-1], color="#999999", linestyle=":", lw=1)
    axes.set(xlabel="minutes of training", ylabel="held-out nats per frame", xscale="log")
    axes.legend(frameon=False, fontsize=8)
