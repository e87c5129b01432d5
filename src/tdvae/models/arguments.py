"""Checks of what the interface of a model is given: beliefs, states, observations, sequences and jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tdvae import checks
from tdvae.checks import LONGEST_JUMP
from tdvae.errors import ArgumentTypeError, InputError
from tdvae.models.config import RecurrentConfig
from tdvae.types import Belief, Sequences, State

if TYPE_CHECKING:
    from tdvae.models.base import RecurrentModel


def check_update(model: RecurrentModel, belief: Belief, x: Tensor, a: Tensor | None, r: Tensor | None) -> Tensor | None:
    """Check the arguments of an online update. The result is the mask of x, None if the model has no missing values."""
    check_belief(model, belief)
    _check_event(model, x, lead=1)
    rows = len(belief.code)
    for name, value in (("x", x), ("a", a), ("r", r)):
        if value is not None and (value.ndim == 0 or len(value) != rows):
            given = len(value) if value.ndim else "one number"
            raise InputError(f"{name}: expected one row for each of the {rows} beliefs, got {given}")
    observed = ~torch.isnan(x) if _takes_missing_values(model) else None
    model.encoder.check_values(x, observed)
    _check_inputs(model, a, r)
    return observed


def check_sequences(model: RecurrentModel, sequences: Sequences) -> None:
    """Check sequences that a model filters."""
    _check_event(model, sequences.x, lead=2)
    observed = sequences.observed
    if observed is not None and not _takes_missing_values(model):
        raise InputError(
            "sequences: expected no missing values, since the model was built without missing_values=True, got a "
            "mask of observed values"
        )
    sequences.check_lengths()
    model.encoder.check_values(sequences.x, observed)
    _check_inputs(model, sequences.actions, sequences.rewards)


def check_belief(model: RecurrentModel, belief: Belief, code_only: bool = False) -> None:
    """Raise if a belief does not belong to this model. With ``code_only``, what it carries is not needed."""
    tensors = (belief.code,) if code_only else (belief.code, *belief.carry)
    expected = model.belief_shapes[:1] if code_only else model.belief_shapes
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise ArgumentTypeError(f"belief: expected tensors, got {checks.shown(tensors[0])}; {Belief.made_by}")
    lengths = {len(tensor) if tensor.ndim else 0 for tensor in tensors}
    if [tuple(tensor.shape[1:]) for tensor in tensors] != expected or len(lengths) > 1:
        raise InputError(
            f"belief: expected one of this model, with tensors (N, …) of the shapes {expected}, got "
            f"{[tuple(tensor.shape) for tensor in tensors]}; {Belief.made_by}"
        )


def check_state(model: RecurrentModel, state: State) -> None:
    """Raise if a state does not belong to this model, or lacks the observation that its transition is given."""
    layers, origin = state.z.layers, state.origin
    tensors = [*layers, state.x, *((origin.x, origin.features, origin.dt) if origin is not None else ())]
    given = [tensor for tensor in tensors if tensor is not None]
    if not all(isinstance(tensor, Tensor) for tensor in given):
        raise ArgumentTypeError(f"state: expected tensors, got {checks.shown(given[0])}; {State.made_by}")
    sizes = tuple(layer.shape[-1] if layer.ndim else 0 for layer in layers)
    other_x = state.x is not None and (model.memory is None or state.x.shape[-1] != model.memory.size)
    if sizes != model.state_sizes or len({tensor.shape[:-1] for tensor in given}) > 1 or other_x:
        raise InputError(
            f"state: expected one of this model, with layers of the sizes {model.state_sizes}, got "
            f"{[tuple(layer.shape) for layer in layers]}; {State.made_by}"
        )
    if model.memory is not None and state.x is None:
        raise InputError(
            "state: expected an observation x, since the model has state='observed', got None; take states from "
            "model.sample_state(belief, n) and beliefs from model.initial and model.update"
        )


def check_jump(model: RecurrentModel, state: State, dt: int | Tensor, a: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Check a state, δt and the actions of a jump; the latter two are broadcast to the leading shape of the state."""
    check_state(model, state)
    given = dt if isinstance(dt, Tensor) else torch.tensor(dt)
    checks.integers("dt", given)
    if given.numel() == 0 or not 1 <= int(given.min()) <= int(given.max()) <= LONGEST_JUMP:
        ends = f"{int(given.min())} to {int(given.max())}" if given.numel() else "none"
        raise InputError(f"dt: expected integers of at least 1 and at most {LONGEST_JUMP}, got {ends}")
    dt = checks.expanded("dt", given.to(state.z.layers[0].device), state.lead)
    _check_given("actions of the jump", a, model.config.actions > 0)
    if a is not None:
        _check_action_size(model, a)
        if a.ndim < 2:
            raise InputError(f"a: expected shape (..., dt, A), got {tuple(a.shape)}")
        checks.moderate("a", a)
        if a.shape[-2] == 1:  # one action, held for the whole jump
            a = a.expand(*a.shape[:-2], int(dt.max()), -1)
        if a.shape[-2] < int(dt.max()):
            raise InputError(f"a: expected one action for each of the {int(dt.max())} steps, got {a.shape[-2]}")
        a = checks.expanded("a", a, (*state.lead, *a.shape[-2:]))
    return dt, a


def _check_inputs(model: RecurrentModel, a: Tensor | None, r: Tensor | None) -> None:
    _check_given("actions", a, model.config.actions > 0)
    _check_given("rewards", r, model.config.rewards)
    if a is not None:
        _check_action_size(model, a)
        checks.moderate("actions", a)
    if r is not None:
        checks.moderate("rewards", r)


def _check_given(name: str, value: Tensor | None, expected: bool) -> None:
    """Raise if actions or rewards are missing, or were given to a model without them, which would ignore them."""
    if expected and value is None:
        raise InputError(f"{name}: expected a tensor, since the model was built with them, got None")
    if not expected and value is not None:
        raise InputError(f"{name}: expected None, since the model was built without them, got {tuple(value.shape)}")


def _check_action_size(model: RecurrentModel, a: Tensor) -> None:
    if a.ndim == 0 or a.shape[-1] != model.config.actions:
        raise InputError(f"actions: expected size {model.config.actions}, got {tuple(a.shape)[-1:] or 0}")


def _check_event(model: RecurrentModel, x: Tensor, lead: int) -> None:
    expected = model.config.event_shape
    if x.ndim != lead + len(expected) or tuple(x.shape[lead:]) != expected:
        raise InputError(f"x: expected observations of shape {expected}, got {tuple(x.shape)[lead:]}")
    if x.numel() == 0:
        raise InputError(f"x: expected at least one observation, got shape {tuple(x.shape)}")


def _takes_missing_values(model: RecurrentModel) -> bool:
    return isinstance(model.config, RecurrentConfig) and model.config.missing_values
