"""Log likelihoods: forecast densities, importance sampling and a particle filter.

If values are missing, they are the likelihoods of the observed ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from tdvae import checks
from tdvae.checks import Range, Samples, check_fields, checked
from tdvae.data.arrays import ArrayLike, from_arrays
from tdvae.distributions import Categorical, DiagonalNormal, Distribution
from tdvae.errors import InputError
from tdvae.models.base import Beliefs, Model
from tdvae.models.ssm import StateSpace, one_action
from tdvae.objectives import TDVAEParts, elbo_terms_from_codes, pair_terms_from_beliefs
from tdvae.rollouts import belief_at, rollout
from tdvae.types import Belief, Pairs, Sequences, State, repeated

MAX_ROWS = 20_000  # samples × pairs per batch: larger batches are not faster and need more memory


@checked
def log_mean_exp(values: Tensor, dim: int = 0) -> Tensor:
    if not -values.ndim <= dim < values.ndim or values.shape[dim] == 0:
        raise InputError(f"values: expected at least one value in dimension {dim}, got shape {tuple(values.shape)}")
    return torch.logsumexp(values, dim) - math.log(values.shape[dim])


@dataclass(frozen=True)
class Forecast:
    """The predictive density of x_{t+δt} given x_≤t: an equally weighted mixture over S sampled states.

    `forecast` computes one from a belief. The components have the leading shape (S, N).

    >>> import torch, tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig())
    >>> density = tdvae.forecast(model, model.initial(batch_size=3), dt=5)
    >>> density.log_prob(torch.zeros(3, 1)).shape
    torch.Size([3])
    >>> bool((density.quantile(0.05) < density.quantile(0.95)).all())
    True
    """

    components: Distribution

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def mean(self) -> Tensor:
        return self.components.mean.mean(0)

    @checked
    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """The log density of x, or of its entries where the mask ``observed`` is True; see `Sequences.at`."""
        self._check(x)
        if observed is not None:
            self._check(observed, "observed")
        return log_mean_exp(self.components.log_prob(x, observed))

    @checked
    def cdf(self, x: Tensor) -> Tensor:
        """The cumulative distribution function of each dimension, for continuous observations."""
        if not isinstance(self.components, DiagonalNormal):
            raise InputError(f"cdf: expected continuous observations, got {type(self.components).__name__}")
        self._check(x)
        return self.components.cdf(x).mean(0)

    @checked
    def quantile(self, p: Annotated[float, Range(above=0, below=1)]) -> Tensor:
        """The quantile of each dimension, by bisection between the smallest and largest quantile of the components."""
        if not isinstance(self.components, DiagonalNormal):
            raise InputError(f"quantile: expected continuous observations, got {type(self.components).__name__}")
        ends = self.components.mean + self.components.sigma * torch.special.ndtri(torch.tensor(p))
        low, high = ends.amin(0), ends.amax(0)
        for _ in range(40):
            middle = (low + high) / 2
            below = self.cdf(middle) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def _check(self, x: Tensor, name: str = "x") -> None:
        """Raise for shapes that would broadcast: (N,) with (N, 1) would give N × N numbers, and a wrong mean."""
        shape = self.components.mean.shape[1:]
        expected = shape[:-1] if isinstance(self.components, Categorical) else shape
        if x.shape != expected:
            raise InputError(f"{name}: expected shape {tuple(expected)}, got {tuple(x.shape)}")


@torch.no_grad()
@checked
def forecast(
    model: Model,
    past: Belief | Sequences | ArrayLike,
    dt: int | Sequence[int],
    samples: Samples = 200,
    a: Tensor | None = None,
) -> Forecast:
    r"""The density of the observation ``dt`` steps after the past, estimated by Monte Carlo.

    The past is a belief, or all observations up to now: sequences of one length, or an array (N, T, …) in the units
    that the model was trained in. For data in other units, see `tdvae.Forecaster`.

    It estimates :math:`\int p_B(z_t | b_t)\, p_T(z_{t+δt} | z_t)\, p_D(x_{t+δt} | z_{t+δt})` from ``samples`` states.
    With actions, ``a`` (..., dt, A) holds those of the jump. A list of jumps is made one after another, and the density
    is that of the observation after the last.

    >>> import torch, tdvae
    >>> model = tdvae.load("oscillator")
    >>> x = torch.sin(0.3 * torch.arange(60.0))[None]
    >>> density = tdvae.forecast(model, x, dt=20)
    >>> density.mean.shape
    torch.Size([1, 1])
    >>> belief = tdvae.belief_at(model, tdvae.data.from_arrays(x), t=60)
    >>> density = tdvae.forecast(model, belief, dt=[20, 20])
    """
    belief = past if isinstance(past, Belief) else _belief_after(model, past)
    *before, last = [dt] if isinstance(dt, int) else list(dt) or [0]  # 0 is refused as a jump
    if a is not None and a.ndim < 2:
        raise InputError(f"a: expected shape (..., dt, A), got {tuple(a.shape)}")
    state = model.sample_state(belief, samples)
    if before:
        state = rollout(model, state, before, a)[-1]
    return Forecast(model.predict(state, last, None if a is None else a[..., sum(before) :, :]))


def _belief_after(model: Model, past: Sequences | ArrayLike) -> Belief:
    """The belief after all observations of sequences of one length."""
    sequences = past if isinstance(past, Sequences) else from_arrays(past)
    _check_equal_lengths(sequences)
    return belief_at(model, sequences, sequences.horizon)


@torch.no_grad()
@checked
def importance_log_prob(model: TDVAEParts, sequences: Sequences, pairs: Pairs, samples: Samples) -> Tensor:
    """log p(x_t2 | x_≤t1) in the shape of the pairs, by importance sampling with proposal (p_B(z_t2 | b_t2), q_S).

    For groups of times that share t1 it is the log density of all observations of a group together, (N, G).
    """
    return log_mean_exp(pair_log_weights(model, sequences, pairs, samples))


@torch.no_grad()
@checked
def pair_log_weights(model: TDVAEParts, sequences: Sequences, pairs: Pairs, samples: Samples) -> Tensor:
    """The log weights that `importance_log_prob` averages, (samples, *pairs)."""
    pairs.check_within(sequences)
    beliefs = model.filter(sequences)
    log_weights = [
        -pairs.targets * pair_terms_from_beliefs(beliefs, model, sequences, pairs, "sampled", samples=count).total
        for count in _batch_sizes(samples, pairs.t1.numel())
    ]
    return torch.cat(log_weights)


@torch.no_grad()
@checked
def joint_log_weights(model: TDVAEParts, sequences: Sequences, samples: Samples) -> Tensor:
    r"""Log importance weights (samples, N) for the joint density of x_1 … x_T under TD-VAE.

    The density is that of a state-space model, :math:`p_B(z_0 | b_0) \prod_t p_T(z_t | z_{t-1})\, p_D(x_t | z_t)`. The
    proposal goes backwards in time: z_T from p_B(· | b_T), then z_{t-1} from q_S(· | z_t, b_{t-1}, b_t) down to z_0.
    The mean of the weights is an unbiased estimate.
    """
    _check_equal_lengths(sequences)
    beliefs = model.filter(sequences)
    return _chain_log_weights(model, beliefs, sequences, 0, sequences.horizon, samples, lambda t: True)


@torch.no_grad()
@checked
def steps_log_weights(model: TDVAEParts, sequences: Sequences, t1: int, t2: int, samples: Samples) -> Tensor:
    r"""Log importance weights (samples, N) for p(x_t2 | x_≤t1) of a model that goes from t1 to t2 in single steps.

    The density is :math:`p_B(z_{t1} | b_{t1}) \prod_{t1 < t \le t2} p_T(z_t | z_{t-1})\, p_D(x_{t2} | z_{t2})`, with
    the states in between integrated out. The proposal is that of `joint_log_weights`. For t2 = t1 + 1 the weights are
    those of `pair_log_weights`. If the state includes the observation, the observations in between are integrated out
    as well: states and observations are then drawn forwards in time from the model, and the weight is p_D(x_t2 | …).
    """
    if not 0 <= t1 < t2 <= int(sequences.lengths.min()):
        shortest = int(sequences.lengths.min())
        raise InputError(f"t1, t2: expected 0 <= t1 < t2 <= {shortest} (the shortest sequence), got {t1} and {t2}")
    sequences = sequences.until(t2)
    beliefs = model.filter(sequences)
    if beliefs.memories is not None:
        return _forward_log_weights(model, beliefs, sequences, t1, t2, samples)
    return _chain_log_weights(model, beliefs, sequences, t1, t2, samples, lambda t: t == t2)


def _forward_log_weights(
    model: TDVAEParts, beliefs: Beliefs, sequences: Sequences, t1: int, t2: int, samples: Samples
) -> Tensor:
    """log p_D(x_t2 | …) of samples that start from the belief at t1 and follow the model in single steps."""
    start = torch.full((len(sequences),), t1, device=sequences.x.device)
    b, x = beliefs.at(start), beliefs.memory_at(start)
    dt = torch.ones(samples, len(sequences), dtype=torch.long, device=b.device)
    z, _ = model.p_B.sample(b.expand(samples, *b.shape))
    state = State(z, repeated(x, samples))
    for t in range(t1 + 1, t2 + 1):
        actions = None if sequences.actions is None else sequences.actions[:, t - 1, None].expand(samples, -1, -1, -1)
        step = model.step(state, dt, actions)
        z, _ = step.p_T.sample()
        decoded = step.p_D(z)
        state = State(z, model.features_after(state.x, decoded.sample(), dt, actions))
    return decoded.log_prob(*sequences.at(t2))


def _chain_log_weights(
    model: TDVAEParts,
    beliefs: Beliefs,
    sequences: Sequences,
    first: int,
    last: int,
    samples: Samples,
    scored: Callable[[int], bool],
) -> Tensor:
    """Log weights of z_first … z_last, drawn backwards in time, and of the x_t for which ``scored(t)`` is true."""
    codes = beliefs.codes[:, first : last + 1]
    b = beliefs.read(codes).expand(samples, *codes.shape[:2], -1)  # b_first … b_last
    times = torch.arange(first, last + 1, device=b.device).expand(len(sequences), -1)
    x = beliefs.memory_at(times)
    z, p_B_last = model.p_B.sample(b[:, :, -1])
    log_weight = -p_B_last.log_prob(z)
    dt = torch.ones(samples, len(sequences), dtype=torch.long, device=b.device)
    for t in range(last, first, -1):
        actions = None if sequences.actions is None else sequences.actions[:, t - 1, None].expand(samples, -1, -1, -1)
        previous, q_S = model.q_S.sample(z, b[:, :, t - first - 1], b[:, :, t - first], dt, actions)
        s1 = State(previous, repeated(None if x is None else x[:, t - first - 1], samples))
        step = model.step(s1, dt, actions)
        log_weight = log_weight + step.p_T.given(z).log_prob(z) - q_S.log_prob(previous)
        if scored(t):
            log_weight = log_weight + step.p_D(z).log_prob(*sequences.at(t))
        z = previous
    return log_weight + model.p_B.given(z, b[:, :, 0]).log_prob(z)


@torch.no_grad()
@checked
def trajectory_log_weights(model: StateSpace, sequences: Sequences, samples: Samples) -> Tensor:
    """Log importance weights (samples, N) for p(x_1 … x_T) under a state-space model, with its encoder as proposal."""
    _check_equal_lengths(sequences)
    b = model.read(model.filter(sequences).codes[:, 1:])
    log_weights = []
    for count in _batch_sizes(samples, b[..., 0].numel()):
        rows = torch.arange(len(sequences), device=b.device).repeat(count)
        terms = elbo_terms_from_codes(b[rows], model, sequences.select(rows), "sampled")
        log_weights.append(-terms.total.sum(1).unflatten(0, (count, -1)))
    return torch.cat(log_weights)


@torch.no_grad()
@checked
def particle_log_prob(model: StateSpace, sequences: Sequences, particles: Samples) -> Tensor:
    """log p(x_t | x_<t) of a state-space model at all time steps, (N, T), by a particle filter with its encoder as
    proposal.

    In `trajectory_log_weights` the weights multiply over the whole sequence, and one sample soon has nearly all the
    weight. Here the particles are resampled after every time step. The product over t is an unbiased estimate of
    p(x_1 … x_T). The sum of the logarithms is therefore biased downwards, less so with more particles.
    """
    _check_equal_lengths(sequences)
    count, batch = particles, len(sequences)
    b = model.read(model.filter(sequences).codes[:, 1:])
    state, columns, log_probs = model.initial_state(count, batch), torch.arange(batch, device=b.device), []
    for t in range(sequences.horizon):
        (x, observed), code = sequences.at(t + 1), b[:, t].expand(count, -1, -1)
        actions = None if sequences.actions is None else sequences.actions[:, t].expand(count, -1, -1)
        z, q = model.q.sample(code, state, one_action(actions))
        step = model.step(state, one_action(actions))
        log_weight = step.p_T.given(z).log_prob(z) - q.log_prob(z) + step.p_D(z).log_prob(x, observed)
        log_probs.append(log_mean_exp(log_weight))
        before = None if state.x is None else state.x[0]  # the same for all particles
        one_step = None if sequences.actions is None else sequences.actions[:, t, None]
        features = model.features_after(before, x, torch.ones_like(columns), one_step, observed)
        state = State(z[resample(log_weight), columns], repeated(features, count))
    return torch.stack(log_probs, dim=1)


@checked
def resample(log_weight: Tensor) -> Tensor:
    """Systematic resampling: the ancestor indices of each column of (particles, N)."""
    checks.shape("log_weight", log_weight, ("particles", "N"))
    if not log_weight.is_floating_point() or log_weight.numel() == 0:
        raise InputError(f"log_weight: expected floating-point numbers, got {checks.shown(log_weight)}")
    count, batch = log_weight.shape
    edges = torch.softmax(log_weight, 0).T.cumsum(1).contiguous()
    shift = torch.rand(batch, 1, device=edges.device, dtype=edges.dtype)
    points = (torch.arange(count, device=edges.device) + shift) / count
    return torch.searchsorted(edges, points).clamp(max=count - 1).T  # the last edge may be below 1 by rounding


def _batch_sizes(samples: Samples, rows: int) -> list[int]:
    """Split ``samples``, of ``rows`` rows each, into batches of at most about MAX_ROWS rows."""
    size = max(1, MAX_ROWS // max(1, rows))
    return [min(size, samples - start) for start in range(0, samples, size)]


def _check_equal_lengths(sequences: Sequences) -> None:
    if bool((sequences.lengths < sequences.horizon).any()):
        raise InputError(
            f"sequences: expected the same length for all, got lengths {int(sequences.lengths.min())} to "
            f"{sequences.horizon}; cut or select them first"
        )
