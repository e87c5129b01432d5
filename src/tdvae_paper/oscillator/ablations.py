"""Ablations of the oscillator experiment: the demo preset with one option changed at a time.

Two more variants are trained by a general recipe, which is told nothing about the signal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tdvae.jumps import InTurn, SemiGradient, Widening, paper_mixture
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table
from tdvae.saved import SavedModel
from tdvae.types import Sequences
from tdvae_paper.curriculum import curriculum
from tdvae_paper.experiment import Experiment, Task, Training, by_seed
from tdvae_paper.oscillator.experiment import Oscillator
from tdvae_paper.oscillator.measures import HORIZONS
from tdvae_paper.oscillator.presets import PRESETS, SWITCH, Preset, half_consecutive, widening

_BASE = PRESETS["demo"]
_UNTIL = 0.34  # of the training: end of the widening in the preset "demo"


def _with_model(**changes: object) -> Preset:
    return replace(_BASE, model=replace(_BASE.model, **changes))  # type: ignore[arg-type]


VARIANTS = {
    "recipe": _BASE,
    "app_d": replace(_BASE, model=PRESETS["paper"].model, train=replace(_BASE.train, optimizer="adam")),
    "lstm": _with_model(belief_network="lstm", belief=64),
    "free_smoothing": _with_model(posterior="free"),
    "drift_stays": _with_model(drift="residual"),
    "no_drift": _with_model(drift="none"),
    "gated_maps": _with_model(maps="gated"),
    "dt_as_number": _with_model(dt="number"),
    "learned_sigma": _with_model(noise="learned"),
    "adam": replace(_BASE, train=replace(_BASE.train, optimizer="adam")),
    "full_gradient": replace(_BASE, jumps=InTurn(widening(_UNTIL), half_consecutive(), SWITCH)),
    "semi_gradient_only": replace(_BASE, jumps=SemiGradient(Widening(half_consecutive(), start=2, until=_UNTIL))),
    "paper_jumps_only": replace(_BASE, jumps=widening(_UNTIL)),
    "no_curriculum": replace(_BASE, jumps=InTurn(paper_mixture(), SemiGradient(half_consecutive()), SWITCH)),
}
FITS: dict[str, dict[str, Any]] = {"fit": {}, "fit_latent": {"observed_state": False}}  # options of `curriculum`
LONGEST_JUMP = 120  # of these
REPORTED = {"information_share": "share at δt = {}", "coverage_90": "coverage of the 90 % interval"}


@dataclass(frozen=True)
class Variants:
    """The oscillator presets to compare."""

    variants: dict[str, Preset] = field(default_factory=lambda: VARIANTS)
    fits: dict[str, dict[str, Any]] = field(default_factory=lambda: FITS)
    fit_preset: Preset = _BASE  # data and number of training steps of the fits
    seeds: tuple[int, ...] = (0,)


ABLATION_PRESETS = {"demo": Variants()}
_OSCILLATOR = Oscillator()


class OscillatorAblations(Experiment[Variants]):
    """The oscillator experiment, run with each variant as its preset."""

    name = "oscillator_ablations"
    title = "oscillator"
    presets = ABLATION_PRESETS
    published = "demo"

    def tasks(self, preset: Variants, seeds: list[int]) -> list[Task]:
        return [Task(seed, variant, variant) for seed in seeds for variant in (*preset.variants, *preset.fits)]

    def training(self, preset: Variants, task: Task) -> Training:
        if task.variant not in preset.fits:
            return _OSCILLATOR.training(preset.variants[task.variant], task)
        made = _OSCILLATOR.training(preset.fit_preset, task)
        assert made.validation is not None
        train, validation = (source.select(torch.arange(len(source))) for source in (made.data, made.validation))
        steps, options = preset.fit_preset.train.steps, preset.fits[task.variant]
        return replace(
            curriculum(train, validation, LONGEST_JUMP, steps, task.seed, patience=0, **options), info=made.info
        )

    def measure(self, preset: Variants, task: Task, models: list[Model]) -> Measures:
        return _OSCILLATOR.measure(preset.variants.get(task.variant, preset.fit_preset), task, models)

    def combine(self, preset: Variants, measures: dict[Task, Measures]) -> list[Measures]:
        """Return one measure per (measure, δt), nested by variant."""
        return [
            {
                f"{measure}_dt{dt}": {name: values[measure][str(dt)] for name, values in variants.items()}
                for measure in REPORTED
                for dt in HORIZONS
            }
            for variants in by_seed(measures).values()
        ]

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        """Return a table with one row per variant: information shares and coverages by δt."""
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

    def heading(self, content: dict[str, Any]) -> str:
        return "oscillator: one change at a time"

    def evaluate(self, found: SavedModel, seed: int) -> Measures:
        return _OSCILLATOR.evaluate(found, seed)

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        return _OSCILLATOR.tables_of_run(content)

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        return _OSCILLATOR.held_out(found, seed)
