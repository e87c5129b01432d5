"""Users' own sequences: the recipe, and what `tdvae fit` makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tdvae
from tdvae import cli
from tdvae.forecasting.fitting.monitor import ValidationForecasts
from tdvae.forecasting.preparation import HeldOut
from tdvae.models import Bits, Classes, Coordinates, Gaussian, LinearRecurrence, ResidualMaps, Unknown
from tdvae.models.decoders import DecoderConfig

SIZES = ["--latent", "2", "--belief", "4"]


def save_signals(path: Path, n: int = 40, steps: int = 20) -> Path:
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 6.28, (n, 1))
    np.savez(path, x=np.sin(0.4 * np.arange(steps) + phase)[..., None], actions=rng.normal(size=(n, steps, 2)))
    return path


def test_command_line_and_python_train_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tdvae fit` and the documented Python code give the same config and, to the bit, the same weights."""
    monkeypatch.chdir(tmp_path)
    file = save_signals(tmp_path / "signals.npz")
    monkeypatch.setattr(
        "sys.argv", ["tdvae", "fit", str(file), "--steps", "4", "--longest-jump", "3", "--seed", "5", *SIZES]
    )
    cli.main()
    runs = [tmp_path / "runs" / "signals", tmp_path / "python", tmp_path / "arrays"]
    for source, run in zip((file, dict(np.load(file))), runs[1:], strict=True):
        data = tdvae.prepare(source, longest_jump=3, seed=5)
        tdvae.fit_forecaster(data, run, steps=4, seed=5, progress="none", latent=2, belief=4)
    configs = [json.loads((run / "config.json").read_text()) for run in runs]
    for config in configs:
        assert config["info"]["forecaster"].pop("cpu_seconds") >= 0
        config.pop("sha256")  # of the content with these seconds
    assert configs[0] == configs[1]
    for part in ("model", "train", "jumps", "objective", "data"):
        assert configs[0][part] == configs[2][part], part
    of_command, *others = (tdvae.load(run).state_dict() for run in runs)
    for other in others:
        assert all(torch.equal(value, other[name]) for name, value in of_command.items())


def test_weights_are_chosen_by_forecasts(tmp_path: Path) -> None:
    """The score is the NLL of forecasts averaged over horizons, the better of one jump and single steps at each."""
    data = tdvae.data.from_arrays(np.random.default_rng(1).normal(size=(60, 24, 1)))
    recipe = tdvae.recipe(data, longest_jump=5, steps=60, latent=2, belief=LinearRecurrence(4), maps=ResidualMaps(8))
    monitor = ValidationForecasts.of(recipe.learner.model, HeldOut(data), 5)
    before = monitor.measure()
    assert before == monitor.measure()
    assert before["score"] == pytest.approx(np.mean([before[f"forecast/{h}"] for h in (1, 2, 5)]))
    short = data.until(torch.ones(len(data), dtype=torch.long))
    assert ValidationForecasts.of(recipe.learner.model, HeldOut(short), 5).measure() == {}
    result = recipe.fit(data, data, tmp_path / "run", progress="none")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["score"] for line in lines if "score" in line}
    assert list(scores) == [25, 50, 60]
    assert result.best_score == min(scores.values()) == scores[result.best_step]


def test_a_training_stops_at_a_step_and_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    data = tdvae.data.from_arrays(np.random.default_rng(1).normal(size=(40, 24, 1)))

    def recipe() -> tdvae.Recipe:
        return tdvae.recipe(
            data, longest_jump=5, steps=9, seed=2, latent=2, belief=LinearRecurrence(4), maps=ResidualMaps(8)
        )

    whole = recipe().fit(data, data, tmp_path / "whole", progress="none")
    first = recipe().fit(data, data, tmp_path / "parts", progress="none", until=4)
    assert first.steps == 4
    assert recipe().fit(data, data, tmp_path / "parts", progress="none", resume=True, until=2).steps == 4
    last = recipe().fit(data, data, tmp_path / "parts", progress="none", resume=True)
    assert last.steps == whole.steps == 9
    one, other = (tdvae.load(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(value, other[key]) for key, value in one.items()) or last.best_step == 4


def test_a_recipe_leaves_the_random_state_alone() -> None:
    data = tdvae.data.from_arrays(np.random.default_rng(0).normal(size=(10, 12)))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = tdvae.recipe(data, seed=1).learner.state_dict()
    assert torch.equal(torch.rand(2), expected)
    second = tdvae.recipe(data, seed=1).learner.state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize(("option", "value"), [("longest_jump", 0), ("steps", 0)])
def test_a_recipe_refuses_lengths_below_one(option: str, value: int) -> None:
    data = tdvae.data.from_arrays(np.zeros((4, 6)))
    with pytest.raises(tdvae.InputError, match=f"{option}: expected at least 1, got 0"):
        tdvae.recipe(data, **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "state", "decoder"),
    [
        (np.zeros((4, 6, 3)), "observed", Gaussian(noise="predicted")),
        (np.zeros((4, 6, 5), dtype=bool), "observed", Bits()),
        (np.zeros((4, 6, 5, 5), dtype=np.int64), "observed", Classes(1)),
        (np.zeros((4, 6, 8, 8)), "latent", Gaussian(noise="predicted")),
    ],
    ids=["vector", "bits", "classes", "picture"],
)
def test_compact_observations_are_part_of_the_state_by_default(
    x: np.ndarray, state: str, decoder: DecoderConfig
) -> None:
    config = tdvae.models.for_data(tdvae.data.from_arrays(x)).config
    assert isinstance(config, tdvae.TDVAEConfig)
    assert (config.state, config.decoder) == (state, decoder)


def test_options_that_rule_the_observed_state_out_turn_its_default_off() -> None:
    data = tdvae.data.from_arrays(np.zeros((4, 6, 3)))
    options: tuple[dict[str, Any], ...] = (
        {"decoder": Coordinates()},
        {"dt": Unknown(lengths=3)},
        {"smoothing_sees_b2": False},
    )
    for chosen in options:
        config = tdvae.models.for_data(data, **chosen).config
        assert isinstance(config, tdvae.TDVAEConfig)
        assert config.state == "latent"
