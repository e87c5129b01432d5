"""A run folder: config.json, metrics.jsonl, checkpoints/, and a lock while a process writes to it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tdvae.errors import CheckpointError, InputError
from tdvae.storage import checkpoint, files
from tdvae.storage.checkpoint import Checkpoint

try:
    import fcntl
except ImportError:  # Windows has no such locks; two processes on one folder are not detected there
    fcntl = None  # type: ignore[assignment]

CONFIG, METRICS, LOCK = "config.json", "metrics.jsonl", ".lock"
FILES = "files"  # key of the checksums of further files in config.json
FORMAT = "tdvae-run-2"
RUN_FILES = (CONFIG, METRICS, LOCK, "data.safetensors", "linear.safetensors", "results.json", "forecasts.png")
RUN_FOLDERS = ("checkpoints", "tensorboard", "networks")
CONFIG_KEYS = ("format", "model", "objective", "data", "train", "jumps", "info")
MAX_METRICS_BYTES, MAX_FILE_BYTES = 2**30, 16 * 2**30


def is_started(folder: Path) -> bool:
    """Whether there is something to resume: a run, or one inside of the folder, as experiments and fits have them."""
    return any(folder.rglob(CONFIG))


class RunFolder:
    """The files of one run. Reading needs no lock; `use` locks the folder for a process that writes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    # Starting and resuming

    @contextmanager
    def use(self, resume: bool) -> Iterator[None]:
        """Create or open the folder and lock it. The system releases the lock when the process ends, even if killed.

        Without ``resume`` the folder must be unused, with ``resume`` it must have a run.
        """
        if resume:
            if not self.has_run:
                raise InputError(
                    f"run_dir: expected a run to resume, got {self.path}, which has none; start without resume"
                )
        else:
            check_unused(self.path)
        create(self.path)
        with locked(self.path):
            if not resume:
                check_unused(self.path)  # another process may have started a run since
            yield

    @property
    def has_run(self) -> bool:
        return (self.path / CONFIG).is_file()

    def inside(self, *names: str) -> Path:
        """The path of a part of the run; names and links that lead out of the folder are refused."""
        path = self.path.joinpath(*names)
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise InputError(f"run: expected a folder inside of {self.path}, got {path}")
        return path

    # Config

    def write_config(self, config: dict[str, Any], further: Mapping[str, bytes] | None = None) -> None:
        """Write config.json with a checksum, and then the ``further`` files of the run, whose checksums it holds.

        A run exists from the moment at which config.json is there. If the process is killed before the other files are
        there, they are written when the run is resumed.
        """
        further = further or {}
        for name in further:
            _check_name(name)
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in further.items()}
        config = {"format": FORMAT, **config}
        files.write_checked(self.path / CONFIG, {**config, FILES: sums} if sums else config)
        for name, content in further.items():
            self.write_file(name, content)

    def read_config(self) -> dict[str, Any]:
        """Read config.json and verify its checksum."""
        if runs := sorted(str(config.parent) for config in self.path.glob(f"*/{CONFIG}")):
            raise InputError(
                f"run: expected a run folder, got {self.path}, which contains runs; choose one: {', '.join(runs)}"
            )
        try:
            config = files.read_checked(self.path / CONFIG, CONFIG_KEYS)
        except OSError as error:
            raise InputError(
                f"run: expected a run folder, got {self.path} without a readable {CONFIG} ({error.strerror})"
            ) from error
        if not (isinstance(config.get("model"), dict) and isinstance(config.get("info"), dict)):
            raise InputError(f"run: expected a {CONFIG} of this library, got {self.path / CONFIG}")
        if (written := config.pop("format", None)) != FORMAT:
            raise InputError(
                f"run: expected the format {FORMAT!r}, got {written!r} in {self.path / CONFIG}, a run of another "
                "version of tdvae; train it again, or open it with that version"
            )
        return config

    # Further files

    def copy_from(self, other: RunFolder) -> None:
        """Copy the run of another folder. config.json is copied last, so the run is here when all of it is here."""
        with files.naming(self.path):
            for entry in sorted(other.path.iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.copytree(entry, self.path / entry.name, symlinks=True, dirs_exist_ok=True)
                elif entry.name not in (CONFIG, LOCK) and entry.is_file():
                    shutil.copyfile(entry, self.path / entry.name, follow_symlinks=False)
            files.write_file(self.path / CONFIG, (other.path / CONFIG).read_bytes())

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file of the run, such as its results."""
        files.write_file(self.path / _check_name(name), content)

    def read_file(self, name: str) -> bytes:
        """Read a further file of `write_config` and verify its checksum. Runs of earlier versions have none."""
        sums = self.read_config().get(FILES, {})
        try:
            content = files.read_file(self.path / _check_name(name), MAX_FILE_BYTES)
        except (OSError, InputError) as error:
            raise CheckpointError(f"{self.path / name}: cannot be read ({error})") from error
        expected = sums.get(name) if isinstance(sums, dict) else ""
        if expected is not None and hashlib.sha256(content).hexdigest() != expected:
            raise CheckpointError(f"{self.path / name}: damaged, its content does not match its checksum")
        return content

    # Metrics

    def read_metrics(self) -> list[dict[str, Any]]:
        """The entries of metrics.jsonl, logged during training, in order of the step."""
        lines, damaged = self._metrics()
        if damaged:
            raise CheckpointError(f"{self.path / METRICS}: {damaged} damaged lines; resume the run to remove them")
        return [json.loads(line) for line in lines]

    def _metrics(self) -> tuple[list[bytes], int]:
        """The whole lines of metrics.jsonl, and the number of damaged ones. The last line may be incomplete."""
        path = self.path / METRICS
        if not os.path.lexists(path):
            return [], 0
        try:
            lines = files.read_file(path, MAX_METRICS_BYTES).splitlines(keepends=True)
        except (OSError, InputError):
            return [], 1
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        whole = [line for line in lines if _step_of(line) is not None]
        return whole, len(lines) - len(whole)

    def open_metrics(self, start: int, written: dict[str, Any] | None) -> MetricsFile:
        """Open metrics.jsonl to append to it, after the lines of steps up to ``start``.

        ``written`` is what the checkpoint says about these lines. Damage is reported and the rest is kept, because
        training does not depend on the log.
        """
        lines, damaged = self._metrics()
        kept = [line for line in lines if (_step_of(line) or 0) <= start]
        if written is not None:
            kept = kept[: written["lines"]]
            if damaged == 0 and MetricsFile.describe_lines(kept) != written:
                damaged = 1
        if damaged:
            warn(f"{self.path / METRICS}: damaged; lines are missing or differ from those that were logged")
        if (self.path / METRICS).is_dir():
            files.remove(self.path / METRICS)
        files.write_file(self.path / METRICS, b"".join(kept))
        return MetricsFile(files.append_to(self.path / METRICS), kept)

    # Checkpoints

    def newest_step(self) -> Checkpoint | None:
        """The newest whole checkpoint of a training step, or None if there was none yet.

        Newer ones are damaged: they are reported and removed, since the training will write these steps again.
        """
        if not checkpoint.list_checkpoints(self.checkpoints, "step"):
            return None
        found, errors = checkpoint.newest(self.checkpoints, "step")
        for path, error in zip(checkpoint.list_checkpoints(self.checkpoints, "step"), errors, strict=False):
            warn(f"{error}; resuming from {found.path.name}")
            files.remove(path)
        return found

    def newest_best(self) -> Checkpoint | None:
        """The whole checkpoint of the best validated weights, or None. A damaged one is reported and removed."""
        for path in checkpoint.list_checkpoints(self.checkpoints, "best"):
            try:
                return checkpoint.load(path)
            except CheckpointError as error:
                warn(f"{error}; the best weights are chosen again, from this step on")
                files.remove(path)
        return None


class MetricsFile:
    """metrics.jsonl, open for appending, with a running digest of its lines."""

    def __init__(self, file: BinaryIO, lines: list[bytes]) -> None:
        self.file, self.count = file, len(lines)
        self.digest = hashlib.sha256(b"".join(lines))

    @staticmethod
    def describe_lines(lines: list[bytes]) -> dict[str, Any]:
        return {"lines": len(lines), "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}

    def describe(self) -> dict[str, Any]:
        """What a checkpoint says about the lines so far, to find damage when the run is resumed."""
        return {"lines": self.count, "sha256": self.digest.hexdigest()}

    def write(self, entry: dict[str, float]) -> None:
        line = (json.dumps(entry, allow_nan=False) + "\n").encode()
        self.file.write(line)
        self.file.flush()
        self.digest.update(line)
        self.count += 1

    def close(self) -> None:
        self.file.close()


def _check_name(name: str) -> str:
    """The name of a further file. It must not lead out of the folder, nor to one of the other files."""
    if name != Path(name).name or name.startswith(".") or name in (CONFIG, METRICS, "checkpoints", ""):
        raise InputError(f"files: expected names of further files in the run folder, got {name!r}")
    return name


def _step_of(line: bytes) -> int | None:
    """The step of a line of metrics.jsonl, or None if the line is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = entry.get("step") if isinstance(entry, dict) else None
    return step if isinstance(step, int) else None


def check_unused(path: Path) -> None:
    """Raise if ``path`` exists and is not a folder without content, so that nothing is overwritten.

    What a process leaves behind that was killed while it created a run is no content.
    """
    if os.path.lexists(path) and not _is_unused(path):
        raise InputError(f"run_dir: expected a new folder, got {path}, which is not empty; add --resume or --overwrite")


def remove_run(path: Path) -> None:
    """Remove a run, so that another can take its place. A folder that has anything else is refused."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise InputError(f"run_dir: expected a run to replace, got {path}, which is no folder")
    if others := sorted({entry.name for entry in path.iterdir()} - {*RUN_FILES, *RUN_FOLDERS}):
        raise InputError(f"run_dir: expected a run to replace, got {path}, which also has {others[0]}")
    with locked(path):
        shutil.rmtree(path)


def create(path: Path) -> None:
    """Create a folder and those above it, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"run_dir: expected a folder that can be created, got {path} ({reason})") from error


def _is_unused(path: Path) -> bool:
    left_over = {LOCK, files.temporary_path(Path(CONFIG)).name}
    return path.is_dir() and all(
        entry.name in left_over if entry.is_symlink() or not entry.is_dir() else _is_unused(entry)
        for entry in path.iterdir()
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a folder, so that one process at a time writes to it. Raises InputError if another process has the lock."""
    if fcntl is None:
        yield
        return
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with files.naming(path):
        descriptor = os.open(path / LOCK, flags, 0o666)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                owner = file.read(200).strip() or "another process"
                raise InputError(
                    f"run_dir: expected a folder that no other process uses, got {path}, which {owner} is using; "
                    "wait for it or choose another folder"
                ) from error
            warn(f"{path}: this file system has no locks ({error.strerror}); do not start a second process here")
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)
