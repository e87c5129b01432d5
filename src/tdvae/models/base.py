"""The contract every model keeps. An agent needs only these verbs; training and evaluation are written against them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.distributions import Categorical, Distribution, PointMass
from tdvae.errors import InputError
from tdvae.models.config import LatentConfig, ModelConfig, describe_config
from tdvae.models.decoders import Decoder
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.ladder import Conditional, LadderDistribution
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, Sequences, State, combine_states


@dataclass(frozen=True)
class Beliefs:
    """The belief codes b_0 … b_T of a batch. ``at`` reads out those that are needed, which are few."""

    codes: Tensor  # (N, T + 1, C)
    read: Callable[[Tensor], Tensor]

    def at(self, t: Tensor) -> Tensor:
        """b_t for times t (N, ...) of each sequence: (N, ..., B)."""
        rows = torch.arange(len(t), device=t.device).view(-1, *[1] * (t.ndim - 1))
        return self.read(self.codes[rows, t])


class Model(nn.Module, ABC):
    """Beliefs, states and predictions of one kind of world model; ``config`` is all it takes to build it again."""

    config: ModelConfig

    def describe(self) -> dict[str, object]:
        """The config as JSON can hold it; `tdvae.models.config.config_from_dict` reads it back."""
        return describe_config(self.config)

    @abstractmethod
    def initial(self, batch_size: int) -> Belief:
        """The belief before any observation, for ``batch_size`` sequences."""

    @abstractmethod
    def update(self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None) -> Belief:
        """One online step: action ``a`` (N, A) was taken, then ``x`` (N, *event) seen, with reward ``r`` (N,)."""

    @abstractmethod
    def filter(self, sequences: Sequences) -> Beliefs:
        """The beliefs at every time of whole sequences: `update`, scanned."""

    @abstractmethod
    def sample_state(self, belief: Belief, n: int) -> State:
        """``n`` states from the belief, each layer of z (n, N, size)."""

    @abstractmethod
    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        """A state ``dt`` steps later. With actions, ``a`` (..., dt, A) holds those of the jump, in order.

        Where the observation is part of the state, one is drawn.
        """

    @abstractmethod
    def decode(self, state: State) -> Distribution:
        """The distribution of the observation in a state.

        Where the observation is part of the state, that is the distribution it was drawn from; of a present state,
        whose observation was seen, all probability is on that one.
        """

    @abstractmethod
    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        """The observation ``dt`` steps after a state: `transition` and `decode`, integrated where that is exact."""


@dataclass(frozen=True)
class Step:
    """p(s_t2 | s_t1, δt, actions) = p_T(z_t2 | s_t1, …) p_D(x_t2 | z_t2, …), both bound to where the step starts.

    In the paper s = z, and p_D reads z_t2 alone: ``origin`` is None. Where the observation is part of the state, p_D
    also reads the origin: the features of s_t1, δt and the actions that p_T reads.
    """

    p_T: Conditional
    decoder: Decoder
    origin: Tensor | None = None

    def p_D(self, z: Latent) -> Distribution:
        """The distribution of x_t2 given z_t2."""
        decoded: Distribution = self.decoder(z, self.origin)
        return decoded

    def predictive(self, z: Latent, law: LadderDistribution) -> Distribution:
        """The distribution of x_t2 when z_t2 was drawn from ``law``."""
        return self.decoder.predictive(z, law, self.origin)


GROUPS = 8  # of sequences of like length
SMALLEST_GROUP = 32  # smaller ones cost more in overhead than they save
WASTE = 0.15  # share of padding from which grouping pays


def _of_like_length(sequences: Sequences) -> list[Tensor]:
    """Rows of sequences that are encoded together: all, or in groups sorted by length if padding would cost much."""
    count, lengths = len(sequences), sequences.lengths
    groups = min(GROUPS, count // SMALLEST_GROUP)
    if groups < 2 or float(lengths.sum()) > (1 - WASTE) * count * sequences.horizon:
        return [torch.arange(count, device=lengths.device)]
    return list(lengths.argsort().tensor_split(groups))


class RecurrentModel(Model):
    """The half of a model that looks back: an encoder, a belief network, and a map that reads its code.

    What is left to a kind of model is what it makes of the belief: states, transitions and predictions.
    """

    def __init__(self, config: ModelConfig, encoder: nn.Module, belief: BeliefNetwork, read: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.belief, self.read = encoder, belief, read
        # Stands for the observation before the first one, in models whose state includes the observation.
        self.x_0: nn.Parameter | None = None
        if isinstance(config, LatentConfig) and config.observed_state:
            assert isinstance(encoder, ObservationEncoder)
            self.x_0 = nn.Parameter(torch.zeros(encoder.features_size))

    def initial(self, batch_size: int) -> Belief:
        return replace(self.belief.initial(batch_size), x=None if self.x_0 is None else self.x_0.expand(batch_size, -1))

    def update(self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None) -> Belief:
        self._check_event(x, lead=1)
        inputs = self._inputs(x[:, None], None if a is None else a[:, None], None if r is None else r[:, None])
        return replace(self.belief.scan(belief, inputs)[1], x=self.features(x))

    def features(self, x: Tensor) -> Tensor | None:
        """What p_T and p_D read of an observation, in models whose state includes it."""
        if self.x_0 is None:
            return None
        assert isinstance(self.encoder, ObservationEncoder)
        return self.encoder.features(x)

    def features_at(self, sequences: Sequences, t: Tensor) -> Tensor | None:
        """The features of x_t for times t (N, ...) of each sequence, (N, ..., E); a learned stand-in where t = 0."""
        if self.x_0 is None:
            return None
        rows = torch.arange(len(t), device=t.device).view(-1, *[1] * (t.ndim - 1))
        features = self.features(sequences.x[rows, (t - 1).clamp(min=0)])
        return torch.where((t > 0)[..., None], features, self.x_0)  # type: ignore[arg-type]

    def check_state(self, state: State) -> None:
        """Refuse a state without the observation that the model's steps begin with."""
        if self.x_0 is not None and state.x is None:
            raise InputError(
                "state: this model's state includes the observation, but x is None; take states from "
                "model.sample_state(belief, n) and beliefs from model.initial and model.update"
            )

    def observation(self, state: State) -> Tensor:
        """The observation in a state (..., *event), of models whose state includes it."""
        if self.x_0 is None:
            raise InputError("state: this model's state is z alone and includes no observation; use decode(state)")
        self.check_state(state)
        assert isinstance(self.encoder, ObservationEncoder)
        assert state.x is not None
        return self.encoder.observation(state.x)

    def _decoded(self, decoder: Decoder, state: State) -> Distribution:
        """`decode` of the models with a latent state."""
        if self.x_0 is None or state.origin is not None:
            decoded: Distribution = decoder(state.z, state.origin)
            return decoded
        x, ndim = self.observation(state), len(self.config.event_shape)
        classes = getattr(self.config, "classes", None)
        if classes is None:
            return PointMass(x, ndim)
        return Categorical(F.one_hot(x, classes).to(state.z.layers[0].dtype).log(), ndim)

    def _moved(self, step: Step) -> State:
        """A draw from a step: z_t2, and x_t2 where the state includes it."""
        z, _ = step.p_T.sample()
        if self.x_0 is None:
            return State(z)
        return State(z, self.features(step.p_D(z).sample()), step.origin)

    def filter(self, sequences: Sequences) -> Beliefs:
        """Codes beyond a sequence's length mean nothing; where lengths differ much, most of them are not computed."""
        self._check_event(sequences.x, lead=2)
        groups = _of_like_length(sequences)
        if len(groups) == 1:
            return Beliefs(self._codes(sequences), self.read)
        parts = [self._codes(sequences.select(rows).until(int(sequences.lengths[rows].max()))) for rows in groups]
        padded = [F.pad(part, (0, 0, 0, sequences.horizon + 1 - part.shape[1])) for part in parts]
        back = torch.cat(groups).argsort()
        return Beliefs(torch.cat(padded)[back], self.read)

    def _codes(self, sequences: Sequences) -> Tensor:
        """b_0 … b_T before they are read, (N, T + 1, C)."""
        first = self.belief.initial(len(sequences))
        inputs = self._inputs(sequences.x, sequences.actions, sequences.rewards)
        codes, _ = self.belief.scan(first, inputs)
        return torch.cat([first.code[:, None], codes], dim=1)

    def jump(self, state: State, dt: int | Tensor, a: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """δt and the actions of a jump as a user gives them, checked and broadcast to the state's leading shape."""
        lead = state.lead
        dt = torch.as_tensor(dt, device=state.z.layers[0].device).expand(lead)
        if dt.is_floating_point() or bool((dt < 1).any()):
            raise InputError(f"dt: expected whole jumps of at least 1 step, got {dt.min().item()}")
        check_given("actions of the jump", a, self.config.actions > 0)
        if a is not None:
            self._check_action_size(a)
            if a.shape[-2] < int(dt.max()):
                raise InputError(f"a: expected one action for each of the {int(dt.max())} steps, got {a.shape[-2]}")
            a = a.expand(*lead, *a.shape[-2:])
        return dt, a

    def step_by_step(
        self, state: State, dt: int | Tensor, a: Tensor | None, step: Callable[[State, Tensor | None], State]
    ) -> State:
        """A transition of a model that knows single steps only: each state goes on until it has made its δt."""
        steps, a = self.jump(state, dt, a)
        for done in range(int(steps.max())):
            after = step(state, None if a is None else a[..., done, :])
            if done == 0:  # every jump has at least one step
                state = after
                continue
            going = (done < steps)[..., None]
            state = combine_states([after, state], partial(_chosen, going))
        return state

    def _check_action_size(self, a: Tensor) -> None:
        if a.shape[-1] != self.config.actions:
            raise InputError(f"actions: expected size {self.config.actions}, got {a.shape[-1]}")

    def _inputs(self, x: Tensor, a: Tensor | None, r: Tensor | None) -> Tensor:
        """What the belief network reads at each step: x_t, the action before it and the reward with it."""
        check_given("actions", a, self.config.actions > 0)
        check_given("rewards", r, self.config.rewards)
        parts = [self.encoder(x)]
        if a is not None:
            self._check_action_size(a)
            parts.append(a.to(parts[0].dtype))
        if r is not None:
            parts.append(r[..., None].to(parts[0].dtype))
        return torch.cat(parts, dim=-1)

    def _check_event(self, x: Tensor, lead: int) -> None:
        expected = tuple(self.config.event_shape)
        if x.ndim != lead + len(expected) or tuple(x.shape[lead:]) != expected:
            raise InputError(f"x: this model expects observations of shape {expected}, got {tuple(x.shape)[lead:]}")


def _chosen(first: Tensor, parts: list[Tensor]) -> Tensor:
    """Of two tensors, the first where ``first`` is true."""
    one, other = parts
    return torch.where(first, one, other)


def check_given(name: str, value: Tensor | None, expected: bool) -> None:
    """A model with actions must get them; one without must not, since it would silently ignore them."""
    if expected and value is None:
        raise InputError(f"{name}: this model was built with them, but none came")
    if not expected and value is not None:
        raise InputError(f"{name}: they came, but this model was built without them; leave them out or rebuild")
