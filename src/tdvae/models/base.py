"""The interface of all models, `Model`, and the base class of those with a belief network, `RecurrentModel`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.checks import Samples, checked
from tdvae.distributions import Categorical, Distribution, PointMass
from tdvae.errors import InputError
from tdvae.models import arguments
from tdvae.models.config import ModelConfig, RecurrentConfig
from tdvae.models.decoders import Decoder
from tdvae.nn.conv import FrameEncoder
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.ladder import Conditional, LadderDistribution
from tdvae.nn.memory import MapMemory, Memory
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, Origin, Sequences, State, combine_states

FeatureKind = Literal["code", "moments", "sample"]


@dataclass(frozen=True)
class Beliefs:
    """The belief codes b_0 … b_T of a batch. `at` applies the readout only to the codes that are needed."""

    codes: Tensor  # (N, T + 1, C)
    read: Callable[[Tensor], Tensor]
    memories: Tensor | None = None  # (N, T + 1, E) what is remembered of the observations; None if z alone is the state

    def at(self, t: Tensor) -> Tensor:
        """b_t at the times t (N, ...) of each sequence, (N, ..., B)."""
        return self.read(self.codes[_rows_like(t), t])

    def memory_at(self, t: Tensor) -> Tensor | None:
        """What is remembered at the times t (N, ...) of each sequence, (N, ..., E)."""
        return None if self.memories is None else self.memories[_rows_like(t), t]


def _rows_like(t: Tensor) -> Tensor:
    """The number of the sequence for times t (N, ...), to be broadcast with them."""
    return torch.arange(len(t), device=t.device).view(-1, *[1] * (t.ndim - 1))


class Model(nn.Module, ABC):
    """Interface of a world model: beliefs, states and predictions. ``config`` holds all settings it was built with.

    The arguments of the interface are checked in every model, against the annotations of its methods.
    """

    config: ModelConfig
    INTERFACE = ("initial", "update", "belief_features", "filter", "sample_state", "transition", "decode", "predict")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in Model.INTERFACE:
            if inspect.isfunction(vars(cls).get(name)):
                setattr(cls, name, checked(vars(cls)[name]))

    def describe(self) -> dict[str, object]:
        """The config as JSON-compatible values; `ModelConfig.from_description` is the inverse."""
        return self.config.describe()

    @abstractmethod
    def initial(self, batch_size: Samples) -> Belief:
        """The belief before any observation, for ``batch_size`` sequences."""

    @abstractmethod
    def update(
        self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None, graph: bool = False
    ) -> Belief:
        """One online update: action ``a`` (N, A), then observation ``x`` (N, *event) and reward ``r`` (N,).

        For a model with ``missing_values``, NaN entries of ``x`` are missing. The belief has no autograd graph unless
        ``graph`` is True: an agent that goes on for ever would keep that of all its steps.
        """

    @abstractmethod
    def belief_features(self, belief: Belief, kind: FeatureKind = "code") -> Tensor:
        """A vector (N, F) that summarises a belief, as the input of a policy or of a probe.

        It is the code b_t after the readout; or, in models with a belief p_B(z | b), its moments: the means and log σ
        of all layers, each given the means of the layers above; or a sample of z. If the state includes the
        observation, the features of x_t follow.
        """

    @abstractmethod
    def filter(self, sequences: Sequences) -> Beliefs:
        """The beliefs at all times of whole sequences; the same as repeated calls of `update`."""

    @abstractmethod
    def sample_state(self, belief: Belief, n: Samples) -> State:
        """Draw ``n`` states from the belief; each layer of z is (n, N, size)."""

    @abstractmethod
    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        """Draw a state ``dt`` steps later. With actions, ``a`` (..., dt, A) holds those of the jump, in order;
        a single one (..., 1, A) is held for the whole jump.

        If the state includes the observation, that is drawn as well.
        """

    @abstractmethod
    def decode(self, state: State) -> Distribution:
        """The distribution of the observation in a state.

        If the state includes the observation, this is the distribution that the observation was drawn from. If the
        observation was given, all probability is on it.
        """

    @abstractmethod
    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        """The distribution of the observation ``dt`` steps after a state.

        This is `transition` and `decode`, with z^1 integrated out where that is possible in closed form.
        """


@dataclass(frozen=True)
class Step:
    """p(s_t2 | s_t1, δt, actions) = p_T(z_t2 | s_t1, …) p_D(x_t2 | z_t2, …), for given s_t1, δt and actions.

    In the paper s = z and p_D is conditioned on z_t2 alone; ``origin`` is then None. If the state includes the
    observation, p_D is also conditioned on the origin of the jump.
    """

    p_T: Conditional
    decoder: Decoder
    origin: Origin | None = None

    def p_D(self, z: Latent) -> Distribution:
        """The distribution of x_t2 given z_t2."""
        decoded: Distribution = self.decoder(z, self.origin)
        return decoded

    def predictive(self, z: Latent, distribution: LadderDistribution) -> Distribution:
        """The distribution of x_t2, given a sample of z_t2 and the distribution it was drawn from."""
        return self.decoder.predictive(z, distribution, self.origin)


MAX_GROUPS = 8  # of sequences with similar lengths
MIN_GROUP_SIZE = 32  # the overhead of smaller groups exceeds what they save
MAX_PADDING = 0.15  # fraction of padding above which sequences are grouped


def _group_by_length(sequences: Sequences) -> list[Tensor]:
    """Rows of the sequences to encode together: one group, or several sorted by length if there is much padding."""
    count, lengths = len(sequences), sequences.lengths
    groups = min(MAX_GROUPS, count // MIN_GROUP_SIZE)
    if groups < 2 or float(lengths.sum()) > (1 - MAX_PADDING) * count * sequences.horizon:
        return [torch.arange(count, device=lengths.device)]
    return list(lengths.argsort().tensor_split(groups))


class RecurrentModel(Model):
    """A model with an observation encoder, a belief network and a readout of its code.

    Subclasses implement states, transitions and predictions. Methods of the interface check what they are given
    (`tdvae.models.arguments`); the others rely on it.
    """

    def __init__(
        self, config: ModelConfig, encoder: ObservationEncoder | FrameEncoder, belief: BeliefNetwork, read: nn.Module
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.belief, self.read = encoder, belief, read
        # What was observed and is a part of the state; None if z alone is the state.
        self.memory: Memory | None = None
        if isinstance(config, RecurrentConfig) and isinstance(encoder, ObservationEncoder):
            self.memory = config.build_memory(encoder)

    def initial(self, batch_size: Samples) -> Belief:
        x = None if self.memory is None else self.memory.first().expand(batch_size, -1)
        return replace(self.belief.initial(batch_size), x=x)

    def update(
        self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None, graph: bool = False
    ) -> Belief:
        observed = arguments.check_update(self, belief, x, a, r)
        with torch.set_grad_enabled(graph):
            return self._update(belief, x, observed, a, r)

    def _update(
        self, belief: Belief, x: Tensor, observed: Tensor | None, a: Tensor | None = None, r: Tensor | None = None
    ) -> Belief:
        """`update` of checked arguments, with the mask of the observation."""
        known = self.known(belief.x, None if a is None else a[:, None])
        updated = self.belief.step(belief, self._belief_inputs(x, observed, a, r, known))
        if self.memory is None:
            return updated
        one = torch.ones(len(x), dtype=torch.long, device=x.device)
        return replace(updated, x=self.features_after(belief.x, x, one, None if a is None else a[:, None], observed))

    @torch.no_grad()
    def belief_features(self, belief: Belief, kind: FeatureKind = "code") -> Tensor:
        arguments.check_belief(self, belief, code_only=True)
        features = self._belief_features(self.read(belief.code), kind)
        return features if belief.x is None else torch.cat([features, belief.x], dim=-1)

    def _belief_features(self, b: Tensor, kind: FeatureKind) -> Tensor:
        """The features of a belief without those of x, given the code after the readout."""
        if kind != "code":
            raise InputError(f"kind: expected 'code', since the model has no belief p_B(z | b), got {kind!r}")
        return b

    def _observation_features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        assert isinstance(self.encoder, ObservationEncoder)  # only such models have a memory
        return self.encoder.features(x, observed)

    def features_after(
        self,
        before: Tensor | None,
        x: Tensor,
        dt: Tensor,
        actions: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> Tensor | None:
        """What is remembered after a jump of ``dt`` steps to the observation x; None if z alone is the state."""
        if self.memory is None or before is None:
            return None
        return self.memory.after(before, x, self._observation_features(x, observed), dt, actions)

    def features_through(self, sequences: Sequences) -> Tensor | None:
        """What is remembered at all times 0 … T, (N, T + 1, E)."""
        if self.memory is None:
            return None
        features = self._observation_features(sequences.x, sequences.observed)
        return self.memory.through(sequences.x, features, sequences.actions)

    def features_at(self, sequences: Sequences, t: Tensor) -> Tensor | None:
        """What is remembered at times t (N, ...) of each sequence, (N, ..., E)."""
        features = self.features_through(sequences)
        return None if features is None else features[_rows_like(t), t]

    def known(self, x: Tensor | None, actions: Tensor | None) -> Tensor | None:
        """What a map shows of the place where an action (..., 1, A) leads, for the belief network; None: no map."""
        if not isinstance(self.memory, MapMemory) or x is None:
            return None
        features: Tensor = self.memory(x, torch.ones(x.shape[:-1], dtype=torch.long, device=x.device), actions)
        return features

    def known_through(self, sequences: Sequences, memories: Tensor | None) -> Tensor | None:
        """`known` before each x_t of whole sequences, (N, T, F), given what is remembered at all times 0 … T."""
        if not isinstance(self.memory, MapMemory) or memories is None:
            return None
        assert sequences.actions is not None
        return self.known(memories[:, :-1], sequences.actions[:, :, None])

    def remembered(self, state: State, dt: Tensor, actions: Tensor | None) -> State:
        """The state with the features of its memory that p_T and p_D are given in a jump."""
        return state if self.memory is None or state.x is None else replace(state, x=self.memory(state.x, dt, actions))

    @cached_property
    def belief_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors of a belief, without the dimension of the batch."""
        with torch.no_grad():
            first = self.initial(1)
        return [tuple(tensor.shape[1:]) for tensor in (first.code, *first.carry)]

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """The sizes of the layers of z in a state."""
        raise NotImplementedError

    def observation(self, state: State) -> Tensor:
        """The observation in a state, (..., *event), for models whose state includes it; NaN where it was missing."""
        if self.memory is None:
            raise InputError("state: expected a model with state='observed', got state='latent'; use decode")
        arguments.check_state(self, state)
        assert isinstance(self.encoder, ObservationEncoder)
        assert state.x is not None
        if isinstance(self.memory, MapMemory):
            return self.memory.observation(state.x)
        return self.encoder.observation(state.x)

    def _decode_state(self, decoder: Decoder, state: State) -> Distribution:
        """Implementation of `decode` for models with a latent state."""
        arguments.check_state(self, state)
        if self.memory is None or state.origin is not None:
            decoded: Distribution = decoder(state.z, state.origin)
            return decoded
        x, ndim = self.observation(state), len(self.config.event_shape)
        if x.is_floating_point():
            return PointMass(x, ndim)
        assert isinstance(self.config, RecurrentConfig)
        assert self.config.classes is not None
        return Categorical(F.one_hot(x, self.config.classes).to(state.z.layers[0].dtype).log(), ndim)

    def after_step(self, step: Step, before: State, dt: Tensor, actions: Tensor | None) -> State:
        """Draw z_t2 from a step of ``dt`` from the state ``before``, and x_t2 if the state includes the observation."""
        z, _ = step.p_T.sample()
        if self.memory is None:
            return State(z)
        return State(z, self.features_after(before.x, step.p_D(z).sample(), dt, actions), step.origin)

    def filter(self, sequences: Sequences) -> Beliefs:
        """The beliefs at all times. Codes beyond the length of a sequence are not defined, and may not be computed."""
        arguments.check_sequences(self, sequences)
        memories = self.features_through(sequences)
        groups = _group_by_length(sequences)
        if len(groups) == 1:
            return Beliefs(self._codes(sequences, memories), self.read, memories)
        parts = []
        for rows in groups:
            longest = int(sequences.lengths[rows].max())
            remembered = None if memories is None else memories[rows, : longest + 1]
            parts.append(self._codes(sequences.select(rows).until(longest), remembered))
        padded = [F.pad(part, (0, 0, 0, sequences.horizon + 1 - part.shape[1])) for part in parts]
        original_order = torch.cat(groups).argsort()
        return Beliefs(torch.cat(padded)[original_order], self.read, memories)

    def _codes(self, sequences: Sequences, memories: Tensor | None) -> Tensor:
        """b_0 … b_T before the readout, (N, T + 1, C)."""
        first = self.belief.initial(len(sequences))
        known = self.known_through(sequences, memories)
        inputs = self._belief_inputs(sequences.x, sequences.observed, sequences.actions, sequences.rewards, known)
        codes, _ = self.belief.scan(first, inputs)
        return torch.cat([first.code[:, None], codes], dim=1)

    def _belief_inputs(
        self, x: Tensor, observed: Tensor | None, a: Tensor | None, r: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """The inputs of the belief network at each time step: encoded x_t, what a map showed of the place, the action
        before x_t, and its reward."""
        encoded: Tensor = self.encoder(x, observed)
        if a is None and r is None:
            return encoded
        parts = [encoded] if known is None else [encoded, known]
        if a is not None:
            parts.append(a.to(encoded.dtype))
        if r is not None:
            parts.append(r[..., None].to(encoded.dtype))
        return torch.cat(parts, dim=-1)

    def step_by_step(
        self, state: State, dt: int | Tensor, a: Tensor | None, step: Callable[[State, Tensor | None], State]
    ) -> State:
        """A transition by single steps: apply ``step`` to each state δt times."""
        steps, a = arguments.check_jump(self, state, dt, a)
        for done in range(int(steps.max())):
            stepped = step(state, None if a is None else a[..., done, :])
            if done == 0:  # every jump has at least one step
                state = stepped
                continue
            unfinished = (done < steps)[..., None]
            state = combine_states([stepped, state], partial(_where, unfinished))
        return state


def _where(condition: Tensor, parts: list[Tensor]) -> Tensor:
    """The first of two tensors where ``condition`` is true, the second elsewhere."""
    first, second = parts
    return torch.where(condition, first, second)
