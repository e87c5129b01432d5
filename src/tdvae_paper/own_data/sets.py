"""The data sets of the experiment: three single series, sequences of speech features, and simulated ones."""

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
DATA, TEST_DATA = 801, 802  # purposes of derived seeds
LORENZ_STEP, LORENZ_NOISE = 0.08, 1.0  # time between observations, and σ of their noise
SUBSTEPS, SETTLING = 8, 100  # integration steps in one, and observations that are left out at the start
GAP_SHARE, GAP = 0.2, 8  # share of missing values, and the mean length of a gap
DAY, WEEK = 48, 336  # half hours
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


def lorenz_step(states: Floats) -> Floats:
    """The states (n, 3) of Lorenz' system one observation later (Runge-Kutta)."""
    h = LORENZ_STEP / SUBSTEPS
    for _ in range(SUBSTEPS):
        k1 = _velocity(states)
        k2 = _velocity(states + h / 2 * k1)
        k3 = _velocity(states + h / 2 * k2)
        states = states + h / 6 * (k1 + 2 * k2 + 2 * k3 + _velocity(states + h * k3))
    return states


def _velocity(states: Floats) -> Floats:
    x, y, z = states.T
    return np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=1)


def lorenz_states(count: int, generator: np.random.Generator) -> Floats:
    """States (count, 3) on the attractor."""
    states = generator.normal(size=(count, 3)) * 8 + [0, 0, 25]
    for _ in range(SETTLING):
        states = lorenz_step(states)
    return states


def lorenz(sequences: int, length: int, seed: int, gaps: bool = False) -> Floats:
    """The first coordinate of Lorenz' system with noise, (sequences, length, 1); gaps are NaN, in blocks."""
    generator = np.random.default_rng(seed)
    states, x = lorenz_states(sequences, generator), np.empty((sequences, length, 1))
    for t in range(length):
        states = lorenz_step(states)
        x[:, t, 0] = states[:, 0] + LORENZ_NOISE * generator.normal(size=sequences)
    if gaps:
        missing = generator.random(sequences) < GAP_SHARE
        for t in range(length):
            x[missing, t] = np.nan
            start = GAP_SHARE / (1 - GAP_SHARE) / GAP
            missing = np.where(missing, generator.random(sequences) >= 1 / GAP, generator.random(sequences) < start)
    return x


def two_seasons(length: int, seed: int) -> Floats:
    """Half-hourly demand with a daily and a weekly season, a slow drift and noise, (length,)."""
    generator = np.random.default_rng(seed)
    step = np.arange(length)
    day = np.exp(2 * np.cos(2 * np.pi * (step / DAY - 0.75))) / 4 + np.cos(4 * np.pi * step / DAY) / 2
    weekend = (step // DAY) % 7 >= 5
    drift = np.empty(length)
    level = 0.0
    for t in range(length):
        level = 0.995 * level + 0.02 * generator.normal()
        drift[t] = level
    return 20 + np.where(weekend, 0.6, 1.0) * (3 + day) + drift + 0.15 * generator.normal(size=length)


def load(name: str, longest_jump: int, seed: int, sequences: int, length: int) -> OwnData:
    """Prepare a data set as `tdvae fit` does: a series is split by time, many sequences are split by sequence.

    ``seed`` splits many sequences and simulates. Simulated sets have ``sequences`` of ``length`` steps.
    """
    source: Any
    own, other = (derive_seed(seed, purpose) % 2**20 for purpose in (DATA, TEST_DATA))  # Gymnasium takes 32-bit seeds
    if name in SERIES:
        source = SERIES[name]()
    elif name == "japanese_vowels":
        source = _japanese_vowels()
    elif name == "two_seasons":
        source = two_seasons(sequences * length, own)
    elif name.startswith("lorenz"):
        gaps = name == "lorenz_gaps"
        test = lorenz(max(3, sequences // 5), length, other, gaps)
        return prepare(lorenz(sequences, length, own, gaps), longest_jump, test=test, seed=seed)
    else:
        recorded = record_pendulum(sequences, length, own)
        assert recorded.actions is not None
        source = {"x": recorded.x.numpy(), "actions": recorded.actions.numpy()}
    return prepare(source, longest_jump, shares=SHARES, seed=seed)
