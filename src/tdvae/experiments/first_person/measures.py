"""Measures of a model of a first-person world: densities of later frames, spreads of futures, motion, poses.

Frames are (N, 3, H, W) in [0, 1]. A moment is a held-out window of which the model has seen the first t1 frames.
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
from tdvae.experiments.shared.probes import linear_fit
from tdvae.likelihood import log_mean_exp, pair_log_weights, steps_log_weights
from tdvae.models import TDVAE, Model
from tdvae.reporting.timing import seconds
from tdvae.rollouts import belief_at, rollout
from tdvae.types import Belief, Pairs, Sequences, State

AT_ONCE = 16  # moments that are worked on together
COARSE = 16  # motion is measured on frames averaged down to so many pixels a side: what moves, not its texture
JUMPS = 4  # of a rollout, where the window has room for so many
RECENT = 8  # steps back, of the motion that is read from a belief
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
REPEATS = 5  # of what is timed

ByJump = dict[str, float]  # δt → number


def bits(log_prob: Tensor, frame: Tensor) -> float:
    """The mean of log densities of whole frames, as bits per dimension."""
    return float(-log_prob.mean()) / (frame[0].numel() * math.log(2))


# Densities of later frames


@torch.no_grad()
def bits_ahead(model: TDVAE, moments: FrameWindows, t1: int, dt: int, samples: int, in_one_jump: bool) -> ByJump:
    """−log₂ p(x_{t1+δt} | x_≤t1) per dimension, in one jump or in δt single steps; two estimates, both upper bounds.

    ``smoothed`` weighs states inferred backwards from later frames, ``rolled`` averages over states rolled forwards.
    """
    smoothed, rolled, frames = [], [], []
    for part in _parts(moments):
        later = part.x[:, t1 + dt - 1]
        if in_one_jump:
            at = torch.full((len(part), 1), t1)
            weights = pair_log_weights(model, part.until(t1 + dt), Pairs(at, at + dt), samples)[..., 0]
        else:
            weights = steps_log_weights(model, part, t1, t1 + dt, samples)
        smoothed.append(log_mean_exp(weights))
        state = model.sample_state(belief_at(model, part, t1), samples)
        predicted = predict(model, state, dt, in_one_jump)
        rolled.append(log_mean_exp(predicted.log_prob(later)))
        frames.append(later)
    every = torch.cat(frames)
    return {"smoothed": bits(torch.cat(smoothed), every), "rolled": bits(torch.cat(rolled), every)}


def predict(model: Model, z: State, dt: int, in_one_jump: bool) -> Distribution:
    """The frame δt steps after z: one transition, or δt of them."""
    for step in [dt] if in_one_jump else [1] * dt:
        z = model.transition(z, step)
    return model.decode(z)


def decoded(model: Model, z: State) -> Tensor:
    """The frame of a state: the median of each value."""
    law = model.decode(z)
    assert isinstance(law, DiscretisedLogistic)
    return law.median


@torch.no_grad()
def milliseconds(model: Model, belief: Belief, dt: int) -> dict[str, float]:
    """Per frame predicted from a belief: in one jump, step by step, and their ratio; medians of times taken in turn."""
    count = len(belief.code)

    def work(in_one_jump: bool) -> float:
        return seconds(lambda: predict(model, model.sample_state(belief, 1), dt, in_one_jump).mean)

    times = [(work(True), work(False)) for _ in range(REPEATS + 1)][1:]  # the first warms caches
    jump, steps = (1e3 * statistics.median(each) / count for each in zip(*times, strict=True))
    return {"jump": jump, "steps": steps, "ratio": statistics.median(b / a for a, b in times)}


# Figure 5: what several states of one belief share, and what each of them decides


@dataclass(frozen=True)
class Spreads:
    """Root mean square distances between decoded frames, per value of a frame."""

    present: float  # of different z of one belief, now
    within: ByJump  # of several futures of one z, δt later
    across: ByJump  # of futures of different z of one belief
    data: float  # of real frames of different moments


def squared_distances(frames: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared distances within a z and across z's, (N,) each, from frames (Z, F, N, ...): F futures of Z states.

    Pairs are of different draws. Across: 2 Var(mean over F) + 2 (1 − 1/F) Var(within), of which the expectation is
    that of ‖f − f'‖² for futures f, f' of two states.
    """
    states, futures = frames.shape[:2]
    if min(states, futures) < 2:
        raise InputError(f"frames: expected at least 2 states with 2 futures each, got {states} with {futures}")
    inside, between = frames.var(1).mean(0), frames.mean(1).var(0)
    return 2 * inside.flatten(1).mean(1), 2 * (between + (1 - 1 / futures) * inside).flatten(1).mean(1)


@torch.no_grad()
def spreads(model: Model, moments: FrameWindows, t1: int, jumps: tuple[int, ...], states: int, futures: int) -> Spreads:
    present, real = [], []
    within: dict[int, list[Tensor]] = {dt: [] for dt in jumps}
    across: dict[int, list[Tensor]] = {dt: [] for dt in jumps}
    for part in _parts(moments):
        z = model.sample_state(belief_at(model, part, t1), states)
        present.append(2 * decoded(model, z).var(0).flatten(1).mean(1))
        real.append(part.x[:, t1 - 1])
        each = z.map(lambda layer: layer[:, None].expand(-1, futures, *layer.shape[1:]))
        for dt in jumps:
            frames = torch.stack([decoded(model, model.transition(one, dt)) for one in _by_state(each)])
            for kept, distance in zip((within, across), squared_distances(frames), strict=True):
                kept[dt].append(distance)
    return Spreads(
        _root(present),
        {str(dt): _root(within[dt]) for dt in jumps},
        {str(dt): _root(across[dt]) for dt in jumps},
        _root([2 * torch.cat(real).var(0, keepdim=True).flatten(1).mean(1)]),
    )


def _by_state(z: State) -> list[State]:
    return [z[index] for index in range(z.lead[0])]


def _root(squares: list[Tensor]) -> float:
    return math.sqrt(float(torch.cat(squares).mean()))


# Figure 6: rollouts that move on


def changes(frames: Tensor) -> Tensor:
    """How a frame differs from the one before, (J + 1, N, 3, H, W) → (J, N): root mean square, seen coarsely."""
    small = F.adaptive_avg_pool2d(frames.flatten(0, 1), COARSE).unflatten(0, frames.shape[:2])
    return (small[1:] - small[:-1]).square().flatten(2).mean(2).sqrt()


def wasserstein(a: Tensor, b: Tensor) -> float:
    """Between two samples of equally many numbers: how far those of one must move to become the other's."""
    return float((a.flatten().sort().values - b.flatten().sort().values).abs().mean())


@torch.no_grad()
def rolled_frames(model: Model, sequences: Sequences, t1: int, dt: int, jumps: int) -> Tensor:
    """A state of the belief at t1, decoded, and after each of ``jumps`` jumps of δt: (jumps + 1, N, 3, H, W)."""
    z = model.sample_state(belief_at(model, sequences, t1), 1)
    later = rollout(model, z, [dt] * jumps)
    return torch.cat([decoded(model, z), decoded(model, later)[:, 0]])


@torch.no_grad()
def motion(model: Model, moments: FrameWindows, t1: int, dt: int, mean_frame: Tensor) -> dict[str, Tensor]:
    """The changes per jump of δt: of the real frames, and of three ways to roll out from the frame seen last."""
    jumps = min(JUMPS, (moments.length - t1) // dt)
    found: dict[str, list[Tensor]] = {"data": [], "tdvae": [], "last_frame": [], "mean_frame": []}
    for part in _parts(moments):
        real = part.x[:, t1 - 1 : t1 + jumps * dt : dt].transpose(0, 1)
        ways = {
            "data": real,
            "tdvae": rolled_frames(model, part, t1, dt, jumps),
            "last_frame": real[:1].expand_as(real),
            "mean_frame": torch.cat([real[:1], mean_frame.expand_as(real[1:])]),
        }
        for name, frames in ways.items():
            found[name].append(changes(frames).flatten())
    return {name: torch.cat(each) for name, each in found.items()}


# Where the agent is


@dataclass(frozen=True)
class Poses:
    """What can be read from, and what is to be read, at the end of each window."""

    codes: dict[str, Tensor]  # (N, ·) by what is read
    truth: dict[str, Tensor]  # (N, 2) each, see `pose_truth`


@torch.no_grad()
def poses(model: TDVAE, windows: FrameWindows) -> Poses:
    codes: dict[str, list[Tensor]] = {"belief": [], "frame": [], "pixels": []}
    truth = []
    for index in torch.arange(len(windows)).split(AT_ONCE):
        part = windows.select(index)
        codes["belief"].append(model.filter(part).at(part.lengths[:, None])[:, 0])
        codes["frame"].append(model.encoder(part.x[:, -1]))
        codes["pixels"].append(F.adaptive_avg_pool2d(part.x[:, -1], COARSE).flatten(1))
        truth.append(windows.pose(index))
    return Poses({name: torch.cat(each) for name, each in codes.items()}, pose_truth(torch.cat(truth)))


def pose_truth(pose: Tensor) -> dict[str, Tensor]:
    """What is asked at the end of poses (N, T, 3): where in the world; and since ``RECENT`` steps, which needs no map.

    How far it came is told along and across its heading, a turn as cosine and sine.
    """
    now, before = pose[:, -1], pose[:, -1 - RECENT]
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


def pose_read(fit_on: Poses, choose_on: Poses, test: Poses) -> dict[str, dict[str, float]]:
    """R² of each part of the pose by ridge regression; its strength is chosen on windows of other episodes."""
    found: dict[str, dict[str, float]] = {name: {} for name in fit_on.codes}
    for name, codes in fit_on.codes.items():
        for what, truth in fit_on.truth.items():
            readers = [linear_fit(codes, truth, ridge) for ridge in RIDGES]
            scores = [explained(read(choose_on.codes[name]), choose_on.truth[what]) for read in readers]
            best = readers[scores.index(max(scores))]
            found[name][what] = explained(best(test.codes[name]), test.truth[what])
    return found


def explained(read: Tensor, truth: Tensor) -> float:
    """R²: the share of the truth's variance (both coordinates together) that was read."""
    missed, spread = (truth - read).square().mean(0).sum(), truth.var(0, correction=0).sum()
    return float(1 - missed / spread.clamp(min=1e-6))


def _parts(moments: FrameWindows) -> Iterator[Sequences]:
    return (moments.select(index) for index in torch.arange(len(moments)).split(AT_ONCE))
