"""Files of strangers: runs whose config was forged, files that unpack to far more than they hold, files that refer to
other files, recordings with forged content. None may be read outside of itself or take much memory."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

import tdvae
from tdvae.data.recording import Ending, Episode, Recording, RecordingWriter
from tdvae.forecasting.reading import read
from tdvae.storage.files import CHECKSUM, checksum, to_json
from tests.campaign import subjects
from tests.campaign.outcome import Outcome, Tally, children_peak, in_process, limited, run_blocks

LIMIT, BLOCK = 20.0, 50
MOST_MEMORY = 1_000  # MB, of which the libraries take about 500
CANARY = 777.0  # a number that is only in files outside of those that are read
NUMBERS = (0, -1, 3, 10**9, 10**30, 0.5, 1e308)
TEXTS = ("", "x", "[/b]", "../../run", "/etc/passwd")
VALUES: tuple[Any, ...] = (None, True, *NUMBERS, *TEXTS, [], [1], ["x"], {})


def run_forged(tally: Tally, cases: int, generator: random.Random, folder: Path) -> None:
    """A value of the info of a run is replaced, and the checksum is right: refused, or forecasts are finite."""
    folder.mkdir()
    _, code = in_process(60.0, lambda: subjects.fit_series(folder / "fitted", resume=False))
    assert code == 0, "the fit without faults failed"
    seeds = [generator.getrandbits(32) for _ in range(cases)]
    blocks = [seeds[start : start + BLOCK] for start in range(0, cases, BLOCK)]
    run_blocks(tally, [partial(_forged_runs, folder, block) for block in blocks], BLOCK * LIMIT)


def _forged_runs(folder: Path, seeds: list[int]) -> list[tuple[Outcome, str]]:
    return [_forged(folder, seed) for seed in seeds]


def _forged(folder: Path, seed: int) -> tuple[Outcome, str]:
    generator, run = random.Random(seed), folder / "case"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(folder / "fitted", run)
    config = json.loads((run / "config.json").read_text())
    del config[CHECKSUM]
    what = forge(config["info"], generator)
    (run / "config.json").write_bytes(to_json({**config, CHECKSUM: checksum(config)}))

    def use() -> Outcome:
        forecasts = tdvae.Forecaster.load(run).forecast(subjects.series(), [1, 3])
        return "right" if np.isfinite(forecasts.quantiles).all() else "silent"

    outcome, description = limited(LIMIT, use)
    return outcome, f"forged {what}: {description}"


def forge(value: Any, generator: random.Random) -> str:
    """Replace one value somewhere inside of a JSON object; returns where and by what."""
    path = []
    while True:
        key = generator.choice(sorted(value)) if isinstance(value, dict) else generator.randrange(len(value))
        path.append(str(key))
        if not (isinstance(value[key], dict | list) and value[key]) or generator.random() < 0.2:
            break
        value = value[key]
    value[key] = generator.choice(VALUES)
    return f"{'/'.join(path)} = {value[key]!r}"


def run_files(tally: Tally, cases: int, generator: random.Random, folder: Path) -> None:
    """Each file in a process of its own, whose peak of memory counts."""
    folder.mkdir()
    for _ in range(cases):
        kind = generator.choice(sorted(FILES))
        work = folder / "case"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        path, before = FILES[kind](work, generator), children_peak()
        result, code = in_process(60.0, partial(_use, path))
        if result is None:
            tally.add("hang" if code is None else "foreign", f"{kind}: the process ended with {code}")
            continue
        outcome, description, outside = result
        tally.outside_reads += outside
        grown = children_peak() > max(before, MOST_MEMORY)
        tally.add("silent" if outside or grown else outcome, f"{kind}: {description}, {children_peak()} MB")


def _use(path: Path) -> tuple[Outcome, str, bool]:
    """Read a file: its outcome, the error, and whether it gave what is only in another file."""
    found: list[bool] = []

    def use() -> Outcome:
        series = read(path)
        if isinstance(series, Recording):
            found.append(bool((series.frames(0, len(series)) == CANARY % 256).all()))
            series.episode(0)
        else:
            found.append(any((part == CANARY).any() for part in series.x))
        return "right"

    outcome, description = limited(60.0, use)
    return outcome, description, any(found)


# The files


def _packed(folder: Path, generator: random.Random) -> Path:
    ending, pack = generator.choice((("gz", partial(gzip.compress, compresslevel=1)), ("bz2", bz2.compress)))
    line = generator.choice((b"1\n", b"1.5,\n", b"text\n", b"\n"))
    count = 2 ** generator.randint(24, 27) // len(line)
    path = folder / f"a.csv.{ending}"
    path.write_bytes(pack(b"y\n" + line * count))
    return path


def _zeros(folder: Path, generator: random.Random) -> Path:
    """Arrays that are stored in a small part of their size."""
    size = 2 ** generator.randint(24, 27) // 8
    path = folder / generator.choice(("a.npz", "b.npz", "a.h5", "a.parquet"))
    if path.name == "b.npz":  # an array that is not asked for
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("junk.npy", bytes(8 * size))
        return path
    if path.suffix == ".npz":
        np.savez_compressed(path, x=np.zeros((size // 8, 8)))
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", (size * 2 ** generator.randint(0, 20), 8), float, chunks=(64, 8))
    else:
        pd.DataFrame({"y": np.zeros(size)}).to_parquet(path)
    return path


def _refers(folder: Path, generator: random.Random) -> Path:
    """x is in another file: by external storage, a virtual data set, or a link."""
    x = np.full((10, 12), CANARY)
    x.tofile(folder / "raw")
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = x
    kind = generator.choice(("external", "virtual", "link", "soft link"))
    with h5py.File(folder / "a.h5", "w") as file:
        if kind == "external":
            file.create_dataset("x", x.shape, x.dtype, external=[(str(folder / "raw"), 0, x.nbytes)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout(x.shape, x.dtype)
            layout[:] = h5py.VirtualSource(folder / "other.h5", "x", x.shape)
            file.create_virtual_dataset("x", layout)
        else:
            file["x"] = h5py.ExternalLink("other.h5", "x") if kind == "link" else h5py.SoftLink("/y")
    return folder / "a.h5"


def _recording(folder: Path, generator: random.Random) -> Path:
    """A recording of which one data set is missing, forged or elsewhere."""
    path, frames = folder / "walk.h5", np.zeros((6, 8, 8, 3), dtype=np.uint8)
    with RecordingWriter(path, 8, ["left", "right"], pose=False, about={}) as writer:
        actions = np.array([-1, 0, 1, 0, 1, 0], dtype=np.int16)
        writer.append(Episode(frames, actions, np.zeros(6, dtype=np.float32), None, Ending.CUT))
    with h5py.File(folder / "other.h5", "w") as file:
        file["frames"] = np.full_like(frames, CANARY % 256)
    names = ("frames", "actions", "rewards", "about", *(f"episodes/{each}" for each in ("start", "length", "ending")))
    name = generator.choice(names)
    with h5py.File(path, "r+") as file:
        del file[name]
        forged = generator.choice(
            (None, "link", "[1]", "{}", 7, [7], np.zeros(0), np.full(6, -1), np.full((6, 6), np.nan))
        )
        if forged is not None:
            file[name] = (
                h5py.ExternalLink("other.h5", "frames") if isinstance(forged, str) and forged == "link" else forged
            )
    return path


FILES: dict[str, Callable[[Path, random.Random], Path]] = {
    "packed text": _packed,
    "packed arrays": _zeros,
    "a reference": _refers,
    "a recording": _recording,
}
