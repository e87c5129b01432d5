"""Trained models are good: the weights that ship with the package, and what a few seconds of training reach."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import tdvae
from tdvae import Learner, TDVAEConfig, TrainConfig, jumps
from tdvae.data import OscillatorSettings, from_arrays, simulate
from tdvae.exact import OscillatorOracle
from tdvae.likelihood import importance_log_prob
from tdvae.models import TDVAE, Coordinates, LinearRecurrence, Model, Readout, ResidualMaps, Waves, build
from tdvae_paper.moving_mnist.measures import roll
from tdvae_paper.moving_mnist.moving_digits import MovingSequences, draw_sequences, synthetic_digits

# The oscillator: the share of the information that exact inference gains over the marginal

N, START = 200, 60


def surprises(model: Model, settings: OscillatorSettings, x: Tensor, start: int, dt: int) -> tuple[Tensor, ...]:
    """-log p(x_{start + dt} | x_≤start) of each sequence under the model, exact inference and the marginal."""
    oracle, future = OscillatorOracle(settings), x[:, start + dt - 1]
    posterior = oracle.observe(x[:, :start])
    with torch.no_grad():
        predicted = tdvae.forecast(model, tdvae.belief_at(model, from_arrays(x), start), dt, samples=200)
        return (
            -predicted.log_prob(future).double(),
            -oracle.forecast(posterior, dt).log_prob(future.double())[:, 0],
            -oracle.marginal(start + dt - 1).log_prob(future.double())[:, 0],
        )


@pytest.mark.parametrize(
    ("dt", "share", "error"), [(1, 0.97, 0.01), (5, 0.96, 0.01), (20, 0.95, 0.015), (100, 0.8, 0.04)]
)
def test_the_shipped_oscillator_knows_nearly_all_that_can_be_known(dt: int, share: float, error: float) -> None:
    """On sequences that no training saw. 200 leave a standard error of at most ``error``, which is allowed for."""
    saved = tdvae.saved.load_saved("oscillator")
    settings = OscillatorSettings()
    assert saved.info["settings"]["length"] == settings.length
    model, bayes, marginal = surprises(saved.model, settings, simulate(settings, N, seed=987_654).x, START, dt)
    attainable = float((marginal - bayes).mean())
    assert attainable > 0.2
    # Model and exact inference are asked about the same sequences: only their difference is uncertain.
    assert float((model - bayes).std()) / math.sqrt(N) / attainable < error
    assert float((marginal - model).mean()) / attainable > share - error


def test_a_few_seconds_of_training_beat_the_marginal(tmp_path: Path) -> None:
    """The whole chain of data, loss, optimiser and forecast, judged by what it is for.

    The margin is more than ten standard errors. An untrained model is worse than the marginal, exact inference is
    1.8 nats better.
    """
    settings = OscillatorSettings(length=30)
    subject = build(
        TDVAEConfig(
            latent=4,
            drift="rotation",
            posterior="product",
            belief=LinearRecurrence(16, max_frequency=0.75),
            decoder=Coordinates(sigma=0.1),
            readout=Readout(24, hidden=32),
            maps=ResidualMaps(32, blocks=1),
            dt=Waves(3),
        )
    )
    test = simulate(settings, 300, seed=2).x
    before, bayes, marginal = (values.mean() for values in surprises(subject, settings, test, 25, dt=1))
    config = TrainConfig(steps=100, batch_size=32, pairs=8, learning_rate=0.01, adam_beta2=0.98, schedule="cosine")
    train = from_arrays(simulate(settings, 512, seed=1).x)
    tdvae.fit(Learner(subject), train, jumps.Uniform(1, 3), config, tmp_path / "run", progress="none")
    after = surprises(subject.eval(), settings, test, 25, dt=1)[0].mean()
    assert float(before - marginal) > 0
    assert float(marginal - after) > 0.5
    assert float(after - bayes) > 0  # as it must be: nothing beats exact inference


# Moving digits: drawn ones, since MNIST would have to be downloaded. The model was trained on MNIST.


@pytest.fixture(scope="module")
def moving() -> tuple[TDVAE, MovingSequences]:
    model = tdvae.load("moving_mnist")
    assert isinstance(model, TDVAE)
    return model, draw_sequences(synthetic_digits(100, seed=11), 100, seed=12)


def bits_surprise(x: Tensor, p: Tensor) -> float:
    """Nats per frame of bits x that are each 1 with probability p."""
    return float(-torch.where(x > 0.5, p.log(), (1 - p).log()).sum((-2, -1)).mean())


def test_the_shipped_moving_mnist_predicts_digits_it_never_saw(moving: tuple[TDVAE, MovingSequences]) -> None:
    """Frames in nats: at most half of what the better of two baselines needs, both fitted to the test frames.

    The baselines are each pixel's own rate, and the last frame that was seen with the best rate of errors.
    """
    model, test = moving
    sequences = test.select(torch.arange(len(test)))
    pairs = jumps.Uniform(1, 4).sample(sequences.lengths - 10, 4, torch.Generator().manual_seed(0))
    pairs = tdvae.Pairs(pairs.t1 + 10, pairs.t2 + 10)  # the direction is known, and the digit was seen
    with torch.no_grad():
        nats = -importance_log_prob(model, sequences, pairs, 10)
    rows = torch.arange(len(test))[:, None]
    future, last = sequences.x[rows, pairs.t2 - 1], sequences.x[rows, pairs.t1 - 1]
    kept = float((future == last).float().mean())
    pixels = bits_surprise(future, future.mean((0, 1)).clamp(0.001, 0.999))
    copied = bits_surprise(future, torch.where(last > 0.5, kept, 1 - kept))
    error = float(nats.mean(1).std()) / math.sqrt(len(test))
    assert float(nats.mean()) + 3 * error < 0.5 * min(pixels, copied)


def test_the_shipped_moving_mnist_rolls_digits_the_way_they_go(moving: tuple[TDVAE, MovingSequences]) -> None:
    """By 1 to 4 pixels in the true direction: standing still or going either way would reach half at most."""
    model, test = moving
    moved = roll(model, test, seen=13, given_dt=False).moved
    assert float(((moved >= 1) & (moved <= 4)).float().mean()) > 0.9
