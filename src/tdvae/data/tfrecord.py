"""TFRecord files and the tf.train.Example messages in them, read without TensorFlow.

A record is: its length (8 bytes, little endian), a checksum of the length, the content, a checksum of the content. The
checksums are CRC-32C, rotated and offset ("masked"). The file may be gzip. A content is a protocol buffer: of its wire
format, only what tf.train.Example uses is understood, and unknown fields are skipped as the format demands.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from tdvae.data.crc32c import crc32c
from tdvae.errors import InputError

Feature = list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # the wire types there are
_GZIP = b"\x1f\x8b"


def masked_crc(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_examples(path: str | Path) -> Iterator[dict[str, Feature]]:
    """The examples of a file, one after another; damage is refused where it is met, with the record's number."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            stream = _unpacked(file)
            number = 0
            while (content := _next_record(stream)) is not None:
                yield parse_example(content)
                number += 1
    except FileNotFoundError as error:
        raise InputError(f"file: {path} does not exist") from error
    except InputError as error:
        raise InputError(f"file: {path} is damaged or not a TFRecord, at record {number}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"file: {path} cannot be read: {error}") from error


def _unpacked(file: BinaryIO) -> BinaryIO:
    start = file.read(2)
    file.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=file)) if start == _GZIP else file


def _next_record(stream: BinaryIO) -> bytes | None:
    header = stream.read(12)
    if not header:
        return None
    if len(header) < 12:
        raise InputError(f"got {len(header)} bytes of its header, expected 12")
    length, checksum = struct.unpack("<QI", header)
    if checksum != masked_crc(header[:8]):  # before so many bytes are asked for
        raise InputError("its length does not have the checksum that is stored with it")
    content = stream.read(length + 4)
    if len(content) < length + 4:
        raise InputError(f"got {len(content)} bytes of its content, expected {length + 4}")
    if struct.unpack_from("<I", content, length)[0] != masked_crc(content[:length]):
        raise InputError("its content does not have the checksum that is stored with it")
    return content[:length]


def parse_example(content: bytes) -> dict[str, Feature]:
    """The features of a tf.train.Example by name."""
    features: dict[str, Feature] = {}
    for part in _messages(memoryview(content), 1):
        for entry in _messages(part, 1):
            name, feature = b"", memoryview(b"")
            for field, wire, value in _fields(entry):
                if wire == _BYTES and field == 1:
                    name = bytes(value)
                elif wire == _BYTES and field == 2:
                    feature = value
            features[_text(name)] = _feature(feature)
    return features


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"a feature's name is not UTF-8: {name[:40]!r}") from error


def _feature(message: memoryview) -> Feature:
    """One of the three lists; the last one given counts, as the format demands. An empty feature has no values."""
    result: Feature = []
    for field, wire, values in _fields(message):
        if wire != _BYTES:
            continue
        if field == 1:
            result = [bytes(value) for value in _messages(values, 1)]
        elif field == 2:
            result = np.frombuffer(b"".join(_packed(values, _FIXED32)), "<f4").astype(np.float32)
        elif field == 3:
            numbers = [_signed(n) for part in _packed(values, _VARINT) for n in _varints(part)]
            result = np.array(numbers, np.int64)
    return result


def _packed(message: memoryview, single: int) -> Iterator[memoryview]:
    """The values of field 1 as bytes, whether they are packed together or given one by one."""
    for field, wire, value in _fields(message):
        if field != 1:
            continue
        if wire not in (single, _BYTES):
            raise InputError(f"a list of numbers has wire type {wire}, expected {single} or {_BYTES}")
        if single == _FIXED32 and len(value) % 4:
            raise InputError(f"a list of floats has {len(value)} bytes, expected a multiple of 4")
        yield value


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    for field, wire, value in _fields(message):
        if field == wanted and wire == _BYTES:
            yield value


def _fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Number, wire type and content of each field; a varint's content is its own bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, wire = key >> 3, key & 7
        if field == 0:
            raise InputError("a field has the number 0, expected at least 1")
        start = place
        if wire == _VARINT:
            _, place = _varint(message, place)
        elif wire == _BYTES:
            length, start = _varint(message, place)
            place = start + length
        elif wire in (_FIXED32, _FIXED64):
            place += 4 if wire == _FIXED32 else 8
        else:
            raise InputError(f"a field has wire type {wire}, expected 0, 1, 2 or 5")
        if place > len(message):
            raise InputError(f"a field ends at byte {place}, expected at most {len(message)}")
        yield field, wire, message[start:place]


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """An unsigned number of 7 bits per byte, lowest first, and the place after it."""
    number = 0
    for i, byte in enumerate(message[place : place + 10]):
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if number >= 1 << 64:
                break
            return number, place + i + 1
    raise InputError(f"a number at byte {place} has no end, expected at most 10 bytes and 64 bits")


def _varints(message: memoryview) -> Iterator[int]:
    place = 0
    while place < len(message):
        number, place = _varint(message, place)
        yield number


def _signed(number: int) -> int:
    """int64 travels as its two's complement."""
    return number - (1 << 64) if number >= 1 << 63 else number
