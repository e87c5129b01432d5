"""The data sets of the experiment: three single series, sequences of speech features, and a pendulum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.envs.pendulum import record_pendulum
from tdvae.errors import InputError
from tdvae.forecasting import OwnData, prepare
from tdvae.training.config import derive_seed

SHARES = (0.7, 0.1, 0.2)  # of the training, validation and test parts
DATA = 801  # purpose of derived seeds
Floats = npt.NDArray[np.float64]


def _elnino() -> Floats:
    """Sea temperatures (El Niño), 1950 to 2010, monthly: 732 numbers."""
    table = _statsmodels("elnino")
    return np.asarray(table.drop(columns="YEAR"), dtype=np.float64).ravel()


def _sunspots() -> Floats:
    """Yearly numbers of sunspots, 1700 to 2008: 309 numbers."""
    return np.asarray(_statsmodels("sunspots")["SUNACTIVITY"], dtype=np.float64)


def _co2() -> Floats:
    """Carbon dioxide at Mauna Loa, 1958 to 2001, monthly means of weekly values: 526 numbers, 5 of them missing."""
    return np.asarray(_statsmodels("co2")["co2"].resample("MS").mean(), dtype=np.float64)


def _statsmodels(name: str) -> Any:
    """A data set as a pandas DataFrame."""
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


SERIES: dict[str, Callable[[], Floats]] = {"elnino": _elnino, "sunspots": _sunspots, "co2": _co2}


def load(name: str, longest_jump: int, seed: int, sequences: int, length: int) -> OwnData:
    """Prepare a data set as `tdvae fit` does: a series is split by time, many sequences are split by sequence.

    ``seed`` splits many sequences. The pendulum has ``sequences`` of ``length`` steps.
    """
    source: Any
    if name in SERIES:
        source = SERIES[name]()
    elif name == "japanese_vowels":
        source = _japanese_vowels()
    else:
        recorded = record_pendulum(sequences, length, derive_seed(seed, DATA) % 2**20)  # Gymnasium takes 32-bit seeds
        assert recorded.actions is not None
        source = {"x": recorded.x.numpy(), "actions": recorded.actions.numpy()}
    return prepare(source, longest_jump, shares=SHARES, seed=seed)
