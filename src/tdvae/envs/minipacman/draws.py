"""Counter-based random numbers: each is a hash of (key of the game, frame, number of the draw).

With one generator for a batch, the numbers of a game would depend on the other games of the batch. Here they depend
only on the key and the frame counter of the game. The hash is that of splitmix64, whose output can be computed at any
index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.errors import InputError

Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_DRAW_BITS = np.uint64(24)  # bits of the counter for the number of the draw within a frame


def mix(z: Keys) -> Keys:
    """Apply the finaliser of splitmix64: every bit of the result depends on every bit of ``z``."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def splitmix64(state: Keys, index: Keys) -> Keys:
    """The ``index``-th output (from 0) of splitmix64 with initial state ``state``."""
    return mix(state + _GAMMA * (index + np.uint64(1)))


def check_seed(name: str, seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**64:
        raise InputError(f"{name}: expected an integer from 0 to 2**64 - 1, got {seed!r}")
    return int(seed)


def keys_of(seeds: Sequence[int] | npt.NDArray[Any]) -> Keys:
    """One key per seed: a hash, so that neighbouring seeds do not give neighbouring streams."""
    if isinstance(seeds, np.ndarray) and seeds.dtype == np.uint64 and seeds.ndim == 1:
        return mix(seeds)
    checked = [check_seed("seeds", seed) for seed in np.asarray(seeds, dtype=object).reshape(-1).tolist()]
    return mix(np.array(checked, dtype=np.uint64))


def spawn(seed: int, n: int) -> Keys:
    """``n`` seeds computed from one; the first seeds do not depend on ``n``."""
    state = mix(np.array([check_seed("seed", seed)], dtype=np.uint64))
    return splitmix64(state, np.arange(n, dtype=np.uint64))


def uniform(keys: Keys, frames: Ints, number: int) -> Floats:
    """Draw ``number`` of each game's frame, uniform in [0, 1) with 53 bits."""
    index = (frames.astype(np.uint64) << _DRAW_BITS) | np.uint64(number)
    return (splitmix64(keys, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform_int(limits: int | Ints, keys: Keys, frames: Ints, number: int) -> Ints:
    """Draw ``number`` of each game's frame as an integer, uniform in 0 … limit - 1."""
    return (uniform(keys, frames, number) * limits).astype(np.int64)
