"""Splits without leakage, windows, and overlapping windows in a user's array."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import tdvae
from tdvae import InputError
from tdvae.data import from_arrays
from tdvae.forecasting.preparation import OwnData, Windows, held_out_windows
from tdvae.forecasting.preparation.overlaps import join_overlapping
from tdvae.forecasting.preparation.split import split_series, training_windows
from tdvae.forecasting.reading import read
from tdvae.forecasting.series import Series


def times(data: OwnData, part: Any) -> set[int]:
    """The times in a part, of data whose values are their times."""
    assert data.encoding.scaling is not None
    sequences = part.select(slice(None))
    return {round(value) for value in data.encoding.decode(sequences.x)[sequences.mask.numpy()].ravel()}


def targets(data: OwnData) -> set[int]:
    """The times of all test targets."""
    assert data.encoding.scaling is not None
    sequences = data.test.sequences
    x = data.encoding.decode(sequences.x)[:, data.test.context :]
    return {round(value) for value in x[sequences.mask.numpy()[:, data.test.context :]].ravel()}


# One series


@given(steps=st.integers(30, 900), jump=st.integers(1, 25), stride=st.integers(1, 9), window=st.integers(0, 120))
@hypothesis_settings(derandomize=True, max_examples=60)
def test_no_test_target_of_one_series_is_in_training(steps: int, jump: int, stride: int, window: int) -> None:
    """Training, validation and test follow each other in time, with gaps of at least the longest jump."""
    assume(steps >= 6 * jump + 4)
    chosen = window if jump < window <= 0.6 * steps - 2 * jump else None
    data = tdvae.prepare(np.arange(float(steps)), jump, window=chosen, stride=stride)
    train, validation, test = times(data, data.train), times(data, data.validation), targets(data)
    assert min(train) == 0
    assert max(test) == steps - 1
    assert max(train) + jump < min(validation)
    assert max(validation) + jump < min(test)
    assert len(test) > jump
    assert train == set(range(max(train) + 1))  # no step is lost between windows
    assert times(data, data.history) == train


def test_the_context_of_a_test_target_reaches_back_and_its_origins_roll() -> None:
    data = tdvae.prepare(np.arange(400.0), 5, window=40)
    x = np.rint(data.encoding.decode(data.test.sequences.x))[..., 0]
    assert data.test.context == 35
    assert x.shape[1] == 40
    np.testing.assert_array_equal(np.diff(x, axis=1), 1)
    np.testing.assert_array_equal(np.diff(x[:, 0]), 1)
    first_target = min(targets(data))
    assert x[0, 0] == first_target - 35
    validation = times(data, data.validation)
    assert x[0, 0] <= max(validation)  # the context may be older than the test part; the targets may not


def test_several_series_are_split_at_the_same_time() -> None:
    """A shock that all series share must not be seen in one of them."""
    days = pd.date_range("2024-01-01", periods=300)
    frame = pd.concat(
        [
            pd.DataFrame({"id": "long", "day": days, "y": np.arange(300.0)}),
            pd.DataFrame({"id": "late", "day": days[100:], "y": np.arange(100.0, 300.0)}),
            pd.DataFrame({"id": "early", "day": days[:150], "y": np.arange(150.0)}),
        ]
    )
    data = tdvae.prepare(frame, 5, id="id", time="day")
    train, validation, test = times(data, data.train), times(data, data.validation), targets(data)
    assert max(train) + 5 < min(validation) <= max(validation) < min(test) - 5
    assert test == set(range(min(test), 300))


@pytest.mark.parametrize("length", [5, 20, 63])
def test_a_series_too_short_for_a_split_says_how_long_it_must_be(length: int) -> None:
    with pytest.raises(InputError, match=rf"^data: expected at least 64 steps .* up to 10, got {length}"):
        tdvae.prepare(np.arange(float(length)), 10)
    assert tdvae.prepare(np.arange(64.0), 10).split.startswith("split by time: 22 steps")


# Many sequences


def numbered(count: int, steps: int = 12) -> Any:
    return np.arange(count * steps, dtype=float).reshape(count, steps)


@given(count=st.integers(10, 80), seed=st.integers(0, 2**31))
@hypothesis_settings(derandomize=True, max_examples=30)
def test_many_sequences_are_split_by_sequence(count: int, seed: int) -> None:
    split = split_series([12] * count, 3, seed)
    parts = [{span.sequence for span in part} for part in (split.train, split.validation, split.test)]
    assert sorted(functools.reduce(operator.iadd, map(sorted, parts), [])) == list(range(count))
    assert all(len(span) == 12 for part in (split.train, split.validation, split.test) for span in part)
    assert split == split_series([12] * count, 3, seed)


@given(groups=st.lists(st.sampled_from("abcdefg"), min_size=10, max_size=60), seed=st.integers(0, 1000))
@hypothesis_settings(derandomize=True, max_examples=40)
def test_a_group_is_in_one_part_only(groups: list[str], seed: int) -> None:
    assume(len(set(groups)) >= 3)
    split = split_series([12] * len(groups), 3, seed, groups=groups)
    parts = [{groups[span.sequence] for span in part} for part in (split.train, split.validation, split.test)]
    assert all(parts)
    assert sum(map(len, parts)) == len(set(groups))


def test_groups_of_a_table_and_of_arrays() -> None:
    day = np.tile(np.arange(8), 12)
    series = np.repeat(np.arange(12), 8)
    frame = pd.DataFrame({"run": series, "day": day, "machine": series // 3, "y": 8.0 * series + day})
    for data in (
        tdvae.prepare(frame, 3, id="run", time="day", group="machine"),
        tdvae.prepare(
            {"x": 8.0 * series.reshape(12, 8) + np.arange(8), "machine": np.arange(12) // 3},
            3,
            values="x",
            group="machine",
        ),
    ):
        machines = [{time // 24 for time in times(data, part)} for part in (data.train, data.validation)]
        machines.append({time // 24 for time in targets(data)})
        assert sum(map(len, machines)) == 4
        assert "by group" in data.split


def test_a_test_file_is_the_test_part() -> None:
    data = tdvae.prepare(numbered(20), 3, test=1000 + numbered(4))
    assert min(targets(data)) >= 1000
    assert len(data.test.sequences) == 4
    assert len(times(data, data.train) | times(data, data.validation)) == 240
    series = tdvae.prepare(np.arange(200.0), 3, test=1000 + np.arange(60.0))
    assert targets(series) == set(range(1000, 1060))
    assert max(times(series, series.train)) + 3 < min(times(series, series.validation))


# Windows


def test_windows_select_what_slices_select() -> None:
    rng = np.random.default_rng(0)
    x, actions = rng.normal(size=(3, 20, 2)).astype(np.float32), rng.normal(size=(3, 20, 1)).astype(np.float32)
    sequences = from_arrays(x, actions, lengths=np.array([20, 9, 15]))
    windows = Windows.of(sequences, np.array([(0, 3, 9), (2, 11, 15), (1, 0, 9)]))
    assert windows.lengths.tolist() == [6, 4, 9]
    chosen = windows.select(torch.tensor([1, 0]))
    assert chosen.lengths.tolist() == [4, 6]
    np.testing.assert_array_equal(chosen.x[0, :4], x[2, 11:15])
    np.testing.assert_array_equal(chosen.x[1], x[0, 3:9])
    assert not chosen.x[0, 4:].any()
    assert chosen.actions is not None
    np.testing.assert_array_equal(chosen.actions[1], actions[0, 3:9])


@pytest.mark.parametrize("stride", [1, 4, 10, 15])
def test_training_windows_cover_their_span(stride: int) -> None:
    (span,) = split_series([200], 3, 0).train
    cut = training_windows([span], 10, stride)
    assert all(stop - start == 10 for _, start, stop in cut)
    assert cut[-1][2] == span.stop
    starts = [start for _, start, _ in cut]
    assert all(0 < later - earlier <= stride for earlier, later in itertools.pairwise(starts))


def test_held_out_windows_are_limited_and_spread_over_the_part() -> None:
    split = split_series([100_000], 10, 0)
    windows, context = held_out_windows(split.test, 50, 10, history=True)
    assert len(windows) == 512
    assert context == 40
    assert windows[-1][2] > 99_900


# Overlapping windows


def cut_windows(series: Any, length: int, stride: int) -> Any:
    return np.stack([series[start : start + length] for start in range(0, len(series) - length + 1, stride)])


def series_of(x: Any) -> Series:
    series = read(x)
    assert isinstance(series, Series)
    return series


@given(length=st.integers(20, 40), stride=st.integers(1, 10), shuffled=st.booleans(), channels=st.integers(1, 3))
@hypothesis_settings(derandomize=True, max_examples=30)
def test_overlapping_windows_are_put_together(length: int, stride: int, shuffled: bool, channels: int) -> None:
    rng = np.random.default_rng(0)
    series = rng.normal(size=(300, channels))
    windows = cut_windows(series, length, stride)
    if shuffled:
        rng.shuffle(windows)
    joined = join_overlapping(series_of(windows))
    assert joined is not None
    assert (joined.window, joined.stride) == (length, stride)
    assert len(joined.series) == 1
    np.testing.assert_array_equal(joined.series.x[0], series[: len(joined.series.x[0])])
    assert len(joined.series.x[0]) > 300 - stride


def test_overlapping_windows_of_several_series_give_these_series() -> None:
    rng = np.random.default_rng(0)
    series = rng.normal(size=(12, 60))
    windows = np.concatenate([cut_windows(each, 20, 8) for each in series])
    joined = join_overlapping(series_of(rng.permutation(windows)))
    assert joined is not None
    assert sorted(each[0, 0] for each in joined.series.x) == sorted(series[:, 0])
    assert {len(each) for each in joined.series.x} == {60}


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).normal(size=(40, 30)),
        np.random.default_rng(0).integers(0, 2, (40, 30)),
        np.round(np.random.default_rng(0).normal(size=(40, 30)), 1),
        np.zeros((40, 30)),
        cut_windows(np.random.default_rng(0).normal(size=900), 30, 30),
    ],
    ids=["independent", "bits", "rounded", "constant", "adjacent windows"],
)
def test_sequences_that_do_not_overlap_are_left_alone(x: Any) -> None:
    assert join_overlapping(series_of(x)) is None


def test_overlapping_windows_are_split_by_time_and_that_is_said() -> None:
    """Split at random, every test target would be in training."""
    data = tdvae.prepare(cut_windows(np.arange(500.0), 40, 3), 5)
    assert not targets(data) & times(data, data.train)
    assert data.split.startswith("split by time")
    assert any("overlap" in note for note in data.notes)


def test_a_few_overlapping_windows_give_shorter_ones() -> None:
    """Three windows of 100 steps make a series of 120, whose training part is shorter than one of them."""
    data = tdvae.prepare(cut_windows(np.arange(120.0), 100, 10), 5)
    assert data.window is not None
    assert data.window < 100
    assert not targets(data) & times(data, data.train)
