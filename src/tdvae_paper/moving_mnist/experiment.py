"""The moving MNIST experiment: for each seed one training with δt withheld, as in the paper, and one with δt given."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from tdvae.errors import InputError
from tdvae.models import Model, Waves, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, flat
from tdvae.saved import SavedModel
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.experiment import Experiment, Task, TrainedRun, Training, by_seed, seeds_of, time_of
from tdvae_paper.moving_mnist.measures import evaluate
from tdvae_paper.moving_mnist.presets import PRESETS, Preset
from tdvae_paper.moving_mnist.sequences import digit_classifier, held_out, training_sequences

WITHHELD, GIVEN = "", "dt"  # variants: whether the networks are given δt
COMPARED = ("direction_kept", "digit_kept", "nats_per_frame")  # measures reported for both variants
LABELS = {
    "direction_kept": "direction kept: none of six jumps goes the other way",
    "forward_jumps": "jumps that go the true way (the others stand still or go back)",
    "digit_kept": "digit kept after {} jumps",
    "classifier_accuracy": "the classifier on real test frames",
    "displacement_tv": "displacement per jump: total variation from uniform on 1 … 4",
    "displacement_law": "share of jumps that move {} pixels",
    "nats_per_frame": "nats per frame, {}",
    "exact_displacement": "with δt given: jumps of exactly δt",
    "direction_kept_given_dt": "with δt given: direction kept",
    "digit_kept_given_dt": "with δt given: digit kept after {} jumps",
    "nats_per_frame_given_dt": "with δt given: nats per frame, {}",
}


class MovingMNIST(Experiment[Preset]):
    """Whether rollouts in jumps keep the digit and its direction."""

    name = "moving_mnist"
    title = "moving MNIST"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        withheld = [Task(seed, f"seed-{seed}", WITHHELD) for seed in seeds]
        return [*withheld, *(Task(seed, f"seed-{seed}-dt", GIVEN) for seed in seeds)]

    def prepare(self, preset: Preset) -> None:
        digit_classifier(preset)

    def training(self, preset: Preset, task: Task) -> Training:
        data, validation = training_sequences(preset, task.seed)
        given = task.variant == GIVEN
        torch.manual_seed(derive_seed(task.seed))  # the initial weights
        model = build(replace(preset.model, dt=Waves(3)) if given else preset.model)
        steps = preset.steps_given_dt if given and preset.steps_given_dt else preset.train.steps
        config = replace(preset.train, steps=steps, seed=task.seed)
        info = {"frames": asdict(preset.frames), "given_dt": given}
        return Training(Learner(model), data, preset.jumps, config, validation, info)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        return _evaluate(preset, models[0], task.variant == GIVEN, task.seed)

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        """Return for each seed the measures of the paper's model (δt withheld), and some of the model with δt given."""
        replicates = []
        for variants in by_seed(measures).values():
            withheld, given = variants[WITHHELD], variants[GIVEN]
            compared = {f"{name}_given_dt": given[name] for name in COMPARED}
            replicates.append({**withheld, "exact_displacement": given["exact_displacement"], **compared})
        return replicates

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        return {self.name: [flat(content["measures"], LABELS)]}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`; seeds {seeds_of(content)}: mean ± standard deviation; {time_of(content)}. "
            "The paper shows pictures and gives no number."
        )

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.moving_mnist import figure

        model, seed = runs[0].models[0], runs[0].task.seed
        test, paths = held_out(preset, seed), [folder / "moving_mnist.png", folder / "moving_mnist.gif"]
        figure.draw(model, test, content["measures"], seed, paths[0])
        figure.animate(model, test, seed, paths[1])
        return paths

    def evaluate(self, found: SavedModel, seed: int) -> Measures:
        return _evaluate(PRESETS[found.info["preset"]], found.model, found.info["given_dt"], seed)

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        raise InputError(
            "run: expected a model of numeric observations, got one of images; use tdvae.rollout in Python"
        )


def _evaluate(preset: Preset, model: Model, given_dt: bool, seed: int) -> Measures:
    """Compute all measures of one model on test digits."""
    return evaluate(model, held_out(preset, seed), digit_classifier(preset), preset.samples, given_dt, seed)
