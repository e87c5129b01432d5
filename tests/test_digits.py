"""Tests of the digit classifier and the registration of frames, on frames with known answers."""

from __future__ import annotations

from pathlib import Path

import torch

from tdvae_paper.moving_mnist.measures import Classifier, classifier, displacement, register
from tdvae_paper.moving_mnist.moving_digits import draw_sequences, synthetic_digits


def test_registration_is_exact_on_real_frames() -> None:
    moving = draw_sequences(synthetic_digits(50, 0), 80, 1, length=6)
    rows = torch.arange(80)
    frames = moving.select(rows).x.transpose(0, 1)  # (T, N, 28, 28)
    shifts = register(frames, moving.still(rows))
    assert torch.equal(shifts, moving.shift(rows).T)
    assert torch.equal(displacement(shifts), moving.direction.expand(5, 80))


def test_registration_with_noise_and_low_contrast() -> None:
    torch.manual_seed(0)
    moving = draw_sequences(synthetic_digits(50, 0), 80, 1, length=6)
    rows = torch.arange(80)
    frames = moving.select(rows).x.transpose(0, 1)
    found = register(0.6 * frames + 0.2 * torch.rand_like(frames), moving.still(rows))
    assert (found == moving.shift(rows).T).float().mean() > 0.99


def test_displacement_is_the_shortest_circular_one() -> None:
    shifts = torch.tensor([[0, 27, 3, 0], [27, 1, 0, 14]])
    assert displacement(shifts).tolist() == [[-1, 2, -3, 14]]


def test_classifier_features_are_circular() -> None:
    """A circular shift by the stride shifts the features, also for a digit that wraps around the border."""
    torch.manual_seed(0)
    network, frames = Classifier().eval(), torch.rand(3, 28, 28)
    features = network.first(torch.nn.functional.pad(frames[:, None], (2, 2, 0, 0), mode="circular"))
    moved = torch.nn.functional.pad(frames.roll(2, -1)[:, None], (2, 2, 0, 0), mode="circular")
    torch.testing.assert_close(network.first(moved), features.roll(1, -1))


def test_classifier_is_trained_once_and_then_loaded(tmp_path: Path) -> None:
    digits = synthetic_digits(500, 0)
    network = classifier(tmp_path / "classifier", digits, steps=60, seed=0)
    fresh = draw_sequences(synthetic_digits(200, 9), 200, 4, length=6)
    rows = torch.arange(200)
    correct = network.predict(fresh.select(rows).x) == fresh.labels[:, None]
    assert correct.float().mean() > 0.9
    again = classifier(tmp_path / "classifier", digits, steps=60, seed=5)
    for name, value in network.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
