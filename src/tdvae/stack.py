"""Stacks of learners that are trained together: their weights are stacked, and each operation computes all runs.

With small networks, the overhead of operations takes most of the time of a training step; a stack has it only once. The
runs are independent: each has its own weights, its own part of the batch, its own noise and its own gradient clipping.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tdvae.errors import InputError
from tdvae.models.base import Model
from tdvae.objectives import Learner
from tdvae.types import Pairs, Sequences, Terms


class Stack(Learner):
    """R learners as one. In a batch of R · B sequences, each run gets B; each term of the loss is (R,)."""

    stacked = True

    def __init__(self, learners: Sequence[Learner]) -> None:
        if not learners:
            raise InputError("learners: expected at least one, got none")
        if any(learner.describe() != learners[0].describe() for learner in learners):
            raise InputError("learners: expected models of one config, got different configs")
        super().__init__(learners[0].model, learners[0].objective)
        self.runs = len(learners)
        weights, buffers = torch.func.stack_module_state(list(learners))
        self._template = (copy.deepcopy(learners[0]),)  # in a tuple, so that it is not a submodule
        del self.model
        self.weights = nn.ParameterDict({_key(name): nn.Parameter(value.detach()) for name, value in weights.items()})
        self.buffered = nn.Module()
        for name, value in buffers.items():
            self.buffered.register_buffer(_key(name), value)

    def forward(self, sequences: Sequences, pairs: Pairs) -> Terms:
        if len(sequences) % self.runs:
            raise InputError(f"batch: expected a multiple of the {self.runs} stacked runs, got {len(sequences)}")
        if bool((sequences.lengths != sequences.horizon).any()):
            raise InputError("sequences: expected the same length for all, got padded sequences")
        last = int(pairs.t2.max())
        # Not mapped, because the values of mapped tensors cannot be read; the lengths of all runs are equal.
        lengths = sequences.lengths[: len(sequences) // self.runs]
        term_types: list[type[Terms]] = []

        def run_terms(state: dict[str, Tensor], batch: dict[str, Tensor], t1: Tensor, t2: Tensor) -> dict[str, Tensor]:
            terms: Terms = torch.func.functional_call(
                self._template[0], state, (Sequences(**batch, lengths=lengths), Pairs(t1, t2, last))
            )
            term_types.append(type(terms))
            return terms.named()

        batches = {name: self._split_runs(tensor) for name, tensor in sequences.named().items() if name != "lengths"}
        named = torch.func.vmap(run_terms, randomness="different")(
            self._state(), batches, self._split_runs(pairs.t1), self._split_runs(pairs.t2)
        )
        return term_types[0](**named)

    def describe(self) -> dict[str, object]:
        return {"kind": "stack", "runs": self.runs, "of": self._template[0].describe()}

    def fill_defaults(self, description: dict[str, Any]) -> dict[str, object]:
        return {**description, "of": self._template[0].fill_defaults(description["of"])}

    def clip_gradients(self, norm: float) -> Tensor:
        """Clip the gradient of each run separately; returns the largest norm before clipping."""
        gradients = [weight.grad for weight in self.weights.values() if weight.grad is not None]
        norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
        scale = (norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
        return norms.max()

    def models(self) -> list[Model]:
        """The model of each run, with a copy of its current weights."""
        state = {name: value.detach() for name, value in self._state().items()}
        models = []
        for run in range(self.runs):
            learner = copy.deepcopy(self._template[0])
            learner.load_state_dict({name: value[run] for name, value in state.items()}, strict=False)
            models.append(learner.model.eval())
        return models

    def _split_runs(self, tensor: Tensor) -> Tensor:
        return tensor.unflatten(0, (self.runs, -1))

    def _state(self) -> dict[str, Tensor]:
        stacked = {**dict(self.weights.items()), **dict(self.buffered.named_buffers())}
        return {name.replace("/", "."): value for name, value in stacked.items()}


def _key(name: str) -> str:
    """A parameter name as a key of `nn.ParameterDict`, which must not contain dots."""
    return name.replace(".", "/")
