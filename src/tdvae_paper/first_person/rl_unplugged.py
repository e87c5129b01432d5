"""Convert the public DeepMind Lab recordings of RL Unplugged to the recording format of `tdvae.data.recording`.

An example is an episode of T frames. It has int64 ``start_idx``; floats ``observations_reward`` (T), ``rewards`` (T),
``discounts`` (T) and ``observations_action`` (T × actions, one-hot); and bytes ``observations_pixels`` (T), each a PNG
of 72 × 96 pixels. The images were written by OpenCV with red and blue exchanged: they decode as BGR, and are converted
to RGB here. ``observations_action`` is the action that led to the frame and ``observations_reward`` the reward that
arrived with it, which is the convention of our recordings too. ``rewards`` is the reward that followed the frame.
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
from tdvae.errors import InputError
from tdvae_paper.first_person.tfrecord import Feature, read_examples

_FLOATS = ("observations_reward", "rewards", "discounts", "observations_action")


def convert(
    files: Sequence[str | Path],
    out: str | Path,
    size: int = 64,
    frames: int | None = None,
    progress: Callable[[int], None] = lambda frames: None,
) -> None:
    """Write the episodes of ``files`` to a new recording at ``out``.

    With ``frames``, the conversion stops after the episode that reaches this number of frames. A damaged file raises
    an error, and no recording is written. ``progress`` is called with the number of frames written so far.
    """
    if not files:
        raise InputError("files: expected at least one TFRecord file of RL Unplugged, got none")
    if frames is not None and frames < 1:
        raise InputError(f"frames: expected at least 1, got {frames}")
    check_size(size)
    check_new_file(out)
    paths = [Path(file) for file in files]
    episodes = (episode for path in paths for episode in read_episodes(path, size))
    first = next(episodes, None)
    if first is None:
        raise InputError(f"files: expected at least one episode in {', '.join(map(str, paths))}, got none")
    names = [f"action {number}" for number in range(first[1])]
    about = {"world": "RL Unplugged, DeepMind Lab", "files": ["/".join(path.parts[-3:]) for path in paths]}
    with RecordingWriter(out, size, names, pose=False, about=about) as writer:
        for episode, n_actions in _with_first(first, episodes):
            if n_actions != len(names):
                raise InputError(f"files: expected {len(names)} actions in every episode, got {n_actions}")
            writer.append(episode)
            progress(writer.frames)
            if frames is not None and writer.frames >= frames:
                break


def _with_first(first: tuple[Episode, int], others: Iterator[tuple[Episode, int]]) -> Iterator[tuple[Episode, int]]:
    yield first
    yield from others


def read_episodes(path: str | Path, size: int = 64) -> Iterator[tuple[Episode, int]]:
    """Yield each episode of one file with the size of the action space."""
    for number, example in enumerate(read_examples(path)):
        try:
            yield _parse_episode(example, size)
        except InputError as error:
            raise InputError(f"file: {path}, episode {number}: {error}") from error


def _parse_episode(example: dict[str, Feature], size: int) -> tuple[Episode, int]:
    images = example.get("observations_pixels")
    if not isinstance(images, list) or not images:
        raise InputError("observations_pixels: expected a list of images, got none")
    steps = len(images)
    reward, rewards, discounts, one_hot = (_get_floats(example, name) for name in _FLOATS)
    for name, values in zip(_FLOATS[:3], (reward, rewards, discounts), strict=True):
        if len(values) != steps:
            raise InputError(f"{name}: expected {steps} values, one per image, got {len(values)}")
    actions, n_actions = _parse_actions(one_hot, steps)
    if _start_index(example) == 0:
        # The first frame of an episode has a previous action and reward in the file, but none took place.
        actions[0], reward[0] = NO_ACTION, 0
    episode = Episode(
        frames=np.stack([_decode(image, size) for image in images]),
        actions=actions,
        rewards=reward,
        pose=None,
        ending=Ending.TERMINATED if discounts[-1] == 0 else Ending.TRUNCATED,
        unseen_reward=float(rewards[-1]),
    )
    return episode, n_actions


def _get_floats(example: dict[str, Feature], name: str) -> npt.NDArray[np.float32]:
    values: Any = example.get(name)
    if not isinstance(values, np.ndarray) or values.dtype != np.float32:
        given = "none" if values is None else "bytes" if isinstance(values, list) else str(values.dtype)
        raise InputError(f"{name}: expected floats, got {given}")
    if not np.isfinite(values).all():
        raise InputError(f"{name}: expected finite values, got NaN or infinity")
    return values.copy()


def _start_index(example: dict[str, Feature]) -> int:
    values: Any = example.get("start_idx")
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.shape != (1,):
        raise InputError(f"start_idx: expected one int64, got {0 if values is None else len(values)} values")
    return int(values[0])


def _parse_actions(one_hot: npt.NDArray[np.float32], steps: int) -> tuple[npt.NDArray[np.int16], int]:
    if len(one_hot) == 0 or len(one_hot) % steps:
        raise InputError(
            f"observations_action: expected a multiple of {steps} values, the number of images, got {len(one_hot)}"
        )
    rows = one_hot.reshape(steps, -1)
    if not (np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) <= 1).all()):
        raise InputError("observations_action: expected one-hot rows, got other values")
    return np.where(rows.any(axis=1), rows.argmax(axis=1), NO_ACTION).astype(np.int16), rows.shape[1]


def _decode(encoded: bytes, size: int) -> npt.NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as image:
            bgr = np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"observations_pixels: expected PNG or JPEG images, got {len(encoded)} other bytes ({error})"
        ) from error
    if bgr.ndim != 3 or bgr.shape[2] != 3:
        raise InputError(f"observations_pixels: expected an image of shape (height, width, 3), got {bgr.shape}")
    return to_square(np.ascontiguousarray(bgr[..., ::-1]), size)
