"""Experiments: fits of sinusoids, summaries of results, baselines, and the commands end to end."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

import tdvae
from tdvae import cli, saved
from tdvae.data import OscillatorSettings, simulate
from tdvae.exact import OscillatorOracle
from tdvae.forecasting import RUNS, OwnData
from tdvae.forecasting.evaluation import evaluate
from tdvae.models import LSTM, ResidualMaps
from tdvae.reporting.results import Measures, summarise
from tdvae_paper.oscillator.experiment import ABLATION_PRESETS, PRESETS, Variants
from tdvae_paper.oscillator.measures import GRID, START, STEPS, exact_signals, fit_sinusoid

torch.set_num_threads(1)

GRID_STEP = (GRID[1] - GRID[0]) / (GRID[2] - 1)

# Fits of sinusoids


def sinusoid(frequency: float, amplitude: float, phase: float, steps: int = 21) -> Tensor:
    return amplitude * torch.cos(frequency * torch.arange(steps, dtype=torch.float64) + phase)


@given(frequency=st.floats(0.15, 0.6), amplitude=st.floats(0.3, 2), phase=st.floats(0, 2 * math.pi))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=50)
def test_fit_of_a_noiseless_sinusoid_is_as_accurate_as_the_grid(
    frequency: float, amplitude: float, phase: float
) -> None:
    fitted_frequency, fitted_amplitude = fit_sinusoid(sinusoid(frequency, amplitude, phase))
    assert abs(fitted_frequency.item() - frequency) <= GRID_STEP
    assert fitted_amplitude.item() == pytest.approx(amplitude, rel=0.03)


@pytest.mark.parametrize("index", [0, 40, 150, 300])
def test_fit_is_exact_for_a_frequency_on_the_grid(index: int) -> None:
    frequency = GRID[0] + index * GRID_STEP
    fitted_frequency, fitted_amplitude = fit_sinusoid(sinusoid(frequency, 0.7, 1.0))
    assert fitted_frequency.item() == pytest.approx(frequency, abs=1e-12)
    assert fitted_amplitude.item() == pytest.approx(0.7, rel=1e-6)


def test_fit_of_a_noisy_sinusoid_has_small_errors() -> None:
    """With noise 0.03 on 21 points, least squares has an error of about 0.002 rad/step at amplitude 1."""
    generator = torch.Generator().manual_seed(0)
    frequency = 0.2 + 0.35 * torch.rand(200, generator=generator, dtype=torch.float64)
    phase = 2 * math.pi * torch.rand(200, generator=generator, dtype=torch.float64)
    clean = torch.cos(frequency[:, None] * torch.arange(21) + phase[:, None])
    noise = 0.03 * torch.randn(200, 21, generator=generator, dtype=torch.float64)
    fitted_frequency, fitted_amplitude = fit_sinusoid(clean + noise)
    assert float((fitted_frequency - frequency).abs().mean()) < 0.004
    assert float((fitted_amplitude - 1).abs().mean()) < 0.02


def test_fit_accepts_any_leading_shape_and_dtype() -> None:
    frequencies = torch.tensor([[0.2, 0.3, 0.4], [0.25, 0.35, 0.5]], dtype=torch.float64)
    signals = torch.sin(frequencies[..., None] * torch.arange(21))
    fitted_frequency, fitted_amplitude = fit_sinusoid(signals.float())
    assert fitted_frequency.shape == fitted_amplitude.shape == (2, 3)
    torch.testing.assert_close(fitted_frequency, frequencies, atol=GRID_STEP, rtol=0)
    torch.testing.assert_close(fitted_amplitude, torch.ones(2, 3, dtype=torch.float64), atol=0.02, rtol=0)


# Summaries


def test_summary_is_nested_like_the_measures() -> None:
    by_seed = [{"a": 1.0, "b": {"1": 2.0, "5": {"deep": 3.0}}}, {"a": 2.0, "b": {"1": 6.0, "5": {"deep": 3.0}}}]
    assert summarise(by_seed) == {
        "a": {"mean": 1.5, "spread": pytest.approx(math.sqrt(0.5)), "n": 2},
        "b": {
            "1": {"mean": 4.0, "spread": pytest.approx(math.sqrt(8)), "n": 2},
            "5": {"deep": {"mean": 3.0, "spread": 0.0, "n": 2}},
        },
    }


def test_spread_of_one_seed_is_none() -> None:
    assert summarise([{"a": 1.5}]) == {"a": {"mean": 1.5, "spread": None, "n": 1}}
    assert json.loads(json.dumps(summarise([{"a": 1.5}])))["a"]["spread"] is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6))
@hypothesis_settings(deadline=None, derandomize=True, max_examples=30)
def test_spread_is_the_sample_standard_deviation(values: list[float]) -> None:
    mean = sum(values) / len(values)
    expected = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    assert summarise([{"a": value} for value in values])["a"]["spread"] == pytest.approx(expected, abs=1e-9)


# The exact posterior's rollouts


def test_exact_signals_follow_the_exact_forecasts() -> None:
    """At each step, samples have the mean of the forecast, and its variance minus the observation noise."""
    torch.manual_seed(0)
    settings = OscillatorSettings()
    oracle = OscillatorOracle(settings, frequencies=256)
    posterior = oracle.observe(simulate(settings, 4, seed=1).x[:, :START])
    n, skip = 4_000, 20
    signals = exact_signals(oracle, posterior, skip, n)
    assert signals.shape == (n, 4, STEPS + 1)
    for after in (0, 1, STEPS):
        exact = oracle.forecast(posterior, skip + after)
        variance = exact.variance[:, 0] - settings.observation_noise**2
        drawn = signals[..., after]
        assert bool(((drawn.mean(0) - exact.mean[:, 0]).abs() < 5 * (variance / n).sqrt()).all())
        assert bool(((drawn.var(0) / variance - 1).abs() < 0.15).all())


def test_fits_to_exact_signals_agree_with_the_posterior_and_the_truth() -> None:
    torch.manual_seed(1)
    settings = OscillatorSettings()
    test = simulate(settings, 8, seed=2)
    oracle = OscillatorOracle(settings, frequencies=256)
    posterior = oracle.observe(test.x[:, :START])
    mean, deviation = oracle.frequency(posterior)
    frequency, amplitude = fit_sinusoid(exact_signals(oracle, posterior, 20, 64))
    # With process noise 0.02 per step, 21 points determine the frequency to about 0.01 rad/step.
    assert bool(((frequency.mean(0) - mean).abs() < 3 * deviation + 0.01).all())
    assert float((frequency - test.frequency.double()).abs().mean()) < 0.02
    true_amplitude = test.state[:, START + 20 - 1].double().norm(dim=-1)
    assert float((amplitude - true_amplitude).abs().mean()) < 0.2


# Evaluation on the user's data


def tiny_measures(own: OwnData) -> Measures:
    torch.manual_seed(0)
    model = tdvae.recipe(own, latent=2, belief=4, maps=ResidualMaps(4)).learner.model
    return evaluate(model, None, own.history, own.test, own.longest_jump).measures


@pytest.mark.parametrize("kind", ["bits", "classes"])
def test_marginal_of_binary_and_categorical_data_is_their_frequency(kind: str) -> None:
    """It is close to the entropy of uniform values. There is no other baseline for such data."""
    sides = 2 if kind == "bits" else 4
    x = np.random.default_rng(2).integers(0, sides, (200, 8, 3))
    measures = tiny_measures(tdvae.prepare(x.astype(bool) if kind == "bits" else x, 2))
    assert set(measures) == {"nll"}
    assert set(measures["nll"]) == {"combination", "climatology"}
    for dt in ("1", "2"):
        assert measures["nll"]["climatology"][dt] == pytest.approx(math.log(sides), rel=0.03)
        assert math.isfinite(measures["nll"]["combination"][dt])


def test_class_missing_from_the_training_data_has_a_finite_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rarest class of a data set may occur only in the test part."""
    x = np.random.default_rng(3).integers(0, 3, (10, 8))
    test = tdvae.prepare(x, 2).test.sequences.x[:, :, 0].numpy()
    row = next(i for i in range(10) if (x[i] == test[0]).all())
    x[row, 4] = 3
    np.savez(tmp_path / "x.npz", x=x)
    command(["fit", str(tmp_path / "x.npz"), *FASTEST, "--run-dir", str(tmp_path / "run")], monkeypatch)
    measures = RUNS.evaluate(saved.load_saved(tmp_path / "run"), seed=0)
    assert all(math.isfinite(value) for by_dt in measures["nll"].values() for value in by_dt.values())


# The commands, end to end

SMALL = ["--longest-jump", "3", "--latent", "2", "--belief", "8", "--batch-size", "4"]
FAST, FASTEST = ["--steps", "20", *SMALL], ["--steps", "3", *SMALL]
DT = ["1", "5", "20", "100"]
SKIPS = ["20", "100"]
NUMBER = {"mean", "spread", "n"}


def command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `tdvae`. Returns only if the command succeeds."""
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", ["tdvae", *arguments])
        cli.main()


@dataclass(frozen=True)
class SmokeRun:
    folder: Path

    @property
    def model(self) -> str:
        return str(self.folder / "seed-0")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> SmokeRun:
    folder = tmp_path_factory.mktemp("smoke") / "run"
    with pytest.MonkeyPatch.context() as patch:
        command(["run", "oscillator", "--preset", "smoke", "--run-dir", str(folder)], patch)
    return SmokeRun(folder)


def output_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Parse standard output as JSON, which fails if anything else is printed."""
    capsys.readouterr()
    command([*arguments, "--json"], monkeypatch)
    return json.loads(capsys.readouterr().out)


def assert_results(content: dict[str, Any]) -> None:
    keys = {"experiment", "preset", "command", "seeds", "versions", "wall_seconds", "measures", "paper"}
    assert keys <= set(content)
    assert {"tdvae", "torch", "numpy", "python"} <= set(content["versions"])
    assert content["wall_seconds"] >= 0


def assert_oscillator_measures(measures: dict[str, Any]) -> None:
    for names, columns in (
        (("information_share", "coverage_50", "coverage_90", "nll", "nll_bayes", "nll_marginal"), DT),
        (("frequency_error", "amplitude_error", "frequency_error_exact", "amplitude_error_exact"), SKIPS),
    ):
        for name in names:
            assert list(measures[name]) == columns
            for number in measures[name].values():
                assert set(number) == NUMBER
                assert math.isfinite(number["mean"])
                assert number["spread"] is None
                assert number["n"] == 1


def test_smoke_run_writes_results_and_figure(smoke: SmokeRun) -> None:
    content = json.loads((smoke.folder / "oscillator.json").read_text())
    assert_results(content)
    assert_oscillator_measures(content["measures"])
    assert (content["experiment"], content["preset"], content["seeds"]) == ("oscillator", "smoke", [0])
    assert shlex.split(content["command"])[:5] == ["tdvae", "run", "oscillator", "--preset", "smoke"]
    assert (smoke.folder / "oscillator.png").read_bytes().startswith(b"\x89PNG")
    assert not list(smoke.folder.glob(".*.tmp"))  # no temporary file is left


def test_measures_of_the_smoke_run_are_plausible(smoke: SmokeRun) -> None:
    """After twenty training steps shares, coverages and limits are in their valid ranges."""
    measures = json.loads((smoke.folder / "oscillator.json").read_text())["measures"]
    for dt in DT:
        assert measures["nll_bayes"][dt]["mean"] < measures["nll_marginal"][dt]["mean"]
        assert measures["information_share"][dt]["mean"] < 1
        low, high = measures["coverage_50"][dt]["mean"], measures["coverage_90"][dt]["mean"]
        assert 0 <= low <= high <= 1
    for skip in SKIPS:
        assert measures["frequency_error_exact"][skip]["mean"] < 0.05
        assert measures["amplitude_error_exact"][skip]["mean"] < 0.5


def test_ablations_train_and_report_each_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = PRESETS["smoke"]
    variants = {"recipe": small, "adam": replace(small, train=replace(small.train, optimizer="adam"))}
    sizes = {"latent": 2, "maps": ResidualMaps(8), "belief": LSTM(6), "readout": None, "observed_state": False}
    monkeypatch.setitem(ABLATION_PRESETS, "demo", Variants(variants, {"fit_latent": sizes}, small))
    names = [*variants, "fit_latent"]
    arguments = ["run", "oscillator-ablations", "--run-dir", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    command(arguments, monkeypatch)
    printed = capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "oscillator_ablations.json").read_text())
    assert_results(content)
    assert list(content["train_seconds"]) == names
    for dt in DT:
        by_variant = content["measures"][f"information_share_dt{dt}"]
        assert list(by_variant) == names
        assert by_variant["recipe"]["mean"] != by_variant["adam"]["mean"]  # the variants were trained differently
        assert all(f"{round(by_variant[name]['mean'], 2):.2f}" in printed for name in names)  # no number is truncated
    (tmp_path / "run" / "adam" / "measures.json").unlink()  # as after an interruption before it was measured
    command([*arguments, "--resume"], monkeypatch)
    assert json.loads((tmp_path / "out" / "oscillator_ablations.json").read_text())["measures"] == content["measures"]
    capsys.readouterr()
    command(
        ["eval", str(tmp_path / "run" / "adam")], monkeypatch
    )  # a variant's run is evaluated like an oscillator run
    share = content["measures"]["information_share_dt1"]["adam"]["mean"]
    assert f"{share:.3f}" in capsys.readouterr().out


def test_eval_prints_only_json_and_is_reproducible(
    smoke: SmokeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, other = (
        output_of(["eval", smoke.model, "--seed", seed], monkeypatch, capsys) for seed in ("5", "5", "6")
    )
    assert_results(first)
    assert_oscillator_measures(first["measures"])
    assert first["seeds"] == [5]
    assert first["measures"] == again["measures"]
    assert first["measures"] != other["measures"]
    assert (
        first["measures"]["nll_marginal"] != other["measures"]["nll_marginal"]
    )  # the sequences differ, not only the samples


def test_eval_reproduces_the_measures_of_the_run(
    smoke: SmokeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = output_of(["eval", smoke.model, "--seed", "0"], monkeypatch, capsys)
    written = json.loads((smoke.folder / "oscillator.json").read_text())
    worst = written["measures"].pop("information_share_worst")  # of all seeds; here there is one
    assert content["measures"] == written["measures"]
    assert {dt: entry["mean"] for dt, entry in worst.items()} == {
        dt: entry["mean"] for dt, entry in content["measures"]["information_share"].items()
    }


def test_eval_prints_a_table_without_json(
    smoke: SmokeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(["eval", smoke.model], monkeypatch)
    printed = capsys.readouterr().out
    assert "share of attainable information" in printed
    assert "δt = 100" in printed


def test_rollout_prints_a_row_for_each_jump(
    smoke: SmokeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["rollout", smoke.model, "--from", "60", "--horizon", "20,21,22,23"]
    rows, again, other = (output_of([*arguments, "--seed", seed], monkeypatch, capsys) for seed in ("0", "0", "1"))
    assert [(row["t"], row["jump"]) for row in rows] == [(80, 20), (81, 1), (82, 1), (83, 1)]
    for row in rows:
        assert row["low"] < row["median"] < row["high"]
        assert isinstance(row["observed"], float)
    assert rows == again
    assert rows != other


def test_rollout_beyond_the_sequence_has_no_observation(
    smoke: SmokeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = output_of(["rollout", smoke.model, "--from", "199", "--horizon", "1,2"], monkeypatch, capsys)
    assert isinstance(rows[0]["observed"], float)
    assert rows[1]["observed"] is None


def test_rollout_prints_a_table_without_json(
    smoke: SmokeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(["rollout", smoke.model, "--horizon", "7,10"], monkeypatch)
    printed = capsys.readouterr().out
    assert "67" in printed
    assert "70" in printed


# The user's own data


def own_arrays(kind: str) -> dict[str, Any]:
    generator = np.random.default_rng(4)
    x = generator.normal(size=(12, 12, 2)).astype(np.float32)
    if kind == "actions and rewards":
        return {"x": x, "actions": generator.normal(size=(12, 12, 3)), "rewards": generator.normal(size=(12, 12))}
    if kind == "images of bits":
        return {"x": generator.random((12, 12, 3, 3)) < 0.5}
    if kind == "classes":
        classes = generator.integers(0, 3, (12, 12, 2))
        classes[:, 0] = 2
        return {"x": classes}
    if kind == "ragged":
        return {"x": x, "lengths": generator.integers(6, 13, 12)}
    return {"x": x}


@pytest.mark.parametrize("kind", ["numbers", "ragged", "actions and rewards", "images of bits", "classes"])
def test_fit_eval_and_rollout_of_own_data(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "mine.npz", **own_arrays(kind))
    run = str(tmp_path / "run")
    command(["fit", str(tmp_path / "mine.npz"), *FAST, "--run-dir", run], monkeypatch)
    output = " ".join(capsys.readouterr().out.split())
    assert "mine.npz: forecasts of held-out sequences" in output
    said = "The combination is|The test part is too short to tell whether the combination is|alone (serves|is better)"
    assert re.search(said, output)  # the verdict

    first, again, other = (output_of(["eval", run, "--seed", seed], monkeypatch, capsys) for seed in ("5", "5", "6"))
    assert_results(first)
    assert first["measures"] == again["measures"]
    nll = first["measures"]["nll"]
    continuous = kind not in ("images of bits", "classes")
    sampled = "tdvae" if continuous else "combination"  # linear regression does not depend on samples
    assert nll[sampled] != other["measures"]["nll"][sampled]
    assert nll["climatology"] == other["measures"]["nll"]["climatology"]  # the same held-out sequences
    of_numbers = {"crps", "rmse", "coverage_50", "coverage_90", "weights", "standard_deviation"}
    differences = {"nll_difference", "nll_difference_error", "nll_difference_blocks", "origins"}
    assert set(first["measures"]) == {"nll", *differences, *(of_numbers if continuous else [])}
    assert {"naive", "linear"} <= set(nll) if continuous else set(nll) == {"combination", "climatology"}
    for by_dt in nll.values():
        assert list(by_dt) == ["1", "2", "3"]  # the longest jump
        assert all(math.isfinite(number["mean"]) for number in by_dt.values())
    assert json.loads((tmp_path / "run" / "results.json").read_text())["measures"]["nll"].keys() == nll.keys()
    assert (tmp_path / "run" / "forecasts.png").exists() is continuous

    if kind != "classes":  # `tdvae rollout` does not support classes
        rows = output_of(["rollout", run, "--from", "3", "--horizon", "2,3"], monkeypatch, capsys)
        assert sorted({(row["t"], row["jump"]) for row in rows}) == [(5, 2), (6, 1)]
        assert len({row["channel"] for row in rows}) == (9 if kind == "images of bits" else 2)
        assert all(row["low"] <= row["median"] <= row["high"] for row in rows)


@pytest.mark.parametrize("kind", ["numbers", "actions and rewards"])
def test_rollout_command_suggested_by_fit_works(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It depends on the length of the sequences, which is 12 here."""
    np.savez(tmp_path / "mine.npz", **own_arrays(kind))
    monkeypatch.chdir(tmp_path)
    command(["fit", "mine.npz", *FASTEST], monkeypatch)
    suggestion = capsys.readouterr().out.partition("tdvae rollout ")[2]
    command(["rollout", *shlex.split(suggestion)], monkeypatch)
    assert "median" in capsys.readouterr().out


def test_second_fit_of_the_same_file_has_a_new_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "mine.npz", **own_arrays("numbers"))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        command(["fit", "mine.npz", *FASTEST], monkeypatch)
    assert "runs/mine-2" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["mine", "mine-2"]


def test_fit_is_reproducible_and_resumes_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fits with the same seed give the same weights. Resuming a finished fit changes nothing."""
    np.savez(tmp_path / "mine.npz", **own_arrays("numbers"))
    for name in ("one", "two"):
        command(["fit", str(tmp_path / "mine.npz"), *FASTEST, "--run-dir", str(tmp_path / name)], monkeypatch)
    one, two = (saved.load(tmp_path / name).state_dict() for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    command(["fit", str(tmp_path / "mine.npz"), *FASTEST, "--run-dir", str(tmp_path / "one"), "--resume"], monkeypatch)
    resumed = saved.load(tmp_path / "one").state_dict()
    assert all(torch.equal(one[name], resumed[name]) for name in one)
