"""The answers to all requests of the page, as JSON-compatible values. The server and the export both use them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tdvae import __version__
from tdvae.errors import InputError, TDVAEError, failure
from tdvae.explorer import pictures, signals
from tdvae.explorer.adapters import open_subject
from tdvae.explorer.futures import Stop, check, longest
from tdvae.explorer.references import COMBINATION
from tdvae.explorer.requests import Query, parse
from tdvae.explorer.states import Projection
from tdvae.explorer.subjects import Array, Subject, on_sequences_of
from tdvae.saved import shipped_names

VIEWS = ("model", "sequence", "jump", "steps", "scores", "cloud", "maze")
SHORT_TITLES = 80  # characters


@dataclass(frozen=True)
class Source:
    """Where a model comes from: a run folder or the name of a shipped model, and a file of sequences."""

    name: str
    run_or_name: str | Path
    data: Path | None = None


@dataclass
class Explorer:
    """The models that can be explored. They are opened when they are first asked for."""

    sources: dict[str, Source]
    first: str | None = None  # the model that the page opens with; None: the gallery
    second: str | None = None  # the model that it is compared with
    _subjects: dict[tuple[str, str], Subject] = field(default_factory=dict)
    _projections: dict[tuple[str, str], Projection] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(cls, run: str | Path | None = None, compare: str | Path | None = None, data: Path | None = None) -> Explorer:
        """The shipped models, and the given ones, which are opened at once so that mistakes are noticed."""
        if run is None and (compare is not None or data is not None):
            raise InputError("run: expected a run to compare or to give data to, got none")
        explorer = cls({name: Source(name, name) for name in shipped_names()})
        if run is not None:
            explorer.first = explorer._add(run, data)
        if compare is not None:
            explorer.second = explorer._add(compare, data)
            assert explorer.first is not None
            explorer.subject(explorer.second, explorer.first)
        return explorer

    def _add(self, run_or_name: str | Path, data: Path | None) -> str:
        """Add a run under a name that is not taken, and open it."""
        text = str(run_or_name)
        if text in self.sources and data is None and not Path(text).exists():
            self.subject(text)
            return text
        stem = "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "-" for c in Path(text).resolve().name)
        name, number = (stem or "run")[:60], 1
        while name in self.sources:
            number += 1
            name = f"{(stem or 'run')[:60]}-{number}"
        self.sources[name] = Source(name, run_or_name, data)
        self.subject(name)
        return name

    def subject(self, name: str, of: str | None = None) -> Subject:
        """A model, on its own held-out sequences or on those of another one."""
        of = of or name
        for each in (name, of):
            if each not in self.sources:
                raise InputError(f"model: expected one of {', '.join(self.sources)}; got {each!r}")
        with self._lock:
            if (name, of) not in self._subjects:
                if name == of:
                    source = self.sources[name]
                    self._subjects[name, of] = open_subject(source.run_or_name, name, source.data)
                else:
                    self._subjects[name, of] = on_sequences_of(self.subject(name), self.subject(of))
            return self._subjects[name, of]

    def gallery(self) -> dict[str, Any]:
        """All models, with the reason for those that cannot be opened."""
        models = [self._card(name) for name in self.sources]
        return {"version": __version__, "models": models, "first": self.first, "second": self.second}

    def _card(self, name: str) -> dict[str, Any]:
        try:
            subject = self.subject(name)
        except (TDVAEError, OSError) as error:
            return {"name": name, "title": name, "problem": failure(error)}
        return {
            "name": name,
            "title": subject.title,
            "about": subject.about,
            "kind": subject.kind,
            "data": subject.data,
            "problem": None,
        }

    def answer(self, view: str, values: Mapping[str, str], stop: Stop = lambda: None) -> dict[str, Any]:
        """The answer to a request, with the time it took."""
        begin = time.perf_counter()
        if view == "gallery":
            if values:
                raise InputError(f"query: expected none, got {next(iter(values))[:40]!r}")
            content = self.gallery()
        elif view in VIEWS:
            query = parse(values)
            content = self._view(view, self.subject(query.model, query.of), query, stop)
        else:
            raise InputError(f"view: expected one of gallery, {', '.join(VIEWS)}; got {view[:40]!r}")
        answer = plain(content)
        answer["server_milliseconds"] = round(1e3 * (time.perf_counter() - begin), 1)
        return answer

    def _view(self, view: str, subject: Subject, query: Query, stop: Stop) -> dict[str, Any]:
        if view == "model":
            return describe(subject)
        if view == "cloud":
            return self._projection(query, subject).view()
        check(subject, query)
        stop()
        if view == "sequence":
            return sequence_view(subject, query)
        if view == "maze":
            return maze_view(subject, query)
        if view == "scores":
            return {"count": 0} if subject.kind == "picture" else signals.scores_view(subject, query, stop)
        if view == "steps":
            module = pictures if subject.kind == "picture" else signals
            return module.steps_view(subject, query, stop)
        projection = self._projection(query, subject)
        if subject.kind == "signal":
            return signals.jump_view(subject, query, projection, stop)
        content = pictures.jump_view(subject, query, stop)
        state, end = content.pop("projected")
        return {**content, "states": {"now": projection.of(state), "end": projection.of(end)}}

    def _projection(self, query: Query, subject: Subject) -> Projection:
        with self._lock:
            key = query.model, query.of
            if key not in self._projections:
                self._projections[key] = Projection(subject)
            return self._projections[key]


def describe(subject: Subject) -> dict[str, Any]:
    """What the page needs to know about a model before it asks for anything else."""
    return {
        "name": subject.name,
        "title": subject.title[:SHORT_TITLES],
        "about": subject.about,
        "kind": subject.kind,
        "channels": subject.channels,
        "lengths": subject.sequences.lengths.numpy(),
        "longest_jump": subject.longest_jump,
        "longest_request": longest(subject, 0, 0),
        "actions": subject.sequences.actions is not None,
        "dt_given": subject.dt_given,
        "dt_note": subject.dt_note,
        "inputs": [{"name": each.name, "classes": each.classes, "labels": each.labels} for each in subject.inputs],
        "exact": None if subject.exact is None else subject.exact.name,
        "combination": None if subject.combination is None else COMBINATION,
        "maze": subject.maze is not None,
    }


def sequence_view(subject: Subject, query: Query) -> dict[str, Any]:
    """What was observed, and the actions, in units."""
    number, length = query.sequence, subject.length(query.sequence)
    actions = subject.sequences.actions
    inputs = [] if actions is None else [each.decode(actions[number, :length]) for each in subject.inputs]
    content: dict[str, Any] = {"length": length, "inputs": inputs}
    if subject.kind == "picture":
        return {**content, **pictures.sequence_view(subject, number)}
    return {**content, "x": subject.observed[number, :length].T}


def maze_view(subject: Subject, query: Query) -> dict[str, Any]:
    """The belief about the ghost, as maps."""
    if subject.maze is None:
        raise InputError(f"maze: expected a model of a maze, got {subject.name}")
    if query.t < 1:
        raise InputError("t: expected at least one frame, got 0")
    found = subject.maze.at(query.sequence, query.t)
    return {
        "walls": found.walls,
        "in_view": found.in_view,
        "pacman": found.pacman,
        "ghost": found.ghost,
        "learned": found.learned,
        "exact": found.exact,
        "divergence": found.divergence,
    }


def plain(value: Any) -> Any:
    """JSON-compatible values: arrays as rounded lists, and None for what is not a finite number."""
    if isinstance(value, np.ndarray):
        return plain(_rounded(value).tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _rounded(values: Array) -> Array:
    """Numbers with five digits of their range, however far from zero they are."""
    if values.dtype.kind != "f":
        return values
    finite = values[np.isfinite(values)]
    spread = float(np.ptp(finite)) if finite.size else 0.0
    if spread == 0:
        return values
    return np.round(values.astype(np.float64), 5 - math.ceil(math.log10(spread)))
