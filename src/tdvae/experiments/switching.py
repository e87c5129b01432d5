"""The switching oscillator (paper, section "Noisy harmonic oscillator", last paragraph): does the belief remember?

Two belief networks with the same LSTM, one trained by the TD-VAE loss and one to predict the next step, are asked just
before the last interval which of the first two frequencies was the larger one.

Both train on separating intervals of many lengths. What a belief has seen just before the last interval does not depend
on what comes after, so one training serves all intervals of the grid: the probe asks after 20 + interval observations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae.data import from_arrays
from tdvae.data.switching import (
    LAST,
    OPENING,
    SwitchingCurriculum,
    SwitchingRecord,
    SwitchingSettings,
    simulate_switching,
)
from tdvae.errors import InputError
from tdvae.exact import SwitchingOracle
from tdvae.experiments.probes import PROBES, probe
from tdvae.experiments.report import Measures
from tdvae.jumps import Around, Bridging, Consecutive, Jumps, Mixture, Uniform, Widening
from tdvae.models import Model, NextStepConfig, TDVAEConfig, build
from tdvae.models.config import RecurrentConfig
from tdvae.objectives import Learner, Objective, next_step_loss, tdvae_loss
from tdvae.stack import Stack
from tdvae.training import FitResult, TrainConfig, checkpoint, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress

NAME = "switching"
METHODS: dict[str, Objective] = {"tdvae": tdvae_loss, "next_step": next_step_loss}
WEIGHTS, TRAIN, STAGES, PROBE, WATCH, BAYES = 401, 402, 403, 404, 405, 406  # purposes of derived seeds
PAPER: Measures = {}  # the paper shows this experiment in a figure and gives no number
MOMENTS = (0, 5, 10, 20, 35, 50, 75, 100)  # steps into the separating interval: where is it forgotten?
UNTOLD = 3  # steps of the last interval that say little yet about its frequency: no bridge ends there
ON_THE_WAY = "logistic"  # the probe that asks there
CODES_AT_ONCE = 500


@dataclass(frozen=True)
class Preset:
    """A grid of cells and how each is trained, the same for both methods."""

    train: TrainConfig  # its batch is for each run
    stages: tuple[tuple[int, int], ...]  # (interval, steps): the curriculum
    mixed: float = 0.5  # share of the steps with an interval drawn from all up to the stage's
    sizes: tuple[int, ...] = (10, 40, 128)
    intervals: tuple[int, ...] = (20, 50, 100)
    runs: int = 20
    probe: str = "mlp"  # the headline; the others are reported beside it
    probe_sequences: int = 2_000  # to fit a probe; as many others to test it
    watched_sequences: int = 500  # the same, during training
    bayes_sequences: int = 4_000
    bayes_grid: int = 48

    def __post_init__(self) -> None:
        for name in ("sizes", "intervals", "stages"):
            if not getattr(self, name):
                raise InputError(f"{name}: expected at least one, got none: the grid would be empty")
        if min(self.sizes) < 1 or min(self.intervals) < 1:
            raise InputError(f"sizes and intervals: expected at least 1, got {self.sizes} and {self.intervals}")
        if max(self.intervals) > max(interval for interval, _ in self.stages):
            raise InputError(f"intervals: got {self.intervals}, but no stage of the curriculum is as long")
        if self.runs < 1:
            raise InputError(f"runs: expected at least 1, got {self.runs}")
        if self.probe not in PROBES:
            raise InputError(f"probe: expected one of {sorted(PROBES)}, got {self.probe!r}")


# What we found to learn, and why, is in docs/switching.md.
_TRAIN = TrainConfig(
    batch=32,
    pairs=32,
    learning_rate=5e-3,
    adam_beta2=0.99,
    schedule="cosine",
    warmup=50,
    clip=10.0,
    validate_every=500,
    checkpoint_every=500,
    accelerator="cpu",
)

PRESETS = {
    "smoke": Preset(
        replace(_TRAIN, batch=4, pairs=4, validate_every=3, checkpoint_every=3, log_every=3),
        stages=((2, 3), (4, 3)),
        sizes=(4, 6),
        intervals=(2, 4),
        runs=2,
        probe="logistic",
        probe_sequences=60,
        watched_sequences=40,
        bayes_sequences=50,
        bayes_grid=8,
    ),
    "cpu": Preset(
        _TRAIN,
        stages=((5, 1200), (8, 400), (12, 500), (18, 500), (27, 500), (40, 600), (60, 600), (80, 500), (100, 700)),
    ),
    # As far as the paper tells: no curriculum, long training.
    "paper": Preset(replace(_TRAIN, learning_rate=5e-4, schedule="constant"), stages=((100, 100_000),)),
}


def cell(size: int, interval: int) -> str:
    """The name of a cell of the grid."""
    return f"lstm={size},interval={interval}"


def asked_at(preset: Preset) -> list[int]:
    """After how many observations the probe asks, for the grid's intervals."""
    return [OPENING + interval for interval in preset.intervals]


def longest(preset: Preset) -> SwitchingSettings:
    return SwitchingSettings(interval=max(preset.intervals))


def config(method: str, size: int) -> RecurrentConfig:
    """Both methods' models, around one and the same LSTM."""
    lstm: dict[str, Any] = {"belief_network": "chrono_lstm", "belief": size, "memory": (1.0, 200.0)}
    if method == "tdvae":
        return TDVAEConfig(
            likelihood="first_components",
            noise=0.1,
            layers=1,
            latent=5,
            maps="residual",
            hidden=32,
            blocks=1,
            drift="stay",
            smoothing="product",
            smoothing_sees_b2=False,
            log_sigma=-1.5,
            **lstm,
        )
    return NextStepConfig(decoder=(32, 32), noise="predicted", **lstm)


def jumps() -> Jumps:
    """TD-VAE's pairs: short ones, many of them around the last switch, and a few bridges into the last interval."""
    short = Mixture((Consecutive(), Widening(Uniform(1, 6), start=1, until=0.25)), (0.8, 0.2))
    return Bridging(0.06, OPENING, LAST - UNTOLD, Around(0.4, LAST, 5, short), since=0.05)


def curriculum(preset: Preset, seed: int) -> SwitchingCurriculum:
    """The training sequences, a block for each step: the separating interval is lengthened stage by stage.

    A share of the steps draws a shorter one, so that what was learned is not lost.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, STAGES))
    intervals: list[int] = []
    for interval, steps in preset.stages:
        shorter = torch.randint(1, interval + 1, (steps,), generator=generator)
        mixed = torch.rand(steps, generator=generator) < preset.mixed
        intervals += torch.where(mixed, shorter, interval).tolist()
    batch = preset.train.batch * preset.runs
    return SwitchingCurriculum(longest(preset), tuple(intervals), batch, derive_seed(seed, TRAIN) % 2**62)


def train(
    preset: Preset, size: int, method: str, seed: int, run_dir: Path, resume: bool, progress: Progress
) -> FitResult:
    """All runs of one size and method, as a stack; the probe's accuracies are followed in metrics.jsonl."""
    stack = _stack(preset, size, method, seed)
    data = curriculum(preset, seed)
    steps = len(data.intervals)
    train = replace(preset.train, steps=steps, batch=data.block, shuffle=False, seed=seed)
    watched = Asked.draw(longest(preset), preset.watched_sequences, derive_seed(seed, WATCH))

    def watch() -> dict[str, float]:
        rows = watched.accuracy(stack.models(), preset.probe, asked_at(preset))
        return {
            f"accuracy/{interval}/{run}": float(value)
            for interval, row in zip(preset.intervals, rows, strict=True)
            for run, value in enumerate(row)
        }

    info = {"experiment": NAME, "size": size, "method": method}
    return fit(stack, data, jumps(), train, run_dir, None, resume, info, progress, watch)


def _stack(preset: Preset, size: int, method: str, seed: int) -> Stack:
    learners = []
    for run in range(preset.runs):
        torch.manual_seed(derive_seed(seed, WEIGHTS, run))
        learners.append(Learner(build(config(method, size)), METHODS[method]))
    return Stack(learners)


@dataclass(frozen=True, eq=False)
class Asked:
    """Sequences to fit a probe on, and as many others to test it on."""

    fit: SwitchingRecord
    test: SwitchingRecord

    @staticmethod
    def draw(settings: SwitchingSettings, n: int, seed: int) -> Asked:
        return Asked(*(simulate_switching(settings, n, derive_seed(seed, part)) for part in range(2)))

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


def measure(preset: Preset, size: int, method: str, seed: int, run_dir: Path) -> Measures:
    """Accuracies of every run of a finished stack: by each kind of probe for the grid's intervals; and on the way."""
    models = load_stack(preset, size, method, seed, run_dir)
    asked = Asked.draw(longest(preset), preset.probe_sequences, derive_seed(seed, PROBE))
    grid: Measures = {}
    for kind in PROBES:
        rows = asked.accuracy(models, kind, asked_at(preset)).tolist()
        grid[kind] = {str(interval): row for interval, row in zip(preset.intervals, rows, strict=True)}
    times = moments(preset)
    on_the_way = asked.accuracy(models, ON_THE_WAY, times).tolist()
    return {"grid": grid, "on_the_way": {str(t): row for t, row in zip(times, on_the_way, strict=True)}}


def load_stack(preset: Preset, size: int, method: str, seed: int, run_dir: Path) -> list[Model]:
    """The models of a trained stack."""
    stack = _stack(preset, size, method, seed)
    stack.load_state_dict(checkpoint.newest(run_dir / "checkpoints", "step")[0].tensors["weights"])
    return stack.models()


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


def learning_curve(run_dir: Path, interval: int) -> tuple[list[int], list[list[float]]]:
    """Training steps, and at each the probe's accuracy of every run."""
    steps, accuracies = [], []
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        of_runs = [value for name, value in entry.items() if name.startswith(f"accuracy/{interval}/")]
        if of_runs:
            steps.append(entry["step"])
            accuracies.append(of_runs)
    return steps, accuracies


TABLE = {
    "accuracy_tdvae": "TD-VAE",
    "accuracy_next_step": "next-step predictor",
    "accuracy_bayes": "exact inference (the limit)",
}


def gather(finished: dict[tuple[int, str], Measures], preset: Preset) -> list[Measures]:
    """The accuracies of each run, by measure and cell: what `report.results` summarises."""
    by_run: list[Measures] = []
    for run in range(preset.runs):
        measures: Measures = {}
        for (size, method), measured in finished.items():
            for kind, by_interval in measured["grid"].items():
                name = f"accuracy_{method}" if kind == preset.probe else f"accuracy_{method}_{kind}"
                for interval, accuracies in by_interval.items():
                    measures.setdefault(name, {})[cell(size, int(interval))] = accuracies[run]
            for t, accuracies in measured["on_the_way"].items():
                measures.setdefault(f"accuracy_{method}_at", {})[f"lstm={size},t={t}"] = accuracies[run]
        by_run.append(measures)
    return by_run


def limit(preset: Preset, seed: int) -> Measures:
    """The exact limit for every cell; its spread is the standard error, over the sequences it was measured on."""
    accuracy, error = bayes_accuracy(preset, seed)
    entry = {"mean": accuracy, "spread": error, "n": preset.bayes_sequences}
    return {cell(size, interval): entry for size in preset.sizes for interval in preset.intervals}
