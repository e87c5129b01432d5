"""TD-VAE: the model of Eq. 6, and its dense ladders p_B, p_T and q_S."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tdvae.checks import Samples
from tdvae.distributions import DiagonalNormal, Distribution, NormalMixture
from tdvae.models.base import RecurrentModel, Step
from tdvae.models.config import ConvTDVAEConfig, LatentConfig, ModelConfig
from tdvae.models.decoders import Decoder
from tdvae.nn.dense import JumpEmbedding, JumpScale, MapFactory
from tdvae.nn.drift import Drift
from tdvae.nn.ladder import (
    DenseHeads,
    Ladder,
    LadderDistribution,
    LayerDistribution,
    for_each,
    product,
    product_over_group,
)
from tdvae.nn.linear import LinearForecast
from tdvae.nn.recurrent import ActionSummary, BeliefNetwork, SingleAction
from tdvae.types import Belief, Latent, State, repeated

RESIDUAL_GAIN = 0.05  # initial gain of outputs that are added to a drifted state, so that they start near zero
UNIFORM_SHARE = 0.2  # share of a uniform distribution in the weights of latent jump lengths
MESSAGE_LOG_SIGMA = 1.0  # added to log σ of the message in a product posterior, so that it is initially weak


class BeliefLadder(Ladder):
    """p_B(z | b): z^L from D(b), then z^l from D(b, z^{l+1}, …)."""

    def __init__(self, code: int, sizes: Sequence[int], make_map: MapFactory, init_log_sigma: float) -> None:
        super().__init__()
        self.depth = len(sizes)
        self.heads = DenseHeads(code, sizes, make_map, init_log_sigma)

    def context(self, b: Tensor) -> Tensor:
        return b

    def layer(self, index: int, context: Tensor, above: Sequence[Tensor]) -> DiagonalNormal:
        normal: DiagonalNormal = self.heads(index, context, above)
        return normal


class _TransitionContext(NamedTuple):
    features: Tensor
    base_mean: Latent | None  # added to the predicted means
    log_weights: Tensor | None  # of the latent jump lengths 1 … max_latent_dt, if δt is not given
    log_scale: Tensor  # added to log σ


class TransitionLadder(Ladder):
    """p_T(z_t2 | s_t1, δt, actions): D(z_t1, upper layers of z_t2, δt), with the drift of z_t1 added to its means.

    With ``observed`` > 0 it is also conditioned on ``observed`` features of x_t1, the first features of its context.

    With ``max_latent_dt`` > 1, δt is not given, and p_T is a mixture over jump lengths with learned weights:
    p_T(z_t2 | z_t1) = Σ_k w_k p_T(z_t2 | z_t1, k) for k = 1 … ``max_latent_dt``.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        make_map: MapFactory,
        dt: JumpEmbedding,
        drift: Drift | None,
        summary: ActionSummary | SingleAction | None,
        init_log_sigma: float,
        max_latent_dt: int = 1,
        observed: int = 0,
    ) -> None:
        super().__init__()
        self.depth = len(sizes)
        self.dt, self.drift, self.summary = dt, drift, summary
        self.max_latent_dt = max_latent_dt
        self.weights = nn.Parameter(torch.zeros(max_latent_dt)) if max_latent_dt > 1 else None
        context = observed + sum(sizes) * (2 if drift else 1) + dt.size + (summary.size if summary else 0)
        self.features_size = context
        self.heads = DenseHeads(context, sizes, make_map, init_log_sigma, gain=RESIDUAL_GAIN if drift else 1.0)
        self.jump_scale = JumpScale()

    def context(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> _TransitionContext:
        z1, x1 = s1.z, [] if s1.x is None else [s1.x]
        log_weights, steps = None, dt  # the action summary needs the number of steps, even if p_T is not given δt
        if self.weights is not None:
            # No weight becomes zero, so that lengths that occur only late in a curriculum can still be learned.
            weights = (1 - UNIFORM_SHARE) * torch.softmax(self.weights, dim=-1) + UNIFORM_SHARE / self.max_latent_dt
            log_weights = weights.log().expand(*dt.shape, -1)
            dt = torch.arange(1, self.max_latent_dt + 1, device=dt.device).expand(*dt.shape, -1)
            z1 = _expand_lengths(self.max_latent_dt, z1)
        elif self.dt.kind == "none":
            dt = torch.ones_like(dt)  # the drift must not depend on δt either
        features = [*x1, z1.flat, self.dt(dt)]
        base_mean = None
        if self.drift is not None:
            base_mean = self.drift(z1, dt)
            features.append(base_mean.flat)
        if self.summary is not None:
            features.append(self.summary(actions, steps))
        return _TransitionContext(torch.cat(features, dim=-1), base_mean, log_weights, self.jump_scale(dt))

    def layer(self, index: int, context: _TransitionContext, above: Sequence[Tensor]) -> LayerDistribution:
        if context.log_weights is None:
            return self._normal(index, context, above)
        # The weights of the lengths are their posterior given the samples of the upper layers.
        log_weights, expanded = context.log_weights, _expand_lengths(self.max_latent_dt, Latent(tuple(above))).layers
        for upper in range(index + 1, self.depth):
            distribution = self._normal(upper, context, expanded[upper - index :])
            log_weights = log_weights + distribution.log_prob(expanded[upper - index - 1])
        return NormalMixture(self._normal(index, context, expanded), log_weights)

    def _normal(self, index: int, context: _TransitionContext, above: Sequence[Tensor]) -> DiagonalNormal:
        normal: DiagonalNormal = self.heads(index, context.features, above, context.base_mean)
        return DiagonalNormal(normal.mean, normal.log_sigma + context.log_scale)


def _expand_lengths(max_latent_dt: int, z: Latent) -> Latent:
    """Expand a state (..., size) to (..., max_latent_dt, size), one copy for each jump length."""
    return z.map(lambda layer: for_each(max_latent_dt, layer))


class _SmoothingContext(NamedTuple):
    features: Tensor
    base_mean: Latent | None  # added to the predicted means
    b1: Tensor
    shared: bool = False  # features are (..., K, F): those of K messages about one z_t1, whose b_t1 is (..., B)


class SmoothingLadder(Ladder):
    """q_S(z_t1 | z_t2, b_t1, b_t2, δt); with a ``summary`` it is also conditioned on the actions of the jump.

    With a ``prior`` (p_B), layer l is the product of p_B(z^l_t1 | b_t1, upper layers) and a learned normal
    distribution, the message from t2 about t1. q_S then corrects the belief at t1. Without a prior it is a D map
    (App. D).
    """

    def __init__(
        self,
        code: int,
        sizes: Sequence[int],
        make_map: MapFactory,
        dt: JumpEmbedding,
        sees_b2: bool,
        drift: Drift | None,
        prior: BeliefLadder | None,
        init_log_sigma: float,
        summary: ActionSummary | None = None,
    ) -> None:
        super().__init__()
        self.depth = len(sizes)
        self.dt, self.sees_b2, self.summary = dt, sees_b2, summary
        # Bound methods instead of submodules, because p_B and the drift are submodules of other modules.
        self._drift_back: Callable[..., Latent] | None = drift.back if drift else None
        self._prior_layer: Callable[..., DiagonalNormal] | None = prior.layer if prior else None
        context = code * (2 if sees_b2 else 1) + sum(sizes) * (2 if drift else 1) + dt.size
        context += summary.size if summary else 0
        self.heads = DenseHeads(context, sizes, make_map, init_log_sigma, gain=RESIDUAL_GAIN if drift else 1.0)

    def context(
        self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: Tensor | None = None
    ) -> _SmoothingContext:
        features = [b1, *([b2] if self.sees_b2 else []), z2.flat, self.dt(dt)]
        base_mean = None
        if self._drift_back is not None:
            base_mean = self._drift_back(z2, dt)
            features.append(base_mean.flat)
        if self.summary is not None:
            features.append(self.summary(actions, dt))
        return _SmoothingContext(torch.cat(features, dim=-1), base_mean, b1)

    def sample_shared(
        self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: Tensor | None = None
    ) -> tuple[Latent, LadderDistribution]:
        """Draw one z_t1 for each group of K later times (..., K): the messages of all of them multiply p_B."""
        if self._prior_layer is None:
            return super().sample_shared()
        context = self.context(z2, b1, b2, dt, actions)._replace(b1=b1[..., 0, :], shared=True)
        return self.descend(context, lambda index, layer: layer.sample())

    def layer(self, index: int, context: _SmoothingContext, above: Sequence[Tensor]) -> DiagonalNormal:
        given = [for_each(context.features.shape[-2], value) for value in above] if context.shared else above
        message: DiagonalNormal = self.heads(index, context.features, given, context.base_mean)
        if self._prior_layer is None:
            return message
        message = DiagonalNormal(message.mean, message.log_sigma + MESSAGE_LOG_SIGMA)
        if context.shared:
            message = product_over_group(message)
        return product(self._prior_layer(index, context.b1, above), message)


class TDVAE(RecurrentModel):
    """The model of Eq. 6. `tdvae.models.build` builds one from a config.

    >>> import tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig(event_shape=(3,)))
    >>> state = model.sample_state(model.initial(batch_size=2), n=16)
    >>> model.predict(state, dt=10).mean.shape
    torch.Size([16, 2, 3])
    """

    def __init__(
        self,
        config: ModelConfig,
        encoder: nn.Module,
        belief: BeliefNetwork,
        read: nn.Module,
        p_B: Ladder,
        q_S: Ladder,
        p_T: Ladder,
        p_D: Decoder,
        linear: LinearForecast | None = None,
    ) -> None:
        super().__init__(config, encoder, belief, read)
        self.p_B, self.q_S, self.p_T, self.p_D, self.linear = p_B, q_S, p_T, p_D, linear

    def step(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> Step:
        """p(s_t2 | s_t1, δt, actions)."""
        self.check_state(s1)
        p_T = self.p_T.bind(replace(s1, x=self.step_features(s1.x, dt, actions)), dt, actions)
        if s1.x is None:
            return Step(p_T, self.p_D)
        base = [] if self.linear is None else [self.linear(s1.x, dt, actions)]
        return Step(p_T, self.p_D, self.p_D.origin(torch.cat([*base, p_T.context.features], dim=-1), dt))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        assert isinstance(self.config, LatentConfig | ConvTDVAEConfig)
        cells = math.prod(self.config.grid) if isinstance(self.config, ConvTDVAEConfig) else 1
        return (self.config.latent * cells,) * self.config.layers

    def sample_state(self, belief: Belief, n: Samples) -> State:
        self.check_belief(belief, code_only=True)
        b = self.read(belief.code)
        z, _ = self.p_B.sample(b.expand(n, *b.shape))
        return State(z, repeated(belief.x, n))

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        dt, a = self.jump(state, dt, a)
        return self._sample_step(self.step(state, dt, a), state, dt, a)

    def decode(self, state: State) -> Distribution:
        self.check_state(state)
        return self._decode_state(self.p_D, state)

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        step = self.step(state, *self.jump(state, dt, a))
        return step.predictive(*step.p_T.sample())
