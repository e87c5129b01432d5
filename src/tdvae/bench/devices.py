"""Speed of training with two processes against one, and the part of it that communication takes.

`measure` starts two processes with torchrun; each runs `main` of this module. The first process times steps with the
whole batch alone while the other waits, then both time steps with half of the batch each. All times of a repeat are
taken in turn, so that other load affects them equally.
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

import torch
from lightning_fabric import Fabric

from tdvae.data import from_arrays
from tdvae.errors import TDVAEError
from tdvae.jumps import Uniform
from tdvae.models import TDVAEConfig, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.timing import median_and_range, seconds
from tdvae.training.config import TrainConfig, make_optimizers
from tdvae.training.loop import TensorLearner

PROCESSES = 2
BATCH, HORIZON, PAIRS, STEPS = 128, 60, 16, 3  # STEPS: per timing
MODEL = TDVAEConfig(event_shape=(4,), belief=256, hidden=256, latent=32, decoder=(256, 256))


def measure(repeats: int) -> Measures:
    """Steps per second of one and of two processes, the ratio, and the share of a step that communication takes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        launched = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}"]
            + ["-m", "tdvae.bench.devices", str(repeats), str(out)],
            env={"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", **os.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        if launched.returncode:
            raise TDVAEError(f"torchrun: expected {PROCESSES} processes to run, got: {launched.stderr[-500:]}")
        times: list[dict[str, float]] = json.loads(out.read_text())
    return {
        "steps_per_second": {
            "1": median_and_range([STEPS / one["alone"] for one in times]),
            str(PROCESSES): median_and_range([STEPS / one["together"] for one in times]),
        },
        "device_speedup": median_and_range([one["alone"] / one["together"] for one in times]),
        "communication_share": median_and_range([1 - one["without_sync"] / one["together"] for one in times]),
    }


def main(repeats: int, out: Path) -> None:
    """Time the steps in one of the processes. The first one writes the seconds of each repeat to ``out``."""
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=PROCESSES)
    fabric.launch()
    whole = _steps(Fabric(accelerator="cpu", devices=1), BATCH) if fabric.is_global_zero else None
    shared = _steps(fabric, BATCH // PROCESSES)
    times = []
    for _ in range(repeats + 1):  # the first one warms up
        fabric.barrier()
        alone = seconds(lambda: whole(True)) if whole is not None else 0.0
        fabric.barrier()
        together = seconds(lambda: shared(True))
        fabric.barrier()
        times.append({"alone": alone, "together": together, "without_sync": seconds(lambda: shared(False))})
    if fabric.is_global_zero:
        out.write_text(json.dumps(times[1:]))
    fabric.barrier()


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
                loss, _ = module(batch.named(), pairs.t1, pairs.t2)
                learner.zero_grad()
                fabric.backward(loss)
            learner.clip_gradients(10.0)
            for optimizer in optimizers:
                optimizer.step()

    return take


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
