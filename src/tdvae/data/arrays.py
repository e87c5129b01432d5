"""Load `Sequences` from arrays and .npz files, with validation of shapes, dtypes and values; split them."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from tdvae.checks import Seed, checked
from tdvae.errors import InputError
from tdvae.storage.files import check_content, open_regular
from tdvae.types import Sequences

Array = npt.NDArray[Any]
ArrayLike = Array | Tensor | Sequence[Array] | Sequence[Tensor]


LEAST_LEVELS = 1_000  # float32 numbers within a standard deviation; with fewer, the conversion has lost too much
ROUNDING = 1e-12  # a 64-bit channel whose spread is at most this share of its mean is constant


def from_arrays(
    x: ArrayLike,
    actions: ArrayLike | None = None,
    rewards: ArrayLike | None = None,
    lengths: Array | Tensor | None = None,
    observed: ArrayLike | None = None,
) -> Sequences:
    """Make sequences from one array (N, T, …), or from a list of arrays (T_n, …) of different lengths.

    An array (N, T) has one number per time step. Floating-point values are continuous observations, bool values are
    binary and integers are categorical. The action at index t, of shape (A,) or a single number, precedes the
    observation at index t and causes it; the reward at index t arrives with that observation. For a padded array,
    ``lengths`` (N,) gives the number of real time steps of each sequence.

    Floating-point observations may have missing values: NaN, masked entries of a NumPy masked array, or entries where
    the bool array ``observed``, of the shape of x, is False. The result then has a mask, and x is 0 where a value is
    missing. Floating-point numbers are stored with 32 bits. If that would lose most of the variation of a channel, as
    it does with a large offset, an `InputError` says so.

    >>> import numpy as np, tdvae
    >>> data = tdvae.data.from_arrays(np.array([[0.5, np.nan, 0.25]]))
    >>> data.x.flatten(), data.observed.flatten()
    (tensor([0.5000, 0.0000, 0.2500]), tensor([ True, False,  True]))
    """
    values, x_lengths = _pad("x", x, lengths)
    mask = _mask(values, observed, lengths, x_lengths)
    if mask is not None:
        values = torch.where(mask, values, 0)
    if values.is_floating_point():
        values = _to_single("x", values, _real_steps(values, x_lengths) if mask is None else mask)
    _check_values("x", values, x_lengths)
    extra: dict[str, Tensor] = {}
    for name, given, event_ndim in (("actions", actions, 1), ("rewards", rewards, 0)):
        if given is None:
            continue
        padded, own_lengths = _pad(name, given, lengths)
        if padded.shape[:2] != values.shape[:2] or not torch.equal(own_lengths, x_lengths):
            raise InputError(
                f"{name}: expected as many sequences and the same lengths as x, got shape {tuple(padded.shape)}"
            )
        if padded.ndim not in (2, 2 + event_ndim):
            raise InputError(f"{name}: expected {2 + event_ndim} dimensions, got shape {tuple(padded.shape)}")
        padded = _to_single(name, padded, _real_steps(padded, x_lengths))
        _check_values(name, padded, x_lengths)
        extra[name] = _clear_padding(padded[..., None] if padded.ndim < 2 + event_ndim else padded, x_lengths)
    if mask is not None:
        extra["observed"] = mask[..., None] if mask.ndim == 2 else mask
    values = values[..., None] if values.ndim == 2 else values
    data = Sequences(_clear_padding(values, x_lengths), x_lengths, **extra)
    if never := data.never_observed():
        raise InputError(f"x: expected at least one observed value of each channel, got none of channel {never[0]}")
    return data


def _mask(
    values: Tensor, observed: ArrayLike | None, lengths: Array | Tensor | None, x_lengths: Tensor
) -> Tensor | None:
    """What was observed of x, in its shape; None if nothing is missing."""
    if not values.is_floating_point():
        if observed is not None:
            raise InputError(f"observed: expected None unless x is floating-point, got a mask for {values.dtype}")
        return None
    mask = ~values.isnan()
    if observed is not None:
        given, own_lengths = _pad("observed", observed, lengths)
        if given.dtype != torch.bool or given.shape != values.shape or not torch.equal(own_lengths, x_lengths):
            raise InputError(
                f"observed: expected bool values in the shape {tuple(values.shape)} of x and with its lengths, got "
                f"{tuple(given.shape)} of {given.dtype}"
            )
        mask = mask & given
    real = _real_steps(values, x_lengths)
    return None if bool((mask | ~real).all()) else mask & real


@checked
def from_npz(path: str | Path) -> Sequences:
    """Load a .npz file with ``x`` and optionally the other arguments of `from_arrays`; or a .npy file with ``x``."""
    known = {"x", "lengths", "actions", "rewards", "observed"}

    def choose(names: Sequence[str]) -> Sequence[str]:
        if "x" not in names or set(names) - known:
            raise InputError(
                f"file: expected arrays 'x' and optionally {sorted(known - {'x'})} in {path}, got {sorted(names)}"
            )
        return names

    return from_arrays(**read_npz(path, choose))


def read_npz(path: str | Path, choose: Callable[[Sequence[str]], Iterable[str]] | None = None) -> dict[str, Array]:
    """The arrays of a .npz file by name; the array of a .npy file is ``x``.

    ``choose`` is given the names and returns those of the arrays to read. Their declared sizes are checked first.
    """
    path = Path(path)
    try:
        with open_regular(path, follow=True) as file:
            if not zipfile.is_zipfile(file):
                _check_declared(file, path, os.fstat(file.fileno()).st_size)
                return {"x": np.load(file, allow_pickle=False)}
            with zipfile.ZipFile(file) as archive:
                members = {name.removesuffix(".npy"): archive.getinfo(name) for name in archive.namelist()}
                wanted = list(members if choose is None else choose(list(members)))
                check_content(path, sum(members[name].file_size for name in wanted), "arrays")
                for name in wanted:
                    with archive.open(members[name]) as member:
                        _check_declared(member, path, members[name].file_size, seek=False)
            file.seek(0)
            with np.load(file, allow_pickle=False) as loaded:
                return {name: loaded[name] for name in wanted}
    except FileNotFoundError as error:
        raise InputError(f"file: expected an existing file, got {path}") from error
    except OSError as error:
        raise InputError(f"file: expected a readable file, got {path} ({error.strerror or error})") from error
    except InputError:
        raise
    except Exception as error:  # whatever NumPy and its readers raise for a damaged, encrypted or hostile file
        raise InputError(f"file: expected a complete .npz or .npy file of numeric arrays, got {path}") from error


def _check_declared(file: IO[bytes], path: Path, size: int, seek: bool = True) -> None:
    """Raise if the header of an array declares more bytes than there are, before memory is taken for them."""
    if seek:
        file.seek(0)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if math.prod(shape) * dtype.itemsize > size:
        raise InputError(f"file: expected complete arrays, got one of shape {shape} that is cut short in {path}")
    if seek:
        file.seek(0)


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
    """The sizes of the training, validation and test parts of ``n`` >= 3 items; each is at least 1."""
    validation = min(max(1, round(shares[1] * n)), n - 2)
    test = min(max(1, round(shares[2] * n)), n - 1 - validation)
    return n - validation - test, validation, test


def _pad(name: str, values: ArrayLike, lengths: Array | Tensor | None) -> tuple[Tensor, Tensor]:
    """One padded tensor (N, T, …) and the lengths (N,)."""
    if isinstance(values, np.ndarray | Tensor):
        tensor = _to_tensor(name, values)
        if tensor.ndim < 2:
            raise InputError(f"{name}: expected shape (sequences, steps, …), got {tuple(tensor.shape)}")
        if tensor.numel() == 0:
            raise InputError(f"{name}: expected at least one sequence and one step, got shape {tuple(tensor.shape)}")
        return tensor, check_lengths(lengths, *tensor.shape[:2])
    if not isinstance(values, Sequence):
        raise InputError(f"{name}: expected an array or a list of arrays, got {type(values).__name__}")
    parts = [_to_tensor(f"{name}[{i}]", part) for i, part in enumerate(values)]
    if any(part.dtype == torch.float64 for part in parts):
        parts = [part.double() if part.is_floating_point() else part for part in parts]
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
    if lengths is not None and not torch.equal(check_lengths(lengths, *padded.shape[:2]), own_lengths):
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
        if isinstance(values, np.ma.MaskedArray) and values.dtype.kind == "f":
            values = values.filled(np.nan)
        elif np.ma.is_masked(values):
            raise InputError(
                f"{name}: expected masked entries in floating-point arrays only, got {np.asarray(values).dtype}"
            )
        array = np.asarray(values)
        if array.dtype.kind not in "fiub" or array.dtype == np.longdouble:
            raise InputError(f"{name}: expected real numbers of at most 64 bits, got dtype {array.dtype}")
        # A copy in native byte order, because the array may be read-only and the caller may change it later.
        tensor = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    if tensor.is_floating_point():  # 64 bits are kept for the statistics of `_to_single`
        return tensor if tensor.dtype == torch.float64 else tensor.float()
    return tensor if tensor.dtype == torch.bool else tensor.long()


def _to_single(name: str, padded: Tensor, observed: Tensor) -> Tensor:
    """Convert to float32. Raise if too few float32 numbers would be left for the variation of a channel."""
    if padded.dtype in (torch.float32, torch.bool):
        return padded.float()
    channels = (-1, math.prod(padded.shape[2:]))
    observed = observed.expand_as(padded).reshape(channels)
    values = torch.where(observed, padded.reshape(channels).double(), 0)
    count = observed.sum(0)
    mean = values.sum(0) / count
    std = (torch.where(observed, values - mean, 0).square().sum(0) / count).sqrt()
    exponent = torch.frexp(torch.maximum(mean.abs(), std)).exponent
    spacing = torch.ldexp(torch.ones_like(std), (exponent - 24).clamp(min=-149))  # of float32 numbers at the mean
    lost = (std < LEAST_LEVELS * spacing) & (std > ROUNDING * mean.abs())
    if bool(lost.any()):
        channel = int(lost.nonzero()[0, 0])
        raise InputError(
            f"{name}: expected at least {LEAST_LEVELS} different 32-bit numbers within a standard deviation, got "
            f"{float(std[channel] / spacing[channel]):.0f} in channel {channel} with mean "
            f"{float(mean[channel]):g} and standard deviation {float(std[channel]):g}; subtract the mean first, and "
            "divide by the standard deviation if it is tiny"
        )
    return padded.float()


def check_lengths(lengths: Array | Tensor | None, n: int, horizon: int) -> Tensor:
    """The lengths of ``n`` sequences that are padded to ``horizon`` steps."""
    if lengths is None:
        return torch.full((n,), horizon)
    given = np.asarray(lengths)
    expected = f"lengths: expected {n} integers between 1 and {horizon}, got"
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise InputError(f"{expected} shape {given.shape} of {given.dtype}")
    if given.min() < 1 or given.max() > horizon:
        raise InputError(f"{expected} {given.min()} to {given.max()}")
    return torch.from_numpy(given.astype(np.int64))


def _real_steps(padded: Tensor, lengths: Tensor) -> Tensor:
    """True for time steps, False for padding, (N, T, 1, …): as many dimensions as ``padded`` has."""
    real = torch.arange(padded.shape[1]) < lengths[:, None]
    return real.view(*padded.shape[:2], *[1] * (padded.ndim - 2))


def _clear_padding(padded: Tensor, lengths: Tensor) -> Tensor:
    """Set the padding to zero: NaN there would reach the gradients, and a class there would be counted as a class."""
    return torch.where(_real_steps(padded, lengths), padded, torch.zeros_like(padded))


def _check_values(name: str, padded: Tensor, lengths: Tensor) -> None:
    """Raise an error for NaN, infinite values or negative classes at real time steps, with the first position."""
    bad = ~torch.isfinite(padded) if padded.is_floating_point() else padded < 0
    bad = bad & _real_steps(padded, lengths)
    bad_steps = (bad.flatten(2).any(-1) if bad.ndim > 2 else bad).nonzero()
    if len(bad_steps):
        sequence, step = bad_steps[0].tolist()
        continuous, categorical = "finite values, got NaN or infinity", "integers as classes >= 0, got a negative class"
        problem = continuous if padded.is_floating_point() else categorical
        raise InputError(
            f"{name}: expected {problem} in sequence {sequence} at step {step} ({len(bad_steps)} such steps in total)"
        )
