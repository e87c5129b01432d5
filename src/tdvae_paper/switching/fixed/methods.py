"""The trainings that are compared: TD-VAE and the next-step predictor, with and without the time of the last switch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from tdvae.jumps import Consecutive, Jumps, Mixture, SemiGradient, Uniform, Widening
from tdvae.models import NextStep, TDVAEConfig
from tdvae.models.config import RecurrentConfig
from tdvae.objectives import Objective, next_step_loss, tdvae_loss
from tdvae.types import Pairs, PredictionTerms, Sequences
from tdvae_paper.switching import grid
from tdvae_paper.switching.pairs import UNINFORMATIVE_STEPS, Around, Bridging
from tdvae_paper.switching.simulation import LAST, OPENING

LATENT = 8  # numbers of TD-VAE's state; with the five of the other experiment it remembers slightly less
AFTER_SWITCH = 10  # steps after the last switch: there the next observation depends most on what was remembered


def weighted_next_step_loss(model: NextStep, sequences: Sequences, pairs: Pairs, share: float) -> PredictionTerms:
    """-log p(x_t | x_<t): a ``share`` of the loss is its mean over the steps after the last switch, the rest over all.

    ``pairs`` are not used.
    """
    loss = -model.predictions(sequences).log_prob(sequences.x, sequences.observed)
    after = torch.arange(1, sequences.horizon + 1) - (sequences.lengths[:, None] - LAST)  # steps after the switch

    def mean(chosen: Tensor) -> Tensor:
        return torch.where(chosen, loss, 0).sum() / chosen.sum()

    return PredictionTerms((1 - share) * mean(sequences.mask) + share * mean((after > 0) & (after <= AFTER_SWITCH)))


def tdvae_config(size: int) -> TDVAEConfig:
    """Return the config of TD-VAE with an LSTM of this size."""
    return replace(grid.tdvae_config(size), latent=LATENT)


def with_observed_state(config: TDVAEConfig) -> TDVAEConfig:
    """The same with the observation in the state and, like the next-step predictor, a head that predicts σ."""
    return replace(
        config,
        decoder=grid.DECODER,
        state="observed",
        smoothing_sees_b2=True,
    )


path_gradient_loss = partial(tdvae_loss, gradient="path")


@dataclass(frozen=True)
class Method:
    """One training. The models of all have the same LSTM."""

    label: str
    colour: str
    knows: bool  # whether it is given the time of the last switch
    config: Callable[[int], RecurrentConfig]  # of an LSTM size
    objective: Objective
    jumps: Callable[[int], Jumps] | None = None  # of an interval; None for the next-step predictor


def jumps_around_switch(interval: int) -> Jumps:
    """Short jumps, many of them around the last switch, and bridges from the separating interval into the last one."""
    short = Mixture((Consecutive(), Widening(Uniform(1, 6), start=1, until=0.25)), (0.8, 0.2))
    return Bridging(0.2, OPENING, LAST - UNINFORMATIVE_STEPS, Around(0.3, LAST, 5, short), since=0.05)


def placeless_jumps(interval: int) -> Jumps:
    """Half consecutive pairs, half jumps of any length up to that of the last two intervals."""
    return Mixture((Consecutive(), Uniform(1, interval + LAST)), (0.5, 0.5))


METHODS = {
    "tdvae": Method("TD-VAE, switch known", "#d1495b", True, tdvae_config, path_gradient_loss, jumps_around_switch),
    "next_step_weighted": Method(
        "next-step, switch known",
        "#2e6f95",
        True,
        grid.next_step_config,
        partial(weighted_next_step_loss, share=0.4),
    ),
    "tdvae_placeless": Method(
        "TD-VAE, switch unknown", "#e8a0a9", False, tdvae_config, path_gradient_loss, placeless_jumps
    ),
    "next_step": Method("next-step, switch unknown", "#93b7ca", False, grid.next_step_config, next_step_loss),
}


def with_semi_gradients(method: Method) -> Method:
    """The same training with fixed targets: for jumps of more than one step, p_B at t2 is not trained."""
    jumps = method.jumps
    assert jumps is not None  # a TD-VAE
    return replace(
        method, label=f"{method.label}, semi-gradients", jumps=lambda interval: SemiGradient(jumps(interval))
    )
