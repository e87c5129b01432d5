"""Speed of training with two processes against one, by batch size, and what keeps it below twice the speed.

`measure` starts two processes with torchrun; each runs `main` of this module. The first process times steps with the
whole batch and with half of it while the other waits. Then both time steps with half of the batch each, with and
without the exchange of gradients. All times of a repeat are taken in turn, so that other load affects them equally.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from tdvae.data import from_arrays
from tdvae.errors import TDVAEError
from tdvae.jumps import Uniform
from tdvae.models import LSTM, GatedMaps, Gaussian, TDVAEConfig, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, cell
from tdvae.training.config import TrainConfig, make_optimizers
from tdvae.training.loop import TensorLearner
from tdvae_paper.timing import median_and_range, seconds

PROCESSES = 2
BATCHES = (128, 256)  # sequences of one step, for all processes together
HORIZON, PAIRS, STEPS = 60, 16, 3  # STEPS: per timing
LABELS = {
    "steps_per_second_1": "steps per second, 1 process",
    f"steps_per_second_{PROCESSES}": f"steps per second, {PROCESSES} processes",
    "device_speedup": f"{PROCESSES} processes / 1",
    "device_speedup_without_exchange": "… without exchange of gradients",
    "half_batch_speedup": "1 process: whole batch / half of it",
    "communication_share": "share of communication",
}
MODEL = TDVAEConfig(event_shape=(4,), belief=LSTM(256), maps=GatedMaps(256), latent=32, decoder=Gaussian((256, 256)))


def measure(repeats: int) -> Measures:
    """By batch size: steps per second of one and of two processes, their ratio, and what is lost to what."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        launched = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}"]
            + ["-m", "tdvae_paper.bench.devices", str(repeats), str(out)],
            env={"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", **os.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        if launched.returncode:
            raise TDVAEError(f"torchrun: expected {PROCESSES} processes to run, got: {launched.stderr[-500:]}")
        times: dict[str, list[dict[str, float]]] = json.loads(out.read_text())
    measures: Measures = {}
    for batch, repeated in times.items():
        for name, value in {
            "steps_per_second_1": lambda one: STEPS / one["whole"],
            f"steps_per_second_{PROCESSES}": lambda one: STEPS / one["together"],
            "device_speedup": lambda one: one["whole"] / one["together"],
            "device_speedup_without_exchange": lambda one: one["whole"] / one["without_exchange"],
            "half_batch_speedup": lambda one: one["whole"] / one["half"],
            "communication_share": lambda one: 1 - one["without_exchange"] / one["together"],
        }.items():
            measures.setdefault(name, {})[batch] = median_and_range([value(one) for one in repeated])
    return measures


def tables(content: dict[str, Any]) -> list[Block]:
    """A table with one row per batch size."""
    measures = content["measures"]
    batches = measures["device_speedup"]
    rows = [[batch, *[cell(measures[name][batch]) for name in LABELS]] for batch in batches]
    return [Table(["batch size", *LABELS.values()], rows)]


def made(content: dict[str, Any]) -> str:
    """The sentence below the table in the docs: the command and how times were measured."""
    return f"`{content['command']}`; {content['note']}."


def main(repeats: int, out: Path) -> None:
    """Time the steps in one of the processes. The first one writes the seconds of each repeat to ``out``."""
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=PROCESSES)
    fabric.launch()
    times = {batch: _times(fabric, batch, repeats) for batch in BATCHES}
    if fabric.is_global_zero:
        out.write_text(json.dumps(times))
    fabric.barrier()


def _times(fabric: Fabric, batch: int, repeats: int) -> list[dict[str, float]]:
    """The seconds of each way to take the steps, once per repeat."""
    exchanging = _steps(fabric, batch // PROCESSES)
    work: dict[str, Callable[[], None]] = {
        "together": lambda: exchanging(True),
        "without_exchange": lambda: exchanging(False),
    }
    if fabric.is_global_zero:  # the others wait at the barriers
        single = Fabric(accelerator="cpu", devices=1)
        whole, half = _steps(single, batch), _steps(single, batch // PROCESSES)
        work |= {"whole": lambda: whole(True), "half": lambda: half(True)}
    times = []
    for _ in range(repeats + 1):  # the first one warms up
        taken: dict[str, float] = {}
        for name in ("whole", "half", "together", "without_exchange"):
            fabric.barrier()
            if name in work:
                taken[name] = seconds(work[name])
        times.append(taken)
    return times[1:]


def _steps(fabric: Fabric, batch_size: int) -> Callable[[bool], None]:
    """A function that takes some training steps, with or without the exchange of gradients."""
    torch.manual_seed(0)
    learner = Learner(build(MODEL))
    module, *optimizers = fabric.setup(TensorLearner(learner), *make_optimizers(TrainConfig(), learner))
    batch = from_arrays(torch.randn(batch_size, HORIZON, 4))
    pairs = Uniform(1, 20).sample(batch.lengths, PAIRS, torch.Generator().manual_seed(0))

    def take(sync: bool) -> None:
        for _ in range(STEPS):
            with nullcontext() if sync else fabric.no_backward_sync(module):
                loss, _ = module(batch.named(), vars(pairs))
                learner.zero_grad()
                fabric.backward(loss)
            learner.clip_gradients(10.0)
            for optimizer in optimizers:
                optimizer.step()

    return take


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
