"""Tests of tdvae_paper.moving_mnist.moving_digits: frames, random draws, invalid input and synthetic digits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from tdvae import InputError
from tdvae.types import SequenceSource
from tdvae_paper.moving_mnist.mnist import Digits
from tdvae_paper.moving_mnist.moving_digits import MovingSequences, draw_sequences, synthetic_digits

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def digits() -> Digits:
    return synthetic_digits(50, seed=0)


def all_indices(n: int) -> Tensor:
    return torch.arange(n)


# Frames


@given(start=st.integers(0, 27), direction=st.sampled_from([-1, 1]), length=st.integers(1, 60))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=40)
def test_frames_are_the_image_rolled_by_one_pixel_per_step(start: int, direction: int, length: int) -> None:
    images = torch.randint(256, (3, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(start))
    image_index = torch.tensor([2, 0])
    source = MovingSequences(
        Digits(images, torch.arange(3)),
        image_index,
        torch.tensor([start, 5]),
        torch.tensor([direction, 1]),
        length,
    )
    (frames,) = source.select(torch.tensor([0])).x
    image = (images[2].float() / 255 > 0.5).float()
    assert torch.equal(source.still(torch.tensor([0]))[0], image)
    for t in range(length):
        assert torch.equal(frames[t], image.roll(start + direction * t, dims=-1))
        assert source.shift(torch.tensor([0]))[0, t] == (start + direction * t) % 28


def test_positive_direction_moves_to_the_right() -> None:
    images = torch.zeros(1, 28, 28, dtype=torch.uint8)
    images[0, 3, 26] = 255
    image_index = torch.zeros(2, dtype=torch.int64)
    source = MovingSequences(
        Digits(images, torch.tensor([7])),
        image_index,
        torch.tensor([0, 1]),
        torch.tensor([1, -1]),
        length=4,
    )
    x = source.select(all_indices(2)).x
    assert x.nonzero()[:, 2].unique().tolist() == [3]
    assert x[:, :, 3].argmax(-1).tolist() == [[26, 27, 0, 1], [27, 26, 25, 24]]


def test_shapes_types_and_values(digits: Digits) -> None:
    source = draw_sequences(digits, n=20, seed=0, length=9)
    batch = source.select(torch.tensor([3, 0, 19]))
    assert isinstance(source, SequenceSource)
    assert batch.x.shape == (3, 9, 28, 28)
    assert batch.x.dtype == torch.float32
    assert batch.x.is_contiguous()
    assert batch.lengths.tolist() == [9, 9, 9]
    assert source.lengths.tolist() == [9] * 20
    assert len(source) == 20
    assert batch.x.unique().tolist() == [0, 1]


def test_sequences_are_as_long_as_in_the_paper(digits: Digits) -> None:
    assert draw_sequences(digits, n=1, seed=0).length == 20


# Random draws


def test_frames_agree_with_the_drawn_values(digits: Digits) -> None:
    source = draw_sequences(digits, n=200, seed=1)
    index = all_indices(200)
    assert torch.equal(source.labels, digits.labels[source.image])
    assert torch.equal(source.still(index), (digits.images[source.image] > 127).float())
    x = source.select(index).x
    unshifted = torch.stack(
        [frames[0].roll(-int(shift), dims=-1) for frames, shift in zip(x, source.start, strict=True)]
    )
    assert torch.equal(unshifted, source.still(index))
    moved = torch.stack([x[n, 0].roll(int(source.direction[n]), dims=-1) for n in range(200)])
    assert torch.equal(moved, x[:, 1])


def test_starts_directions_and_digits_are_uniform_and_independent(digits: Digits) -> None:
    n = 28_000
    source = draw_sequences(digits, n, seed=2)
    assert source.direction.unique().tolist() == [-1, 1]
    assert source.start.unique().tolist() == list(range(28))
    assert source.image.unique().tolist() == list(range(50))
    for counts in (
        torch.bincount(source.start),
        torch.bincount(source.image),
        torch.bincount((source.direction + 1) // 2 * 28 + source.start),
    ):
        expected = n / len(counts)
        degrees_of_freedom = len(counts) - 1
        chi2 = float((counts - expected).square().sum() / expected)
        assert abs(chi2 - degrees_of_freedom) < 5 * math.sqrt(2 * degrees_of_freedom)
    drawn = torch.stack((source.direction, source.start, source.image)).double()
    assert float((torch.corrcoef(drawn) - torch.eye(3)).abs().max()) < 5 / math.sqrt(n)


def test_select_depends_only_on_each_index(digits: Digits) -> None:
    source = draw_sequences(digits, n=30, seed=3)
    whole = source.select(all_indices(30)).x
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(source.select(order).x, whole[order])
    for i in (0, 17, 29):
        assert torch.equal(source.select(torch.tensor([i, i])).x, whole[[i, i]])
    assert source.select(torch.tensor([], dtype=torch.int64)).x.shape == (0, 20, 28, 28)


def test_sequences_depend_on_the_seed_and_not_on_their_number(digits: Digits) -> None:
    first, again, other, more = (draw_sequences(digits, n, seed) for n, seed in ((40, 1), (40, 1), (40, 2), (5_000, 1)))
    for name in ("image", "start", "direction"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert torch.equal(getattr(first, name), getattr(more, name)[:40])
        assert not torch.equal(getattr(first, name), getattr(other, name))
    assert torch.equal(first.select(all_indices(40)).x, again.select(all_indices(40)).x)


def test_global_random_state_is_unchanged() -> None:
    before = torch.random.get_rng_state()
    source = draw_sequences(synthetic_digits(10, seed=0), n=4, seed=1)
    source.select(all_indices(4))
    assert torch.equal(torch.random.get_rng_state(), before)


# Invalid input


@pytest.mark.parametrize("length", [0, -3])
def test_length_below_one_raises(digits: Digits, length: int) -> None:
    with pytest.raises(InputError, match=f"^length: expected at least 1 frame, got {length}$"):
        draw_sequences(digits, 1, seed=0, length=length)


@pytest.mark.parametrize("n", [0, -1])
def test_number_below_one_raises(digits: Digits, n: int) -> None:
    with pytest.raises(InputError, match=f"^n: expected at least 1 sequence, got {n}$"):
        draw_sequences(digits, n, seed=0)
    with pytest.raises(InputError, match=f"^n: expected at least 1 image, got {n}$"):
        synthetic_digits(n, seed=0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image": [0, 50]}, "image: expected values from 0 to 49, got 0 to 50"),
        ({"image": [-1, 0]}, "image: expected values from 0 to 49, got -1 to 0"),
        ({"image": [], "start": [], "direction": []}, "image: expected at least 1 sequence, got none"),
        ({"start": [0, 28]}, "start: expected values from 0 to 27, got 0 to 28"),
        ({"start": [0]}, "start: expected 2 values, as many as in image, got 1"),
        ({"direction": [1, 2]}, "direction: expected values from -1 to 1, got 1 to 2"),
        ({"direction": [1, 0]}, r"direction: expected 1 \(right\) or -1 \(left\), got 0"),
    ],
)
def test_invalid_sequences_raise(digits: Digits, changed: dict[str, list[int]], message: str) -> None:
    drawn = {"image": [0, 1], "start": [0, 1], "direction": [1, -1], **changed}
    tensors: dict[str, Any] = {name: torch.tensor(values, dtype=torch.int64) for name, values in drawn.items()}
    with pytest.raises(InputError, match=f"^{message}$"):
        MovingSequences(digits, **tensors)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.tensor([0, 10]), "index: expected values from 0 to 9, got 0 to 10"),
        (torch.tensor([-1]), "index: expected values from 0 to 9, got -1 to -1"),
        (torch.tensor([0.0]), r"index: expected one axis of torch\.int64, got shape \(1,\) of torch\.float32"),
        (
            torch.ones(10, dtype=torch.bool),
            r"index: expected one axis of torch\.int64, got shape \(10,\) of torch\.bool",
        ),
        (torch.tensor(3), r"index: expected one axis of torch\.int64, got shape \(\) of torch\.int64"),
    ],
)
def test_invalid_index_raises(digits: Digits, index: Tensor, message: str) -> None:
    source = draw_sequences(digits, n=10, seed=0)
    calls: list[Any] = [source.select, source.still, source.shift]
    for call in calls:
        with pytest.raises(InputError, match=f"^{message}"):
            call(index)


# Synthetic digits


def test_synthetic_digits_are_distinguishable_and_varied() -> None:
    train, test = synthetic_digits(500, seed=0), synthetic_digits(500, seed=1)
    flat = train.images.flatten(1).float()
    means = torch.stack([flat[train.labels == k].mean(0) for k in range(10)])
    nearest = torch.cdist(test.images.flatten(1).float(), means).argmin(1)
    assert float((nearest == test.labels).float().mean()) > 0.9
    assert len(torch.cat((train.images, test.images)).unique(dim=0)) == 1000
    assert torch.bincount(test.labels).tolist() == [50] * 10


def test_synthetic_digits_are_reproducible_and_have_a_margin() -> None:
    first, again = (synthetic_digits(200, seed=5) for _ in range(2))
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.labels, again.labels)
    ink = first.images.amax(0) > 0
    assert not torch.cat((ink[0], ink[-1], ink[:, 0], ink[:, -1])).any()
    assert 0.05 < float((first.images > 127).float().mean()) < 0.3
