"""Forecast files of trained runs, and runs that no longer need the user's file."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import tdvae
from tdvae import cli, saved
from tdvae.envs import first_person
from tdvae.forecasting import RUNS, Forecaster
from tdvae.forecasting.predictors import compose, fill
from tdvae.models import LinearRecurrence, ResidualMaps

JUMP, STEPS = 4, [1, 4, 11]


def command(*arguments: str | Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tdvae", *map(str, arguments)])
        cli.main()


def sales(rows: int = 200, future: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    day = np.arange(rows + future)
    level = 1.7e9 + 100 * np.sin(0.4 * day) + rng.normal(size=len(day))
    return pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=len(day)),
            "level": np.where(day < rows, level, np.nan),
            "small": np.where(day < rows, 1e-8 * np.cos(0.4 * day), np.nan),
            "mode": day % 3,
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short training on a CSV file with covariates and a calendar; the file is then removed."""
    folder = tmp_path_factory.mktemp("sales")
    sales().to_csv(folder / "sales.csv", index=False)
    options = ["--covariates", "mode", "--calendar", "--longest-jump", str(JUMP), "--steps", "20", "--window", "30"]
    options += ["--latent", "2", "--belief", "8"]
    command("fit", folder / "sales.csv", *options, "--run-dir", folder / "run")
    (folder / "sales.csv").unlink()
    return folder / "run"


def test_a_forecast_file_has_quantiles_and_samples_in_the_users_units(run: Path, tmp_path: Path) -> None:
    sales(future=11).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "forecast.csv"
    command("forecast", run, "--data", tmp_path / "new.csv", "--horizon", "1,4,11", "--samples", "3", "--out", out)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["day"], row["step"], row["channel"]) for row in rows] == [
        (day, step, channel)
        for day, step in (("2024-07-19", "1"), ("2024-07-22", "4"), ("2024-07-29", "11"))
        for channel in ("level", "small")
    ]
    for row in rows:
        low, median, high = (float(row[name]) for name in ("q0.05", "q0.5", "q0.95"))
        assert low < median < high
        centre, spread = (1.7e9, 1e3) if row["channel"] == "level" else (0, 1e-7)
        assert all(abs(float(row[f"sample_{n}"]) - centre) < spread for n in (1, 2, 3))
        assert abs(median - centre) < spread


def test_python_gives_the_same_forecast_as_the_command(run: Path, tmp_path: Path) -> None:
    frame = sales(future=11)
    frame.to_parquet(tmp_path / "new.parquet")
    command("forecast", run, "--data", tmp_path / "new.parquet", "--horizon", "1,4,11", "--out", tmp_path / "f.npz")
    written = np.load(tmp_path / "f.npz")
    forecasts = Forecaster.load(run).forecast(frame, STEPS)
    assert forecasts.quantiles.shape == (5, 1, 3, 2)
    np.testing.assert_array_equal(written["quantiles"], forecasts.quantiles)
    np.testing.assert_array_equal(forecasts.quantile(0.5), forecasts.quantiles[2])
    assert len(forecasts.frame()) == 6


def test_steps_beyond_the_longest_jump_are_composed_of_jumps(run: Path) -> None:
    assert [compose(step, 4) for step in (1, 4, 5, 11)] == [[1], [4], [2, 3], [3, 4, 4]]
    forecasts = Forecaster.load(run).forecast(sales(future=11), STEPS)
    widths = forecasts.quantile(0.95) - forecasts.quantile(0.05)
    assert np.isfinite(widths).all()
    assert (widths > 0).all()


def test_the_forecast_starts_from_the_last_window_of_each_sequence(run: Path) -> None:
    """Older steps than those of a window make no difference, recent ones do."""
    model = Forecaster.load(run)
    frame = sales(future=1)
    expected = model.forecast(frame, [1]).mean
    old, recent = frame.copy(), frame.copy()
    old.loc[:100, "level"] += 50
    recent.loc[190:, "level"] += 50
    np.testing.assert_array_equal(model.forecast(old, [1]).mean, expected)
    assert not np.array_equal(model.forecast(recent, [1]).mean, expected)


def test_the_known_inputs_of_a_jump_are_those_after_the_origin(run: Path) -> None:
    model = Forecaster.load(run)
    frame = sales(future=6)
    expected = model.forecast(frame, [1, 4]).mean
    later, next_step = frame.copy(), frame.copy()
    later.loc[204:, "mode"] = 0
    next_step.loc[200, "mode"] = (frame.loc[200, "mode"] + 1) % 3
    np.testing.assert_array_equal(model.forecast(later, [1, 4]).mean, expected)
    assert not np.array_equal(model.forecast(next_step, [1, 4]).mean, expected)


def test_a_run_is_evaluated_without_its_file_and_on_new_data(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("eval", run, "--json")
    own = json.loads(capsys.readouterr().out)["measures"]
    sales(300).to_csv(tmp_path / "new.csv", index=False)
    command("eval", run, "--data", tmp_path / "new.csv", "--json")
    other = json.loads(capsys.readouterr().out)["measures"]
    assert own["nll"].keys() == other["nll"].keys()
    assert list(own["nll"]["tdvae"]) == ["1", "2", str(JUMP)]  # the longest jump is among the horizons
    assert own["nll"] != other["nll"]


def test_a_rollout_prints_all_dimensions_in_the_users_units(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("rollout", run, "--from", "20", "--horizon", "4,5", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert [(row["t"], row["channel"]) for row in rows] == [(24, "level"), (24, "small"), (25, "level"), (25, "small")]
    assert rows[0]["observed"] == pytest.approx(1.7e9, abs=200)
    assert abs(rows[1]["observed"]) < 2e-8


def test_sequences_of_different_lengths_keep_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sequences = [100.0 * n + rng.normal(size=(length, 1)) for n, length in enumerate([9, 12, 9, 15] * 3)]
    data = tdvae.prepare(sequences, 3)
    tdvae.fit_forecaster(data, tmp_path / "run", steps=2, progress="none", latent=2, belief=4)
    forecasts = Forecaster.load(tmp_path / "run").forecast(sequences, [2], quantiles=[0.5], samples=2)
    assert forecasts.quantile(0.5).shape == (12, 1, 1)
    assert forecasts.samples.shape == (2, 12, 1, 1)
    order = forecasts.quantile(0.5)[:, 0, 0].argsort()
    assert np.corrcoef(order.argsort(), np.arange(12))[0, 1] > 0.9  # each continues its own sequence


def test_forecasts_of_arrays_in_one_call() -> None:
    model = tdvae.load("oscillator")
    x = np.sin(0.3 * np.arange(120)).reshape(2, 60)
    torch.manual_seed(0)
    density = tdvae.forecast(model, x, dt=20)
    sequences = tdvae.data.from_arrays(x)
    torch.manual_seed(0)
    assert torch.equal(density.mean, tdvae.forecast(model, sequences, dt=20).mean)
    torch.manual_seed(0)
    assert torch.equal(density.mean, tdvae.forecast(model, tdvae.belief_at(model, sequences, 60), dt=20).mean)


@pytest.mark.parametrize("kind", ["classes", "bits"])
def test_forecasts_of_classes_and_bits(kind: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 3 if kind == "classes" else 2, (12, 10, 2))
    data = tdvae.prepare(x if kind == "classes" else x.astype(bool), 3)
    tdvae.fit_forecaster(data, tmp_path / "run", steps=2, progress="none", latent=2, belief=4)
    forecasts = Forecaster.load(tmp_path / "run").forecast(
        x if kind == "classes" else x.astype(bool), [1, 5], samples=3
    )
    assert forecasts.mean.shape == (12, 2, 2) + ((3,) if kind == "classes" else ())
    assert set(np.unique(forecasts.samples)) <= {0, 1, 2}
    forecasts.write(tmp_path / "f.csv")
    assert len((tmp_path / "f.csv").read_text().splitlines()) == 1 + 12 * 2 * 2


# The choice of the model, and the time of its training


def test_bytes_of_pictures_get_a_convolutional_model_of_a_size_that_fits(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (12, 6, 12, 10, 3)).astype(np.uint8)
    data = tdvae.prepare(x, 2)
    recipe = tdvae.recipe(data, steps=1, channels=4, canvas=4, layers=1, batch_size=2, belief=LinearRecurrence(8))
    assert recipe.describe().startswith("convolutional TD-VAE")
    assert sum(p.numel() for p in tdvae.recipe(data).learner.parameters()) < 3e6
    sizes: dict[str, Any] = {"channels": 4, "canvas": 4, "belief": 8, "layers": 1, "batch_size": 2}
    sizes |= {"steps": 1, "progress": "none", "networks": ["convolutional"]}
    forecaster = tdvae.fit_forecaster(data, tmp_path / "run", **sizes)
    assert isinstance(forecaster.model.config, tdvae.models.ConvTDVAEConfig)
    forecasts = forecaster.forecast(x[:1], [1])
    measures = RUNS.evaluate(saved.load_saved(tmp_path / "run"), seed=0)
    assert set(measures["energy"]) == {"combination", "naive", "climatology"}
    assert measures["energy"]["naive"]["1"] == pytest.approx((1 / 6) ** 0.5, rel=0.1)  # independent, uniform on [0, 1]
    assert forecasts.mean.shape == (1, 1, 12, 10, 3)
    assert 0 <= forecasts.quantiles.min() <= forecasts.quantiles.max() <= 255
    with pytest.raises(tdvae.InputError, match=r"out: expected a \.npz file"):
        forecasts.write(tmp_path / "forecast.csv")
    with pytest.raises(tdvae.InputError, match="rows"):
        forecasts.frame()
    assert not (tmp_path / "forecast.csv").exists()


def test_a_recording_is_fitted(tmp_path: Path) -> None:
    world = first_person.open_world("tdvae/Corridors-v0", None, 16, None)
    first_person.record(world, tmp_path / "walk.h5", 60, 0, 10, 16)
    world.close()
    data = tdvae.prepare(tmp_path / "walk.h5", 2, window=5)
    assert data.encoding.actions == 3
    assert data.split.startswith("split by episode")
    sizes: dict[str, Any] = {"maps": ResidualMaps(8), "belief": 8, "layers": 1, "batch_size": 2}
    tdvae.fit_forecaster(data, tmp_path / "run", steps=1, progress="none", **sizes)
    found = saved.load_saved(tmp_path / "run")
    held_out = RUNS.held_out(found, seed=0)
    assert held_out.x.shape == (1, 5, 64)
    assert RUNS.in_units(found, held_out.x).shape == (1, 5, 16, 16, 3)
    assert held_out.actions is not None
    assert held_out.actions.shape == (1, 5, 3)


SMALL: dict[str, Any] = {
    "maps": ResidualMaps(8),
    "belief": 8,
    "layers": 1,
    "batch_size": 2,
    "steps": 2,
    "progress": "none",
}


def test_pictures_are_fitted_as_codes_and_forecast_in_pixels(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (12, 6, 12, 10, 3)).astype(np.uint8)
    data = tdvae.prepare(x, 2)
    forecaster = tdvae.fit_forecaster(data, tmp_path / "run", **SMALL)
    assert isinstance(forecaster.model.config, tdvae.TDVAEConfig)
    assert forecaster.model.config.event_shape == (64,)
    again = Forecaster.load(tmp_path / "run")
    forecasts = again.forecast(x[:2], [1, 3], samples=4)
    assert forecasts.mean.shape == (2, 2, 12, 10, 3)
    assert forecasts.samples.shape == (4, 2, 2, 12, 10, 3)
    assert 0 <= forecasts.quantiles.min() <= forecasts.quantiles.max() <= 255
    assert (np.diff(forecasts.quantiles, axis=0) >= 0).all()
    measures = RUNS.evaluate(saved.load_saved(tmp_path / "run"), seed=0)
    assert set(measures["energy"]) == {"combination", "naive", "climatology"}
    with pytest.raises(tdvae.InputError, match=r"^x: expected observations of shape \(12, 10, 3\)"):
        again.forecast(x[:, :, :, :9], [1])


class Means:
    """A user's own encoder: the mean of each channel."""

    picture, size = (3, 8, 8), 3

    def encode(self, pictures: Tensor) -> Tensor:
        return pictures.mean((2, 3))

    def decode(self, codes: Tensor) -> Tensor:
        return codes[..., None, None].expand(*codes.shape, 8, 8)


def test_the_encoder_may_be_the_users_own(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (12, 6, 8, 8, 3)).astype(np.uint8)
    data = tdvae.prepare(x, 2).coded(Means())
    forecaster = tdvae.fit_forecaster(data, tmp_path / "run", **SMALL)
    again = Forecaster.load(tmp_path / "run", Means())
    for one in (forecaster, again):
        assert one.forecast(x[:1], [1]).mean.shape == (1, 1, 8, 8, 3)
    with pytest.raises(tdvae.InputError, match=r"^codec: expected the one that the run was trained with"):
        Forecaster.load(tmp_path / "run")
    with pytest.raises(tdvae.InputError, match=r"^codec: expected data of pictures"):
        data.coded(Means())
    with pytest.raises(tdvae.InputError, match=r"^pictures: expected \(N, 3 × 8 × 8\)"):
        tdvae.prepare(np.zeros((12, 6, 16, 16, 3), np.uint8), 2).coded(Means())
    with pytest.raises(tdvae.InputError, match=r"^kind: expected latent"):
        tdvae.recipe(data, kind="convolutional")


def test_integers_that_would_need_too_many_logits_are_refused() -> None:
    pictures = tdvae.data.from_arrays(np.random.default_rng(0).integers(0, 256, (3, 4, 32, 32)).astype(np.uint8))
    with pytest.raises(tdvae.InputError, match=r"262,144 logits; for pictures, use tdvae\.prepare"):
        tdvae.models.for_data(pictures)


def test_a_table_with_gaps_is_trained_on_evaluated_and_forecast(tmp_path: Path) -> None:
    frame = sales().drop(columns="mode")
    frame.loc[20:24, "level"] = np.nan
    frame = frame.drop(index=[50, 51, 130, 195])  # gaps in the time stamps
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    options = ["--longest-jump", str(JUMP), "--steps", "4", "--window", "30", "--latent", "2", "--belief", "4"]
    command("fit", tmp_path / "gaps.csv", *options, "--run-dir", tmp_path / "run")
    (tmp_path / "gaps.csv").rename(tmp_path / "moved.csv")
    command("eval", tmp_path / "run")
    command("rollout", tmp_path / "run", "--from", "20", "--horizon", "2,3")
    frame.loc[198:, "level"] = np.nan  # the last observations of one column are missing
    forecasts = Forecaster.load(tmp_path / "run").forecast(frame, STEPS)
    assert np.isfinite(forecasts.quantiles).all()
    assert next(forecasts.rows())["day"] == "2024-07-19"


def test_new_data_may_have_gaps_if_the_training_data_had_none(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sales(future=11)
    gaps = whole.drop(index=[150, 151, 185])
    gaps.loc[190:192, "small"] = np.nan
    forecaster = Forecaster.load(run)
    expected, found = forecaster.forecast(whole, STEPS), forecaster.forecast(gaps, STEPS)
    sizes = np.array([100.0, 1e-8])  # of the two columns
    assert (np.abs(found.mean - expected.mean) < 0.1 * sizes).all()
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    command("forecast", run, "--data", tmp_path / "gaps.csv", "--horizon", "4", "--out", tmp_path / "forecast.csv")
    assert "9 missing number(s): replaced" in capsys.readouterr().out
    command("eval", run, "--data", tmp_path / "gaps.csv", "--json")
    assert np.isfinite(json.loads(capsys.readouterr().out)["measures"]["nll"]["tdvae"]["2"]["mean"])


def test_a_missing_value_is_replaced_by_what_the_past_makes_likely(run: Path) -> None:
    forecaster = Forecaster.load(run)
    _, whole = forecaster.data.read(sales())
    observed = torch.ones_like(whole.x, dtype=torch.bool)
    observed[:, 100:103, 0] = False
    torch.manual_seed(0)
    filled = fill(forecaster.model, replace(whole, observed=observed))
    assert filled.observed is None
    assert torch.equal(filled.x[observed], whole.x[observed])
    assert torch.isfinite(filled.x).all()
    changed = replace(whole, x=whole.x + (torch.arange(200) > 102).float()[None, :, None], observed=observed)
    torch.manual_seed(0)
    assert torch.equal(fill(forecaster.model, changed).x[~observed], filled.x[~observed])


def test_missing_steps_at_the_end_of_an_array_are_part_of_the_forecast(tmp_path: Path) -> None:
    x = np.sin(0.3 * np.arange(100))
    data = tdvae.prepare(x, 3)
    tdvae.fit_forecaster(data, tmp_path / "run", steps=1, progress="none", latent=2, belief=4)
    forecaster = Forecaster.load(tmp_path / "run")
    missing = np.where(np.arange(100) < 95, x, np.nan)
    expected, found = forecaster.forecast(x[:95], [1, 6]), forecaster.forecast(missing, [1, 6])
    np.testing.assert_array_equal(found.mean, expected.mean)


def test_a_tsv_file_has_tabs_and_other_endings_are_refused(run: Path, tmp_path: Path) -> None:
    forecasts = Forecaster.load(run).forecast(sales(future=1), [1])
    forecasts.write(tmp_path / "f.tsv")
    lines = (tmp_path / "f.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:4] == ["day", "step", "channel", "mean"]
    with pytest.raises(tdvae.InputError, match="out: expected a file that ends with one of"):
        forecasts.write(tmp_path / "f.txt")


def test_new_data_that_overlap_the_training_part_are_noticed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rows, warned in ((slice(0, 200), True), (slice(300, None), False)):
        sales(400)[rows].to_csv(tmp_path / "some.csv", index=False)
        command("eval", run, "--data", tmp_path / "some.csv")
        assert ("in the training part of the run" in capsys.readouterr().err) is warned


def test_a_rollout_names_columns_and_dates(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("rollout", run, "--from", "20", "--horizon", "2-3", "--json", "--plot", tmp_path / "rollout.png")
    rows = json.loads(capsys.readouterr().out)
    assert len({row["time"] for row in rows}) == 2
    assert all(str(row["time"]).startswith("20") for row in rows)
    assert (tmp_path / "rollout.png").stat().st_size > 10_000


def test_a_run_and_a_forecast_are_replaced_only_if_asked_for(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(12, 12)))
    fit: list[str | Path] = [
        "fit",
        tmp_path / "mine.npy",
        "--longest-jump",
        "3",
        "--steps",
        "1",
        "--latent",
        "2",
        "--belief",
        "4",
    ]
    fit += ["--run-dir", tmp_path / "run", "--networks", "latent"]
    command(*fit)
    forecast: list[str | Path] = [
        "forecast",
        tmp_path / "run",
        "--data",
        tmp_path / "mine.npy",
        "--out",
        tmp_path / "forecast.csv",
    ]
    command(*forecast)
    (tmp_path / "forecast.csv").write_text("")
    for arguments in (fit, forecast):
        with pytest.raises(SystemExit):
            command(*arguments)
    command(*forecast, "--overwrite")
    assert (tmp_path / "forecast.csv").read_text()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit):
        command(*fit, "--overwrite")
    (tmp_path / "run" / "thesis.txt").unlink()
    (tmp_path / "run" / "results.json").unlink()
    command(*fit, "--overwrite")
    assert (tmp_path / "run" / "results.json").exists()


def test_python_is_told_when_no_network_is_kept(tmp_path: Path) -> None:
    data = tdvae.prepare(np.sin(0.3 * np.arange(300)), longest_jump=3)
    options: dict[str, Any] = {"steps": 1, "progress": "none", "latent": 2, "belief": 4}
    with pytest.warns(UserWarning, match="no network was kept: linear alone"):
        forecaster = tdvae.fit_forecaster(data, tmp_path / "run", **options)
    assert forecaster.kept == {"linear": (1.0, 1.0)}
