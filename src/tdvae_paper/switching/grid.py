"""What both experiments have in common: presets of a grid, stacks of runs, probes during training, names of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tdvae.errors import InputError
from tdvae.models import Coordinates, Gaussian, NextStepConfig, ResidualMaps, TDVAEConfig, build
from tdvae.models.config import RecurrentConfig
from tdvae.objectives import Learner, Objective
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Table, cell
from tdvae.training import Monitor, TrainConfig
from tdvae.training.config import derive_seed
from tdvae_paper.chrono_lstm import ChronoLSTM
from tdvae_paper.experiment import Experiment, time_of
from tdvae_paper.probes import PROBES
from tdvae_paper.stack import Stack
from tdvae_paper.switching.measures import ProbeData, bayes_accuracy
from tdvae_paper.switching.simulation import OPENING, SwitchingSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Purposes of derived seeds
WEIGHTS, TRAIN, STAGES, PROBE, WATCH, BAYES = 401, 402, 403, 404, 405, 406

DECODER = Gaussian((32, 32), noise="predicted")  # the predictor's head, and TD-VAE's p_D if it is a network


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of LSTM sizes and intervals and its training settings, the same for all methods."""

    train: TrainConfig  # batch_size is per run
    sizes: tuple[int, ...]
    intervals: tuple[int, ...]
    runs: int = 20
    probe: str = "mlp"  # kind of the main probe; the others are also reported
    probe_sequences: int = 2_000  # number of sequences to fit a probe to; as many others test it
    watched_sequences: int = 500  # the same, during training
    bayes_sequences: int = 4_000
    bayes_grid: int = 48
    seeds: tuple[int, ...] = (0,)  # of a whole grid; each of its runs has its own derived seed

    def __post_init__(self) -> None:
        for name in ("sizes", "intervals"):
            if not getattr(self, name):
                raise InputError(f"{name}: expected at least one entry, got none")
        if min(self.sizes) < 1 or min(self.intervals) < 1:
            raise InputError(f"sizes and intervals: expected at least 1, got {self.sizes} and {self.intervals}")
        if self.runs < 1:
            raise InputError(f"runs: expected at least 1, got {self.runs}")
        if self.probe not in PROBES:
            raise InputError(f"probe: expected one of {sorted(PROBES)}, got {self.probe!r}")


G = TypeVar("G", bound=Grid)


class GridExperiment(Experiment[G]):
    """A grid of cells, each with the accuracies of its methods and the exact limit. A replicate is one run."""

    def complete(self, preset: G, content: dict[str, Any], replicates: list[Measures]) -> None:
        content["measures"] |= exact_limit(preset, content["seeds"][0])

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`: mean ± standard deviation over {number_of_runs(content)} runs, whose weights, "
            f"data and noise differ; {time_of(content)}. The limit's ± is its standard error. The paper shows "
            "this experiment in a figure and gives no number."
        )


def table_of_cells(measures: dict[str, Any], labels: dict[str, str]) -> Table:
    """Return a table with one row per cell of the grid and one column per measure; ``labels`` are their headings."""
    rows = [
        [*map(str, parse_cell_name(name)), *(cell(measures[measure][name]) for measure in labels)]
        for name in sorted(measures["accuracy_next_step"], key=parse_cell_name)
    ]
    return Table(["LSTM", "interval", *labels.values()], rows)


def save_figure(figure: Figure, measures: Measures, path: Path, columns: int) -> None:
    """Add the exact limit and chance to every panel and a legend in so many columns, and write the figure."""
    limit = next(iter(measures["accuracy_bayes"].values()))["mean"]
    for panel in figure.axes:
        best = panel.axhline(limit, color="#333333", linestyle="--", lw=1)
        chance = panel.axhline(0.5, color="#999999", linestyle=":", lw=1)
        panel.set_ylim(0.45, 1.0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    names = [*labels, "exact inference", "chance"]
    figure.legend([*handles, best, chance], names, loc="outside lower center", ncols=columns, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


@dataclass(frozen=True)
class ProbeMonitor(Monitor):
    """Logs the accuracy of probes for every run of a stack, by interval."""

    stack: Stack
    data: ProbeData
    kind: str
    intervals: tuple[int, ...]

    def measure(self) -> dict[str, float]:
        rows = self.data.accuracy(self.stack.models(), self.kind, [OPENING + interval for interval in self.intervals])
        return {
            f"accuracy/{interval}/{run}": float(value)
            for interval, row in zip(self.intervals, rows, strict=True)
            for run, value in enumerate(row)
        }


def monitor_of(preset: Grid, stack: Stack, intervals: tuple[int, ...], seed: int) -> ProbeMonitor:
    """Return the monitor of a stack. Its sequences are not those of the final measures."""
    settings = SwitchingSettings(interval=max(intervals))
    data = ProbeData.draw(settings, preset.watched_sequences, derive_seed(seed, WATCH))
    return ProbeMonitor(stack, data, preset.probe, intervals)


def build_stack(config: RecurrentConfig, objective: Objective, runs: int, seed: int) -> Stack:
    """Return a stack of untrained runs."""
    learners = []
    for run in range(runs):
        torch.manual_seed(derive_seed(seed, WEIGHTS, run))
        learners.append(Learner(build(config), objective))
    return Stack(learners)


def tdvae_config(size: int) -> TDVAEConfig:
    """Return the config of TD-VAE with an LSTM of this size."""
    return TDVAEConfig(
        decoder=Coordinates(sigma=0.1),
        belief=_lstm(size),
        layers=1,
        latent=5,
        maps=ResidualMaps(32, blocks=1),
        drift="residual",
        posterior="product",
        smoothing_sees_b2=False,
        init_log_sigma=-1.5,
    )


def next_step_config(size: int) -> NextStepConfig:
    """Return the config of the next-step predictor with the same LSTM."""
    return NextStepConfig(decoder=DECODER, belief=_lstm(size))


def _lstm(size: int) -> ChronoLSTM:
    return ChronoLSTM(size, timescales=(1.0, 200.0))


def exact_limit(preset: Grid, seed: int) -> Measures:
    """Return the exact limit of every cell. Its spread is the standard error over the simulated sequences."""
    accuracy, error = bayes_accuracy(preset.bayes_sequences, preset.bayes_grid, derive_seed(seed, BAYES))
    entry = {"mean": accuracy, "spread": error, "n": preset.bayes_sequences}
    cells = [cell_name(size, interval) for size in preset.sizes for interval in preset.intervals]
    return {"accuracy_bayes": dict.fromkeys(cells, entry)}


def cell_name(size: int, interval: int) -> str:
    """Return the name of a cell of the grid."""
    return f"lstm={size},interval={interval}"


def parse_cell_name(name: str) -> tuple[int, int]:
    """Return the size and the interval in a cell's name."""
    size, interval = (int(part.split("=")[1]) for part in name.split(","))
    return size, interval


def learning_curve(metrics: Sequence[dict[str, Any]], interval: int) -> tuple[list[int], list[list[float]]]:
    """Return the logged training steps and, for each, the probe accuracy of every run."""
    steps, accuracies = [], []
    for entry in metrics:
        by_run = [value for name, value in entry.items() if name.startswith(f"accuracy/{interval}/")]
        if by_run:
            steps.append(entry["step"])
            accuracies.append(by_run)
    return steps, accuracies


def number_of_runs(content: dict[str, Any]) -> int:
    return int(next(iter(content["measures"]["accuracy_next_step"].values()))["n"])
