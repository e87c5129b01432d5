"""Rollouts: repeated jumpy transitions of a state, without observations in between; and beliefs by online updates."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from tdvae.checks import checked
from tdvae.errors import InputError
from tdvae.models.base import Model
from tdvae.types import Belief, Sequences, State, missing_as_nan, stack_states


@torch.no_grad()
@checked
def rollout(model: Model, state: State, dt: Iterable[int], a: Tensor | None = None) -> State:
    """The states after each of the successive jumps ``dt``, (jumps, *lead, size).

    With actions, ``a`` (..., sum(dt), A) holds those of all jumps.

    >>> import tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig())
    >>> state = model.sample_state(model.initial(batch_size=2), n=16)
    >>> states = tdvae.rollout(model, state, dt=[20, 1, 1])  # a jump of 20 steps, then two single steps
    >>> model.decode(states).mean.shape
    torch.Size([3, 16, 2, 1])
    """
    dt = list(dt)
    if a is not None and (a.ndim < 2 or a.shape[-2] < sum(dt)):
        raise InputError(f"a: expected one action for each of the {sum(dt)} steps, got shape {tuple(a.shape)}")
    states: list[State] = []
    done = 0
    for step in dt:
        state = model.transition(state, step, None if a is None else a[..., done : done + step, :])
        done += step
        states.append(state)
    if not states:
        raise InputError("dt: expected at least one jump, got an empty list")
    return stack_states(states)


@torch.no_grad()
@checked
def belief_at(model: Model, sequences: Sequences, t: int) -> Belief:
    """The belief after the first ``t`` observations, by online updates as in an agent.

    >>> import torch, tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig())
    >>> belief = tdvae.belief_at(model, tdvae.data.from_arrays(torch.zeros(4, 10)), t=6)
    >>> model.sample_state(belief, n=16).z.flat.shape
    torch.Size([16, 4, 16])
    """
    sequences.check_lengths()
    if not 0 <= t <= int(sequences.lengths.min()):
        raise InputError(f"t: expected between 0 and {int(sequences.lengths.min())} (the shortest sequence), got {t}")
    belief = model.initial(len(sequences))
    for step in range(t):
        a = None if sequences.actions is None else sequences.actions[:, step]
        r = None if sequences.rewards is None else sequences.rewards[:, step]
        belief = model.update(belief, missing_as_nan(*sequences.at(step + 1)), a, r)
    return belief
