"""The oscillator experiment with its presets, and ablations of one preset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tdvae.data import OscillatorSettings, from_arrays
from tdvae.jumps import Consecutive, InTurn, Jumps, Mixture, SemiGradient, Widening, paper_mixture
from tdvae.models import (
    LSTM,
    Coordinates,
    GatedMaps,
    LinearRecurrence,
    Model,
    Number,
    Readout,
    ResidualMaps,
    TDVAEConfig,
    build,
)
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, by_key
from tdvae.saved import SavedModel
from tdvae.training import FitResult, TrainConfig
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.curriculum import curriculum as general_training
from tdvae_paper.experiment import Experiment, ExperimentRuns, Task, TrainedRun, Training, by_seed, seeds_of, time_of
from tdvae_paper.oscillator.measures import HORIZONS, TEST, TRAIN, VALIDATION, OscillatorMonitor, evaluate, record

SWITCH = 0.75  # fraction of the training before its last stage


def widening(until: float) -> Widening:
    """Jumps widen to the paper's distribution until the fraction ``until`` of the whole training."""
    return Widening(paper_mixture(), start=2, until=until / SWITCH)


def half_consecutive() -> Mixture:
    return Mixture((Consecutive(), paper_mixture()), (0.5, 0.5))


def curriculum(until: float) -> InTurn:
    """Widening jumps; in the last stage only consecutive pairs train the belief at t2 (docs/oscillator.md)."""
    return InTurn(widening(until), SemiGradient(half_consecutive()), SWITCH)


@dataclass(frozen=True)
class Preset:
    """All settings of a run except its seed."""

    model: TDVAEConfig
    train: TrainConfig
    jumps: Jumps
    settings: OscillatorSettings = field(default_factory=OscillatorSettings)
    train_sequences: int = 50_000
    test_sequences: int = 1_000
    seeds: tuple[int, ...] = (0,)


# App. D as printed: LSTM and D maps of size 50, two layers of 8, Adam 5e-4, q_S without b_t2, δt as a number.
_PAPER_MODEL = TDVAEConfig(decoder=Coordinates(), dt=Number(), smoothing_sees_b2=False)
# docs/oscillator.md explains these choices.
_MODEL = TDVAEConfig(
    decoder=Coordinates(sigma=0.1),
    belief=LinearRecurrence(64, max_frequency=0.75),
    readout=Readout(96),
    maps=ResidualMaps(96),
    drift="rotation",
    posterior="product",
)
_TRAIN = TrainConfig(
    optimizer="muon",
    learning_rate=2e-3,
    schedule="cosine",
    warmup=300,
    clip=1.0,
    validate_every=500,
    checkpoint_every=500,
    accelerator="cpu",
)

PRESETS = {
    "smoke": Preset(
        replace(
            _MODEL,
            belief=LinearRecurrence(16, max_frequency=0.75),
            readout=Readout(16, hidden=16),
            maps=ResidualMaps(16),
        ),
        replace(_TRAIN, steps=20, batch_size=8, pairs=4, validate_every=10, checkpoint_every=10, log_every=5),
        curriculum(until=0.34),
        train_sequences=64,
        test_sequences=32,
    ),
    "demo": Preset(_MODEL, replace(_TRAIN, steps=2_400), curriculum(until=0.34), test_sequences=500),
    "cpu": Preset(
        _MODEL,
        replace(_TRAIN, steps=4_000, learning_rate=1.4e-3, muon_learning_rate=7e-3),
        curriculum(until=0.25),
        seeds=tuple(range(10)),
    ),
    "paper": Preset(_PAPER_MODEL, TrainConfig(steps=200_000, batch_size=32, pairs=1), paper_mixture(), seeds=(0, 1, 2)),
}


LABELS = {
    "information_share": "share of attainable information",
    "information_share_worst": "… of the worst seed",
    "coverage_50": "coverage of the 50 % interval",
    "coverage_90": "coverage of the 90 % interval",
    "nll": "NLL, nats",
    "nll_bayes": "NLL of exact inference (the limit)",
    "nll_marginal": "NLL of knowing nothing",
    "frequency_error": "frequency error of rollouts, rad/step",
    "frequency_error_exact": "… of the exact posterior's rollouts",
    "amplitude_error": "amplitude error of rollouts",
    "amplitude_error_exact": "… of the exact posterior's rollouts",
}


class OscillatorRuns(ExperimentRuns):
    """Evaluates single runs, on the oscillator that they were trained on."""

    def measure(self, found: SavedModel, seed: int) -> Measures:
        return evaluate(found.model, settings_of(found), found.info["test_sequences"], seed)

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        return _table_and_meaning(content["measures"])

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        return from_arrays(record(settings_of(found), 1, seed, TEST).x)


def settings_of(found: SavedModel) -> OscillatorSettings:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.info["settings"].items()}
    return OscillatorSettings(**values)


def _table_and_meaning(measures: Measures) -> list[Block]:
    near, far = (measures["information_share"][str(dt)]["mean"] for dt in (HORIZONS[0], HORIZONS[-1]))
    return [
        by_key([(label, measures[name]) for name, label in LABELS.items() if name in measures], "δt = {}"),
        f"Of what the observations so far tell about the future, forecasts of one step use {near:.0%}, and one "
        f"jump of {HORIZONS[-1]} steps uses {far:.0%}: 100 % is exact inference, 0 % is to know nothing.",
    ]


class Oscillator(Experiment[Preset]):
    """Forecasts and rollouts of a noisy oscillator, compared with those of the Bayes-optimal forecaster."""

    name = "oscillator"
    title = "oscillator"
    presets = PRESETS
    runs = OscillatorRuns()

    def training(self, preset: Preset, task: Task) -> Training:
        validation_sequences = max(32, preset.train_sequences // 100)
        data = record(preset.settings, preset.train_sequences, task.seed, TRAIN)
        validation = record(preset.settings, validation_sequences, task.seed, VALIDATION)
        torch.manual_seed(derive_seed(task.seed))  # the initial weights
        model = build(preset.model)
        return Training(
            Learner(model),
            from_arrays(data.x),
            preset.jumps,
            replace(preset.train, seed=task.seed),
            from_arrays(validation.x),
            {"settings": asdict(preset.settings), "test_sequences": preset.test_sequences},
            OscillatorMonitor.watching(model, preset.settings, from_arrays(validation.x), task.seed),
        )

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        return evaluate(models[0], preset.settings, preset.test_sequences, task.seed)

    def complete(self, preset: Preset, content: dict[str, Any], replicates: list[Measures]) -> None:
        shares = [measures["information_share"] for measures in replicates]
        content["measures"]["information_share_worst"] = {
            dt: {"mean": min(share[dt] for share in shares), "spread": None, "n": len(shares)} for dt in shares[0]
        }

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        return {self.name: _table_and_meaning(content["measures"])}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`, seeds {seeds_of(content)}: mean ± standard deviation; {time_of(content)}. "
            f"The paper shows this experiment in a figure and gives no number."
        )

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.oscillator import figure

        path = folder / "oscillator.png"
        figure.draw(runs[0].models[0], preset.settings, runs[0].task.seed, content["measures"], path)
        return [path]


EXPERIMENT = Oscillator()


class DemoSeeds(Oscillator):
    """The preset of `make demo` with ten seeds: does it depend on luck?"""

    name = "oscillator_demo_seeds"
    title = "oscillator, the demo with several seeds"
    results_name = "oscillator"
    block = "demo_seeds"
    presets = {  # noqa: RUF012
        "smoke": replace(PRESETS["smoke"], seeds=(0, 1)),
        "demo": replace(PRESETS["demo"], seeds=tuple(range(10))),
    }
    published = "demo"

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        return []


# Ablations: the demo preset with one option changed at a time. Two more variants are trained by a general recipe,
# which is told nothing about the signal.

_DEMO = PRESETS["demo"]
_UNTIL = 0.34  # of the training: end of the widening in the preset "demo"


def _with_model(**changes: object) -> Preset:
    return replace(_DEMO, model=replace(_DEMO.model, **changes))  # type: ignore[arg-type]


VARIANTS = {
    "recipe": _DEMO,
    "app_d": replace(_DEMO, model=PRESETS["paper"].model, train=replace(_DEMO.train, optimizer="adam")),
    "lstm": _with_model(belief=LSTM(64)),
    "free_smoothing": _with_model(posterior="free"),
    "drift_stays": _with_model(drift="residual"),
    "no_drift": _with_model(drift="none"),
    "gated_maps": _with_model(maps=GatedMaps(96)),
    "dt_as_number": _with_model(dt=Number()),
    "learned_sigma": _with_model(decoder=Coordinates()),
    "adam": replace(_DEMO, train=replace(_DEMO.train, optimizer="adam")),
    "full_gradient": replace(_DEMO, jumps=InTurn(widening(_UNTIL), half_consecutive(), SWITCH)),
    "semi_gradient_only": replace(_DEMO, jumps=SemiGradient(Widening(half_consecutive(), start=2, until=_UNTIL))),
    "paper_jumps_only": replace(_DEMO, jumps=widening(_UNTIL)),
    "no_curriculum": replace(_DEMO, jumps=InTurn(paper_mixture(), SemiGradient(half_consecutive()), SWITCH)),
}
FITS: dict[str, dict[str, Any]] = {"fit": {}, "fit_latent": {"observed_state": False}}  # options of `curriculum`
LONGEST_JUMP = 120  # of these
REPORTED = {"information_share": "share at δt = {}", "coverage_90": "coverage of the 90 % interval"}


@dataclass(frozen=True)
class Variants:
    """The oscillator presets to compare."""

    variants: dict[str, Preset] = field(default_factory=lambda: VARIANTS)
    fits: dict[str, dict[str, Any]] = field(default_factory=lambda: FITS)
    fit_preset: Preset = _DEMO  # data and number of training steps of the fits
    seeds: tuple[int, ...] = (0,)


ABLATION_PRESETS = {"demo": Variants()}


class OscillatorAblations(Experiment[Variants]):
    """The oscillator experiment, run with each variant as its preset."""

    name = "oscillator_ablations"
    title = "oscillator, one change at a time"
    presets = ABLATION_PRESETS
    published = "demo"
    runs = EXPERIMENT.runs

    def tasks(self, preset: Variants, seeds: list[int]) -> list[Task]:
        return [Task(seed, variant, variant) for seed in seeds for variant in (*preset.variants, *preset.fits)]

    def training(self, preset: Variants, task: Task) -> Callable[..., FitResult]:
        if task.variant not in preset.fits:
            return EXPERIMENT.training(preset.variants[task.variant], task)
        made = EXPERIMENT.training(preset.fit_preset, task)
        assert made.validation is not None
        train, validation = (source.select(torch.arange(len(source))) for source in (made.data, made.validation))
        steps, options = preset.fit_preset.train.steps, preset.fits[task.variant]
        chosen = general_training(train, validation, LONGEST_JUMP, steps, task.seed, patience=0, **options)
        return replace(chosen, info=made.info)

    def measure(self, preset: Variants, task: Task, models: list[Model]) -> Measures:
        return EXPERIMENT.measure(preset.variants.get(task.variant, preset.fit_preset), task, models)

    def combine(self, preset: Variants, measures: dict[Task, Measures]) -> list[Measures]:
        """One measure per (measure, δt), nested by variant."""
        return [
            {
                f"{measure}_dt{dt}": {name: values[measure][str(dt)] for name, values in variants.items()}
                for measure in REPORTED
                for dt in HORIZONS
            }
            for variants in by_seed(measures).values()
        ]

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """A table with one row per variant: information shares and coverages by δt."""
        measures, horizons = content["measures"], " / ".join(map(str, HORIZONS))
        rows = []
        for variant, seconds in content["train_seconds"].items():
            row = [f"`{variant}`"]
            for measure in REPORTED:
                values = [measures[f"{measure}_dt{dt}"][variant]["mean"] for dt in HORIZONS]
                row.append(" / ".join(f"{round(value, 2) + 0:.2f}" for value in values))  # + 0 turns -0.00 into 0.00
            rows.append([*row, "" if seconds is None else f"{seconds / 60:.1f}"])
        columns = [label.format(horizons) for label in REPORTED.values()]
        return {self.name: [Table(["variant", *columns, "minutes"], rows)]}

    def made(self, content: dict[str, Any]) -> str:
        return f"`{content['command']}`, one seed each."


DEMO_SEEDS = DemoSeeds()
ABLATIONS = OscillatorAblations()
