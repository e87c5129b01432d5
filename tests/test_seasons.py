"""Seasons: several of them, in the whole training part, and none where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tdvae
from tdvae import InputError
from tdvae.forecasting.preparation.seasons import find_seasons


def demand(weeks: int, noise: float, seed: int = 0) -> Any:
    """Half-hourly demand: two humps a day, less at weekends."""
    t = np.arange(48 * 7 * weeks)
    day = np.sin(2 * np.pi * t / 48) + 0.5 * np.sin(4 * np.pi * t / 48 + 1)
    return day - 0.8 * ((t // 48) % 7 >= 5) + noise * np.random.default_rng(seed).normal(size=len(t))


def random_walk(steps: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=steps).cumsum()


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_day_and_a_week_in_half_hours(noise: float, seed: int) -> None:
    assert find_seasons([demand(20, noise, seed)[:, None]]) == (48, 336)


def test_seasons_with_trends_gaps_large_numbers_and_several_channels() -> None:
    x = demand(12, 0.2)
    t = np.arange(len(x))
    x[np.random.default_rng(1).random(len(x)) < 0.2] = np.nan
    for each in (x + 0.01 * t, 1e300 * x, 1e9 + x, x + 0.02 * random_walk(len(x), 0)):
        assert find_seasons([each[:, None]]) == (48, 336)
    both = np.stack([x, -3 * x], axis=1)
    assert find_seasons([both[:2000], both[2000:]]) == (48, 336)


@pytest.mark.parametrize("steps", [120, 700, 4000])
@pytest.mark.parametrize("kind", ["white noise", "random walk", "trend", "constant"])
def test_no_season_where_there_is_none(kind: str, steps: int) -> None:
    found = []
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(size=steps)
        x = {"white noise": noise, "random walk": noise.cumsum(), "trend": np.arange(steps), "constant": 0 * noise}
        found.append(find_seasons([x[kind][:, None].astype(float)]))
    assert sum(map(bool, found)) <= (2 if steps < 500 else 0)


def test_one_season_is_no_multiple_of_itself() -> None:
    """Growing amplitudes and periods that are no whole number leave rests at multiples of the season."""
    t = np.arange(600.0)
    assert find_seasons([((1 + t / 300) * np.sin(2 * np.pi * t / 12))[:, None]]) == (12,)
    assert find_seasons([np.sin(0.3 * t)[:, None]]) == (21,)


@pytest.mark.parametrize(("name", "season"), [("elnino", 12), ("sunspots", 11), ("co2", 12)])
def test_seasons_of_known_series(name: str, season: int) -> None:
    pytest.importorskip("statsmodels")
    from tdvae_paper.own_data.sets import SERIES

    assert tdvae.prepare(SERIES[name](), 20, shares=(0.7, 0.1, 0.2)).seasons == (season,)


def test_the_window_shows_a_season_before_a_jump() -> None:
    data = tdvae.prepare(demand(20, 0.2), 48)
    assert data.seasons == (48, 336)
    assert data.season == 336
    assert data.window == 336 + 48
    assert data.test.context == 336
    assert data.info()["seasons"] == [48, 336]


def test_seasons_can_be_given() -> None:
    x = demand(20, 0.2)
    assert tdvae.prepare(x, 5, season=[336, 48]).seasons == (48, 336)
    assert tdvae.prepare(x, 5, season=50).seasons == (50,)
    assert tdvae.prepare(x, 5, season=[]).seasons == ()
    assert tdvae.prepare(x, 5, window=60).seasons == (48,)  # a week does not fit
    with pytest.raises(InputError, match=r"^season: .*336; use a longer window"):
        tdvae.prepare(x, 5, window=60, season=336)
