"""State-space models of Eq. 1, the baselines of the paper's MiniPacman table: same parts, another encoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tdvae.distributions import DiagonalNormal, Distribution
from tdvae.models.base import RecurrentModel, Step
from tdvae.models.config import FilteringConfig, LatentConfig
from tdvae.models.decoders import Decoder
from tdvae.models.tdvae import CHANGE_GAIN, MESSAGE_WIDTH, BeliefLadder, TransitionLadder
from tdvae.nn.dense import MapFactory, ObservationEncoder
from tdvae.nn.drift import Drift
from tdvae.nn.ladder import DenseHeads, Ladder, LayerLaw, product
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, State, combine_states, repeated


class MeanFieldLadder(BeliefLadder):
    """q(z_t | b_t): as p_B, whatever the state before was."""

    def context(self, b: Tensor, before: State | None = None, actions: Tensor | None = None) -> Tensor:
        return b


class _Corrected(NamedTuple):
    features: Tensor
    around: Latent | None
    foreseen: object  # p_T's context


class FilteringLadder(Ladder):
    """q(z_t | z_{t-1}, b_t): D(b_t, z_{t-1}), around where z_{t-1} drifts to.

    With a ``prior`` (p_T), layer l is the product of p_T(z^l_t | z_{t-1}, upper layers) and a learned normal, the
    message of b_t: what was foreseen is corrected, not inferred anew.
    """

    def __init__(
        self,
        code: int,
        sizes: Sequence[int],
        make_map: MapFactory,
        drift: Drift | None,
        prior: TransitionLadder | None,
        init_log_sigma: float,
    ) -> None:
        super().__init__()
        self.depth = len(sizes)
        # Bound methods, not submodules: p_T and the drift are owned, saved and counted elsewhere.
        self._drift: Callable[..., Latent] | None = drift.forward if drift else None
        self._foresee: Callable[..., object] | None = prior.context if prior else None
        self._prior: Callable[..., LayerLaw] | None = prior.layer if prior else None
        context = code + sum(sizes) * (2 if drift else 1)
        self.heads = DenseHeads(context, sizes, make_map, init_log_sigma, gain=CHANGE_GAIN if drift else 1.0)

    def context(self, b: Tensor, before: State, actions: Tensor | None = None) -> _Corrected:
        one = single_steps(before)
        features, around = [b, before.z.flat], None
        if self._drift is not None:
            around = self._drift(before.z, one)
            features.append(around.flat)
        foreseen = None if self._foresee is None else self._foresee(before, one, actions)
        return _Corrected(torch.cat(features, dim=-1), around, foreseen)

    def layer(self, index: int, context: _Corrected, above: Sequence[Tensor]) -> DiagonalNormal:
        message: DiagonalNormal = self.heads(index, context.features, above, context.around)
        if self._prior is None:
            return message
        foreseen = self._prior(index, context.foreseen, above)
        assert isinstance(foreseen, DiagonalNormal)  # a single step is no mixture
        return product(foreseen, DiagonalNormal(message.mean, message.log_sigma + MESSAGE_WIDTH))


def single_steps(state: State) -> Tensor:
    """δt = 1 for every state."""
    return torch.ones(state.lead, dtype=torch.long, device=state.z.layers[0].device)


class StateSpace(RecurrentModel):
    r""":math:`\prod_t p_T(z_t | z_{t-1})\, p_D(x_t | z_t)` from a learned z_0, and an encoder q that reads b_t.

    Unlike TD-VAE, whatever a prediction needs to know must be in z: p_T never sees b.
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

    def first(self, *lead: int) -> State:
        """s_0, where every sequence begins."""
        z = Latent(tuple(layer.expand(*lead, -1) for layer in self.z_0))
        return State(z, None if self.x_0 is None else self.x_0.expand(*lead, -1))

    @abstractmethod
    def infer(self, b: Tensor, x: Tensor, actions: Tensor | None) -> Latent:
        """A draw of z_1 … z_T (N, T, size) from the encoder, for codes b_1 … b_T, x_1 … x_T and the action before
        each."""

    def before(self, z: Latent, x: Tensor) -> State:
        """s_0 … s_{T-1} of drawn z_1 … z_T and observed x_1 … x_T."""
        later = State(z, self.features(x))[:, :-1]
        return combine_states([self.first(len(x), 1), later], lambda parts: torch.cat(parts, dim=1))

    def step(self, before: State, actions: Tensor | None = None) -> Step:
        """p(s_t | s_{t-1}, a_t)."""
        self.check_state(before)
        p_T = self.p_T.bind(before, single_steps(before), actions)
        return Step(p_T, self.p_D, None if self.x_0 is None else p_T.context.features)

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        return self.step_by_step(state, dt, a, lambda s, action: self._moved(self.step(s, one_action(action))))

    def decode(self, state: State) -> Distribution:
        return self._decoded(self.p_D, state)

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        return self.decode(self.transition(state, dt, a))


def one_action(a: Tensor | None) -> Tensor | None:
    """The action of a single step (..., A) as the actions of a jump of one step (..., 1, A)."""
    return None if a is None else a[..., None, :]


class MeanField(StateSpace):
    """q(z_t | b_t): b_t is a belief, and neighbouring states are drawn as if they had nothing to do with each other."""

    def infer(self, b: Tensor, x: Tensor, actions: Tensor | None) -> Latent:
        return self.q.sample(b)[0]

    def sample_state(self, belief: Belief, n: int) -> State:
        b = self.read(belief.code)
        z, _ = self.q.sample(b.expand(n, *b.shape))
        return State(z, repeated(belief.x, n))


class Filtering(StateSpace):
    """q(z_t | z_{t-1}, b_t): b_t alone is no belief, so a belief also carries paths of z that the encoder has drawn."""

    config: FilteringConfig

    def infer(self, b: Tensor, x: Tensor, actions: Tensor | None) -> Latent:
        state, features, path = self.first(len(b)), self.features(x), []
        for t in range(b.shape[1]):
            z, _ = self.q.sample(b[:, t], state, one_action(None if actions is None else actions[:, t]))
            state = State(z, None if features is None else features[:, t])
            path.append(z)
        return Latent(tuple(torch.stack(layers, dim=1) for layers in zip(*(z.layers for z in path), strict=True)))

    def initial(self, batch_size: int) -> Belief:
        start = super().initial(batch_size)
        return replace(start, carry=(*start.carry, *self.first(batch_size, self.config.particles).z.layers))

    def update(self, belief: Belief, x: Tensor, a: Tensor | None = None, r: Tensor | None = None) -> Belief:
        after = super().update(replace(belief, carry=belief.carry[: -self.config.layers]), x, a, r)
        code = self.read(after.code)[:, None].expand(-1, self.config.particles, -1)
        action = None if a is None else a[:, None].expand(-1, self.config.particles, -1)
        paths, _ = self.q.sample(code, self._paths(belief), one_action(action))
        return replace(after, carry=(*after.carry, *paths.layers))

    def _paths(self, belief: Belief) -> State:
        """The ends of the carried paths, (N, particles)."""
        x = None if belief.x is None else belief.x[:, None].expand(-1, self.config.particles, -1)
        return State(Latent(belief.carry[-self.config.layers :]), x)

    def sample_state(self, belief: Belief, n: int) -> State:
        """``n`` of the carried paths' ends, drawn with replacement."""
        batch = len(belief.code)
        chosen = torch.randint(self.config.particles, (n, batch), device=belief.code.device)
        return self._paths(belief)[torch.arange(batch, device=chosen.device), chosen]
