"""Online beliefs: updates without an autograd graph, rows of beliefs, and restarts of single rows."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from torch import Tensor

import tdvae
from tdvae import ArgumentTypeError, Belief, InputError, Sequences, TDVAEConfig
from tdvae.models import LSTM, GatedMaps, Gaussian, Model, build
from tdvae.types import missing_as_nan
from tests.test_models import CONFIGS, NEXT_STEP, STATE_SPACE, N, observations, tensors_of

EVERY = {**CONFIGS, **NEXT_STEP, **STATE_SPACE}


@pytest.fixture(params=EVERY)
def any_model(request: pytest.FixtureRequest) -> Model:
    return build(EVERY[request.param])


def updated(model: Model, belief: Belief, sequences: Sequences, t: int, graph: bool = False) -> Belief:
    """The belief after x_t, given that after x_{t-1}."""
    a = None if sequences.actions is None else sequences.actions[:, t - 1]
    r = None if sequences.rewards is None else sequences.rewards[:, t - 1]
    return model.update(belief, missing_as_nan(*sequences.at(t)), a, r, graph=graph)


# Autograd


def test_an_update_keeps_no_graph(any_model: Model) -> None:
    sequences, belief = observations(any_model.config), any_model.initial(N)
    for t in (1, 2):
        belief = updated(any_model, belief, sequences, t)
        assert torch.is_grad_enabled()
        assert not any(part.requires_grad for part in tensors_of(belief))


def test_an_update_with_a_graph_has_the_gradient_of_the_filter(any_model: Model) -> None:
    sequences, belief = observations(any_model.config), any_model.initial(N)
    for t in (1, 2, 3):
        belief = updated(any_model, belief, sequences, t, graph=True)
    gradients = []
    for code in (belief.code, any_model.filter(sequences.until(3)).codes[:, 3]):
        any_model.zero_grad()
        code.square().sum().backward()
        gradients.append({name: p.grad for name, p in any_model.named_parameters() if p.grad is not None})
    online, whole = gradients
    assert any(bool(gradient.abs().sum() > 0) for gradient in online.values())
    for name, gradient in whole.items():
        torch.testing.assert_close(online.get(name, torch.zeros_like(gradient)), gradient, rtol=1e-3, atol=1e-5)


def resident() -> int:
    """The memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
def test_many_updates_need_no_more_memory_than_one() -> None:
    """With a graph, each of them would keep some kilobytes."""
    model = build(TDVAEConfig(latent=1, layers=1, belief=LSTM(2), decoder=Gaussian((2,)), maps=GatedMaps(2)))
    belief, x = model.initial(1), torch.zeros(1, 1)
    used: list[int] = []
    for updates in (1_000, 20_000):
        for _ in range(updates):
            belief = model.update(belief, x)
        gc.collect()
        used.append(resident())
    assert used[1] - used[0] < 4 * 2**20


# Rows


def test_rows_of_a_belief_are_updated_as_alone(any_model: Model) -> None:
    sequences, belief = observations(any_model.config), any_model.initial(N)
    belief = updated(any_model, belief, sequences, 1)
    both = updated(any_model, belief, sequences, 2)
    for rows in (torch.tensor([2, 0]), torch.tensor([True, False, True]), slice(1, None)):
        some = updated(any_model, belief[rows], sequences.select(rows), 2)
        torch.testing.assert_close(some.code, both.code[rows], rtol=1e-4, atol=1e-5)
        assert (some.x is None) == (both.x is None)
        if some.x is not None and both.x is not None:
            torch.testing.assert_close(some.x, both.x[rows])
    for part, whole in zip(tensors_of(belief[1:2]), tensors_of(belief), strict=True):
        assert torch.equal(part, whole[1:2])


def test_where_takes_whole_rows_of_either_belief(any_model: Model) -> None:
    belief = updated(any_model, any_model.initial(N), observations(any_model.config), 1)
    other, rows = any_model.initial(N), torch.tensor([True, False, True])
    mixed = belief.where(rows, other)
    for part, kept, new in zip(*map(tensors_of, (mixed, belief, other)), strict=True):
        assert torch.equal(part[rows], kept[rows])
        assert torch.equal(part[~rows], new[~rows])
    assert len(tensors_of(mixed)) == len(tensors_of(belief))


def test_a_restarted_row_forgets_and_the_others_go_on(any_model: Model) -> None:
    """As in a vector of environments, one of which was reset."""
    sequences, belief = observations(any_model.config), any_model.initial(N)
    for t in (1, 2):
        belief = updated(any_model, belief, sequences, t)
    ended = torch.tensor([False, True, False])
    restarted = updated(any_model, belief.where(~ended, any_model.initial(N)), sequences, 3)
    on, anew = updated(any_model, belief, sequences, 3), updated(any_model, any_model.initial(N), sequences, 3)
    torch.testing.assert_close(restarted.code, torch.where(ended[:, None], anew.code, on.code), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(restarted.code[1], on.code[1])


@pytest.mark.parametrize(
    "rows", [torch.ones(2).bool(), torch.ones(N, 1).bool(), torch.tensor(True), torch.ones(N), torch.arange(N)], ids=str
)
def test_where_takes_one_truth_value_for_each_row(rows: Tensor) -> None:
    belief = build(TDVAEConfig()).initial(N)
    with pytest.raises(InputError, match=r"^rows: expected (shape \(3\)|truth values), got "):
        belief.where(rows, belief)


def test_where_takes_beliefs_of_one_model_about_as_many_sequences() -> None:
    model, other = build(TDVAEConfig()), build(TDVAEConfig(belief=LSTM(4)))
    belief, rows = model.initial(N), torch.ones(N).bool()
    for different in (model.initial(N + 1), other.initial(N), build(TDVAEConfig(state="observed")).initial(N)):
        with pytest.raises(InputError, match=r"^other: expected a belief of the same model about as many sequences"):
            belief.where(rows, different)
    with pytest.raises(ArgumentTypeError, match=r"^other: expected a Belief, got Tensor"):
        belief.where(rows, belief.code)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^rows: expected a Tensor, got list"):
        belief.where([True] * N, belief)  # type: ignore[arg-type]


def test_a_belief_of_the_past_is_not_changed_by_updates(any_model: Model) -> None:
    sequences = observations(any_model.config)
    belief = tdvae.belief_at(any_model, sequences, 2)
    before = [part.clone() for part in tensors_of(belief)]
    updated(any_model, belief, sequences, 3)
    assert all(torch.equal(part, copy) for part, copy in zip(tensors_of(belief), before, strict=True))
