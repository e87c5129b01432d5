"""Recordings of an agent's observations in one HDF5 file: written episode by episode, read in slices of frames.

The frames of all episodes are concatenated, so a file has no padding and a window of frames is one slice::

    frames   (F, size, size, 3) uint8, RGB
    actions  (F,) int16           the action that led to the frame; -1 if none did (first frame of an episode)
    rewards  (F,) float32         the reward that arrived with the frame
    pose     (F, 3) float32       x, y and heading (radians, counter-clockwise from x); only if the world provides it
    episodes/start, length, seed  int64, one per episode
    episodes/ending               terminated or truncated (both by the world), or cut by the recorder
    episodes/unseen_reward        float32, the reward of the last step if the world shows no frame after it, else 0
    about                         JSON: the world, the agent, its settings, the names of the actions, versions

Frames are not compressed: windows of 20 frames are then read 6 times faster than with gzip, and the file is 3 times as
large. Files compressed with ``h5repack`` can be read too. Each chunk of frames has a checksum.
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
from tdvae.storage.files import check_content, check_path

FORMAT, VERSION = "tdvae recording", 1
NO_ACTION = -1
CHUNK = 8  # frames; a window of 20 frames then reads at most 32
_STEP_CHUNK = 4096  # time steps, for all data sets per time step other than frames
_EPISODE_DTYPES = {"start": np.int64, "length": np.int64, "seed": np.int64, "unseen_reward": np.float32}

Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Ending(IntEnum):
    """The reason why an episode ended."""

    CUT = 0
    TRUNCATED = 1
    TERMINATED = 2


def _ending_type() -> Any:
    """The HDF5 enumeration type in which the file stores an `Ending`."""
    import h5py  # imported in functions only, because most users of `tdvae.data` open no recording

    return h5py.enum_dtype({ending.name.lower(): int(ending) for ending in Ending}, basetype=np.uint8)


@dataclass(frozen=True, eq=False)
class Episode:
    """T frames in order of time, with their actions, rewards and poses."""

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
    """Writes a recording to a temporary file and moves it to ``path`` at the end: ``path`` is complete or absent.

    Use it in a ``with`` block. After an error or an interruption, the temporary file is removed.
    """

    def __init__(self, path: str | Path, size: int, actions: Sequence[str], pose: bool, about: dict[str, Any]) -> None:
        self.path = check_new_file(path)
        check_size(size)
        self.size, self.actions, self.pose, self.about = size, tuple(actions), pose, about
        self.frames, self.episodes = 0, 0
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        # An interruption during `__exit__` can skip its clean-up; the finalizer removes the file in that case too.
        self._remove_temporary = weakref.finalize(self, self._temporary.unlink, missing_ok=True)

    def __enter__(self) -> Self:
        import h5py

        with self._convert_errors():
            self._file = h5py.File(self._temporary, "w")
            self._create()
        return self

    def _create(self) -> None:
        side = self.size

        def create(name: str, dtype: Any, *shape: int, chunk: int = _STEP_CHUNK, checksum: bool = False) -> None:
            self._file.create_dataset(
                name, (0, *shape), dtype, maxshape=(None, *shape), chunks=(chunk, *shape), fletcher32=checksum
            )

        create("frames", np.uint8, side, side, 3, chunk=CHUNK, checksum=True)
        create("actions", np.int16, checksum=True)
        create("rewards", np.float32, checksum=True)
        if self.pose:
            create("pose", np.float32, 3, checksum=True)
        for name, dtype in _EPISODE_DTYPES.items():
            create(f"episodes/{name}", dtype, chunk=256)
        create("episodes/ending", _ending_type(), chunk=256)
        self._file.create_dataset("about", data=json.dumps({"actions": self.actions, **self.about}, allow_nan=False))
        self._file.attrs["format"], self._file.attrs["version"] = FORMAT, VERSION

    def append(self, episode: Episode) -> None:
        self._check(episode)
        with self._convert_errors():
            arrays: dict[str, npt.NDArray[Any]] = {
                "frames": episode.frames,
                "actions": episode.actions,
                "rewards": episode.rewards,
            }
            if episode.pose is not None:
                arrays["pose"] = episode.pose
            for name, values in arrays.items():
                self._extend(name, values)
            fields = {"start": self.frames, "length": len(episode), "seed": episode.seed, "ending": int(episode.ending)}
            for name, value in {**fields, "unseen_reward": episode.unseen_reward}.items():
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
            given_pose, expected_pose = ("none", "poses") if self.pose else ("poses", "none")
            raise InputError(f"pose: expected {expected_pose}, as declared for this recording, got {given_pose}")
        if self.pose:
            expected["pose"] = ((steps, 3), np.float32)
        for name, (shape, dtype) in expected.items():
            values = getattr(episode, name)
            if values.shape != shape or values.dtype != dtype:
                raise InputError(
                    f"{name}: expected shape {shape} of {np.dtype(dtype)}, got {values.shape} of {values.dtype}"
                )
            if dtype == np.float32 and not np.isfinite(values).all():
                raise InputError(f"{name}: expected finite values, got NaN or infinity")
        if steps < 1:
            raise InputError("frames: expected at least 1 frame, got an empty episode")
        low, high = int(episode.actions.min()), int(episode.actions.max())
        if low < NO_ACTION or high >= len(self.actions):
            raise InputError(f"actions: expected {NO_ACTION} to {len(self.actions) - 1}, got {low} to {high}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._convert_errors():
                self._file.close()
                if kind is None:
                    if self.episodes == 0:
                        raise InputError(f"out: expected at least 1 episode to write, got none ({self.path})")
                    check_new_file(self.path)  # it may have been created in the meantime
                    os.replace(self._temporary, self.path)
        finally:
            self._remove_temporary()

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert an `OSError` to an `InputError`."""
        try:
            yield
        except OSError as error:
            raise InputError(f"out: expected a writable file, got {self.path} ({error})") from error


class Recording:
    """A recording on disk, of which frames are read on demand.

    Damage raises an error when the file is opened or when the damaged part is read. A recording can be pickled and
    sent to another process, which then opens the file again.
    """

    def __init__(self, path: str | Path) -> None:
        import h5py

        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"file: expected an existing file, got {self.path}")
        with self._convert_errors():
            self._file = h5py.File(self.path, "r")
            try:
                self._check()
            except BaseException:
                self._file.close()
                raise

    def _check(self) -> None:
        if self._file.attrs.get("format") != FORMAT:
            raise InputError(f"file: expected a {FORMAT}, got another HDF5 file, {self.path}")
        version = self._file.attrs.get("version")
        if version != VERSION:
            raise InputError(f"file: expected version {VERSION} of the format, got {version} in {self.path}")
        self.about = self._read_about()
        self.action_names: tuple[str, ...] = tuple(self.about["actions"])
        """The name of each action, by number."""
        self._frames, self._actions, self._rewards = map(self._dataset, ("frames", "actions", "rewards"))
        self._pose = self._dataset("pose") if "pose" in self._file else None
        self.starts, self.lengths = self._dataset("episodes/start")[:], self._dataset("episodes/length")[:]
        self.seeds, self.endings = self._dataset("episodes/seed")[:], self._dataset("episodes/ending")[:]
        self.unseen_rewards: Floats = self._dataset("episodes/unseen_reward")[:]
        episodes = (self.starts, self.lengths, self.seeds, self.endings, self.unseen_rewards)
        columns = [self._frames, self._actions, self._rewards, *([] if self._pose is None else [self._pose])]
        ends = self.starts + self.lengths if self.starts.shape == self.lengths.shape else self.starts[:0]
        consistent = (
            all(len(column.shape) > 0 and len(column) == len(columns[0]) for column in columns)
            and self._frames.shape[1:] == (self.size, self.size, 3)
            and self._frames.dtype == np.uint8
            and ends.ndim == 1
            and len(ends) > 0
            and all(column.shape == ends.shape for column in episodes)
            and bool((self.lengths > 0).all())
            and self.starts[0] == 0
            and np.array_equal(ends[:-1], self.starts[1:])
            and ends[-1] == len(self)
            and bool(np.isin(self.endings, [int(ending) for ending in Ending]).all())
        )
        if not consistent:
            raise InputError(
                f"file: expected an undamaged {FORMAT}, got {self.path} with inconsistent frames and episodes"
            )

    def _dataset(self, name: str) -> Any:
        if name not in self._file:
            raise KeyError(f"no {name}")
        return own_dataset(self._file, name, self.path)

    def _read_about(self) -> dict[str, Any]:
        about = json.loads(self._dataset("about").asstr()[()])
        actions = about.get("actions") if isinstance(about, dict) else None
        if not isinstance(actions, list) or not actions or not all(isinstance(name, str) for name in actions):
            raise InputError(f"file: expected the names of the actions in the text 'about' of {self.path}, got none")
        return dict(about)

    def __len__(self) -> int:
        """Number of frames."""
        return len(self._frames)

    @property
    def size(self) -> int:
        """Height and width of a frame, in pixels."""
        return int(self._frames.shape[1]) if len(self._frames.shape) > 1 else 0

    @property
    def has_pose(self) -> bool:
        return self._pose is not None

    def frames(self, start: int, stop: int) -> Bytes:
        """The frames as RGB, (stop - start, size, size, 3)."""
        return self._read(self._frames, start, stop)

    def actions(self, start: int, stop: int) -> Shorts:
        """The action that led to each frame, (stop - start,); -1 if none did."""
        return self._read(self._actions, start, stop)

    def rewards(self, start: int, stop: int) -> Floats:
        return self._read(self._rewards, start, stop)

    def pose(self, start: int, stop: int) -> Floats:
        """x, y and heading, (stop - start, 3)."""
        if self._pose is None:
            raise InputError(f"file: expected a recording with poses, got {self.path}, whose world provided none")
        return self._read(self._pose, start, stop)

    def episode(self, number: int) -> Episode:
        """One complete episode."""
        if not 0 <= number < len(self.starts):
            raise InputError(f"number: expected an episode from 0 to {len(self.starts) - 1}, got {number}")
        start = int(self.starts[number])
        span = start, start + int(self.lengths[number])
        return Episode(
            frames=self.frames(*span),
            actions=self.actions(*span),
            rewards=self.rewards(*span),
            pose=self.pose(*span) if self.has_pose else None,
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
        with self._convert_errors():
            return dataset[start:stop]

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert the exceptions that h5py raises for truncated, damaged or other files to an `InputError`."""
        try:
            yield
        except InputError:
            raise
        except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"file: expected an undamaged {FORMAT}, got {self.path} ({reason})") from error


def own_datasets(file: Any) -> list[str]:
    """The names of all data sets in an HDF5 file, without those behind links."""
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return names


def own_dataset(file: Any, name: str, path: Path) -> Any:
    """A data set whose content is in this HDF5 file: links, external storage and virtual data sets read other files.

    Its declared size is checked too, since chunks that were never written take no place.
    """
    import h5py

    parts = name.split("/")
    for end in range(1, len(parts) + 1):
        place = "/".join(parts[:end])
        link = file.get(place, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise InputError(
                f"file: expected {place!r} in {path} itself, got {'nothing' if link is None else 'a link'}"
            )
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
        raise InputError(f"file: expected the numbers of {name!r} in {path} itself, got a reference to other files")
    check_content(
        path, dataset.size * dataset.dtype.itemsize if dataset.shape is not None else 0, f"numbers of {name!r}"
    )
    return dataset


def check_new_file(path: str | Path) -> Path:
    """The path, if no file exists there and its folder does; otherwise an error."""
    path = Path(path)
    check_path("out", path)
    if path.exists():
        raise InputError(f"out: expected a new file, got {path}, which exists already")
    if not path.parent.is_dir():
        raise InputError(f"out: expected an existing folder, got {path.parent}")
    return path


def check_size(size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or not 8 <= size <= 1024:
        raise InputError(f"size: expected an integer number of pixels from 8 to 1024, got {size!r}")
