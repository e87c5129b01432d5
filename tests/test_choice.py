"""The choice between kinds of state: which are trained, which is kept, and resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

import tdvae
from tdvae import cli
from tdvae.forecasting.choice import FOLDER, SCORES_FILE, Candidates, candidates
from tdvae.forecasting.recipe import StateKind
from tdvae.jumps import Widening
from tdvae.models import Gaussian, Readout, ResidualMaps
from tdvae.storage import RunFolder
from tdvae.storage.files import read_checked

SMALL: dict[str, Any] = {"latent": 2, "belief": 4, "maps": ResidualMaps(8), "readout": Readout(8, hidden=8)}
ALL: list[StateKind] = list(get_args(StateKind))


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


def _waves(sequences: int, length: int = 30) -> tdvae.OwnData:
    rng = np.random.default_rng(0)
    phase, rate = rng.uniform(0, 6, (sequences, 1)), rng.uniform(0.2, 0.6, (sequences, 1))
    return tdvae.prepare(np.sin(rate * np.arange(length) + phase), longest_jump=4)


def _made(data: tdvae.OwnData, steps: int = 2) -> Candidates:
    return candidates(data, steps=steps, seed=3, **SMALL)


@pytest.fixture(scope="module")
def data() -> tdvae.OwnData:
    return _waves(40)


def test_vectors_of_numbers_have_a_candidate_of_each_state(data: tdvae.OwnData) -> None:
    assert list(_made(data).recipes) == ALL


def test_classes_and_a_given_state_have_one_candidate(data: tdvae.OwnData) -> None:
    classes = tdvae.prepare(np.random.default_rng(0).integers(0, 3, (40, 30)), longest_jump=4)
    assert len(_made(classes).recipes) == 1
    assert len(candidates(data, **SMALL, decoder=Gaussian()).recipes) == 1


def test_the_recipes_differ_in_their_state_only(data: tdvae.OwnData) -> None:
    recipes = _made(data).recipes
    configs = {kind: made.learner.model.config for kind, made in recipes.items()}
    assert [getattr(configs[kind], "state") for kind in ALL] == ALL  # noqa: B009
    assert len({made.config for made in recipes.values()}) == 1


def test_minutes_are_for_all_candidates_together(data: tdvae.OwnData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tdvae.Recipe, "seconds_per_step", lambda self, data: 0.01)
    steps = {made.config.steps for made in candidates(data, minutes=3.0, **SMALL).recipes.values()}
    assert steps == {7650}  # 0.85 of a minute and a half for each


def test_the_candidate_with_the_best_validation_forecasts_is_kept(data: tdvae.OwnData, tmp_path: Path) -> None:
    made = _made(data)
    result = made.fit(data, run_dir=tmp_path / "run", progress="none")
    nll = {kind: result.finished[f"candidate/{kind}"] for kind in ALL}
    kept = RunFolder(tmp_path / "run").read_config()["info"]["state"]
    assert nll[kept] == min(nll.values())
    assert result.run_dir == tmp_path / "run"
    assert not (tmp_path / "run" / FOLDER).exists()
    forecaster = tdvae.Forecaster.load(tmp_path / "run")
    trained = made.recipes[kept].learner.model.state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in forecaster.model.state_dict().items())


@pytest.mark.parametrize("stopped", ["in the second candidate", "before the copy", "after the copy"])
def test_a_resumed_choice_ends_as_an_uninterrupted_one(stopped: str, data: tdvae.OwnData, tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    expected = _made(data).fit(data, run_dir=whole, progress="none")

    with pytest.MonkeyPatch.context() as patch:
        if stopped == "in the second candidate":
            patch.setattr(Widening, "sample", _stopping_after(5, Widening.sample))  # 4 calls in the first training
        elif stopped == "before the copy":
            patch.setattr(RunFolder, "copy_from", _stopping_after(0))
        else:
            patch.setattr("tdvae.storage.files.remove", _stopping_after(0))
        with pytest.raises(StopError):
            _made(data).fit(data, run_dir=run, progress="none")
    with pytest.raises(tdvae.InputError, match="resume"):
        _made(data).fit(data, run_dir=run, progress="none")
    result = _made(data).fit(data, run_dir=run, resume=True, progress="none")
    keys = [name for name in expected.finished if name.startswith("candidate/")]
    assert [result.finished[name] for name in keys] == [expected.finished[name] for name in keys]
    assert read_checked(run / SCORES_FILE, ("nll",))["nll"] == read_checked(whole / SCORES_FILE, ("nll",))["nll"]
    first, second = (tdvae.load(folder).state_dict() for folder in (whole, run))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_there_must_be_a_run_to_resume_and_a_recipe(data: tdvae.OwnData, tmp_path: Path) -> None:
    with pytest.raises(tdvae.InputError, match="run_dir: expected a run to resume"):
        _made(data).fit(data, run_dir=tmp_path / "none", resume=True, progress="none")
    with pytest.raises(tdvae.InputError, match="recipes: expected at least one"):
        Candidates({})


def test_the_command_says_which_state_was_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("waves.npy", np.sin(rng.uniform(0.2, 0.6, (40, 1)) * np.arange(30) + rng.uniform(0, 6, (40, 1))))
    command = ["fit", "waves.npy", "--longest-jump", "3", "--steps", "2", "--latent", "2", "--belief", "4"]
    monkeypatch.setattr("sys.argv", ["tdvae", *command, "--run-dir", "run"])
    cli.main()
    printed = capsys.readouterr().out
    kept = RunFolder(tmp_path / "run").read_config()["info"]["state"]
    assert f"kept the state {kept}; NLL of the validation part" in printed
    assert all(f"state {kind}: dense TD-VAE" in printed for kind in ALL)
    assert (tmp_path / "run" / "forecasts.png").exists()
    monkeypatch.setattr("sys.argv", ["tdvae", *command, "--run-dir", "run", "--resume"])
    cli.main()
    assert f"kept the state {kept}" in capsys.readouterr().out
