"""Fitting a forecaster: what is trained, how it is combined, budgets of time, resuming."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tdvae
from tdvae import Forecaster, cli
from tdvae.forecasting.fitting import fit as fitting
from tdvae.forecasting.predictors import (
    CorrelatedNormal,
    Linear,
    Network,
    Origins,
    Stack,
    climatology,
    fit_stack,
    naive,
    seeded,
)
from tdvae.forecasting.predictors.combine import calibrated, stacking_weights
from tdvae.forecasting.predictors.gaps import steps_without_observation
from tdvae.forecasting.predictors.networks import interpolated
from tdvae.jumps import SemiGradient
from tdvae.models import LSTM, Gaussian, ResidualMaps
from tdvae.storage import RunFolder
from tdvae.types import Sequences

SMALL: dict[str, Any] = {"latent": 2, "belief": LSTM(4), "maps": ResidualMaps(8)}


class StopError(Exception):
    """In place of a kill."""


def _stopping_after(calls: int, function: Callable[..., Any] = print) -> Callable[..., Any]:
    """A function that works so many times and then stops the training."""
    made: list[None] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(None)
        if len(made) > calls:
            raise StopError
        return function(*args, **kwargs)

    return counted


def _waves(sequences: int = 40, length: int = 30) -> tdvae.OwnData:
    rng = np.random.default_rng(0)
    phase, rate = rng.uniform(0, 6, (sequences, 1)), rng.uniform(0.2, 0.6, (sequences, 1))
    return tdvae.prepare(np.sin(rate * np.arange(length) + phase), longest_jump=4)


@pytest.fixture(scope="module")
def data() -> tdvae.OwnData:
    return _waves()


def _fit(data: tdvae.OwnData, run: Path, **options: Any) -> Forecaster:
    return tdvae.fit_forecaster(data, run, **{"steps": 4, "seed": 3, "progress": "none", **SMALL, **options})


@pytest.fixture(scope="module")
def run(data: tdvae.OwnData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit") / "run"
    _fit(data, folder)
    return folder


# What is fitted


def test_a_run_holds_all_forecasters_and_their_weights(run: Path) -> None:
    forecaster = Forecaster.load(run)
    assert forecaster.stack is not None
    assert list(forecaster.stack.members) == ["linear", "next_step", "latent", "observed"]
    for h in (1, 3, 4, 9):
        assert sum(forecaster.weights(h).values()) == pytest.approx(1)
    stored = json.loads((run / "config.json").read_text())["info"]["forecaster"]
    assert stored["weights"]["linear"]["1"] == pytest.approx(forecaster.weights(1)["linear"], abs=0.02)
    assert stored["trained"]["next_step"] == 4
    assert sorted([stored["trained"]["latent"], stored["trained"]["observed"]]) == [1, 4]


def test_the_model_of_a_run_is_the_tdvae_with_the_largest_weight(run: Path) -> None:
    info = RunFolder(run).read_config()["info"]["forecaster"]
    weights = {kind: sum(info["weights"][kind].values()) for kind in ("latent", "observed")}
    assert weights[info["main"]] == max(weights.values())
    loaded, trained = tdvae.load(run), tdvae.load(run / fitting.FOLDER / info["main"])
    assert isinstance(loaded, tdvae.TDVAE)
    assert all(torch.equal(value, trained.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_one_of_the_tdvaes_is_stopped_early(data: tdvae.OwnData, tmp_path: Path) -> None:
    trained = (_fit(data, tmp_path / "run", steps=20).info or {})["trained"]
    assert sorted([trained["latent"], trained["observed"]]) == [6, 20]
    assert trained["next_step"] == 20


def test_networks_that_validation_cannot_weight_are_stopped_early(tmp_path: Path) -> None:
    short = tdvae.prepare(np.sin(0.3 * np.arange(120)), longest_jump=5)
    info = _fit(short, tmp_path / "run", steps=20).info or {}
    assert info["trained"] == {"next_step": 6, "latent": 6, "observed": 6}
    assert info["weights"]["linear"] == {"1": 1.0, "2": 1.0, "5": 1.0}
    named = _fit(short, tmp_path / "named", steps=20, networks=["latent"]).info or {}
    assert named["trained"] == {"latent": 20}


def test_tdvaes_start_from_the_belief_network_of_the_next_step_predictor(
    data: tdvae.OwnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, torch.Tensor]] = []
    original = tdvae.Recipe.start_from

    def start_from(self: tdvae.Recipe, predictor: Any) -> None:
        original(self, predictor)
        for model in (self.learner.model, predictor):
            started.append({name: value.clone() for name, value in model.state_dict().items()})

    monkeypatch.setattr(tdvae.Recipe, "start_from", start_from)
    _fit(data, tmp_path / "run")
    own, predictor = started[:2]
    shared = [name for name in own if name.startswith("belief.")]
    assert shared
    for name in shared:
        assert torch.equal(own[name], predictor[name.replace("belief.", "belief.network.")])


def test_classes_have_one_tdvae_and_networks_can_be_chosen(data: tdvae.OwnData, tmp_path: Path) -> None:
    classes = tdvae.prepare(np.random.default_rng(0).integers(0, 3, (40, 30)), longest_jump=4)
    forecaster = _fit(classes, tmp_path / "classes", steps=1)
    assert forecaster.stack is None
    assert forecaster.weights(1) == {"tdvae": 1.0}
    chosen = _fit(data, tmp_path / "one", steps=1, networks=["observed"])
    assert chosen.stack is not None
    assert list(chosen.stack.members) == ["linear", "observed"]
    with pytest.raises(
        tdvae.InputError, match=r"networks: expected latent or observed among them, got \['next_step'\]"
    ):
        _fit(data, tmp_path / "none", networks=["next_step"])


# Resuming


def test_a_resumed_fit_ends_as_an_uninterrupted_one(data: tdvae.OwnData, run: Path, tmp_path: Path) -> None:
    for number, (target, name, calls) in enumerate(
        [(SemiGradient, "sample", 5), (fitting, "combined", 0), (RunFolder, "write_config", 3)]
    ):
        folder = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, _stopping_after(calls, getattr(target, name)))
            with pytest.raises(StopError):
                _fit(data, folder)
        with pytest.raises(tdvae.InputError, match="add --resume"):
            _fit(data, folder)
        _fit(data, folder, resume=True)
        first, second = (json.loads((path / "config.json").read_text())["info"]["forecaster"] for path in (run, folder))
        assert first.pop("cpu_seconds") >= 0
        assert second.pop("cpu_seconds") >= 0
        assert first == second
        for kind in ("next_step", "latent", "observed"):
            one, other = (tdvae.load(path / fitting.FOLDER / kind).state_dict() for path in (run, folder))
            assert all(torch.equal(value, other[key]) for key, value in one.items())
        assert (run / "linear.safetensors").read_bytes() == (folder / "linear.safetensors").read_bytes()
    with pytest.raises(tdvae.InputError, match="run_dir: expected a run to resume"):
        _fit(data, tmp_path / "none", resume=True)


# A budget of processor time


def test_the_minutes_determine_the_steps(data: tdvae.OwnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which each step takes half a second, and from step 60 of a training on a whole one."""
    clock = [0.0]

    def sample(self: SemiGradient, *args: Any, **kwargs: Any) -> Any:
        progress = kwargs.get("progress", 1.0)
        clock[0] += 0.5 if progress < 0.5 else 1.0
        return original(self, *args, **kwargs)

    original = SemiGradient.sample
    monkeypatch.setattr(SemiGradient, "sample", sample)
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    monkeypatch.setattr(fitting, "FIRST_STEPS", 4)
    monkeypatch.setattr(fitting, "LEAST_STEPS", 5)
    info = _fit(data, tmp_path / "run", minutes=2.0, networks=["latent"], patience=0).info or {}
    assert 0.85 * 120 * 0.8 < info["cpu_seconds"] < 0.85 * 120 * 1.2
    assert info["trained"]["latent"] == info["steps"]["latent"] > 60


# The weights


def test_stacking_finds_the_weights_of_a_mixture() -> None:
    """Observations of which 70 % come from the first density and 30 % from the second."""
    torch.manual_seed(0)
    first = torch.rand(4_000) < 0.7
    x = torch.where(first, torch.randn(4_000), 4 + torch.randn(4_000)).double()
    log_probs = {"a": {1: -0.5 * x.square()}, "b": {1: -0.5 * (x - 4).square()}, "c": {1: -0.5 * (x + 9).square()}}
    found = stacking_weights(log_probs, {1: torch.arange(4_000)}, "c")
    assert found["a"][1] == pytest.approx(0.7, abs=0.03)
    assert found["b"][1] == pytest.approx(0.3, abs=0.03)
    assert found["c"][1] < 0.001


def test_few_blocks_leave_the_simple_member_alone_and_more_weight_it_by_the_prior() -> None:
    good, bad = torch.zeros(60).double(), torch.full((60,), -3.0).double()
    for blocks, expected in ((3, 1.0), (10, 0.3 / 10.3)):
        index = torch.arange(60) * blocks // 60
        found = stacking_weights({"linear": {1: bad}, "latent": {1: good}}, {1: index}, "linear")
        assert found["linear"][1] == pytest.approx(expected, abs=0.02)


def test_neighbouring_horizons_share_their_evidence() -> None:
    """A horizon at which two members are equal follows its neighbours, the nearer one more."""
    blocks = {h: torch.arange(50) for h in (1, 2, 20)}
    better = {1: 3.0, 2: 0.0, 20: -3.0}
    log_probs = {
        "a": {h: torch.full((50,), gain).double() for h, gain in better.items()},
        "b": {h: torch.zeros(50).double() for h in better},
    }
    found = stacking_weights(log_probs, blocks, "b")
    assert found["a"][1] > 0.9
    assert found["a"][2] > 0.7
    assert found["a"][20] < 0.1


def test_weights_between_scored_horizons_are_interpolated() -> None:
    assert interpolated({1: 0.0, 4: 1.0}, 2, 0.5) == pytest.approx(0.5)
    assert interpolated({1: 0.0, 4: 1.0}, 9, 0.5) == 1.0
    assert interpolated({}, 3, 0.5) == 0.5


def _noise(count: int = 30, length: int = 20) -> Sequences:
    torch.manual_seed(0)
    return tdvae.data.from_arrays(torch.randn(count, length, 1))


def test_the_combination_is_no_worse_than_its_parts_on_validation() -> None:
    """White noise: climatology is right, the last value is not; together they get nearly all weight on the first."""
    data = _noise()
    row = torch.arange(30)
    at = Origins(row, torch.full((30,), 10), row)
    stack = fit_stack({"naive": naive(data, 5), "climatology": climatology(data, 5)}, "climatology", data, at, [1, 5])
    assert stack.weights_at(1)["climatology"] > 0.95
    assert stack.main(3) == "climatology"
    low, high = stack.kept["climatology"]
    assert next(iter(stack.kept)) == "climatology"
    assert 0.9 < low <= high <= 1


def test_futures_have_the_densities_of_the_stack_and_the_order_of_its_main_member() -> None:
    """A random walk: neighbouring steps of a future are correlated, as those of its main member are."""
    torch.manual_seed(0)
    walk = torch.randn(20, 40, 1).cumsum(1)
    data = tdvae.data.from_arrays(walk / walk.std())
    members = {"naive": naive(data, 8), "climatology": climatology(data, 8)}
    stack = Stack(members, {"naive": {1: 0.8, 8: 0.8}, "climatology": {1: 0.2, 8: 0.2}})
    at = Origins(*torch.tensor([[3, 4], [20, 21], [0, 1]]))
    paths = stack.paths(data, at, [7, 8], 4_000)
    assert paths.shape == (4_000, 2, 2, 1)
    density = stack.densities(data, at, [8])[8]
    for level in (0.1, 0.5, 0.9):
        share = (density.cdf(paths[:, :, 1].mean(0)) >= 0).double().mean()
        assert float(share) == 1.0
        below = (paths[:, :, 1] <= paths[:, :, 1].quantile(level, 0)).double().mean()
        assert float(below) == pytest.approx(level, abs=0.01)
    centre = float(density.mean[0])
    assert float(paths[:, 0, 1].mean()) == pytest.approx(centre, abs=0.1)
    assert float(torch.corrcoef(paths[:, 0, :, 0].T)[0, 1]) > 0.8


def test_a_network_that_is_too_wide_is_narrowed() -> None:
    data = _noise(60, 24)
    model = tdvae.models.for_data(
        data, **SMALL, readout=None, init_log_sigma=-4.0, decoder=Gaussian((8,), noise="predicted"), state="latent"
    )
    with torch.no_grad():  # white noise with σ = 2, whatever z is
        for parameter in model.p_D.parameters():
            parameter.zero_()
        model.p_D.log_sigma.fill_(math.log(2.0))  # type: ignore[operator]
    row = torch.arange(60)
    found = calibrated(Network(model, 5), data, Origins(row, torch.full((60,), 12), row), [1, 5])
    assert list(found.scales.values()) == pytest.approx([0.45, 0.45], abs=0.1)


@pytest.mark.parametrize("composed", [frozenset(), frozenset({2})], ids=["jumps", "single steps"])
def test_a_forecast_from_within_a_gap_begins_before_it(composed: frozenset[int]) -> None:
    x = _noise(2, 20).x
    x[0, 7:10] = math.nan
    data = tdvae.data.from_arrays(x)
    torch.manual_seed(0)
    network = Network(tdvae.models.for_data(data, **SMALL, state="latent"), 5, composed, {2: 1.0, 5: 1.0})
    within, before, outside = (Origins(*torch.tensor([[row], [t], [0]])) for row, t in ((0, 10), (0, 7), (1, 10)))
    both = Origins(*torch.tensor([[1, 0], [10, 10], [0, 1]]))
    assert steps_without_observation(data, both).tolist() == [0, 3]
    other = replace(network, composed=frozenset({5}) if composed else frozenset())
    with seeded(0):
        found = network.densities(data, within, [2])[2]
    with seeded(0):
        expected = other.densities(data, before, [5])[5]
    assert torch.equal(found.mean, expected.mean)
    means = network.densities(data, both, [2], 5_000)[2].mean
    for one, mean in zip((outside, within), means, strict=True):  # in the order of the origins
        assert float(network.densities(data, one, [2], 5_000)[2].mean) == pytest.approx(float(mean), abs=0.02)


def test_what_z_adds_is_logged(data: tdvae.OwnData, run: Path) -> None:
    main = RunFolder(run).read_config()["info"]["forecaster"]["main"]
    lines = RunFolder(run / fitting.FOLDER / main).read_metrics()
    found = next(line for line in lines if "z_adds/1" in line)
    assert set(found) == {"step", "z_adds/1", "z_adds/2", "z_adds/4"}
    assert all(math.isfinite(value) for value in found.values())


# Forecasts


def test_a_seed_holds_in_several_threads(data: tdvae.OwnData, run: Path) -> None:
    forecaster, x = Forecaster.load(run), np.sin(0.3 * np.arange(60)).reshape(2, 30)
    expected = forecaster.forecast(x, [1, 4], samples=3, seed=3).samples
    found: dict[int, Any] = {}

    def one(number: int) -> None:
        found[number] = forecaster.forecast(x, [1, 4], samples=3, seed=3).samples

    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(each, expected) for each in found.values())


def test_many_series_are_forecast_in_batches(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forecast of a series does not depend on how many others there are; memory is that of a batch."""
    forecaster, rng = Forecaster.load(run), np.random.default_rng(0)
    x = [np.sin(0.3 * np.arange(length) + rng.uniform(0, 6)) for length in (20, 25, 30) * 3]
    expected = forecaster.forecast(x, [1, 4])
    from tdvae.forecasting import forecaster as module

    monkeypatch.setattr(module, "BATCH", 2)
    found = forecaster.forecast(x, [1, 4])
    spread = expected.quantile(0.95) - expected.quantile(0.05)
    assert (np.abs(found.mean - expected.mean) < 0.3 * spread).all()


def test_a_linear_stack_needs_no_samples(run: Path) -> None:
    forecaster = Forecaster.load(run)
    assert forecaster.stack is not None
    linear = forecaster.stack.members["linear"]
    assert isinstance(linear, Linear)
    at = Origins(*torch.tensor([[0], [20], [0]]))
    assert isinstance(linear.densities(forecaster.data.history, at, [3])[3], CorrelatedNormal)


def test_the_command_says_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("waves.npy", np.sin(rng.uniform(0.2, 0.6, (60, 1)) * np.arange(30) + rng.uniform(0, 6, (60, 1))))
    command = ["fit", "waves.npy", "--longest-jump", "3", "--steps", "2", "--latent", "2", "--belief", "4"]
    monkeypatch.setattr("sys.argv", ["tdvae", *command, "--run-dir", "run"])
    cli.main()
    printed = capsys.readouterr().out
    assert "kept: " in printed
    assert "linear regression" in next(line for line in printed.splitlines() if line.startswith("kept: "))
    assert "tdvae.load returns the TD-VAE with the largest weight: " in printed
    assert (tmp_path / "run" / "forecasts.png").exists()
    measures = json.loads((tmp_path / "run" / "results.json").read_text())["measures"]
    assert set(measures["weights"]) == {"linear", "next_step", "latent", "observed"}
    monkeypatch.setattr("sys.argv", ["tdvae", *command, "--run-dir", "run", "--resume"])
    cli.main()
    assert "kept: " in capsys.readouterr().out
