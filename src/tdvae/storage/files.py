"""Single files: atomic writing, reading with limits, JSON with a checksum."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from tdvae.errors import CheckpointError, InputError

MAX_JSON_BYTES = 64 * 2**20
SMALL_CONTENT = 256 * 2**20  # bytes that a file may declare or unpack to, whatever its own size
MOST_EXPANSION = 50  # times its own size that the content of a larger file may have; honest tables are below 30
CHECKSUM = "sha256"  # key of the checksum in a JSON file

# Not every system has these flags. O_NONBLOCK: opening a FIFO must not wait for a writer.
_NO_FOLLOW, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically: ``path`` holds either the old or the complete new content.

    A symbolic link in the place of ``path``, or of the temporary file, is replaced and not followed.
    """
    temporary = temporary_path(path)
    with naming(path):
        try:
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o666), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except IsADirectoryError as error:
            remove(temporary)
            raise InputError(f"{path}: expected a file or nothing in its place, got a folder; remove it") from error
        except OSError:
            remove(temporary)
            raise


def temporary_path(path: Path) -> Path:
    """Where a file or folder is written before it is renamed to ``path``."""
    return path.with_name(f".{path.name}.tmp")


def append_to(path: Path) -> BinaryIO:
    """Open a regular file to append to it."""
    with naming(path):
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_FOLLOW, 0o666), "ab")


@contextmanager
def open_regular(path: Path, follow: bool) -> Iterator[BufferedReader]:
    """Open a regular file to read it. Other files are refused: FIFOs and devices may have no end.

    With ``follow``, ``path`` may be a symbolic link.
    """
    with naming(path), os.fdopen(os.open(path, os.O_RDONLY | _NO_WAIT | (0 if follow else _NO_FOLLOW)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InputError(f"file: expected a regular file, got {path}, which is a folder, a device or a pipe")
        yield file


def read_file(path: Path, most: int) -> bytes:
    """Read a file of a run folder, of at most ``most`` bytes."""
    with open_regular(path, follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise InputError(f"file: expected at most {most} bytes, got {size} in {path}")
        return file.read(size)


def most_content(path: Path) -> int:
    """How many bytes the content of a file may have: compressed or sparse files can declare far more than they hold."""
    return max(SMALL_CONTENT, MOST_EXPANSION * os.stat(path).st_size)


def check_content(path: Path, size: int, what: str = "content") -> None:
    """Raise if a file declares more content than `most_content`. Called before the content is read."""
    if size > (most := most_content(path)):
        raise InputError(
            f"file: expected at most {most / 2**20:,.0f} MB of {what} in a file of {os.stat(path).st_size:,} bytes, "
            f"got {size / 2**20:,.0f} MB in {path}"
        )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a regular file, which may be a symbolic link."""
    with open_regular(path, follow=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """Read a JSON file of limited size. A damaged file is a CheckpointError, a missing one an OSError."""
    try:
        return json.loads(read_file(path, MAX_JSON_BYTES), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # an InputError is a ValueError
        raise CheckpointError(f"{path}: damaged, expected JSON as this library writes it ({error})") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def checksum(body: dict[str, Any]) -> str:
    """The SHA-256 of JSON content, whatever its order and white space."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def write_checked(path: Path, body: dict[str, Any]) -> None:
    """Write a JSON object together with its checksum."""
    body = json.loads(to_json(body))  # as it will be read: keys are text, tuples are lists
    write_file(path, to_json({**body, CHECKSUM: checksum(body)}))


def read_checked(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """Read a JSON object with some of the ``keys`` and verify its checksum. Files of earlier versions have none."""
    body = read_json(path)
    if not isinstance(body, dict):
        raise CheckpointError(f"{path}: damaged, expected a JSON object, got {type(body).__name__}")
    expected = body.pop(CHECKSUM, None)
    if expected is None and body.keys() <= set(keys):
        return body
    if expected != checksum(body):
        raise CheckpointError(f"{path}: damaged or edited, its content does not match its checksum")
    return body


def remove(path: Path) -> None:
    """Remove a file, a symbolic link or a folder with all its content; nothing if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_path(name: str, path: Path) -> None:
    """Raise if the system would not take the path."""
    if "\x00" in str(path):
        raise InputError(f"{name}: expected a path without null characters, got {str(path)!r}")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to errors of the operating system that do not name a file, such as those of a full disk."""
    check_path("file", path)
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
