"""Forecasts of validation sequences: during training they choose the weights, and at the end they calibrate them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.forecasting.predictors import Origins, beliefs_at, mean_and_error
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.training import Monitor
from tdvae.training.config import derive_seed
from tdvae.types import Belief, Sequences
from tdvae_paper.calibration import ScoredForecast, calibrate

HORIZONS = (1, 2, 5, 10, 20, 50, 100)  # δt, as far as the longest jump
SINGLE_STEPS = 20  # of a composed forecast; at most the longest jump
STARTS = (0.35, 0.6)  # the first and the last place where forecasts begin, as shares of the shortest sequence
MOST_STARTS = 8  # of forecasts to calibrate with; training needs two
MOST_SEQUENCES = 200
SAMPLES = 100
CLEARLY = 2.0  # standard errors


@dataclass(frozen=True)
class ForecastMonitor(Monitor):
    """Scores a model by the NLL of its forecasts, averaged over δt, and calibrates it after training.

    The loss cannot choose the weights: Eq. 6 for long jumps is lowest for a belief wider than a filter's
    (docs/oscillator.md), and it says little about rare long jumps.
    """

    model: Model
    validation: Sequences
    horizons: Sequence[int]
    starts: Sequence[int]  # numbers of observations before the forecasts that score the weights
    calibration_starts: Sequence[int]  # … that calibrate them
    seed: int = 0
    blocks: Tensor | None = None  # (N,) sequences of one block may depend on each other
    initial: dict[str, Tensor] | None = None  # weights that training has to improve on

    @classmethod
    def up_to(
        cls,
        longest_jump: int,
        model: Model,
        validation: Sequences,
        seed: int = 0,
        context: int = 0,
        initial: dict[str, Tensor] | None = None,
    ) -> ForecastMonitor:
        """Forecasts with the δt of ``HORIZONS`` up to ``longest_jump``, from two starts, or after ``context`` steps.

        With ``context`` the sequences are windows at successive steps, which overlap. The fewer the sequences, the more
        starts they have for calibration, which chooses numbers for each δt.
        """
        count = min(len(validation), MOST_SEQUENCES)
        chosen = torch.arange(count) * len(validation) // count
        some = validation.select(chosen)
        shortest = int(some.lengths.min())
        blocks = chosen // longest_jump if context else None

        def starts(number: int) -> list[int]:
            shares = torch.linspace(*STARTS, number, dtype=torch.float64)
            return [context] if context else (shares * shortest).int().clamp(min=1).unique().tolist()

        more = min(MOST_STARTS, len(STARTS) * MOST_SEQUENCES // count)
        horizons = [dt for dt in HORIZONS if dt <= longest_jump]
        return cls(model, some, horizons, starts(len(STARTS)), starts(more), seed, blocks, initial)

    def forecasts(self, horizons: Sequence[int] | None = None) -> Iterator[ScoredForecast]:
        """δt, density, x and its mask of all forecasts that fit the sequences, with the same noise each time."""
        horizons = self.horizons if horizons is None else horizons
        return self._forecasts({dt: [dt] for dt in horizons}, self._beliefs(self.starts))

    def composed(self) -> Iterator[ScoredForecast]:
        """The same for forecasts that are composed of single steps."""
        steps = min(SINGLE_STEPS, max(self.horizons))
        return self._forecasts({steps: [1] * steps}, self._beliefs(self.starts[:1]))

    @torch.no_grad()
    def _beliefs(self, starts: Sequence[int]) -> dict[int, Belief]:
        """The beliefs after so many observations."""
        row = torch.arange(len(self.validation))
        origins = {start: Origins(row, torch.full_like(row, start), row) for start in starts}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.seed))
            return {start: beliefs_at(self.model, self.validation, at)[1] for start, at in origins.items()}

    @torch.no_grad()
    def _forecasts(self, jumps: dict[int, list[int]], beliefs: dict[int, Belief]) -> Iterator[ScoredForecast]:
        """``jumps`` has the jumps of a forecast by its δt."""
        shortest = int(self.validation.lengths.min())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.seed))
            for start, belief in beliefs.items():
                for dt in (dt for dt in jumps if start + dt <= shortest):
                    actions = self.validation.actions
                    of_jump = None if actions is None else actions[:, start : start + dt]
                    density = forecast(self.model, belief, jumps[dt], SAMPLES, of_jump)
                    yield dt, density, *self.validation.at(start + dt)

    def measure(self) -> dict[str, float]:
        """The mean NLL by δt, and their mean as the score. Without room for any forecast the loss remains the score."""
        nll: dict[int, list[float]] = {}
        for dt, density, x, observed in self.forecasts():
            nll.setdefault(dt, []).append(-float(density.log_prob(x, observed).mean()))
        means = {dt: sum(values) / len(values) for dt, values in nll.items()}
        named = {f"forecast/{dt}": value for dt, value in means.items()}
        return {**named, "score": sum(means.values()) / len(means)} if means else {}

    def finish(self) -> dict[str, float]:
        """Calibrate the best weights, or the initial ones if training did not improve on them clearly."""
        done: dict[str, float] = {}
        if self.initial is not None:
            improved = self._improved(self.initial)
            if not improved:
                self.model.load_state_dict(self.initial)
            done["improved"] = float(improved)
        beliefs = self._beliefs(self.calibration_starts)  # the scales do not change them

        def forecasts(horizons: Sequence[int]) -> Iterator[ScoredForecast]:
            return self._forecasts({dt: [dt] for dt in horizons}, beliefs)

        found = calibrate(self.model, self.horizons, forecasts, self.composed, self.blocks)
        numbers = {} if found is None else found.named()
        return done | {f"calibration/{name}": value for name, value in numbers.items()}

    def _improved(self, initial: dict[str, Tensor]) -> bool:
        """Whether training has improved the forecasts clearly."""
        trained = {name: value.clone() for name, value in self.model.state_dict().items()}
        after = self.scores()
        self.model.load_state_dict(initial)
        before = self.scores()
        self.model.load_state_dict(trained)
        return before is None or after is None or self.clearly_lower(after, before)

    def clearly_lower(self, scores: Tensor, than: Tensor) -> bool:
        """Whether one model's `scores` are lower than another's, by more than two standard errors of the difference."""
        blocks = torch.arange(len(scores)) if self.blocks is None else self.blocks
        difference, error = mean_and_error(scores - than, blocks)
        return difference < -CLEARLY * error

    def scores(self) -> Tensor | None:
        """The NLL of each sequence, averaged over its forecasts; None if no sequence is long enough for one."""
        scores = [-density.log_prob(x, observed) for _, density, x, observed in self.forecasts()]
        return torch.stack(scores).double().mean(0) if scores else None
