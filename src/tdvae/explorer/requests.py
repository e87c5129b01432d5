"""Requests of the page: query strings become typed queries, and whatever is not as expected is one clear line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tdvae.errors import InputError

MOST_SAMPLES, MOST_EDITS, MOST_SEED = 24, 40, 10_000
LONGEST_TEXT = 2_000  # of one value in a query
_NAME = re.compile(r"[\w.+-]{1,80}")
_WHOLE = re.compile(r"\d{1,7}")
_EDIT = re.compile(r"(\d{1,3}):(-?[\d.]{1,20}(?:e[+-]?\d{1,3})?):(\d{1,5}):(\d{1,5})")


@dataclass(frozen=True)
class Edit:
    """Set an action or covariate to a value, from one step of the jump to another (counted from 1)."""

    input: int
    value: float
    first: int
    last: int


@dataclass(frozen=True)
class Query:
    """What the page asks for. ``of`` names the subject whose sequences are used, to compare two models."""

    model: str
    of: str
    sequence: int = 0
    t: int = 0
    dt: int = 1
    samples: int = 8
    channel: int = 0
    seed: int = 0
    edits: tuple[Edit, ...] = ()


def parse(values: Mapping[str, str]) -> Query:
    """A query from the values of a query string."""
    known = Query.__dataclass_fields__
    for name, text in values.items():
        if name not in known:
            raise InputError(f"query: expected only {', '.join(known)}; got {name[:40]!r}")
        if len(text) > LONGEST_TEXT:
            raise InputError(f"{name}: expected at most {LONGEST_TEXT} characters, got {len(text)}")
    model = _name(values, "model")
    return Query(
        model=model,
        of=_name(values, "of") if "of" in values else model,
        sequence=_whole(values, "sequence", 0, 0, 9_999),
        t=_whole(values, "t", 0, 0, 99_999),
        dt=_whole(values, "dt", 1, 1, 9_999),
        samples=_whole(values, "samples", 8, 1, MOST_SAMPLES),
        channel=_whole(values, "channel", 0, 0, 9_999),
        seed=_whole(values, "seed", 0, 0, MOST_SEED),
        edits=_edits(values.get("edits", "")),
    )


def text_of(query: Query) -> str:
    """The query as sorted text: the key of its answer in an export."""
    edits = ";".join(f"{each.input}:{each.value:g}:{each.first}:{each.last}" for each in query.edits)
    values = {name: getattr(query, name) for name in Query.__dataclass_fields__} | {"edits": edits}
    return "&".join(f"{name}={values[name]}" for name in sorted(values))


def _name(values: Mapping[str, str], name: str) -> str:
    text = values.get(name, "")
    if not _NAME.fullmatch(text):
        raise InputError(f"{name}: expected the name of a model, got {text[:40]!r}")
    return text


def _whole(values: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text) or not text.isascii() or not low <= int(text) <= high:
        raise InputError(f"{name}: expected a whole number from {low} to {high}, got {text[:40]!r}")
    return int(text)


def _edits(text: str) -> tuple[Edit, ...]:
    parts = [part for part in text.split(";") if part]
    if len(parts) > MOST_EDITS:
        raise InputError(f"edits: expected at most {MOST_EDITS}, got {len(parts)}")
    return tuple(map(_edit, parts))


def _edit(text: str) -> Edit:
    found = _EDIT.fullmatch(text)
    try:
        value = float(found[2]) if found and text.isascii() else math.nan
    except ValueError:
        value = math.nan
    if found is None or not math.isfinite(value) or not 1 <= int(found[3]) <= int(found[4]):
        raise InputError(f"edits: expected INPUT:VALUE:FIRST:LAST separated by semicolons, got {text[:60]!r}")
    return Edit(int(found[1]), value, int(found[3]), int(found[4]))
