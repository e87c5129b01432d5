"""TD-VAE: the model of Eq. 6, and its dense ladders p_B, p_T and q_S."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from tdvae.checks import Samples
from tdvae.distributions import DiagonalNormal, Distribution, NormalMixture
from tdvae.errors import InputError
from tdvae.models.arguments import check_belief, check_jump
from tdvae.models.base import FeatureKind, RecurrentModel, Step
from tdvae.models.config import LatentConfig, ModelConfig
from tdvae.models.decoders import Coordinates, Decoder
from tdvae.nn.conv import FrameEncoder
from tdvae.nn.dense import JumpEmbedding, JumpLength, JumpScale, Maps, ObservationEncoder, Unknown, Waves
from tdvae.nn.drift import Drift, Residual
from tdvae.nn.ladder import (
    DenseHeads,
    Ladder,
    LadderDistribution,
    LayerDistribution,
    for_each,
    normal,
    product,
    product_over_group,
)
from tdvae.nn.recurrent import (
    ActionSummary,
    BeliefNetwork,
    LegendreMoments,
    RecurrentSummary,
    SingleAction,
    SummaryConfig,
)
from tdvae.types import Belief, Latent, Origin, State, repeated

RESIDUAL_GAIN = 0.05  # initial gain of outputs that are added to a drifted state, so that they start near zero
UNIFORM_SHARE = 0.2  # share of a uniform distribution in the weights of latent jump lengths
MESSAGE_LOG_SIGMA = 1.0  # added to log σ of the message in a product posterior, so that it is initially weak


class BeliefLadder(Ladder):
    """p_B(z | b): z^L from D(b), then z^l from D(b, z^{l+1}, …)."""

    def __init__(self, code: int, sizes: Sequence[int], maps: Maps, init_log_sigma: float) -> None:
        super().__init__()
        self.depth = len(sizes)
        self.heads = DenseHeads(code, sizes, maps, init_log_sigma)

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
        maps: Maps,
        dt: JumpEmbedding,
        drift: Drift | None,
        summary: ActionSummary | LegendreMoments | SingleAction | None,
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
        self.heads = DenseHeads(context, sizes, maps, init_log_sigma, gain=RESIDUAL_GAIN if drift else 1.0)
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
        elif isinstance(self.dt.config, Unknown):
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
        maps: Maps,
        dt: JumpEmbedding,
        sees_b2: bool,
        drift: Drift | None,
        prior: BeliefLadder | None,
        init_log_sigma: float,
        summary: ActionSummary | LegendreMoments | None = None,
    ) -> None:
        super().__init__()
        self.depth = len(sizes)
        self.dt, self.sees_b2, self.summary = dt, sees_b2, summary
        # Bound methods instead of submodules, because p_B and the drift are submodules of other modules.
        self._drift_back: Callable[..., Latent] | None = drift.back if drift else None
        self._prior_layer: Callable[..., DiagonalNormal] | None = prior.layer if prior else None
        context = code * (2 if sees_b2 else 1) + sum(sizes) * (2 if drift else 1) + dt.size
        context += summary.size if summary else 0
        self.heads = DenseHeads(context, sizes, maps, init_log_sigma, gain=RESIDUAL_GAIN if drift else 1.0)

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


@dataclass(frozen=True)
class TDVAEConfig(LatentConfig):
    """Config of a TD-VAE. The default sizes are those of App. D.

    >>> import tdvae
    >>> config = tdvae.TDVAEConfig(event_shape=(3,), layers=2, latent=8)
    >>> tdvae.models.build(config).config == config
    True
    """

    dt: JumpLength = Waves()  # how q_S and p_T are given δt
    posterior: Literal["free", "product"] = "free"  # q_S: a D map, or p_B(z_t1) times a message from t2
    summary: SummaryConfig = RecurrentSummary()  # what p_T is given of the actions of a jump
    smoothing_sees_b2: bool = True  # q_S is given b_t2, as in the main text; not in App. D

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.dt, Unknown) and self.dt.lengths > 1:
            for name, excluded, why in (
                ("actions", self.actions > 0, "their number would determine δt"),
                ("state", self.state == "observed", "its p_D is given δt"),
                ("decoder", isinstance(self.decoder, Coordinates), "it integrates over a single normal distribution"),
            ):
                if excluded:
                    raise InputError(
                        f"{name}: expected another one with Unknown(lengths={self.dt.lengths}), since {why}, got "
                        f"{getattr(self, name)!r}"
                    )
        if self.state == "observed" and not self.smoothing_sees_b2:
            raise InputError(
                "smoothing_sees_b2: expected True with state='observed', since q_S must depend on x_t2 if p_D is given "
                "z_t1, got False"
            )

    def build(self) -> TDVAE:
        encoder, belief, read, code = self.parts()
        sizes, drift, hidden = self.sizes, self.build_drift(), self.maps.hidden
        # Modules must not be shared between p_T and q_S, so that stacks can be made of them.
        q_dt = Unknown() if isinstance(self.dt, Unknown) else self.dt
        p_dt = Waves(self.dt.octaves) if isinstance(self.dt, Unknown) and self.dt.lengths > 1 else q_dt
        lengths = self.dt.lengths if isinstance(self.dt, Unknown) else 1
        p_B = BeliefLadder(code, sizes, self.maps, self.init_log_sigma)
        # If δt is unknown, q_S must not depend on it through a rotation either.
        q_drift = Residual() if drift and isinstance(self.dt, Unknown) else drift
        # With x_t1 in the state, the posterior of z_t1 depends on the effect of the actions on x_t1.
        q_summary = self.summary.build(self.actions, hidden) if self.actions and self.state == "observed" else None
        q_S = SmoothingLadder(
            code,
            sizes,
            self.maps,
            JumpEmbedding(q_dt),
            self.smoothing_sees_b2,
            q_drift,
            p_B if self.posterior == "product" else None,
            self.init_log_sigma,
            q_summary,
        )
        summary = self.summary.build(self.actions, hidden) if self.actions else None
        observed = self.observed_size(encoder)
        p_T = TransitionLadder(
            sizes, self.maps, JumpEmbedding(p_dt), drift, summary, self.init_log_sigma, lengths, observed
        )
        return TDVAE(self, encoder, belief, read, p_B, q_S, p_T, self.build_decoder(p_T, observed))


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
        encoder: ObservationEncoder | FrameEncoder,
        belief: BeliefNetwork,
        read: nn.Module,
        p_B: Ladder,
        q_S: Ladder,
        p_T: Ladder,
        p_D: Decoder,
    ) -> None:
        super().__init__(config, encoder, belief, read)
        self.p_B, self.q_S, self.p_T, self.p_D = p_B, q_S, p_T, p_D

    def step(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> Step:
        """p(s_t2 | s_t1, δt, actions)."""
        s1 = self.remembered(s1, dt, actions)
        p_T = self.p_T.bind(s1, dt, actions)
        origin = None if s1.x is None else Origin(s1.x, p_T.context.features, dt[..., None])
        return Step(p_T, self.p_D, origin)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return self.config.sizes

    def _belief_features(self, b: Tensor, kind: FeatureKind) -> Tensor:
        if kind == "code":
            return b
        if kind == "sample":
            return self.p_B.sample(b)[0].flat
        means, p_B = self.p_B.bind(b).means()
        return torch.cat([means.flat, *(normal(layer).log_sigma for layer in p_B.layers)], dim=-1)

    def sample_state(self, belief: Belief, n: Samples) -> State:
        check_belief(self, belief, code_only=True)
        b = self.read(belief.code)
        z, _ = self.p_B.sample(b.expand(n, *b.shape))
        return State(z, repeated(belief.x, n))

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        dt, a = check_jump(self, state, dt, a)
        return self.after_step(self.step(state, dt, a), state, dt, a)

    def decode(self, state: State) -> Distribution:
        return self._decode_state(self.p_D, state)

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        step = self.step(state, *check_jump(self, state, dt, a))
        return step.predictive(*step.p_T.sample())
