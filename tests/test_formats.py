"""What people have is read: packed and local text files, dates, time zones, business days, tables of all kinds."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest

import tdvae
from tdvae import InputError
from tdvae.forecasting.preparation import Encoding
from tdvae.forecasting.reading import read
from tdvae.forecasting.reading.cells import guess_decimal
from tdvae.forecasting.series import Columns, Series, calendar_features

DAYS = pd.date_range("2023-01-01", periods=60)
Y = 1234.5 + 100 * np.arange(60) ** 1.5 % 997


def table(source: Any, **columns: Any) -> Series:
    series = read(source, Columns(**columns))
    assert isinstance(series, Series)
    return series


def first_times(series: Series, count: int = 2) -> list[str]:
    assert series.grids is not None
    return series.grids[0].text(np.arange(count))


# Text


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_packed_text_files_are_read(ending: str, tmp_path: Path) -> None:
    content = pd.DataFrame({"day": DAYS, "y": Y}).to_csv(index=False).encode()
    packed = {
        "gz": gzip.compress(content),
        "bz2": bz2.compress(content),
        "zst": pyarrow.compress(content, codec="zstd", asbytes=True),
    }[ending]
    (tmp_path / f"a.csv.{ending}").write_bytes(packed)
    np.testing.assert_array_equal(table(tmp_path / f"a.csv.{ending}").x[0][:, 0], Y)


def german(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize(
    ("sep", "date", "number"),
    [
        (";", "%d.%m.%Y", german),
        (";", "%Y-%m-%d", lambda y: f"{y:.2f}".replace(".", ",")),
        ("\t", "%d/%m/%Y", german),
        (",", "%m/%d/%Y", lambda y: f'"{y:,.2f}"'),
        (",", "%d-%m-%y", lambda y: f"{y:.2f}"),
        (";", "%Y/%m/%d", lambda y: f"{y:,.2f}".replace(",", " ").replace(".", ",")),
        ("|", "%d %b %Y", lambda y: f"{y:,.2f}".replace(",", "'")),
    ],
    ids=["German", "decimal comma", "tab", "American", "two digits of the year", "French", "Swiss"],
)
def test_local_forms_of_numbers_and_dates(sep: str, date: str, number: Any, tmp_path: Path) -> None:
    rows = [sep.join([day.strftime(date), number(y)]) for day, y in zip(DAYS, Y, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join([f"day{sep}y", *rows]))
    series = table(tmp_path / "a.csv")
    assert first_times(series) == ["2023-01-01", "2023-01-02"]
    np.testing.assert_allclose(series.x[0][:, 0], Y, atol=0.006)


@pytest.mark.parametrize(
    ("cells", "sep", "expected"),
    [
        (["1,5", "31.12.2024"], ";", ","),
        (["1,234", "2,345"], ",", "."),
        (["1,234", "2,345"], ";", ","),
        (["1,234.5", "2,345"], ";", "."),
        (["1.234.567"], ",", ","),
        (["0,123"], "\t", ","),
        (["text", "12"], ";", "."),
    ],
)
def test_the_decimal_mark(cells: list[str], sep: str, expected: str) -> None:
    assert guess_decimal(cells, sep) == expected


@pytest.mark.parametrize(
    ("texts", "second"),
    [
        (["Jan 01, 2024", "Jan 02, 2024", "Jan 03, 2024"], "2024-01-02"),
        (["2024Q1", "2024Q2", "2024Q3"], "2024-04-01"),
        (["20240131", "20240201", "20240202"], "2024-02-01"),
        (["01/02/2024", "02/02/2024", "03/02/2024"], "2024-02-02"),
        (["02/01/2024", "02/02/2024", "02/03/2024"], "2024-02-02"),
        (["1/1/2024 1:00 PM", "1/1/2024 2:00 PM", "1/1/2024 3:00 PM"], "2024-01-01T14:00:00"),
    ],
)
def test_dates_in_words_quarters_digits_and_either_order(texts: list[str], second: str) -> None:
    """Of two orders of day and month, the one with a regular spacing is taken."""
    series = table(pd.DataFrame({"t": texts, "y": [1.0, 5.0, 2.0]}), time="t")
    assert first_times(series)[1] == second


def test_a_form_of_dates_that_cannot_be_guessed_is_told() -> None:
    frame = pd.DataFrame({"t": ["24w01", "24w02"], "y": [1.0, 5.0]})
    with pytest.raises(InputError, match=r"'t'.*'24w01' in row 1.*date_format"):
        table(frame, time="t")
    frame["t"] = ["2024 001", "2024 002"]
    assert first_times(table(frame, time="t", date_format="%Y %j"))[1] == "2024-01-02"


@pytest.mark.parametrize("text", ["", "-", "n/a", "NA", "NaN", "null", "#N/A", "None"])
def test_words_for_missing_values(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"y,z\n1.5,2\n{text},3\n4.5,7\n")
    np.testing.assert_array_equal(table(tmp_path / "a.csv").x[0][:, 0], [1.5, np.nan, 4.5])
    frame = pd.DataFrame({"y": ["1.5", text, "4.5"], "z": [2, 3, 7]})
    np.testing.assert_array_equal(table(frame).x[0][:, 0], [1.5, np.nan, 4.5])


def test_an_id_may_be_called_like_a_missing_value_or_have_leading_zeros(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("country,y\nNA,1\nNA,2\n007,3\n007,4\n")
    assert table(tmp_path / "a.csv", id="country").ids == ["NA", "007"]


def test_numbers_after_many_rows_of_whole_numbers(tmp_path: Path) -> None:
    """The type of a column is inferred from its first megabyte."""
    values = ["7"] * 600_000 + ["1.5"]
    (tmp_path / "a.csv").write_text("y\n" + "\n".join(values) + "\n")
    assert table(tmp_path / "a.csv").x[0][-1, 0] == 1.5


def test_an_excel_sheet(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    pd.DataFrame({"day": DAYS, "y": Y}).to_excel(tmp_path / "a.xlsx")
    series = table(tmp_path / "a.xlsx")
    assert series.columns.values == ("y",)
    assert first_times(series)[1] == "2023-01-02"


# Time


def hourly(periods: int, start: str = "2024-03-30") -> pd.DatetimeIndex:
    return pd.date_range(start, periods=periods, freq="h", tz="Europe/Berlin")


@pytest.mark.parametrize("start", ["2024-03-30", "2024-10-26"])
def test_daylight_saving_time_leaves_no_gap_and_the_calendar_is_local(start: str) -> None:
    index = hourly(72, start)
    frame = pd.DataFrame({"y": np.arange(72.0) ** 2}, index=index)
    naive = pd.DataFrame({"t": index.tz_localize(None).astype(str), "y": np.arange(72.0) ** 2})
    for series in (table(frame), table(naive, time_zone="Europe/Berlin")):
        assert series.grids is not None
        grid = series.grids[0]
        assert (grid.zone, len(series.x[0]), int(np.isnan(series.x[0]).sum())) == ("Europe/Berlin", 72, 0)
        assert grid.text(np.arange(72)) == [time.isoformat() for time in index]
        angles = calendar_features(grid, np.arange(72), ["hour"])
        expected = 2 * np.pi * index.hour.to_numpy() / 24
        np.testing.assert_allclose(angles, np.stack([np.sin(expected), np.cos(expected)], axis=1), atol=1e-9)


def test_offsets_in_text_become_utc(tmp_path: Path) -> None:
    pd.DataFrame({"y": np.arange(72.0) ** 2}, index=hourly(72)).to_csv(tmp_path / "a.csv")
    series = table(tmp_path / "a.csv")
    assert len(series.x[0]) == 72
    assert first_times(series) == ["2024-03-29T23:00:00+00:00", "2024-03-30T00:00:00+00:00"]


def test_local_days_stay_days(tmp_path: Path) -> None:
    index = pd.date_range("2024-03-01", periods=60, tz="Europe/Berlin")
    frame = pd.DataFrame({"y": Y}, index=index)
    frame.to_csv(tmp_path / "a.csv")
    for source in (frame, tmp_path / "a.csv"):
        series = table(source)
        assert len(series.x[0]) == 60
        assert first_times(series, 60)[-1] == "2024-04-29"


def test_local_times_that_repeat_an_hour_ask_for_the_time_zone() -> None:
    naive = hourly(72, "2024-10-26").tz_localize(None).astype(str)
    with pytest.raises(InputError, match=r"time_zone"):
        table(pd.DataFrame({"t": naive, "y": np.arange(72.0) ** 2}))


def test_weekends_are_no_missing_business_days() -> None:
    days = pd.bdate_range("2024-01-01", periods=100)
    frame = pd.DataFrame({"day": days, "y": np.arange(100.0) ** 2}).drop(index=[30, 31])
    series = table(frame)
    assert series.grids is not None
    grid = series.grids[0]
    assert grid.spacing() == "1 business day"
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(series.x[0][:, 0])), [30, 31])
    np.testing.assert_array_equal(grid.at(np.arange(130)), pd.bdate_range("2024-01-01", periods=130).to_numpy())
    later = table(frame[40:])
    assert later.grids is not None
    both = Series([series.x[0], later.x[0]], grids=[grid, later.grids[0]])
    assert both.offsets == [0, 42]


def test_a_table_with_the_newest_row_first_is_turned_round() -> None:
    frame = pd.DataFrame({"day": DAYS, "y": Y})
    np.testing.assert_array_equal(table(frame[::-1]).x[0], table(frame).x[0])


# Tables


def stores() -> pd.DataFrame:
    north, south = (pd.DataFrame({"y": factor * Y}, index=DAYS) for factor in (1, 2))
    return pd.concat({"north": north, "south": south}, names=["store", "day"])


def several_tables() -> dict[str, Any]:
    north, south = stores().loc["north"], stores().loc["south"]
    return {
        "index of two levels": stores(),
        "levels in the other order": stores().swaplevel(),
        "levels without names": stores().rename_axis([None, None]),
        "list of frames": [north, south],
        "list of named Series": [north["y"].rename("north"), south["y"].rename("south")],
        "frames by name": {"north": north, "south": south},
        "polars frames": [pl.DataFrame(each.reset_index()) for each in (north, south)],
    }


@pytest.mark.parametrize("kind", list(several_tables()))
def test_several_series_are_not_joined_into_one(kind: str) -> None:
    source = several_tables()[kind]
    series = table(source)
    assert series.ids in (["north", "south"], ["0", "1"])
    np.testing.assert_array_equal(series.x[1][:, 0], 2 * Y)
    assert first_times(series)[1] == "2023-01-02"
    again = read(source, series.columns)  # as a run reads new data
    assert isinstance(again, Series)
    assert again.ids == series.ids


def test_two_levels_beside_the_time_are_one_id() -> None:
    frame = pd.concat({"x": stores(), "z": stores()}, names=["item"])
    assert table(frame).ids == ["x, north", "x, south", "z, north", "z, south"]


def test_the_last_level_of_whole_numbers_is_the_time_and_names_of_two_levels_are_joined() -> None:
    index = pd.MultiIndex.from_product([["north", "south"], range(60)], names=["store", "week"])
    names = pd.MultiIndex.from_tuples([("sales", "net")])
    series = table(pd.DataFrame({"y": np.concatenate([Y, 2 * Y])}, index=index).set_axis(names, axis=1))
    assert (series.ids, series.columns.values, series.columns.time) == (["north", "south"], ("sales net",), "week")
    np.testing.assert_array_equal(series.x[1][:, 0], 2 * Y)


@pytest.mark.parametrize("make", [pd.Series, lambda values, name: pl.Series(name, values)], ids=["pandas", "polars"])
def test_one_series_of_pandas_or_polars(make: Any) -> None:
    series = table(make(Y, name="sales"))
    assert series.columns.values == ("sales",)
    np.testing.assert_array_equal(series.x[0][:, 0], Y)


def test_tables_with_other_columns_are_refused() -> None:
    with pytest.raises(InputError, match="same columns"):
        table([pd.DataFrame({"a": Y, "b": Y}), pd.DataFrame({"a": Y, "c": Y})])


def test_the_column_that_tells_series_apart_is_proposed() -> None:
    with pytest.raises(InputError, match=r"with id, which may be 'store'$"):
        table(stores().reset_index())


def test_a_column_of_text_can_be_a_covariate() -> None:
    weather = np.where(np.arange(60) % 3 == 0, "rain", "sun")
    frame = pd.DataFrame({"y": Y, "weather": weather})
    with pytest.raises(InputError, match=r"'weather': expected numbers, got 'rain' in row 1.*can be a covariate"):
        table(frame)
    series = table(frame, covariates=("weather",))
    encoding = Encoding.fit(series, [(0, 0, 60)])
    np.testing.assert_array_equal(encoding.inputs(series, 0, 0, 3), [[1, 0], [0, 1], [0, 1]])
    fewer = table(frame[1:3], covariates=("weather",))  # without rain: the same places
    np.testing.assert_array_equal(encoding.inputs(fewer, 0, 0, 2), [[0, 1], [0, 1]])
    frame.loc[0, "weather"] = "snow"
    with pytest.raises(InputError, match=r"'weather': .* rain, sun; got snow"):
        encoding.inputs(table(frame, covariates=("weather",)), 0, 0, 3)
    with pytest.raises(InputError, match=r"'weather': expected text, as in training, got numbers"):
        encoding.inputs(table(frame.assign(weather=1.5), covariates=("weather",)), 0, 0, 3)


# The note of what was understood


def test_what_was_understood_is_said(tmp_path: Path) -> None:
    index = pd.date_range("2024-01-01", periods=480, freq="h", tz="Europe/Berlin")
    y = np.sin(2 * np.pi * np.arange(480) / 24) + 0.1 * np.random.default_rng(0).normal(size=480)
    frame = pd.DataFrame({"row": np.arange(7, 487), "load": y, "price": 0.5 + y**2}, index=index)
    frame.iloc[[5, 9], 1] = np.nan
    data = tdvae.prepare(frame, 5, covariates="price", calendar=True)
    assert data.understood is not None
    assert data.understood.describe().splitlines() == [
        "targets: load",
        "covariates: price, hour, weekday",
        "series: 1 of 480 steps, one every hour (time zone Europe/Berlin)",
        "missing: 2 of 480 numbers",
        "seasons: 24 steps",
        "ignored: row, which counts rows",
    ]
    assert data.notes[0] == "targets: load"


def test_a_column_that_counts_rows_is_a_target_if_it_is_named_or_alone() -> None:
    frame = pd.DataFrame({"n": range(60), "y": Y})
    assert table(frame).columns.values == ("y",)
    assert table(frame).ignored == ("n",)
    assert table(frame, values=("n", "y")).columns.values == ("n", "y")
    assert table(frame[["n"]]).columns.values == ("n",)
