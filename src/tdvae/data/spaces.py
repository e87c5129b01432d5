"""Gymnasium spaces as arrays: observations as the x of a model, actions as vectors. All values are batches (N, …)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tdvae.errors import InputError

if TYPE_CHECKING:
    from gymnasium import Space

Array = npt.NDArray[Any]


def batched(space: Space[Any], value: Any) -> Any:
    """One value of a space as a batch of one."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {name: batched(part, value[name]) for name, part in space.spaces.items()}
    return np.asarray(value)[None]


def vector_size(space: Space[Any]) -> int:
    """The length of the vectors of `vectors`."""
    from gymnasium import spaces

    match space:
        case spaces.Box():
            return int(np.prod(space.shape))
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case spaces.Dict():
            return sum(vector_size(part) for part in space.spaces.values())
    raise InputError(f"space: expected Box, Discrete, MultiDiscrete or a Dict of these, got {space}")


def vectors(space: Space[Any], batch: Any) -> npt.NDArray[np.float32]:
    """Values of a space as vectors (N, D): numbers as they are, choices one-hot, the entries of a Dict in a row."""
    from gymnasium import spaces

    match space:
        case spaces.Box():
            values = np.asarray(batch, dtype=np.float32)
            return values.reshape(len(values), -1)
        case spaces.Discrete():
            return _one_hot(np.asarray(batch).reshape(-1) - space.start, int(space.n))
        case spaces.MultiDiscrete():
            choices = np.asarray(batch).reshape(len(batch), -1) - space.start.reshape(-1)
            columns = zip(choices.T, space.nvec.reshape(-1), strict=True)
            return np.concatenate([_one_hot(column, int(count)) for column, count in columns], axis=1)
        case spaces.Dict():
            return np.concatenate([vectors(part, batch[name]) for name, part in space.spaces.items()], axis=1)
    raise InputError(f"space: expected Box, Discrete, MultiDiscrete or a Dict of these, got {space}")


def _one_hot(choices: Array, count: int) -> npt.NDArray[np.float32]:
    if len(choices) and not 0 <= choices.min() <= choices.max() < count:
        raise InputError(f"action: expected one of {count} choices, got {choices.min()} to {choices.max()}")
    return np.eye(count, dtype=np.float32)[choices.astype(np.int64)]


def observations(space: Space[Any], batch: Any) -> Array:
    """Observations as they are recorded.

    A Box is float32, or uint8 for pictures; choices are integers if there are equally many of each; anything else is a
    vector. An environment may not keep to its space.
    """
    try:
        return _observations(space, batch)
    except InputError:
        raise
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise InputError(f"observation: expected one of {space}, got another ({error})") from error


def _observations(space: Space[Any], batch: Any) -> Array:
    from gymnasium import spaces

    match space:
        case spaces.Box() if is_picture(space):
            return np.asarray(batch, dtype=np.uint8)
        case spaces.Box():
            return np.asarray(batch, dtype=np.float32).reshape(len(batch), *(space.shape or (1,)))
        case spaces.Discrete():
            return np.asarray(batch, dtype=np.int64).reshape(-1, 1) - int(space.start)
        case spaces.MultiDiscrete() if len(set(space.nvec.reshape(-1).tolist())) == 1:
            return np.asarray(batch, dtype=np.int64) - space.start
    return vectors(space, batch)


def is_picture(space: Space[Any]) -> bool:
    """Whether observations are pictures (rows, columns, channels) of bytes."""
    return space.dtype == np.uint8 and len(space.shape or ()) == 3 and (space.shape or ())[2] in (1, 3, 4)


def to_x(recorded: Array) -> Tensor:
    """Recorded observations (…, *event) as the x of a model: pictures in [0, 1] with the channels first."""
    tensor = torch.from_numpy(np.ascontiguousarray(recorded))
    return tensor.movedim(-1, -3).float() / 255 if recorded.dtype == np.uint8 else tensor
