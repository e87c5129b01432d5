"""Log-likelihoods: forecast densities, and importance-sampled tightenings of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.distributions import Categorical, DiagonalNormal, Distribution
from tdvae.errors import InputError
from tdvae.models.base import Model
from tdvae.models.ssm import StateSpace, one_action
from tdvae.objectives import TDVAEParts, elbo_terms_given, terms_given
from tdvae.rollouts import rollout
from tdvae.types import Belief, Pairs, Sequences, State, repeated

ROWS_AT_ONCE = 20_000  # samples × pairs that are computed together: more is no faster, and takes more memory


def log_mean_exp(values: Tensor, dim: int = 0) -> Tensor:
    return torch.logsumexp(values, dim) - math.log(values.shape[dim])


@dataclass(frozen=True)
class Forecast:
    """The predictive density of x_{t+δt} given x_≤t: an equal mixture of the sampled states' predictions (S, N, …).

    `forecast` makes one from a belief.

    >>> import torch, tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig())
    >>> density = tdvae.forecast(model, model.initial(batch_size=3), dt=5)
    >>> density.log_prob(torch.zeros(3, 1)).shape
    torch.Size([3])
    >>> bool((density.quantile(0.05) < density.quantile(0.95)).all())
    True
    """

    components: Distribution

    @property
    def mean(self) -> Tensor:
        return self.components.mean.mean(0)

    def log_prob(self, x: Tensor) -> Tensor:
        self._check(x)
        return log_mean_exp(self.components.log_prob(x))

    def cdf(self, x: Tensor) -> Tensor:
        """Per dimension; for continuous observations."""
        if not isinstance(self.components, DiagonalNormal):
            raise InputError(f"cdf: needs continuous observations, got {type(self.components).__name__}")
        self._check(x)
        return self.components.cdf(x).mean(0)

    def quantile(self, p: float) -> Tensor:
        """Per dimension, by bisection between the extreme components' quantiles."""
        if not isinstance(self.components, DiagonalNormal):
            raise InputError(f"quantile: needs continuous observations, got {type(self.components).__name__}")
        if not 0 < p < 1:
            raise InputError(f"p: expected strictly between 0 and 1, got {p}")
        ends = self.components.mean + self.components.sigma * torch.special.ndtri(torch.tensor(p))
        low, high = ends.amin(0), ends.amax(0)
        for _ in range(40):
            middle = (low + high) / 2
            below = self.cdf(middle) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def _check(self, x: Tensor) -> None:
        """Refuse what would broadcast: (N,) against (N, 1) would give N × N numbers, and a wrong mean."""
        shape = self.components.mean.shape[1:]
        expected = shape[:-1] if isinstance(self.components, Categorical) else shape
        if x.shape != expected:
            raise InputError(f"x: expected shape {tuple(expected)}, got {tuple(x.shape)}")


@torch.no_grad()
def forecast(
    model: Model, belief: Belief, dt: int | Sequence[int], samples: int = 200, a: Tensor | None = None
) -> Forecast:
    r"""The density of the observation ``dt`` steps after a belief, by Monte Carlo.

    It estimates :math:`\int p_B(z_t | b_t)\, p_T(z_{t+δt} | z_t)\, p_D(x_{t+δt} | z_{t+δt})` from ``samples`` states.
    With actions, ``a`` (..., dt, A) holds those of the jump. A list of jumps is made one after another, and the density
    is that of the observation after the last.

    >>> import torch, tdvae
    >>> model = tdvae.load("oscillator")
    >>> belief = tdvae.belief_at(model, tdvae.data.from_arrays(torch.sin(0.3 * torch.arange(60.0))[None]), t=60)
    >>> density = tdvae.forecast(model, belief, dt=20)
    >>> density.mean.shape
    torch.Size([1, 1])
    """
    *before, last = [dt] if isinstance(dt, int) else list(dt) or [0]  # 0 is refused as a jump
    state = model.sample_state(belief, _at_least_one(samples))
    if before:
        state = rollout(model, state, before, a)[-1]
    return Forecast(model.predict(state, last, None if a is None else a[..., sum(before) :, :]))


@torch.no_grad()
def importance_log_prob(model: TDVAEParts, sequences: Sequences, pairs: Pairs, samples: int) -> Tensor:
    """log p(x_t2 | x_≤t1) by importance sampling with (p_B(z_t2 | b_t2), q_S) as proposal; of the pairs' shape."""
    return log_mean_exp(pair_log_weights(model, sequences, pairs, samples))


@torch.no_grad()
def pair_log_weights(model: TDVAEParts, sequences: Sequences, pairs: Pairs, samples: int) -> Tensor:
    """The log weights that `importance_log_prob` averages, (samples, *pairs)."""
    beliefs = model.filter(sequences)
    draws = [
        -terms_given(beliefs, model, sequences, pairs, "sampled", samples=part).total
        for part in _parts(_at_least_one(samples), pairs.t1.numel())
    ]
    return torch.cat(draws)


@torch.no_grad()
def joint_log_weights(model: TDVAEParts, sequences: Sequences, samples: int) -> Tensor:
    r"""Log weights (samples, N) whose mean weight estimates TD-VAE's joint density of x_1 … x_T.

    The density is a state-space model's, :math:`p_B(z_0 | b_0) \prod_t p_T(z_t | z_{t-1})\, p_D(x_t | z_t)`. The
    proposal runs backwards: z_T from p_B(· | b_T), then z_{t-1} from q_S(· | z_t, b_{t-1}, b_t) down to z_0.
    """
    _check_full(sequences)
    return _chain_log_weights(model, sequences, 0, sequences.horizon, samples, lambda t: True)


@torch.no_grad()
def steps_log_weights(model: TDVAEParts, sequences: Sequences, t1: int, t2: int, samples: int) -> Tensor:
    r"""Log weights (samples, N) for p(x_t2 | x_≤t1) of a model that goes from t1 to t2 in single steps.

    The density is :math:`p_B(z_{t1} | b_{t1}) \prod_{t1 < t \le t2} p_T(z_t | z_{t-1})\, p_D(x_{t2} | z_{t2})`, the
    states between integrated out; the proposal is `joint_log_weights`'s. For t2 = t1 + 1 these are
    `pair_log_weights`. Where the observation is part of the state, the observations between are integrated out, too:
    states and observations are then drawn forwards from the model itself, and the weight is p_D's.
    """
    if not 0 <= t1 < t2 <= int(sequences.lengths.min()):
        shortest = int(sequences.lengths.min())
        raise InputError(f"t1, t2: expected 0 <= t1 < t2 <= {shortest}, the shortest sequence, got {t1} and {t2}")
    if model.features_at(sequences, sequences.lengths) is not None:
        return _forward_log_weights(model, sequences.until(t2), t1, t2, samples)
    return _chain_log_weights(model, sequences.until(t2), t1, t2, samples, lambda t: t == t2)


def _forward_log_weights(model: TDVAEParts, sequences: Sequences, t1: int, t2: int, samples: int) -> Tensor:
    """log p_D(x_t2 | …) at the end of paths that were drawn from the belief at t1 and the model's own single steps."""
    start = torch.full((len(sequences),), t1, device=sequences.x.device)
    b = model.filter(sequences.until(max(t1, 1))).at(start)
    x = model.features_at(sequences, start)
    one = torch.ones(_at_least_one(samples), len(sequences), dtype=torch.long, device=b.device)
    z, _ = model.p_B.sample(b.expand(samples, *b.shape))
    state = State(z, repeated(x, samples))
    for t in range(t1 + 1, t2 + 1):
        actions = None if sequences.actions is None else sequences.actions[:, t - 1, None].expand(samples, -1, -1, -1)
        step = model.step(state, one, actions)
        z, _ = step.p_T.sample()
        decoded = step.p_D(z)
        state = State(z, model.features(decoded.sample()))
    return decoded.log_prob(sequences.x[:, t2 - 1])


def _chain_log_weights(
    model: TDVAEParts, sequences: Sequences, first: int, last: int, samples: int, observed: Callable[[int], bool]
) -> Tensor:
    """Of the states z_first … z_last, drawn backwards, and of those observations among them that count."""
    beliefs = model.filter(sequences)
    codes = beliefs.codes[:, first : last + 1]
    b = beliefs.read(codes).expand(_at_least_one(samples), *codes.shape[:2], -1)  # b_first … b_last
    times = torch.arange(first, last + 1, device=b.device).expand(len(sequences), -1)
    x = model.features_at(sequences, times)
    z, p_B_last = model.p_B.sample(b[:, :, -1])
    log_weight = -p_B_last.log_prob(z)
    one = torch.ones(samples, len(sequences), dtype=torch.long, device=b.device)
    for t in range(last, first, -1):
        actions = None if sequences.actions is None else sequences.actions[:, t - 1, None].expand(samples, -1, -1, -1)
        before, q_S = model.q_S.sample(z, b[:, :, t - first - 1], b[:, :, t - first], one, actions)
        s1 = State(before, repeated(None if x is None else x[:, t - first - 1], samples))
        step = model.step(s1, one, actions)
        log_weight = log_weight + step.p_T.given(z).log_prob(z) - q_S.log_prob(before)
        if observed(t):
            log_weight = log_weight + step.p_D(z).log_prob(sequences.x[:, t - 1])
        z = before
    return log_weight + model.p_B.given(z, b[:, :, 0]).log_prob(z)


@torch.no_grad()
def trajectory_log_weights(model: StateSpace, sequences: Sequences, samples: int) -> Tensor:
    """Log weights (samples, N) of a state-space model's own encoder, whose mean weight estimates p(x_1 … x_T)."""
    _check_full(sequences)
    b = model.read(model.filter(sequences).codes[:, 1:])
    draws = []
    for part in _parts(_at_least_one(samples), b[..., 0].numel()):
        rows = torch.arange(len(sequences), device=b.device).repeat(part)
        terms = elbo_terms_given(b[rows], model, sequences.select(rows), "sampled")
        draws.append(-terms.total.sum(1).unflatten(0, (part, -1)))
    return torch.cat(draws)


@torch.no_grad()
def particle_log_prob(model: StateSpace, sequences: Sequences, particles: int) -> Tensor:
    """log p(x_t | x_<t) of a state-space model at every step, (N, T), by a particle filter: the encoder proposes.

    Where `trajectory_log_weights` lets weights multiply over a whole sequence, and one path soon has nearly all of it,
    here paths are drawn anew by their weights after every step. The product over t is an unbiased estimate of
    p(x_1 … x_T), so the sum of the logs is too low in the mean, the less so the more particles there are.
    """
    _check_full(sequences)
    count, batch = _at_least_one(particles, "particles"), len(sequences)
    b = model.read(model.filter(sequences).codes[:, 1:])
    state, columns, surprises = model.first(count, batch), torch.arange(batch, device=b.device), []
    for t in range(sequences.horizon):
        x, code = sequences.x[:, t], b[:, t].expand(count, -1, -1)
        actions = None if sequences.actions is None else sequences.actions[:, t].expand(count, -1, -1)
        z, q = model.q.sample(code, state, one_action(actions))
        step = model.step(state, one_action(actions))
        log_weight = step.p_T.given(z).log_prob(z) - q.log_prob(z) + step.p_D(z).log_prob(x)
        surprises.append(log_mean_exp(log_weight))
        state = State(z[resampled(log_weight), columns], repeated(model.features(x), count))
    return torch.stack(surprises, dim=1)


def resampled(log_weight: Tensor) -> Tensor:
    """For each column of (particles, N), which particles go on: each as often as its share says, up to rounding, which
    one random shift decides (systematic resampling)."""
    count, batch = log_weight.shape
    edges = torch.softmax(log_weight, 0).T.cumsum(1).contiguous()
    shift = torch.rand(batch, 1, device=edges.device, dtype=edges.dtype)
    points = (torch.arange(count, device=edges.device) + shift) / count
    return torch.searchsorted(edges, points).clamp(max=count - 1).T  # rounding may leave the last edge below 1


def _parts(samples: int, rows: int) -> list[int]:
    """``samples`` in parts of which each computes at most about ROWS_AT_ONCE rows."""
    part = max(1, ROWS_AT_ONCE // max(1, rows))
    return [min(part, samples - start) for start in range(0, samples, part)]


def _at_least_one(count: int, name: str = "samples") -> int:
    if count < 1:
        raise InputError(f"{name}: expected at least 1, got {count}")
    return count


def _check_full(sequences: Sequences) -> None:
    if bool((sequences.lengths < sequences.horizon).any()):
        raise InputError(
            f"sequences: a joint density is of sequences of one length, got lengths {int(sequences.lengths.min())} to "
            f"{sequences.horizon}; cut or select them first"
        )
