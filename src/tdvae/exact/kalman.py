r"""A bank of Kalman filters: exact inference in a finite mixture of linear-Gaussian state-space models.

Hypothesis h of the bank is the model

.. math::
    z_0 \sim \mathcal N(m_0^h, P_0^h), \qquad
    z_t = A^h z_{t-1} + \mathcal N(0, Q), \qquad
    x_t = C z_t + \mathcal N(0, R).

Each hypothesis is filtered exactly and weighted by its evidence :math:`p(x_{0:t}\mid h)`, so filtering and
prediction under the mixture are exact as well. A bank of one hypothesis is a Kalman filter.

Values of x that are NaN are missing: the state is then updated with the observed coordinates of x_t only, and without
any it is only predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated

import torch
from torch import Tensor

from tdvae import checks
from tdvae.checks import LONGEST_JUMP, Range, Samples, check_fields, checked
from tdvae.errors import InputError

LOG_2PI = math.log(2 * math.pi)
# Sequences are filtered in blocks of about this many elements of the state means, for the cache and to limit memory.
BLOCK_ELEMENTS = 2**17
# Iterations of `GaussianMixture.quantile`, enough for bisection alone; and the error after which one more is enough.
ITERATIONS, NEAR = 64, 1e-9


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    r"""Mixtures :math:`\sum_k w_k\,\mathcal N(x; \mu_k, \sigma_k^2)` of scalars, one per batch element.

    Arguments x and p have shape (..., \*batch). Leading dimensions are arbitrary, but the batch shape must match
    exactly, since (N,) and (N, 1) would silently broadcast to N x N numbers.
    """

    log_weights: Tensor
    """Normalised log weights; they broadcast to the shape of the means."""
    means: Tensor
    r"""Means of the components, (\*batch, K)."""
    variances: Tensor
    """Variances of the components; they broadcast to the shape of the means."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.means.ndim < 1:
            raise InputError("means: expected shape (*batch, K), got one number")
        for name, value in (("log_weights", self.log_weights), ("variances", self.variances)):
            checks.expanded(name, value, self.means.shape)

    @property
    def batch_shape(self) -> torch.Size:
        return self.means.shape[:-1]

    @property
    def weights(self) -> Tensor:
        return self.log_weights.exp()

    @property
    def mean(self) -> Tensor:
        return (self.weights * self.means).sum(-1)

    @property
    def variance(self) -> Tensor:
        spread = (self.means - self.mean.unsqueeze(-1)) ** 2
        return (self.weights * (self.variances + spread)).sum(-1)

    @checked
    def log_prob(self, x: Tensor) -> Tensor:
        score = self._standardised(x)
        log_density = -0.5 * (score.square() + self.variances.log() + LOG_2PI)
        return torch.logsumexp(self.log_weights + log_density, dim=-1)

    @checked
    def cdf(self, x: Tensor) -> Tensor:
        below: Tensor = torch.special.ndtr(self._standardised(x))
        return (self.weights * below).sum(-1)

    @checked
    def quantile(self, p: float | Tensor) -> Tensor:
        """The x with cdf(x) = p, by Newton's method in a bracket; a float p applies to all mixtures of the batch."""
        levels = torch.as_tensor(p, dtype=torch.float64)
        levels = levels.expand(self.batch_shape) if levels.ndim == 0 else levels
        self._check_batch("p", levels)
        if not bool(((levels > 0) & (levels < 1)).all()):
            raise InputError(f"p: expected 0 < p < 1, got values in [{levels.min()}, {levels.max()}]")
        # The p-quantile of a mixture lies between the smallest and largest p-quantiles of its components.
        sigma, weights = self.variances.sqrt(), self.weights
        ends = self.means + sigma * torch.special.ndtri(levels).unsqueeze(-1)
        low, high = ends.amin(-1), ends.amax(-1)
        x, last = 0.5 * (low + high), high - low
        for _ in range(ITERATIONS):
            score = (x.unsqueeze(-1) - self.means) / sigma
            error = (weights * torch.special.ndtr(score)).sum(-1) - levels
            density = (weights * (-0.5 * (score.square() + LOG_2PI)).exp() / sigma).sum(-1)
            low, high = torch.where(error < 0, x, low), torch.where(error < 0, high, x)
            newton = x - error / density
            near, inside = error.abs() < NEAR, (newton >= low) & (newton <= high)
            # Bisection where Newton's method leaves the bracket or does not halve its step.
            otherwise = torch.where(near, x, 0.5 * (low + high))
            following = torch.where(inside & (near | ((newton - x).abs() <= 0.5 * last)), newton, otherwise)
            x, last = following, (following - x).abs()
            if bool(near.all()):  # the last step has squared the error
                break
        return x

    @checked
    def sample(self, n: Samples, generator: torch.Generator | None = None) -> Tensor:
        """Draw samples of shape (n, \\*batch)."""
        batch, k = self.batch_shape, self.means.shape[-1]
        weights = self.weights.expand_as(self.means).reshape(-1, k)
        chosen = torch.multinomial(weights, n, replacement=True, generator=generator)
        means = self.means.reshape(-1, k).gather(1, chosen)
        stds = self.variances.expand_as(self.means).reshape(-1, k).gather(1, chosen).sqrt()
        noise = torch.randn(means.shape, generator=generator, dtype=means.dtype)
        return (means + stds * noise).T.reshape(n, *batch)

    def _standardised(self, x: Tensor) -> Tensor:
        self._check_batch("x", x)
        return (x.to(self.means.dtype).unsqueeze(-1) - self.means) / self.variances.sqrt()

    def _check_batch(self, name: str, value: Tensor) -> None:
        batch = self.batch_shape
        if value.ndim < len(batch) or value.shape[value.ndim - len(batch) :] != batch:
            expected = ", ".join(map(str, batch))
            raise InputError(f"{name}: expected shape (..., {expected}), got {tuple(value.shape)}")


@dataclass(frozen=True, eq=False)
class BankPosterior:
    r"""Posteriors of N sequences: :math:`p(h, z_t\mid x_{\le t}) = w_h\,\mathcal N(z_t; m_h, P_h)`."""

    log_weights: Tensor
    r""":math:`\log p(h\mid x_{\le t})`, (N, H)."""
    log_evidence: Tensor
    r""":math:`\log p(x_{\le t}\mid h)`, (N, H)."""
    mean: Tensor
    """Mean of the state under each hypothesis, (N, H, D)."""
    cov: Tensor
    """Covariance, (H, D, D): it does not depend on the data. (N, H, D, D) if values are missing, since it depends on
    which."""

    @property
    def weights(self) -> Tensor:
        return self.log_weights.exp()


@dataclass(frozen=True, eq=False)
class OneStepSmoother:
    r"""Exact :math:`p(z_{t-1}\mid z_t, x_{\le t-1}, h) = \mathcal N(m + G(z_t - A m),\; P - G P^- G^\top)`.

    Here :math:`(m, P)` is the filter at t-1, :math:`P^- = A P A^\top + Q`, :math:`G = P A^\top (P^-)^{-1}`.
    Given z_t, z_{t-1} is independent of x_t, so this is also the smoother given :math:`x_{\le t}`.
    """

    gain: Tensor
    """G, (H, D, D), or (N, H, D, D) if values are missing."""
    offset: Tensor
    """m - G A m, (N, H, D)."""
    cov: Tensor
    """Covariance of z_{t-1}, (H, D, D) or (N, H, D, D)."""

    def mean(self, z: Tensor) -> Tensor:
        """Mean of z_{t-1} for states z_t of shape (..., N, H, D)."""
        return self.offset + _transform(self.gain, z)


@dataclass(frozen=True, eq=False)
class _Correction:
    """The update of all hypotheses by one observation, for the whitened error e = W (x - C m), which is N(0, I).

    If coordinates of x are missing, their rows and columns of W are zero, and the tensors have a first dimension N.
    """

    whiten: Tensor
    """W = L^-1, where L L' = S is the covariance of x, (H, O, O)."""
    gain: Tensor
    """P C' W', (H, D, O): gain e is added to the mean, gain gain' is subtracted from the covariance."""
    log_norm: Tensor
    """log N(x) = log_norm - |e|^2 / 2, (H,)."""


@dataclass(frozen=True, eq=False)
class KalmanBank:
    """H linear-Gaussian hypotheses that share Q, C and R. All tensors are converted to float64."""

    A: Tensor
    """Transition matrices, (H, D, D)."""
    Q: Tensor
    """Process noise covariance, (D, D)."""
    C: Tensor
    """Observation matrix, (O, D)."""
    R: Tensor
    """Observation noise covariance, (O, O)."""
    m0: Tensor
    """Mean of z_0, the state at the first observation x_0, (H, D)."""
    P0: Tensor
    """Covariance of z_0, (H, D, D)."""
    log_prior: Tensor
    """Log prior weights, (H,); they need not be normalised."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name, ndim in (("log_prior", 1), ("Q", 2), ("C", 2)):
            checks.shape(name, getattr(self, name), ("H", "D")[:ndim])
        h, d, o = len(self.log_prior), self.Q.shape[-1], self.C.shape[0]
        expected = {"A": (h, d, d), "Q": (d, d), "C": (o, d), "R": (o, o), "m0": (h, d), "P0": (h, d, d)}
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(f"{name}: expected shape {shape}, got {tuple(getattr(self, name).shape)}")
        for field in fields(self):
            object.__setattr__(self, field.name, getattr(self, field.name).to(torch.float64))

    @checked
    def filter(self, x: Tensor, after: BankPosterior | None = None) -> BankPosterior:
        """Filter sequences (N, T, O) from index 0; returns the posterior of the state at index T - 1.

        Values that are NaN are missing. With ``after``, x continues the sequences of that posterior, and m0 and P0 are
        not used. Dynamics that change at a known time are filtered in this way, with one bank for each segment.
        """
        if x.ndim != 3 or x.shape[1] < 1 or x.shape[2] != self.C.shape[0]:
            raise InputError(f"x: expected shape (N, T >= 1, {self.C.shape[0]}), got {tuple(x.shape)}")
        if not checks.holds(~x.isinf()):
            raise InputError("x: expected finite numbers, or NaN where they are missing, got infinity")
        if after is not None and after.mean.shape != (len(x), *self.m0.shape):
            raise InputError(f"after: expected means {(len(x), *self.m0.shape)}, got {tuple(after.mean.shape)}")
        first_mean, first_cov = self.m0.expand(len(x), *self.m0.shape), self.P0
        if after is not None:
            first_mean, first_cov = _transform(self.A, after.mean), _transform_cov(self.A, after.cov) + self.Q
        x, observed = x.to(torch.float64), ~x.isnan()
        shared = self._corrections(first_cov, x.shape[1]) if observed.all() and first_cov.ndim == 3 else None
        x = torch.where(observed, x, 0)
        block = max(1, BLOCK_ELEMENTS // self.m0.numel())
        parts = []
        for start in range(0, len(x), block):
            rows = slice(start, start + block)
            cov = first_cov if first_cov.ndim == 3 else first_cov[rows]
            corrections, cov = shared or self._corrections(cov, x.shape[1], observed[rows])
            parts.append((*self._filter_block(x[rows], first_mean[rows], corrections), cov))
        mean, log_evidence = (torch.cat([part[i] for part in parts]) for i in range(2))
        cov = shared[1] if shared else torch.cat([part[2] for part in parts])
        if after is not None:
            log_evidence = log_evidence + after.log_evidence
        log_weights = torch.log_softmax(self.log_prior + log_evidence, dim=-1)
        return BankPosterior(log_weights, log_evidence, mean, cov)

    @checked
    def log_likelihood(self, posterior: BankPosterior) -> Tensor:
        r""":math:`\log p(x_{\le t}) = \log\sum_h p(h)\,p(x_{\le t}\mid h)`, (N,)."""
        return torch.logsumexp(torch.log_softmax(self.log_prior, dim=-1) + posterior.log_evidence, dim=-1)

    @checked
    def jump(self, dt: Annotated[int, Range(0, LONGEST_JUMP)]) -> tuple[Tensor, Tensor]:
        r"""Transition :math:`A^{dt}` and noise :math:`\sum_{k<dt} A^k Q (A^k)^\top`, each (H, D, D).

        Computed from jumps of 1, 2, 4, ... steps: (F, W) followed by (F', W') is (F' F, F' W F'^T + W').
        """
        phi = torch.eye(self.Q.shape[0], dtype=torch.float64).expand_as(self.A)
        noise = torch.zeros_like(self.A)
        power, power_noise = self.A, self.Q.expand_as(self.A)
        while dt:
            if dt % 2:
                phi, noise = power @ phi, _transform_cov(power, noise) + power_noise
            power, power_noise = power @ power, _transform_cov(power, power_noise) + power_noise
            dt //= 2
        return phi, noise

    @checked
    def advance(self, posterior: BankPosterior, dt: Annotated[int, Range(0, LONGEST_JUMP)]) -> BankPosterior:
        """The distribution of the state dt steps after the last observation; the weights are unchanged."""
        phi, noise = self.jump(dt)
        mean = _transform(phi, posterior.mean)
        cov = _transform_cov(phi, posterior.cov) + noise
        return BankPosterior(posterior.log_weights, posterior.log_evidence, mean, cov)

    @checked
    def predict(self, posterior: BankPosterior, dt: Annotated[int, Range(0, LONGEST_JUMP)]) -> GaussianMixture:
        r"""Predictive distribution of each coordinate of :math:`x_{t+dt}`, batch shape (N, O). dt = 0 is allowed."""
        state = self.advance(posterior, dt)
        means = torch.einsum("od,nhd->noh", self.C, state.mean)
        variances = (_transform_cov(self.C, state.cov) + self.R).diagonal(dim1=-2, dim2=-1).mT
        return GaussianMixture(state.log_weights.unsqueeze(1), means, variances)

    @checked
    def smoother(self, posterior: BankPosterior) -> OneStepSmoother:
        """p(z_{t-1} | z_t, x_{<= t-1}), given the posterior at t - 1. A P A' + Q must be invertible."""
        predicted = _transform_cov(self.A, posterior.cov) + self.Q
        # G = P A' predicted^-1, by solving predicted G' = A P (both covariances are symmetric).
        gain = torch.linalg.solve(predicted, self.A @ posterior.cov).mT
        identity = torch.eye(self.Q.shape[0], dtype=torch.float64)
        offset = _transform(identity - gain @ self.A, posterior.mean)
        # P - G predicted G' as a sum (Joseph form), which stays positive definite; the difference could cancel.
        cov = _transform_cov(identity - gain @ self.A, posterior.cov) + _transform_cov(gain, self.Q)
        return OneStepSmoother(gain, offset, cov)

    def _corrections(
        self, cov: Tensor, length: int, observed: Tensor | None = None
    ) -> tuple[list[_Correction], Tensor]:
        """The corrections at ``length`` indices and the last filtered covariance, given the first predicted one.

        All sequences share them, unless ``observed`` (n, T, O) says what each has observed.
        """
        corrections = []
        for t in range(length):
            cov = _transform_cov(self.A, cov) + self.Q if t else cov
            correction = self._correction(cov, None if observed is None else observed[:, t, None, :])
            corrections.append(correction)
            cov = cov - correction.gain @ correction.gain.mT
        return corrections, cov

    def _correction(self, cov: Tensor, observed: Tensor | None) -> _Correction:
        """The correction for a predicted covariance of the state; ``observed`` is (n, 1, O)."""
        cov_x = _transform_cov(self.C, cov) + self.R
        identity = torch.eye(self.R.shape[0], dtype=torch.float64)
        count: int | Tensor = self.R.shape[0]
        if observed is not None:
            # A missing coordinate as an independent standard normal one: that does not change L of the others.
            cov_x = torch.where(observed[..., None] & observed[..., None, :], cov_x, identity)
            count = observed.sum(-1).double()
        factor = torch.linalg.cholesky(cov_x)
        whiten = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
        log_norm = whiten.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * count * LOG_2PI
        if observed is not None:
            whiten = torch.where(observed[..., None], whiten, 0)
        return _Correction(whiten, cov @ self.C.T @ whiten.mT, log_norm)

    def _filter_block(self, x: Tensor, mean: Tensor, corrections: list[_Correction]) -> tuple[Tensor, Tensor]:
        """Means (n, H, D) and log evidences (n, H) after all of x, given the predicted means of its first index."""
        log_evidence = torch.zeros(mean.shape[:2], dtype=torch.float64)
        for t, step in enumerate(corrections):
            mean = _transform(self.A, mean) if t else mean
            error = _transform(step.whiten, x[:, t, None, :] - mean @ self.C.T)
            mean = mean + _transform(step.gain, error)
            log_evidence += step.log_norm - 0.5 * (error**2).sum(-1)
        return mean, log_evidence


def _transform(matrix: Tensor, vector: Tensor) -> Tensor:
    """M v for vectors (..., N, H, D); the matrices are (H, O, D), or (N, H, O, D) if each sequence has its own."""
    return torch.einsum("hij,...nhj->...nhi" if matrix.ndim == 3 else "nhij,...nhj->...nhi", matrix, vector)


def _transform_cov(matrix: Tensor, cov: Tensor) -> Tensor:
    """M P M', the covariance of M z."""
    return matrix @ cov @ matrix.mT
