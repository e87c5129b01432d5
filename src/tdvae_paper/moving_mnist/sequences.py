"""Sequences of moving digits for training and evaluation, and the classifier of decoded frames."""

from __future__ import annotations

from tdvae.data.cache import data_folder
from tdvae.training.config import derive_seed
from tdvae_paper.moving_mnist import mnist
from tdvae_paper.moving_mnist.digits import Classifier, classifier
from tdvae_paper.moving_mnist.mnist import Digits
from tdvae_paper.moving_mnist.moving_digits import MovingSequences, draw_sequences, synthetic_digits
from tdvae_paper.moving_mnist.presets import Preset

TRAIN, VALIDATION, TEST = 301, 302, 303  # purposes of derived seeds


def digits_of(preset: Preset) -> tuple[Digits, Digits, Digits]:
    """Return disjoint training, validation and test digits."""
    if preset.synthetic:
        return synthetic_digits(500, 0), synthetic_digits(100, 1), synthetic_digits(100, 2)
    return mnist.splits(mnist.load())


def training_sequences(preset: Preset, seed: int) -> tuple[MovingSequences, MovingSequences]:
    """Return sequences for training and for validation."""
    train_digits, validation_digits, _ = digits_of(preset)
    data = draw_sequences(preset.frames, train_digits, preset.train_sequences, derive_seed(seed, TRAIN))
    return data, draw_sequences(preset.frames, validation_digits, 512, derive_seed(seed, VALIDATION))


def held_out(preset: Preset, seed: int) -> MovingSequences:
    """Return sequences of test digits."""
    return draw_sequences(preset.frames, digits_of(preset)[2], preset.test_sequences, derive_seed(seed, TEST))


def digit_classifier(preset: Preset) -> Classifier:
    """Load the digit classifier of a preset from the data cache. If there is none, train it on the training digits."""
    digits = "synthetic" if preset.synthetic else "mnist"
    kind = "bits" if preset.frames.binarised else "greys"
    folder = data_folder("moving_mnist") / f"classifier-{digits}-{kind}-{preset.classifier_steps}-steps"
    return classifier(folder, preset.frames, digits_of(preset)[0], preset.classifier_steps, seed=0)
