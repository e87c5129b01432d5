"""The moving MNIST experiment: for each seed one training with δt withheld, as in the paper, and one with δt given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tdvae.data.cache import data_folder
from tdvae.errors import InputError
from tdvae.jumps import Jumps, Uniform, Widening
from tdvae.models import LSTM, Bits, Model, ResidualMaps, TDVAEConfig, Unknown, Waves, build
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, flat
from tdvae.saved import SavedModel
from tdvae.storage import checkpoint
from tdvae.training import TrainConfig
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.experiment import (
    MUON,
    Experiment,
    ExperimentRuns,
    Task,
    TrainedRun,
    Training,
    by_seed,
    seeds_of,
    time_of,
)
from tdvae_paper.moving_mnist import mnist
from tdvae_paper.moving_mnist.measures import LONGEST, TEST, Classifier, classifier, evaluate
from tdvae_paper.moving_mnist.mnist import Digits
from tdvae_paper.moving_mnist.moving_digits import MovingSequences, draw_sequences, synthetic_digits

TRAIN, VALIDATION = 301, 302  # purposes of derived seeds
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


@dataclass(frozen=True)
class Preset:
    """All settings of a run except its seed and whether δt is given."""

    model: TDVAEConfig
    train: TrainConfig
    jumps: Jumps = field(default_factory=lambda: Widening(Uniform(1, LONGEST), start=1, until=0.35))
    synthetic: bool = False  # synthetic digits instead of MNIST: no download
    train_sequences: int = 200_000
    test_sequences: int = 1_000
    steps_given_dt: int | None = None  # training steps of the variant with δt given; by default as without
    samples: int = 50  # samples of the importance-sampled likelihood
    classifier_steps: int = 2_500
    seeds: tuple[int, ...] = (0,)


# App. D as printed: two ReLU layers before an LSTM and in the decoder, two layers of z, δt withheld.
_PAPER_MODEL = TDVAEConfig(
    event_shape=(28, 28),
    encoder=(784, 784),
    decoder=Bits((200, 200)),
    dt=Unknown(),
)
# docs/moving_mnist.md explains these choices.
_MODEL = TDVAEConfig(
    event_shape=(28, 28),
    encoder=(384, 128),
    decoder=Bits((384, 384)),
    belief=LSTM(128, input_skip=2),
    latent=16,
    maps=ResidualMaps(128, blocks=1),
    dt=Unknown(lengths=LONGEST, octaves=3),
    drift="rotation",
    posterior="product",
    init_log_sigma=-2.0,
)
_TRAIN = replace(MUON, batch_size=64, pairs=8)

PRESETS = {
    "smoke": Preset(
        replace(
            _MODEL,
            encoder=(24, 16),
            decoder=Bits((24, 24)),
            belief=LSTM(16, input_skip=2),
            latent=4,
            maps=ResidualMaps(16, blocks=1),
        ),
        replace(_TRAIN, steps=10, batch_size=8, pairs=2, validate_every=5, checkpoint_every=5, log_every=5),
        synthetic=True,
        train_sequences=80,
        test_sequences=20,
        samples=2,
        classifier_steps=10,
    ),
    "cpu": Preset(_MODEL, replace(_TRAIN, steps=3_600), steps_given_dt=900, seeds=(0, 1, 2)),
    "paper": Preset(
        _PAPER_MODEL, TrainConfig(steps=200_000, batch_size=512, pairs=1), Uniform(1, LONGEST), seeds=(0, 1, 2)
    ),
}


def digits_of(preset: Preset) -> tuple[Digits, Digits, Digits]:
    """Return disjoint training, validation and test digits."""
    if preset.synthetic:
        return synthetic_digits(500, 0), synthetic_digits(100, 1), synthetic_digits(100, 2)
    return mnist.splits(mnist.load())


def training_sequences(preset: Preset, seed: int) -> tuple[MovingSequences, MovingSequences]:
    """Return sequences for training and for validation."""
    train_digits, validation_digits, _ = digits_of(preset)
    data = draw_sequences(train_digits, preset.train_sequences, derive_seed(seed, TRAIN))
    return data, draw_sequences(validation_digits, 512, derive_seed(seed, VALIDATION))


def held_out(preset: Preset, seed: int) -> MovingSequences:
    """Return sequences of test digits."""
    return draw_sequences(digits_of(preset)[2], preset.test_sequences, derive_seed(seed, TEST))


def digit_classifier(preset: Preset) -> Classifier:
    """Load the digit classifier of a preset from the data cache. If there is none, train it on the training digits."""
    digits = "synthetic" if preset.synthetic else "mnist"
    name = f"classifier-{digits}-bits-{preset.classifier_steps}-steps-{checkpoint.FORMAT}"
    return classifier(data_folder("moving_mnist") / name, digits_of(preset)[0], preset.classifier_steps, seed=0)


class MovingMNISTRuns(ExperimentRuns):
    """Evaluates single runs on test digits."""

    def measure(self, found: SavedModel, seed: int) -> Measures:
        return _evaluate(PRESETS[found.info["preset"]], found.model, found.info["given_dt"], seed)

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]:
        return [flat(content["measures"], LABELS)]

    def held_out(self, found: SavedModel, seed: int) -> Sequences:
        raise InputError(
            "run: expected a model of numeric observations, got one of images; use tdvae.rollout in Python"
        )


class MovingMNIST(Experiment[Preset]):
    """Whether rollouts in jumps keep the digit and its direction."""

    name = "moving_mnist"
    title = "moving MNIST"
    presets = PRESETS
    runs = MovingMNISTRuns()

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
        info = {"given_dt": given}
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


def _evaluate(preset: Preset, model: Model, given_dt: bool, seed: int) -> Measures:
    """Compute all measures of one model on test digits."""
    return evaluate(model, held_out(preset, seed), digit_classifier(preset), preset.samples, given_dt, seed)


EXPERIMENT = MovingMNIST()
