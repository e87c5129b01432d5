"""Speed as ratios within one run: cost of pairs, gain of a jump, time to reach a loss."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from tdvae.data import from_arrays
from tdvae.jumps import paper_mixture
from tdvae.models import build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures, results, write_results
from tdvae.reporting.tables import Block, by_key, flat, show
from tdvae.rollouts import rollout
from tdvae.training.config import make_optimizers
from tdvae_paper.bench import devices, moving_mnist
from tdvae_paper.oscillator.experiment import PRESETS, Preset
from tdvae_paper.oscillator.measures import TRAIN, record
from tdvae_paper.timing import median_and_range, ratios

OSCILLATORS = ("paper", "cpu")
LABELS = {
    "sequences_per_second_ratio": "sequences per second with the same gradients / plain baseline",
    "pairs_per_second_ratio": "training pairs per second / plain baseline",
    "gradient_difference": "largest difference of those gradients",
    "held_out_loss_plain": "held-out loss of the plain baseline at the end of its time, nats per frame",
    "time_to_loss_ratio": "time to that loss / the baseline's time: {}",
    "peak_megabytes": "peak memory of the whole benchmark, MB",
    "pairs_step_ratio": "oscillator: step with 32 pairs per sequence / with 1, preset {}",
    "jump_ratio": "oscillator, 100 steps ahead: 100 transitions / one jump, preset {}",
}
STEPS = (
    "Time of a training step of the plain model with sequences of T = 20 frames, K = 8 pairs of each and batches of 64 "
    "sequences, if one of its sizes is changed:"
)


def bench(what: str, repeats: int, minutes: float, out: Path | None) -> None:
    """Run the benchmarks, print the table, and write bench.json and its plot to ``out``."""
    begin = time.monotonic()
    measures: Measures = {}
    if what in ("oscillator", "all"):
        measures |= oscillator_ratios(repeats)
    if what in ("moving-mnist", "all"):
        measures |= moving_mnist.speed(repeats)
        measures["step_milliseconds"] = moving_mnist.costs(repeats)
        if minutes > 0:
            curves = moving_mnist.train_to_loss(minutes, evaluate_every=5.0)
            measures |= moving_mnist.time_to_loss_measures(curves)
    if what == "devices":
        measures |= devices.measure(repeats)
    content = results("bench", what, [0], time.monotonic() - begin, [{}], {})
    content["measures"] = measures
    content["note"] = "mean is the median of n times taken in turn, spread half their range; one thread per process"
    blocks = devices.tables(content) if what == "devices" else tables(content)
    show("one thread per process; median ± half the range", blocks)
    if out is not None:
        # The processes need two idle cores, so they are measured apart from the rest.
        path = out / ("bench_devices.json" if what == "devices" else "bench.json")
        write_results(path, content)
        print(f"wrote {path}")
        if "time_to_loss_ratio" in measures:
            draw(measures["time_to_loss_ratio"], minutes, out / "bench.png")
            print(f"wrote {out / 'bench.png'}")


def tables(content: dict[str, Any]) -> list[Block]:
    """A table with one number per row, and a table of times per step for each size that was changed."""
    sizes: dict[str, Measures] = {}
    for key, entry in content["measures"].get("step_milliseconds", {}).items():
        size, value = key.split("=")
        sizes.setdefault(size, {})[value] = entry
    blocks: list[Block] = [flat(content["measures"], LABELS)]
    if sizes:
        blocks.append(STEPS)
    return blocks + [by_key([("ms per step", entries)], heading=f"{size} = {{}}") for size, entries in sizes.items()]


def made(content: dict[str, Any]) -> str:
    """The sentence below the table in the docs: the command and how times were measured."""
    return f"`{content['command']}`; {content['note']}."


def oscillator_ratios(repeats: int) -> Measures:
    """Compute the ratios for the model of App. D and for that of the published results."""
    measures: Measures = {"pairs_step_ratio": {}, "jump_ratio": {}}
    for name in OSCILLATORS:
        preset = PRESETS[name]
        learner = Learner(build(preset.model))
        measures["pairs_step_ratio"][name] = median_and_range(_pairs_ratio(learner, preset, repeats))
        measures["jump_ratio"][name] = median_and_range(_jump_ratio(learner, repeats))
    return measures


def _pairs_ratio(learner: Learner, preset: Preset, repeats: int) -> list[float]:
    """The ratios of whole training steps (loss, gradients, clipping, optimisers) with 32 pairs and with 1."""
    batch = from_arrays(record(preset.settings, 32, 0, TRAIN).x)
    optimizers = make_optimizers(preset.train, learner)

    def step(pairs: int) -> None:
        drawn = paper_mixture().sample(batch.lengths, pairs, Generator().manual_seed(0))
        learner.zero_grad()
        learner(batch, drawn).total.backward()
        learner.clip_gradients(preset.train.clip)
        for optimizer in optimizers:
            optimizer.step()

    return ratios(lambda: step(32), lambda: step(1), repeats)


def _jump_ratio(learner: Learner, repeats: int) -> list[float]:
    """The ratios of 100 transitions and one jump of 100 steps, for 256 states."""
    model = learner.model
    with torch.no_grad():
        state = model.sample_state(model.initial(64), 4)
    return ratios(lambda: rollout(model, state, [1] * 100), lambda: rollout(model, state, [100]), repeats)


def draw(ratios: Measures, minutes: float, path: Path) -> None:
    """Draw how long each training takes to reach the held-out loss of the plain baseline at its end."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 2.6), layout="constrained")
    seconds = [60 * minutes * entry["mean"] for entry in ratios.values()]
    bars = axes.barh(list(ratios), seconds, color=["#999999", *["#2e6f95"] * (len(seconds) - 2), "#d1495b"])
    axes.bar_label(bars, [_duration(each) for each in seconds], padding=4)
    axes.set(xlabel=f"time to the loss that the plain baseline has after {minutes:g} minutes (← less is better)")
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
