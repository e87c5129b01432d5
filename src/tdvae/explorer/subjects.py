"""What can be explored: a model with held-out sequences, in the units of the data, and an exact forecaster if known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tdvae.codec import FrameCodec
from tdvae.errors import InputError
from tdvae.exact import GaussianMixture
from tdvae.explorer.maze import MazeSource
from tdvae.forecasting.predictors import Stack, fill
from tdvae.models import Model
from tdvae.types import Belief, Sequences, missing_as_nan

Array = npt.NDArray[Any]
Kind = Literal["signal", "picture"]


class Exact(Protocol):
    """An exact forecaster: the best density of an observation that the observations before it allow."""

    @property
    def name(self) -> str: ...

    def now(self, seen: Tensor) -> GaussianMixture:
        """The density of another observation now, given (N, t, 1): batch shape (N, 1)."""
        ...

    def densities(self, seen: Tensor, horizons: list[int]) -> GaussianMixture:
        """Those after each of the horizons: batch shape (N, horizons)."""
        ...


@dataclass(frozen=True)
class Input:
    """An action or covariate: columns of the model's actions, and how a user's value becomes their numbers."""

    name: str
    column: int
    classes: tuple[float, ...] = ()  # one-hot if there are any
    labels: tuple[str, ...] = ()  # of the classes
    shift: float = 0.0
    scale: float = 1.0

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column + (len(self.classes) or 1))

    def encode(self, value: float) -> Tensor:
        """The numbers that the model is given for a value in the user's units."""
        if not self.classes:
            return torch.tensor([(value - self.shift) / self.scale])
        if value not in self.classes:
            allowed = ", ".join(f"{each:g}" for each in self.classes)
            raise InputError(f"edits: expected one of {allowed} for {self.name}, got {value:g}")
        return torch.tensor([float(value == each) for each in self.classes])

    def decode(self, actions: Tensor) -> Array:
        """(…, A) in the user's units, (…)."""
        part = actions[..., self.columns].double().numpy()
        if not self.classes:
            return np.asarray(self.shift + self.scale * part[..., 0])
        return np.array(self.classes)[part.argmax(-1)]


@dataclass(frozen=True, eq=False)
class Units:
    """x = shift + scale · (what the model is given), for each channel."""

    shift: Array
    scale: Array

    @classmethod
    def same(cls, size: int) -> Units:
        return cls(np.zeros(size), np.ones(size))


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained model, held-out sequences, and what is known about both."""

    name: str
    title: str
    about: str  # one sentence about the data
    kind: Kind
    model: Model
    sequences: Sequences  # as the model is given them
    channels: tuple[str, ...]
    units: Units
    longest_jump: int
    dt_given: bool = True  # whether the model is told how long a jump is
    dt_note: str = ""  # what to know about the length of jumps
    inputs: tuple[Input, ...] = ()
    quantities: dict[str, Array] = field(default_factory=dict)  # recorded, never given to the model: (N,) or (N, T)
    exact: Exact | None = None
    combination: Stack | None = None  # of a run of `tdvae fit`, whose TD-VAE is the model
    maze: MazeSource | None = None
    picture: PictureLayout | None = None
    frames: npt.NDArray[np.uint8] | None = None  # (N, T, height, width, colours), if they are more than is observed

    @property
    def data(self) -> str:
        """What the model is given, in words. Models of the same data can be compared."""
        shape = " × ".join(map(str, self.sequences.x.shape[2:]))
        given = [each.name for each in self.inputs] + ["rewards"] * (self.sequences.rewards is not None)
        return f"{self.kind} of {shape} numbers" + (f", given {', '.join(given)}" if given else "")

    def length(self, sequence: int) -> int:
        return int(self.sequences.lengths[sequence])

    @cached_property
    def observed(self) -> Array:
        """The observations (N, T, channels) in units, NaN where missing or beyond the end."""
        x = missing_as_nan(self.sequences.x, self.sequences.observed)
        values = self.units.shift + self.units.scale * x.flatten(2).double().numpy()
        return np.where(self.sequences.mask[..., None].numpy(), values, np.nan)

    @cached_property
    def beliefs(self) -> list[Belief]:
        """The beliefs b_0 … b_T of all sequences, by online updates."""
        sequences = fill(self.model, self.sequences)
        with torch.no_grad():
            belief = self.model.initial(len(sequences))
            found = [belief]
            for t in range(sequences.horizon):
                a = None if sequences.actions is None else sequences.actions[:, t]
                r = None if sequences.rewards is None else sequences.rewards[:, t]
                belief = self.model.update(belief, missing_as_nan(*sequences.at(t + 1)), a, r)
                found.append(belief)
        return found

    def belief(self, sequence: int, t: int) -> Belief:
        """The belief of one sequence after its first t observations."""
        return rows_of(self.beliefs[t], torch.tensor([sequence]))

    def density(self, mean: Tensor, sigma: Tensor, channel: int) -> GaussianMixture:
        """Equally weighted normal components (S, *batch, channels), of one channel in units: batch shape (*batch)."""
        shift, scale = float(self.units.shift[channel]), float(self.units.scale[channel])
        means = shift + scale * mean[..., channel].double().movedim(0, -1)
        variances = (scale * sigma[..., channel].double().movedim(0, -1)).square()
        return GaussianMixture(torch.full_like(means, -math.log(means.shape[-1])), means, variances)

    def in_units(self, x: Tensor, channel: int) -> Array:
        """One channel of (…, channels) in units, (…)."""
        return np.asarray(self.units.shift[channel] + self.units.scale[channel] * x[..., channel].double().numpy())


@dataclass(frozen=True)
class PictureLayout:
    """How a model's observation becomes a picture: pixels in [0, 1], or classes with a palette."""

    height: int
    width: int
    colours: Literal[1, 3] = 1
    channels_first: bool = False
    palette: tuple[tuple[int, int, int], ...] = ()  # of classes
    codec: FrameCodec | None = None  # if observations are codes of pictures

    def bytes_of(self, x: Tensor) -> npt.NDArray[np.uint8]:
        """(…, *event) as bytes (…, height, width, colours). Classes are given as probabilities or as numbers."""
        if self.palette:
            classes = x.argmax(-1) if x.is_floating_point() else x
            return np.array(self.palette, np.uint8)[classes.numpy()]
        if self.codec is not None:
            x = self.codec.decode(x.reshape(-1, self.codec.size)).unflatten(0, x.shape[:-1])
        values = x.float().numpy()
        if self.channels_first:
            values = np.moveaxis(values, -3, -1)
        lead = values.shape[: values.ndim - (3 if self.colours == 3 or self.channels_first else 2)]
        pixels = np.clip(np.round(255 * values), 0, 255).astype(np.uint8)
        return pixels.reshape(*lead, *pixels.shape[len(lead) : len(lead) + 2], self.colours)


def rows_of(belief: Belief, rows: Tensor) -> Belief:
    """The beliefs of some sequences."""
    x = None if belief.x is None else belief.x[rows]
    return Belief(belief.code[rows], tuple(part[rows] for part in belief.carry), x)


def on_sequences_of(subject: Subject, other: Subject) -> Subject:
    """The same model on the sequences of another subject, so that both can be compared."""
    if subject.name == other.name:
        return subject
    if subject.data != other.data:
        raise InputError(
            f"compare: expected two models of the same kind of data, got {subject.name} ({subject.data}) and "
            f"{other.name} ({other.data})"
        )
    return replace(
        subject,
        sequences=replace(other.sequences, x=_converted(subject, other), actions=_actions(subject, other)),
        quantities=other.quantities,
        exact=other.exact,
        maze=None,
    )


def _converted(subject: Subject, other: Subject) -> Tensor:
    """The observations of the other subject, scaled as this model needs them."""
    x = other.sequences.x
    if not x.is_floating_point():
        return x
    values = other.units.shift + other.units.scale * x.flatten(2).double().numpy()
    scaled = (values - subject.units.shift) / subject.units.scale
    return torch.from_numpy(scaled).to(x.dtype).view_as(x)


def _actions(subject: Subject, other: Subject) -> Tensor | None:
    """The actions of the other subject, scaled as this model needs them."""
    actions = other.sequences.actions
    if actions is None:
        return None
    actions = actions.clone()
    for mine, theirs in zip(subject.inputs, other.inputs, strict=True):
        if (mine.classes, mine.labels) != (theirs.classes, theirs.labels):
            raise InputError(
                f"compare: expected the same values of {mine.name}, got {', '.join(mine.labels) or 'numbers'} and "
                f"{', '.join(theirs.labels) or 'numbers'}"
            )
        if not mine.classes:
            values = torch.from_numpy(theirs.decode(actions))
            actions[..., mine.column] = ((values - mine.shift) / mine.scale).to(actions.dtype)
    return actions
