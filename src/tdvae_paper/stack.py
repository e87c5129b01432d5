"""Stacks of learners that are trained together: their weights are stacked, and each operation computes all runs.

With small networks, the overhead of operations takes most of the time of a training step; a stack has it only once. The
runs are independent: each has its own weights, its own part of the batch, its own noise and its own gradient clipping.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from tdvae.checks import checked
from tdvae.errors import InputError
from tdvae.models import build
from tdvae.models.base import Model
from tdvae.models.config import ModelConfig
from tdvae.nn.conv import FrameEncoder
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.recurrent import ActionSummary
from tdvae.objectives import Learner
from tdvae.saved import load
from tdvae.storage import RunFolder, checkpoint
from tdvae.types import Pairs, Sequences, Terms


class Stack(Learner):
    """R learners as one. In a batch of R · B sequences, each run gets B; each term of the loss is (R,)."""

    stacked = True

    @checked
    def __init__(self, learners: Sequence[Learner]) -> None:
        if not learners:
            raise InputError("learners: expected at least one, got none")
        if any(learner.describe() != learners[0].describe() for learner in learners):
            raise InputError("learners: expected models of one config, got different configs")
        if any(learner.describe_objective() != learners[0].describe_objective() for learner in learners):
            raise InputError("learners: expected one objective, got different objectives")
        _check_can_be_stacked(learners[0])
        super().__init__(learners[0].model, learners[0].objective)
        self.runs = len(learners)
        weights, buffers = torch.func.stack_module_state(list(learners))
        self._template = (copy.deepcopy(learners[0]),)  # in a tuple, so that it is not a submodule
        for encoder in _encoders(self._template[0]):
            encoder.check_values = _checked_before  # type: ignore[method-assign]
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
        for encoder in _encoders(self._template[0]):
            ObservationEncoder.check_values(encoder, sequences.x, sequences.observed)
        pairs.check_within(sequences)
        last = int(pairs.t2.max())
        # Not mapped, because the values of mapped tensors cannot be read; the lengths of all runs are equal.
        lengths = sequences.lengths[: len(sequences) // self.runs]
        term_types: list[type[Terms]] = []

        def run_terms(state: dict[str, Tensor], batch: dict[str, Tensor], t1: Tensor, t2: Tensor) -> dict[str, Tensor]:
            terms: Terms = torch.func.functional_call(
                self._template[0],
                state,
                (Sequences(**batch, lengths=lengths), Pairs(t1, t2, last, pairs.semi_gradient, pairs.shared)),
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

    def inner_weights(self) -> list[nn.Parameter]:
        """The stacked weights of the layers that are marked as inner."""
        inner = {id(weight) for weight in self._template[0].inner_weights()}
        return [self.weights[_key(name)] for name, p in self._template[0].named_parameters() if id(p) in inner]

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
            for encoder in _encoders(learner):
                del encoder.check_values  # the models check them again
            learner.load_state_dict({name: value[run] for name, value in state.items()}, strict=False)
            models.append(learner.model.eval())
        return models

    def _split_runs(self, tensor: Tensor) -> Tensor:
        return tensor.unflatten(0, (self.runs, -1))

    def _state(self) -> dict[str, Tensor]:
        stacked = {**dict(self.weights.items()), **dict(self.buffered.named_buffers())}
        return {name.replace("/", "."): value for name, value in stacked.items()}


def _encoders(learner: Learner) -> list[ObservationEncoder]:
    return [module for module in learner.modules() if isinstance(module, ObservationEncoder)]


def _checked_before(x: Tensor, observed: Tensor | None = None) -> None:
    """In place of an encoder's check of values, which `torch.func.vmap` does not let its function read."""


def _check_can_be_stacked(learner: Learner) -> None:
    """Refuse what `torch.func.vmap` cannot map, torch's own recurrences above all: it would fail during a step."""
    modules = list(learner.model.modules())
    if any(isinstance(module, FrameEncoder) for module in modules):
        raise InputError("model: a convolutional TD-VAE cannot be stacked; train its runs one by one")
    if any(isinstance(module, ActionSummary) for module in modules):
        raise InputError(
            "actions: a TD-VAE reads the actions of a jump with torch's GRU, which cannot be stacked; train its runs "
            "one by one"
        )
    for module in modules:
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            raise InputError(
                f"belief: torch's {type(module).__name__} cannot be stacked; choose ChronoLSTM or LinearRecurrence, or "
                "train the runs one by one"
            )


def _key(name: str) -> str:
    """A parameter name as a key of `nn.ParameterDict`, which must not contain dots."""
    return name.replace(".", "/")


@checked
def load_runs(run: str | Path) -> list[Model]:
    """Load all models of a run folder: those of a stack, or a single one."""
    path = Path(run)
    description = RunFolder(path).read_config()["model"]
    if description.get("kind") != "stack":
        return [load(path)]
    stack = Stack([Learner(build(ModelConfig.from_description(description["of"]))) for _ in range(description["runs"])])
    stack.load_state_dict(checkpoint.best_or_newest(path / "checkpoints").tensors["weights"])
    return stack.models()
