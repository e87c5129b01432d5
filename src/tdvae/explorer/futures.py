"""Belief samples and their futures, by one jump and step by step: what the views of signals and pictures share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tdvae.distributions import DiagonalNormal, Distribution
from tdvae.errors import InputError
from tdvae.explorer.requests import Query
from tdvae.explorer.subjects import Subject
from tdvae.forecasting.predictors import compose
from tdvae.forecasting.predictors import seeded as drawn_from
from tdvae.rollouts import rollout
from tdvae.types import State, combine_states

FUTURES = 64  # sampled states behind bands and scores; the first of them are drawn
JUMPS_IN_A_ROW = 4  # a request may go this many times the longest trained jump
LEAST_SIGMA = 1e-6  # of an observation that is part of the state, and known

Stop = Callable[[], None]  # called between steps; raises if the answer is no longer wanted


@dataclass
class Clock:
    """Milliseconds that named parts of an answer took."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.spent[name] = round(1e3 * (time.perf_counter() - begin), 2)


@contextmanager
def seeded(query: Query) -> Iterator[None]:
    """The same random numbers for the same seed, so that a link restores a view and sliders move it smoothly."""
    with drawn_from(query.seed), torch.no_grad():
        yield


def longest(subject: Subject, sequence: int, t: int) -> int:
    """The longest δt that can be asked for; 0 if there are no known actions left."""
    most = min(JUMPS_IN_A_ROW * subject.longest_jump, 480)
    return most if subject.sequences.actions is None else min(most, subject.length(sequence) - t)


def check(subject: Subject, query: Query) -> None:
    """Raise unless the subject has this sequence, time, horizon and channel."""
    count = len(subject.sequences)
    if query.sequence >= count:
        raise InputError(f"sequence: expected 0 to {count - 1}, got {query.sequence}")
    length = subject.length(query.sequence)
    if query.t > length:
        raise InputError(f"t: expected 0 to {length}, the length of the sequence, got {query.t}")
    if query.channel >= len(subject.channels):
        raise InputError(f"channel: expected 0 to {len(subject.channels) - 1}, got {query.channel}")
    most = longest(subject, query.sequence, query.t)
    if query.dt > most:
        raise InputError(f"dt: expected 1 to {most} from t = {query.t}, got {query.dt}")
    for edit in query.edits:
        if edit.input >= len(subject.inputs):
            raise InputError(f"edits: expected an input below {len(subject.inputs)}, got {edit.input}")


def actions_of(subject: Subject, query: Query, steps: int) -> Tensor | None:
    """The actions (1, steps, A) after t, with the user's changes."""
    if subject.sequences.actions is None:
        return None
    actions = subject.sequences.actions[query.sequence, query.t : query.t + steps].clone()
    for edit in query.edits:
        known = subject.inputs[edit.input]
        actions[edit.first - 1 : edit.last, known.columns] = known.encode(edit.value).to(actions.dtype)
    return actions[None]


def belief_samples(subject: Subject, query: Query, count: int = FUTURES) -> State:
    """States drawn from the belief at t, (count, 1, size). The first ones do not depend on the count."""
    return subject.model.sample_state(subject.belief(query.sequence, query.t), max(count, query.samples))


def jump(subject: Subject, state: State, dt: int, actions: Tensor | None) -> State:
    """The states dt steps later, by as few jumps as the model has learned to make."""
    if not subject.dt_given:
        return rollout(subject.model, state, [1])[-1]
    return rollout(subject.model, state, compose(dt, subject.longest_jump), actions)[-1]


def single_steps(subject: Subject, state: State, dt: int, actions: Tensor | None, stop: Stop) -> list[State]:
    """The states after each of dt single steps."""
    states = []
    for step in range(dt):
        stop()
        state = subject.model.transition(state, 1, None if actions is None else actions[:, step : step + 1])
        states.append(state)
    return states


def decoded(subject: Subject, states: list[State]) -> tuple[Tensor, Tensor]:
    """The moments of what is observed in states (S, 1, size) at several times, (S, times, channels)."""
    together = combine_states(states, lambda parts: torch.cat(parts, dim=1))
    return moments(subject.model.decode(together), len(subject.channels))


def moments(density: Distribution, channels: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, (…, channels)."""
    shape = density.mean.shape
    lead = shape[: len(shape) - _event_dimensions(shape, channels)]
    mean = density.mean.reshape(*lead, channels)
    if isinstance(density, DiagonalNormal):
        return mean, density.sigma.expand(shape).reshape(*lead, channels).clamp(min=LEAST_SIGMA)
    return mean, torch.full_like(mean, LEAST_SIGMA)


def _event_dimensions(shape: torch.Size, channels: int) -> int:
    """How many of the last dimensions hold the channels."""
    for count in range(1, len(shape) + 1):
        if math.prod(shape[-count:]) == channels:
            return count
    raise InputError(f"run: expected observations of {channels} numbers, got shape {tuple(shape)}")
