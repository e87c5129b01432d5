"""What an experiment is: its presets, trainings, measures, tables and figures. The runner does the rest."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tdvae import saved
from tdvae.errors import InputError
from tdvae.jumps import Jumps
from tdvae.models import Model
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae.saved import SavedModel
from tdvae.training import TrainConfig
from tdvae.training.loop import Watch
from tdvae.types import Sequences, SequenceSource


class HasSeeds(Protocol):
    """All that the runner needs to know about a preset: the seeds that it is trained with."""

    @property
    def seeds(self) -> tuple[int, ...]: ...


P = TypeVar("P", bound=HasSeeds)
_NO_NUMBERS: Measures = {}


@dataclass(frozen=True)
class Task:
    """One training, in a folder of its own. ``variant`` says what is trained, where that is not only the preset."""

    seed: int
    folder: str
    variant: str = ""
    label: str = ""  # in the results' ``train_seconds``; empty: the folder's name

    @property
    def name(self) -> str:
        return self.label or self.folder


@dataclass(frozen=True)
class Training:
    """The arguments of `tdvae.fit` that an experiment chooses."""

    learner: Learner
    data: SequenceSource
    jumps: Jumps
    config: TrainConfig
    validation: SequenceSource | None = None
    info: dict[str, Any] = field(default_factory=dict)  # kept in the run, beside the experiment's and preset's names
    watch: Watch | None = None


@dataclass(frozen=True)
class TrainedRun:
    """A finished task."""

    task: Task
    folder: Path

    @property
    def models(self) -> list[Model]:
        """The trained models: one, or those of a stack."""
        return saved.load_runs(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The entries of metrics.jsonl: what was logged during training, by step."""
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]


class Experiment(ABC, Generic[P]):
    """One of the paper's experiments. Subclasses implement what differs between experiments.

    Objects have no state, since they are sent to other processes; what a run depends on is in its preset and task.
    """

    name: str  # in the info of runs, and of results/NAME.json unless `results_name` differs
    results_name = ""  # the results file, if it is another experiment's
    block = ""  # the block of that file that holds this experiment's results
    title: str  # heads the tables
    presets: dict[str, P]
    published = "cpu"  # the preset of our published results
    paper = _NO_NUMBERS  # the paper's, where it gives any
    rollout_options = ""  # of a `tdvae rollout` that shows something

    @property
    def file(self) -> str:
        """The name of the results file."""
        return f"{self.results_name or self.name}.json"

    @abstractmethod
    def tasks(self, preset: P, seeds: list[int]) -> list[Task]:
        """The trainings of a preset; the first is the one that figures show."""

    def prepare(self, preset: P) -> None:
        """Make what tasks share (recordings, classifiers) in the data cache, unless it is there."""

    @abstractmethod
    def training(self, preset: P, task: Task) -> Training:
        """What a task trains, and on what."""

    @abstractmethod
    def measure(self, preset: P, task: Task, models: list[Model]) -> Measures:
        """The measures of a finished task, on held-out data."""

    def combine(self, preset: P, measures: dict[Task, Measures]) -> list[Measures]:
        """The measures of each replicate, of which mean and spread are reported. By default a task is a replicate."""
        return list(measures.values())

    def constants(self, preset: P, seeds: list[int]) -> Measures:
        """Summarised measures that are of no training, such as exact limits."""
        return {}

    def extras(self, preset: P) -> dict[str, Any]:
        """Further entries of the results."""
        return {}

    @abstractmethod
    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """The tables of results, by the name of their place in the docs; printed in this order."""

    def made(self, content: dict[str, Any]) -> str:
        """How the numbers were made: the sentence below each table in the docs."""
        return f"`{content['command']}`, seeds {seeds_of(content)}: mean ± standard deviation; {time_of(content)}."

    def heading(self, content: dict[str, Any]) -> str:
        """The heading of printed tables."""
        return f"{self.title}, preset {content['preset']}, {len(content['seeds'])} seed(s)"

    def draw(self, preset: P, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        """Draw the figures into ``folder`` and return their files. Matplotlib is only imported here."""
        return []

    def evaluate(self, found: SavedModel, seed: int) -> Measures:
        """The measures of one saved run, for `tdvae eval`."""
        raise InputError(self._refusal(found))

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        """The tables of what `evaluate` measures; by default those of the results."""
        return [block for blocks in self.tables(content).values() for block in blocks]

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        """One sequence that a saved run was not trained on, for `tdvae rollout`."""
        raise InputError(self._refusal(found))

    def _refusal(self, found: SavedModel) -> str:
        command = f"tdvae run {self.name.replace('_', '-')}"
        return f"run: {found.source} is one of {self.name}'s, which `{command}` measures; tdvae.load opens it"


def by_seed(measures: dict[Task, Measures]) -> dict[int, dict[str, Measures]]:
    """The measures of tasks by seed and then by variant: where the variants of a seed are one replicate."""
    found: dict[int, dict[str, Measures]] = {}
    for task, of_task in measures.items():
        found.setdefault(task.seed, {})[task.variant] = of_task
    return found


def seeds_of(content: dict[str, Any]) -> str:
    return ", ".join(map(str, content["seeds"]))


def time_of(content: dict[str, Any]) -> str:
    """How long training took, as far as it is known: older runs that were interrupted did not count."""
    trainings = content["train_seconds"].values()
    known = [seconds for seconds in trainings if seconds is not None]
    which = "in all"
    if len(known) < len(trainings):
        which = f"for the {len(known)} of {len(trainings)} trainings whose time is known"
    return f"{sum(known) / 60:.0f} minutes of training {which}, at most {max(known) / 60:.0f} for one, on one core each"
