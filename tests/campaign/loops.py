"""What goes on for long or side by side: online beliefs, threads with seeds, and workers whose parent is ended."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tdvae
from tdvae.models import LSTM, GatedMaps, Gaussian, LinearRecurrence, NextStepConfig, build
from tests.campaign import subjects
from tests.campaign.outcome import Outcome, Tally, in_process

UPDATES, MOST_GROWTH = 100_000, 10.0  # MB
WARM_UP = 2_000  # updates, in which the allocator takes what it keeps
LIMIT = 120.0
SLEEPERS = """
import os, sys, time
from pathlib import Path
from tdvae.__main__ import end_by_sigterm
from tdvae_paper import jobs

def train(run_dir, resume, progress):
    Path(run_dir).mkdir()
    Path(run_dir, str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    end_by_sigterm()
    jobs._usable_cores = lambda: 2
    jobs.run_jobs([jobs.Job(Path(name), train, train, False, "none") for name in sys.argv[1:]])
"""


def run_online(tally: Tally, cases: int, generator: random.Random, folder: Path) -> None:
    """Beliefs that are updated for long take no more memory."""
    for number in range(cases):
        seed = generator.getrandbits(32)
        result, code = in_process(LIMIT, partial(_online, number % 3, seed))
        description = f"{UPDATES:,} updates of model {number % 3}: {result if code == 0 else f'ended with {code}'} MB"
        outcome: Outcome = "hang" if code is None else "foreign" if code else "right"
        tally.add("silent" if code == 0 and result > MOST_GROWTH else outcome, description)


def _online(number: int, seed: int) -> float:
    """How many MB the process grows by."""
    parts: dict[str, Any] = {"belief": LSTM(8), "decoder": Gaussian((8,))}
    latent = {**parts, "layers": 1, "latent": 2, "maps": GatedMaps(8)}
    linear = {**latent, "belief": LinearRecurrence(8), "state": "observed"}
    configs = (tdvae.TDVAEConfig(**latent), tdvae.TDVAEConfig(**linear), NextStepConfig(**parts))
    torch.manual_seed(seed)
    model = build(configs[number])
    belief, x = model.initial(1), torch.randn(64, 1, 1)
    for step in range(UPDATES):
        if step == WARM_UP:
            before = _megabytes()
        belief = model.update(belief, x[step % 64])
    return _megabytes() - before


def _megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def run_threads(tally: Tally, cases: int, generator: random.Random, folder: Path) -> None:
    """Forecasts of several threads are those of their seeds."""
    _, code = in_process(60.0, lambda: subjects.fit_series(folder / "fitted", resume=False))
    assert code == 0, "the fit without faults failed"
    result, code = in_process(
        LIMIT, partial(_threads, folder / "fitted", [generator.randrange(100) for _ in range(cases)])
    )
    for same in result or [False] * cases:
        tally.add("right" if same else "silent" if code == 0 else "foreign", f"forecasts in threads, ended with {code}")


def _threads(run: Path, seeds: list[int]) -> list[bool]:
    forecaster = tdvae.Forecaster.load(run)

    def forecast(seed: int) -> Any:
        return forecaster.forecast(subjects.series(), [1, 3], samples=2, seed=seed).samples

    alone = [forecast(seed) for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        return [bool(np.array_equal(*both)) for both in zip(alone, pool.map(forecast, seeds), strict=True)]


def run_workers(tally: Tally, cases: int, generator: random.Random, folder: Path) -> None:
    """The main process of several trainings is ended at a random moment; no worker goes on."""
    folder.mkdir()
    (folder / "sleepers.py").write_text(SLEEPERS)
    for number in range(cases):
        end = generator.choice((signal.SIGTERM, signal.SIGKILL, signal.SIGINT))
        runs = [folder / f"{number}-{each}" for each in range(2)]
        parent = subprocess.Popen(
            [sys.executable, str(folder / "sleepers.py"), *map(str, runs)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # A shell lets what it starts in the background ignore SIGINT, and children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        until = time.monotonic() + LIMIT
        while not all(run.is_dir() and any(run.iterdir()) for run in runs) and time.monotonic() < until:
            time.sleep(generator.uniform(0.05, 0.5))
        parent.send_signal(end)
        try:
            parent.communicate(timeout=LIMIT)  # until the last process that holds the pipe has ended
            outcome: Outcome = "right"
        except subprocess.TimeoutExpired:
            outcome = "hang"
        alive = (
            [pid for run in runs for pid in os.listdir(run) if Path("/proc", pid).exists()] if outcome == "hang" else []
        )
        for pid in alive:
            os.kill(int(pid), signal.SIGKILL)
        tally.orphans += len(alive)
        tally.add("silent" if alive else outcome, f"{end.name}: {len(alive)} workers went on")
