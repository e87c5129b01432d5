"""Convert the public DeepMind Lab recordings of RL Unplugged to the recording format of `tdvae.data.recording`.

An example is an episode of T frames. It has int64 ``start_idx``; floats ``observations_reward`` (T), ``rewards`` (T),
``discounts`` (T) and ``observations_action`` (T × actions, one-hot); and bytes ``observations_pixels`` (T), each a PNG
of 72 × 96 pixels. The images were written by OpenCV with red and blue exchanged: they decode as BGR, and are converted
to RGB here. ``observations_action`` is the action that led to the frame and ``observations_reward`` the reward that
arrived with it, which is the convention of our recordings too. ``rewards`` is the reward that followed the frame.

The files are TFRecord files, which are read without TensorFlow. A record consists of its length (8 bytes, little
endian), a checksum of the length, the content and a checksum of the content. The checksums are CRC-32C, rotated and
offset ("masked"). The file may be compressed with gzip. The content is a protocol buffer, tf.train.Example. Only the
part of the wire format that it uses is implemented; unknown fields are skipped, as the format requires.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from tdvae.data.images import to_square
from tdvae.data.recording import NO_ACTION, Ending, Episode, RecordingWriter, check_new_file, check_size
from tdvae.errors import InputError
from tdvae.storage.files import open_regular

try:
    import google_crc32c
except ImportError as error:
    raise InputError(
        "convert: expected the package google-crc32c, which checks the files: pip install 'tdvae[lab]'"
    ) from error

Feature = list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_GZIP = b"\x1f\x8b"
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


# TFRecord files


def masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_examples(path: str | Path) -> Iterator[dict[str, Feature]]:
    """Yield the examples of a file. A damaged record raises an error with its number when it is reached."""
    path, number = Path(path), 0
    try:
        with open_regular(path, follow=True) as file:
            stream = _open_stream(file)
            while (content := _next_record(stream)) is not None:
                yield parse_example(content)
                number += 1
    except FileNotFoundError as error:
        raise InputError(f"file: expected an existing file, got {path}") from error
    except InputError as error:
        raise InputError(f"file: expected an undamaged TFRecord file, got {path}; record {number}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"file: expected a readable file, got {path} ({error})") from error


def _open_stream(file: BinaryIO) -> BinaryIO:
    start = file.read(2)
    file.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=file)) if start == _GZIP else file


def _next_record(stream: BinaryIO) -> bytes | None:
    header = stream.read(12)
    if not header:
        return None
    if len(header) < 12:
        raise InputError(f"expected a header of 12 bytes, got {len(header)}")
    length, checksum = struct.unpack("<QI", header)
    if checksum != masked_crc(header[:8]):  # checked before that many bytes are read
        raise InputError("the length does not match its checksum")
    content = stream.read(length + 4)
    if len(content) < length + 4:
        raise InputError(f"expected {length + 4} bytes of content and checksum, got {len(content)}")
    if struct.unpack_from("<I", content, length)[0] != masked_crc(content[:length]):
        raise InputError("the content does not match its checksum")
    return content[:length]


def parse_example(content: bytes) -> dict[str, Feature]:
    """Return the features of a tf.train.Example by name."""
    features: dict[str, Feature] = {}
    for part in _submessages(memoryview(content), 1):
        for entry in _submessages(part, 1):
            name, feature = b"", memoryview(b"")
            for field, wire_type, value in _parse_fields(entry):
                if wire_type == _BYTES and field == 1:
                    name = bytes(value)
                elif wire_type == _BYTES and field == 2:
                    feature = value
            features[_decode_name(name)] = _parse_feature(feature)
    return features


def _decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"expected a feature name in UTF-8, got {name[:40]!r}") from error


def _parse_feature(message: memoryview) -> Feature:
    """Parse one of the three lists; of several, the last is used, as the format requires. The default is empty."""
    result: Feature = []
    for field, wire_type, values in _parse_fields(message):
        if wire_type != _BYTES:
            continue
        if field == 1:
            result = [bytes(value) for value in _submessages(values, 1)]
        elif field == 2:
            result = np.frombuffer(b"".join(_numeric_values(values, _FIXED32)), "<f4").astype(np.float32)
        elif field == 3:
            numbers = [_to_signed(n) for part in _numeric_values(values, _VARINT) for n in _read_varints(part)]
            result = np.array(numbers, np.int64)
    return result


def _numeric_values(message: memoryview, element_type: int) -> Iterator[memoryview]:
    """Yield the values of field 1 as bytes; they may be packed into one field or stored in one field each."""
    for field, wire_type, value in _parse_fields(message):
        if field != 1:
            continue
        if wire_type not in (element_type, _BYTES):
            raise InputError(f"expected wire type {element_type} or {_BYTES} for a list of numbers, got {wire_type}")
        if element_type == _FIXED32 and len(value) % 4:
            raise InputError(f"expected a multiple of 4 bytes for a list of floats, got {len(value)}")
        yield value


def _submessages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    for field, wire_type, value in _parse_fields(message):
        if field == wanted and wire_type == _BYTES:
            yield value


def _parse_fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield the number, wire type and content of each field; the content of a varint is its encoded bytes."""
    offset = 0
    while offset < len(message):
        key, offset = _read_varint(message, offset)
        field, wire_type = key >> 3, key & 7
        if field == 0:
            raise InputError("expected a field number of at least 1, got 0")
        start = offset
        if wire_type == _VARINT:
            _, offset = _read_varint(message, offset)
        elif wire_type == _BYTES:
            length, start = _read_varint(message, offset)
            offset = start + length
        elif wire_type in (_FIXED32, _FIXED64):
            offset += 4 if wire_type == _FIXED32 else 8
        else:
            raise InputError(f"expected wire type 0, 1, 2 or 5, got {wire_type}")
        if offset > len(message):
            raise InputError(f"expected a field to end at byte {len(message)} or before, got {offset}")
        yield field, wire_type, message[start:offset]


def _read_varint(message: memoryview, offset: int) -> tuple[int, int]:
    """Return an unsigned integer, stored as 7 bits per byte with the lowest first, and the offset after it."""
    number = 0
    for i, byte in enumerate(message[offset : offset + 10]):
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if number >= 1 << 64:
                break
            return number, offset + i + 1
    raise InputError(
        f"expected a number of at most 10 bytes and 64 bits, got an unterminated or larger one at byte {offset}"
    )


def _read_varints(message: memoryview) -> Iterator[int]:
    offset = 0
    while offset < len(message):
        number, offset = _read_varint(message, offset)
        yield number


def _to_signed(number: int) -> int:
    """Convert from two's complement, in which int64 is stored."""
    return number - (1 << 64) if number >= 1 << 63 else number
