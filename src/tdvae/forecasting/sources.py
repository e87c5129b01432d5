"""Everything that sequences can be read from: files by their ending, DataFrames, arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tdvae.data import Recording, from_arrays
from tdvae.data.arrays import read_npz
from tdvae.errors import InputError
from tdvae.forecasting.series import Array, Columns, Series
from tdvae.forecasting.tables import TABLE_FILES, from_frame, is_frame, read_table

ARRAY_FILES, HDF5_FILES = (".npz", ".npy"), (".h5", ".hdf5")
Source = Any  # a path, a DataFrame of pandas or polars, an array, a list of arrays, or a mapping of arrays by name


def read(source: Source, columns: Columns | None = None, future: bool = False) -> Series | Recording:
    """Read sequences in their own units; a file of `tdvae record` is opened as a `Recording`.

    With ``future``, arrays of known inputs may go on after the last observation, and so may x, with NaN.
    """
    columns = columns or Columns()
    if is_frame(source):
        return from_frame(source, columns)
    if not isinstance(source, str | Path):
        arrays = source if isinstance(source, Mapping) else {"x": source}
        return _from_mapping(arrays, columns, "data", future)
    path = Path(source)
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"file: expected a regular file, got {path}, which is a folder, a device or a pipe")
    ending = path.suffix.lower()
    if ending in TABLE_FILES:
        return read_table(path, columns)
    if ending in HDF5_FILES:
        return _read_hdf5(path, columns, future)
    if ending not in ARRAY_FILES:
        known = ", ".join((*ARRAY_FILES, *TABLE_FILES, *HDF5_FILES))
        raise InputError(f"file: expected a file that ends with one of {known}; got {path}")
    return _from_mapping(read_npz(path), columns, str(path), future)


def _read_hdf5(path: Path, columns: Columns, future: bool) -> Series | Recording:
    """A recording, or arrays by name; arrays in groups are called ``group/name``."""
    import h5py

    if not path.is_file():
        raise InputError(f"file: expected an existing file, got {path}")
    try:
        with h5py.File(path, "r") as file:
            if "format" not in file.attrs:
                found: dict[str, Any] = {}
                file.visititems(lambda name, item: found.update({name: item}) if hasattr(item, "shape") else None)
                wanted = _roles(found, columns, str(path))
                return _from_mapping({name: found[name][()] for name in wanted}, columns, str(path), future)
    except OSError as error:
        raise InputError(
            f"file: expected an undamaged HDF5 file, got {path} ({' '.join(str(error).split())})"
        ) from error
    return Recording(path)


def _roles(arrays: Mapping[str, Any], columns: Columns, source: str) -> dict[str, str]:
    """Array name → role. If the values have no name, every array must have a role: a misspelt one is then found."""
    for what, names in (("values", columns.values), ("known", columns.known)):
        if len(names) > 1:
            raise InputError(f"{what}: expected one array, whose last axis has the channels, got {', '.join(names)}")
    for what, column in (("id", columns.id), ("time", columns.time)):
        if column is not None:
            raise InputError(f"{what}: expected a table, since arrays (N, T, …) have no such column, got {source}")
    roles = {columns.values[0] if columns.values else "x": "x"}
    if columns.known or "actions" in arrays:
        roles[columns.known[0] if columns.known else "actions"] = "known"
    if columns.group is not None:
        roles[columns.group] = "group"
    roles |= {name: name for name in ("lengths", "observed", "rewards") if name in arrays}
    if any(name not in arrays for name in roles):
        raise InputError(f"file: expected arrays {', '.join(map(repr, roles))} in {source}, got {sorted(arrays)}")
    if not columns.values and (unknown := sorted(set(arrays) - set(roles))):
        raise InputError(
            f"file: expected arrays 'x' and optionally 'actions', 'lengths', 'observed', 'rewards' in {source}, got "
            f"{', '.join(map(repr, unknown))}; choose the array to forecast with values"
        )
    return roles


def _from_mapping(arrays: Mapping[str, Any], columns: Columns, source: str, future: bool) -> Series:
    by_role = {role: arrays[name] for name, role in _roles(arrays, columns, source).items()}
    x = _sequences("x", by_role["x"], by_role.get("lengths"))
    if "observed" in by_role:
        x = _masked(x, _sequences("observed", by_role["observed"], by_role.get("lengths")))
    if x[0].ndim == 1:
        x = [each[:, None] for each in x]
    if all(len(each) < 2 for each in x):
        raise InputError("x: expected at least two steps, got sequences of one")
    known = rewards = None
    whole: tuple[bool, ...] = ()
    if "known" in by_role:
        given = _sequences("actions", by_role["known"], None if future else by_role.get("lengths"))
        _check_alignment("actions", given, x, future)
        given = [each[:, None] if each.ndim == 1 else each for each in given]
        if given[0].ndim != 2:
            raise InputError(f"actions: expected shape (N, T, A), got {given[0].ndim + 1} dimensions")
        whole = (given[0].dtype.kind in "iu",) * given[0].shape[1]
        known = [_checked("actions", each.astype(np.float64), number, False) for number, each in enumerate(given)]
    if "rewards" in by_role:
        rewards = _sequences("rewards", by_role["rewards"], by_role.get("lengths"))
        _check_alignment("rewards", rewards, x, False)
    groups = None
    if "group" in by_role:
        groups = [str(value) for value in np.asarray(by_role["group"]).ravel()]
        if len(groups) != len(x):
            raise InputError(f"group: expected one for each of the {len(x)} sequences, got {len(groups)}")
    if future:
        x = [_until_last_observation(each) for each in x]
        rewards = rewards and [own[: len(each)] for own, each in zip(rewards, x, strict=True)]
    return Series(x, columns, known, whole, rewards, groups=groups, source=source)


def _until_last_observation(x: Array) -> Array:
    """x without the missing steps at its end, where a forecast begins. It is left as it is if all are missing."""
    if x.dtype.kind != "f":
        return x
    seen = np.flatnonzero(np.isfinite(x.reshape(len(x), -1)).any(1))
    return x[: seen[-1] + 1] if len(seen) else x


def _sequences(name: str, values: Any, lengths: Any) -> list[Array]:
    """One array per sequence. Measurements become float64, and masked entries NaN."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if isinstance(values, Sequence) and not isinstance(values, str):
        parts = [np.asanyarray(each) for each in values]
        if not parts or len({(part.shape[1:], part.dtype) for part in parts}) > 1 or not all(map(np.size, parts)):
            shapes = sorted({part.shape for part in parts})[:3]
            raise InputError(f"{name}: expected non-empty arrays (T, …) of one shape and dtype, got shapes {shapes}")
    elif isinstance(values, np.ndarray):
        values = values[None] if values.ndim == 1 and name == "x" else values
        if values.ndim < 2 or values.size == 0:
            raise InputError(f"{name}: expected shape (sequences, steps, …), got {values.shape}")
        ends = from_arrays(np.zeros(values.shape[:2]), lengths=lengths).lengths.tolist()
        parts = [each[:end] for each, end in zip(values, ends, strict=True)]
    else:
        raise InputError(f"{name}: expected an array or a list of arrays, got {type(values).__name__}")
    dtype = parts[0].dtype
    if dtype.kind not in "fiub" or dtype == np.longdouble:
        raise InputError(f"{name}: expected real numbers of at most 64 bits, got dtype {dtype}")
    if any(np.ma.isMaskedArray(part) for part in parts):
        parts = [np.ma.asarray(part, dtype=np.float64).filled(np.nan) for part in parts]
    if parts[0].dtype.kind == "f":
        vector = parts[0].ndim <= 2  # pictures keep their precision: they may be large
        parts = [
            _checked(name, part.astype(np.float64) if vector else np.asarray(part), number, name == "x")
            for number, part in enumerate(parts)
        ]
    return parts


def _masked(x: list[Array], observed: list[Array]) -> list[Array]:
    """x with NaN where the mask is False."""
    if [part.shape for part in observed] != [part.shape for part in x] or observed[0].dtype != bool:
        raise InputError(
            f"observed: expected bools in the shape of x, got {observed[0].dtype} of other shapes or types"
        )
    if x[0].dtype.kind != "f":
        raise InputError(f"observed: expected x of floats, since only those may be missing, got {x[0].dtype}")
    return [np.where(mask, part, np.nan) for mask, part in zip(observed, x, strict=True)]


def _checked(name: str, part: Array, number: int, missing_allowed: bool) -> Array:
    bad = np.isinf(part) if missing_allowed else ~np.isfinite(part)
    if bad.any():
        step = int(np.flatnonzero(bad.reshape(len(part), -1).any(1))[0])
        raise InputError(
            f"{name}: expected finite values, got {'' if missing_allowed else 'NaN or '}infinity in sequence {number} "
            f"at step {step}"
        )
    return part


def _check_alignment(name: str, given: list[Array], x: list[Array], future: bool) -> None:
    for number, each in enumerate(given[: len(x)]):
        if len(each) < len(x[number]) or (len(each) > len(x[number]) and not future):
            least = "at least " if future else ""
            raise InputError(
                f"{name}: expected {least}the {len(x[number])} steps of x in sequence {number}, got {len(each)}"
            )
    if len(given) != len(x):
        raise InputError(f"{name}: expected {len(x)} sequences as in x, got {len(given)}")
