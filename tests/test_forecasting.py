"""Users' own sequences: the recipe, and what `tdvae fit` makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tdvae
from tdvae import cli
from tdvae.data import from_npz, split


def save_signals(path: Path, n: int = 40, steps: int = 20) -> Path:
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 6.28, (n, 1))
    np.savez(path, x=np.sin(0.4 * np.arange(steps) + phase)[..., None], actions=rng.normal(size=(n, steps, 2)))
    return path


def test_command_line_and_python_train_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tdvae fit` and the documented Python code give the same config and, to the bit, the same weights."""
    monkeypatch.chdir(tmp_path)
    file = save_signals(tmp_path / "signals.npz")
    monkeypatch.setattr("sys.argv", ["tdvae", "fit", str(file), "--steps", "4", "--longest-jump", "3", "--seed", "5"])
    cli.main()
    train, validation, _ = split(from_npz(file), seed=5)
    recipe = tdvae.recipe(train, longest_jump=3, steps=4, seed=5)
    tdvae.fit(recipe.learner, train, recipe.jumps, recipe.config, tmp_path / "python", validation, progress="none")
    runs = [tmp_path / "runs" / "signals", tmp_path / "python"]
    configs = [json.loads((run / "config.json").read_text()) for run in runs]
    for part in ("model", "train", "jumps", "objective", "data"):
        assert configs[0][part] == configs[1][part], part
    of_command, of_python = (tdvae.load(run).state_dict() for run in runs)
    assert all(torch.equal(value, of_python[name]) for name, value in of_command.items())


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
        tdvae.recipe(data, **{option: value})


@pytest.mark.parametrize(
    ("x", "observed_state", "noise"),
    [
        (np.zeros((4, 6, 3)), True, "predicted"),
        (np.zeros((4, 6, 5), dtype=bool), True, "learned"),
        (np.zeros((4, 6, 5, 5), dtype=np.int64), True, "learned"),
        (np.zeros((4, 6, 8, 8)), False, "predicted"),
    ],
    ids=["vector", "bits", "classes", "picture"],
)
def test_compact_observations_are_part_of_the_state_by_default(x: np.ndarray, observed_state: bool, noise: str) -> None:
    config = tdvae.models.for_data(tdvae.data.from_arrays(x)).config
    assert isinstance(config, tdvae.TDVAEConfig)
    assert (config.observed_state, config.noise) == (observed_state, noise)


def test_options_that_rule_the_observed_state_out_turn_its_default_off() -> None:
    data = tdvae.data.from_arrays(np.zeros((4, 6, 3)))
    for options in ({"likelihood": "coordinates"}, {"max_latent_dt": 3, "dt": "none"}, {"smoothing_sees_b2": False}):
        config = tdvae.models.for_data(data, **options).config
        assert isinstance(config, tdvae.TDVAEConfig)
        assert not config.observed_state
