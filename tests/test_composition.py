"""Jumps made one after another, and the experiment on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import tdvae
from tdvae import InputError, cli
from tdvae.envs.pendulum import record_pendulum
from tdvae.models import LinearRecurrence, Readout, ResidualMaps
from tdvae_paper.composition import SETS, STATES, WAYS


def test_the_pendulum_is_on_the_unit_circle_and_the_same_every_time() -> None:
    first, second = (record_pendulum(3, 20, seed=4) for _ in range(2))
    assert first.actions is not None
    torch.testing.assert_close(first.x.norm(dim=-1), torch.ones(3, 20), rtol=1e-5, atol=1e-5)
    assert torch.equal(first.x, second.x)
    assert float(first.actions.abs().max()) <= 2.0
    assert not torch.equal(first.x[0], first.x[1])
    with pytest.raises(InputError, match="steps: expected at least 1, got 0"):
        record_pendulum(3, 0, seed=4)


def test_the_pendulum_obeys_its_actions() -> None:
    """θ̈ = 15 sin θ + 3 a, so the change of velocity between steps of 0.05 s follows from angle and torque."""
    data = record_pendulum(5, 30, seed=1)
    assert data.actions is not None
    angle = torch.atan2(data.x[..., 1], data.x[..., 0]).double()
    velocity = (angle.diff(dim=1) + torch.pi) % (2 * torch.pi) - torch.pi  # per step
    gained = velocity.diff(dim=1) / 0.05
    expected = (15 * torch.sin(angle[:, 1:-1]) + 3 * data.actions[:, 2:, 0].double()) * 0.05
    slow = (velocity[:, 1:].abs() < 0.39) & (velocity[:, :-1].abs() < 0.39)  # the velocity is limited to 8 rad/s
    torch.testing.assert_close(gained[slow], expected[slow], rtol=0, atol=1e-3)


@pytest.mark.parametrize("observed_state", [False, True])
def test_a_list_of_one_jump_is_that_jump(observed_state: bool) -> None:
    data = record_pendulum(4, 12, seed=0)
    model = tdvae.models.for_data(
        data,
        latent=2,
        belief=LinearRecurrence(6),
        readout=Readout(8, hidden=64),
        maps=ResidualMaps(8),
        state="observed" if observed_state else "latent",
    )
    belief, actions = tdvae.belief_at(model, data, 6), data.actions
    assert actions is not None
    densities = []
    for dt in (3, [3]):
        torch.manual_seed(0)
        densities.append(tdvae.forecast(model, belief, dt, 5, actions[:, 6:9]).mean)
    assert torch.equal(*densities)
    torch.manual_seed(0)
    two = tdvae.forecast(model, belief, [1, 2], 5, actions[:, 6:9])
    torch.manual_seed(0)
    state = model.transition(model.sample_state(belief, 5), 1, actions[:, 6:7])
    torch.testing.assert_close(two.components.mean, model.predict(state, 2, actions[:, 7:9]).mean)
    with pytest.raises(InputError, match="dt: expected integers of at least 1"):
        tdvae.forecast(model, belief, [], 5, actions[:, 6:9])


def test_the_composition_command_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["run", "composition", "--preset", "smoke", "--run-dir", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["tdvae", *command])
    cli.main()
    measures = json.loads((tmp_path / "run" / "composition.json").read_text())["measures"]
    one, *composed = WAYS
    for name in SETS:
        for state in STATES:
            nll = {way: entry["mean"] for way, entry in measures["nll"][name][state].items()}
            for way in composed:
                cost = measures["cost_of_composition"][name][state][way]["mean"]
                assert cost == pytest.approx(nll[way] - nll[one], abs=1e-6)
