"""A static version of the explorer: the page as one classic script, and precomputed answers as scripts beside it.

A page that is opened from a file may load neither modules nor JSON. Classic scripts are allowed, so the modules are
joined into one, and each file of answers is a script that adds them to a table.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tdvae.errors import InputError, TDVAEError
from tdvae.explorer.answers import Explorer
from tdvae.explorer.requests import parse, text_of
from tdvae.explorer.subjects import Subject
from tdvae.storage.files import write_file

STATIC = Path(__file__).with_name("static")
SEQUENCES = 3
SIGNAL_TIMES = (0, 1, 2, 3, 5, 8, 12, 20, 30, 45, 60, 80, 110, 150)
SIGNAL_JUMPS = (1, 2, 5, 10, 20, 40, 100)
PICTURE_TIMES, PICTURE_JUMPS = tuple(range(0, 40, 2)), (1, 2, 4, 8)
_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./(\w+)\.js\";\n", re.MULTILINE)


def check_folder(folder: Path) -> None:
    """Raise unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--export: expected a new or empty folder, got {folder}, which has something in it")


def write(explorer: Explorer, folder: Path) -> tuple[int, int]:
    """Write the page of the opened model, or of all that can be opened. Returns the numbers of answers and of bytes."""
    check_folder(folder)
    pair = [name for name in (explorer.first, explorer.second) if name is not None]
    cards = [card for card in explorer.gallery()["models"] if card["name"] in (pair or explorer.sources)]
    cards = [card for card in cards if card["problem"] is None]
    content: dict[str, bytes] = {}
    grids: dict[str, Any] = {}
    count = 0
    for card in cards:
        name = card["name"]
        subjects = [explorer.subject(each, name) for each in (pair if name == explorer.first else [name])]
        grids[name] = grid = grid_of(subjects)
        for file, answers in _files(explorer, subjects, name, grid):
            content[file] = f"Object.assign(tdvaeExport.answers, {_json(answers)});\n".encode()
            count += len(answers)
    if not grids:
        raise InputError("--export: expected at least one model that can be opened, got none")
    gallery = {**explorer.gallery(), "models": cards}
    about = {"gallery": gallery, "grid": grids, "pair": ",".join(pair), "answers": {}}
    content["export.js"] = f"window.tdvaeExport = {_json(about)};\n".encode()
    content |= {"explorer.js": joined_modules().encode(), "index.html": _page().encode()}
    content |= {name: (STATIC / name).read_bytes() for name in ("style.css", "icon.svg")}
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, data)
    return count, sum(map(len, content.values()))


def grid_of(subjects: list[Subject]) -> dict[str, Any]:
    """The values of the controls for which there are answers, of one model or of two on the same sequences."""
    subject = subjects[0]
    picture = subject.kind == "picture"
    sequences = list(range(min(SEQUENCES, len(subject.sequences))))
    length = min(subject.length(each) for each in sequences)
    jumps = [dt for dt in (PICTURE_JUMPS if picture else SIGNAL_JUMPS) if all(_fits(each, dt) for each in subjects)]
    latest = length if subject.sequences.actions is None else length - max(jumps)
    times = [t for t in (PICTURE_TIMES if picture else SIGNAL_TIMES) if t <= latest]
    start = {
        "sequence": 0,
        "t": times[len(times) * (2 if picture else 5) // 7],
        "dt": jumps[-1] if picture else jumps[min(4, len(jumps) - 1)],
        "samples": 5 if picture else 8,
        "seed": 0,
        "channel": 0,
    }
    return {"sequence": sequences, "t": times, "dt": jumps, "start": start}


def _fits(subject: Subject, dt: int) -> bool:
    if not subject.dt_given:
        return True
    shortest = int(subject.sequences.lengths.min())
    return dt == 1 or (dt <= subject.longest_jump and (subject.sequences.actions is None or dt <= shortest // 2))


def _files(
    explorer: Explorer, subjects: list[Subject], name: str, grid: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Answers by file: what belongs to a model, and what belongs to each sequence; with those of a model beside it."""
    samples = grid["start"]["samples"]

    def answered(view: str, model: str = name, **values: object) -> tuple[str, dict[str, Any]]:
        query = {"model": model, "of": name, **{key: str(value) for key, value in values.items()}}
        return f"{view}?{text_of(parse(query))}", explorer.answer(view, query)

    models = [subject.name for subject in subjects]
    pairs = [(t, dt) for t in grid["t"] for dt in grid["dt"]]
    shared = [answered("model"), answered("cloud")]
    yield f"data/{name}.js", dict(shared + [answered("scores", m, t=t, dt=dt) for m in models for t, dt in pairs])
    for sequence in grid["sequence"]:
        found = [answered("sequence", sequence=sequence)]
        for (t, dt), model, view in itertools.product(pairs, models, ("jump", "steps")):
            found.append(answered(view, model, sequence=sequence, t=t, dt=dt, samples=samples))
        if subjects[0].maze is not None:
            found += [answered("maze", sequence=sequence, t=t) for t in grid["t"] if t > 0]
        yield f"data/{name}-{sequence}.js", dict(found)


def joined_modules() -> str:
    """All modules as one classic script: each after those that it imports, without imports and exports."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        text = (STATIC / f"{name}.js").read_text(encoding="utf-8")
        for other in _IMPORT.findall(text):
            if other not in done:
                add(other)
        done[name] = re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)

    add("main")
    return '"use strict";\n(() => {\n' + "\n".join(done.values()) + "})();\n"


def _page() -> str:
    """The page with classic scripts."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    module = '<script type="module" src="main.js"></script>'
    if module not in page:
        raise TDVAEError(f"index.html: expected {module}")
    return page.replace(module, '<script defer src="export.js"></script>\n  <script defer src="explorer.js"></script>')


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).replace("</", "<\\/")
