"""TD-VAE: a belief network, three ladders and a decoder. Jumpy and hierarchical are arguments, not classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tdvae.distributions import DiagonalNormal, Distribution, NormalMixture
from tdvae.models.base import RecurrentModel, Step
from tdvae.models.config import ModelConfig
from tdvae.models.decoders import Decoder
from tdvae.nn.dense import JumpEmbedding, MapFactory
from tdvae.nn.drift import Drift
from tdvae.nn.ladder import DenseHeads, Ladder, LayerLaw, product
from tdvae.nn.recurrent import ActionSummary, BeliefNetwork, SingleAction
from tdvae.types import Belief, Latent, State, repeated

CHANGE_GAIN = 0.05  # a change from the drifted state starts near zero
KEPT_OPEN = 0.2  # share of a jump's weight that all max_latent_dt have alike
MESSAGE_WIDTH = 1.0  # added to log σ of the smoothing message: it starts by saying little


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


class _Moved(NamedTuple):
    features: Tensor
    around: Latent | None
    log_weights: Tensor | None  # of the max_latent_dt that a jump may have had, if its own is withheld


class TransitionLadder(Ladder):
    """p_T(z_t2 | s_t1, δt, actions): D(z_t1, z_t2's upper layers, δt), around where z_t1 drifts to.

    With ``observed`` > 0 it also reads that many features of x_t1, the first of its context's features.

    With ``max_latent_dt`` > 1, δt is withheld and a jump may have been of 1 … ``max_latent_dt`` steps:
    p_T(z_t2 | z_t1) = Σ_k w_k p_T(z_t2 | z_t1, k), the weights learned.
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
        self.heads = DenseHeads(context, sizes, make_map, init_log_sigma, gain=CHANGE_GAIN if drift else 1.0)

    def context(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> _Moved:
        z1, x1 = s1.z, [] if s1.x is None else [s1.x]
        log_weights, steps = None, dt  # there are as many actions as steps, whether or not p_T is told their number
        if self.weights is not None:
            # No weight vanishes: a length that does not occur yet, in a curriculum, is still learned when it does.
            weights = (1 - KEPT_OPEN) * torch.softmax(self.weights, dim=-1) + KEPT_OPEN / self.max_latent_dt
            log_weights = weights.log().expand(*dt.shape, -1)
            dt = torch.arange(1, self.max_latent_dt + 1, device=dt.device).expand(*dt.shape, -1)
            z1 = _for_each(self.max_latent_dt, z1)
        elif self.dt.kind == "none":
            dt = torch.ones_like(dt)  # a drift must not tell it either
        features = [*x1, z1.flat, self.dt(dt)]
        around = None
        if self.drift is not None:
            around = self.drift(z1, dt)
            features.append(around.flat)
        if self.summary is not None:
            features.append(self.summary(actions, steps))
        return _Moved(torch.cat(features, dim=-1), around, log_weights)

    def layer(self, index: int, context: _Moved, above: Sequence[Tensor]) -> LayerLaw:
        if context.log_weights is None:
            normal: DiagonalNormal = self.heads(index, context.features, above, context.around)
            return normal
        # Upper layers have been drawn: they tell how long the jump was, as far as they show it.
        log_weights, each = context.log_weights, _for_each(self.max_latent_dt, Latent(tuple(above))).layers
        for upper in range(index + 1, self.depth):
            law = self.heads(upper, context.features, each[upper - index :], context.around)
            log_weights = log_weights + law.log_prob(each[upper - index - 1])
        return NormalMixture(self.heads(index, context.features, each, context.around), log_weights)


def _for_each(max_latent_dt: int, z: Latent) -> Latent:
    """A state once for each length, (..., size) → (..., max_latent_dt, size)."""
    return z.map(lambda layer: layer[..., None, :].expand(*layer.shape[:-1], max_latent_dt, -1))


class _Smoothed(NamedTuple):
    features: Tensor
    around: Latent | None
    b1: Tensor


class SmoothingLadder(Ladder):
    """q_S(z_t1 | z_t2, b_t1, b_t2, δt), and with a ``summary`` also given the actions of the jump.

    With a ``prior`` (p_B's layers), layer l is the product of p_B(z^l_t1 | b_t1, upper layers) and a learned normal,
    the message from t2 about t1: what was believed is corrected, not inferred anew. Without, it is a D map (App. D).
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
        # Bound methods, not submodules: p_B and the drift are owned, saved and counted elsewhere.
        self._back: Callable[..., Latent] | None = drift.back if drift else None
        self._prior: Callable[..., DiagonalNormal] | None = prior.layer if prior else None
        context = code * (2 if sees_b2 else 1) + sum(sizes) * (2 if drift else 1) + dt.size
        context += summary.size if summary else 0
        self.heads = DenseHeads(context, sizes, make_map, init_log_sigma, gain=CHANGE_GAIN if drift else 1.0)

    def context(self, z2: Latent, b1: Tensor, b2: Tensor, dt: Tensor, actions: Tensor | None = None) -> _Smoothed:
        features = [b1, *([b2] if self.sees_b2 else []), z2.flat, self.dt(dt)]
        around = None
        if self._back is not None:
            around = self._back(z2, dt)
            features.append(around.flat)
        if self.summary is not None:
            features.append(self.summary(actions, dt))
        return _Smoothed(torch.cat(features, dim=-1), around, b1)

    def layer(self, index: int, context: _Smoothed, above: Sequence[Tensor]) -> DiagonalNormal:
        message: DiagonalNormal = self.heads(index, context.features, above, context.around)
        if self._prior is None:
            return message
        message = DiagonalNormal(message.mean, message.log_sigma + MESSAGE_WIDTH)
        return product(self._prior(index, context.b1, above), message)


class TDVAE(RecurrentModel):
    """The model of Eq. 6, from its parts. `tdvae.models.build` makes one from a config."""

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
    ) -> None:
        super().__init__(config, encoder, belief, read)
        self.p_B, self.q_S, self.p_T, self.p_D = p_B, q_S, p_T, p_D

    def step(self, s1: State, dt: Tensor, actions: Tensor | None = None) -> Step:
        """p(s_t2 | s_t1, δt, actions)."""
        self.check_state(s1)
        p_T = self.p_T.bind(s1, dt, actions)
        return Step(p_T, self.p_D, None if self.x_0 is None else p_T.context.features)

    def sample_state(self, belief: Belief, n: int) -> State:
        b = self.read(belief.code)
        z, _ = self.p_B.sample(b.expand(n, *b.shape))
        return State(z, repeated(belief.x, n))

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        return self._moved(self.step(state, *self.jump(state, dt, a)))

    def decode(self, state: State) -> Distribution:
        return self._decoded(self.p_D, state)

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        step = self.step(state, *self.jump(state, dt, a))
        return step.predictive(*step.p_T.sample())
