"""Scores of sampled pictures: how far they are from the one that came.

The distance of two pictures is the root mean square difference of their values, which are in [0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from tdvae.codec import FrameCodec
from tdvae.codes import encode_sequences
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.rollouts import belief_at
from tdvae.types import Sequences

SAMPLES, MOST_PICTURES = 20, 16  # forecasts of pictures take long


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Root mean square distances of frames a (N, A, …) and b (N, B, …), (N, A, B)."""
    a, b = a.flatten(2), b.flatten(2)
    return torch.cdist(a, b) / a.shape[-1] ** 0.5


def energy_score(samples: Tensor, truth: Tensor) -> Tensor:
    """E d(sample, truth) − E d(sample, other sample) / 2 of frames (N, S, …) and (N, …), (N,). Lower is better."""
    count = samples.shape[1]
    between = distances(samples, samples).sum((1, 2)) / max(1, count * (count - 1))
    return distances(samples, truth[:, None])[..., 0].mean(1) - between / 2


def picture_forecasts(
    model: Model, history: Sequences, test: Sequences, horizons: list[int], codec: FrameCodec | None
) -> dict[str, dict[int, tuple[Tensor, Tensor]]]:
    """Sampled pictures (N, S, …) and the true ones, by forecaster and horizon, from the middle of each sequence.

    Beside the model these are the last picture, and random ones of the training part. With ``codec`` the model and
    ``history`` are of codes.
    """
    count = min(len(test), MOST_PICTURES)
    test = test.select(torch.arange(count) * len(test) // count)
    start, shortest = max(1, int(test.lengths.min()) // 2), int(test.lengths.min())

    def pictures(x: Tensor) -> Tensor:
        return x if codec is None else codec.decode(x)

    belief = belief_at(model, test if codec is None else encode_sequences(codec, test), start)
    last = test.x[:, start - 1][:, None]
    seen = history.x[history.mask]
    random = pictures(seen[torch.randperm(len(seen))[:SAMPLES]])
    found: dict[str, dict[int, tuple[Tensor, Tensor]]] = {}
    for h in (h for h in horizons if start + h <= shortest):
        actions = None if test.actions is None else test.actions[:, start : start + h]
        drawn = pictures(forecast(model, belief, h, SAMPLES, actions).components.mean.float()).transpose(0, 1)
        truth = test.x[:, start + h - 1]
        by_chance = random.expand(count, *random.shape)
        for name, samples in (("combination", drawn), ("naive", last), ("climatology", by_chance)):
            found.setdefault(name, {})[h] = (samples, truth)
    return found
