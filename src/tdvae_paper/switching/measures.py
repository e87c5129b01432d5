"""Accuracy of probes that classify which of the first two frequencies was larger, and its exact limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tdvae.data import from_arrays
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.training.config import derive_seed
from tdvae_paper.probes import PROBES, probe
from tdvae_paper.switching.oracle import SwitchingOracle
from tdvae_paper.switching.simulation import OPENING, SwitchingRecord, SwitchingSettings, simulate_switching

FORGETTING_STEPS = (0, 5, 10, 20, 35, 50, 75, 100)  # steps into the separating interval that are also probed
BATCH_SIZE = 500


@dataclass(frozen=True, eq=False)
class ProbeData:
    """Sequences to fit a probe to, and as many others to test it on."""

    fit: SwitchingRecord
    test: SwitchingRecord

    @staticmethod
    def draw(settings: SwitchingSettings, n: int, seed: int) -> ProbeData:
        return ProbeData(*(simulate_switching(settings, n, derive_seed(seed, part)) for part in range(2)))

    def accuracy(self, models: list[Model], kind: str, times: list[int]) -> Tensor:
        """Return the accuracy of a probe of the belief at each time step, for every run: (times, runs)."""
        fit, test = (_codes(models, record, times) for record in (self.fit, self.test))
        labels = self.fit.first_larger, self.test.first_larger
        return torch.stack([probe(kind, a, labels[0], b, labels[1]) for a, b in zip(fit, test, strict=True)])


@torch.no_grad()
def _codes(models: list[Model], record: SwitchingRecord, times: list[int]) -> Tensor:
    """Return the belief codes (times, runs, n, B) at these time steps."""
    sequences = from_arrays(record.x).until(max(times))
    by_run = []
    for model in models:
        batches = torch.arange(len(sequences)).split(BATCH_SIZE)
        by_run.append(torch.cat([model.filter(sequences.select(rows)).codes[:, times] for rows in batches]))
    return torch.stack(by_run).permute(2, 0, 1, 3)


def measure(models: list[Model], intervals: Sequence[int], n: int, seed: int, forgetting_probe: str) -> Measures:
    """Return the accuracies of every run of a stack: for these intervals, and within the longest of them.

    ``n`` sequences fit each probe, and as many test it.
    """
    data = ProbeData.draw(SwitchingSettings(interval=max(intervals)), n, seed)
    grid: Measures = {}
    for kind in PROBES:
        rows = data.accuracy(models, kind, [OPENING + interval for interval in intervals]).tolist()
        grid[kind] = {str(interval): row for interval, row in zip(intervals, rows, strict=True)}
    times = forgetting_times(max(intervals))
    rows = data.accuracy(models, forgetting_probe, times).tolist()
    return {"grid": grid, "on_the_way": {str(t): row for t, row in zip(times, rows, strict=True)}}


def forgetting_times(interval: int) -> list[int]:
    """Return the time steps within the separating interval at which the belief is also probed."""
    return [OPENING + step for step in FORGETTING_STEPS if step <= interval]


def bayes_accuracy(n: int, frequencies: int, seed: int) -> tuple[float, float]:
    """Return the accuracy of exact inference and its standard error. It does not depend on the separating interval."""
    settings = SwitchingSettings(interval=1)
    record = simulate_switching(settings, n, seed)
    oracle = SwitchingOracle(settings, frequencies)
    p = torch.cat([oracle.first_larger(part) for part in record.x.split(BATCH_SIZE)])
    correct = ((p > 0.5) == record.first_larger).double()
    return float(correct.mean()), float(correct.std() / len(correct) ** 0.5)
