"""Reading users' data: tables on a regular grid, arrays, HDF5; and the scaling of what was read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tdvae import InputError
from tdvae.data import Recording
from tdvae.forecasting.preparation import Encoding
from tdvae.forecasting.preparation.encode import kind_of
from tdvae.forecasting.preparation.scaling import Scaling, unusual
from tdvae.forecasting.reading import read
from tdvae.forecasting.series import Columns, Grid, Series, calendar_features


def table(source: Any, **columns: Any) -> Series:
    series = read(source, Columns(**columns))
    assert isinstance(series, Series)
    return series


def whole(series: Series) -> list[tuple[int, int, int]]:
    return [(number, 0, length) for number, length in enumerate(series.lengths)]


# Tables


def test_one_series_of_a_csv_file_keeps_double_precision(tmp_path: Path) -> None:
    y = 1.7e9 + np.arange(5) * 1e-6
    (tmp_path / "a.csv").write_text("y;z\n" + "".join(f"{value!r};{k * k}\n" for k, value in enumerate(y.tolist())))
    series = table(tmp_path / "a.csv")
    assert series.columns.values == ("y", "z")
    assert series.x[0].dtype == np.float64
    np.testing.assert_array_equal(series.x[0][:, 0], y)
    np.testing.assert_array_equal(series.x[0][:, 1], np.arange(5) ** 2)


def frames() -> dict[str, Any]:
    return {
        "shop": ["b", "a", "b", "a", "b", "b"],
        "day": ["2024-02-27", "2024-02-27", "2024-02-28", "2024-02-28", "2024-03-01", "2024-03-02"],
        "sales": [1.0, 10.0, 2.0, 20.0, None, 4.0],
        "price": [3, 5, 3, 6, 4, 4],
    }


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars"])
def test_long_format_gives_one_sequence_per_id_with_gaps_as_missing_steps(kind: str, tmp_path: Path) -> None:
    source: Any = pd.DataFrame(frames())
    if kind == "csv":
        source.to_csv(tmp_path / "a.csv", index=False)
        source = tmp_path / "a.csv"
    elif kind == "parquet":
        source.assign(day=pd.to_datetime(source["day"])).to_parquet(tmp_path / "a.parquet")
        source = str(tmp_path / "a.parquet")
    elif kind == "polars":
        source = pl.DataFrame(frames())
    series = table(source, id="shop", time="day", covariates=("price",))
    assert series.ids == ["b", "a"]
    np.testing.assert_array_equal(series.x[0][:, 0], [1, 2, np.nan, np.nan, 4])  # 29 February has no row
    np.testing.assert_array_equal(series.x[1][:, 0], [10, 20])
    assert series.covariates is not None
    np.testing.assert_array_equal(series.covariates[0][:, 0], [3, 3, 3, 4, 4])
    assert series.grids is not None
    assert series.grids[0].text(np.arange(5)) == ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"]
    assert series.whole == (True,)


def test_a_data_frame_is_left_as_it_was() -> None:
    frame = pd.DataFrame({1: [1.0, 2.0, 3.0]})
    assert table(frame).columns.values == ("1",)
    assert list(frame.columns) == [1]


def test_rows_after_the_last_observation_are_the_future_of_known_inputs() -> None:
    frame = pd.DataFrame({"y": [np.nan, 1, 2, np.nan, np.nan], "price": [0, 1, 2, 3, 4]})
    series = table(frame, values=("y",), covariates=("price",))
    np.testing.assert_array_equal(series.x[0][:, 0], [1, 2])
    assert series.covariates is not None
    np.testing.assert_array_equal(series.covariates[0][:, 0], [1, 2, 3, 4])


def test_an_index_of_dates_is_the_time() -> None:
    index = pd.date_range("2000-01-31", periods=14, freq="ME")
    series = table(pd.DataFrame({"y": np.arange(14.0)}, index=index))
    assert series.grids is not None
    assert series.grids[0].kind == "month"
    assert series.grids[0].text(np.arange(12, 15)) == ["2001-01-31", "2001-02-28", "2001-03-31"]
    periods = table(pd.DataFrame({"y": np.arange(14.0)}, index=pd.period_range("2000-01", periods=14, freq="M")))
    assert periods.grids is not None
    assert periods.grids[0].text(np.array([1])) == ["2000-02-01"]


@pytest.mark.parametrize("name", [None, "month"])
def test_the_name_of_an_index_of_dates_finds_it_again(name: str | None) -> None:
    """A run reads new data with the columns of its training data."""
    frame = pd.DataFrame({"y": np.arange(14.0)}, index=pd.date_range("2000-01-31", periods=14, freq="ME", name=name))
    first = table(frame)
    again = read(frame, first.columns)
    assert isinstance(again, Series)
    assert again.columns == first.columns
    assert again.grids == first.grids


def test_truth_values_are_numbers() -> None:
    frame = pd.DataFrame({"y": ["1", "2"], "holiday": ["True", "false"], "open": [True, False]})
    series = table(frame, values=("y",), covariates=("holiday", "open"))
    assert series.covariates is not None
    np.testing.assert_array_equal(series.covariates[0], [[1, 1], [0, 0]])


# Grids


@pytest.mark.parametrize(
    ("start", "frequency", "spacing", "kind"),
    [
        ("1999-12-31 23:00", "h", "1 hour", "time"),
        ("2024-03-30 13:37:11", "15min", "15 minutes", "time"),
        ("2023-12-31", "D", "1 day", "time"),
        ("2024-01-04", "7D", "7 days", "time"),
        ("2024-01-01", "MS", "1 month", "month"),
        ("2024-01-31", "ME", "1 month", "month"),
        ("1850-03-31", "QE", "3 months", "month"),
        ("1700-01-01", "YS", "1 year", "month"),
        ("1700-12-31", "YE", "1 year", "month"),
    ],
)
def test_the_spacing_is_found_and_the_grid_gives_the_times_back(
    start: str, frequency: str, spacing: str, kind: str
) -> None:
    times = pd.date_range(start, periods=60, freq=frequency, unit="us")
    kept = np.ones(60, dtype=bool)
    kept[[7, 8, 30]] = False
    series = table(pd.DataFrame({"t": times[kept], "y": np.arange(60.0)[kept]}), time="t")
    assert series.grids is not None
    grid = series.grids[0]
    assert (grid.spacing(), grid.kind) == (spacing, kind)
    np.testing.assert_array_equal(grid.at(np.arange(60)), times.to_numpy())
    np.testing.assert_array_equal(np.isnan(series.x[0][:, 0]), ~kept)
    np.testing.assert_array_equal(series.x[0][kept, 0], np.arange(60.0)[kept])
    assert Grid(**json.loads(json.dumps(grid.describe()))) == grid


@given(
    steps=st.lists(st.integers(0, 60), min_size=4, max_size=30, unique=True).map(sorted),
    size=st.sampled_from([0.1, 1 / 3, 1.0, 5.0, 1e-3]),
    start=st.sampled_from([0.0, 1700.0, -3.0]),
)
@hypothesis_settings(derandomize=True, max_examples=60)
def test_numbers_as_times_are_placed_on_their_steps(steps: list[int], size: float, start: float) -> None:
    """With spacings of one step in the majority, every row is at its own step."""
    steps = sorted({*steps, *range(100, 140)})
    times = start + np.array(steps) * size
    series = table(pd.DataFrame({"t": times, "y": np.array(steps, dtype=float)}), time="t")
    expected = np.full(steps[-1] - steps[0] + 1, np.nan)
    expected[np.array(steps) - steps[0]] = steps
    np.testing.assert_array_equal(series.x[0][:, 0], expected)


def test_time_zones_become_utc() -> None:
    frame = pd.DataFrame({"t": ["2024-01-01T00:00+02:00", "2024-01-01T01:00+02:00"], "y": [1, 2]})
    grids = table(frame, time="t").grids
    assert grids is not None
    assert grids[0].text(np.array([0, 2])) == ["2023-12-31T22:00:00+00:00", "2024-01-01T00:00:00+00:00"]


def test_calendar_features_are_angles_of_their_cycles() -> None:
    hourly = Grid("time", 3_600_000_000, int(pd.Timestamp("2024-01-01").value // 1000))  # a Monday
    features = calendar_features(hourly, np.array([0, 6, 24, 24 * 7]), ["hour", "weekday"])
    angles = np.arctan2(features[:, :2], features[:, 2:]) % (2 * np.pi) / (2 * np.pi)
    np.testing.assert_allclose(angles[:, 0], [0, 0.25, 0, 0], atol=1e-12)
    np.testing.assert_allclose(angles[:, 1], [0, 0, 1 / 7, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [("h", ("hour", "weekday", "month")), ("D", ("weekday", "month")), ("MS", ("month",))],
)
def test_only_calendar_features_that_vary_are_added(frequency: str, expected: tuple[str, ...]) -> None:
    times = pd.date_range("2024-01-01", periods=1000, freq=frequency)
    series = table(pd.DataFrame({"t": times, "y": np.arange(1000.0)}), time="t")
    assert Encoding.fit(series, whole(series), calendar=True).calendar == expected


def test_years_have_no_calendar() -> None:
    series = table(
        pd.DataFrame({"t": pd.date_range("1900-01-01", periods=90, freq="YS"), "y": np.arange(90.0)}), time="t"
    )
    with pytest.raises(InputError, match=r"^calendar: .*1 year"):
        Encoding.fit(series, whole(series), calendar=True)


# Arrays and HDF5


def test_arrays_are_read_by_name_from_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["plant/temperature"] = np.arange(40.0).reshape(2, 10, 2)
        file["plant/valve"] = np.zeros((2, 10), dtype=int)
        file["about"] = "text that is no array of numbers"
    series = table(tmp_path / "a.h5", values=("plant/temperature",), covariates=("plant/valve",))
    np.testing.assert_array_equal(series.x[1], np.arange(20.0, 40.0).reshape(10, 2))
    assert series.covariates is not None
    assert series.covariates[0].shape == (10, 1)


def test_masks_become_missing_values() -> None:
    x = np.arange(12.0).reshape(2, 6)
    seen = np.ones((2, 6), dtype=bool)
    seen[1, 3] = False
    for source in (np.ma.MaskedArray(x, mask=~seen), {"x": x, "observed": seen}, np.where(seen, x, np.nan)):
        series = table(source)
        np.testing.assert_array_equal(np.isnan(np.stack(series.x)[..., 0]), ~seen)


def test_one_array_without_sequences_is_one_series() -> None:
    assert [part.shape for part in table(np.arange(30.0)).x] == [(30, 1)]
    assert [part.shape for part in table([np.zeros((4, 2)), np.zeros((7, 2))]).x] == [(4, 2), (7, 2)]


def test_a_recording_is_recognised(tmp_path: Path) -> None:
    from tdvae.envs import first_person

    world = first_person.open_world("tdvae/Corridors-v0", None, 32, None)
    first_person.record(world, tmp_path / "walk.h5", 40, 0, 10, 32)
    world.close()
    recording = read(tmp_path / "walk.h5")
    assert isinstance(recording, Recording)
    recording.close()


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (np.zeros((2, 3, 4)), "vector"),
        (np.zeros((2, 3, 4), dtype=bool), "bits"),
        (np.zeros((2, 3, 4), dtype=int), "classes"),
        (np.zeros((2, 3, 4), dtype=np.uint8), "classes"),
        (np.full((2, 3, 16, 16), 3, dtype=np.uint8), "classes"),
        (np.full((2, 3, 16, 16), 200, dtype=np.uint8), "picture"),
        (np.zeros((2, 3, 3, 16, 24), dtype=np.uint8), "picture"),
        (np.zeros((2, 3, 16, 24, 3), dtype=np.uint8), "picture"),
        (np.zeros((2, 3, 16, 24), dtype=np.float32), "picture"),
        (np.zeros((2, 3, 5, 5)), "vector"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else f"{value.dtype}{value.shape}",
)
def test_the_kind_of_observations(x: Any, kind: str) -> None:
    assert kind_of(table(x)) == kind


@pytest.mark.parametrize("shape", [(3, 20, 28), (20, 28, 3), (20, 28)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_pictures_become_floats_with_channels_first_and_come_back(shape: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 4, *shape)).astype(dtype)
    series = table(x)
    encoding = Encoding.fit(series, whole(series))
    encoded = encoding.sequences(series).x
    assert encoded.shape[2:] == (1 if len(shape) == 2 else 3, 20, 28)
    assert 0 <= float(encoded.min()) <= float(encoded.max()) <= 1
    again = Encoding.from_description(json.loads(json.dumps(encoding.describe())))
    np.testing.assert_allclose(again.decode(encoded), x, atol=1e-4)


# Scaling and known inputs


@pytest.mark.parametrize(
    "x",
    [
        1.7e9 + 100 * np.sin(np.arange(500.0)),
        1e-8 * np.sin(np.arange(500.0)),
        1e300 * np.sin(np.arange(500.0)),
        1e-300 * (3 + np.sin(np.arange(500.0))),
        np.where(np.arange(500) % 7 == 0, np.nan, -40 + np.arange(500.0)),
    ],
    ids=["large offset", "small units", "huge", "tiny", "missing"],
)
def test_scaling_is_exact_to_single_precision_of_the_spread(x: Any) -> None:
    scaling = Scaling.fit([x[:200, None], x[200:, None]])
    np.testing.assert_allclose(scaling.shift[0], np.nanmean(x), rtol=1e-12, atol=1e-3 * scaling.scale[0])
    scaled = scaling.apply(x[:, None])
    assert scaled.dtype == np.float32
    assert np.nanmean(scaled.astype(float)) == pytest.approx(0, abs=1e-6)
    assert np.nanstd(scaled.astype(float)) == pytest.approx(1, rel=1e-5)
    stored = Scaling.from_description(json.loads(json.dumps(scaling.describe())))
    error = np.abs(stored.invert(scaled)[:, 0] - x)
    assert np.nanmax(error) <= 4e-7 * scaling.scale[0]
    np.testing.assert_array_equal(np.isnan(scaled[:, 0]), np.isnan(x))


@pytest.mark.parametrize("value", [0.0, 5.0, 1.7e9, 1e-12])
def test_a_constant_channel_is_left_in_place(value: float) -> None:
    noise = np.random.default_rng(0).integers(-1, 2, 100) * np.spacing(value)  # rounding errors are no signal
    scaling = Scaling.fit([(value + noise)[:, None]])
    assert scaling.scale[0] == 1
    np.testing.assert_allclose(scaling.apply(np.full((3, 1), value)), 0, atol=1e-6)


def test_a_small_spread_is_no_constant() -> None:
    assert Scaling.fit([np.array([[1e-13], [2e-13]])]).scale[0] == pytest.approx(5e-14)


def test_unusual_values_are_reported_in_one_sentence() -> None:
    rng = np.random.default_rng(0)
    assert unusual("y", rng.normal(size=1000)) is None
    assert "logarithm" in str(unusual("y", np.exp(3 * rng.normal(size=1000))))
    assert "kurtosis" in str(unusual("y", rng.standard_t(1.5, size=2000)))
    assert unusual("y", np.ones(100)) is None


def test_known_inputs_are_scaled_and_few_whole_numbers_are_one_hot() -> None:
    frame = pd.DataFrame(
        {"y": np.arange(6.0), "mode": [4, 2, 7, 2, 4, 4], "price": [1.0, 2, 3, 4, 5, 6], "open": [0, 1] * 3}
    )
    series = table(frame, values=("y",), covariates=("mode", "price", "open"))
    encoding = Encoding.fit(series, [(0, 0, 4)])
    inputs = encoding.inputs(series, 0, 0, 6)
    np.testing.assert_array_equal(inputs[:, :3], [[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 0]])
    assert inputs[:4, 3].mean() == pytest.approx(0, abs=1e-6)  # fitted to the training part
    assert inputs[:4, 3].std() == pytest.approx(1)
    assert inputs.shape == (6, 5)
    assert any("'mode'" in note for note in encoding.notes(series, [(0, 0, 4)]))
    frame.loc[5, "mode"] = 9
    with pytest.raises(InputError, match=r"'mode'.*2, 4, 7; got 9"):
        encoding.inputs(table(frame, values=("y",), covariates=("mode", "price", "open")), 0, 0, 6)


def test_the_input_of_a_step_precedes_its_observation() -> None:
    """The model's action a_t, at the same index as x_t, is what was known about the time of x_t."""
    frame = pd.DataFrame({"y": np.arange(40.0), "price": 100.0 + np.arange(40.0)})
    series = table(frame, covariates=("price",))
    sequences = Encoding.fit(series, whole(series)).sequences(series)
    assert sequences.actions is not None
    np.testing.assert_allclose(sequences.actions[0, :, 0].numpy(), sequences.x[0, :, 0].numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "classes"),
        ("kind", "other"),
        ("channels", ["a", "b"]),
        ("channels", [1]),
        ("calendar", ["moon"]),
        ("scaling", None),
        ("scaling", {"shift": [0.0, 0.0], "scale": [1.0, 1.0]}),
        ("scaling", {"shift": [0.0], "scale": [-1.0]}),
        ("scaling", {"shift": [float("nan")], "scale": [1.0]}),
    ],
)
def test_an_edited_encoding_is_refused(name: str, value: Any) -> None:
    series = table(np.arange(40.0))
    description = Encoding.fit(series, whole(series)).describe()
    assert Encoding.from_description(description).describe() == description
    with pytest.raises(ValueError, match=r"of the encoding"):
        Encoding.from_description({**description, name: value})
