"""Read TFRecord files and the tf.train.Example messages in them, without TensorFlow.

A record consists of its length (8 bytes, little endian), a checksum of the length, the content and a checksum of the
content. The checksums are CRC-32C, rotated and offset ("masked"). The file may be compressed with gzip. The content is
a protocol buffer. Of its wire format, only the part that tf.train.Example uses is implemented; unknown fields are
skipped, as the format requires.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from tdvae.errors import InputError
from tdvae.storage.files import open_regular

Feature = list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_GZIP = b"\x1f\x8b"


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
