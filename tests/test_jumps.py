"""Time points: δt keeps its stated law, t1 is uniform over all times that leave room, nothing is clipped."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from tdvae.errors import InputError
from tdvae.jumps import Consecutive, InTurn, Jumps, Mixture, Subsequences, Uniform, Widening, paper_mixture
from tdvae.types import Pairs

torch.set_num_threads(1)

P_VALUE = 1e-4  # seeds are fixed: a test that passes once passes always
LAWS: dict[str, tuple[Jumps, dict[int, float]]] = {
    "uniform": (Uniform(3, 9), dict.fromkeys(range(3, 10), 1 / 7)),
    "consecutive": (Consecutive(), {1: 1.0}),
    "paper": (paper_mixture(), {dt: (0.08 if dt <= 10 else 0.0) + 0.2 / 120 for dt in range(1, 121)}),
    "unequal weights": (
        Mixture((Uniform(1, 1), Uniform(2, 3), Uniform(3, 4)), (0.5, 0.2, 0.3)),
        {1: 0.5, 2: 0.1, 3: 0.25, 4: 0.15},
    ),
}
RAGGED = torch.tensor([120, 121, 137, 150, 200, 311])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_law(values: Tensor, law: dict[int, float]) -> None:
    """Chi-square against a law on integers; also that nothing outside its support occurs."""
    values = values.flatten()
    counts = torch.bincount(values, minlength=max(law) + 1)
    assert int(counts[list(law)].sum()) == len(values), "values outside the stated range"
    if len(law) > 1:
        expected = [share * len(values) for share in law.values()]
        assert min(expected) > 5, "too few draws for the test to mean anything"
        assert stats.chisquare([int(counts[value]) for value in law], expected).pvalue > P_VALUE


def uniform_law(low: int, high: int) -> dict[int, float]:
    return dict.fromkeys(range(low, high + 1), 1 / (high - low + 1))


def assert_inside(pairs: Pairs, lengths: Tensor) -> None:
    room = lengths.view(-1, *[1] * (pairs.t1.ndim - 1))
    assert int(pairs.t1.min()) >= 0
    assert bool((pairs.t2 <= room).all())
    assert bool((pairs.t1 < pairs.t2).all())


# The law of δt


@pytest.mark.parametrize("name", LAWS)
def test_jump_lengths_have_their_stated_law(name: str) -> None:
    jumps, law = LAWS[name]
    pairs = jumps.sample(torch.full((200,), 130), 500, seeded(1))
    assert pairs.t1.shape == pairs.t2.shape == (200, 500)
    assert pairs.t1.dtype == pairs.t2.dtype == torch.int64
    assert_law(pairs.dt, law)


@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_the_same_for_every_length(name: str) -> None:
    """Even in a sequence that the longest jump fills from end to end."""
    jumps, law = LAWS[name]
    pairs = jumps.sample(RAGGED, 20_000, seeded(2))
    assert_inside(pairs, RAGGED)
    for row in pairs.dt:
        assert_law(row, law)


def test_the_paper_mixture_is_the_papers() -> None:
    assert paper_mixture() == Mixture((Uniform(1, 10), Uniform(1, 120)), (0.8, 0.2))
    assert paper_mixture().longest == 120


# The law of t1


@pytest.mark.parametrize("dt", [1, 2, 5])
def test_t1_is_uniform_over_all_times_that_leave_room(dt: int) -> None:
    lengths = torch.tensor([5, 12, 30])
    pairs = Uniform(1, 5).sample(lengths, 60_000, seeded(3))
    for length, t1, own_dt in zip(lengths.tolist(), pairs.t1, pairs.dt, strict=True):
        assert_law(t1[own_dt == dt], uniform_law(0, length - dt))


def test_nothing_piles_up_at_the_end() -> None:
    """Clipping would put every overlong jump's t2 on the last step. With one δt, t2 is uniform instead."""
    length, dt = 25, 20
    pairs = Uniform(dt, dt).sample(torch.full((100,), length), 500, seeded(4))
    assert_law(pairs.t2, uniform_law(dt, length))
    mixed = paper_mixture().sample(torch.full((100,), 120), 1_000, seeded(5))
    share_at_end = float((mixed.t2 == 120).double().mean())
    expected = sum(share / (120 - dt + 1) for dt, share in LAWS["paper"][1].items())
    assert abs(share_at_end - expected) < 5 * (expected / 100_000) ** 0.5


@given(
    lengths=st.lists(st.integers(7, 60), min_size=1, max_size=8),
    low=st.integers(1, 7),
    k=st.integers(1, 20),
    seed=st.integers(0, 2**31),
    progress=st.floats(0, 1),
)
@hypothesis_settings(deadline=None, derandomize=True, max_examples=50)
def test_pairs_always_lie_inside_their_sequence(
    lengths: list[int], low: int, k: int, seed: int, progress: float
) -> None:
    for jumps in (Uniform(low, 7), Widening(Uniform(low, 7)), Mixture((Uniform(low, 7), Consecutive()), (0.5, 0.5))):
        pairs = jumps.sample(torch.tensor(lengths), k, seeded(seed), progress)
        assert_inside(pairs, torch.tensor(lengths))
        assert bool((pairs.dt <= 7).all())


# Who gets which pair


def test_the_same_seed_gives_the_same_pairs() -> None:
    for jumps in (Uniform(1, 9), paper_mixture(), Widening(paper_mixture()), Subsequences(4, Uniform(1, 9))):
        first, again = (jumps.sample(RAGGED, 7, seeded(6), progress=0.2) for _ in range(2))
        other = jumps.sample(RAGGED, 7, seeded(7), progress=0.2)
        assert torch.equal(first.t1, again.t1)
        assert torch.equal(first.t2, again.t2)
        assert not torch.equal(first.t1, other.t1)


def test_sampling_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    paper_mixture().sample(RAGGED, 7, seeded(8))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("jumps", [paper_mixture(), Subsequences(3, Uniform(1, 9))], ids=["pairs", "subsequences"])
def test_every_sequence_gets_its_own_pairs(jumps: Jumps) -> None:
    pairs = jumps.sample(torch.full((50,), 200), 4, seeded(9))
    assert len({tuple(row.flatten().tolist()) for row in pairs.t1}) == 50
    assert len({tuple(row.flatten().tolist()) for row in pairs.dt}) > 40
    first_jump, second_jump = pairs.dt.flatten(1)[:, 0].double(), pairs.dt.flatten(1)[:, 1].double()
    assert not torch.equal(first_jump, second_jump)  # and its K pairs differ among themselves


# The curriculum


def test_widening_doubles_its_limit_at_even_intervals() -> None:
    """From 2 to 120 takes six doublings: 2, 4, … 64, then the final law."""
    jumps = Widening(Uniform(1, 120), start=2, until=0.6)
    for stage, limit in enumerate((2, 4, 8, 16, 32, 64)):
        for progress in (stage * 0.1 + 1e-6, stage * 0.1 + 0.099):
            assert_law(jumps.sample(torch.full((20,), 200), 500, seeded(10), progress).dt, uniform_law(1, limit))


@pytest.mark.parametrize("progress", [0.6, 0.8, 1.0])
def test_widening_ends_in_the_final_law(progress: float) -> None:
    jumps = Widening(paper_mixture(), start=2, until=0.6)
    assert_law(jumps.sample(torch.full((200,), 130), 500, seeded(11), progress).dt, LAWS["paper"][1])
    assert jumps.longest == 120


def test_widening_cuts_every_part_of_a_mixture() -> None:
    jumps = Widening(paper_mixture(), start=16, until=0.5)
    law = {dt: (0.08 if dt <= 10 else 0.0) + 0.2 / 16 for dt in range(1, 17)}
    assert_law(jumps.sample(torch.full((100,), 130), 500, seeded(12), progress=0.0).dt, law)


def test_widening_without_a_progress_is_the_final_law() -> None:
    """Validation says nothing about progress and must always see the same jumps."""
    jumps = Widening(Uniform(1, 64))
    assert_law(jumps.sample(torch.full((100,), 64), 500, seeded(13)).dt, uniform_law(1, 64))


def test_widening_never_goes_below_the_shortest_jump_of_the_final_law() -> None:
    assert_law(Widening(Uniform(5, 20), start=2).draw((1000,), seeded(14), 0.0), {5: 1.0})


def test_widening_needs_room_for_its_final_law_from_the_start() -> None:
    with pytest.raises(InputError, match="120"):
        Widening(paper_mixture()).sample(torch.tensor([119]), 1, seeded(15), progress=0.0)


# Subsequences


def test_subsequences_are_consecutive_points_of_one_sequence() -> None:
    lengths = torch.tensor([15, 16, 40])
    pairs = Subsequences(4, Uniform(1, 5)).sample(lengths, 2_000, seeded(16))
    assert pairs.t1.shape == pairs.t2.shape == (3, 2_000, 3)
    assert torch.equal(pairs.t1[..., 1:], pairs.t2[..., :-1])
    assert_inside(pairs, lengths)


def test_each_step_of_a_subsequence_has_the_stated_law() -> None:
    pairs = Subsequences(4, Uniform(2, 5)).sample(torch.tensor([15, 16, 40]), 10_000, seeded(17))
    for row in pairs.dt:
        for step in range(3):
            assert_law(row[:, step], uniform_law(2, 5))
    joint = pairs.dt[..., 0] * 10 + pairs.dt[..., 1]
    assert_law(joint, {10 * a + b: 1 / 16 for a in range(2, 6) for b in range(2, 6)})  # and they are independent


def test_the_start_of_a_subsequence_is_uniform_over_all_that_fit() -> None:
    pairs = Subsequences(3, Uniform(4, 4)).sample(torch.tensor([8, 14]), 20_000, seeded(18))
    assert_law(pairs.t1[0, :, 0], {0: 1.0})
    assert_law(pairs.t1[1, :, 0], uniform_law(0, 6))


def test_subsequences_of_two_points_are_pairs() -> None:
    pairs = Subsequences(2, Uniform(3, 9)).sample(RAGGED, 20_000, seeded(19))
    assert pairs.t1.shape == (len(RAGGED), 20_000, 1)
    assert_law(pairs.dt, uniform_law(3, 9))


def test_subsequences_widen_too() -> None:
    jumps = Subsequences(3, Widening(Uniform(1, 8), start=2, until=0.5))
    assert_law(jumps.sample(torch.full((50,), 16), 100, seeded(20), progress=0.0).dt, uniform_law(1, 2))
    assert jumps.longest == 16


# Bad arguments


@pytest.mark.parametrize(("low", "high"), [(0, 5), (-1, 5), (4, 3)])
def test_a_uniform_law_needs_one_or_more_steps(low: int, high: int) -> None:
    with pytest.raises(InputError, match=f"low={low}, high={high}"):
        Uniform(low, high)


@pytest.mark.parametrize("weights", [(0.5,), (0.5, 0.6), (1.5, -0.5), (0.2, 0.3, 0.5)])
def test_mixture_weights_are_one_share_for_each_part(weights: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="weights"):
        Mixture((Uniform(1, 2), Uniform(1, 3)), weights)


def test_a_mixture_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="parts"):
        Mixture((), ())


@pytest.mark.parametrize(("start", "until"), [(0, 0.5), (2, 0.0), (2, 1.5), (2, -0.1)])
def test_a_curriculum_starts_at_a_step_and_ends_within_the_training(start: int, until: float) -> None:
    with pytest.raises(InputError, match="curriculum"):
        Widening(Uniform(1, 8), start, until)


@pytest.mark.parametrize("points", [1, 0, -3])
def test_a_subsequence_has_at_least_two_points(points: int) -> None:
    with pytest.raises(InputError, match="points"):
        Subsequences(points, Uniform(1, 2))


@pytest.mark.parametrize(
    ("jumps", "span"),
    [(Uniform(1, 31), 31), (paper_mixture(), 120), (Subsequences(4, Uniform(1, 11)), 33)],
    ids=["uniform", "paper", "subsequences"],
)
def test_sequences_shorter_than_the_longest_jump_are_refused_with_both_numbers(jumps: Jumps, span: int) -> None:
    with pytest.raises(InputError, match=rf"(?s)\b27\b.*\b{span}\b"):
        jumps.sample(torch.tensor([500, 27, 400]), 3, seeded(21))
    assert jumps.sample(torch.tensor([span]), 3, seeded(22)).t1.shape[:2] == (1, 3)


def test_no_sequences_at_all_are_refused() -> None:
    with pytest.raises(InputError, match="sequences"):
        Uniform(1, 2).sample(torch.empty(0, dtype=torch.int64), 3, seeded(23))


# Laws in turn


def test_laws_in_turn_each_run_their_own_course() -> None:
    jumps = InTurn(Widening(Uniform(1, 16), start=2, until=0.5), Consecutive(), switch=0.6)
    assert jumps.longest == 16
    assert_law(jumps.draw((4_000,), seeded(30), 0.0), uniform_law(1, 2))
    assert_law(jumps.draw((16_000,), seeded(31), 0.59), uniform_law(1, 16))  # half of the first law's own course is 0.3
    assert_law(jumps.draw((4_000,), seeded(32), 0.29), uniform_law(1, 8))
    for progress in (0.6, 0.8, 1.0):
        assert_law(jumps.draw((100,), seeded(33), progress), {1: 1.0})
    with pytest.raises(InputError, match="switch"):
        InTurn(Uniform(1, 2), Consecutive(), switch=1.0)


def test_subsequences_are_the_outermost_law() -> None:
    """Inside another law their pairs would lose their order; outside, any law of steps will do."""
    inner = Subsequences(3, Uniform(1, 4))
    for wrong in (
        lambda: Widening(inner),
        lambda: Mixture((inner,), (1.0,)),
        lambda: InTurn(inner, Consecutive(), 0.5),
        lambda: Subsequences(3, inner),
    ):
        with pytest.raises(InputError, match="put Subsequences outside"):
            wrong()
