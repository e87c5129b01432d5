"""Files of strangers: declared sizes, references to other files, forged content. Nothing is read outside or unpacked
without a limit."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from tdvae import InputError
from tdvae.data import Recording
from tdvae.data.recording import Ending, Episode, RecordingWriter
from tdvae.forecasting.reading import read
from tdvae.forecasting.series import Columns
from tdvae.reporting.tables import Table, show
from tdvae.storage import files

X = np.random.default_rng(0).normal(size=(20, 30))
# The highest memory of a script, in MB. Not ru_maxrss, which begins with that of the process that started the script.
PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
"""


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may declare 100 kB, or fifty times its size."""
    monkeypatch.setattr(files, "SMALL_CONTENT", 100_000)


# Sizes


def npz(path: Path) -> None:
    np.savez_compressed(path, x=np.zeros((1000, 1000)))


def gz(path: Path) -> None:
    path.write_bytes(gzip.compress(b"y\n" + b"1\n" * 5_000_000))


def parquet(path: Path) -> None:
    pd.DataFrame({"y": np.zeros(1_000_000)}).to_parquet(path)


def parquet_text(path: Path) -> None:
    pd.DataFrame({"y": np.zeros(1000), "text": ["a" * 1000] * 1000}).to_parquet(path)


def unwritten(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1000, 1000), chunks=(10, 10), dtype=float)


@pytest.mark.parametrize(
    ("name", "make"),
    [("a.npz", npz), ("a.csv.gz", gz), ("a.parquet", parquet), ("a.h5", unwritten)],
    ids=["npz", "gzip", "Parquet", "unwritten chunks of HDF5"],
)
@pytest.mark.usefixtures("small_limit")
def test_a_small_file_with_much_content_is_refused(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / name)
    with pytest.raises(InputError, match=rf"^file: expected at most \d+ MB of .*, got (\d+ MB|more) in .*{name}"):
        read(tmp_path / name)


def test_an_array_that_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("junk.npy", b"no array at all")
    series = read(tmp_path / "a.npz", Columns(values=("x",)))
    assert not isinstance(series, Recording)
    np.testing.assert_array_equal(np.stack(series.x)[..., 0], X)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_header_that_declares_more_than_there_is_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, X)
    path.write_bytes(path.read_bytes().replace(b"(20, 30), }    ", b"(90**9, 30),}  ").replace(b"90**9", b"99999"))
    if ending == "npz":
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.write(path, "x.npy")
        path = tmp_path / "a.npz"
    with pytest.raises(InputError, match=r"^file: expected complete arrays, got one of shape \(99999, 30\)"):
        read(path)


def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    """A gzip file of a few MB with 640 MB of text, which as numbers would take several GB."""
    with gzip.open(tmp_path / "bomb.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"y\n")
        for _ in range(40):
            file.write(b"1\n" * 2**23)
    script = f"""
import tdvae
{PEAK}
try:
    tdvae.prepare({str(tmp_path / "bomb.csv.gz")!r})
except tdvae.InputError as error:
    print(error)
print(int(peak()))
"""
    said, peak = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "MB of text" in said
    assert int(peak) < 800  # of which torch and pandas take about 500


# Other files


def outside(kind: str, folder: Path) -> Path:
    """A file whose x is in another one."""
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = X
    X.tofile(folder / "raw")
    with h5py.File(folder / "a.h5", "w") as file:
        if kind == "external storage":
            file.create_dataset("x", X.shape, X.dtype, external=[(str(folder / "raw"), 0, X.nbytes)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout(X.shape, X.dtype)
            layout[:] = h5py.VirtualSource(folder / "other.h5", "x", X.shape)
            file.create_virtual_dataset("x", layout)
        else:
            file["x"] = h5py.ExternalLink(folder / "other.h5", "x")
    return folder / "a.h5"


@pytest.mark.parametrize("kind", ["external storage", "virtual", "external link"])
def test_hdf5_reads_no_other_file(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^file: expected"):
        read(outside(kind, tmp_path))


def recording(path: Path) -> Path:
    frames = np.zeros((6, 8, 8, 3), dtype=np.uint8)
    with RecordingWriter(path, 8, ["left", "right"], pose=False, about={}) as writer:
        actions = np.array([-1, 0, 1, 0, 1, 0], dtype=np.int16)
        writer.append(Episode(frames, actions, np.zeros(6, dtype=np.float32), None, Ending.CUT))
    return path


@pytest.mark.parametrize("kind", ["external storage", "virtual", "external link"])
def test_the_frames_of_a_recording_are_in_it(kind: str, tmp_path: Path) -> None:
    path = recording(tmp_path / "walk.h5")
    other = outside(kind, tmp_path)
    with h5py.File(path, "r+") as file, h5py.File(other, "r") as source:
        del file["frames"]
        if kind == "external link":
            file["frames"] = h5py.ExternalLink(other, "x")
        else:
            source.copy("x", file, "frames")
    with pytest.raises(InputError, match=r"^file: expected"):
        Recording(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("about", json.dumps(about)) for about in ([1], {}, "text", {"actions": 3}, {"actions": [1]})),
        ("episodes/ending", np.array([7], dtype=np.uint8)),
        ("episodes/length", np.array([], dtype=np.int64)),
        ("frames", np.zeros(3, dtype=np.uint8)),
        ("frames", np.uint8(3)),
    ],
)
def test_forged_content_of_a_recording_is_refused(name: str, content: Any, tmp_path: Path) -> None:
    path = recording(tmp_path / "walk.h5")
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = content
    with pytest.raises(InputError, match=r"^file: expected .*walk\.h5"):
        Recording(path)


# Names


def test_a_long_heading_and_many_columns(tmp_path: Path) -> None:
    name = "a" * 200_000
    (tmp_path / "a.csv").write_text(f"{name},y\n1.5,2.5\n3.5,4\n")
    series = read(tmp_path / "a.csv")
    assert series.columns.values == (name, "y")  # type: ignore[union-attr]
    names = [f"c{number}" for number in range(20_000)]
    row = ",".join(map(str, range(20_000)))
    (tmp_path / "b.csv").write_text(f"{','.join(names)}\n{row}\n{row}\n")
    assert read(tmp_path / "b.csv").columns.values == tuple(names)  # type: ignore[union-attr]
    names[-1] = "c7"
    (tmp_path / "c.csv").write_text(f"{','.join(names)}\n{row}\n{row}\n")
    with pytest.raises(InputError, match=r"'c7' twice"):
        read(tmp_path / "c.csv")


def test_names_that_look_like_markup_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show("a table of [/b]", [Table(["", "[bold]"], [["[/b]", "1"]]), "[/i] as text"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("[/b]", "[bold]", "[/i]"))


# Memory


@pytest.mark.parametrize("shape", [(2_000_000,), (20_000, 100), (200, 1000, 10)], ids=str)
def test_preparation_takes_about_as_much_memory_again_as_the_data(shape: tuple[int, ...]) -> None:
    """16 MB of doubles; what remains are 8 MB of floats."""
    script = f"""
import numpy as np, pandas, tdvae
{PEAK}
tdvae.prepare(np.random.default_rng(0).normal(size=(300, 20)).cumsum(1), longest_jump=5)
rng = np.random.default_rng(0)
x = rng.normal(size={shape})
parts = {{}}
before = peak()
data = tdvae.prepare(x, longest_jump=5)
print(peak() - before, x.nbytes / 2**20)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    added, size = map(float, answer.split())
    assert added < 1.5 * size + 25
