"""CRC-32C (Castagnoli), fast enough for files of pictures without a compiled extension.

A CRC is linear: the register after some bytes is the register before them, moved on over as many zeros, plus what the
bytes alone give. So long data is cut into lanes of equal length that NumPy runs side by side, a byte of each at a time;
then neighbouring lanes are joined, and their joins, until one is left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # bits reversed
_LANES = 1024  # a power of two
_LONG = 16 * _LANES  # bytes from which lanes are worth their set-up


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
    if len(data) >= _LONG:
        whole = len(data) // _LANES * _LANES
        register, rest = _in_lanes(register, data[:whole]), data[whole:]
    for byte in rest:
        register = _TABLE_LIST[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


def _in_lanes(register: int, data: bytes) -> int:
    lanes = np.frombuffer(data, np.uint8).reshape(_LANES, -1)
    registers = np.zeros(_LANES, np.uint32)
    registers[0] = register
    for column in np.ascontiguousarray(lanes.T):
        registers = _TABLE[(registers ^ column) & 0xFF] ^ registers >> 8
    over_a_lane = _over_zeros(lanes.shape[1])
    while len(registers) > 1:
        registers = _moved(over_a_lane, registers[::2]) ^ registers[1::2]
        over_a_lane = _moved(over_a_lane, over_a_lane)  # joined lanes are twice as long
    return int(registers[0])


def _over_zeros(n: int) -> Words:
    """What ``n`` zero bytes make of each single bit of the register: the columns of a matrix over two elements."""
    result, power = _BITS, _TABLE[_BITS & 0xFF] ^ _BITS >> 8
    while n:
        if n & 1:
            result = _moved(power, result)
        power, n = _moved(power, power), n >> 1
    return result


def _moved(columns: Words, registers: Words) -> Words:
    """The matrix with these columns, applied to each register."""
    set_bits = (registers[:, None] & _BITS) != 0
    moved: Words = np.bitwise_xor.reduce(np.where(set_bits, columns, np.uint32(0)), axis=1)
    return moved
