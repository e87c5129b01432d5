"""Cost of a training step of the convolutional model by number of layers: time, memory, parameters.

``python -m tdvae_paper.bench.conv_costs results`` runs the benchmark and writes results/conv_costs.json.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tdvae.jumps import Uniform
from tdvae.models import ConvTDVAEConfig, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures, results, write_results
from tdvae.reporting.tables import Block, Table, show
from tdvae.training.config import TrainConfig, make_optimizers
from tdvae.types import Sequences
from tdvae_paper.first_person.experiment import MODELS
from tdvae_paper.jobs import start_worker
from tdvae_paper.timing import peak_megabytes

LAYERS = (1, 2, 4, 8, 16)
TRAIN = TrainConfig(batch_size=16, pairs=4)
FRAMES = 20  # per sequence
LABELS = {
    "seconds": "s per step",
    "seconds_checkpointing": "… checkpointing",
    "megabytes": "MB",
    "megabytes_checkpointing": "… checkpointing",
}


@dataclass(frozen=True)
class Cost:
    seconds: list[float]  # one per repeat
    megabytes: float
    parameters: int


def cost_of(config: ConvTDVAEConfig, repeats: int) -> Cost:
    """Measure whole training steps (loss, gradient, clipping, optimiser). Call it in a fresh process."""
    x = torch.randint(256, (TRAIN.batch_size, FRAMES, *config.event_shape)) / 255
    batch = Sequences(x, torch.full((TRAIN.batch_size,), FRAMES))
    pairs = Uniform(1, 5).sample(batch.lengths, TRAIN.pairs, torch.Generator().manual_seed(0))
    before = peak_megabytes()
    learner = Learner(build(config))
    optimizers = make_optimizers(TRAIN, learner)

    def step() -> None:
        learner.zero_grad()
        learner(batch, pairs).total.backward()
        learner.clip_gradients(TRAIN.clip)
        for optimizer in optimizers:
            optimizer.step()

    step()  # warm up caches and allocate the optimiser's state
    return Cost(
        [_processor_seconds(step) for _ in range(repeats)],
        peak_megabytes() - before,
        sum(p.numel() for p in learner.parameters()),
    )


def _processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of a call. Unlike wall time, it does not count other processes."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def costs(model: ConvTDVAEConfig, layers: tuple[int, ...], repeats: int) -> Measures:
    """Measure by number of layers, with and without checkpointing. Each has a new process, as peaks do not go down."""
    measures: Measures = {name: {} for name in [*LABELS, "parameters"]}
    for count in layers:
        for checkpointing in (False, True):
            config = replace(model, layers=count, checkpointing=checkpointing)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), start_worker) as process:
                cost = process.submit(cost_of, config, repeats).result()
            suffix = "_checkpointing" if checkpointing else ""
            half_range = (max(cost.seconds) - min(cost.seconds)) / 2
            entry = {"mean": min(cost.seconds), "spread": half_range, "n": repeats}
            measures[f"seconds{suffix}"][str(count)] = entry
            measures[f"megabytes{suffix}"][str(count)] = {"mean": cost.megabytes, "spread": None, "n": 1}
            measures["parameters"][str(count)] = {"mean": cost.parameters, "spread": None, "n": 1}
    return measures


def tables(content: dict[str, Any]) -> list[Block]:
    """A table with one row per number of layers."""
    measures = content["measures"]
    rows = []
    for layers, parameters in measures["parameters"].items():
        digits = {name: 2 if name.startswith("seconds") else 0 for name in LABELS}
        costs = [f"{measures[name][layers]['mean']:.{count}f}" for name, count in digits.items()]
        rows.append([layers, f"{parameters['mean']:,}", *costs])
    return [Table(["layers", "parameters", *LABELS.values()], rows)]


def made(content: dict[str, Any]) -> str:
    """The sentence below the table in the docs: the command, the preset and how costs were measured."""
    return f"`{content['command']}`, preset `{content['preset']}`: {content['note']}."


def main(out: Path) -> None:
    begin = time.monotonic()
    measures = costs(MODELS["cpu"], LAYERS, repeats=3)
    content = results("conv_costs", "cpu", [0], time.monotonic() - begin, [{}], {})
    content |= {"command": f"python -m tdvae_paper.bench.conv_costs {out}", "measures": measures}
    content["note"] = (
        f"one thread; {TRAIN.batch_size} sequences of {FRAMES} frames, {TRAIN.pairs} pairs each; "
        "processor seconds, the best of 3"
    )
    show(content["note"], tables(content))
    write_results(out / "conv_costs.json", content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
