"""The first-person experiment: its measures in cases with known values, and the command end to end."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from tdvae import InputError, cli
from tdvae.data import Recording
from tdvae.models import build
from tdvae_paper.experiment import Task
from tdvae_paper.first_person import measures as measuring
from tdvae_paper.first_person.experiment import (
    EXPERIMENT,
    METHODS,
    MODELS,
    PRESETS,
    Walk,
    baselines,
    ensure_recorded,
    evenly_spaced,
    split_recording,
)
from tdvae_paper.first_person.measures import LastFrame, Marginal
from tdvae_paper.probes import linear_fit
from tdvae_paper.runner import measure, train

SMOKE = PRESETS["smoke"]


@pytest.fixture(scope="module", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recording for all tests of this file."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TDVAE_DATA", str(folder))
        ensure_recorded(SMOKE.walk)
    return folder


@pytest.fixture(autouse=True)
def _use_data_folder(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDVAE_DATA", str(data_folder))


def constant_frames(value: float, count: int = 4) -> torch.Tensor:
    return torch.full((count, 3, 4, 4), value)


# Baselines


def test_marginal_is_a_smoothed_histogram() -> None:
    """Four black and four white frames, with 0.1 added to the count of each of the 256 values."""
    frames = torch.cat([constant_frames(0.0), constant_frames(1.0)])
    marginal = Marginal.fit(frames, extra=0.1)
    expected = -math.log2(4.1 / (8 + 25.6))
    assert measuring.bits(marginal.log_prob(constant_frames(1.0)), constant_frames(1.0)) == pytest.approx(
        expected, rel=1e-5
    )
    assert measuring.bits(marginal.log_prob(constant_frames(0.4)), constant_frames(0.4)) == pytest.approx(
        -math.log2(0.1 / 33.6), rel=1e-5
    )


def test_last_frame_baseline_for_equal_frames_and_for_noise() -> None:
    torch.manual_seed(0)
    seen, noise = (torch.randint(256, (8, 3, 16, 16)) / 255 for _ in range(2))
    equal, unrelated = LastFrame.fit(seen, seen), LastFrame.fit(seen, noise)
    assert (
        measuring.bits(equal.log_prob(seen, seen), seen) < 1.6
    )  # the narrowest logistic is wider than one of the 256 values
    assert measuring.bits(unrelated.log_prob(seen, noise), noise) == pytest.approx(8, abs=0.4)
    assert float(equal.weights.sum()) == pytest.approx(1, abs=1e-5)


def test_baselines_are_fitted_and_tested_on_different_episodes() -> None:
    training, validation, test = split_recording(SMOKE)
    frames = [
        {frame for start in windows.starts.tolist() for frame in range(start, start + windows.length)}
        for windows in (training, validation, test)
    ]
    assert not frames[0] & frames[2]
    assert not frames[1] & frames[2]
    found = baselines(SMOKE)
    assert set(found) == {"last_frame", "marginal"}
    assert all(set(by_jump) == {"1", "4"} for by_jump in found.values())
    assert found["last_frame"]["1"] < found["last_frame"]["4"]


# Spreads, motion, poses


def test_squared_distances_within_and_across_states() -> None:
    torch.manual_seed(0)
    per_state = torch.randn(40, 1, 1, 500).expand(40, 30, 1, 500)
    noise = torch.randn(40, 30, 1, 500)
    within, across = measuring.squared_distances(per_state)
    assert float(within) < 1e-9
    assert float(across) == pytest.approx(2, rel=0.02)
    within, across = measuring.squared_distances(noise)
    assert float(across / within) == pytest.approx(1, rel=0.01)
    within, across = measuring.squared_distances(math.sqrt(3) * per_state + noise)  # variances 3 and 1
    assert float(across / within) == pytest.approx(4, rel=0.02)


def test_squared_distances_need_two_states_and_two_futures() -> None:
    with pytest.raises(InputError, match="at least 2 states"):
        measuring.squared_distances(torch.zeros(1, 5, 1, 3))


def test_squared_distances_equal_the_mean_over_all_pairs() -> None:
    torch.manual_seed(1)
    frames = torch.randn(3, 2, 4, 7, dtype=torch.float64)
    pairs = [
        ((frames[a, i] - frames[b, j]) ** 2).mean(1)
        for a in range(3)
        for b in range(3)
        for i in range(2)
        for j in range(2)
        if a != b
    ]
    _, across = measuring.squared_distances(frames)
    torch.testing.assert_close(across, torch.stack(pairs).mean(0))


def test_changes_and_wasserstein_distance() -> None:
    frames = torch.stack([constant_frames(0.1), constant_frames(0.4), constant_frames(0.4)])
    torch.testing.assert_close(measuring.changes(frames), torch.tensor([[0.3] * 4, [0.0] * 4]))
    assert measuring.wasserstein(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([7.0, 3.0, 2.0])) == pytest.approx(1)


def test_linear_fit_predicts_a_linear_target() -> None:
    torch.manual_seed(0)
    codes = torch.randn(300, 5)
    truth = codes[:, :2] @ torch.tensor([[2.0, 0.0], [1.0, -1.0]]) + 7
    fit = linear_fit(codes[:200], truth[:200], ridge=1e-6)
    assert measuring.r_squared(fit(codes[200:]), truth[200:]) > 0.999
    unrelated = linear_fit(torch.randn(200, 5), truth[:200], ridge=1.0)
    assert measuring.r_squared(unrelated(torch.randn(100, 5)), truth[200:]) < 0.1


# Densities


def test_motion_is_given_relative_to_the_heading() -> None:
    """The agent moved 3 to the north and now faces west, so it moved 3 to its right."""
    steps = measuring.RECENT_STEPS
    pose = torch.zeros(1, steps + 3, 3)
    pose[0, -1] = torch.tensor([0.0, 5.0, math.pi])
    pose[0, -1 - steps] = torch.tensor([0.0, 2.0, math.pi / 2])
    truth = measuring.pose_truth(pose)
    torch.testing.assert_close(truth["position"], torch.tensor([[0.0, 5.0]]))
    torch.testing.assert_close(truth["heading"], torch.tensor([[-1.0, 0.0]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(truth["moved"], torch.tensor([[0.0, -3.0]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(truth["turned"], torch.tensor([[0.0, 1.0]]), atol=1e-6, rtol=0)


def test_bits_of_one_jump_and_of_single_steps_agree_for_dt_1() -> None:
    """For δt = 1 both are the same density, so the estimates agree up to sampling error."""
    torch.manual_seed(0)
    model = build(SMOKE.model)
    moments = evenly_spaced(split_recording(SMOKE)[2], 4)
    estimates = [
        measuring.bits_ahead(model, moments, SMOKE.seen, 1, samples=32, in_one_jump=jumpy) for jumpy in (True, False)
    ]
    for kind in ("smoothed", "rolled"):
        assert estimates[0][kind] == pytest.approx(estimates[1][kind], rel=0.02)


# The data


def test_walk_is_recorded_once(data_folder: Path) -> None:
    path = ensure_recorded(SMOKE.walk)
    assert path.parent == data_folder / "first_person"
    before = path.stat().st_mtime_ns
    assert ensure_recorded(SMOKE.walk) == path
    assert path.stat().st_mtime_ns == before
    with Recording(path) as recording:
        assert (len(recording), recording.size) == (SMOKE.walk.frames, SMOKE.walk.size)


def test_recording_with_other_settings_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(SMOKE.walk, seed=1)
    (tmp_path / "first_person").mkdir()
    (tmp_path / "first_person" / other.file).write_bytes(ensure_recorded(SMOKE.walk).read_bytes())
    monkeypatch.setenv("TDVAE_DATA", str(tmp_path))
    with pytest.raises(InputError, match="expected a recording of"):
        split_recording(replace(SMOKE, walk=other))


def test_recording_of_another_frame_size_is_an_error() -> None:
    with pytest.raises(InputError, match="expected frames of"):
        split_recording(replace(SMOKE, model=MODELS["cpu"]))


def test_missing_vizdoom_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TDVAE_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "vizdoom", None)
    with pytest.raises(InputError, match=r"tdvae\[vizdoom\]"):
        ensure_recorded(Walk(frames=20))
    assert not list(tmp_path.rglob("*.h5"))


# The command


def test_command_runs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"

    def run(*more: str) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        command = ["tdvae", "run", "first-person", "--preset", "smoke", "--run-dir", str(folder), *more]
        monkeypatch.setattr("sys.argv", command)
        cli.main()
        measures: dict[str, dict[str, dict[str, dict[str, float]]]] = json.loads(
            (folder / "first_person.json").read_text()
        )["measures"]
        return measures

    measures = run()
    assert set(measures["bits_per_dim"]) == {"tdvae", "last_frame", "marginal", "step_by_step"}
    for by_jump in measures["bits_per_dim"].values():
        assert set(by_jump) == {"1", "4"}
    for method in METHODS:  # the lower of two upper bounds
        kinds = [measures["bits_estimates"][f"{method}, {kind}"]["4"]["mean"] for kind in ("smoothed", "rolled")]
        assert measures["bits_per_dim"][method]["4"]["mean"] == min(kinds)
    assert measures["motion_distance"]["last_frame"]["1"]["mean"] == pytest.approx(1)  # copied frames do not change
    assert {"tdvae, belief", "tdvae, frame", "pixels"} <= set(measures["pose_probe"])
    assert set(measures["future_spread_ratio"]) == set(measures["time_ratio"]) == {"1", "4"}
    for ending in (".png", "_rollouts.png", ".gif"):
        with Image.open(folder / f"first_person{ending}") as picture:
            assert picture.size[0] > 200
            assert getattr(picture, "n_frames", 1) > (2 if ending == ".gif" else 0)
    (folder / "step_by_step-seed-0" / "measures.json").unlink()  # as after an interruption before it was measured
    assert run("--resume") == measures


def test_training_and_measures_on_vizdoom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and measure on frames of ViZDoom."""
    pytest.importorskip("vizdoom")
    monkeypatch.setenv("TDVAE_DATA", str(tmp_path))
    preset = replace(SMOKE, walk=Walk(frames=240, size=32, episode=20))
    task = Task(0, "run", "tdvae")
    train(EXPERIMENT, preset, "smoke", task, tmp_path / "run")
    measures = measure(EXPERIMENT, preset, task, tmp_path / "run")
    assert 0 < measures["bits"]["smoothed"]["1"] < 30
    assert measures["time_ratio"]["4"] > 0
