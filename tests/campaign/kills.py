"""SIGKILL at random moments of a training, and at each of its calls that change files; then resume until the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tdvae.storage import RunFolder
from tests.campaign import subjects
from tests.campaign.outcome import Outcome, Tally, in_process

CHANGES = ("replace", "rename", "fsync", "mkdir", "unlink", "open")  # functions of `os` to be killed at
MOST_KILLS = 4  # of one training; then it may end
LIMIT = 60.0


def run(tally: Tally, kills: int, generator: random.Random, folder: Path) -> None:
    reference = folder / "reference"
    begin = time.monotonic()
    _, code = in_process(LIMIT, lambda: subjects.train(reference, resume=False))
    assert code == 0, "the training without faults failed"
    seconds = time.monotonic() - begin
    expected = in_process(LIMIT, lambda: _end(reference))[0]
    done = number = 0
    while done < kills:
        number += 1
        run_dir = folder / f"killed-{number}"
        killed, outcome, description = _kill_and_resume(run_dir, seconds, expected, generator)
        tally.add(outcome, f"training {number}: {description}", max(1, killed) if outcome != "right" else killed)
        done += killed
        shutil.rmtree(run_dir, ignore_errors=True)


def _end(run_dir: Path) -> list[Any]:
    return [subjects.end_of_training(run_dir), subjects.weights_of_load(run_dir)]


def _kill_and_resume(
    run_dir: Path, seconds: float, expected: Any, generator: random.Random
) -> tuple[int, Outcome, str]:
    killed, moments = 0, []
    for attempt in range(100):
        resume = RunFolder(run_dir).has_run
        delay, kill_at = None, None
        if killed < MOST_KILLS and attempt < 2 * MOST_KILLS:
            if generator.random() < 0.5:
                delay = generator.uniform(0, seconds)
            else:
                kill_at = (generator.choice(CHANGES), generator.randint(1, 12))
        moments.append(f"{delay:.2f} s" if delay is not None else str(kill_at))
        _, code = in_process(LIMIT, _training(run_dir, resume, kill_at), delay)
        if code == -signal.SIGKILL:
            killed += 1
        elif code is None:
            return killed, "hang", f"killed at {moments}"
        elif code != 0:
            return killed, "foreign", f"killed at {moments}, then the training failed"
        elif delay is None and kill_at is None:
            break
        else:
            break  # it ended before the moment of the kill
    found, _ = in_process(LIMIT, lambda: _end(run_dir))
    return killed, "right" if found == expected else "silent", f"killed at {moments}, ended with {found}"


def _training(run_dir: Path, resume: bool, kill_at: tuple[str, int] | None) -> Callable[[], None]:
    def work() -> None:
        if kill_at is not None:
            name, count = kill_at
            original, calls = getattr(os, name), 0

            def counted(*args: Any, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                before = calls == count and count % 2  # the last call may still take effect
                if before:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = original(*args, **kwargs)
                if calls == count:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            setattr(os, name, counted)
        subjects.train(run_dir, resume)

    return work
