"""Measures of the first-person experiment: densities of later frames, spreads of futures, motion, poses, baselines.

Frames are (N, 3, H, W) in [0, 1]. A moment is a held-out window of which the model observes the first t1 frames.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tdvae.data.windows import FrameWindows
from tdvae.distributions import DiscretisedLogistic, Distribution
from tdvae.errors import InputError
from tdvae.likelihood import log_mean_exp, pair_log_weights, steps_log_weights
from tdvae.models import TDVAE, Model
from tdvae.rollouts import belief_at, rollout
from tdvae.types import Belief, Pairs, Sequences, State
from tdvae_paper.probes import linear_fit
from tdvae_paper.timing import seconds

BATCH_SIZE = 16  # moments per batch
COARSE_SIDE = 16  # motion is measured on frames averaged to this many pixels a side, to ignore texture
JUMPS = 4  # jumps per rollout, or fewer if the window is too short
RECENT_STEPS = 8  # time steps over which motion is predicted from a belief
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
REPEATS = 5  # of each timing

LEVELS = DiscretisedLogistic.LEVELS

ByJump = dict[str, float]  # δt → number


def bits(log_prob: Tensor, frame: Tensor) -> float:
    """Convert log probabilities of whole frames to their mean in bits per dimension."""
    return float(-log_prob.mean()) / (frame[0].numel() * math.log(2))


# Densities of later frames


@torch.no_grad()
def bits_ahead(model: TDVAE, moments: FrameWindows, t1: int, dt: int, samples: int, in_one_jump: bool) -> ByJump:
    """Estimate −log₂ p(x_{t1+δt} | x_≤t1) per dimension, in one jump or in δt single steps. Return two upper bounds.

    ``smoothed`` is importance sampling with states inferred backwards from later frames. ``rolled`` averages over
    states rolled out forwards.
    """
    smoothed, rolled, frames = [], [], []
    for part in _batches(moments):
        later = part.x[:, t1 + dt - 1]
        if in_one_jump:
            start = torch.full((len(part), 1), t1)
            weights = pair_log_weights(model, part.until(t1 + dt), Pairs(start, start + dt), samples)[..., 0]
        else:
            weights = steps_log_weights(model, part, t1, t1 + dt, samples)
        smoothed.append(log_mean_exp(weights))
        state = model.sample_state(belief_at(model, part, t1), samples)
        predicted = predict(model, state, dt, in_one_jump)
        rolled.append(log_mean_exp(predicted.log_prob(later)))
        frames.append(later)
    later_frames = torch.cat(frames)
    return {"smoothed": bits(torch.cat(smoothed), later_frames), "rolled": bits(torch.cat(rolled), later_frames)}


def predict(model: Model, state: State, dt: int, in_one_jump: bool) -> Distribution:
    """Return the distribution of the frame δt steps after a state: by one transition, or by δt of them."""
    for step in [dt] if in_one_jump else [1] * dt:
        state = model.transition(state, step)
    return model.decode(state)


def decode_median(model: Model, state: State) -> Tensor:
    """Decode a state to a frame: the median of each value."""
    distribution = model.decode(state)
    assert isinstance(distribution, DiscretisedLogistic)
    return distribution.median


@torch.no_grad()
def milliseconds(model: Model, belief: Belief, dt: int) -> dict[str, float]:
    """Time one predicted frame, in one jump and step by step. Return medians in ms, and the median of the ratios."""
    count = len(belief.code)

    def timed(in_one_jump: bool) -> float:
        return seconds(lambda: predict(model, model.sample_state(belief, 1), dt, in_one_jump).mean)

    times = [(timed(True), timed(False)) for _ in range(REPEATS + 1)][1:]  # the first warms up caches
    jump, steps = (1e3 * statistics.median(each) / count for each in zip(*times, strict=True))
    return {"jump": jump, "steps": steps, "ratio": statistics.median(b / a for a, b in times)}


# Figure 5: spread of decoded frames of several states of one belief, now and later


@dataclass(frozen=True)
class Spreads:
    """Root mean square distances between frames, per value of a frame."""

    present: float  # between different z of one belief, decoded now
    within: ByJump  # between futures of one z, δt later
    across: ByJump  # between futures of different z of one belief
    data: float  # between real frames of different moments


def squared_distances(frames: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean squared distances within a z and across z's, (N,) each, for F futures of Z states (Z, F, N, ...).

    Distances are between different samples. Across z's, 2 Var(mean over F) + 2 (1 − 1/F) Var(within) has the same
    expectation as ‖f − f'‖² for futures f, f' of two states.
    """
    states, futures = frames.shape[:2]
    if min(states, futures) < 2:
        raise InputError(f"frames: expected at least 2 states with 2 futures each, got {states} with {futures}")
    within, between = frames.var(1).mean(0), frames.mean(1).var(0)
    return 2 * within.flatten(1).mean(1), 2 * (between + (1 - 1 / futures) * within).flatten(1).mean(1)


@torch.no_grad()
def spreads(model: Model, moments: FrameWindows, t1: int, jumps: tuple[int, ...], states: int, futures: int) -> Spreads:
    """Compute the spreads from ``states`` samples of each belief with ``futures`` futures each."""
    present, real = [], []
    within: dict[int, list[Tensor]] = {dt: [] for dt in jumps}
    across: dict[int, list[Tensor]] = {dt: [] for dt in jumps}
    for part in _batches(moments):
        z = model.sample_state(belief_at(model, part, t1), states)
        present.append(2 * decode_median(model, z).var(0).flatten(1).mean(1))
        real.append(part.x[:, t1 - 1])
        each = z.map(lambda layer: layer[:, None].expand(-1, futures, *layer.shape[1:]))
        for dt in jumps:
            frames = torch.stack([decode_median(model, model.transition(one, dt)) for one in _by_state(each)])
            for distances, distance in zip((within, across), squared_distances(frames), strict=True):
                distances[dt].append(distance)
    return Spreads(
        _root_mean(present),
        {str(dt): _root_mean(within[dt]) for dt in jumps},
        {str(dt): _root_mean(across[dt]) for dt in jumps},
        _root_mean([2 * torch.cat(real).var(0, keepdim=True).flatten(1).mean(1)]),
    )


def _by_state(z: State) -> list[State]:
    return [z[index] for index in range(z.lead[0])]


def _root_mean(squares: list[Tensor]) -> float:
    return math.sqrt(float(torch.cat(squares).mean()))


# Figure 6: motion of rollouts


def changes(frames: Tensor) -> Tensor:
    """Return the root mean square difference of successive coarse frames: (J + 1, N, 3, H, W) → (J, N)."""
    small = F.adaptive_avg_pool2d(frames.flatten(0, 1), COARSE_SIDE).unflatten(0, frames.shape[:2])
    return (small[1:] - small[:-1]).square().flatten(2).mean(2).sqrt()


def wasserstein(a: Tensor, b: Tensor) -> float:
    """Return the Wasserstein-1 distance between two samples of equal size."""
    return float((a.flatten().sort().values - b.flatten().sort().values).abs().mean())


@torch.no_grad()
def rolled_frames(model: Model, sequences: Sequences, t1: int, dt: int, jumps: int) -> Tensor:
    """Decode a state of the belief at t1, now and after each of ``jumps`` jumps of δt: (jumps + 1, N, 3, H, W)."""
    z = model.sample_state(belief_at(model, sequences, t1), 1)
    later = rollout(model, z, [dt] * jumps)
    return torch.cat([decode_median(model, z), decode_median(model, later)[:, 0]])


@torch.no_grad()
def motion(model: Model, moments: FrameWindows, t1: int, dt: int, mean_frame: Tensor) -> dict[str, Tensor]:
    """Return the changes per jump of δt, of the real frames and of three predictions from the last observed frame."""
    jumps = min(JUMPS, (moments.length - t1) // dt)
    found: dict[str, list[Tensor]] = {"data": [], "tdvae": [], "last_frame": [], "mean_frame": []}
    for part in _batches(moments):
        real = part.x[:, t1 - 1 : t1 + jumps * dt : dt].transpose(0, 1)
        sources = {
            "data": real,
            "tdvae": rolled_frames(model, part, t1, dt, jumps),
            "last_frame": real[:1].expand_as(real),
            "mean_frame": torch.cat([real[:1], mean_frame.expand_as(real[1:])]),
        }
        for name, frames in sources.items():
            found[name].append(changes(frames).flatten())
    return {name: torch.cat(each) for name, each in found.items()}


# Pose of the agent


@dataclass(frozen=True)
class Poses:
    """Inputs and targets of the pose regression at the end of each window."""

    codes: dict[str, Tensor]  # inputs by source, (N, ·) each
    truth: dict[str, Tensor]  # targets, (N, 2) each; see `pose_truth`


@torch.no_grad()
def poses(model: TDVAE, windows: FrameWindows) -> Poses:
    """Compute inputs (belief, encoded last frame, coarse pixels) and targets of the pose regression."""
    codes: dict[str, list[Tensor]] = {"belief": [], "frame": [], "pixels": []}
    truth = []
    for index in torch.arange(len(windows)).split(BATCH_SIZE):
        part = windows.select(index)
        codes["belief"].append(model.filter(part).at(part.lengths[:, None])[:, 0])
        codes["frame"].append(model.encoder(part.x[:, -1]))
        codes["pixels"].append(F.adaptive_avg_pool2d(part.x[:, -1], COARSE_SIDE).flatten(1))
        truth.append(windows.pose(index))
    return Poses({name: torch.cat(each) for name, each in codes.items()}, pose_truth(torch.cat(truth)))


def pose_truth(pose: Tensor) -> dict[str, Tensor]:
    """Return the targets at the end of poses (N, T, 3): position and heading; motion and turn in the last RECENT_STEPS.

    Motion and turn, unlike position and heading, need no map of the world. Motion is given along and across the
    heading, angles as cosine and sine.
    """
    now, before = pose[:, -1], pose[:, -1 - RECENT_STEPS]
    (x, y), heading = (now - before)[:, :2].T, now[:, 2]
    ahead, aside = x * heading.cos() + y * heading.sin(), y * heading.cos() - x * heading.sin()
    return {
        "position": now[:, :2],
        "heading": _direction(heading),
        "moved": torch.stack([ahead, aside], dim=1),
        "turned": _direction(heading - before[:, 2]),
    }


def _direction(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def pose_r_squared(fit_on: Poses, choose_on: Poses, test: Poses) -> dict[str, dict[str, float]]:
    """Return R² of ridge regressions of each target on each source. The ridge is chosen on validation episodes."""
    found: dict[str, dict[str, float]] = {name: {} for name in fit_on.codes}
    for name, codes in fit_on.codes.items():
        for target, truth in fit_on.truth.items():
            fits = [linear_fit(codes, truth, ridge) for ridge in RIDGES]
            scores = [r_squared(fit(choose_on.codes[name]), choose_on.truth[target]) for fit in fits]
            best = fits[scores.index(max(scores))]
            found[name][target] = r_squared(best(test.codes[name]), test.truth[target])
    return found


def r_squared(predicted: Tensor, truth: Tensor) -> float:
    """Return R², the explained share of the variance, summed over both coordinates."""
    error, variance = (truth - predicted).square().mean(0).sum(), truth.var(0, correction=0).sum()
    return float(1 - error / variance.clamp(min=1e-6))


def _batches(moments: FrameWindows) -> Iterator[Sequences]:
    return (moments.select(index) for index in torch.arange(len(moments)).split(BATCH_SIZE))


# Baselines: the marginal of each pixel, and a copy of the last frame


@dataclass(frozen=True)
class Marginal:
    """Histogram of the 256 values of each pixel and colour."""

    log_p: Tensor  # (D, 256)

    @classmethod
    def fit(cls, frames: Tensor, extra: float) -> Marginal:
        """Fit to frames (N, ...). ``extra`` is added to every count, so that no value has probability 0."""
        counts = torch.zeros(frames[0].numel(), LEVELS)
        for batch in frames.split(BATCH_SIZE):
            values = _bytes(batch)
            counts.scatter_add_(1, values.T, torch.ones_like(values.T, dtype=counts.dtype))
        counts += extra
        return cls(torch.log(counts / counts.sum(1, keepdim=True)))

    def log_prob(self, frames: Tensor) -> Tensor:
        """Return the log probability of each frame, (N,)."""
        return torch.stack([self.log_p.gather(1, _bytes(frame[None]).T).sum() for frame in frames])


@dataclass(frozen=True)
class LastFrame:
    """Prediction from the last frame: each value has a mixture of discretised logistics around it and a uniform."""

    weights: Tensor  # mixture weights: one for each of SCALES, then that of the uniform distribution

    SCALES = tuple(0.002 * 2 ** (k / 1.5) for k in range(13))  # 0.002 to 0.5 of the range of values

    @classmethod
    def fit(cls, seen: Tensor, later: Tensor, rounds: int = 30) -> LastFrame:
        """Fit the mixture weights to ``later`` frames given ``seen`` ones by expectation maximisation."""
        log_p = cls._components(seen, later).flatten(1)
        weights = torch.full((len(log_p),), 1 / len(log_p))
        for _ in range(rounds):
            weights = torch.softmax(log_p + weights.log()[:, None], dim=0).mean(1).clamp(min=1e-6)
        return cls(weights / weights.sum())

    def log_prob(self, seen: Tensor, later: Tensor) -> Tensor:
        """Return the log probability of each later frame, (N,)."""
        log_weights = self.weights.log().view(-1, *[1] * later.ndim)
        return torch.logsumexp(log_weights + self._components(seen, later), dim=0).flatten(1).sum(1)

    @classmethod
    def _components(cls, seen: Tensor, later: Tensor) -> Tensor:
        """Return the log probabilities under each component, (scales + 1, N, 3, H, W)."""
        scales = [torch.full_like(seen, math.log(scale)) for scale in cls.SCALES]
        logistics = [DiscretisedLogistic(seen, scale, event_ndim=0).log_prob(later) for scale in scales]
        return torch.stack([*logistics, torch.full_like(seen, -math.log(LEVELS))])


def _bytes(frames: Tensor) -> Tensor:
    return (frames.flatten(1) * (LEVELS - 1)).round().long()
