"""Load `Sequences` from arrays and .npz files, with validation of shapes, dtypes and values; split them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from tdvae.checks import Seed, checked
from tdvae.errors import InputError
from tdvae.storage.files import open_regular
from tdvae.types import Sequences

Array = npt.NDArray[Any]
ArrayLike = Array | Tensor | Sequence[Array] | Sequence[Tensor]


def from_arrays(
    x: ArrayLike,
    actions: ArrayLike | None = None,
    rewards: ArrayLike | None = None,
    lengths: Array | Tensor | None = None,
) -> Sequences:
    """Make sequences from one array (N, T, …), or from a list of arrays (T_n, …) of different lengths.

    An array (N, T) has one number per time step. Floating-point values are continuous observations, bool values are
    binary and integers are categorical. The action at index t, of shape (A,) or a single number, precedes the
    observation at index t and causes it; the reward at index t arrives with that observation. For a padded array,
    ``lengths`` (N,) gives the number of real time steps of each sequence. NaN raises an `InputError`: remove time
    steps that are missing, or split the sequence there.
    """
    observed, x_lengths = _pad("x", x, lengths)
    observed = observed[..., None] if observed.ndim == 2 else observed
    _check_values("x", observed, x_lengths)
    extra: dict[str, Tensor] = {}
    for name, values, event_ndim in (("actions", actions, 1), ("rewards", rewards, 0)):
        if values is None:
            continue
        padded, own_lengths = _pad(name, values, lengths)
        if padded.shape[:2] != observed.shape[:2] or not torch.equal(own_lengths, x_lengths):
            raise InputError(
                f"{name}: expected as many sequences and the same lengths as x, got shape {tuple(padded.shape)}"
            )
        padded = padded.float()
        padded = padded[..., None] if padded.ndim == 2 and event_ndim else padded
        if padded.ndim != 2 + event_ndim:
            raise InputError(f"{name}: expected {2 + event_ndim} dimensions, got shape {tuple(padded.shape)}")
        _check_values(name, padded, x_lengths)
        extra[name] = _clear_padding(padded, x_lengths)
    return Sequences(_clear_padding(observed, x_lengths), x_lengths, **extra)


@checked
def from_npz(path: str | Path) -> Sequences:
    """Load a .npz file with ``x`` and optionally ``lengths``, ``actions``, ``rewards``; or a .npy file with ``x``."""
    path = Path(path)
    try:
        with open_regular(path, follow=True) as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"x": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except FileNotFoundError as error:
        raise InputError(f"file: expected an existing file, got {path}") from error
    except OSError as error:
        raise InputError(f"file: expected a readable file, got {path} ({error.strerror or error})") from error
    except InputError:
        raise
    except Exception as error:  # whatever NumPy and its readers raise for a damaged, encrypted or hostile file
        raise InputError(f"file: expected a complete .npz or .npy file of numeric arrays, got {path}") from error
    known = {"x", "lengths", "actions", "rewards"}
    if "x" not in arrays or set(arrays) - known:
        raise InputError(
            f"file: expected arrays 'x' and optionally {sorted(known - {'x'})} in {path}, got {sorted(arrays)}"
        )
    return from_arrays(**arrays)


@checked
def split(
    data: Sequences, seed: Seed, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> tuple[Sequences, Sequences, Sequences]:
    """Split at random into training, validation and test sequences; each sequence is in exactly one part."""
    check_shares(shares)
    if len(data) < 3:
        raise InputError(f"data: expected at least 3 sequences to split into three parts, got {len(data)}")
    order = torch.randperm(len(data), generator=Generator().manual_seed(seed))
    train, validation, _ = share_sizes(len(data), shares)
    return (
        data.select(order[:train]),
        data.select(order[train : train + validation]),
        data.select(order[train + validation :]),
    )


def check_shares(shares: tuple[float, float, float]) -> None:
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise InputError(f"shares: expected three positive numbers with sum 1, got {shares}")


def share_sizes(n: int, shares: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return the sizes of the training, validation and test parts of ``n`` >= 3 items; each is at least 1."""
    validation = min(max(1, round(shares[1] * n)), n - 2)
    test = min(max(1, round(shares[2] * n)), n - 1 - validation)
    return n - validation - test, validation, test


def _pad(name: str, values: ArrayLike, lengths: Array | Tensor | None) -> tuple[Tensor, Tensor]:
    """Return one padded tensor (N, T, …) and the lengths (N,)."""
    if isinstance(values, np.ndarray | Tensor):
        tensor = _to_tensor(name, values)
        if tensor.ndim < 2:
            raise InputError(f"{name}: expected shape (sequences, steps, …), got {tuple(tensor.shape)}")
        if tensor.numel() == 0:
            raise InputError(f"{name}: expected at least one sequence and one step, got shape {tuple(tensor.shape)}")
        return tensor, _check_lengths(lengths, tensor)
    if not isinstance(values, Sequence):
        raise InputError(f"{name}: expected an array or a list of arrays, got {type(values).__name__}")
    parts = [_to_tensor(f"{name}[{i}]", part) for i, part in enumerate(values)]
    if not parts or any(part.ndim == 0 or part.numel() == 0 for part in parts):
        raise InputError(
            f"{name}: expected a list of non-empty arrays (steps, …), got {len(parts)} with shapes "
            f"{sorted({tuple(part.shape) for part in parts})[:3]}"
        )
    shapes = {tuple(part.shape[1:]) for part in parts}
    dtypes = {part.dtype for part in parts}
    if len(shapes) > 1 or len(dtypes) > 1:
        raise InputError(
            f"{name}: expected one feature shape and dtype, got {sorted(shapes)} and {sorted(map(str, dtypes))}"
        )
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    own_lengths = torch.tensor([len(part) for part in parts])
    if lengths is not None and not torch.equal(_check_lengths(lengths, padded), own_lengths):
        raise InputError(
            f"lengths: expected {own_lengths.tolist()}, the lengths of the arrays in {name}, "
            f"got {np.asarray(lengths).tolist()}"
        )
    return padded, own_lengths


def _to_tensor(name: str, values: object) -> Tensor:
    if isinstance(values, Tensor):
        if values.is_complex():
            raise InputError(f"{name}: expected real numbers, got dtype {values.dtype}")
        tensor = values.cpu()
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub" or array.dtype == np.longdouble:
            raise InputError(f"{name}: expected real numbers of at most 64 bits, got dtype {array.dtype}")
        # A copy in native byte order, because the array may be read-only and the caller may change it later.
        tensor = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    if tensor.is_floating_point():
        return tensor.float()
    return tensor if tensor.dtype == torch.bool else tensor.long()


def _check_lengths(lengths: Array | Tensor | None, padded: Tensor) -> Tensor:
    n, horizon = padded.shape[:2]
    if lengths is None:
        return torch.full((n,), horizon)
    given = np.asarray(lengths)
    expected = f"lengths: expected {n} integers between 1 and {horizon}, got"
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise InputError(f"{expected} shape {given.shape} of {given.dtype}")
    if given.min() < 1 or given.max() > horizon:
        raise InputError(f"{expected} {given.min()} to {given.max()}")
    return torch.from_numpy(given.astype(np.int64))


def _clear_padding(padded: Tensor, lengths: Tensor) -> Tensor:
    """Set the padding to zero: NaN there would reach the gradients, and a class there would be counted as a class."""
    real = torch.arange(padded.shape[1]) < lengths[:, None]
    return torch.where(real.view(*padded.shape[:2], *[1] * (padded.ndim - 2)), padded, torch.zeros_like(padded))


def _check_values(name: str, padded: Tensor, lengths: Tensor) -> None:
    """Raise an error for NaN, infinite values or negative classes at real time steps, with the first position."""
    real = torch.arange(padded.shape[1]) < lengths[:, None]
    values = padded.flatten(2) if padded.ndim > 2 else padded[..., None]
    bad = ~torch.isfinite(values) if padded.is_floating_point() else values < 0
    bad_steps = (bad.any(-1) & real).nonzero()
    if len(bad_steps):
        sequence, step = bad_steps[0].tolist()
        continuous, categorical = "finite values, got NaN or infinity", "integers as classes >= 0, got a negative class"
        problem = continuous if padded.is_floating_point() else categorical
        raise InputError(
            f"{name}: expected {problem} in sequence {sequence} at step {step} ({len(bad_steps)} such steps in total)"
        )
