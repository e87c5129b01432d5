"""The `Experiment` base class: presets, trainings, measures, tables and figures. `runner` runs any subclass."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy.typing as npt
from torch import Tensor

from tdvae.errors import InputError
from tdvae.jumps import Jumps
from tdvae.models import Model
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae.saved import SavedModel
from tdvae.storage import RunFolder
from tdvae.training import FitResult, Monitor, TrainConfig, fit
from tdvae.training.log import Progress
from tdvae.types import Sequences, SequenceSource
from tdvae_paper.stack import load_runs

# The training of moving MNIST, MiniPacman and the first-person experiment, whose presets change some fields
MUON = TrainConfig(
    optimizer="muon",
    muon_matrices="all",
    learning_rate=2e-3,
    muon_learning_rate=0.02,
    schedule="cosine",
    warmup=20,
    validate_every=500,
    checkpoint_every=500,
    accelerator="cpu",
)


class HasSeeds(Protocol):
    """The interface of presets that the runner needs: the seeds to train with."""

    @property
    def seeds(self) -> tuple[int, ...]: ...


P = TypeVar("P", bound=HasSeeds)
_NO_MEASURES: Measures = {}


@dataclass(frozen=True)
class Task:
    """One training with its own run folder. ``variant`` names what is trained if a preset has several trainings."""

    seed: int
    folder: str
    variant: str = ""


@dataclass(frozen=True)
class Training:
    """A call of `tdvae.fit`. The runner adds the run folder and the names of the experiment and its preset."""

    learner: Learner
    data: SequenceSource
    jumps: Jumps
    config: TrainConfig
    validation: SequenceSource | None = None
    info: dict[str, Any] = field(default_factory=dict)  # saved in the run beside these names
    monitor: Monitor | None = None

    def __call__(self, run_dir: Path, resume: bool, info: dict[str, Any], progress: Progress) -> FitResult:
        return fit(
            self.learner,
            self.data,
            self.jumps,
            self.config,
            run_dir,
            self.validation,
            resume,
            {**info, **self.info},
            progress,
            self.monitor,
        )


@dataclass(frozen=True)
class TrainedRun:
    """A finished task and its run folder."""

    task: Task
    folder: Path

    @property
    def models(self) -> list[Model]:
        """The trained models: one, or several if the task trained a stack."""
        return load_runs(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The entries of metrics.jsonl, logged during training, in order of the step."""
        return RunFolder(self.folder).read_metrics()


class ExperimentRuns(ABC):
    """How `tdvae eval` and `tdvae rollout` treat the runs of an experiment."""

    @abstractmethod
    def measure(self, found: SavedModel, seed: int) -> Measures:
        """Compute the measures of one saved run on held-out data."""

    @abstractmethod
    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        """The tables of these measures."""

    def details_of_run(self, content: dict[str, Any]) -> list[Block]:
        """Further tables, for --verbose."""
        return []

    def times(self, found: SavedModel, seed: int) -> Callable[[int], str] | None:
        """The text of a time step of the held-out sequence; None if the data have no time stamps."""
        return None

    @abstractmethod
    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        """One held-out sequence for a rollout."""

    def evaluate(self, found: SavedModel, seed: int, data: Path | None = None) -> Measures:
        if data is not None:
            raise InputError(f"--data: expected a run of `tdvae fit`, got {found.source} of {found.info['experiment']}")
        return self.measure(found, seed)

    def channels(self, found: SavedModel) -> Sequence[str]:
        """A name for each number of an observation."""
        return [f"x_{number}" for number in range(math.prod(found.model.config.event_shape))]

    def in_units(self, found: SavedModel, x: Tensor) -> npt.NDArray[Any]:
        """Convert observations of the model to the units of the data, which here are the same."""
        return x.double().numpy()


class Experiment(ABC, Generic[P]):
    """Base class of the experiments. Subclasses implement the abstract methods and override the others as needed.

    Instances have no state, because they are sent to other processes. A run depends only on its preset and task.
    """

    name: str  # used in the info of runs, and in results/NAME.json unless `results_name` is set
    results_name = ""  # name of the results file, if it is that of another experiment
    block = ""  # block of that file with the results of this experiment
    title: str  # heading of the printed tables
    presets: dict[str, P]
    published = "cpu"  # preset of the published results
    paper = _NO_MEASURES  # the paper's numbers, if it gives any
    runs: ExperimentRuns | None = None  # evaluates a single run; None if that needs other runs

    @property
    def file(self) -> str:
        """The file name of the results."""
        return f"{self.results_name or self.name}.json"

    def tasks(self, preset: P, seeds: list[int]) -> list[Task]:
        """The trainings of a preset, by default one per seed. Figures show the first one."""
        return [Task(seed, f"seed-{seed}") for seed in seeds]

    def prepare(self, preset: P) -> None:
        """Create data that the tasks share (recordings, classifiers) in the data cache, unless it exists."""

    @abstractmethod
    def training(self, preset: P, task: Task) -> Callable[..., FitResult]:
        """What trains a task: a `Training`, or a function of run_dir, resume, info and progress."""

    def measure(self, preset: P, task: Task, models: list[Model]) -> Measures:
        """Compute the measures of a finished task on held-out data, from its models."""
        raise NotImplementedError

    def measure_run(self, preset: P, run: TrainedRun) -> Measures:
        """Compute the measures of a finished task. By default from its models; override it to use the run folder."""
        return self.measure(preset, run.task, run.models)

    def combine(self, preset: P, measures: dict[Task, Measures]) -> list[Measures]:
        """The measures of each replicate; mean and spread are over these. By default a task is a replicate."""
        return list(measures.values())

    def complete(self, preset: P, content: dict[str, Any], replicates: list[Measures]) -> None:
        """Add to the results what is no mean over replicates, such as exact limits and the worst seed."""

    @abstractmethod
    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """The tables of the results by their name in the docs. They are printed in this order."""

    def made(self, content: dict[str, Any]) -> str:
        """The sentence below each table in the docs: the command, seeds and training time behind the numbers."""
        return f"`{content['command']}`, seeds {seeds_of(content)}: mean ± standard deviation; {time_of(content)}."

    def draw(self, preset: P, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        """Draw the figures into ``folder`` and return their paths. Subclasses import matplotlib only here."""
        return []


def by_seed(measures: dict[Task, Measures]) -> dict[int, dict[str, Measures]]:
    """Group the measures of tasks by seed, then by variant. For experiments where a replicate is one seed."""
    grouped: dict[int, dict[str, Measures]] = {}
    for task, task_measures in measures.items():
        grouped.setdefault(task.seed, {})[task.variant] = task_measures
    return grouped


def seeds_of(content: dict[str, Any]) -> str:
    return ", ".join(map(str, content["seeds"]))


def time_of(content: dict[str, Any]) -> str:
    """The training time as text. It is unknown for runs of earlier versions that were interrupted."""
    trainings = content["train_seconds"].values()
    known = [seconds for seconds in trainings if seconds is not None]
    which = "in all"
    if len(known) < len(trainings):
        which = f"for the {len(known)} of {len(trainings)} trainings whose time is known"
    return f"{sum(known) / 60:.0f} minutes of training {which}, at most {max(known) / 60:.0f} for one, on one core each"
