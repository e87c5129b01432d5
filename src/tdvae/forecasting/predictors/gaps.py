"""Missing values: gaps before the origin of a forecast, and in new data of models that were trained without any."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tdvae.forecasting.predictors.origins import Origins
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.models.config import RecurrentConfig
from tdvae.types import Sequences

SAMPLES = 100  # states behind a forecast of a missing value


def takes_gaps(model: Model) -> bool:
    """Whether the model is given which values are missing: it is, if values were missing in its training data."""
    return isinstance(model.config, RecurrentConfig) and model.config.missing_values


def steps_without_observation(sequences: Sequences, at: Origins) -> Tensor:
    """The length (M,) of the gap that ends at each origin; 0 if anything was observed at its last step.

    A gap that begins with the sequence does not count its first step, so that something is before it.
    """
    if sequences.observed is None:
        return torch.zeros_like(at.t)
    seen = sequences.observed.flatten(2).any(2)
    steps = torch.arange(1, sequences.horizon + 1)
    last = torch.where(seen, steps, 1).cummax(1).values
    return at.t - last[at.row, at.t - 1]


@torch.no_grad()
def fill(model: Model, sequences: Sequences) -> Sequences:
    """The sequences as the model can be given them: complete, unless it takes gaps.

    A missing value is replaced by the mean of the model's forecast from the step before. So it depends on earlier
    observations only.
    """
    if sequences.observed is None or takes_gaps(model):
        return sequences
    x, belief = sequences.x.clone(), model.initial(len(sequences))
    real = sequences.mask.view(*sequences.mask.shape, *[1] * (x.ndim - 2))
    missing = real & ~sequences.observed
    for t in range(sequences.horizon):
        a = None if sequences.actions is None else sequences.actions[:, t]
        r = None if sequences.rewards is None else sequences.rewards[:, t]
        if bool(missing[:, t].any()):
            expected = forecast(model, belief, 1, SAMPLES, None if a is None else a[:, None]).mean
            x[:, t] = torch.where(missing[:, t], expected, x[:, t])
        belief = model.update(belief, x[:, t], a, r)
    return replace(sequences, x=x, observed=None)
