"""Random numbers without a generator: each is a hash of (game, frame, number), so no game depends on another.

A generator shared by a batch would hand out its numbers in an order that changes with the batch: a game would then play
differently alone than among others. Here a game's key and its own frame counter fix all its numbers. The hash is
splitmix64's, read at any place of its stream instead of one after another.
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
_NUMBERS = np.uint64(24)  # bits of the counter that belong to the draw's number within a frame


def mix(z: Keys) -> Keys:
    """splitmix64's finaliser: every bit of the result depends on every bit of ``z``."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def splitmix64(state: Keys, index: Keys) -> Keys:
    """The ``index``-th output (from 0) of splitmix64 started at ``state``."""
    return mix(state + _GAMMA * (index + np.uint64(1)))


def check_seed(name: str, seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**64:
        raise InputError(f"{name}: got {seed!r}, expected a whole number from 0 to 2**64 - 1")
    return int(seed)


def keys_of(seeds: Sequence[int] | npt.NDArray[Any]) -> Keys:
    """One key per seed: neighbouring seeds must not give neighbouring streams."""
    if isinstance(seeds, np.ndarray) and seeds.dtype == np.uint64 and seeds.ndim == 1:
        return mix(seeds)
    checked = [check_seed("seeds", seed) for seed in np.asarray(seeds, dtype=object).reshape(-1).tolist()]
    return mix(np.array(checked, dtype=np.uint64))


def spawn(seed: int, n: int) -> Keys:
    """``n`` seeds from one; the first ones are the same whatever ``n``."""
    state = mix(np.array([check_seed("seed", seed)], dtype=np.uint64))
    return splitmix64(state, np.arange(n, dtype=np.uint64))


def uniform(keys: Keys, frames: Ints, number: int) -> Floats:
    """Each game's draw ``number`` of this frame, uniform in [0, 1) with 53 bits."""
    index = (frames.astype(np.uint64) << _NUMBERS) | np.uint64(number)
    return (splitmix64(keys, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(limits: int | Ints, keys: Keys, frames: Ints, number: int) -> Ints:
    """Each game's draw ``number`` of this frame as a whole number, uniform in 0 … limit - 1."""
    return (uniform(keys, frames, number) * limits).astype(np.int64)
