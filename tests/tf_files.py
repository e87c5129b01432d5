"""A simple writer of TFRecord files, to test the reader."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tdvae_paper.first_person.rl_unplugged import masked_crc

Value = Sequence[bytes] | Sequence[float] | Sequence[int]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(kind: str, values: Sequence[Any], packed: bool = True) -> bytes:
    if kind == "bytes":
        return field(1, b"".join(field(1, value) for value in values))
    if kind == "floats":
        parts, wire, number = [struct.pack("<f", value) for value in values], 5, 2
    else:
        parts, wire, number = [varint(value) for value in values], 0, 3
    if packed:
        return field(number, field(1, b"".join(parts)))
    return field(number, b"".join(varint(1 << 3 | wire) + part for part in parts))


def example(features: Mapping[str, tuple[str, Sequence[Any]]], packed: bool = True) -> bytes:
    entries = [
        field(1, field(1, name.encode()) + field(2, feature(kind, values, packed)))
        for name, (kind, values) in features.items()
    ]
    return field(1, b"".join(entries))


def encode_record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def write(path: Path, contents: Sequence[bytes], compressed: bool = True) -> Path:
    """Write a TFRecord file, compressed with gzip if ``compressed``."""
    data = b"".join(encode_record(content) for content in contents)
    path.write_bytes(gzip.compress(data, mtime=0) if compressed else data)
    return path


def png(pixels: Any) -> bytes:
    with io.BytesIO() as buffer:
        Image.fromarray(pixels).save(buffer, "PNG")
        return buffer.getvalue()


def lab_episode(rgb: Any, actions: Sequence[int], rewards: Sequence[float], **changes: Any) -> dict[str, Any]:
    """Return the features of an RL Unplugged episode; ``actions[t]`` and ``rewards[t]`` follow frame t.

    The images are BGR, as in the original files.
    """
    steps = len(rgb)
    previous = np.zeros((steps, 15), np.float32)
    previous[np.arange(1, steps), list(actions)[:-1]] = 1
    previous[0, 0] = 1  # the files have a previous action even for the first frame
    return {
        "episode_id": ("ints", [7]),
        "start_idx": ("ints", [0]),
        "episode_return": ("floats", [sum(rewards)]),
        "observations_pixels": ("bytes", [png(frame[..., ::-1]) for frame in rgb]),
        "observations_reward": ("floats", [0.0, *rewards[:-1]]),
        "observations_action": ("floats", previous.ravel().tolist()),
        "actions": ("ints", list(actions)),
        "rewards": ("floats", list(rewards)),
        "discounted_rewards": ("floats", list(rewards)),
        "discounts": ("floats", [1.0] * (steps - 1) + [0.0]),
        **changes,
    }
