"""Forecasts of the validation part, which choose the weights of a network while it is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.forecasting.predictors import (
    Network,
    Origins,
    actions_after,
    beliefs_at,
    held_out_origins,
    scored_horizons,
    seeded,
    targets,
)
from tdvae.forecasting.preparation import HeldOut
from tdvae.likelihood import forecast
from tdvae.models import TDVAE, Model
from tdvae.training import Monitor
from tdvae.types import Sequences, State

MOST_ORIGINS = 100
SAMPLES = 32


@dataclass(frozen=True)
class ValidationForecasts(Monitor):
    """Scores a model by the NLL of its forecasts, per dimension and averaged over horizons.

    At each horizon the better of two forecasts counts: one jump, or single steps.
    """

    model: Model
    sequences: Sequences
    origins: Origins
    horizons: Sequence[int]
    longest_jump: int
    seed: int = 0

    @classmethod
    def of(cls, model: Model, held_out: HeldOut, longest_jump: int, seed: int = 0) -> ValidationForecasts:
        """Forecasts at some origins of the validation part."""
        origins, horizons = validation_origins(held_out, longest_jump, MOST_ORIGINS)
        return cls(model, held_out.sequences, origins, horizons, longest_jump, seed)

    def measure(self) -> dict[str, float]:
        """The NLL by horizon, and their mean as the score. Without room for any forecast the loss is the score."""
        if not self.horizons:
            return {}
        with seeded(self.seed), torch.no_grad():
            nll = self._vectors() if self.sequences.x.is_floating_point() else self._discrete()
        named = {f"forecast/{h}": value for h, value in nll.items()}
        return {**named, "score": sum(nll.values()) / len(nll)}

    def _vectors(self) -> dict[int, float]:
        found: dict[int, float] = dict.fromkeys(self.horizons, math.inf)
        for composed in (False, True) if isinstance(self.model, TDVAE) else (False,):
            scales = dict.fromkeys(self.horizons, 1.0)
            network = Network(self.model, self.longest_jump, frozenset(self.horizons if composed else ()), scales)
            for h, density in network.densities(self.sequences, self.origins, self.horizons, SAMPLES).items():
                found[h] = min(found[h], self._nll(density.log_prob(*targets(self.sequences, self.origins, h)), h))
        return found

    def _discrete(self) -> dict[int, float]:
        chosen, belief = beliefs_at(self.model, self.sequences, self.origins)
        found, x = {}, self.sequences.x
        for h in self.horizons:
            density = forecast(self.model, belief, h, SAMPLES, actions_after(chosen, self.origins, h))
            log_prob = density.log_prob(x[self.origins.row, self.origins.t + h - 1])
            found[h] = -float(log_prob.mean()) / math.prod(x.shape[2:])
        return found

    def _nll(self, log_prob: Tensor, h: int) -> float:
        """The mean NLL per observed dimension."""
        dimensions = targets(self.sequences, self.origins, h)[1].sum(1)
        return -float((log_prob / dimensions)[dimensions > 0].mean())

    def finish(self) -> dict[str, float]:
        """What z adds to forecasts: how much worse they are if z belongs to another sequence, nats per dimension."""
        if not isinstance(self.model, TDVAE) or not self.sequences.x.is_floating_point():
            return {}
        with seeded(self.seed), torch.no_grad():
            return {f"z_adds/{h}": self._gain_of_z(h) for h in self.horizons}

    def _gain_of_z(self, h: int) -> float:
        """The NLL with z drawn from the marginal of p_B, minus that with z drawn from p_B."""
        assert isinstance(self.model, TDVAE)
        at = self.origins
        chosen, belief = beliefs_at(self.model, self.sequences, at)
        actions = actions_after(chosen, at, h)
        x, seen = (part.view(len(at), *self.sequences.x.shape[2:]) for part in targets(self.sequences, at, h))
        state = self.model.sample_state(belief, SAMPLES)
        other = torch.randint(len(at), (SAMPLES, len(at)))
        mixed = State(state.z[torch.arange(SAMPLES)[:, None], other], state.x)
        of_mixed, of_own = (
            self._nll(torch.logsumexp(self.model.predict(each, h, actions).log_prob(x, seen).double(), 0), h)
            for each in (mixed, state)
        )
        return of_mixed - of_own


def validation_origins(held_out: HeldOut, longest_jump: int, most: int) -> tuple[Origins, list[int]]:
    """Origins with room for all scored horizons, and these; only the shorter ones if the sequences are short."""
    sequences = held_out.sequences
    every = held_out_origins(sequences, held_out.context, longest_jump)
    room = sequences.lengths[every.row] - every.t
    horizons = [h for h in scored_horizons(longest_jump) if bool((room >= h).any())]
    chosen = every.select((room >= max(horizons, default=1)).nonzero()[:, 0])
    return chosen.at_most(most), horizons
