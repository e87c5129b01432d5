"""DeepMind Lab's public recordings (RL Unplugged) as recordings of ours.

An example is an episode of T frames with int64 ``start_idx``; floats ``observations_reward`` (T), ``rewards`` (T),
``discounts`` (T) and ``observations_action`` (T × actions, one-hot); and bytes ``observations_pixels`` (T), each a PNG
of 72 × 96 pixels. OpenCV wrote those pictures and took red for blue: decoded as they are they come out BGR, and are
turned back here. ``observations_action`` and ``observations_reward`` are what led to and came with the frame, which is
our convention too; ``rewards`` is what followed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tdvae.data.images import to_square
from tdvae.data.recording import NO_ACTION, Ending, Episode, RecordingWriter, check_new_file, check_size
from tdvae.data.tfrecord import Feature, read_examples
from tdvae.errors import InputError

_FLOATS = ("observations_reward", "rewards", "discounts", "observations_action")


def convert(
    files: Sequence[str | Path],
    out: str | Path,
    size: int = 64,
    frames: int | None = None,
    progress: Callable[[int], None] = lambda frames: None,
) -> None:
    """Write the episodes of ``files`` into a recording at ``out``; all, or whole ones until there are ``frames``.

    A damaged file stops it, and no file is left. ``progress`` is told how many frames there are so far.
    """
    if not files:
        raise InputError("files: got none, expected at least one TFRecord of RL Unplugged")
    if frames is not None and frames < 1:
        raise InputError(f"frames: got {frames}, expected at least 1")
    check_size(size)
    check_new_file(out)
    paths = [Path(file) for file in files]
    episodes = (found for path in paths for found in read_episodes(path, size))
    first = next(episodes, None)
    if first is None:
        raise InputError(f"files: no episodes in {', '.join(map(str, paths))}")
    names = [f"action {number}" for number in range(first[1])]
    about = {"world": "RL Unplugged, DeepMind Lab", "files": ["/".join(path.parts[-3:]) for path in paths]}
    with RecordingWriter(out, size, names, pose=False, about=about) as writer:
        for episode, n_actions in _with_first(first, episodes):
            if n_actions != len(names):
                raise InputError(f"files: got episodes of {len(names)} and of {n_actions} actions, expected one number")
            writer.append(episode)
            progress(writer.frames)
            if frames is not None and writer.frames >= frames:
                break


def _with_first(first: tuple[Episode, int], others: Iterator[tuple[Episode, int]]) -> Iterator[tuple[Episode, int]]:
    yield first
    yield from others


def read_episodes(path: str | Path, size: int = 64) -> Iterator[tuple[Episode, int]]:
    """The episodes of one file, and how many actions there are to choose from."""
    for number, example in enumerate(read_examples(path)):
        try:
            yield _episode(example, size)
        except InputError as error:
            raise InputError(f"file: {path}, episode {number}: {error}") from error


def _episode(example: dict[str, Feature], size: int) -> tuple[Episode, int]:
    pictures = example.get("observations_pixels")
    if not isinstance(pictures, list) or not pictures:
        raise InputError("observations_pixels: got none, expected a list of pictures")
    steps = len(pictures)
    reward, rewards, discounts, one_hot = (_floats(example, name) for name in _FLOATS)
    for name, values in zip(_FLOATS[:3], (reward, rewards, discounts), strict=True):
        if len(values) != steps:
            raise InputError(f"{name}: got {len(values)} values, expected {steps}, one for each picture")
    actions, n_actions = _actions(one_hot, steps)
    if _start(example) == 0:
        # The agent is given some previous action and reward at the start of an episode too, but there were none.
        actions[0], reward[0] = NO_ACTION, 0
    episode = Episode(
        frames=np.stack([_decode(picture, size) for picture in pictures]),
        actions=actions,
        rewards=reward,
        pose=None,
        ending=Ending.TERMINATED if discounts[-1] == 0 else Ending.TRUNCATED,
        unseen_reward=float(rewards[-1]),
    )
    return episode, n_actions


def _floats(example: dict[str, Feature], name: str) -> npt.NDArray[np.float32]:
    values: Any = example.get(name)
    if not isinstance(values, np.ndarray) or values.dtype != np.float32:
        given = "none" if values is None else "bytes" if isinstance(values, list) else str(values.dtype)
        raise InputError(f"{name}: got {given}, expected floats")
    if not np.isfinite(values).all():
        raise InputError(f"{name}: got NaN or infinite values, expected finite ones")
    return values.copy()


def _start(example: dict[str, Feature]) -> int:
    values: Any = example.get("start_idx")
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.shape != (1,):
        raise InputError("start_idx: expected one whole number")
    return int(values[0])


def _actions(one_hot: npt.NDArray[np.float32], steps: int) -> tuple[npt.NDArray[np.int16], int]:
    if len(one_hot) == 0 or len(one_hot) % steps:
        raise InputError(f"observations_action: got {len(one_hot)} values, expected a multiple of {steps} pictures")
    rows = one_hot.reshape(steps, -1)
    if not (np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) <= 1).all()):
        raise InputError("observations_action: got rows that are not one-hot")
    return np.where(rows.any(axis=1), rows.argmax(axis=1), NO_ACTION).astype(np.int16), rows.shape[1]


def _decode(picture: bytes, size: int) -> npt.NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(picture), formats=("PNG", "JPEG")) as image:
            bgr = np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"observations_pixels: a picture of {len(picture)} bytes is no PNG or JPEG ({error})"
        ) from error
    if bgr.ndim != 3 or bgr.shape[2] != 3:
        raise InputError(f"observations_pixels: got a picture of shape {bgr.shape}, expected (height, width, 3)")
    return to_square(np.ascontiguousarray(bgr[..., ::-1]), size)
