"""CRC-32C (Castagnoli) checksums in NumPy, fast enough for files of images without a compiled extension.

A CRC is linear over GF(2): the register after a block of bytes is the register before it, advanced over as many zero
bytes, XOR the register that the block gives when started from zero. Long data is therefore cut into lanes of equal
length, which NumPy processes in parallel, one byte of each lane at a time. Neighbouring lanes are then combined in
pairs until one register is left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # in reversed bit order
_LANES = 1024  # a power of two
_MIN_LANE_BYTES = 16 * _LANES  # for fewer bytes, the set-up of the lanes costs more than it saves


def _byte_table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _byte_table()
_TABLE_LIST = _TABLE.tolist()
_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def crc32c(data: bytes) -> int:
    register, rest = 0xFFFFFFFF, data
    if len(data) >= _MIN_LANE_BYTES:
        whole = len(data) // _LANES * _LANES
        register, rest = _process_lanes(register, data[:whole]), data[whole:]
    for byte in rest:
        register = _TABLE_LIST[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


def _process_lanes(register: int, data: bytes) -> int:
    lanes = np.frombuffer(data, np.uint8).reshape(_LANES, -1)
    registers = np.zeros(_LANES, np.uint32)
    registers[0] = register
    for column in np.ascontiguousarray(lanes.T):
        registers = _TABLE[(registers ^ column) & 0xFF] ^ registers >> 8
    lane_matrix = _zero_bytes_matrix(lanes.shape[1])
    while len(registers) > 1:
        registers = _multiply(lane_matrix, registers[::2]) ^ registers[1::2]
        lane_matrix = _multiply(lane_matrix, lane_matrix)  # combined lanes are twice as long
    return int(registers[0])


def _zero_bytes_matrix(n: int) -> Words:
    """Return the columns of the matrix over GF(2) that advances the register over ``n`` zero bytes."""
    result, power = _BITS, _TABLE[_BITS & 0xFF] ^ _BITS >> 8
    while n:
        if n & 1:
            result = _multiply(power, result)
        power, n = _multiply(power, power), n >> 1
    return result


def _multiply(columns: Words, registers: Words) -> Words:
    """Apply the matrix with these columns to each register."""
    set_bits = (registers[:, None] & _BITS) != 0
    products: Words = np.bitwise_xor.reduce(np.where(set_bits, columns, np.uint32(0)), axis=1)
    return products
