"""Tests of tdvae.data.arrays: sequences from arrays and files, their validation, and splits."""

from __future__ import annotations

import gc
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tdvae import InputError
from tdvae.data import from_arrays, from_npz, split
from tdvae.jumps import Uniform
from tdvae.models import Gaussian, LinearRecurrence, ResidualMaps, TDVAEConfig, for_data
from tdvae.objectives import tdvae_loss
from tdvae.types import Sequences

torch.set_num_threads(1)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def ragged(*lengths: int, event: tuple[int, ...] = (2,)) -> list[Any]:
    return [numbers(length, *event, seed=seed) for seed, length in enumerate(lengths)]


# Shapes and types


def test_matrix_has_one_number_per_step() -> None:
    x = numbers(4, 7)
    data = from_arrays(x)
    assert data.x.shape == (4, 7, 1)
    assert torch.equal(data.x[..., 0], torch.from_numpy(x))
    assert data.lengths.tolist() == [7] * 4
    assert (len(data), data.horizon) == (4, 7)
    assert data.actions is None
    assert data.rewards is None


@pytest.mark.parametrize("event", [(3,), (1,), (4, 5), (2, 4, 5)], ids=str)
def test_features_and_images_keep_their_shape(event: tuple[int, ...]) -> None:
    x = numbers(4, 7, *event)
    for given_as in (x, torch.from_numpy(x), list(x), list(torch.from_numpy(x))):
        data = from_arrays(given_as)
        assert torch.equal(data.x, torch.from_numpy(x))
        assert data.lengths.tolist() == [7] * 4


@pytest.mark.parametrize("event", [(), (2,), (3, 4)], ids=str)
@pytest.mark.parametrize("as_torch", [False, True], ids=["numpy", "torch"])
def test_ragged_list_is_padded_to_the_longest(event: tuple[int, ...], as_torch: bool) -> None:
    parts = ragged(3, 5, 2, event=event)
    data = from_arrays([torch.from_numpy(part) for part in parts] if as_torch else parts)
    assert data.x.shape == (3, 5, *(event or (1,)))
    assert data.lengths.tolist() == [3, 5, 2]
    for row, part in zip(data.x, parts, strict=True):
        assert torch.equal(row[: len(part)].reshape(part.shape), torch.from_numpy(part))
    assert data.mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5, [True] * 2 + [False] * 3]


@pytest.mark.parametrize(
    ("given_as", "kept_as"),
    [
        (np.float64, torch.float32),
        (np.float16, torch.float32),
        (np.float32, torch.float32),
        (">f8", torch.float32),
        (np.int8, torch.int64),
        (np.uint8, torch.int64),
        (np.int32, torch.int64),
        (np.int64, torch.int64),
        (">i4", torch.int64),
        (bool, torch.bool),
    ],
    ids=str,
)
def test_numpy_types(given_as: Any, kept_as: torch.dtype) -> None:
    """Floating-point values stay continuous, integers categorical, bool binary, for any byte order."""
    values = np.array([[0, 1, 1], [1, 0, 1]])
    data = from_arrays(values.astype(given_as))
    assert data.x.dtype == kept_as
    assert data.x[..., 0].long().tolist() == values.tolist()


@pytest.mark.parametrize(
    ("given_as", "kept_as"),
    [
        (torch.float64, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.uint8, torch.int64),
        (torch.int32, torch.int64),
        (torch.bool, torch.bool),
    ],
    ids=str,
)
def test_torch_types(given_as: torch.dtype, kept_as: torch.dtype) -> None:
    assert from_arrays(torch.ones(2, 3, 1).to(given_as)).x.dtype == kept_as


def test_read_only_array_gives_no_warning() -> None:
    """Memory maps and many data frames give read-only arrays. PyTorch would warn, and warnings are errors here."""
    x = numbers(2, 3, 1)
    x.flags.writeable = False
    assert torch.equal(from_arrays(x).x, torch.tensor(x.tolist()))


def test_reversed_view_keeps_its_order() -> None:
    x = numbers(2, 3, 1)
    assert torch.equal(from_arrays(x[:, ::-1]).x, torch.from_numpy(x).flip(1))


# Actions, rewards, lengths


def test_actions_and_rewards_are_aligned_with_observations() -> None:
    x, actions, rewards = numbers(3, 5, 2), numbers(3, 5, 4, seed=1), numbers(3, 5, seed=2)
    data = from_arrays(x, actions, rewards)
    assert data.actions is not None
    assert data.rewards is not None
    assert torch.equal(data.actions, torch.from_numpy(actions))
    assert torch.equal(data.rewards, torch.from_numpy(rewards))


def test_scalar_actions_become_vectors_of_size_one() -> None:
    actions = np.array([[0, 1, 2], [2, 1, 0]])
    data = from_arrays(numbers(2, 3), actions)
    assert data.actions is not None
    assert data.actions.dtype == torch.float32
    assert data.actions[..., 0].tolist() == actions.tolist()


def test_ragged_actions_and_rewards() -> None:
    x, actions, rewards = ragged(3, 5), ragged(3, 5, event=(1,)), ragged(3, 5, event=())
    data = from_arrays(x, actions, rewards)
    assert data.actions is not None
    assert data.rewards is not None
    assert data.actions.shape == (2, 5, 1)
    assert data.rewards.shape == (2, 5)
    assert torch.equal(data.rewards[0, :3], torch.from_numpy(rewards[0]))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_lengths_mark_the_real_steps(kind: str) -> None:
    lengths = np.array([2, 4, 1], dtype=np.int32)
    data = from_arrays(numbers(3, 4), lengths=lengths if kind == "numpy" else torch.from_numpy(lengths))
    assert data.lengths.dtype == torch.int64
    assert data.mask.sum(1).tolist() == [2, 4, 1]
    assert data.mask[0].tolist() == [True, True, False, False]


# Methods of Sequences


def full_example() -> Sequences:
    return from_arrays(numbers(4, 6, 2), numbers(4, 6, 1, seed=1), numbers(4, 6, seed=2), np.array([6, 3, 5, 1]))


@pytest.mark.parametrize("t", [1, 4, 6, 9])
def test_until_keeps_the_first_steps_of_everything(t: int) -> None:
    data = full_example()
    cut = data.until(t)
    assert data.actions is not None
    assert data.rewards is not None
    assert cut.actions is not None
    assert cut.rewards is not None
    assert torch.equal(cut.x, data.x[:, :t])
    assert torch.equal(cut.actions, data.actions[:, :t])
    assert torch.equal(cut.rewards, data.rewards[:, :t])
    assert cut.lengths.tolist() == [min(length, t) for length in (6, 3, 5, 1)]
    assert data.horizon == 6  # the original is unchanged


def test_select_returns_sequences_in_the_order_of_the_index() -> None:
    data = full_example()
    chosen = data.select(torch.tensor([2, 0]))
    assert chosen.actions is not None
    assert data.actions is not None
    assert chosen.rewards is not None
    assert data.rewards is not None
    assert chosen.lengths.tolist() == [5, 6]
    assert torch.equal(chosen.x, data.x[[2, 0]])
    assert torch.equal(chosen.actions, data.actions[[2, 0]])
    assert torch.equal(chosen.rewards, data.rewards[[2, 0]])
    assert data.select(slice(1, 3)).lengths.tolist() == [3, 5]


def test_select_without_actions_stays_without() -> None:
    chosen = from_arrays(numbers(3, 4)).select(torch.tensor([1]))
    assert len(chosen) == 1
    assert chosen.actions is None
    assert chosen.rewards is None


# Invalid values


@pytest.mark.parametrize(
    ("argument", "bad"),
    [("x", np.inf), ("x", -np.inf), *((name, bad) for name in ("actions", "rewards") for bad in (np.nan, np.inf))],
)
def test_nan_and_infinity_raise_with_their_position(argument: str, bad: float) -> None:
    arrays = {"x": numbers(3, 5, 2), "actions": numbers(3, 5, 1), "rewards": numbers(3, 5)}
    arrays[argument][1, 4] = bad
    with pytest.raises(InputError, match=rf"^{argument}: .*sequence 1 at step 4"):
        from_arrays(**arrays)


def test_infinity_in_a_ragged_list_raises_with_its_position() -> None:
    parts = ragged(3, 5, 2)
    parts[2][1, 0] = np.inf
    with pytest.raises(InputError, match=r"^x: .*sequence 2 at step 1"):
        from_arrays(parts)


@pytest.mark.parametrize("argument", ["x", "actions", "rewards"])
def test_nan_in_the_padding_is_accepted_and_reaches_no_gradient(argument: str) -> None:
    """Masking is not enough: zero times NaN is NaN in the backward pass."""
    torch.manual_seed(0)
    arrays = {"x": numbers(3, 8, 2), "actions": numbers(3, 8, 1), "rewards": numbers(3, 8)}
    arrays[argument][1, 4:] = np.nan
    data = from_arrays(**arrays, lengths=np.array([8, 4, 8]))
    model = for_data(
        data, latent=2, belief=LinearRecurrence(4), decoder=Gaussian((4,), noise="predicted"), maps=ResidualMaps(4)
    )
    pairs = Uniform(1, 3).sample(data.lengths, 8, torch.Generator().manual_seed(0))
    loss = tdvae_loss(model, data, pairs).total
    loss.backward()
    assert bool(loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_negative_classes_raise_with_their_position() -> None:
    x = np.ones((3, 5, 2), dtype=np.int64)
    x[2, 3, 1] = -1
    with pytest.raises(InputError, match=r"^x: expected .*classes >= 0, got a negative class in sequence 2 at step 3"):
        from_arrays(x)


@pytest.mark.parametrize("padding", [-1, 255])
def test_classes_in_the_padding_are_not_counted(padding: int) -> None:
    torch.manual_seed(0)
    x = np.random.default_rng(0).integers(0, 3, (3, 8))
    x[0, :3] = 0, 1, 2
    x[1, 4:] = padding
    data = from_arrays(x, lengths=np.array([8, 4, 8]))
    model = for_data(
        data, latent=2, belief=LinearRecurrence(4), decoder=Gaussian((4,), noise="predicted"), maps=ResidualMaps(4)
    )
    pairs = Uniform(1, 3).sample(data.lengths, 8, torch.Generator().manual_seed(0))
    assert isinstance(model.config, TDVAEConfig)
    assert model.config.classes == 3
    assert bool(tdvae_loss(model, data, pairs).total.isfinite())


def test_negative_actions_and_rewards_are_accepted() -> None:
    data = from_arrays(numbers(2, 3), np.full((2, 3), -1), np.full((2, 3), -2))
    assert data.actions is not None
    assert data.rewards is not None
    assert data.actions.unique().tolist() == [-1.0]
    assert data.rewards.unique().tolist() == [-2.0]


# Missing values


def with_gaps(*shape: int) -> tuple[Any, Any]:
    """Numbers with NaN at a third of the entries, and where they are not NaN."""
    x = numbers(*shape)
    seen = np.random.default_rng(1).random(shape) > 1 / 3
    return np.where(seen, x, np.nan).astype(np.float32), seen


@pytest.mark.parametrize("shape", [(4, 7), (4, 7, 3), (4, 7, 2, 2)], ids=str)
def test_missing_values_can_be_given_in_three_ways(shape: tuple[int, ...]) -> None:
    nan, seen = with_gaps(*shape)
    masked = np.ma.MaskedArray(np.where(seen, nan, -7.0), mask=~seen)
    for data in (
        from_arrays(nan),
        from_arrays(torch.from_numpy(nan)),
        from_arrays(list(nan)),
        from_arrays(masked),
        from_arrays(list(masked)),
        from_arrays(numbers(*shape), observed=seen),
        from_arrays(np.where(seen, nan, np.inf), observed=seen),
        from_arrays(list(numbers(*shape)), observed=list(seen)),
        from_arrays(nan.astype(np.float64), observed=np.ones(shape, dtype=bool)),  # NaN is missing in any case
    ):
        assert data.observed is not None
        assert torch.equal(data.observed.view(shape), torch.from_numpy(seen))
        assert torch.equal(data.x.view(shape), torch.from_numpy(np.where(seen, nan, 0)))


def test_without_missing_values_there_is_no_mask() -> None:
    x = numbers(3, 5)
    for data in (from_arrays(x), from_arrays(np.ma.MaskedArray(x)), from_arrays(x, observed=np.ones((3, 5), bool))):
        assert data.observed is None
        assert torch.equal(data.x[..., 0], torch.from_numpy(x))
        assert set(data.named()) == {"x", "lengths"}


def test_padding_is_not_missing_and_not_observed() -> None:
    x = numbers(3, 5, 2)
    x[1, 3:] = np.nan
    assert from_arrays(x, lengths=np.array([5, 3, 5])).observed is None
    x[0, 2, 1] = np.nan
    data = from_arrays(x, lengths=np.array([5, 3, 4]))
    expected = torch.ones(3, 5, 2, dtype=torch.bool)
    expected[0, 2, 1] = expected[1, 3:] = expected[2, 4:] = False
    assert data.observed is not None
    assert torch.equal(data.observed, expected)
    parts = [x[0], x[1, :3], x[2, :4]]
    ragged_data = from_arrays(parts)
    assert ragged_data.observed is not None
    assert torch.equal(ragged_data.observed, expected)
    assert torch.equal(ragged_data.x, data.x)


def test_the_mask_goes_with_the_sequences(tmp_path: Path) -> None:
    x, seen = with_gaps(20, 6, 2)
    np.savez(tmp_path / "gaps.npz", x=numbers(20, 6, 2), observed=seen)
    data = from_npz(tmp_path / "gaps.npz")
    for chosen, expected in (
        (data.select(torch.tensor([3, 1])), seen[[3, 1]]),
        (data.until(4), seen[:, :4]),
        (data.to("cpu"), seen),
        (Sequences(**data.named()), seen),
    ):
        assert chosen.observed is not None
        assert torch.equal(chosen.observed, torch.from_numpy(expected))
    parts = split(data, 0)
    marks = torch.cat([torch.where(part.observed, part.x, -1.0) for part in parts if part.observed is not None])
    together = torch.from_numpy(np.where(seen, np.nan_to_num(x), -1.0))
    assert torch.equal(marks.flatten().sort().values, together.flatten().sort().values)
    for index, steps in ((2, seen[:, 1]), (torch.tensor([[1, 6]] * 20), seen[:, [0, 5]])):
        value, mask = data.at(index)
        assert mask is not None
        assert torch.equal(mask, torch.from_numpy(steps))
        assert value.shape == mask.shape


@pytest.mark.parametrize(
    ("channels", "message"), [([0, 1], "none of channel 0"), ([1], "none of channel 1")], ids=["all", "one channel"]
)
def test_a_channel_without_any_value_raises(channels: list[int], message: str) -> None:
    x = numbers(3, 5, 2)
    x[..., channels] = np.nan
    with pytest.raises(InputError, match=rf"^x: expected at least one observed value of each channel, got {message}"):
        from_arrays(x)


def test_a_channel_without_any_value_in_the_training_part_raises() -> None:
    x = numbers(3, 5, 2)
    x[:2, :, 1] = np.nan
    data = from_arrays(x)
    with pytest.raises(InputError, match=r"^data: expected at least one observed value of each channel, got none of"):
        for_data(data.select(slice(0, 2)))


@pytest.mark.parametrize(
    ("x", "observed", "message"),
    [
        (np.ones((3, 5)), np.ones((3, 4), bool), r"^observed: expected bool .*\(3, 5\).*, got \(3, 4\)"),
        (np.ones((3, 5, 2)), np.ones((3, 5), bool), r"^observed: .*\(3, 5, 2\)"),
        (np.ones((3, 5)), np.ones((3, 5)), r"^observed: expected bool .*float"),
        (np.ones((3, 5), int), np.ones((3, 5), bool), r"^observed: expected None unless x is floating-point"),
        (
            np.ma.MaskedArray(np.ones((3, 5), int), mask=np.eye(3, 5, dtype=bool)),
            None,
            r"^x: .*masked .*floating.*, got int64",
        ),
    ],
    ids=["shape", "per step", "numbers", "classes", "masked classes"],
)
def test_invalid_masks_raise(x: Any, observed: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(x, observed=observed)


def test_masked_actions_raise() -> None:
    actions = np.ma.MaskedArray(numbers(3, 5), mask=np.eye(3, 5, dtype=bool))
    with pytest.raises(InputError, match=r"^actions: .*sequence 0 at step 0"):
        from_arrays(numbers(3, 5), actions)


# Scales


@pytest.mark.parametrize("argument", ["x", "actions"])
def test_variation_that_32_bits_would_lose_raises(argument: str) -> None:
    arrays: dict[str, Any] = {"x": numbers(3, 40, 2), argument: np.zeros((3, 40, 2))}
    arrays[argument][..., 1] = 1.7e9 + 100 * np.sin(np.arange(40))
    with pytest.raises(
        InputError, match=rf"^{argument}: .* got 1 in channel 1 with mean 1.7e\+09 .* subtract the mean"
    ):
        from_arrays(**arrays)
    arrays[argument] -= arrays[argument].mean((0, 1))
    from_arrays(**arrays)


@pytest.mark.parametrize(
    "x",
    [
        np.full((2, 40), 1.7e9),
        np.full((2, 40), 0.1) * (1 + 1e-16 * np.arange(40)),
        np.sin(np.arange(80.0)).reshape(2, 40) * 1e-30,
        np.sin(np.arange(80.0)).reshape(2, 40) * 1e30,
        10_000 + 10 * np.sin(np.arange(80.0)).reshape(2, 40),
        (1.7e9 + 100 * np.sin(np.arange(80.0)).reshape(2, 40)).astype(np.float32),
    ],
    ids=["constant", "rounding", "small units", "large units", "small offset", "already 32 bits"],
)
def test_other_scales_are_accepted(x: Any) -> None:
    assert torch.equal(from_arrays(x).x[..., 0], torch.from_numpy(x).float())


def test_missing_values_do_not_count_in_the_statistics() -> None:
    x = 1e3 + numbers(30, 20, 2).astype(np.float64)
    x[:, ::3, 0] = np.nan
    model = for_data(from_arrays(x))
    expected = np.nanmean(x, (0, 1)), np.nanstd(x, (0, 1), ddof=1)
    for part in (model.encoder, model.p_D):
        for name, value in zip(("shift", "scale"), expected, strict=True):
            torch.testing.assert_close(getattr(part, name).double(), torch.from_numpy(value), rtol=1e-4, atol=0)


def test_small_units_are_not_constant_and_constants_are() -> None:
    x = numbers(10, 20, 3) * np.array([1e-20, 0, 0], dtype=np.float32) + np.array([0, 5, 0], dtype=np.float32)
    scale = for_data(from_arrays(x)).encoder.scale
    torch.testing.assert_close(scale, torch.tensor([float(x[..., 0].std(ddof=1)), 1.0, 1.0]), rtol=1e-3, atol=0)


# Invalid shapes and types


@pytest.mark.parametrize(
    "x",
    [
        np.array(1.0),
        np.zeros(5),
        torch.tensor(1.0),
        torch.zeros(5),
        np.float64(1.0),
        1.0,
        [np.array(1.0), np.array(2.0)],
        [1.0, 2.0],
        np.zeros((0, 5)),
        np.zeros((3, 0)),
        np.zeros((3, 5, 0)),
        [],
        [np.zeros((0, 2))],
        [np.zeros((3, 2)), np.zeros((0, 2))],
        [np.zeros((3, 2)), np.zeros((4, 3))],
        [np.zeros((3, 2)), np.zeros(4)],
        [np.zeros((3, 2)), np.zeros((3, 2), dtype=int)],
        np.array([["a", "b"], ["c", "d"]]),
        np.array([[1, None], [2, 3]], dtype=object),
        np.array([np.zeros(2), np.zeros(3)], dtype=object),
        np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[D]"),
        np.zeros((2, 3), dtype=complex),
        torch.zeros(2, 3, dtype=torch.complex64),
        [["a", "b"], ["c", "d"]],
        "some text",
    ],
    ids=[
        "numpy rank 0",
        "numpy rank 1",
        "torch rank 0",
        "torch rank 1",
        "numpy scalar",
        "float",
        "list of rank 0",
        "list of floats",
        "no sequences",
        "no steps",
        "no features",
        "empty list",
        "list with no steps",
        "list with an empty one",
        "feature sizes differ",
        "feature ranks differ",
        "types differ",
        "strings",
        "objects",
        "ragged as objects",
        "dates",
        "complex numpy",
        "complex torch",
        "list of strings",
        "a string",
    ],
)
def test_invalid_observations_raise(x: Any) -> None:
    with pytest.raises(InputError, match=r"^x\b"):
        from_arrays(x)


@pytest.mark.parametrize("argument", ["actions", "rewards"])
@pytest.mark.parametrize(
    "shape", [(2, 5), (4, 5), (3, 4), (3, 6), (3,), (3, 5, 2, 2)], ids=lambda shape: "x".join(map(str, shape))
)
def test_actions_and_rewards_of_other_shapes_raise(argument: str, shape: tuple[int, ...]) -> None:
    arrays: dict[str, Any] = {argument: numbers(*shape)}
    with pytest.raises(InputError, match=rf"^{argument}\b"):
        from_arrays(numbers(3, 5, 2), **arrays)


@pytest.mark.parametrize("argument", ["actions", "rewards"])
def test_ragged_actions_and_rewards_of_other_lengths_raise(argument: str) -> None:
    arrays: dict[str, Any] = {argument: ragged(3, 4, event=())}
    with pytest.raises(InputError, match=rf"^{argument}\b"):
        from_arrays(ragged(3, 5), **arrays)


@pytest.mark.parametrize("argument", ["actions", "rewards"])
@pytest.mark.parametrize("horizon", [4, 6])
def test_actions_and_rewards_must_have_the_same_padding_as_x(argument: str, horizon: int) -> None:
    """All real steps are present, but the padding differs, so the arrays have different shapes."""
    arrays: dict[str, Any] = {argument: numbers(3, horizon)}
    with pytest.raises(InputError, match=rf"^{argument}\b"):
        from_arrays(numbers(3, 5, 2), lengths=np.array([3, 3, 2]), **arrays)


@pytest.mark.parametrize("argument", ["actions", "rewards"])
def test_strings_as_actions_or_rewards_raise(argument: str) -> None:
    arrays: dict[str, Any] = {argument: np.full((3, 5), "up")}
    with pytest.raises(InputError, match=rf"^{argument}\b.*dtype"):
        from_arrays(numbers(3, 5), **arrays)


@pytest.mark.parametrize(
    ("lengths", "given_lengths"),
    [
        (np.array([0, 5, 5]), r"\b0\b"),
        (np.array([5, -2, 5]), "-2"),
        (np.array([5, 5, 9]), r"\b9\b"),
        (np.array([5, 5]), r"\(2,\)"),
        (np.array([[5, 5, 5]]), r"\(1, 3\)"),
        (np.array([5.0, 4.5, 5.0]), r"float|4\.5"),
        (np.array(["5", "5", "5"]), "U1|'5'"),
    ],
    ids=["zero", "negative", "beyond the horizon", "too few", "rank 2", "fractions", "strings"],
)
def test_invalid_lengths_raise_with_the_given_value(lengths: Any, given_lengths: str) -> None:
    with pytest.raises(InputError, match=rf"^lengths: .*got .*({given_lengths})"):
        from_arrays(numbers(3, 5), lengths=lengths)


def test_lengths_that_contradict_a_ragged_list_raise() -> None:
    with pytest.raises(InputError, match=r"^lengths"):
        from_arrays(ragged(3, 5), lengths=np.array([2, 2]))


# Files


def test_npz_round_trip(tmp_path: Path) -> None:
    arrays = {
        "x": numbers(3, 5, 2),
        "actions": numbers(3, 5, 1, seed=1),
        "rewards": numbers(3, 5, seed=2),
        "lengths": np.array([5, 2, 4]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "all.npz", **arrays)
        for path in (tmp_path / "all.npz", str(tmp_path / "all.npz")):
            data, direct = from_npz(path), from_arrays(**arrays)
            for name in arrays:
                assert torch.equal(getattr(data, name), getattr(direct, name))


def test_npy_file_contains_x(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((3, 5, 4, 4)) < 0.5
    np.save(tmp_path / "x.npy", x)
    data = from_npz(tmp_path / "x.npy")
    assert torch.equal(data.x, torch.from_numpy(x))


def test_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^file: expected an existing file, got .*nowhere\.npz"):
        from_npz(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("kind", ["text", "empty", "truncated", "damaged at 60", "damaged at 300"])
def test_invalid_file_raises_one_line_and_is_closed(tmp_path: Path, kind: str) -> None:
    """A file that stays open would warn when it is garbage-collected, and warnings are errors here."""
    np.savez_compressed(tmp_path / "whole.npz", x=numbers(20, 10))
    whole = (tmp_path / "whole.npz").read_bytes()
    damaged = {place: whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in (60, 300)}
    contents = {
        "text": b"x,y\n1,2\n",
        "empty": b"",
        "truncated": whole[: len(whole) // 2],
        "damaged at 60": damaged[60],
        "damaged at 300": damaged[300],
    }
    (tmp_path / "bad.npz").write_bytes(contents[kind])
    with pytest.raises(InputError, match=r"^file: .*bad\.npz") as caught:
        from_npz(tmp_path / "bad.npz")
    assert "\n" not in str(caught.value)
    del caught
    gc.collect()


def test_folder_instead_of_file_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^file: "):
        from_npz(tmp_path)


def test_missing_x_or_unknown_key_lists_the_keys_of_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "no-x.npz", y=numbers(3, 5))
    with pytest.raises(InputError, match=r"^file: expected arrays 'x' .*no-x\.npz, got \['y'\]"):
        from_npz(tmp_path / "no-x.npz")
    np.savez(tmp_path / "more.npz", x=numbers(3, 5), action=numbers(3, 5))
    with pytest.raises(InputError, match=r"more\.npz, got .*'action'"):
        from_npz(tmp_path / "more.npz")


@pytest.mark.parametrize("name", ["x", "actions"])
def test_pickled_objects_are_never_loaded(tmp_path: Path, name: str) -> None:
    arrays: dict[str, Any] = {"x": numbers(1, 2), name: np.array([[1, None]], dtype=object)}
    np.savez(tmp_path / "objects.npz", **arrays)
    with pytest.raises(InputError, match=r"^file: .*objects\.npz"):
        from_npz(tmp_path / "objects.npz")
    gc.collect()  # a file that stays open would warn here


def test_arrays_of_a_file_are_validated(tmp_path: Path) -> None:
    x = numbers(3, 5)
    x[2, 1] = np.inf
    np.savez(tmp_path / "infinite.npz", x=x)
    with pytest.raises(InputError, match=r"^x: .*sequence 2 at step 1"):
        from_npz(tmp_path / "infinite.npz")


# Splits


def numbered(n: int) -> Sequences:
    """Sequences whose only value is their index."""
    return from_arrays(np.arange(n, dtype=np.float32)[:, None].repeat(2, 1))


def members(part: Sequences) -> list[int]:
    return [int(value) for value in part.x[:, 0, 0]]


@given(n=st.integers(3, 200), seed=st.integers(0, 2**31))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=40)
def test_split_puts_every_sequence_in_exactly_one_part(n: int, seed: int) -> None:
    parts = [members(part) for part in split(numbered(n), seed)]
    assert sorted(chain(*parts)) == list(range(n))
    assert min(map(len, parts)) >= 1
    assert len(parts[1]) == max(1, round(0.1 * n))
    assert len(parts[2]) == max(1, round(0.1 * n))


def test_split_follows_the_shares() -> None:
    assert [len(part) for part in split(numbered(100), 0, (0.5, 0.3, 0.2))] == [50, 30, 20]


def test_split_depends_only_on_its_seed() -> None:
    torch.manual_seed(1)
    first = [members(part) for part in split(numbered(50), 3)]
    torch.manual_seed(2)
    again = [members(part) for part in split(numbered(50), 3)]
    other = [members(part) for part in split(numbered(50), 4)]
    assert first == again
    assert first != other
    assert members(split(numbered(50), 3)[0]) != sorted(members(split(numbered(50), 3)[0]))  # shuffled


@pytest.mark.parametrize("n", [1, 2])
def test_split_of_too_few_sequences_raises(n: int) -> None:
    with pytest.raises(InputError, match=rf"^data: expected at least 3 sequences .*, got {n}"):
        split(numbered(n), 0)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_split_of_three_sequences_works_for_any_shares(n: int) -> None:
    """Rounding up the validation and test parts must leave at least one training sequence."""
    parts = split(numbered(n), 0, (0.2, 0.4, 0.4))
    assert sorted(chain(*map(members, parts))) == list(range(n))
    assert min(map(len, parts)) >= 1


@pytest.mark.parametrize("shares", [(0.8, 0.2, 0.0), (0.8, 0.3, -0.1), (0.8, 0.1, 0.2), (0.5, 0.5), (1.0,)], ids=str)
def test_invalid_shares_raise(shares: Any) -> None:
    with pytest.raises(InputError, match=r"^shares"):
        split(numbered(20), 0, shares)
