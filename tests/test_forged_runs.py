"""Runs of strangers whose config.json was edited and given a new checksum, and runs resumed with other data."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tdvae
from tdvae.storage.files import CHECKSUM, checksum, to_json
from tests.campaign import subjects

Edit = Callable[[dict[str, Any]], object]  # of the info


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("fitted") / "run"
    subjects.fit_series(run, resume=False)
    return run


def forged(run: Path, folder: Path, edit: Edit) -> Path:
    copy = folder / "forged"
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    del config[CHECKSUM]
    edit(config["info"])
    (copy / "config.json").write_bytes(to_json({**config, CHECKSUM: checksum(config)}))
    return copy


def encoding(**changes: Any) -> Edit:
    return lambda info: info["encoding"].update(changes)


def columns(**changes: Any) -> Edit:
    return lambda info: info["columns"].update(changes)


def details(**changes: Any) -> Edit:
    return lambda info: info["forecaster"].update(changes)


PICTURE = {"layout": "hw", "low": 0.0, "high": 1.0, "rows": 8, "columns": 8}
EDITS: dict[str, Edit] = {
    "bits": encoding(kind="bits", scaling=None),
    "classes": encoding(kind="classes", scaling=None, classes=3),
    "a picture": encoding(kind="picture", scaling=None, picture=PICTURE, event_shape=[8, 8], channels=["x"]),
    "kind in a list": encoding(kind=["vector"]),
    "two channels": encoding(event_shape=[2], channels=["a", "b"], scaling={"shift": [0, 0], "scale": [1, 1]}),
    "scale zero": encoding(scaling={"shift": [0], "scale": [0]}),
    "scale of text": encoding(scaling={"shift": ["a"], "scale": ["b"]}),
    "no channels": encoding(channels=[]),
    "a calendar": encoding(calendar=["hour"]),
    "a calendar of numbers": encoding(calendar=3),
    "a covariate": encoding(covariates=[{"name": "a", "classes": [], "labels": [], "shift": 0.0, "scale": 1.0}]),
    "jump of text": lambda info: info.update(longest_jump="x"),
    "far jumps": lambda info: info.update(longest_jump=10**9),
    "window 0": lambda info: info.update(window=0),
    "season 0": lambda info: info.update(seasons=[0]),
    "long context": lambda info: info.update(context=10**9),
    "values of numbers": columns(values=3),
    "a further column": columns(foo=3),
    "a long separator": columns(sep="abc"),
    "time of numbers": columns(time=3),
    "an encoding of numbers": lambda info: info.update(encoding=0),
    "no forecaster": lambda info: info.update(forecaster=None),
    "no weights": details(weights={}),
    "negative weights": details(weights={"linear": {"1": -1}}),
    "weights of another run": details(weights={"../../other": {"1": 1}}),
    "weights of a file": details(weights={"/etc/passwd": {"1": 1}}),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_info_is_refused(edit: Edit, fitted: Path, tmp_path: Path) -> None:
    with pytest.raises(tdvae.errors.TDVAEError, match=r"^(run|info|file): expected .*forged"):
        tdvae.Forecaster.load(forged(fitted, tmp_path, edit))


def test_networks_outside_of_the_run_are_not_read(fitted: Path, tmp_path: Path) -> None:
    weights = {"linear": {"1": 0.5}, "latent": {"1": 0.5}}
    parts = {"weights": weights, "scales": {"latent": {}}, "composed": {"latent": []}, "main": "observed"}
    run = forged(fitted, tmp_path, details(**parts))
    assert tdvae.Forecaster.load(run).weights(1) == {"linear": 0.5, "latent": 0.5}
    os.rename(run / "networks" / "latent", tmp_path / "latent")
    (run / "networks" / "latent").symlink_to(tmp_path / "latent")
    with pytest.raises(tdvae.errors.CheckpointError, match=r"expected a folder inside of .*forged"):
        tdvae.Forecaster.load(run)


def test_a_finished_fit_is_resumed_with_the_same_data_only(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"layers": 1, "latent": 2, "belief": 4, "steps": 1, "networks": ["latent"]}

    def fit(resume: bool, **other: Any) -> None:
        data = tdvae.prepare(subjects.series(), longest_jump=3, **other)
        tdvae.fit_forecaster(data, tmp_path / "run", resume=resume, progress="none", **sizes)

    test = np.arange(30.0)
    fit(False, test=test)
    fit(True, test=test)
    changed: dict[str, dict[str, Any]] = {
        "data": {"test": test[::-1].copy()},
        "split": {},
        "window": {"test": test, "window": 20},
    }
    for named, other in changed.items():
        with pytest.raises(tdvae.InputError, match=rf"^resume: expected the same settings, .* another .*{named}"):
            fit(True, **other)
    os.remove(tmp_path / "run" / "config.json")  # as if it had been interrupted in the end
    with pytest.raises(tdvae.InputError, match=r"^resume: expected the same settings, .* another info \(data\)"):
        fit(True, test=test[::-1].copy())
