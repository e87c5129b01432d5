"""The corridors experiment: its measures in cases with known values, and the command end to end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tdvae import InputError, cli
from tdvae.codec import load_codec
from tdvae.codes import encode_sequences
from tdvae.envs.corridors import CELL, Maze
from tdvae.envs.corridors_walk import LEFT, RIGHT, Walk, walk
from tdvae.forecasting.evaluation import energy_score
from tdvae.models import TDVAE, build
from tdvae.rollouts import belief_at
from tdvae.saved import load_saved
from tdvae.types import Sequences
from tdvae_paper.first_person import codes_measures as measuring
from tdvae_paper.first_person.codes import EXPERIMENT, PRESETS, model
from tdvae_paper.first_person.codes_data import coded, moments
from tdvae_paper.first_person.codes_memory import mazes_of, seen_columns

SMOKE = PRESETS["smoke"]


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recording and one codec for all tests of this file."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(autouse=True)
def _use_data_folder(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coded.cache_clear()
    monkeypatch.setenv("TDVAE_DATA", str(data_folder))


# Measures


def test_energy_score_of_known_samples() -> None:
    """Frames of constant brightness: distances are differences of brightness."""
    frames = torch.tensor([0.0, 0.2, 0.6])[None, :, None, None, None].expand(1, 3, 3, 4, 4)
    truth = torch.full((1, 3, 4, 4), 0.2)
    expected = (0.2 + 0.0 + 0.4) / 3 - (0.2 + 0.6 + 0.4) / 3 / 2
    assert float(energy_score(frames, truth)) == pytest.approx(expected, abs=1e-4)


def test_energy_score_prefers_the_true_distribution() -> None:
    torch.manual_seed(0)
    truth, good = torch.rand(400, 3, 1, 1), torch.rand(400, 20, 3, 1, 1)
    scores = [float(energy_score(s, truth).mean()) for s in (good, 0.5 + 0.1 * good, good + 0.3)]
    assert scores[0] == min(scores)


def test_gradient_is_larger_for_sharp_frames() -> None:
    sharp = torch.zeros(2, 3, 16, 16)
    sharp[..., ::4] = 1.0
    assert (measuring.gradient(torch.nn.functional.avg_pool2d(sharp, 3, 1, 1)) < measuring.gradient(sharp)).all()


def test_futures_are_grouped_by_state() -> None:
    data = coded(SMOKE.world, True)
    trained = build(replace(SMOKE.model, actions=3))
    part = moments(data.test, 3).select(slice(None))
    torch.manual_seed(0)
    for jump in (None, 3):
        drawn = measuring.futures(trained, part, 6, 8, states=2, each=4, jump=jump)
        assert drawn.shape == (2, 4, len(part), 8)
        assert not torch.equal(drawn[:, 0], drawn[:, 1])


def test_actions_after_a_moment_are_those_of_the_jump() -> None:
    part = coded(SMOKE.world, True).test.select(slice(0, 1))
    assert part.actions is not None
    found = measuring.actions_after(part, 6, 4)
    assert found is not None
    assert torch.equal(found, part.actions[:, 6:10])


# Memory


def test_walls_seen_in_a_full_turn_are_seen() -> None:
    maze = Maze.draw(4, np.random.default_rng(1))
    pose = (1.5 * CELL, 1.5 * CELL, 0.0)
    for actions, seen in (([LEFT] * 16 + [RIGHT] * 8, 1.0), ([RIGHT] * 8, 0.3)):
        poses = walk(pose, actions)
        one = Walk(maze, poses, np.zeros(len(poses), np.int16))
        share = float(seen_columns(one, len(poses) - 8, len(poses), 64).float().mean())
        assert share == 1.0 if seen == 1.0 else share < seen


def test_mazes_of_windows_are_those_of_their_frames() -> None:
    data = coded(SMOKE.world, False)
    chosen = moments(data.test, 4)
    frames = chosen.frames.select(slice(None)).x
    for one, shown in zip(mazes_of(chosen), frames, strict=True):
        again = torch.from_numpy(one.frames(32)).permute(0, 3, 1, 2) / 255
        assert float((again - shown).abs().mean()) < 0.01  # poses are stored in single precision


# The experiment


def test_variants_differ_in_actions_and_jumps_only() -> None:
    tasks = EXPERIMENT.tasks(SMOKE, [3])
    assert [task.variant for task in tasks] == ["actions", "paper", "rollouts"]
    calls = {task.variant: EXPERIMENT.training(SMOKE, task) for task in tasks}
    trainings = {variant: call.args[1] for variant, call in calls.items() if isinstance(call, partial)}
    models = {variant: training.learner.model for variant, training in trainings.items()}
    assert [one.config.actions for one in models.values()] == [3, 0, 0]
    assert {type(one) for one in models.values()} == {TDVAE}
    assert [training.jumps.longest for training in trainings.values()] == [8, 8, 5]
    weights = [one.state_dict() for one in (models["paper"], models["rollouts"])]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_published_preset_has_the_codecs_size() -> None:
    preset = PRESETS["cpu"]
    assert preset.model.event_shape == (preset.world.codec.size,) == (64,)
    assert preset.seen + max(preset.measured) <= preset.world.window
    assert preset.variants["actions"].jumps.longest == 40


def test_model_of_other_codes_is_refused() -> None:
    data = coded(SMOKE.world, False)
    with pytest.raises(InputError, match=r"^x: "):
        build(model(9, belief=16, maps=16)).filter(data.test.select(slice(0, 1)))


def test_command_writes_results_figures_and_the_codec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["tdvae", "run", "first-person-corridors", "--preset", "smoke", "--run-dir", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", arguments)
    cli.main()
    content = json.loads((tmp_path / "run/first_person.json").read_text())
    measures = content["measures"]["corridors"]
    for name in ("energy_skill", "best_of", "sharpness", "future_spread_ratio"):
        assert set(measures[name]) == {"actions", "paper", "rollouts"}
        assert set(measures[name]["actions"]) == {"1", "4"}
    assert set(measures["seen_error"]) == {"actions"}
    assert set(measures["full_turn"]["actions"]) == {"turned", "not_turned"}
    codec = load_codec(tmp_path / "run/actions-seed-0/codec")
    assert codec.size == 8
    for name in ("junction.png", "beliefs.png", "strips.png", "corridors.gif"):
        with Image.open(tmp_path / f"run/first_person_{name}") as picture:
            assert picture.width > 64  # a frame of the smoke preset has 32 pixels


def test_shipped_model_predicts_the_next_frame_of_a_new_maze() -> None:
    found = load_saved("first_person")
    assert found.codec is not None
    walks = [Walk.draw(seed, 24) for seed in range(4)]
    frames = torch.from_numpy(np.stack([one.frames(64) for one in walks])).permute(0, 1, 4, 2, 3).float() / 255
    steps = torch.from_numpy(np.stack([one.actions for one in walks]).astype(np.int64)) + 1
    actions = torch.nn.functional.one_hot(steps, 4)[..., 1:].float()
    sequences = Sequences(frames, torch.full((4,), 24), actions=actions)
    with torch.no_grad():
        state = found.model.sample_state(belief_at(found.model, encode_sequences(found.codec, sequences), 20), 1)
        later = found.model.transition(state, 4, actions[:, 20:24])
        imagined = found.codec.decode(found.model.decode(later).mean[0])
    errors = [float((one - frames[:, 23]).square().mean().sqrt()) for one in (imagined, frames[:, 19])]
    assert errors[0] < 0.7 * errors[1]  # than the last frame
