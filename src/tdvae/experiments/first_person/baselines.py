"""Predictions of later frames without a model: copying the last frame, and the marginal of each pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.distributions import DiscretisedLogistic
from tdvae.experiments.first_person.measures import AT_ONCE, ByJump, bits
from tdvae.experiments.first_person.presets import Preset
from tdvae.experiments.first_person.recording import parts, spaced, training_frames

LEVELS = DiscretisedLogistic.LEVELS
COPIED = 400  # pairs of frames that say how a frame differs from the last; each has thousands of values


@dataclass(frozen=True)
class Marginal:
    """How often each pixel and colour has each of its 256 values."""

    log_p: Tensor  # (D, 256)

    @classmethod
    def fit(cls, frames: Tensor, extra: float) -> Marginal:
        """From frames (N, ...), counting ``extra`` more of every value: none is impossible."""
        counts = torch.zeros(frames[0].numel(), LEVELS)
        for some in frames.split(AT_ONCE):
            values = _bytes(some)
            counts.scatter_add_(1, values.T, torch.ones_like(values.T, dtype=counts.dtype))
        counts += extra
        return cls(torch.log(counts / counts.sum(1, keepdim=True)))

    def log_prob(self, frames: Tensor) -> Tensor:
        """(N,)"""
        return torch.stack([self.log_p.gather(1, _bytes(frame[None]).T).sum() for frame in frames])


@dataclass(frozen=True)
class LastFrame:
    """The frame seen last, each value blurred by a mixture: discretised logistics around it, and any value alike."""

    weights: Tensor  # of each of SCALES, and of the uniform law

    SCALES = tuple(0.002 * 2 ** (k / 1.5) for k in range(13))  # 0.002 to 0.5 of a frame's range

    @classmethod
    def fit(cls, seen: Tensor, later: Tensor, rounds: int = 30) -> LastFrame:
        """The weights that make ``later`` likeliest, by expectation maximisation."""
        log_p = cls._components(seen, later).flatten(1)
        weights = torch.full((len(log_p),), 1 / len(log_p))
        for _ in range(rounds):
            weights = torch.softmax(log_p + weights.log()[:, None], dim=0).mean(1).clamp(min=1e-6)
        return cls(weights / weights.sum())

    def log_prob(self, seen: Tensor, later: Tensor) -> Tensor:
        """(N,)"""
        log_weights = self.weights.log().view(-1, *[1] * later.ndim)
        return torch.logsumexp(log_weights + self._components(seen, later), dim=0).flatten(1).sum(1)

    @classmethod
    def _components(cls, seen: Tensor, later: Tensor) -> Tensor:
        """(scales + 1, N, 3, H, W)"""
        scales = [torch.full_like(seen, math.log(scale)) for scale in cls.SCALES]
        around = [DiscretisedLogistic(seen, scale, event_ndim=0).log_prob(later) for scale in scales]
        return torch.stack([*around, torch.full_like(seen, -math.log(LEVELS))])


def _bytes(frames: Tensor) -> Tensor:
    return (frames.flatten(1) * (LEVELS - 1)).round().long()


def baselines(preset: Preset) -> dict[str, ByJump]:
    """Bits per dimension of the same frames without a model: copying the last frame, and the marginal."""
    seen, *later = training_frames(preset)
    marginal, thin = Marginal.fit(torch.cat([seen, *later]), extra=0.3), max(1, len(seen) // COPIED)
    found: dict[str, ByJump] = {"last_frame": {}, "marginal": {}}
    moments = spaced(parts(preset)[2], preset.moments)
    frames = torch.cat([moments.select(index).x for index in torch.arange(len(moments)).split(AT_ONCE)])
    now = frames[:, preset.seen - 1]
    for dt, training in zip(preset.measured, later, strict=True):
        then = frames[:, preset.seen - 1 + dt]
        copied = LastFrame.fit(seen[::thin], training[::thin])
        found["last_frame"][str(dt)] = bits(copied.log_prob(now, then), then)
        found["marginal"][str(dt)] = bits(marginal.log_prob(then), then)
    return found
