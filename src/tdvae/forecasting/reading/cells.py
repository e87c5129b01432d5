"""Columns of a table as numbers and as times: what people write for numbers, missing values and dates."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tdvae.errors import InputError
from tdvae.forecasting.series import DAY, Array

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "-", "--", "—", ".", "?", "na", "n/a", "#n/a", "nan", "null", "none")  # in small letters
GROUPING = r"(?<=\d)[ '’\u00a0\u202f](?=\d{3}(?!\d))"  # between groups of three digits, beside comma and point
NUMERIC_DATE = r"\s*(\d{1,2})([./-])(\d{1,2})[./-](\d{4}|\d{2})(?:[ T,]+(\d.*?))?\s*"
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
UTC_OFFSET = r"\s*(?:[zZ]|[+-]\d{2}:?\d{2})$"


def null_values() -> list[str]:
    """`MISSING` in small, capital and mixed letters, for readers that compare exactly."""
    return sorted({form for text in MISSING for form in (text, text.upper(), text.title(), text.capitalize(), "NaN")})


def is_text(column: pd.Series) -> bool:
    from pandas.api import types

    return bool(types.is_string_dtype(column) or types.is_object_dtype(column))


def guess_decimal(cells: list[str], sep: str | None) -> Literal[".", ","]:
    """Point or comma. Where cells such as 1,234 leave it open, semicolons between cells suggest commas."""
    found = {".": 0, ",": 0}
    cells = [re.sub(GROUPING, "", text) for text in cells]
    for text in cells:
        for mark, group in (".,", ",."):
            alone = rf"[+-]?\d+\{mark}\d+" if not re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}\{mark}\d{{3}}", text) else "(?!)"
            grouped = rf"[+-]?\d{{1,3}}(\{group}\d{{3}})+\{mark}\d+|[+-]?\d{{1,3}}(\{group}\d{{3}}){{2,}}"
            found[mark] += re.fullmatch(f"{alone}|{grouped}", text) is not None
    if found["."] == found[","]:
        return "," if sep == ";" and any("," in text for text in cells if re.fullmatch(r"[+-]?[\d,]+", text)) else "."
    return "," if found[","] > found["."] else "."


def numbers(column: pd.Series, decimal: str | None) -> tuple[Array, Array]:
    """A column as float64 with NaN for missing cells, and which cells are neither numbers nor missing."""
    import pandas

    types = pandas.api.types
    if types.is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros(len(column), dtype=bool)
    if types.is_datetime64_any_dtype(column):
        return np.full(len(column), np.nan), column.notna().to_numpy()
    text = column.astype("string").str.strip()
    small = text.str.lower()
    missing = (text.isna() | small.isin(MISSING)).to_numpy(dtype=bool)
    text = text.mask(small == "true", "1").mask(small == "false", "0")
    decimal = decimal or guess_decimal(text[~missing].head(1000).tolist(), None)
    point, comma = re.escape(decimal), re.escape("," if decimal == "." else ".")
    text = text.str.replace(GROUPING, "", regex=True)
    grouped = text.str.fullmatch(rf"[+-]?\d{{1,3}}(?:{comma}\d{{3}})+(?:{point}\d*)?").fillna(False)
    text = text.mask(grouped, text.str.replace(comma, "", regex=True))
    if decimal == ",":
        text = text.str.replace(",", ".")
    found = pandas.to_numeric(text.mask(missing), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return found, np.isnan(found) & ~missing


def looks_like_dates(column: pd.Series) -> bool:
    """Whether the first cells are dates, and not numbers."""
    import pandas

    if pandas.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pandas.PeriodDtype):
        return True
    first = column.dropna().head(3)
    if first.empty or not is_text(column) or not numbers(first, ".")[1].all():
        return False
    return bool(dates(first, None).notna().all())


def times(column: pd.Series, name: str, source: str, form: str | None, zone: str | None) -> tuple[Array, str]:
    """Time stamps as float64 or datetime64[us], and their time zone: "" if they have none.

    Times with a zone are converted to UTC, so that a change to daylight saving time leaves no gap. Days with a zone
    stay local days, which are 23 to 25 hours long.
    """
    import pandas

    missing = (column.isna() | (column.astype("string").str.strip() == "")).to_numpy(dtype=bool)
    if missing.any():
        raise InputError(f"column {name!r}: expected a time in every row, got none in row {missing.argmax() + 1}")
    if isinstance(column.dtype, pandas.PeriodDtype):
        column = column.dt.to_timestamp()
    if form is None and not pandas.api.types.is_datetime64_any_dtype(column):
        found, wrong = numbers(column, ".")
        if not wrong.any():
            days = _eight_digits(found)
            return (found, "") if days is None else (days, "")
    parsed = column if pandas.api.types.is_datetime64_any_dtype(column) else dates(column, form)
    if parsed.isna().any():
        row = int(parsed.isna().to_numpy().argmax())
        expected = f"times of the form {form}" if form else "numbers or times such as 2024-03-31 14:00 or 31/03/2024"
        raise InputError(
            f"column {name!r}: expected {expected}, got {str(column.iloc[row])!r} in row {row + 1} of {source}"
            + ("" if form else "; say how they are written with date_format")
        )
    return _in_utc(column, parsed, name, zone)


def _in_utc(column: pd.Series, parsed: pd.Series, name: str, zone: str | None) -> tuple[Array, str]:
    """Times without a zone, local days without it, or times in UTC and their zone."""
    own = getattr(parsed.dtype, "tz", None)
    wall = parsed
    if own is not None:
        wall = parsed.dt.tz_localize(None)
        if is_text(column):  # parsed as UTC, whatever offsets there were
            wall = dates(column.astype("string").str.replace(UTC_OFFSET, "", regex=True), None)
    local = wall.to_numpy(dtype="datetime64[us]")
    in_day = local.view(np.int64) % DAY
    if (own is None and zone is None) or ((in_day == in_day[0]).all() and len(np.unique(local[:2])) == len(local[:2])):
        return local, ""
    try:
        aware = parsed if own is not None else parsed.dt.tz_localize(zone, ambiguous="infer")
        chosen = zone or getattr(own, "key", None) or getattr(own, "zone", None) or "UTC"
        aware.head(1).dt.tz_convert(chosen)
    except Exception as error:  # of several libraries for time zones
        raise InputError(
            f"column {name!r}: expected local times of a known time zone, got {zone!r} ({' '.join(str(error).split())})"
        ) from error
    return aware.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(dtype="datetime64[us]"), str(chosen)


def _eight_digits(found: Array) -> Array | None:
    """Whole numbers such as 20240131 as days; None for others."""
    import pandas

    if not ((found >= 1000_01_01) & (found <= 9999_12_31) & (found == np.rint(found))).all():
        return None
    days = pandas.to_datetime(pandas.Series(found.astype(np.int64).astype(str)), format="%Y%m%d", errors="coerce")
    return None if days.isna().any() else days.to_numpy(dtype="datetime64[us]")


def dates(column: pd.Series, form: str | None) -> pd.Series:
    """Text as times, NaT where it is none: in the given form, ISO 8601, a usual order of numbers, or pandas' guess."""
    import pandas

    text = column.astype("string").str.strip()

    def parse(pattern: str, utc: bool = False) -> pd.Series:
        return pandas.to_datetime(text, format=pattern, errors="coerce", utc=utc)

    if form is not None:
        return parse(form)
    offsets = text.str.contains(r"\d" + UTC_OFFSET, regex=True) & text.str.contains(":")
    iso = parse("ISO8601", utc=bool(offsets.any()))
    if iso.notna().sum() * 2 > len(text):
        return iso
    if text.str.fullmatch(r"\d{4}[- ]?Q[1-4]").all():
        return pandas.Series(pandas.PeriodIndex(text.str.replace(r"[- ]", "", regex=True), freq="Q").to_timestamp())
    parts = text.str.extract(f"^{NUMERIC_DATE}$")
    if parts[0].notna().all():
        return _numeric_dates(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guess = pandas.tseries.api.guess_datetime_format(str(text.iloc[0]))
    return iso if guess is None else parse(guess)


def _numeric_dates(parts: pd.DataFrame) -> pd.Series:
    """Dates such as 31/12/2024 14:00. Which number is the day is seen from numbers above 12, or a regular spacing."""
    import pandas

    year = "%Y" if (parts[3].str.len() == 4).all() else "%y"
    text = parts[0] + "/" + parts[2] + "/" + parts[3]
    clock = ""
    if parts[4].notna().any():
        first = parts[4].dropna().head(1)
        fits = [form for form in CLOCKS if pandas.to_datetime(first, format=form, errors="coerce").notna().all()]
        clock = f" {fits[0]}" if fits else " %H:%M"
        text = text + " " + parts[4].fillna("00:00")
    orders = ["%d/%m", "%m/%d"]
    if parts[0].astype(int).max() > 12 or (parts[1] == ".").all():
        orders = orders[:1]
    elif parts[2].astype(int).max() > 12:
        orders = orders[1:]
    found: list[Any] = [pandas.to_datetime(text, format=f"{order}/{year}{clock}", errors="coerce") for order in orders]
    return min(found, key=lambda times: (int(times.isna().sum()), times.diff().nunique()))
