"""The switching oscillator (paper, section "Noisy harmonic oscillator", last paragraph): does the belief remember?

Two belief networks with the same LSTM, one trained by the TD-VAE loss and one to predict the next step, are asked just
before the last interval which of the first two frequencies was the larger one.
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
from tdvae.jumps import Bridging, Consecutive, Jumps, Mixture, Uniform, Widening
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
MOMENTS = 6  # of the separating interval at which the probe asks: where is it forgotten?
UNTOLD = 3  # steps of the last interval that say little yet about its frequency: no bridge ends there
ON_THE_WAY = "logistic"  # the probe that asks there
CODES_AT_ONCE = 500


@dataclass(frozen=True)
class Preset:
    """A grid of cells and how each is trained, the same for both methods."""

    train: TrainConfig  # its batch is for each run
    stages: tuple[tuple[int, int], ...]  # (interval, steps): the curriculum, of which a cell leaves out longer ones
    mixed: float = 0.5  # share of the steps with an interval drawn from all up to the stage's
    sizes: tuple[int, ...] = (10, 25, 50)
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
        if self.runs < 1:
            raise InputError(f"runs: expected at least 1, got {self.runs}")
        if self.probe not in PROBES:
            raise InputError(f"probe: expected one of {sorted(PROBES)}, got {self.probe!r}")


# What we found to learn, and why, is in docs/switching.md.
_TRAIN = TrainConfig(
    batch=16,
    pairs=12,
    learning_rate=0.01,
    schedule="cosine",
    warmup=50,
    clip=10.0,
    validate_every=360,
    checkpoint_every=360,
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
    "cpu": Preset(_TRAIN, stages=((5, 500), (10, 200), (20, 300), (40, 250), (70, 250), (100, 300))),
    # As far as the paper tells: no curriculum, long training.
    "paper": Preset(replace(_TRAIN, learning_rate=5e-4, schedule="constant"), stages=((100, 100_000),)),
}


@dataclass(frozen=True)
class Cell:
    """One size of the LSTM and one length of the separating interval."""

    size: int
    interval: int

    def __str__(self) -> str:
        return f"lstm={self.size},interval={self.interval}"

    @property
    def settings(self) -> SwitchingSettings:
        return SwitchingSettings(interval=self.interval)


def cells(preset: Preset) -> list[Cell]:
    """All of the grid, the dearest first: they decide when it is done."""
    every = [Cell(size, interval) for size in preset.sizes for interval in preset.intervals]
    return sorted(every, key=lambda cell: -(cell.size + 10) * (cell.interval + OPENING + LAST))


def config(method: str, size: int) -> RecurrentConfig:
    """Both methods' models, around one and the same LSTM."""
    lstm: dict[str, Any] = {"belief_network": "chrono_lstm", "belief": size, "memory": (1.0, 100.0)}
    if method == "tdvae":
        return TDVAEConfig(
            likelihood="first_components",
            sigma=0.1,
            latent=3,
            maps="residual",
            hidden=32,
            blocks=1,
            drift="turn",
            smoothing="product",
            log_sigma=-1.5,
            **lstm,
        )
    return NextStepConfig(decoder=(32, 32), predicts_sigma=True, **lstm)


def jumps() -> Jumps:
    """TD-VAE's pairs: short ones everywhere, and bridges from all over the separating interval into the last one."""
    short = Mixture((Consecutive(), Widening(Uniform(1, 6), start=1, until=0.25)), (0.8, 0.2))
    return Bridging(0.15, OPENING, LAST - UNTOLD, short, since=0.2)


def curriculum(preset: Preset, cell: Cell, seed: int) -> SwitchingCurriculum:
    """The cell's training sequences, a block for each step: the separating interval is lengthened stage by stage.

    A share of the steps draws a shorter one, so that what was learned is not lost. Stages with a longer interval than
    the cell's own last as long, with the cell's.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, STAGES))
    intervals: list[int] = []
    for interval, steps in preset.stages:
        longest = min(interval, cell.interval)
        shorter = torch.randint(1, longest + 1, (steps,), generator=generator)
        mixed = torch.rand(steps, generator=generator) < preset.mixed
        intervals += torch.where(mixed, shorter, longest).tolist()
    batch = preset.train.batch * preset.runs
    return SwitchingCurriculum(cell.settings, tuple(intervals), batch, derive_seed(seed, TRAIN) % 2**62)


def train(
    preset: Preset, cell: Cell, method: str, seed: int, run_dir: Path, resume: bool, progress: Progress
) -> FitResult:
    """All runs of a cell by one method, as a stack; the probe's accuracy is followed in metrics.jsonl."""
    stack = _stack(preset, cell, method, seed)
    data = curriculum(preset, cell, seed)
    steps = len(data.intervals)
    train = replace(preset.train, steps=steps, batch=data.block, shuffle=False, seed=seed)
    watched = Asked.draw(cell.settings, preset.watched_sequences, derive_seed(seed, WATCH))

    def watch() -> dict[str, float]:
        accuracy = watched.accuracy(stack.models(), preset.probe, [cell.settings.before_last])[0]
        return {f"accuracy/{run}": float(value) for run, value in enumerate(accuracy)}

    info = {"experiment": NAME, "cell": str(cell), "method": method}
    return fit(stack, data, jumps(), train, run_dir, None, resume, info, progress, watch)


def _stack(preset: Preset, cell: Cell, method: str, seed: int) -> Stack:
    learners = []
    for run in range(preset.runs):
        torch.manual_seed(derive_seed(seed, WEIGHTS, run))
        learners.append(Learner(build(config(method, cell.size)), METHODS[method]))
    return Stack(learners)


@dataclass(frozen=True, eq=False)
class Asked:
    """Sequences of a cell to fit a probe on, and as many others to test it on."""

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


def measure(preset: Preset, cell: Cell, method: str, seed: int, run_dir: Path) -> Measures:
    """Accuracies of every run of a finished stack: by each kind of probe just before the last interval; on the way."""
    models = load_stack(preset, cell, method, seed, run_dir)
    asked = Asked.draw(cell.settings, preset.probe_sequences, derive_seed(seed, PROBE))
    times = moments(cell)
    on_the_way = asked.accuracy(models, ON_THE_WAY, times)
    final = {kind: asked.accuracy(models, kind, times[-1:])[0].tolist() for kind in PROBES}
    return {"final": final, "on_the_way": {str(t): row.tolist() for t, row in zip(times, on_the_way, strict=True)}}


def load_stack(preset: Preset, cell: Cell, method: str, seed: int, run_dir: Path) -> list[Model]:
    """The models of a trained stack."""
    stack = _stack(preset, cell, method, seed)
    stack.load_state_dict(checkpoint.newest(run_dir / "checkpoints", "step")[0].tensors["weights"])
    return stack.models()


def moments(cell: Cell) -> list[int]:
    """When the probe asks: at the interval's begin, at even steps through it, and at its end."""
    return [OPENING + round(cell.interval * part / (MOMENTS - 1)) for part in range(MOMENTS)]


def bayes_accuracy(preset: Preset, seed: int) -> tuple[float, float]:
    """The best any belief can do, and the standard error of this estimate; the separating interval does not matter."""
    settings = SwitchingSettings(interval=1)
    record = simulate_switching(settings, preset.bayes_sequences, derive_seed(seed, BAYES))
    oracle = SwitchingOracle(settings, preset.bayes_grid)
    p = torch.cat([oracle.first_larger(part) for part in record.x.split(CODES_AT_ONCE)])
    right = ((p > 0.5) == record.first_larger).double()
    return float(right.mean()), float(right.std() / len(right) ** 0.5)


def learning_curve(run_dir: Path) -> tuple[list[int], list[list[float]]]:
    """Training steps, and at each the probe's accuracy of every run."""
    steps, accuracies = [], []
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "accuracy/0" in entry:
            steps.append(entry.pop("step"))
            accuracies.append(list(entry.values()))
    return steps, accuracies


TABLE = {
    "accuracy_tdvae": "TD-VAE",
    "accuracy_next_step": "next-step predictor",
    "accuracy_bayes": "exact inference (the limit)",
}


def gather(finished: dict[tuple[Cell, str], Measures], preset: Preset) -> list[Measures]:
    """The accuracies of each run, by measure and cell: what `report.results` summarises."""
    by_run: list[Measures] = []
    for run in range(preset.runs):
        measures: Measures = {}
        for (cell, method), measured in finished.items():
            for kind, accuracies in measured["final"].items():
                name = f"accuracy_{method}" if kind == preset.probe else f"accuracy_{method}_{kind}"
                measures.setdefault(name, {})[str(cell)] = accuracies[run]
            for t, accuracies in measured["on_the_way"].items():
                measures.setdefault(f"accuracy_{method}_at", {})[f"{cell},t={t}"] = accuracies[run]
        by_run.append(measures)
    return by_run


def limit(preset: Preset, seed: int) -> Measures:
    """The exact limit for every cell; its spread is the standard error, over the sequences it was measured on."""
    accuracy, error = bayes_accuracy(preset, seed)
    return {str(cell): {"mean": accuracy, "spread": error, "n": preset.bayes_sequences} for cell in cells(preset)}
