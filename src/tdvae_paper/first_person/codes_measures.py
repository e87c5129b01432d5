"""Measures of futures in the corridors, in pixels of decoded frames.

The distance of two frames is the root mean square difference of their values, which are in [0, 1]. The truth is the
real frame after encoding and decoding, so that the codec's own error is left out; it is reported separately.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tdvae.codec import FrameCodec
from tdvae.codes import CodeWindows
from tdvae.forecasting.evaluation import distances, energy_score
from tdvae.models import Model
from tdvae.rollouts import belief_at
from tdvae.types import Sequences, State
from tdvae_paper.first_person.measures import squared_distances
from tdvae_paper.timing import ratios

BATCH_SIZE = 20  # moments whose futures are decoded at once
REPEATS = 7  # of each timing
ByJump = dict[str, float]  # δt → number


def batches(windows: CodeWindows) -> Iterator[Sequences]:
    return (windows.select(index) for index in torch.arange(len(windows)).split(BATCH_SIZE))


def actions_after(part: Sequences, t1: int, dt: int) -> Tensor | None:
    """The actions a_{t1+1} … a_{t1+δt}, if the data have actions."""
    return None if part.actions is None else part.actions[:, t1 : t1 + dt]


@torch.no_grad()
def futures(model: Model, part: Sequences, t1: int, dt: int, states: int, each: int, jump: int | None = None) -> Tensor:
    """Draw codes δt after t1: ``each`` futures of each of ``states`` samples of the belief, (states, each, N, size).

    They are drawn by one transition, or by several of at most ``jump`` steps.
    """
    state = model.sample_state(belief_at(model, part, t1), states)
    state = state.map(lambda layer: layer.repeat_interleave(each, dim=0))
    for done in range(0, dt, jump or dt):
        step = min(jump or dt, dt - done)
        actions = actions_after(part, t1 + done, step)
        state = model.transition(state, step, actions)
    return model.decode(state).mean.unflatten(0, (states, each))


def gradient(frames: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels of each frame (…, 3, H, W)."""
    down, right = frames.diff(dim=-2).abs(), frames.diff(dim=-1).abs()
    return (down.flatten(-3).mean(-1) + right.flatten(-3).mean(-1)) / 2


@dataclass
class _Sums:
    """Sums over moments of what the measures of one δt need."""

    score: list[Tensor] = field(default_factory=list)
    random_score: list[Tensor] = field(default_factory=list)
    best: list[Tensor] = field(default_factory=list)
    random_best: list[Tensor] = field(default_factory=list)
    last: list[Tensor] = field(default_factory=list)
    sharp: list[Tensor] = field(default_factory=list)
    real_sharp: list[Tensor] = field(default_factory=list)
    within: list[Tensor] = field(default_factory=list)
    across: list[Tensor] = field(default_factory=list)

    def mean(self, name: str) -> float:
        return float(torch.cat(getattr(self, name)).mean())


def by_jump(
    model: Model,
    codec: FrameCodec,
    moments: CodeWindows,
    random_codes: Tensor,
    t1: int,
    jumps: Sequence[int],
    samples: int,
    states: int,
    each: int,
    jump: int | None = None,
) -> dict[str, ByJump]:
    """Compute the measures at all δt. ``random_codes`` (samples, size) are those of random training frames."""
    found: dict[str, ByJump] = {}
    random_frames = codec.decode(random_codes)
    for dt in jumps:
        sums = _Sums()
        for part in batches(moments):
            truth, now = codec.decode(part.x[:, t1 + dt - 1]), codec.decode(part.x[:, t1 - 1])
            drawn = codec.decode(futures(model, part, t1, dt, samples, 1, jump)[:, 0].transpose(0, 1))
            by_chance = random_frames.expand(len(part), *random_frames.shape)
            sums.score.append(energy_score(drawn, truth))
            sums.random_score.append(energy_score(by_chance, truth))
            sums.best.append(distances(drawn, truth[:, None]).amin((1, 2)))
            sums.random_best.append(distances(by_chance, truth[:, None]).amin((1, 2)))
            sums.last.append(distances(now[:, None], truth[:, None]).flatten())
            sums.sharp.append(gradient(drawn).mean(1))
            sums.real_sharp.append(gradient(truth))
            grouped = codec.decode(futures(model, part, t1, dt, states, each, jump))
            within, across = squared_distances(grouped)
            sums.within.append(within)
            sums.across.append(across)
        for name, value in _summary(sums).items():
            found.setdefault(name, {})[str(dt)] = value
    return found


def _summary(sums: _Sums) -> dict[str, float]:
    return {
        "energy_skill": 1 - sums.mean("score") / sums.mean("random_score"),
        "energy_score": sums.mean("score"),
        "energy_score_random": sums.mean("random_score"),
        "best_of": sums.mean("best") / sums.mean("random_best"),
        "last_frame_skill": 1 - sums.mean("last") / sums.mean("random_score"),
        "sharpness": sums.mean("sharp") / sums.mean("real_sharp"),
        "future_spread_ratio": sums.mean("across") / sums.mean("within"),
    }


@torch.no_grad()
def time_ratio(model: Model, part: Sequences, t1: int, dt: int) -> float:
    """Time of one jump of δt over that of δt single steps, from a state to the code that it predicts."""
    state = model.sample_state(belief_at(model, part, t1), 1)

    def predict(jump: int) -> Callable[[], Tensor]:
        def run() -> Tensor:
            later: State = state
            for done in range(0, dt, jump):
                later = model.transition(later, jump, actions_after(part, t1 + done, jump))
            return model.decode(later).mean

        return run

    return statistics.median(ratios(predict(dt), predict(1), REPEATS))
