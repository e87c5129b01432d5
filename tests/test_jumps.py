"""Distributions of time points: δt has the stated distribution, t1 is uniform, and no jump is clipped."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from tdvae.errors import InputError
from tdvae.jumps import (
    Consecutive,
    InTurn,
    Jumps,
    Mixture,
    SemiGradient,
    Subsequences,
    Uniform,
    Widening,
    paper_mixture,
)
from tdvae.types import Pairs

torch.set_num_threads(1)

P_VALUE = 1e-4  # seeds are fixed, so the tests are deterministic
DISTRIBUTIONS: dict[str, tuple[Jumps, dict[int, float]]] = {
    "uniform": (Uniform(3, 9), dict.fromkeys(range(3, 10), 1 / 7)),
    "consecutive": (Consecutive(), {1: 1.0}),
    "paper": (paper_mixture(), {dt: (0.08 if dt <= 10 else 0.0) + 0.2 / 120 for dt in range(1, 121)}),
    "unequal weights": (
        Mixture((Uniform(1, 1), Uniform(2, 3), Uniform(3, 4)), (0.5, 0.2, 0.3)),
        {1: 0.5, 2: 0.1, 3: 0.25, 4: 0.15},
    ),
}
LENGTHS = torch.tensor([120, 121, 137, 150, 200, 311])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_distribution(values: Tensor, probabilities: dict[int, float]) -> None:
    """Chi-square test against probabilities of integers; values outside of their support fail as well."""
    values = values.flatten()
    counts = torch.bincount(values, minlength=max(probabilities) + 1)
    assert int(counts[list(probabilities)].sum()) == len(values), "values outside the stated range"
    if len(probabilities) > 1:
        expected = [probability * len(values) for probability in probabilities.values()]
        assert min(expected) > 5, "too few samples for a chi-square test"
        assert stats.chisquare([int(counts[value]) for value in probabilities], expected).pvalue > P_VALUE


def uniform(low: int, high: int) -> dict[int, float]:
    return dict.fromkeys(range(low, high + 1), 1 / (high - low + 1))


def assert_inside(pairs: Pairs, lengths: Tensor) -> None:
    limits = lengths.view(-1, *[1] * (pairs.t1.ndim - 1))
    assert int(pairs.t1.min()) >= 0
    assert bool((pairs.t2 <= limits).all())
    assert bool((pairs.t1 < pairs.t2).all())


# The distribution of δt


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_jump_lengths_have_the_stated_distribution(name: str) -> None:
    jumps, probabilities = DISTRIBUTIONS[name]
    pairs = jumps.sample(torch.full((200,), 130), 500, seeded(1))
    assert pairs.t1.shape == pairs.t2.shape == (200, 500)
    assert pairs.t1.dtype == pairs.t2.dtype == torch.int64
    assert_distribution(pairs.dt, probabilities)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution_of_dt_does_not_depend_on_sequence_length(name: str) -> None:
    """Including sequences that are as long as the longest jump."""
    jumps, probabilities = DISTRIBUTIONS[name]
    pairs = jumps.sample(LENGTHS, 20_000, seeded(2))
    assert_inside(pairs, LENGTHS)
    for row in pairs.dt:
        assert_distribution(row, probabilities)


def test_paper_mixture() -> None:
    assert paper_mixture() == Mixture((Uniform(1, 10), Uniform(1, 120)), (0.8, 0.2))
    assert paper_mixture().longest == 120


# The distribution of t1


@pytest.mark.parametrize("dt", [1, 2, 5])
def test_t1_is_uniform_for_each_dt(dt: int) -> None:
    lengths = torch.tensor([5, 12, 30])
    pairs = Uniform(1, 5).sample(lengths, 60_000, seeded(3))
    for length, t1, own_dt in zip(lengths.tolist(), pairs.t1, pairs.dt, strict=True):
        assert_distribution(t1[own_dt == dt], uniform(0, length - dt))


def test_jumps_are_not_clipped_at_the_end() -> None:
    """With a fixed δt, t2 is uniform. Clipping would move t2 of long jumps to the last step."""
    length, dt = 25, 20
    pairs = Uniform(dt, dt).sample(torch.full((100,), length), 500, seeded(4))
    assert_distribution(pairs.t2, uniform(dt, length))
    mixed = paper_mixture().sample(torch.full((100,), 120), 1_000, seeded(5))
    fraction_at_end = float((mixed.t2 == 120).double().mean())
    expected = sum(probability / (120 - dt + 1) for dt, probability in DISTRIBUTIONS["paper"][1].items())
    assert abs(fraction_at_end - expected) < 5 * (expected / 100_000) ** 0.5


@given(
    lengths=st.lists(st.integers(7, 60), min_size=1, max_size=8),
    low=st.integers(1, 7),
    k=st.integers(1, 20),
    seed=st.integers(0, 2**31),
    progress=st.floats(0, 1),
)
@hypothesis_settings(deadline=None, derandomize=True, max_examples=50)
def test_pairs_are_inside_their_sequence(lengths: list[int], low: int, k: int, seed: int, progress: float) -> None:
    for jumps in (Uniform(low, 7), Widening(Uniform(low, 7)), Mixture((Uniform(low, 7), Consecutive()), (0.5, 0.5))):
        pairs = jumps.sample(torch.tensor(lengths), k, seeded(seed), progress)
        assert_inside(pairs, torch.tensor(lengths))
        assert bool((pairs.dt <= 7).all())


# Seeds and independence


def test_pairs_are_determined_by_the_seed() -> None:
    for jumps in (Uniform(1, 9), paper_mixture(), Widening(paper_mixture()), Subsequences(4, Uniform(1, 9))):
        first, again = (jumps.sample(LENGTHS, 7, seeded(6), progress=0.2) for _ in range(2))
        other = jumps.sample(LENGTHS, 7, seeded(7), progress=0.2)
        assert torch.equal(first.t1, again.t1)
        assert torch.equal(first.t2, again.t2)
        assert not torch.equal(first.t1, other.t1)


def test_sampling_does_not_change_the_global_random_state() -> None:
    before = torch.get_rng_state()
    paper_mixture().sample(LENGTHS, 7, seeded(8))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("jumps", [paper_mixture(), Subsequences(3, Uniform(1, 9))], ids=["pairs", "subsequences"])
def test_pairs_differ_between_sequences(jumps: Jumps) -> None:
    pairs = jumps.sample(torch.full((50,), 200), 4, seeded(9))
    assert len({tuple(row.flatten().tolist()) for row in pairs.t1}) == 50
    assert len({tuple(row.flatten().tolist()) for row in pairs.dt}) > 40
    first_jump, second_jump = pairs.dt.flatten(1)[:, 0].double(), pairs.dt.flatten(1)[:, 1].double()
    assert not torch.equal(first_jump, second_jump)  # pairs of one sequence differ as well


# The curriculum


def test_widening_doubles_its_limit_at_equal_intervals() -> None:
    """From 2 to 120 there are six stages, with limits 2, 4, … 64, before the final distribution."""
    jumps = Widening(Uniform(1, 120), start=2, until=0.6)
    for stage, limit in enumerate((2, 4, 8, 16, 32, 64)):
        for progress in (stage * 0.1 + 1e-6, stage * 0.1 + 0.099):
            assert_distribution(jumps.sample(torch.full((20,), 200), 500, seeded(10), progress).dt, uniform(1, limit))


@pytest.mark.parametrize("progress", [0.6, 0.8, 1.0])
def test_widening_ends_in_the_final_distribution(progress: float) -> None:
    jumps = Widening(paper_mixture(), start=2, until=0.6)
    assert_distribution(jumps.sample(torch.full((200,), 130), 500, seeded(11), progress).dt, DISTRIBUTIONS["paper"][1])
    assert jumps.longest == 120


def test_widening_limits_all_parts_of_a_mixture() -> None:
    jumps = Widening(paper_mixture(), start=16, until=0.5)
    probabilities = {dt: (0.08 if dt <= 10 else 0.0) + 0.2 / 16 for dt in range(1, 17)}
    assert_distribution(jumps.sample(torch.full((100,), 130), 500, seeded(12), progress=0.0).dt, probabilities)


def test_widening_without_progress_is_the_final_distribution() -> None:
    """Validation does not pass ``progress``, so that it always has the same jumps."""
    jumps = Widening(Uniform(1, 64))
    assert_distribution(jumps.sample(torch.full((100,), 64), 500, seeded(13)).dt, uniform(1, 64))


def test_widening_keeps_the_shortest_jump_of_the_final_distribution() -> None:
    assert_distribution(Widening(Uniform(5, 20), start=2).draw((1000,), seeded(14), 0.0), {5: 1.0})


def test_widening_rejects_sequences_that_are_too_short_for_the_final_distribution() -> None:
    with pytest.raises(InputError, match="120"):
        Widening(paper_mixture()).sample(torch.tensor([119]), 1, seeded(15), progress=0.0)


# Subsequences


def test_pairs_of_a_subsequence_are_consecutive() -> None:
    lengths = torch.tensor([15, 16, 40])
    pairs = Subsequences(4, Uniform(1, 5)).sample(lengths, 2_000, seeded(16))
    assert pairs.t1.shape == pairs.t2.shape == (3, 2_000, 3)
    assert torch.equal(pairs.t1[..., 1:], pairs.t2[..., :-1])
    assert_inside(pairs, lengths)


def test_jumps_of_a_subsequence_have_the_stated_distribution() -> None:
    pairs = Subsequences(4, Uniform(2, 5)).sample(torch.tensor([15, 16, 40]), 10_000, seeded(17))
    for row in pairs.dt:
        for step in range(3):
            assert_distribution(row[:, step], uniform(2, 5))
    joint = pairs.dt[..., 0] * 10 + pairs.dt[..., 1]
    assert_distribution(joint, {10 * a + b: 1 / 16 for a in range(2, 6) for b in range(2, 6)})  # independent jumps


def test_start_of_a_subsequence_is_uniform() -> None:
    pairs = Subsequences(3, Uniform(4, 4)).sample(torch.tensor([8, 14]), 20_000, seeded(18))
    assert_distribution(pairs.t1[0, :, 0], {0: 1.0})
    assert_distribution(pairs.t1[1, :, 0], uniform(0, 6))


def test_subsequences_of_two_points_are_pairs() -> None:
    pairs = Subsequences(2, Uniform(3, 9)).sample(LENGTHS, 20_000, seeded(19))
    assert pairs.t1.shape == (len(LENGTHS), 20_000, 1)
    assert_distribution(pairs.dt, uniform(3, 9))


def test_subsequences_with_widening() -> None:
    jumps = Subsequences(3, Widening(Uniform(1, 8), start=2, until=0.5))
    assert_distribution(jumps.sample(torch.full((50,), 16), 100, seeded(20), progress=0.0).dt, uniform(1, 2))
    assert jumps.longest == 16


# Invalid arguments


@pytest.mark.parametrize(("low", "high"), [(0, 5), (-1, 5), (4, 3)])
def test_uniform_rejects_invalid_ranges(low: int, high: int) -> None:
    with pytest.raises(InputError, match=f"low={low}, high={high}"):
        Uniform(low, high)


@pytest.mark.parametrize("weights", [(0.5,), (0.5, 0.6), (1.5, -0.5), (0.2, 0.3, 0.5)])
def test_mixture_rejects_invalid_weights(weights: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="weights"):
        Mixture((Uniform(1, 2), Uniform(1, 3)), weights)


def test_mixture_rejects_empty_parts() -> None:
    with pytest.raises(InputError, match="parts"):
        Mixture((), ())


@pytest.mark.parametrize(("start", "until"), [(0, 0.5), (2, 0.0), (2, 1.5), (2, -0.1)])
def test_widening_rejects_invalid_arguments(start: int, until: float) -> None:
    with pytest.raises(InputError, match="start" if start == 0 else "until"):
        Widening(Uniform(1, 8), start, until)


@pytest.mark.parametrize("points", [1, 0, -3])
def test_subsequences_reject_fewer_than_two_points(points: int) -> None:
    with pytest.raises(InputError, match="points"):
        Subsequences(points, Uniform(1, 2))


@pytest.mark.parametrize(
    ("jumps", "span"),
    [(Uniform(1, 31), 31), (paper_mixture(), 120), (Subsequences(4, Uniform(1, 11)), 33)],
    ids=["uniform", "paper", "subsequences"],
)
def test_sequences_shorter_than_the_longest_jump_are_rejected(jumps: Jumps, span: int) -> None:
    with pytest.raises(InputError, match=rf"^sequences: expected at least {span} steps.*got 27"):
        jumps.sample(torch.tensor([500, 27, 400]), 3, seeded(21))
    assert jumps.sample(torch.tensor([span]), 3, seeded(22)).t1.shape[:2] == (1, 3)


def test_empty_data_are_rejected() -> None:
    with pytest.raises(InputError, match="sequences"):
        Uniform(1, 2).sample(torch.empty(0, dtype=torch.int64), 3, seeded(23))


# Sequential and nested distributions


def test_in_turn_scales_the_progress_of_each_part() -> None:
    jumps = InTurn(Widening(Uniform(1, 16), start=2, until=0.5), Consecutive(), switch=0.6)
    assert jumps.longest == 16
    assert_distribution(jumps.draw((4_000,), seeded(30), 0.0), uniform(1, 2))
    assert_distribution(jumps.draw((16_000,), seeded(31), 0.59), uniform(1, 16))  # the first part widens until 0.3
    assert_distribution(jumps.draw((4_000,), seeded(32), 0.29), uniform(1, 8))
    for progress in (0.6, 0.8, 1.0):
        assert_distribution(jumps.draw((100,), seeded(33), progress), {1: 1.0})
    with pytest.raises(InputError, match="switch"):
        InTurn(Uniform(1, 2), Consecutive(), switch=1.0)


def test_subsequences_must_be_outermost() -> None:
    """Inside another distribution, the order of their pairs would be lost."""
    inner = Subsequences(3, Uniform(1, 4))
    for invalid in (
        lambda: Widening(inner),
        lambda: Mixture((inner,), (1.0,)),
        lambda: Subsequences(3, inner),
    ):
        with pytest.raises(InputError, match="expected Subsequences outside"):
            invalid()
    with pytest.raises(InputError, match="expected InTurn outside"):
        Mixture((InTurn(Consecutive(), inner, 0.5),), (1.0,))


def test_pairs_in_turn_come_from_the_distribution_of_their_time() -> None:
    jumps = InTurn(Uniform(1, 4), SemiGradient(Uniform(5, 6)), switch=0.5)
    lengths = torch.full((3,), 20)
    first, then = (jumps.sample(lengths, 200, seeded(34), progress) for progress in (0.4, 0.5))
    assert not first.semi_gradient
    assert then.semi_gradient
    assert first.dt.max() == 4
    assert then.dt.min() == 5
    assert then.select(slice(1)).to("cpu").semi_gradient
    assert jumps.longest == 6
    with pytest.raises(InputError, match="at least 6 steps"):
        jumps.sample(torch.tensor([5]), 1, seeded(35), progress=0.0)
