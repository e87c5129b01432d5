"""Damaged files of a run, of the shipped weights and of data: each use must give the same result or a clear error."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from tdvae import saved
from tdvae.data import from_npz
from tdvae.forecasting.forecaster import DATA_FILE
from tdvae.storage import RunFolder
from tests.campaign import subjects
from tests.campaign.outcome import Outcome, Tally, in_process, limited, run_blocks

BLOCK = 100
LIMIT = 20.0
USES = (*["load"] * 6, *["resume", "shipped", "data"] * 2, *["forecast"] * 5, "fit again")


def run(tally: Tally, files: int, generator: random.Random, folder: Path) -> None:
    _, code = in_process(60.0, lambda: _prepare(folder))
    assert code == 0, "the training without faults failed"
    seeds = [generator.getrandbits(32) for _ in range(files)]
    blocks = [seeds[start : start + BLOCK] for start in range(0, files, BLOCK)]
    run_blocks(tally, [partial(_cases, folder, block) for block in blocks], seconds=BLOCK * LIMIT)


def _prepare(folder: Path) -> None:
    subjects.train(folder / "run", resume=False)
    subjects.fit_series(folder / "fitted", resume=False)
    subjects.arrays(folder / "data.npz")
    shutil.copytree(saved.WEIGHTS / "oscillator", folder / "shelf" / "oscillator")


def _cases(folder: Path, seeds: list[int]) -> list[tuple[Outcome, str]]:
    expected = Expected(folder)
    return [_case(folder, expected, random.Random(seed)) for seed in seeds]


class Expected:
    """The results of the undamaged files."""

    def __init__(self, folder: Path) -> None:
        self.loaded = subjects.weights_of_load(folder / "run")
        self.config = RunFolder(folder / "run").read_config()
        self.forecast = subjects.forecast(folder / "fitted")
        self.end = subjects.end_of_training(folder / "run")
        self.data = from_npz(folder / "data.npz").x
        saved.WEIGHTS = folder / "shelf"
        self.shipped = subjects.digest(saved.load("oscillator").state_dict())


def _case(folder: Path, expected: Expected, generator: random.Random) -> tuple[Outcome, str]:
    use = generator.choice(USES)
    work = folder / "case"
    shutil.rmtree(work, ignore_errors=True)
    fitted = use in ("forecast", "fit again")
    source = {"shipped": folder / "shelf", "data": folder / "data.npz"}.get(
        use, folder / ("fitted" if fitted else "run")
    )
    shutil.copytree(source, work) if source.is_dir() else (work.mkdir(), shutil.copy(source, work))  # type: ignore[func-returns-value]
    if fitted and generator.random() < 0.5:
        path = work / DATA_FILE
    else:
        path = generator.choice(sorted(p for p in work.rglob("*") if p.is_file() and p.name != ".lock"))
    what = damage(path, generator)
    uses: dict[str, Callable[[], Outcome]] = {
        "load": lambda: _load(work, expected),
        "resume": lambda: _resume(work, expected),
        "shipped": lambda: _shipped(work, expected),
        "data": lambda: _data(work / "data.npz", expected),
        "forecast": lambda: "right" if subjects.forecast(work) == expected.forecast else "silent",
        "fit again": lambda: _fit_again(work, expected),
    }
    outcome, description = limited(LIMIT, uses[use])
    return outcome, f"{use} after {what} of {path.relative_to(work)}: {description}"


def damage(path: Path, generator: random.Random) -> str:
    """Damage a file in one of many ways; returns which."""
    content = bytearray(path.read_bytes())
    position = generator.randrange(max(1, len(content)))
    kind = generator.choice(
        ("flip", "flip", "flip", "digit", "cut", "zeros", "append", "empty", "remove", "folder", "link", "pipe", "text")
    )
    if kind == "flip":
        content[position] ^= 1 << generator.randrange(8)
    elif kind == "digit":  # another digit in the place of one: JSON stays valid
        digits = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
        if digits:
            position = generator.choice(digits)
            content[position] = 48 + (content[position] - 48 + generator.randrange(1, 10)) % 10
    elif kind == "cut":
        del content[position:]
    elif kind == "zeros":
        content[position : position + 64] = bytes(len(content[position : position + 64]))
    elif kind == "append":
        content += generator.randbytes(50)
    elif kind == "empty":
        content.clear()
    elif kind == "text":
        content = bytearray(b"[" * generator.choice((1, 100_000)))
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "remove":
        path.write_bytes(bytes(content))
    return f"{kind} at {position}"


def _load(run_dir: Path, expected: Expected) -> Outcome:
    same = subjects.weights_of_load(run_dir) == expected.loaded and RunFolder(run_dir).read_config() == expected.config
    return "right" if same else "silent"


def _resume(run_dir: Path, expected: Expected) -> Outcome:
    """The end must be the same. If not, as after the loss of the best weights or of the log, it must be said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        subjects.train(run_dir, resume=True)
    if subjects.end_of_training(run_dir) == expected.end and subjects.weights_of_load(run_dir) == expected.loaded:
        return "right"
    return "clear" if "warning: " in said.getvalue() else "silent"


def _fit_again(run_dir: Path, expected: Expected) -> Outcome:
    """A resumed run writes its part of the data again. Other weights than before must be said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        subjects.fit_series(run_dir, resume=True)
    if subjects.forecast(run_dir) == expected.forecast:
        return "right"
    return "clear" if "warning: " in said.getvalue() else "silent"


def _shipped(shelf: Path, expected: Expected) -> Outcome:
    saved.WEIGHTS = shelf
    return "right" if subjects.digest(saved.load("oscillator").state_dict()) == expected.shipped else "silent"


def _data(path: Path, expected: Expected) -> Outcome:
    return "right" if np.array_equal(from_npz(path).x.numpy(), expected.data.numpy()) else "silent"
