"""Recordings of what an agent saw, in one HDF5 file: written an episode at a time, read a few frames at a time.

All episodes lie behind one another, so a file needs no padding and a window of frames is one slice of it::

    frames   (F, size, size, 3) uint8, RGB
    actions  (F,) int16           the action that led to the frame; -1 where none did (an episode's first frame)
    rewards  (F,) float32         what arrived together with the frame
    pose     (F, 3) float32       x, y and heading (radians, counter-clockwise from x); only if the world tells
    episodes/start, length, seed  int64, one for each episode
    episodes/ending               terminated, truncated (both by the world), or cut by the recorder
    episodes/unseen_reward        float32, what came with the very last step where the world showed no frame after it
    about                         JSON: the world, the agent, its settings, the names of the actions, versions

Frames are not compressed: windows of 20 frames are then read 6 times faster than from gzip, for 3 times the space
(``h5repack`` changes that, and files it has changed are read just as well). Each chunk of frames has a checksum.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tdvae.errors import InputError

FORMAT, VERSION = "tdvae recording", 1
NO_ACTION = -1
CHUNK = 8  # frames; a window of 20 then reads at most 32
_SMALL_CHUNK = 4096  # steps, of all that is not frames
_PER_EPISODE = {"start": np.int64, "length": np.int64, "seed": np.int64, "unseen_reward": np.float32}

Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Ending(IntEnum):
    """Why an episode has no more frames."""

    CUT = 0
    TRUNCATED = 1
    TERMINATED = 2


def _ending_type() -> Any:
    """How the file stores an `Ending`: an HDF5 enumeration."""
    import h5py  # here and below, not above: most users of `tdvae.data` open no recording

    return h5py.enum_dtype({ending.name.lower(): int(ending) for ending in Ending}, basetype=np.uint8)


@dataclass(frozen=True, eq=False)
class Episode:
    """T frames in the order they were seen, and what belongs to each."""

    frames: Bytes  # (T, size, size, 3) RGB
    actions: Shorts  # (T,)
    rewards: Floats  # (T,)
    pose: Floats | None  # (T, 3) x, y, heading
    ending: Ending
    seed: int = 0
    unseen_reward: float = 0.0

    def __len__(self) -> int:
        return len(self.frames)


class RecordingWriter:
    """Writes beside ``path`` and moves the whole file there at the end: ``path`` is a whole recording or absent.

    For use in a ``with`` block; an error or an interruption in it leaves nothing behind.
    """

    def __init__(self, path: str | Path, size: int, actions: Sequence[str], pose: bool, about: dict[str, Any]) -> None:
        self.path = check_new_file(path)
        check_size(size)
        self.size, self.actions, self.pose, self.about = size, tuple(actions), pose, about
        self.frames, self.episodes = 0, 0
        self._beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        # An interruption may come just when a `with` block is left, and skip what it would do: this is done anyway.
        self._remove = weakref.finalize(self, self._beside.unlink, missing_ok=True)

    def __enter__(self) -> Self:
        import h5py

        with self._explained():
            self._file = h5py.File(self._beside, "w")
            self._create()
        return self

    def _create(self) -> None:
        side = self.size

        def grows(name: str, kind: Any, *shape: int, chunk: int = _SMALL_CHUNK, checked: bool = False) -> None:
            self._file.create_dataset(
                name, (0, *shape), kind, maxshape=(None, *shape), chunks=(chunk, *shape), fletcher32=checked
            )

        grows("frames", np.uint8, side, side, 3, chunk=CHUNK, checked=True)
        grows("actions", np.int16, checked=True)
        grows("rewards", np.float32, checked=True)
        if self.pose:
            grows("pose", np.float32, 3, checked=True)
        for name, kind in _PER_EPISODE.items():
            grows(f"episodes/{name}", kind, chunk=256)
        grows("episodes/ending", _ending_type(), chunk=256)
        self._file.create_dataset("about", data=json.dumps({"actions": self.actions, **self.about}, allow_nan=False))
        self._file.attrs["format"], self._file.attrs["version"] = FORMAT, VERSION

    def append(self, episode: Episode) -> None:
        self._check(episode)
        with self._explained():
            arrays: dict[str, npt.NDArray[Any]] = {
                "frames": episode.frames,
                "actions": episode.actions,
                "rewards": episode.rewards,
            }
            if episode.pose is not None:
                arrays["pose"] = episode.pose
            for name, values in arrays.items():
                self._extend(name, values)
            facts = {"start": self.frames, "length": len(episode), "seed": episode.seed, "ending": int(episode.ending)}
            for name, value in {**facts, "unseen_reward": episode.unseen_reward}.items():
                self._extend(f"episodes/{name}", np.array([value]))
        self.frames += len(episode)
        self.episodes += 1

    def _extend(self, name: str, values: npt.NDArray[Any]) -> None:
        dataset = self._file[name]
        before = len(dataset)
        dataset.resize(before + len(values), axis=0)
        dataset[before:] = values

    def _check(self, episode: Episode) -> None:
        steps, side = len(episode), self.size
        expected: dict[str, tuple[tuple[int, ...], type]] = {
            "frames": ((steps, side, side, 3), np.uint8),
            "actions": ((steps,), np.int16),
            "rewards": ((steps,), np.float32),
        }
        if self.pose != (episode.pose is not None):
            given, wanted = ("none", "poses") if self.pose else ("poses", "none")
            raise InputError(f"pose: got {given}, expected {wanted}, as this recording was begun")
        if self.pose:
            expected["pose"] = ((steps, 3), np.float32)
        for name, (shape, kind) in expected.items():
            values = getattr(episode, name)
            if values.shape != shape or values.dtype != kind:
                raise InputError(
                    f"{name}: got shape {values.shape} of {values.dtype}, expected {shape} of {np.dtype(kind)}"
                )
            if kind == np.float32 and not np.isfinite(values).all():
                raise InputError(f"{name}: got NaN or infinite values, expected finite ones")
        if steps < 1:
            raise InputError("frames: got an empty episode, expected at least 1 frame")
        low, high = int(episode.actions.min()), int(episode.actions.max())
        if low < NO_ACTION or high >= len(self.actions):
            raise InputError(f"actions: got {low} to {high}, expected {NO_ACTION} to {len(self.actions) - 1}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._explained():
                self._file.close()
                if kind is None:
                    if self.episodes == 0:
                        raise InputError(f"out: nothing was recorded, so {self.path} is not written")
                    check_new_file(self.path)  # it may have come into being meanwhile
                    os.replace(self._beside, self.path)
        finally:
            self._remove()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"out: {self.path} cannot be written ({error})") from error


class Recording:
    """A recording on disk. Only what is asked for is read; a damaged file is refused, here or when the damage is read.

    It may be sent to another process, which then opens the file for itself.
    """

    def __init__(self, path: str | Path) -> None:
        import h5py

        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"file: {self.path} does not exist")
        with self._explained():
            self._file = h5py.File(self.path, "r")
            try:
                self._check()
            except BaseException:
                self._file.close()
                raise
        self.action_names = tuple(self.about["actions"])
        """The names of the actions, by their number."""

    def _check(self) -> None:
        if self._file.attrs.get("format") != FORMAT:
            raise InputError(f"file: {self.path} is an HDF5 file, but not a {FORMAT}")
        version = self._file.attrs.get("version")
        if version != VERSION:
            raise InputError(f"file: {self.path} has layout {version}, expected {VERSION}")
        self.about: dict[str, Any] = json.loads(self._file["about"].asstr()[()])
        self._frames, self._actions, self._rewards = (self._file[name] for name in ("frames", "actions", "rewards"))
        self._pose = self._file.get("pose")
        episodes = self._file["episodes"]
        self.starts, self.lengths = episodes["start"][:], episodes["length"][:]
        self.seeds, self.endings = episodes["seed"][:], episodes["ending"][:]
        self.unseen_rewards: Floats = episodes["unseen_reward"][:]
        frames = len(self)
        columns = [self._actions, self._rewards, *([] if self._pose is None else [self._pose])]
        ends = self.starts + self.lengths
        whole = (
            self._frames.shape == (frames, self.size, self.size, 3)
            and self._frames.dtype == np.uint8
            and all(len(column) == frames for column in columns)
            and len(self.starts) > 0
            and bool((self.lengths > 0).all())
            and self.starts[0] == 0
            and np.array_equal(ends[:-1], self.starts[1:])
            and ends[-1] == frames
        )
        if not whole:
            raise InputError(f"file: {self.path} is damaged: its frames and its list of episodes do not fit together")

    def __len__(self) -> int:
        """How many frames there are."""
        return len(self._frames)

    @property
    def size(self) -> int:
        """Side of a frame, in pixels."""
        return int(self._frames.shape[1])

    @property
    def has_pose(self) -> bool:
        return self._pose is not None

    def frames(self, start: int, stop: int) -> Bytes:
        """(stop - start, size, size, 3) RGB."""
        return self._read(self._frames, start, stop)

    def actions(self, start: int, stop: int) -> Shorts:
        """(stop - start,) the action that led to each frame, -1 where none did."""
        return self._read(self._actions, start, stop)

    def rewards(self, start: int, stop: int) -> Floats:
        return self._read(self._rewards, start, stop)

    def pose(self, start: int, stop: int) -> Floats:
        """(stop - start, 3) x, y and heading."""
        if self._pose is None:
            raise InputError(f"file: {self.path} has no poses: its world did not tell them")
        return self._read(self._pose, start, stop)

    def episode(self, number: int) -> Episode:
        """All of one episode."""
        if not 0 <= number < len(self.starts):
            raise InputError(f"number: got {number}, expected an episode from 0 to {len(self.starts) - 1}")
        start = int(self.starts[number])
        part = start, start + int(self.lengths[number])
        return Episode(
            frames=self.frames(*part),
            actions=self.actions(*part),
            rewards=self.rewards(*part),
            pose=self.pose(*part) if self.has_pose else None,
            ending=Ending(int(self.endings[number])),
            seed=int(self.seeds[number]),
            unseen_reward=float(self.unseen_rewards[number]),
        )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Recording], tuple[Path]]:
        return Recording, (self.path,)

    def _read(self, dataset: Any, start: int, stop: int) -> Any:
        with self._explained():
            return dataset[start:stop]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What HDF5 raises for a file that is torn, damaged or of another kind."""
        try:
            yield
        except InputError:
            raise
        except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"file: {self.path} is damaged or not a {FORMAT} ({reason})") from error


def check_new_file(path: str | Path) -> Path:
    """A path that can be written to without writing over anything."""
    path = Path(path)
    if path.exists():
        raise InputError(f"out: {path} exists already; expected a new file")
    if not path.parent.is_dir():
        raise InputError(f"out: the folder {path.parent} does not exist")
    return path


def check_size(size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or not 8 <= size <= 1024:
        raise InputError(f"size: got {size!r}, expected a whole number of pixels from 8 to 1024")
