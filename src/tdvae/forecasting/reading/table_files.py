"""Files of tables as DataFrames: text (CSV), Parquet, Excel. How much a file may unpack to is limited."""

from __future__ import annotations

import os
import re
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdvae.errors import InputError
from tdvae.forecasting.reading.cells import guess_decimal, null_values
from tdvae.forecasting.reading.frames import from_frame, require_pandas
from tdvae.forecasting.reading.long_format import first_repeated
from tdvae.forecasting.series import Columns, Series
from tdvae.storage.files import check_content, most_content

if TYPE_CHECKING:
    import pandas as pd

TEXT_FILES, PARQUET_FILES, EXCEL_FILES = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".xlsx",)
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # of text files
SAMPLE = 2**20  # bytes at the start of a text file, from which separators are guessed
SHORTEST_CELL = 4  # numbers of packed text such as "1," take this many times the memory
SAMPLE_LINES = 1000
LONGEST_HEADING = 2**24  # bytes
TEXT_BYTES = 64  # that a cell of text is expected to take


def read_table(path: Path, columns: Columns) -> Series:
    """The sequences of a table in a file."""
    ending = path.suffix.lower()
    if ending in PARQUET_FILES:
        return from_frame(_read_parquet(path), columns, str(path))
    if ending in EXCEL_FILES:
        return from_frame(_read_excel(path), columns, str(path))
    return _read_text(path, columns)


def _open(path: Path) -> Any:
    """The text of a file, unpacked, as a stream of pyarrow."""
    import pyarrow

    stream = pyarrow.OSFile(os.fspath(path))
    compression = COMPRESSED.get(path.suffix.lower())
    return stream if compression is None else pyarrow.CompressedInputStream(stream, compression)


def _check_unpacked(path: Path) -> None:
    """Raise if a packed file has more text than `most_content`, before any of it is parsed."""
    if path.suffix.lower() not in COMPRESSED:
        return
    left = most = most_content(path) // SHORTEST_CELL
    with closing(_open(path)) as file:
        while left >= 0 and (size := len(file.read(SAMPLE))):
            left -= size
    if left < 0:
        raise InputError(
            f"file: expected at most {most / 2**20:,.0f} MB of text in a file of {path.stat().st_size:,} bytes, got "
            f"more in {path}; if you trust it, unpack it first"
        )


def _read_text(path: Path, columns: Columns) -> Series:
    """A CSV file, by pyarrow. Columns of which not all cells are numbers stay text, and `cells` reads them."""
    require_pandas()
    import pyarrow

    try:
        _check_unpacked(path)
        heading, lines = _sample(path)
        sep = columns.sep or _separator(heading)
        decimal = columns.decimal or guess_decimal(
            [cell.strip(' "') for line in lines for cell in line.split(sep)], sep
        )
        text = [name for name in (columns.id, columns.group, columns.time) if name is not None]
        try:
            names, table = _parse(path, sep, decimal, text, len(heading))
        except pyarrow.ArrowInvalid as error:
            if "conversion error" not in str(error):
                raise
            # Types are inferred from the first rows; where later ones differ, every cell is read as text.
            names, table = _parse(path, sep, decimal, None, len(heading))
    except UnicodeDecodeError as error:
        raise InputError(
            f"file: expected a CSV file in UTF-8, got another encoding in {path}; save it as UTF-8"
        ) from error
    except InputError:
        raise
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"file: expected a complete CSV file, got {path} ({one_line(error)})") from error
    _check_heading(names, path)
    frame = table.to_pandas(date_as_object=False, split_blocks=True, self_destruct=True)
    del table
    pyarrow.default_memory_pool().release_unused()
    notes = () if decimal == "." else ("numbers: with decimal commas",)
    series = from_frame(frame, replace(columns, decimal=decimal), str(path), notes)
    return replace(series, columns=replace(series.columns, decimal=columns.decimal))


def _sample(path: Path) -> tuple[str, list[str]]:
    """The heading and some of the lines after it."""
    with closing(_open(path)) as file:
        content = file.read(SAMPLE)
        while b"\n" not in content and len(content) < LONGEST_HEADING and (more := file.read(SAMPLE)):
            content += more
    heading, _, rest = content.partition(b"\n")
    if not heading.strip():
        raise InputError(f"file: expected a CSV file with a heading, got the empty file {path}")
    if len(heading) >= LONGEST_HEADING:
        raise InputError(f"file: expected a heading of at most {LONGEST_HEADING:,} bytes, got more in {path}")
    return heading.decode("utf-8-sig"), rest.decode("utf-8", errors="replace").splitlines()[:SAMPLE_LINES]


def _separator(heading: str) -> str:
    """The most frequent separator outside of quotes; with a single column, one that is no decimal comma."""
    bare = re.sub(r'"[^"]*"', "", heading)
    best = max(",;\t|", key=bare.count)
    return best if bare.count(best) else ";"


def _parse(path: Path, sep: str, decimal: str, text: list[str] | None, heading: int) -> tuple[list[str], Any]:
    """The names of the columns and the table; the columns ``text`` stay text, or all of them."""
    import pyarrow
    from pyarrow import csv

    reading = csv.ReadOptions(use_threads=False, block_size=max(2**20, 2 * heading))
    parsing = csv.ParseOptions(delimiter=sep)
    if text is None:
        with closing(_open(path)) as file, csv.open_csv(file, reading, parsing) as reader:
            text = reader.schema.names
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(text, pyarrow.string()),
        null_values=null_values(),
        strings_can_be_null=False,
        decimal_point=decimal,
        timestamp_parsers=["%%"],  # times stay text: `cells` needs their offsets from UTC
    )
    with closing(_open(path)) as file, csv.open_csv(file, reading, parsing, convert) as reader:
        return list(reader.schema.names), reader.read_all()


def _check_heading(names: list[str], path: Path) -> None:
    if all(_is_number(name) for name in names):
        raise InputError(f"file: expected a heading with column names in the first line of {path}, got numbers")
    if (twice := first_repeated(names)) is not None:
        raise InputError(f"file: expected column names that differ, got {twice!r} twice in {path}")


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file, whose size in memory is computed from the number of rows: what is stored may be far smaller."""
    require_pandas()
    import pyarrow
    from pyarrow import parquet, types

    try:
        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            text = [f.name for f in schema if types.is_string(f.type) or types.is_large_string(f.type)]
            for column in schema:
                if types.is_nested(column.type) or types.is_binary(column.type):
                    raise InputError(
                        f"column {column.name!r}: expected numbers, times or text, got {column.type} in {path}"
                    )
            check_content(path, rows * (8 * len(schema.names) + TEXT_BYTES * len(text)), "cells")
        with parquet.ParquetFile(path, read_dictionary=text) as file:
            table = file.read(use_threads=False)
        return table.to_pandas(date_as_object=False)
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise InputError(f"file: expected a complete Parquet file, got {path} ({one_line(error)})") from error


def _read_excel(path: Path) -> pd.DataFrame:
    """The first sheet of an Excel file."""
    pandas = require_pandas()
    try:
        import openpyxl  # noqa: F401

        with zipfile.ZipFile(path) as archive:
            check_content(path, sum(member.file_size for member in archive.infolist()))
        return pandas.read_excel(path, engine="openpyxl", na_values=null_values(), keep_default_na=False)
    except InputError:
        raise
    except ImportError as error:
        raise InputError(
            f"file: expected the package openpyxl for Excel files, got {error}; pip install 'tdvae[tables]'"
        ) from error
    except Exception as error:  # whatever openpyxl and its XML reader raise for a damaged or hostile file
        raise InputError(f"file: expected a complete Excel file, got {path} ({one_line(error)})") from error


def one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else f"{text[:157]}..."
