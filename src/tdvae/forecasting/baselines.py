"""The season of training sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from tdvae.forecasting.origins import observed
from tdvae.types import Sequences

SEASON_STRENGTH = 0.3  # least autocorrelation at a season
SAME_STRENGTH = 0.75  # the season is the first peak with this share of the highest one: not one of its multiples


def find_season(train: Sequences, longest: int | None = None) -> int | None:
    """The season of training sequences: the first high peak of the mean autocorrelation of all dimensions.

    Each sequence is freed from its linear trend. Lags up to ``longest`` are tried, by default half the longest
    sequence. None if no peak is high enough.
    """
    seen = observed(train).flatten(2)
    x = _detrended(torch.where(seen, train.x.flatten(2).double(), 0), seen)
    limit = min(longest or train.horizon // 2, train.horizon - 2)
    variance = x.square().sum((0, 1)) / seen.sum((0, 1)).clamp(min=1)
    acf = []
    for lag in range(1, limit + 2):
        pairs = (seen[:, lag:] & seen[:, :-lag]).sum((0, 1))
        covariance = (x[:, lag:] * x[:, :-lag]).sum((0, 1)) / pairs.clamp(min=1)
        acf.append(float((covariance / variance.clamp(min=1e-12)).mean()))
    peaks = {
        lag: acf[lag - 1]
        for lag in range(2, limit + 1)
        if acf[lag - 2] < acf[lag - 1] >= acf[lag] and acf[lag - 1] >= SEASON_STRENGTH
    }
    if not peaks:
        return None
    return min(lag for lag, height in peaks.items() if height >= SAME_STRENGTH * max(peaks.values()))


def _detrended(x: Tensor, seen: Tensor) -> Tensor:
    """The residuals of a straight line through the observed values of each sequence and dimension; 0 elsewhere."""
    weight = seen.double()
    count = weight.sum(1, keepdim=True).clamp(min=1)
    time = torch.arange(x.shape[1], dtype=x.dtype)[None, :, None] * weight
    time = (time - time.sum(1, keepdim=True) / count) * weight
    centred = (x - (x * weight).sum(1, keepdim=True) / count) * weight
    slope = (time * centred).sum(1, keepdim=True) / time.square().sum(1, keepdim=True).clamp(min=1e-12)
    return centred - slope * time
