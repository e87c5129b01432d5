"""The data sets of the experiment: three single series, sequences of speech features, and a pendulum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tdvae.data import from_arrays, split
from tdvae.envs.pendulum import record_pendulum
from tdvae.errors import InputError
from tdvae.forecasting.baselines import Standard
from tdvae.forecasting.origins import Origins, cut_at_origins, rolling_origins
from tdvae.training.config import derive_seed
from tdvae.types import Sequences

TRAIN, VALIDATION = 0.7, 0.1  # shares of a series in time; the rest is for tests
AHEAD = 20  # the longest δt
WINDOW = 108  # steps of a window of a series
MOST_ORIGINS = 1_000
DATA = 801  # purpose of derived seeds
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Parts:
    """What the forecasters of a data set are fitted and tested on."""

    train: Sequences  # many sequences, or windows of the first part of a series
    validation: Sequences
    validation_origins: Origins
    past: Sequences  # the training part as simple forecasters take it: of a series, the whole part instead of windows
    test: Sequences
    origins: Origins
    series: Tensor | None = None  # (1, T, 1) the whole series, if there is only one


def _monthly_temperature() -> Floats:
    """Sea temperatures (El Niño), 1950 to 2010, monthly: 732 numbers."""
    table = _statsmodels("elnino")
    return np.asarray(table.drop(columns="YEAR"), dtype=np.float64).ravel()


def _sunspots() -> Floats:
    """Yearly numbers of sunspots, 1700 to 2008: 309 numbers."""
    return np.asarray(_statsmodels("sunspots")["SUNACTIVITY"], dtype=np.float64)


def _co2() -> Floats:
    """Carbon dioxide at Mauna Loa, 1958 to 2001, monthly means of the weekly values: 526 numbers, 5 of them missing."""
    return np.asarray(_statsmodels("co2")["co2"].resample("MS").mean(), dtype=np.float64)


def _statsmodels(name: str):  # type: ignore[no-untyped-def]  # a pandas DataFrame
    try:
        from statsmodels import datasets
    except ImportError as error:
        raise InputError(f"{name}: expected the packages of the extra own-data: pip install tdvae[own-data]") from error
    return getattr(datasets, name).load_pandas().data


def _japanese_vowels() -> list[Floats]:
    """Cepstrum coefficients of 640 utterances of 9 speakers, 7 to 29 steps of 12 numbers."""
    try:
        from sktime.datasets import load_japanese_vowels
    except ImportError as error:
        raise InputError(
            "japanese_vowels: expected the packages of the extra own-data: pip install tdvae[own-data]"
        ) from error
    table, _ = load_japanese_vowels(return_X_y=True)
    return [np.stack([np.asarray(cell, dtype=np.float64) for cell in row], axis=1) for row in table.to_numpy()]


SERIES: dict[str, Callable[[], Floats]] = {"elnino": _monthly_temperature, "sunspots": _sunspots, "co2": _co2}


def load(name: str, seed: int, sequences: int, length: int) -> Parts:
    """The parts of a data set. ``seed`` splits many sequences; the pendulum has ``sequences`` of ``length`` steps."""
    if name in SERIES:
        return parts_of_series(SERIES[name]())
    if name == "japanese_vowels":
        return parts_of_sequences(from_arrays(_japanese_vowels()), seed)
    recorded = record_pendulum(sequences, length, derive_seed(seed, DATA) % 2**20)  # Gymnasium takes 32-bit seeds
    return parts_of_sequences(recorded, seed)


def parts_of_sequences(data: Sequences, seed: int) -> Parts:
    """Split by sequence: 70 % for training, 10 % for validation, 20 % for tests."""
    parts = split(data, seed, (TRAIN, VALIDATION, 1 - TRAIN - VALIDATION))
    standard = Standard.of(parts[0])
    train, validation, test = (replace(part, x=standard.values(part).float()) for part in parts)
    return Parts(
        train, validation, rolling_origins(validation, MOST_ORIGINS), train, test, rolling_origins(test, MOST_ORIGINS)
    )


def parts_of_series(values: Floats) -> Parts:
    """Split by time. Missing values are interpolated; statistics are those of the training part."""
    there = ~np.isnan(values)
    steps = np.arange(len(values))
    values = np.interp(steps, steps[there], values[there])
    known, first = round(TRAIN * len(values)), round((TRAIN + VALIDATION) * len(values))
    values = (values - values[:known].mean()) / values[:known].std()
    series = from_arrays(values[None, :, None])
    windows = torch.from_numpy(np.lib.stride_tricks.sliding_window_view(values[:known], WINDOW).copy())
    validation, validation_origins = cut_at_origins(series.until(first), known, WINDOW - AHEAD, AHEAD)
    test, origins = cut_at_origins(series, first, WINDOW - AHEAD, AHEAD)
    return Parts(from_arrays(windows), validation, validation_origins, series.until(known), test, origins, series.x)
