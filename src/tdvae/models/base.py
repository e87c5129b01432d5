"""The interface of all models, `Model`, and the base class of those with a belief network, `RecurrentModel`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae import checks
from tdvae.checks import LONGEST_JUMP, Samples, checked
from tdvae.distributions import Categorical, Distribution, PointMass
from tdvae.errors import InputError
from tdvae.models.config import LatentConfig, ModelConfig, RecurrentConfig, describe_config
from tdvae.models.decoders import Decoder
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.ladder import Conditional, LadderDistribution
from tdvae.nn.linear import fill_window, shift_window
from tdvae.nn.map_memory import MapMemory
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, Sequences, State, combine_states


@dataclass(frozen=True)
class Beliefs:
    """The belief codes b_0 … b_T of a batch. `at` applies the readout only to the codes that are needed."""

    codes: Tensor  # (N, T + 1, C)
    read: Callable[[Tensor], Tensor]

    def at(self, t: Tensor) -> Tensor:
        """b_t at the times t (N, ...) of each sequence, (N, ..., B)."""
        rows = torch.arange(len(t), device=t.device).view(-1, *[1] * (t.ndim - 1))
        return self.read(self.codes[rows, t])


class Model(nn.Module, ABC):
    """Interface of a world model: beliefs, states and predictions. ``config`` holds all settings it was built with.

    The arguments of the interface are checked in every model, against the annotations of its methods.
    """

    config: ModelConfig
    INTERFACE = ("initial", "update", "filter", "sample_state", "transition", "decode", "predict")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in Model.INTERFACE:
            if inspect.isfunction(vars(cls).get(name)):
                setattr(cls, name, checked(vars(cls)[name]))

    def describe(self) -> dict[str, object]:
        """The config as JSON-compatible values; `tdvae.models.config.config_from_dict` is the inverse."""
        return describe_config(self.config)

    @abstractmethod
    def initial(self, batch_size: Samples) -> Belief:
        """The belief before any observation, for ``batch_size`` sequences."""

    @abstractmethod
    def update(self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None) -> Belief:
        """One online update: action ``a`` (N, A), then observation ``x`` (N, *event) and reward ``r`` (N,).

        For a model with ``missing_values``, NaN entries of ``x`` are missing.
        """

    @abstractmethod
    def filter(self, sequences: Sequences) -> Beliefs:
        """The beliefs at all times of whole sequences; the same as repeated calls of `update`."""

    @abstractmethod
    def sample_state(self, belief: Belief, n: Samples) -> State:
        """Draw ``n`` states from the belief; each layer of z is (n, N, size)."""

    @abstractmethod
    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        """Draw a state ``dt`` steps later. With actions, ``a`` (..., dt, A) holds those of the jump, in order.

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
    observation, p_D is also conditioned on the origin: the features of s_t1, δt and the actions that p_T is given.
    """

    p_T: Conditional
    decoder: Decoder
    origin: Tensor | None = None

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

    Subclasses implement states, transitions and predictions.
    """

    def __init__(self, config: ModelConfig, encoder: nn.Module, belief: BeliefNetwork, read: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.belief, self.read = encoder, belief, read
        # Learned features of x_0, before the first observation, for models whose state includes the observation.
        self.x_0: nn.Parameter | None = None
        self.lags: int = getattr(config, "lags", 1)  # last observations in the state
        # With a linear part, the action before each of these observations is part of their features.
        self.past_actions = config.actions if getattr(config, "linear_jumps", 0) else 0
        self.memory: MapMemory | None = None  # a map of what was seen, which then follows x_t in the state
        if isinstance(config, RecurrentConfig) and config.map_size is not None:
            assert config.classes is not None  # the config checks it
            self.memory = MapMemory(
                config.event_shape, config.classes, config.map_size, config.moves, config.obstacles, config.map_features
            )
        if self.memory is not None or (isinstance(config, LatentConfig) and config.observed_state):
            assert isinstance(encoder, ObservationEncoder)
            self.x_0 = nn.Parameter(torch.zeros(encoder.features_size), requires_grad=self.memory is None)

    def initial(self, batch_size: Samples) -> Belief:
        x = None if self.x_0 is None else self._first_features(self.x_0).expand(batch_size, -1)
        return replace(self.belief.initial(batch_size), x=x)

    def update(self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None) -> Belief:
        self.check_belief(belief)
        self._check_event(x, lead=1)
        for name, value in (("x", x), ("a", a), ("r", r)):
            if value is not None and len(value) != len(belief.code):
                raise InputError(
                    f"{name}: expected one row for each of the {len(belief.code)} beliefs, got {len(value)}"
                )
        return self._update(belief, x, a, r)

    def _update(self, belief: Belief, x: Tensor, a: Tensor | None, r: Tensor | None) -> Belief:
        """`update` of checked arguments."""
        observed = self._present(x)
        one = torch.ones(len(x), dtype=torch.long, device=x.device)
        known = self.step_features(belief.x, one, _one_step(a)) if self.memory else None
        inputs = self._belief_inputs(x[:, None], _one_step(observed), _one_step(a), _one_step(r), _one_step(known))
        features = self.features_after(belief.x, x, one, _one_step(a), observed)
        return replace(self.belief.scan(belief, inputs)[1], x=features)

    def features(self, x: Tensor, observed: Tensor | None = None) -> Tensor | None:
        """The features of an observation for p_T and p_D; None if the state does not include the observation."""
        if self.x_0 is None:
            return None
        assert isinstance(self.encoder, ObservationEncoder)
        return self.encoder.features(x, observed)

    def features_at(self, sequences: Sequences, t: Tensor) -> Tensor | None:
        """The features of x_t at times t (N, ...) of each sequence, (N, ..., E); learned ones for t = 0.

        With ``lags`` above 1 those of x_{t-1}, … follow, (N, ..., lags · E); before x_1 they are those of x_1. With a
        linear part, each is followed by the action before it.
        """
        if self.x_0 is None:
            return None
        if self.memory is not None:
            return self.features_through(sequences)[torch.arange(len(t)).view(-1, *[1] * (t.ndim - 1)), t]
        times = (t[..., None] - torch.arange(self.lags, device=t.device)).clamp(min=1)
        features = self.features(*sequences.at(times))
        assert features is not None
        if self.past_actions:
            features = torch.cat([features, sequences.actions_at(times).to(features.dtype)], dim=-1)
        return torch.where((t > 0)[..., None], features.flatten(-2), self._first_features(self.x_0))

    def features_through(self, sequences: Sequences) -> Tensor:
        """The features of x_0 … x_T and the maps after them, (N, T + 1, E), for models with a map."""
        assert self.memory is not None
        assert self.x_0 is not None
        assert sequences.actions is not None
        features = self.features(sequences.x, sequences.observed)
        assert features is not None
        maps = self.memory.through(sequences.x, sequences.actions)
        first = self.x_0.expand(len(sequences), 1, -1)
        return torch.cat([torch.cat([first, features], dim=1), maps], dim=-1)

    def step_features(self, x: Tensor | None, dt: Tensor, actions: Tensor | None) -> Tensor | None:
        """The features of the observations in a state that p_T and p_D are given: those of the last one or, with a map,
        those of the map around the place that the actions lead to."""
        if x is None or self.x_0 is None or self.memory is None:
            return self.last_features(x)
        assert actions is not None
        features: Tensor = self.memory(x[..., len(self.x_0) :], dt, actions)
        return features

    def features_after(
        self,
        before: Tensor | None,
        x: Tensor,
        dt: Tensor,
        actions: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> Tensor | None:
        """The features of the observations in a state, after a jump of ``dt`` steps to the observation x.

        ``actions`` (..., J, A) are those of the jump, at least ``dt`` of them.
        """
        new = self.features(x, observed)
        if self.memory is not None:
            return self._map_after(self.memory, before, new, x, dt, actions)
        if self.x_0 is None or new is None or before is None or (self.lags == 1 and not self.past_actions):
            return new
        past = None if actions is None or not self.past_actions else actions.to(new.dtype)
        first = (before == self._first_features(self.x_0)).all(-1, keepdim=True)  # x is the first observation
        return torch.where(first, fill_window(new, dt, past, self.lags), shift_window(before, new, dt, past))

    @staticmethod
    def _map_after(
        memory: MapMemory, before: Tensor | None, new: Tensor | None, x: Tensor, dt: Tensor, actions: Tensor | None
    ) -> Tensor:
        """The features ``new`` of x, and the map after it."""
        assert before is not None
        assert new is not None
        assert actions is not None
        return torch.cat([new, memory.after(before[..., new.shape[-1] :], x, dt, actions)], dim=-1)

    def _first_features(self, x_0: Tensor) -> Tensor:
        """The features of the observations in the state before the first observation; its actions are 0."""
        if self.memory is not None:
            return torch.cat([x_0, self.memory.first()])
        return F.pad(x_0, (0, self.past_actions)).repeat(self.lags)

    def last_features(self, x: Tensor | None) -> Tensor | None:
        """The features of the last observation, of those in a state."""
        return None if x is None or self.x_0 is None else x[..., : len(self.x_0)]

    @cached_property
    def _belief_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors of a belief, without the dimension of the batch."""
        with torch.no_grad():
            first = self.initial(1)
        return [tuple(tensor.shape[1:]) for tensor in (first.code, *first.carry)]

    def check_belief(self, belief: Belief, code_only: bool = False) -> None:
        """Raise if a belief does not belong to this model. With ``code_only``, what it carries is not needed."""
        tensors = (belief.code,) if code_only else (belief.code, *belief.carry)
        expected = self._belief_shapes[:1] if code_only else self._belief_shapes
        lengths = {len(tensor) if tensor.ndim else 0 for tensor in tensors}
        if [tuple(tensor.shape[1:]) for tensor in tensors] != expected or len(lengths) > 1:
            raise InputError(
                f"belief: expected one of this model, with tensors (N, …) of the shapes {expected}, got "
                f"{[tuple(tensor.shape) for tensor in tensors]}; model.initial and model.update make them"
            )

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """The sizes of the layers of z in a state."""
        raise NotImplementedError

    def check_state(self, state: State) -> None:
        """Raise if a state does not belong to this model, or lacks the observation that its transition is given."""
        sizes = tuple(layer.shape[-1] if layer.ndim else 0 for layer in state.z.layers)
        leads = {tuple(tensor.shape[:-1]) for tensor in state.tensors() if tensor is not None}
        features = None if self.x_0 is None else len(self._first_features(self.x_0))
        other_x = state.x is not None and state.x.shape[-1] != features
        if sizes != self.state_sizes or len(leads) > 1 or other_x:
            raise InputError(
                f"state: expected one of this model, with layers of the sizes {self.state_sizes}, got "
                f"{[tuple(layer.shape) for layer in state.z.layers]}; model.sample_state(belief, n) draws them"
            )
        if self.x_0 is not None and state.x is None:
            raise InputError(
                "state: expected an observation x, since the model has observed_state=True, got None; take states "
                "from model.sample_state(belief, n) and beliefs from model.initial and model.update"
            )

    def observation(self, state: State) -> Tensor:
        """The observation in a state, (..., *event), for models whose state includes it; NaN where it was missing."""
        if self.x_0 is None:
            raise InputError("state: expected a model with observed_state=True, got observed_state=False; use decode")
        self.check_state(state)
        assert isinstance(self.encoder, ObservationEncoder)
        last = self.last_features(state.x)
        assert last is not None
        return self.encoder.observation(last)

    def _decode_state(self, decoder: Decoder, state: State) -> Distribution:
        """Implementation of `decode` for models with a latent state."""
        if self.x_0 is None or state.origin is not None:
            decoded: Distribution = decoder(state.z, state.origin)
            return decoded
        x, ndim = self.observation(state), len(self.config.event_shape)
        classes = getattr(self.config, "classes", None)
        if classes is None:
            return PointMass(x, ndim)
        return Categorical(F.one_hot(x, classes).to(state.z.layers[0].dtype).log(), ndim)

    def _sample_step(self, step: Step, before: State, dt: Tensor, actions: Tensor | None) -> State:
        """Draw z_t2 from a step of ``dt`` from the state ``before``, and x_t2 if the state includes the observation."""
        z, _ = step.p_T.sample()
        if self.x_0 is None:
            return State(z)
        return State(z, self.features_after(before.x, step.p_D(z).sample(), dt, actions), step.origin)

    def filter(self, sequences: Sequences) -> Beliefs:
        """The beliefs at all times. Codes beyond the length of a sequence are not defined, and may not be computed."""
        self._check_event(sequences.x, lead=2)
        self._check_mask(sequences)
        sequences.check_lengths()
        groups = _group_by_length(sequences)
        if len(groups) == 1:
            return Beliefs(self._codes(sequences), self.read)
        parts = [self._codes(sequences.select(rows).until(int(sequences.lengths[rows].max()))) for rows in groups]
        padded = [F.pad(part, (0, 0, 0, sequences.horizon + 1 - part.shape[1])) for part in parts]
        original_order = torch.cat(groups).argsort()
        return Beliefs(torch.cat(padded)[original_order], self.read)

    def _codes(self, sequences: Sequences) -> Tensor:
        """b_0 … b_T before the readout, (N, T + 1, C)."""
        first = self.belief.initial(len(sequences))
        inputs = self._belief_inputs(
            sequences.x, sequences.observed, sequences.actions, sequences.rewards, self._known(sequences)
        )
        codes, _ = self.belief.scan(first, inputs)
        return torch.cat([first.code[:, None], codes], dim=1)

    def _known(self, sequences: Sequences) -> Tensor | None:
        """What the map shows, before x_t, of the place where a_t leads, at all time steps (N, T, F)."""
        if self.memory is None:
            return None
        check_given("actions", sequences.actions, True)
        assert sequences.actions is not None
        before = self.features_through(sequences)[:, :-1]
        one = torch.ones(before.shape[:2], dtype=torch.long, device=before.device)
        return self.step_features(before, one, sequences.actions[:, :, None])

    def jump(self, state: State, dt: int | Tensor, a: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Check δt and the actions of a jump, and broadcast them to the leading shape of the state."""
        lead = state.lead
        self.check_state(state)
        given = dt if isinstance(dt, Tensor) else torch.tensor(dt)
        checks.integers("dt", given)
        if given.numel() == 0 or not 1 <= int(given.min()) <= int(given.max()) <= LONGEST_JUMP:
            ends = f"{int(given.min())} to {int(given.max())}" if given.numel() else "none"
            raise InputError(f"dt: expected integers of at least 1 and at most {LONGEST_JUMP}, got {ends}")
        dt = checks.expanded("dt", given.to(state.z.layers[0].device), lead)
        check_given("actions of the jump", a, self.config.actions > 0)
        if a is not None:
            self._check_action_size(a)
            if a.ndim < 2:
                raise InputError(f"a: expected shape (..., dt, A), got {tuple(a.shape)}")
            checks.moderate("a", a)
            if a.shape[-2] < int(dt.max()):
                raise InputError(f"a: expected one action for each of the {int(dt.max())} steps, got {a.shape[-2]}")
            a = checks.expanded("a", a, (*lead, *a.shape[-2:]))
        return dt, a

    def step_by_step(
        self, state: State, dt: int | Tensor, a: Tensor | None, step: Callable[[State, Tensor | None], State]
    ) -> State:
        """A transition by single steps: apply ``step`` to each state δt times."""
        steps, a = self.jump(state, dt, a)
        for done in range(int(steps.max())):
            stepped = step(state, None if a is None else a[..., done, :])
            if done == 0:  # every jump has at least one step
                state = stepped
                continue
            unfinished = (done < steps)[..., None]
            state = combine_states([stepped, state], partial(_where, unfinished))
        return state

    def _check_action_size(self, a: Tensor) -> None:
        if a.ndim == 0 or a.shape[-1] != self.config.actions:
            raise InputError(f"actions: expected size {self.config.actions}, got {tuple(a.shape)[-1:] or 0}")

    def _belief_inputs(
        self, x: Tensor, observed: Tensor | None, a: Tensor | None, r: Tensor | None, known: Tensor | None = None
    ) -> Tensor:
        """The inputs of the belief network at each time step: encoded x_t, what the map shows of the place, the action
        before it, and its reward."""
        check_given("actions", a, self.config.actions > 0)
        check_given("rewards", r, self.config.rewards)
        parts = [self.encoder(x) if observed is None else self.encoder(x, observed)]
        if known is not None:
            parts.append(known)
        if a is not None:
            self._check_action_size(a)
            parts.append(checks.moderate("actions", a).to(parts[0].dtype))
        if r is not None:
            checks.moderate("rewards", r)
            parts.append(r[..., None].to(parts[0].dtype))
        return torch.cat(parts, dim=-1)

    def _check_event(self, x: Tensor, lead: int) -> None:
        expected = tuple(self.config.event_shape)
        if x.ndim != lead + len(expected) or tuple(x.shape[lead:]) != expected:
            raise InputError(f"x: expected observations of shape {expected}, got {tuple(x.shape)[lead:]}")
        if x.numel() == 0:
            raise InputError(f"x: expected at least one observation, got shape {tuple(x.shape)}")

    @property
    def _missing_values(self) -> bool:
        return isinstance(self.config, RecurrentConfig) and self.config.missing_values

    def _check_mask(self, sequences: Sequences) -> None:
        observed = sequences.observed
        if observed is None:
            return
        if not self._missing_values:
            raise InputError(
                "sequences: expected no missing values, since the model was built without missing_values=True, got a "
                "mask of observed values"
            )
        if observed.dtype != torch.bool or observed.shape != sequences.x.shape:
            raise InputError(
                f"observed: expected bool values of x's shape {tuple(sequences.x.shape)}, got "
                f"{tuple(observed.shape)} of {observed.dtype}"
            )

    def _present(self, x: Tensor) -> Tensor | None:
        """The mask of an observation whose missing entries are NaN; None if the model has no missing values."""
        observed = ~torch.isnan(x)
        if self._missing_values:
            return observed
        if not checks.holds(observed):
            raise InputError(
                "x: expected finite numbers, since the model was built without missing_values=True, got NaN"
            )
        return None


def _one_step(value: Tensor | None) -> Tensor | None:
    """A value of each sequence (N, ...) as sequences of one step, (N, 1, ...)."""
    return None if value is None else value[:, None]


def _where(condition: Tensor, parts: list[Tensor]) -> Tensor:
    """The first of two tensors where ``condition`` is true, the second elsewhere."""
    first, second = parts
    return torch.where(condition, first, second)


def check_given(name: str, value: Tensor | None, expected: bool) -> None:
    """Raise if actions or rewards are missing, or were given to a model without them, which would ignore them."""
    if expected and value is None:
        raise InputError(f"{name}: expected a tensor, since the model was built with them, got None")
    if not expected and value is not None:
        raise InputError(f"{name}: expected None, since the model was built without them, got {tuple(value.shape)}")
