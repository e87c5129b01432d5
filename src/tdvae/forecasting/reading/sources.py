"""Everything that sequences can be read from: files by extension, tables, arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tdvae.data import Recording
from tdvae.data.arrays import check_lengths, read_npz
from tdvae.data.episodes import ENDS
from tdvae.data.recording import own_dataset, own_datasets
from tdvae.errors import InputError
from tdvae.forecasting.reading.frames import from_frame, from_frames, is_frame, named_frames
from tdvae.forecasting.reading.table_files import (
    COMPRESSED,
    EXCEL_FILES,
    PARQUET_FILES,
    TEXT_FILES,
    one_line,
    read_table,
)
from tdvae.forecasting.series import Array, Columns, Series
from tdvae.storage.files import open_regular

TABLE_FILES = (*TEXT_FILES, *PARQUET_FILES)
ARRAY_FILES, HDF5_FILES = (".npz", ".npy"), (".h5", ".hdf5")

Source = Any  # a path, a table of pandas or polars, an array, a list of arrays or tables, or arrays or tables by name


def read(source: Source, columns: Columns | None = None, future: bool = False) -> Series | Recording:
    """Read sequences in their own units; a file of `tdvae record` is opened as a `Recording`.

    With ``future``, arrays of covariates may go on after the last observation, and so may x, with NaN.
    """
    columns = columns or Columns()
    if is_frame(source):
        return from_frame(source, columns)
    if (tables := named_frames(source)) is not None:
        return from_frames(tables, columns)
    if not isinstance(source, str | Path):
        arrays = source if isinstance(source, Mapping) else {"x": source}
        return _from_mapping(arrays, columns, "data", future)
    path = Path(source)
    packed = path.suffix.lower() in COMPRESSED
    ending = Path(path.stem).suffix.lower() if packed else path.suffix.lower()
    endings = TEXT_FILES if packed else (*ARRAY_FILES, *TABLE_FILES, *EXCEL_FILES, *HDF5_FILES)
    if ending not in endings:
        raise InputError(f"file: expected a file that ends with one of {', '.join(endings)}; got {path}")
    _check_file(path)
    if ending in HDF5_FILES:
        return _read_hdf5(path, columns, future)
    if ending in ARRAY_FILES:
        return _from_mapping(
            read_npz(path, lambda found: _roles(found, columns, str(path))), columns, str(path), future
        )
    return read_table(path, columns)


def _check_file(path: Path) -> None:
    """Raise if a file cannot be opened, or is a pipe or a device, for which the readers would wait."""
    try:
        with open_regular(path, follow=True):
            pass
    except FileNotFoundError as error:
        raise InputError(f"file: expected an existing file, got {path}") from error
    except OSError as error:
        raise InputError(f"file: expected a readable file, got {path} ({error.strerror or error})") from error


def _read_hdf5(path: Path, columns: Columns, future: bool) -> Series | Recording:
    """A recording, or arrays by name; arrays in groups are called ``group/name``."""
    try:
        import h5py

        with h5py.File(path, "r") as file:
            if "format" in file.attrs:
                return Recording(path)
            wanted = _roles(own_datasets(file), columns, str(path))
            arrays = {name: own_dataset(file, name, path)[()] for name in wanted}
    except ImportError as error:
        raise InputError(f"file: expected the package h5py for {path}, got {error}") from error
    except (OSError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"file: expected an undamaged HDF5 file, got {path} ({one_line(error)})") from error
    return _from_mapping(arrays, columns, str(path), future)


def _roles(found: Iterable[str], columns: Columns, source: str) -> dict[str, str]:
    """Array name → role. If the values have no name, every array must have a role: a misspelt one is then found."""
    arrays = set(found)
    for what, names in (("values", columns.values), ("covariates", columns.covariates)):
        if len(names) > 1:
            raise InputError(f"{what}: expected one array, whose last axis has the channels, got {', '.join(names)}")
    for what, column in (("id", columns.id), ("time", columns.time)):
        if column is not None:
            raise InputError(f"{what}: expected a table, since arrays (N, T, …) have no such column, got {source}")
    roles = {columns.values[0] if columns.values else "x": "x"}
    if columns.covariates or "actions" in arrays:
        roles[columns.covariates[0] if columns.covariates else "actions"] = "covariates"
    if columns.group is not None:
        roles[columns.group] = "group"
    roles |= {name: name for name in ("lengths", "observed", "rewards") if name in arrays}
    if any(name not in arrays for name in roles):
        raise InputError(f"file: expected arrays {', '.join(map(repr, roles))} in {source}, got {sorted(arrays)[:20]}")
    if not columns.values and (unknown := sorted(arrays - set(roles) - set(ENDS))):
        raise InputError(
            f"file: expected arrays 'x' and optionally 'actions', 'lengths', 'observed', 'rewards' in {source}, got "
            f"{', '.join(map(repr, unknown[:20]))}; choose the array to forecast with values"
        )
    return roles


def _from_mapping(arrays: Mapping[str, Any], columns: Columns, source: str, future: bool) -> Series:
    given = {role: arrays[name] for name, role in _roles(arrays, columns, source).items()}
    lengths = given.get("lengths")
    x = _sequences("x", given["x"], lengths)
    if "observed" in given:
        x = _masked(x, _sequences("observed", given["observed"], lengths))
    if x[0].ndim == 1:
        x = [each[:, None] for each in x]
    if all(len(each) < 2 for each in x):
        raise InputError("x: expected at least two steps, got sequences of one")
    covariates = rewards = groups = None
    if "covariates" in given:
        covariates = _sequences("actions", given["covariates"], None if future else lengths)
        _check_alignment("actions", covariates, x, future)
        covariates = [each[:, None] if each.ndim == 1 else each for each in covariates]
        if covariates[0].ndim != 2:
            raise InputError(f"actions: expected shape (N, T, A), got {covariates[0].ndim + 1} dimensions")
    size = 0 if covariates is None else covariates[0].shape[1]
    whole = (covariates is not None and covariates[0].dtype.kind in "iu",) * size
    if "rewards" in given:
        rewards = _sequences("rewards", given["rewards"], lengths)
        _check_alignment("rewards", rewards, x, False)
    if "group" in given:
        groups = [str(value) for value in np.asarray(given["group"]).ravel()]
        if len(groups) != len(x):
            raise InputError(f"group: expected one for each of the {len(x)} sequences, got {len(groups)}")
    if future:
        x = [_until_last_observation(each) for each in x]
        rewards = rewards and [own[: len(each)] for own, each in zip(rewards, x, strict=True)]
    floats = covariates and [each.astype(np.float64, copy=False) for each in covariates]
    return Series(x, columns, floats, whole, ((),) * size, rewards, groups=groups, source=source)


def _until_last_observation(x: Array) -> Array:
    """x without the missing steps at its end, where a forecast begins. It is left as it is if all are missing."""
    if x.dtype.kind != "f":
        return x
    seen = np.flatnonzero(np.isfinite(x.reshape(len(x), -1)).any(1))
    return x[: seen[-1] + 1] if len(seen) else x


def _sequences(name: str, values: Any, lengths: Any) -> list[Array]:
    """One array per sequence: views where possible. Measurements become float64, and masked entries NaN."""
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
        parts = list(values)
        if lengths is not None:
            ends = check_lengths(lengths, *values.shape[:2]).tolist()
            parts = [each[:end] for each, end in zip(parts, ends, strict=True)]
    else:
        raise InputError(f"{name}: expected an array or a list of arrays, got {type(values).__name__}")
    dtype = parts[0].dtype
    if dtype.kind not in "fiub" or dtype == np.longdouble:
        raise InputError(f"{name}: expected real numbers of at most 64 bits, got dtype {dtype}")
    if any(np.ma.isMaskedArray(part) for part in parts):
        parts = [np.ma.asarray(part, dtype=np.float64).filled(np.nan) for part in parts]
    if parts[0].dtype.kind == "f":
        if parts[0].ndim <= 2:  # pictures keep their precision: they may be large
            parts = [part.astype(np.float64, copy=False) for part in parts]
        for number, part in enumerate(parts):
            _check_finite(name, part, number, missing_allowed=name == "x")
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


def _check_finite(name: str, part: Array, number: int, missing_allowed: bool) -> None:
    bad = np.isinf(part) if missing_allowed else ~np.isfinite(part)
    if bad.any():
        step = int(np.flatnonzero(bad.reshape(len(part), -1).any(1))[0])
        raise InputError(
            f"{name}: expected finite values, got {'' if missing_allowed else 'NaN or '}infinity in sequence {number} "
            f"at step {step}"
        )


def _check_alignment(name: str, given: list[Array], x: list[Array], future: bool) -> None:
    for number, each in enumerate(given[: len(x)]):
        if len(each) < len(x[number]) or (len(each) > len(x[number]) and not future):
            least = "at least " if future else ""
            raise InputError(
                f"{name}: expected {least}the {len(x[number])} steps of x in sequence {number}, got {len(each)}"
            )
    if len(given) != len(x):
        raise InputError(f"{name}: expected {len(x)} sequences as in x, got {len(given)}")
