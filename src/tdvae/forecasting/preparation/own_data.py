"""Prepared data of a user: training, validation and test parts, and the encoding of further data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch

from tdvae.checks import NonNegative, check_fields
from tdvae.codec import FrameCodec
from tdvae.codes import CodeWindows, actions_of, encode_recording, encode_sequences
from tdvae.data import Recording
from tdvae.data.windows import FrameWindows
from tdvae.errors import InputError
from tdvae.forecasting.preparation.encode import Encoding
from tdvae.forecasting.preparation.split import Windows
from tdvae.forecasting.preparation.understood import Understood
from tdvae.forecasting.reading import Source, read
from tdvae.forecasting.series import Columns, Grid, Series
from tdvae.types import Sequences, SequenceSource

MOST_STORED = 64_000_000  # numbers of each stored part: 256 MB


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Sequences for the evaluation of forecasts.

    The first ``context`` steps of each are context only, and the forecasts begin after them. If it is 0, all steps may
    be forecast.
    """

    sequences: Sequences
    context: NonNegative = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.context >= self.sequences.horizon:
            raise InputError(f"context: expected less than the {self.sequences.horizon} steps, got {self.context}")


@dataclass(frozen=True, eq=False)
class OwnData:
    """A user's data, ready for training; `prepare` makes it.

    >>> import numpy as np, tdvae
    >>> data = tdvae.prepare(1.7e9 + 100 * np.sin(0.3 * np.arange(600)), longest_jump=5)  # one long series
    >>> print(data.split)
    split by time: 472 steps for training, then 59 for validation and 59 for test
    >>> len(data.train), data.window
    (373, 100)
    """

    train: SequenceSource
    validation: SequenceSource
    history: Sequences  # the training part uncut, for naive and linear forecasters
    validated: HeldOut  # the validation part, with context
    test: HeldOut
    encoding: Encoding
    columns: Columns
    longest_jump: int
    window: int | None
    split: str
    notes: tuple[str, ...] = ()  # what was understood and assumed, in lines
    sha256: str = ""
    seasons: tuple[int, ...] = ()  # in steps, the longest last
    understood: Understood | None = None  # None for recordings
    times: tuple[Grid, ...] = ()  # of the test sequences

    @property
    def season(self) -> int | None:
        """The longest season."""
        return self.seasons[-1] if self.seasons else None

    def info(self) -> dict[str, Any]:
        """What a run stores in its config, as JSON-compatible values."""
        return {
            "experiment": "fit",
            "columns": self.columns.describe(),
            "encoding": self.encoding.describe(),
            "longest_jump": self.longest_jump,
            "window": self.window,
            "season": self.season,
            "seasons": list(self.seasons),
            "context": self.test.context,
            "times": [asdict(grid) for grid in self.times] if len(self.times) == len(self.stored["test"]) else [],
            "split": self.split,
            "sha256": self.sha256,
        }

    def coded(self, codec: FrameCodec) -> OwnData:
        """The same pictures as codes, so that training never sees pixels.

        Forecasts are decoded, and the test part stays pictures: they are scored in pixels.
        """
        if self.encoding.kind != "picture" or self.encoding.codec is not None:
            raise InputError(
                f"codec: expected data of pictures, got {self.encoding.kind} of shape {self.history.x.shape[2:]}"
            )

        def encode(sequences: Sequences) -> Sequences:
            return encode_sequences(codec, sequences)

        return replace(
            self,
            train=_coded_source(codec, self.train),
            validation=_coded_source(codec, self.validation),
            history=encode(self.history),
            validated=replace(self.validated, sequences=encode(self.validated.sequences)),
            encoding=replace(self.encoding, codec=codec),
        )

    @cached_property
    def stored(self) -> dict[str, Sequences]:
        """The parts that a run keeps, so that it can be evaluated without the user's file."""
        return {"history": _limited(self.history), "test": _limited(self.test.sequences)}


def _coded_source(codec: FrameCodec, source: SequenceSource) -> SequenceSource:
    if isinstance(source, FrameWindows):
        actions = actions_of(source.recording) if source.with_actions else None
        return CodeWindows(source, encode_recording(codec, source.recording), actions)
    assert isinstance(source, Windows)
    return replace(source, sequences=encode_sequences(codec, source.sequences))


def _limited(sequences: Sequences) -> Sequences:
    """Evenly chosen sequences, if all of them would be too large to store."""
    count = max(1, min(len(sequences), MOST_STORED * len(sequences) // max(1, sequences.x.numel())))
    return sequences.select(torch.arange(count) * len(sequences) // count)


def new_sequences(encoding: Encoding, columns: Columns, source: Source) -> tuple[Series, Sequences]:
    """Read new data with the columns of a run, and encode them as its training data were."""
    series = read(source, columns, future=True)
    if isinstance(series, Recording):
        raise InputError("data: expected a table or arrays, got a recording of frames")
    return series, encoding.sequences(series)
