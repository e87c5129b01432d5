"""What the model has learned so far, in words: forecasts of validation sequences compared with exact inference."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tdvae.data import OscillatorSettings
from tdvae.exact import OscillatorOracle
from tdvae.models import Model
from tdvae.types import Sequences
from tdvae_paper.monitor import ForecastMonitor
from tdvae_paper.oscillator.measures import HORIZONS, START

SEQUENCES = 300  # of the validation sequences
# (quantity, δt, share): the forecast δt steps ahead has more than this share of the attainable information only if the
# state contains the quantity. Without the velocity the share at δt = 5 is near 0, without the frequency that at 100.
STAGES = (("position", 1, 0.3), ("velocity", 5, 0.5), ("frequency", 100, 0.3))


@dataclass(frozen=True)
class OscillatorMonitor(ForecastMonitor):
    """Forecasts of the published measures on validation sequences. ``limits`` has (exact, marginal) NLL by δt."""

    limits: dict[int, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def watching(
        cls, model: Model, settings: OscillatorSettings, validation: Sequences, seed: int
    ) -> OscillatorMonitor:
        some = validation.select(torch.arange(min(len(validation), SEQUENCES)))
        oracle = OscillatorOracle(settings)
        posterior = oracle.observe(some.x[:, :START])
        limits = {}
        for dt in HORIZONS:
            future = some.x[:, START + dt - 1].double()
            exact, marginal = oracle.forecast(posterior, dt), oracle.marginal(START + dt - 1)
            limits[dt] = (-float(exact.log_prob(future).mean()), -float(marginal.log_prob(future).mean()))
        return cls(model, some, HORIZONS, (START,), (START,), seed, limits=limits)

    def measure(self) -> dict[str, float]:
        """The NLL by δt with its share of the attainable information."""
        measured = super().measure()
        for dt, (exact, marginal) in self.limits.items():
            measured[f"share/{dt}"] = (marginal - measured[f"forecast/{dt}"]) / (marginal - exact)
        return measured

    def in_words(self, measured: dict[str, float]) -> str:
        """What the state contains: "has position, velocity"; "no position yet" at the start."""
        known = [quantity for quantity, dt, share in STAGES if measured[f"share/{dt}"] > share]
        return f"has {', '.join(known)}" if known else "no position yet"
