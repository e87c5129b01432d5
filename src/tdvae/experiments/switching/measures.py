"""Which of the first two frequencies was larger: what probes read from beliefs, and the exact limit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.data import from_arrays
from tdvae.data.switching import OPENING, SwitchingRecord, SwitchingSettings, simulate_switching
from tdvae.exact import SwitchingOracle
from tdvae.experiments.shared.probes import PROBES, probe
from tdvae.experiments.switching.presets import BAYES, PROBE, Preset, longest
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.training.config import derive_seed

MOMENTS = (0, 5, 10, 20, 35, 50, 75, 100)  # steps into the separating interval: where is it forgotten?
MOMENTS_PROBE = "logistic"  # the kind of probe that is fitted there
CODES_AT_ONCE = 500


def probe_times(preset: Preset) -> list[int]:
    """After how many observations the probe asks, for the grid's intervals."""
    return [OPENING + interval for interval in preset.intervals]


@dataclass(frozen=True, eq=False)
class ProbeData:
    """Sequences to fit a probe on, and as many others to test it on."""

    fit: SwitchingRecord
    test: SwitchingRecord

    @staticmethod
    def draw(settings: SwitchingSettings, n: int, seed: int) -> ProbeData:
        return ProbeData(*(simulate_switching(settings, n, derive_seed(seed, part)) for part in range(2)))

    def accuracy(self, models: list[Model], kind: str, times: list[int]) -> Tensor:
        """How often a probe of the belief at each time tells which frequency was larger: (times, runs)."""
        fit, test = (_codes(models, record, times) for record in (self.fit, self.test))
        answers = self.fit.first_larger, self.test.first_larger
        return torch.stack([probe(kind, a, answers[0], b, answers[1]) for a, b in zip(fit, test, strict=True)])


@torch.no_grad()
def _codes(models: list[Model], record: SwitchingRecord, times: list[int]) -> Tensor:
    """Belief codes (times, runs, n, B) of the named times."""
    parts = from_arrays(record.x).until(max(times))
    of_runs = []
    for model in models:
        rows = torch.arange(len(parts)).split(CODES_AT_ONCE)
        of_runs.append(torch.cat([model.filter(parts.select(row)).codes[:, times] for row in rows]))
    return torch.stack(of_runs).permute(2, 0, 1, 3)


def measure(preset: Preset, models: list[Model], seed: int) -> Measures:
    """Accuracies of every run of a stack: by each kind of probe for the grid's intervals; and on the way there."""
    data = ProbeData.draw(longest(preset), preset.probe_sequences, derive_seed(seed, PROBE))
    grid: Measures = {}
    for kind in PROBES:
        rows = data.accuracy(models, kind, probe_times(preset)).tolist()
        grid[kind] = {str(interval): row for interval, row in zip(preset.intervals, rows, strict=True)}
    times = moments(preset)
    on_the_way = data.accuracy(models, MOMENTS_PROBE, times).tolist()
    return {"grid": grid, "on_the_way": {str(t): row for t, row in zip(times, on_the_way, strict=True)}}


def moments(preset: Preset) -> list[int]:
    """After how many observations the probe asks on the way."""
    return [OPENING + step for step in MOMENTS if step <= max(preset.intervals)]


def bayes_accuracy(preset: Preset, seed: int) -> tuple[float, float]:
    """The best any belief can do, and the standard error of this estimate; the separating interval does not matter."""
    settings = SwitchingSettings(interval=1)
    record = simulate_switching(settings, preset.bayes_sequences, derive_seed(seed, BAYES))
    oracle = SwitchingOracle(settings, preset.bayes_grid)
    p = torch.cat([oracle.first_larger(part) for part in record.x.split(CODES_AT_ONCE)])
    right = ((p > 0.5) == record.first_larger).double()
    return float(right.mean()), float(right.std() / len(right) ** 0.5)
