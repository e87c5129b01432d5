"""State-space models of Eq. 1, the baselines of the paper's MiniPacman table, with the modules of TD-VAE."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from tdvae.checks import Samples
from tdvae.distributions import DiagonalNormal, Distribution
from tdvae.errors import InputError
from tdvae.models.arguments import check_belief
from tdvae.models.base import RecurrentModel, Step
from tdvae.models.config import LatentConfig
from tdvae.models.decoders import Decoder
from tdvae.models.tdvae import MESSAGE_LOG_SIGMA, RESIDUAL_GAIN, BeliefLadder, TransitionLadder
from tdvae.nn.dense import JumpEmbedding, Maps, ObservationEncoder, Unknown
from tdvae.nn.drift import Drift
from tdvae.nn.ladder import DenseHeads, Ladder, LayerDistribution, product
from tdvae.nn.recurrent import BeliefNetwork, SingleAction
from tdvae.types import Belief, Latent, Origin, Sequences, State, combine_states, repeated


class MeanFieldLadder(BeliefLadder):
    """q(z_t | b_t): like p_B, independent of the previous state."""

    def context(self, b: Tensor, before: State | None = None, actions: Tensor | None = None) -> Tensor:
        return b


class _FilteringContext(NamedTuple):
    features: Tensor
    base_mean: Latent | None  # added to the predicted means
    prior: object  # context of p_T


class FilteringLadder(Ladder):
    """q(z_t | z_{t-1}, b_t): D(b_t, z_{t-1}), with the drift of z_{t-1} added to its means.

    With a ``prior`` (p_T), layer l is the product of p_T(z^l_t | z_{t-1}, upper layers) and a learned normal
    distribution, the message of b_t. The encoder then corrects the prediction of p_T.
    """

    def __init__(
        self,
        code: int,
        sizes: Sequence[int],
        maps: Maps,
        drift: Drift | None,
        prior: TransitionLadder | None,
        init_log_sigma: float,
    ) -> None:
        super().__init__()
        self.depth = len(sizes)
        # Bound methods instead of submodules, because p_T and the drift are submodules of other modules.
        self._drift: Callable[..., Latent] | None = drift.forward if drift else None
        self._prior_context: Callable[..., object] | None = prior.context if prior else None
        self._prior_layer: Callable[..., LayerDistribution] | None = prior.layer if prior else None
        context = code + sum(sizes) * (2 if drift else 1)
        self.heads = DenseHeads(context, sizes, maps, init_log_sigma, gain=RESIDUAL_GAIN if drift else 1.0)

    def context(self, b: Tensor, before: State, actions: Tensor | None = None) -> _FilteringContext:
        dt = unit_jumps(before)
        features, base_mean = [b, before.z.flat], None
        if self._drift is not None:
            base_mean = self._drift(before.z, dt)
            features.append(base_mean.flat)
        prior = None if self._prior_context is None else self._prior_context(before, dt, actions)
        return _FilteringContext(torch.cat(features, dim=-1), base_mean, prior)

    def layer(self, index: int, context: _FilteringContext, above: Sequence[Tensor]) -> DiagonalNormal:
        message: DiagonalNormal = self.heads(index, context.features, above, context.base_mean)
        if self._prior_layer is None:
            return message
        prior = self._prior_layer(index, context.prior, above)
        assert isinstance(prior, DiagonalNormal)  # p_T of single steps has no mixtures
        return product(prior, DiagonalNormal(message.mean, message.log_sigma + MESSAGE_LOG_SIGMA))


def unit_jumps(state: State) -> Tensor:
    """δt = 1, in the leading shape of the state."""
    return torch.ones(state.lead, dtype=torch.long, device=state.z.layers[0].device)


class StateSpace(RecurrentModel):
    r""":math:`\prod_t p_T(z_t | z_{t-1})\, p_D(x_t | z_t)` with a learned z_0, and an encoder q conditioned on b_t.

    As p_T is not conditioned on b, z must contain all information that predictions need.
    """

    def __init__(
        self,
        config: LatentConfig,
        encoder: ObservationEncoder,
        belief: BeliefNetwork,
        read: nn.Module,
        q: Ladder,
        p_T: TransitionLadder,
        p_D: Decoder,
    ) -> None:
        super().__init__(config, encoder, belief, read)
        self.config: LatentConfig = config
        self.q, self.p_T, self.p_D = q, p_T, p_D
        self.z_0 = nn.ParameterList(torch.zeros(config.latent) for _ in range(config.layers))

    def initial_state(self, *lead: int) -> State:
        """The learned initial state s_0, expanded to the leading shape ``lead``."""
        z = Latent(tuple(layer.expand(*lead, -1) for layer in self.z_0))
        return State(z, None if self.memory is None else self.memory.first().expand(*lead, -1))

    @abstractmethod
    def infer(self, b: Tensor, sequences: Sequences) -> Latent:
        """Draw z_1 … z_T (N, T, size) from the encoder, given the codes b_1 … b_T of the sequences."""

    def before(self, z: Latent, sequences: Sequences) -> State:
        """The previous states s_0 … s_{T-1} of the sequences, given z_1 … z_T."""
        features = self.features_through(sequences)
        later = State(z, None if features is None else features[:, 1:])[:, :-1]
        return combine_states([self.initial_state(len(sequences), 1), later], lambda parts: torch.cat(parts, dim=1))

    def step(self, before: State, actions: Tensor | None = None) -> Step:
        """p(s_t | s_{t-1}, a_t)."""
        dt = unit_jumps(before)
        before = self.remembered(before, dt, actions)
        p_T = self.p_T.bind(before, dt, actions)
        origin = None if before.x is None else Origin(before.x, p_T.context.features, dt[..., None])
        return Step(p_T, self.p_D, origin)

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        def step(before: State, action: Tensor | None) -> State:
            actions = one_action(action)
            return self.after_step(self.step(before, actions), before, unit_jumps(before), actions)

        return self.step_by_step(state, dt, a, step)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return self.config.sizes

    def decode(self, state: State) -> Distribution:
        return self._decode_state(self.p_D, state)

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        return self.decode(self.transition(state, dt, a))


def one_action(a: Tensor | None) -> Tensor | None:
    """Reshape the action of a single step (..., A) to the actions of a jump of one step (..., 1, A)."""
    return None if a is None else a[..., None, :]


@dataclass(frozen=True)
class StateSpaceConfig(LatentConfig):
    """Config of a state-space model."""

    def build_transition(self, drift: Drift | None, observed: int) -> TransitionLadder:
        """p_T of single steps."""
        summary = SingleAction(self.actions) if self.actions else None
        dt = JumpEmbedding(Unknown())
        return TransitionLadder(self.sizes, self.maps, dt, drift, summary, self.init_log_sigma, observed=observed)


@dataclass(frozen=True)
class MeanFieldConfig(StateSpaceConfig):
    """Config of a state-space model with the encoder q(z_t | b_t)."""

    def build(self) -> MeanField:
        encoder, belief, read, code = self.parts()
        observed = self.observed_size(encoder)
        p_T = self.build_transition(self.build_drift(), observed)
        q = MeanFieldLadder(code, self.sizes, self.maps, self.init_log_sigma)
        return MeanField(self, encoder, belief, read, q, p_T, self.build_decoder(p_T, observed))


class MeanField(StateSpace):
    """The encoder is q(z_t | b_t), so the states of different times are drawn independently given the codes."""

    def infer(self, b: Tensor, sequences: Sequences) -> Latent:
        return self.q.sample(b)[0]

    def sample_state(self, belief: Belief, n: Samples) -> State:
        check_belief(self, belief, code_only=True)
        b = self.read(belief.code)
        z, _ = self.q.sample(b.expand(n, *b.shape))
        return State(z, repeated(belief.x, n))


@dataclass(frozen=True)
class FilteringConfig(StateSpaceConfig):
    """Config of a state-space model with the encoder q(z_t | z_{t-1}, b_t)."""

    posterior: Literal["free", "product"] = "free"  # q: a D map, or p_T(z_t | z_{t-1}) times a message from b_t

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None and self.posterior == "product":
            raise InputError("posterior: expected 'free' with a map, got 'product'")

    def build(self) -> Filtering:
        encoder, belief, read, code = self.parts()
        drift, observed = self.build_drift(), self.observed_size(encoder)
        p_T = self.build_transition(drift, observed)
        prior = p_T if self.posterior == "product" else None
        q = FilteringLadder(code, self.sizes, self.maps, drift, prior, self.init_log_sigma)
        return Filtering(self, encoder, belief, read, q, p_T, self.build_decoder(p_T, observed))


class Filtering(StateSpace):
    """The encoder is q(z_t | z_{t-1}, b_t). A belief therefore also holds particles, samples of z_t of the encoder."""

    particles = 32  # samples of z_t in a belief, since b_t alone does not determine the distribution of z_t

    def infer(self, b: Tensor, sequences: Sequences) -> Latent:
        actions, features = sequences.actions, self.features_through(sequences)
        state, samples = self.initial_state(len(b)), []
        for t in range(b.shape[1]):
            z, _ = self.q.sample(b[:, t], state, one_action(None if actions is None else actions[:, t]))
            state = State(z, None if features is None else features[:, t + 1])
            samples.append(z)
        return Latent(tuple(torch.stack(layers, dim=1) for layers in zip(*(z.layers for z in samples), strict=True)))

    def initial(self, batch_size: Samples) -> Belief:
        start = super().initial(batch_size)
        return replace(start, carry=(*start.carry, *self.initial_state(batch_size, self.particles).z.layers))

    def _update(
        self, belief: Belief, x: Tensor, observed: Tensor | None, a: Tensor | None = None, r: Tensor | None = None
    ) -> Belief:
        updated = super()._update(replace(belief, carry=belief.carry[: -self.config.layers]), x, observed, a, r)
        code = self.read(updated.code)[:, None].expand(-1, self.particles, -1)
        action = None if a is None else a[:, None].expand(-1, self.particles, -1)
        z, _ = self.q.sample(code, self._particles(belief), one_action(action))
        return replace(updated, carry=(*updated.carry, *z.layers))

    def _particles(self, belief: Belief) -> State:
        """The particles of a belief as a state, (N, particles)."""
        x = None if belief.x is None else belief.x[:, None].expand(-1, self.particles, -1)
        return State(Latent(belief.carry[-self.config.layers :]), x)

    def sample_state(self, belief: Belief, n: Samples) -> State:
        """Draw ``n`` of the particles, with replacement."""
        check_belief(self, belief)
        batch = len(belief.code)
        chosen = torch.randint(self.particles, (n, batch), device=belief.code.device)
        return self._particles(belief)[torch.arange(batch, device=chosen.device), chosen]
