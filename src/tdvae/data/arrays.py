"""Sequences from arrays and .npz files, checked at the door: what gets in can be trained on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from tdvae.errors import InputError
from tdvae.types import Sequences

Array = npt.NDArray[Any]
ArrayLike = Array | Tensor | Sequence[Array] | Sequence[Tensor]


def from_arrays(
    x: ArrayLike,
    actions: ArrayLike | None = None,
    rewards: ArrayLike | None = None,
    lengths: Array | Tensor | None = None,
) -> Sequences:
    """Sequences from one array (N, T, …), or from a list of arrays (T_n, …) of different lengths.

    (N, T) is read as one number per step. Floating point stays continuous, bool binary, integer categorical. An action
    (A numbers, or one) precedes the observation in the same row and causes it; a reward arrives with it. ``lengths``
    marks a padded array's real steps. A missing step (NaN) is refused: leave it out, or split the sequence there.
    """
    observed, steps = _pad("x", x, lengths)
    observed = observed[..., None] if observed.ndim == 2 else observed
    _check_values("x", observed, steps)
    extra: dict[str, Tensor] = {}
    for name, values, event_ndim in (("actions", actions, 1), ("rewards", rewards, 0)):
        if values is None:
            continue
        padded, own_steps = _pad(name, values, lengths)
        if padded.shape[:2] != observed.shape[:2] or not torch.equal(own_steps, steps):
            raise InputError(f"{name}: expected the same sequences and lengths as x, got shape {tuple(padded.shape)}")
        padded = padded.float()
        padded = padded[..., None] if padded.ndim == 2 and event_ndim else padded
        if padded.ndim != 2 + event_ndim:
            raise InputError(f"{name}: expected {2 + event_ndim} dimensions, got shape {tuple(padded.shape)}")
        _check_values(name, padded, steps)
        extra[name] = _clear_padding(padded, steps)
    return Sequences(_clear_padding(observed, steps), steps, **extra)


def from_npz(path: str | Path) -> Sequences:
    """Sequences from a .npz with ``x`` and optionally ``lengths``, ``actions``, ``rewards``; or from a .npy with x."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"x": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except FileNotFoundError as error:
        raise InputError(f"file: {path} does not exist") from error
    except OSError as error:
        raise InputError(f"file: {path} cannot be read ({error.strerror or error})") from error
    except (ValueError, BadZipFile, EOFError, zlib.error) as error:  # numpy takes any other file for a pickle
        raise InputError(f"file: {path} is not a whole .npz or .npy of plain numbers") from error
    known = {"x", "lengths", "actions", "rewards"}
    if "x" not in arrays or set(arrays) - known:
        raise InputError(f"file: {path} must hold 'x' and at most {sorted(known - {'x'})}, got {sorted(arrays)}")
    return from_arrays(**arrays)


def split(
    data: Sequences, seed: int, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> tuple[Sequences, Sequences, Sequences]:
    """Training, validation and test sequences: each sequence is in exactly one of them."""
    check_shares(shares)
    if len(data) < 3:
        raise InputError(f"data: {len(data)} sequences are too few to split in three; expected at least 3")
    order = torch.randperm(len(data), generator=Generator().manual_seed(seed))
    train, validation, _ = share_sizes(len(data), shares)
    return (
        data.select(order[:train]),
        data.select(order[train : train + validation]),
        data.select(order[train + validation :]),
    )


def check_shares(shares: tuple[float, float, float]) -> None:
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise InputError(f"shares: expected three positive shares that add up to 1, got {shares}")


def share_sizes(n: int, shares: tuple[float, float, float]) -> tuple[int, int, int]:
    """How many of ``n`` (3 or more) belong to each part: at least one, training before the others."""
    validation = min(max(1, round(shares[1] * n)), n - 2)
    test = min(max(1, round(shares[2] * n)), n - 1 - validation)
    return n - validation - test, validation, test


def _pad(name: str, values: ArrayLike, lengths: Array | Tensor | None) -> tuple[Tensor, Tensor]:
    """One (N, T, …) tensor and the (N,) lengths."""
    if isinstance(values, np.ndarray | Tensor):
        tensor = _tensor(name, values)
        if tensor.ndim < 2:
            raise InputError(f"{name}: expected (sequences, steps, …), got shape {tuple(tensor.shape)}")
        if tensor.numel() == 0:
            raise InputError(f"{name}: empty, shape {tuple(tensor.shape)}; expected at least one sequence and step")
        return tensor, _lengths(lengths, tensor)
    if not isinstance(values, Sequence):
        raise InputError(f"{name}: expected an array or a list of arrays, got {type(values).__name__}")
    parts = [_tensor(f"{name}[{i}]", part) for i, part in enumerate(values)]
    if not parts or any(part.ndim == 0 or part.numel() == 0 for part in parts):
        raise InputError(f"{name}: expected a list of non-empty arrays (steps, …), got {len(parts)} with an empty one")
    shapes = {tuple(part.shape[1:]) for part in parts}
    kinds = {part.dtype for part in parts}
    if len(shapes) > 1 or len(kinds) > 1:
        raise InputError(
            f"{name}: sequences disagree in feature shape or type: {sorted(shapes)}, {sorted(map(str, kinds))}"
        )
    padded, own = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True), torch.tensor([len(part) for part in parts])
    if lengths is not None and not torch.equal(_lengths(lengths, padded), own):
        raise InputError(f"lengths: they contradict {name}, a list whose own lengths are {own.tolist()}")
    return padded, own


def _tensor(name: str, values: object) -> Tensor:
    if isinstance(values, Tensor):
        if values.is_complex():
            raise InputError(f"{name}: expected real numbers, got dtype {values.dtype}")
        tensor = values.cpu()
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub" or array.dtype == np.longdouble:
            raise InputError(f"{name}: expected real numbers of at most 64 bits, got dtype {array.dtype}")
        # A copy in the machine's byte order: the array may be read-only, or the caller's to change.
        tensor = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    if tensor.is_floating_point():
        return tensor.float()
    return tensor if tensor.dtype == torch.bool else tensor.long()


def _lengths(lengths: Array | Tensor | None, padded: Tensor) -> Tensor:
    n, horizon = padded.shape[:2]
    if lengths is None:
        return torch.full((n,), horizon)
    given = np.asarray(lengths)
    expected = f"lengths: expected {n} whole numbers between 1 and {horizon}, got"
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise InputError(f"{expected} shape {given.shape} of {given.dtype}")
    if given.min() < 1 or given.max() > horizon:
        raise InputError(f"{expected} {given.min()} to {given.max()}")
    return torch.from_numpy(given.astype(np.int64))


def _clear_padding(padded: Tensor, lengths: Tensor) -> Tensor:
    """Zero what is not real: a NaN there would reach the gradients, and a class there would count as one."""
    real = torch.arange(padded.shape[1]) < lengths[:, None]
    return torch.where(real.view(*padded.shape[:2], *[1] * (padded.ndim - 2)), padded, torch.zeros_like(padded))


def _check_values(name: str, padded: Tensor, lengths: Tensor) -> None:
    """Refuse NaN, infinities and negative classes in the real steps, and say where the first one is."""
    real = torch.arange(padded.shape[1]) < lengths[:, None]
    values = padded.flatten(2) if padded.ndim > 2 else padded[..., None]
    bad = ~torch.isfinite(values) if padded.is_floating_point() else values < 0
    where = (bad.any(-1) & real).nonzero()
    if len(where):
        sequence, step = where[0].tolist()
        what = "NaN or infinite" if padded.is_floating_point() else "negative class (integers are classes) as a"
        raise InputError(f"{name}: {what} value in sequence {sequence} at step {step} ({len(where)} such steps in all)")
