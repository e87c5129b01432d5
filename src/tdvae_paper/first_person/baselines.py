"""Baseline predictions of later frames: a copy of the last frame, and the marginal of each pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.distributions import DiscretisedLogistic
from tdvae_paper.first_person.measures import BATCH_SIZE, ByJump, bits
from tdvae_paper.first_person.presets import Preset
from tdvae_paper.first_person.recording import evenly_spaced, split_recording, training_frames

LEVELS = DiscretisedLogistic.LEVELS
FITTED_PAIRS = 400  # pairs of frames to which `LastFrame` is fitted; each has thousands of values


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


def baselines(preset: Preset) -> dict[str, ByJump]:
    """Return bits per dimension of the baselines on the test moments, by δt."""
    seen, *later = training_frames(preset)
    marginal, stride = Marginal.fit(torch.cat([seen, *later]), extra=0.3), max(1, len(seen) // FITTED_PAIRS)
    found: dict[str, ByJump] = {"last_frame": {}, "marginal": {}}
    moments = evenly_spaced(split_recording(preset)[2], preset.moments)
    frames = torch.cat([moments.select(index).x for index in torch.arange(len(moments)).split(BATCH_SIZE)])
    now = frames[:, preset.seen - 1]
    for dt, training in zip(preset.measured, later, strict=True):
        then = frames[:, preset.seen - 1 + dt]
        last_frame = LastFrame.fit(seen[::stride], training[::stride])
        found["last_frame"][str(dt)] = bits(last_frame.log_prob(now, then), then)
        found["marginal"][str(dt)] = bits(marginal.log_prob(then), then)
    return found
