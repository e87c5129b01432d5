"""The map of a grid world: registered by actions and obstacles, around the agent, in belief and state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tdvae import InputError, TDVAEConfig
from tdvae.envs.minipacman import record
from tdvae.envs.minipacman.maze import WALLS
from tdvae.models import Classes, FilteringConfig, GatedMaps, GridMap, build
from tdvae.nn.memory import AGES, LivingMap, MapMemory

MOVES = ((0, 0), (0, 1), (-1, 0), (0, -1), (1, 0))
MAP = GridMap((17, 21), MOVES, obstacles=(1,), features=6)
SETTINGS: dict[str, Any] = {
    "event_shape": (5, 5),
    "decoder": Classes(7),
    "actions": 5,
    "memory": MAP,
    "state": "observed",
}


@pytest.fixture(scope="module")
def memory() -> MapMemory:
    torch.manual_seed(0)
    return MAP.build((5, 5), 7)


def test_the_map_of_a_game_shows_the_maze_around_pacman(memory: MapMemory) -> None:
    """Every place that was seen is a wall if and only if it is one, and what was seen last is what is there."""
    games = record(12, 40, seed=5)
    sequences = games.sequences()
    assert games.truth is not None
    assert sequences.actions is not None
    maps = memory.through(sequences.x, sequences.x, sequences.actions)
    assert maps.shape == (12, 41, 2 * 17 * 21)
    seen = 0
    for game in range(12):
        board = maps[game, -1, : 17 * 21].view(17, 21)
        y, x = games.truth.pacman[game, -1]
        for row, column in ((r, c) for r in range(15) for c in range(19)):
            kind = int(board[(row - y) % 17, (column - x) % 21])
            if kind < 7:
                seen += 1
                assert (kind == 1) == bool(WALLS[row, column])
                if kind in (2, 3):
                    assert games.truth.food[game, -1, row, column]
    assert seen > 12 * 100


def test_ages_count_the_steps_since_a_place_was_seen(memory: MapMemory) -> None:
    empty = torch.zeros(1, 5, 5, dtype=torch.long)
    right, one = torch.tensor([[[0.0, 1, 0, 0, 0]]]), torch.tensor([1])
    state = memory.first()[None]
    for _ in range(3):
        state = memory.after(state, empty, empty, one, right)
    age, board = state[0, 17 * 21 :].view(17, 21), state[0, : 17 * 21].view(17, 21)
    assert age[0, :3].tolist() == [0, 0, 0]
    assert age[0, -4:].tolist() == [2, 1, 0, 0]  # to the left, where the agent came from
    assert board[0, -5] == 7  # not seen yet


def test_an_obstacle_blocks_a_move_and_a_jump_follows_all_actions(memory: MapMemory) -> None:
    window = torch.zeros(1, 5, 5, dtype=torch.long)
    window[0, 2, 4] = 1  # a wall two cells to the right
    start = memory.after(memory.first()[None], window, window, torch.tensor([1]), torch.zeros(1, 1, 5))
    rights = torch.tensor([0.0, 1, 0, 0, 0]).expand(1, 3, 5)
    features = memory(start, torch.tensor([3]), rights)
    there = features[0, : 25 * 7].view(5, 5, 7)
    assert there[2, 3, 1] == 1  # after one step the wall is ahead, and it stays there
    assert there[2, 4].sum() == 0  # what is behind it was never seen
    assert features.shape == (1, 25 * 7 + 6)


def test_features_are_the_same_for_all_samples_of_a_state(memory: MapMemory) -> None:
    state = memory.first().expand(3, -1)
    actions, dt = torch.eye(5)[:3][:, None], torch.ones(3, dtype=torch.long)
    once = memory(state, dt, actions)
    expanded = memory(state.expand(4, 3, -1), dt.expand(4, 3), actions.expand(4, 3, 1, 5))
    assert expanded.shape == (4, 3, memory.features_size)
    assert torch.equal(expanded[2], once)
    assert len(AGES) == 3


@pytest.mark.parametrize("channels", [0, 3])
def test_beliefs_online_are_those_of_whole_games(channels: int) -> None:
    torch.manual_seed(1)
    settings = {**SETTINGS, "memory": replace(MAP, channels=channels)}
    model = build(TDVAEConfig(**settings, latent=3, maps=GatedMaps(8), posterior="product"))
    sequences = record(4, 9, seed=2).sequences()
    assert sequences.actions is not None
    belief = model.initial(4)
    for t in range(9):
        belief = model.update(belief, sequences.x[:, t], sequences.actions[:, t])
    with torch.no_grad():
        codes = model.filter(replace(sequences, rewards=None)).codes
    torch.testing.assert_close(belief.code, codes[:, -1])
    torch.testing.assert_close(model.features_at(sequences, sequences.lengths), belief.x)


@pytest.fixture
def living() -> LivingMap:
    torch.manual_seed(2)
    memory = replace(MAP, channels=3).build((5, 5), 7)
    assert isinstance(memory, LivingMap)
    return memory


def test_learned_states_are_registered_as_the_map_is(living: LivingMap) -> None:
    """Without learned dynamics, a state stays with its place while the agent moves."""
    with torch.no_grad():
        living.bias[:, :3] = -30.0  # the gate is shut
    window, one = torch.zeros(1, 5, 5, dtype=torch.long), torch.tensor([1])
    state = living.after(living.first()[None], window, window, one, torch.zeros(1, 1, 5))
    with torch.no_grad():
        living.states(state)[0, 2 * 21 + 3] = torch.tensor([1.0, 2.0, 3.0])  # two rows down, three columns right
        after = living.after(state, window, window, one, torch.tensor([[[0.0, 1, 0, 0, 0]]]))
    assert living.states(after)[0, 2 * 21 + 2].tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert int((living.states(after).abs() > 1e-6).sum()) == 3


def test_learned_states_spread_to_places_out_of_sight(living: LivingMap) -> None:
    """What is seen at a place changes the states of those beside it one step later, and no further."""
    empty, one, stay = torch.zeros(1, 5, 5, dtype=torch.long), torch.tensor([1]), torch.zeros(1, 1, 5)
    ghost = empty.clone()
    ghost[0, 2, 4] = 5  # at the right edge of the window
    with torch.no_grad():
        maps = [living.after(living.first()[None], x, x, one, stay) for x in (empty, ghost)]
        different = (living.states(maps[0]) != living.states(maps[1])).any(-1)[0].view(17, 21)
        later = [living.after(state, empty, empty, one, stay) for state in maps]
        spread = (living.states(later[0]) != living.states(later[1])).any(-1)[0].view(17, 21)
    assert different.nonzero().tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [16, 2]]
    assert bool(spread[0, 4])
    assert not bool(spread[0, 5])


def test_a_prediction_trains_the_states_at_earlier_steps(living: LivingMap) -> None:
    sequences = record(3, 6, seed=4).sequences()
    assert sequences.actions is not None
    maps = living.through(sequences.x, sequences.x, sequences.actions)
    assert maps.shape == (3, 7, living.size)
    read = living(maps[:, -1], torch.ones(3, dtype=torch.long), sequences.actions[:, -1:])
    assert read.shape == (3, living.features_size)
    read[:, 25 * 7 : 25 * 10].sum().backward()
    for weight in (living.cell.weight, living.kinds.weight, living.bias):
        assert weight.grad is not None
        assert float(weight.grad.abs().sum()) > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory": replace(MAP, moves=MOVES[:3])}, "memory.moves: expected one for each of the 5 actions, got"),
        ({"memory": replace(MAP, size=(4, 21))}, "memory.size: expected at least the window"),
        ({"memory": replace(MAP, obstacles=(7,))}, "memory.obstacles: expected classes from 0 to 6"),
        ({"event_shape": (25,)}, "memory: expected None unless observations are windows"),
        ({"state": "latent"}, "state: expected 'observed' with a map"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TDVAEConfig(**{**SETTINGS, **changed})


def test_a_product_encoder_does_not_know_the_map() -> None:
    with pytest.raises(InputError, match="posterior: expected 'free' with a map"):
        FilteringConfig(**SETTINGS, posterior="product")
