"""The explorer's answers, server, export and command; tests/test_explorer_browser.py has the page itself."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import re
import socket
import string
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

import tdvae
from tdvae import cli, saved
from tdvae.codec import ConvCodecConfig
from tdvae.data import OscillatorSettings, simulate
from tdvae.envs.minipacman import record
from tdvae.envs.minipacman.maze import WALLS
from tdvae.exact import OscillatorOracle
from tdvae.explorer import export, worlds
from tdvae.explorer.adapters import inputs_of
from tdvae.explorer.answers import Explorer, Source
from tdvae.explorer.command import explore
from tdvae.explorer.futures import actions_of
from tdvae.explorer.latest import Latest, SupersededError
from tdvae.explorer.maze import GhostBeliefs, MazeBelief
from tdvae.explorer.references import MOST_KEPT, ExactOscillator
from tdvae.explorer.requests import parse, text_of
from tdvae.explorer.server import bind, is_loopback
from tdvae.explorer.subjects import PictureLayout, on_sequences_of
from tdvae.forecasting.preparation import Covariate
from tdvae.models import LSTM, Classes, GatedMaps, Gaussian
from tdvae_paper.minipacman import readers
from tests.explorer_pages import served

SHIPPED = "oscillator"


def wave_run(folder: Path, seed: int = 0, scale: float = 100.0) -> Path:
    """A short fit of two channels with one known input, in units far from those of the model."""
    generator = np.random.default_rng(seed)
    t = np.arange(24)
    price = generator.uniform(-1, 1, (20, 24, 1))
    rate = generator.uniform(0.2, 0.6, (20, 1))
    first = np.sin(rate * t) + price[..., 0]
    x = 5_000 + scale * np.stack([first, np.cos(rate * t)], axis=-1) + generator.normal(0, 1, (20, 24, 2))
    data = tdvae.prepare({"x": x, "actions": price}, longest_jump=3)
    tdvae.fit_forecaster(data, folder, steps=4, networks=["latent"], progress="none")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs on data of the same kind in different units."""
    folder = tmp_path_factory.mktemp("runs")
    return wave_run(folder / "waves"), wave_run(folder / "others", seed=1, scale=300.0)


@pytest.fixture(scope="module")
def explorer(runs: tuple[Path, Path]) -> Explorer:
    return Explorer.of(str(runs[0]), str(runs[1]))


@pytest.fixture(scope="module")
def address(explorer: Explorer) -> Iterator[str]:
    with served(explorer) as found:
        yield found


def ask(explorer: Explorer, view: str, **values: object) -> dict[str, Any]:
    query = {"model": SHIPPED, **{name: str(value) for name, value in values.items()}}
    return explorer.answer(view, query)


# Answers


def test_gallery_lists_whatever_ships_with_the_package(explorer: Explorer) -> None:
    cards = {card["name"]: card for card in explorer.gallery()["models"]}
    assert set(cards) == {*saved.shipped_names(), "waves", "others"}
    assert all(card["problem"] is None and card["about"] for card in cards.values())


def test_model_that_cannot_be_opened_is_listed_with_the_reason(tmp_path: Path) -> None:
    found = Explorer({"gone": Source("gone", str(tmp_path / "gone"))}).gallery()
    (card,) = found["models"]
    assert "expected a run folder" in card["problem"]


def test_bands_agree_with_the_library(explorer: Explorer) -> None:
    jump = ask(explorer, "jump", t=60, dt=20)
    subject = explorer.subject(SHIPPED)
    torch.manual_seed(0)
    density = tdvae.forecast(subject.model, subject.sequences.x[:1, :60], 20, samples=2_000)
    expected = [float(density.quantile(level)) for level in (0.05, 0.25, 0.5, 0.75, 0.95)]
    assert np.abs(np.array(jump["band"]["quantiles"])[:, -1] - expected).max() < 0.06
    steps = ask(explorer, "steps", t=60, dt=20)
    assert np.abs(np.array(steps["band"]["quantiles"])[:, -1] - expected).max() < 0.12


def test_exact_band_is_that_of_the_oracle(explorer: Explorer) -> None:
    exact = ask(explorer, "jump", t=60, dt=20)["exact"]
    oracle = OscillatorOracle(OscillatorSettings())
    density = oracle.forecast(oracle.observe(explorer.subject(SHIPPED).sequences.x[:1, :60]), 20)
    expected = [float(density.quantile(level)) for level in (0.05, 0.25, 0.5, 0.75, 0.95)]
    assert np.allclose(np.array(exact["band"]["quantiles"])[:, -1], expected, atol=2e-4)


@pytest.mark.parametrize("t", [1, 12, 39])
def test_coarse_grid_of_frequencies_is_fine_enough(t: int) -> None:
    x = simulate(OscillatorSettings(), 20, seed=5).x
    exact, oracle = ExactOscillator(OscillatorSettings()), OscillatorOracle(OscillatorSettings(), 2_000)
    for dt in (1, 20, 100):
        fine = oracle.forecast(oracle.observe(x[:, :t]), dt).log_prob(x[:, t + dt - 1].double())
        coarse = exact.densities(x[:, :t], [dt]).log_prob(x[:, t + dt - 1].double())
        assert float((fine - coarse).abs().mean()) < 0.01


def test_without_observations_the_exact_density_is_the_marginal() -> None:
    exact, oracle = ExactOscillator(OscillatorSettings()), OscillatorOracle(OscillatorSettings())
    found = exact.densities(torch.zeros(2, 0, 1), [1, 50])
    assert found.batch_shape == (2, 2)
    x = torch.tensor([[0.3], [0.9]]).double()
    assert torch.allclose(found.log_prob(x.expand(2, 2))[:, 1], oracle.marginal(49).log_prob(x)[:, 0])


def test_filtering_goes_on_from_an_earlier_posterior() -> None:
    """The same after any other question, and the store of posteriors stays small."""
    x = simulate(OscillatorSettings(), 3, seed=6).x
    exact = ExactOscillator(OscillatorSettings())
    for t in [*range(1, 120, 7), 100, 50, 3]:
        bank = (exact._coarse if t < 40 else exact._fine).bank
        expected = [bank.predict(bank.filter(x[:, :t]), dt).quantile(0.3) for dt in (0, 9)]
        assert torch.allclose(exact.densities(x[:, :t], [0, 9]).quantile(0.3), torch.cat(expected, 1), atol=1e-4)
    assert len(exact._posteriors) <= MOST_KEPT


def test_same_query_has_the_same_answer_and_another_seed_another(explorer: Explorer) -> None:
    def without_times(answer: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in answer.items() if "milliseconds" not in name}

    first, second = (without_times(ask(explorer, "jump", t=30, dt=12)) for _ in range(2))
    assert first == second
    assert without_times(ask(explorer, "jump", t=30, dt=12, seed=1)) != first


def test_fewer_samples_are_the_first_of_more(explorer: Explorer) -> None:
    few, many = (ask(explorer, "jump", t=30, dt=12, samples=count) for count in (3, 20))
    for part in ("now", "end"):
        assert few[part]["samples"] == pytest.approx(many[part]["samples"][:3], abs=1e-4)
    steps = ask(explorer, "steps", t=30, dt=12, samples=3)
    assert np.array(steps["paths"]).shape == (3, 12)


def test_belief_sharpens_as_observations_come_in(explorer: Explorer) -> None:
    def width(t: int) -> float:
        rows = ask(explorer, "jump", t=t, dt=20)["band"]["quantiles"]
        return float(rows[4][-1] - rows[0][-1])

    assert width(60) < 0.5 * width(2)


def test_scores_are_near_those_of_exact_inference(explorer: Explorer) -> None:
    found = ask(explorer, "scores", t=60, dt=5)
    assert found["count"] == 64
    assert 0 < found["model"]["nll"] - found["exact"]["nll"] + 0.1 < 0.25
    assert found["model"]["crps"] < 0.12
    assert 0.3 < found["model"]["inside_50"] < 0.7 < found["model"]["inside_90"]
    assert ask(explorer, "scores", t=190, dt=100)["count"] == 0


def test_long_jumps_are_made_of_several(explorer: Explorer) -> None:
    assert ask(explorer, "jump", t=10, dt=120)["evaluations"] == 1
    assert ask(explorer, "jump", t=10, dt=300)["evaluations"] == 3
    assert ask(explorer, "steps", t=10, dt=30)["evaluations"] == 30


def test_own_data_are_shown_in_their_units(explorer: Explorer) -> None:
    x = np.array(ask(explorer, "sequence", model="waves")["x"])
    assert x.shape[0] == 2
    assert 4_000 < x.min() < x.max() < 6_000
    for channel in (0, 1):
        jump = ask(explorer, "jump", model="waves", t=10, dt=5, channel=channel)
        assert 4_000 < min(jump["end"]["samples"]) < max(jump["end"]["samples"]) < 6_000
        # A density in units: it adds up to one over the values of the data.
        assert np.trapezoid(jump["end"]["curve"]["density"], jump["end"]["curve"]["x"]) == pytest.approx(1, abs=0.02)


def test_edited_inputs_change_the_future(explorer: Explorer) -> None:
    recorded = ask(explorer, "sequence", model="waves")["inputs"][0]
    as_it_was = ask(explorer, "jump", model="waves", t=10, dt=3)
    same = ";".join(f"0:{value}:{step + 1}:{step + 1}" for step, value in enumerate(recorded[10:13]))
    again = ask(explorer, "jump", model="waves", t=10, dt=3, edits=same)
    other = ask(explorer, "jump", model="waves", t=10, dt=3, edits="0:3:1:3")
    changes = [np.array(each["end"]["samples"]) - as_it_was["end"]["samples"] for each in (again, other)]
    assert np.abs(changes[0]).max() < 0.1 * np.abs(changes[1]).max()
    assert other["now"] == as_it_was["now"]


def test_edits_become_the_numbers_of_the_model(explorer: Explorer) -> None:
    subject = explorer.subject("waves")
    query = parse({"model": "waves", "t": "4", "dt": "6", "edits": "0:0.25:2:3"})
    actions = actions_of(subject, query, 6)
    assert actions is not None
    assert np.allclose(subject.inputs[0].decode(actions[0])[1:3], 0.25)
    assert torch.equal(actions[0, 3:], subject.sequences.actions[0, 7:10])  # type: ignore[index]


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.4, 0.6)])
def test_combination_is_the_forecast_of_the_run(
    explorer: Explorer, runs: tuple[Path, Path], shares: tuple[float, float]
) -> None:
    forecaster, t = tdvae.Forecaster.load(runs[0]), 10
    assert forecaster.stack is not None
    weights = {name: {1: share} for name, share in zip(("linear", "latent"), shares, strict=True)}
    forecaster = replace(forecaster, stack=replace(forecaster.stack, weights=weights))
    changed = Explorer(dict(explorer.sources))
    own = changed._subjects["waves", "waves"] = replace(explorer.subject("waves"), combination=forecaster.stack)
    actions = own.inputs[0].decode(own.sequences.actions)[0, : t + 3, None]  # type: ignore[arg-type]
    x = np.concatenate([own.observed[0, :t], np.full((3, 2), np.nan)])
    expected = forecaster.forecast({"x": x[None], "actions": actions[None]}, horizon=[1, 2, 3]).quantiles[:, 0]
    for channel in (0, 1):
        found = ask(changed, "jump", model="waves", t=t, dt=3, channel=channel)["combination"]
        width = np.ptp(expected[..., channel], axis=0).max()
        assert np.abs(np.array(found["band"]["quantiles"]) - expected[..., channel]).max() < 0.1 * width
        assert np.trapezoid(found["curve"]["density"], found["curve"]["x"]) == pytest.approx(1, abs=0.02)


def test_combination_has_scores_and_is_named(explorer: Explorer) -> None:
    scores = ask(explorer, "scores", model="waves", t=10, dt=3)
    assert scores["combination"]["nll"] < scores["model"]["nll"]  # the TD-VAE has hardly been trained
    assert "tdvae forecast" in ask(explorer, "model", model="waves")["combination"]
    assert "those of the TD-VAE (latent)" in ask(explorer, "model", model="waves")["about"]
    assert ask(explorer, "jump", model="waves", t=0, dt=3)["combination"] is None  # nothing to forecast from
    assert ask(explorer, "model")["combination"] is None


def test_combination_follows_edited_inputs(explorer: Explorer) -> None:
    recorded, other = (ask(explorer, "jump", model="waves", t=10, dt=3, edits=edits) for edits in ("", "0:3:1:3"))
    medians = [each["combination"]["band"]["quantiles"][2][-1] for each in (recorded, other)]
    assert abs(medians[0] - medians[1]) > 50


def test_inputs_of_text_have_labels() -> None:
    found = inputs_of([Covariate("mode", labels=("off", "on")), Covariate("day", classes=(1.0, 2.0, 5.0))])
    assert [(each.labels, each.columns) for each in found] == [
        (("off", "on"), slice(0, 2)),
        (("1", "2", "5"), slice(2, 5)),
    ]
    assert found[0].encode(1).tolist() == [0, 1]


def test_two_models_see_the_same_sequence(explorer: Explorer) -> None:
    own = explorer.subject("waves")
    other = explorer.subject("others", "waves")
    assert np.allclose(own.observed, other.observed, rtol=1e-5)
    assert not torch.equal(own.sequences.x, other.sequences.x)
    assert np.allclose(
        own.inputs[0].decode(own.sequences.actions),  # type: ignore[arg-type]
        other.inputs[0].decode(other.sequences.actions),  # type: ignore[arg-type]
        atol=1e-5,
    )
    answers = [ask(explorer, "jump", model=name, of="waves", t=10, dt=5) for name in ("waves", "others")]
    assert answers[0]["end"]["samples"] != answers[1]["end"]["samples"]


def test_models_of_different_data_cannot_be_compared(explorer: Explorer) -> None:
    with pytest.raises(tdvae.InputError, match="compare: expected two models of the same kind of data"):
        explorer.subject("moving_mnist", SHIPPED)


def test_models_with_other_values_of_an_input_cannot_be_compared(explorer: Explorer) -> None:
    own = explorer.subject("waves")
    other = replace(own, name="other", inputs=(replace(own.inputs[0], classes=(0.0, 1.0), labels=("0", "1")),))
    with pytest.raises(tdvae.InputError, match="compare: expected the same values of actions, got 0, 1 and numbers"):
        on_sequences_of(other, own)


def test_cloud_has_the_recorded_quantities(explorer: Explorer) -> None:
    cloud = ask(explorer, "cloud")
    assert set(cloud["colours"]) >= {"time", "frequency", "amplitude", "observed x"}
    points = np.array(cloud["points"])
    assert points.shape == (600, 2)
    # The first component of the state is about the frequency, which is never observed.
    assert abs(np.corrcoef(points[:, 0], cloud["colours"]["frequency"])[0, 1]) > 0.5
    states = ask(explorer, "jump", t=60, dt=5)["states"]
    low, high = points.min(0), points.max(0)
    assert ((np.array(states["now"]) > low - 3) & (np.array(states["now"]) < high + 3)).all()


def frames(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(base64.b64decode(packed["image"]))) as sheet:
        pixels = np.array(sheet)
    return pixels.reshape(packed["count"], packed["height"], packed["width"], -1)


def test_pictures_show_the_digit(explorer: Explorer) -> None:
    seen = frames(ask(explorer, "sequence", model="moving_mnist")["frames"])
    jump = ask(explorer, "jump", model="moving_mnist", t=8, dt=6, samples=4)
    now = frames(jump["now"])
    assert seen.shape == (20, 28, 28, 1)
    assert now.shape == (4, 28, 28, 1)
    differences = [float(np.abs(now.astype(float) - frame).mean()) for frame in seen]
    assert int(np.argmin(differences)) == 7  # the frame seen last
    steps = ask(explorer, "steps", model="moving_mnist", t=8, dt=6, samples=4)
    assert frames(steps["strips"]).shape[0] == 4 * 6
    assert (frames(steps["strips"])[0::6] == frames(jump["end"])).all()  # the same first jump


def test_picture_layouts() -> None:
    colours = torch.zeros(2, 3, 4, 5)
    colours[:, 1] = 1.0
    assert PictureLayout(4, 5, 3, channels_first=True).bytes_of(colours)[1, 2, 3].tolist() == [0, 255, 0]
    assert PictureLayout(4, 5).bytes_of(torch.full((2, 4, 5), 0.5)).shape == (2, 4, 5, 1)
    palette = PictureLayout(2, 2, 3, palette=((0, 0, 0), (9, 8, 7)))
    assert palette.bytes_of(torch.ones(3, 2, 2, dtype=torch.long))[0, 0, 0].tolist() == [9, 8, 7]
    assert palette.bytes_of(torch.tensor([[[[0.2, 0.8]]]])).shape == (1, 1, 1, 3)


# The maze


class MadeUpMaze:
    """A ghost that is somewhere in the right half."""

    def at(self, sequence: int, t: int) -> MazeBelief:
        walls = np.zeros((15, 19), bool)
        walls[0] = True
        learned, exact = np.zeros((15, 19)), np.zeros((15, 19))
        learned[5:7, 10:15], exact[5, 10:15] = 0.1, 0.2
        return MazeBelief(walls, walls, (7, 3), (5, 12), learned, exact)


def with_maze(explorer: Explorer) -> Explorer:
    """The oscillator, which is given a maze."""
    changed = Explorer(dict(explorer.sources), first=SHIPPED)
    changed._subjects[SHIPPED, SHIPPED] = replace(explorer.subject(SHIPPED), maze=MadeUpMaze())
    return changed


def test_maze_has_both_beliefs(explorer: Explorer) -> None:
    found = ask(with_maze(explorer), "maze", t=3)
    assert np.array(found["learned"]).shape == (15, 19)
    assert found["divergence"] == pytest.approx(math.log(2), rel=1e-4)
    assert (found["pacman"], found["ghost"]) == ([7, 3], [5, 12])
    with pytest.raises(tdvae.InputError, match="expected a model of a maze"):
        ask(explorer, "maze", t=3)


def test_maze_that_is_not_a_distribution_is_refused() -> None:
    good = MadeUpMaze().at(0, 1)
    with pytest.raises(tdvae.InputError, match=r"learned: expected probabilities that add up to 1, got a sum of 2"):
        replace(good, learned=2 * np.asarray(good.learned))
    with pytest.raises(tdvae.InputError, match="exact: expected the shape"):
        replace(good, exact=np.ones((2, 2)) / 4)


# Models of simulated worlds


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of shipped models."""
    monkeypatch.setattr(saved, "WEIGHTS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("observed_state", [False, True])
def test_minipacman(weights: Path, observed_state: bool) -> None:
    config = tdvae.TDVAEConfig(
        event_shape=(5, 5),
        actions=5,
        decoder=Classes(7),
        belief=LSTM(12),
        maps=GatedMaps(8),
        state="observed" if observed_state else "latent",
    )
    saved.ship(tdvae.models.build(config), "game", {"experiment": "minipacman", "frames": 12}, weights)
    explorer = Explorer.of()
    assert [card["kind"] for card in explorer.gallery()["models"]] == ["picture"]
    seen = frames(ask(explorer, "sequence", model="game")["frames"])
    assert seen.shape == (12, 5, 5, 3)
    assert (seen[:, 2, 2] == (0, 255, 0)).all()  # Pacman is in the middle of every frame
    jump = ask(explorer, "jump", model="game", t=4, dt=1, samples=3, edits="0:2:1:1")
    assert frames(jump["end"]).shape == (3, 5, 5, 3)
    maze = ask(explorer, "maze", model="game", t=11)
    assert maze["learned"] is None  # nothing reads the belief
    readers.save(readers.Reader(code=12), weights / "game" / "ghost_reader")
    learned = np.array(ask(Explorer.of(), "maze", model="game", t=11)["learned"])
    assert learned.sum() == pytest.approx(1, abs=1e-3)
    assert not learned[np.array(maze["walls"]) | np.array(maze["in_view"])].any()  # the ghost is out of sight
    assert np.sum(maze["exact"]) == pytest.approx(1, abs=1e-3)
    assert np.array(maze["exact"])[tuple(maze["ghost"])] > 0
    assert not np.array(maze["exact"])[np.array(maze["walls"])].any()
    assert ask(explorer, "model", model="game")["inputs"][0]["labels"] == ["stay", "right", "up", "left", "down"]
    assert set(ask(explorer, "cloud", model="game")["colours"]) >= {"food left", "time"}


def test_learned_belief_about_the_ghost() -> None:
    """It is where the ghost may be while it is out of sight; in view it is plain to see."""
    recording = record(4, 30, seed=3)
    source = GhostBeliefs(recording, torch.full((4, 30, *WALLS.shape), 1 / WALLS.size))
    seen = []
    for number in range(4 * 30):
        found = source.at(number // 30, 1 + number % 30)
        assert found.ghost is not None
        assert found.exact is not None
        assert found.learned is not None
        assert found.exact[found.ghost] > 0
        seen.append(bool(found.in_view[found.ghost]))
        assert found.learned[found.ghost] == pytest.approx(1 if found.in_view[found.ghost] else 1 / WALLS.size)
    assert set(seen) == {False, True}


@pytest.mark.parametrize("actions", [0, 3])
def test_corridors_are_seen_through_the_codec(weights: Path, actions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "WALKS", 2)
    codec = ConvCodecConfig((3, 32, 32), 8, (8, 8, 16)).build().eval()
    config = tdvae.TDVAEConfig(event_shape=(8,), actions=actions, decoder=Gaussian(noise="predicted"))
    saved.ship(tdvae.models.build(config), "walk", {"experiment": "first_person_corridors"}, weights, codec)
    explorer = Explorer.of("walk")
    seen = frames(ask(explorer, "sequence", model="walk")["frames"])
    assert seen.shape == (worlds.WALK_STEPS, 32, 32, 3)
    jump = ask(explorer, "jump", model="walk", t=9, dt=5, samples=2)
    assert frames(jump["end"]).shape == (2, 32, 32, 3)
    inputs = ask(explorer, "model", model="walk")["inputs"]
    assert [each["labels"] for each in inputs] == [["forward", "turn left", "turn right"]] * bool(actions)
    if actions:
        edited = ask(explorer, "jump", model="walk", t=9, dt=5, samples=2, edits="0:1:1:5")
        assert edited["end"] != jump["end"]
        assert edited["now"] == jump["now"]


def test_pendulum(weights: Path) -> None:
    model = tdvae.models.build(tdvae.TDVAEConfig(event_shape=(2,), actions=1))
    saved.ship(model, "swing", {"experiment": "composition", "data": "pendulum", "longest_jump": 4}, weights)
    explorer = Explorer.of("swing")
    answers = [ask(explorer, "jump", model="swing", t=9, dt=3, edits=f"0:{torque}:1:3") for torque in (-2, 2)]
    assert answers[0]["end"]["samples"] != answers[1]["end"]["samples"]
    assert -1.1 < min(ask(explorer, "sequence", model="swing")["x"][1]) < 1.1


def test_unknown_world_is_listed_with_the_reason(weights: Path) -> None:
    model = tdvae.models.build(tdvae.TDVAEConfig())
    saved.ship(model, "other", {"experiment": "something new"}, weights)
    saved.ship(model, "walk", {"experiment": "first_person_corridors"}, weights)
    problems = {card["name"]: card["problem"] for card in Explorer.of().gallery()["models"]}
    assert "whose held-out sequences the explorer does not know" in problems["other"]
    assert "expected a codec in the folder of walk, found none" in problems["walk"]


# Requests


@pytest.mark.parametrize(
    ("view", "query", "status", "message"),
    [
        ("jump", "model=nonsense", 400, "model: expected one of"),
        ("jump", "model=../../etc/passwd", 400, "model: expected the name of a model"),
        ("jump", "model=oscillator&t=-1", 400, "t: expected a whole number"),
        ("jump", "model=oscillator&t=1e3", 400, "t: expected a whole number"),
        ("jump", "model=oscillator&t=201", 400, "t: expected 0 to 200"),
        ("jump", "model=oscillator&dt=0", 400, "dt: expected a whole number from 1"),
        ("jump", "model=oscillator&dt=481", 400, "dt: expected 1 to 480"),
        ("jump", "model=oscillator&samples=25", 400, "samples: expected a whole number from 1 to 24"),
        ("jump", "model=oscillator&sequence=64", 400, "sequence: expected 0 to 63"),
        ("jump", "model=oscillator&channel=1", 400, "channel: expected 0 to 0"),
        ("jump", "model=oscillator&path=/etc", 400, "query: expected only"),
        ("jump", "model=oscillator&t=1&t=2", 400, "query: expected each name once"),
        ("jump", "model=oscillator&edits=0:1:1:1", 400, "edits: expected an input below 0"),
        ("jump", "model=waves&edits=nonsense", 400, "edits: expected INPUT:VALUE:FIRST:LAST"),
        ("jump", "model=waves&t=22&dt=6", 400, "dt: expected 1 to 2 from t = 22"),
        ("jump", "model=oscillator&edits=" + "0" * 3000, 400, "edits: expected at most 2000 characters"),
        ("jump", "model=oscillator&edits=" + "0" * 9000, 414, "query: expected at most 8000 characters"),
        ("nonsense", "model=oscillator", 400, "view: expected one of gallery, model"),
        ("gallery", "model=oscillator", 400, "query: expected none"),
    ],
)
def test_bad_requests_get_one_clear_line(address: str, view: str, query: str, status: int, message: str) -> None:
    response = httpx.get(f"{address}/api/{view}?{query}")
    assert response.status_code == status
    assert response.json()["error"].startswith(message)
    assert "\n" not in response.json()["error"]


def test_fuzzed_requests_never_fail_otherwise(address: str) -> None:
    """Random queries are answered, or refused with 4xx and one line."""
    chance = random.Random(0)
    names = ["model", "of", "sequence", "t", "dt", "samples", "channel", "seed", "edits", "page", "x"]
    texts = [
        "oscillator",
        "moving_mnist",
        "waves",
        "",
        "0",
        "1",
        "3",
        "7",
        "-1",
        "1e9",
        "٣",
        "NaN",
        "0:1:1:2",
        "0:.:1:2",
        "%00",
        "a" * 99,
    ]
    seen = set()
    with httpx.Client(base_url=address) as client:
        for _ in range(120):
            view = chance.choice(
                ["model", "sequence", "jump", "steps", "scores", "cloud", "maze", "gallery", "..", "%2e%2e"]
            )
            junk = "".join(chance.choice(string.printable) for _ in range(chance.randrange(6)))
            query = {"model": chance.choice(["oscillator", "waves", "moving_mnist"])} if chance.random() < 0.7 else {}
            query |= {chance.choice(names): chance.choice([*texts, junk]) for _ in range(chance.randrange(4))}
            response = client.get(f"/api/{view}", params=query)
            seen.add(response.status_code)
            assert response.status_code == 200 or 400 <= response.status_code < 500, (view, query, response.text)
            if response.status_code != 200:
                assert re.fullmatch(r".+", response.json()["error"])
    assert {200, 400} <= seen


def test_only_files_of_the_page_are_served(address: str) -> None:
    page = httpx.get(address)
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in (
        "/../pyproject.toml",
        "/%2e%2e/server.py",
        "/server.py",
        "/static/main.js",
        "/etc/passwd",
        "//etc/passwd",
    ):
        assert httpx.get(address + path).status_code == 404, path
    assert httpx.get(f"{address}/main.js").headers["content-type"].startswith("text/javascript")
    assert httpx.post(f"{address}/api/gallery").status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "localhost.evil.example", "", "10.0.0.1"])
def test_other_hosts_are_refused(address: str, host: str) -> None:
    response = httpx.get(f"{address}/api/gallery", headers={"Host": host})
    assert response.status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "localhost:8765"])
def test_names_of_this_machine_are_allowed(address: str, host: str) -> None:
    assert httpx.get(f"{address}/api/gallery", headers={"Host": host}).status_code == 200


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.1.2", "example.org", ""]))


def test_token_is_needed_where_others_can_reach_the_server(explorer: Explorer) -> None:
    with served(explorer, token="right") as address:
        assert httpx.get(f"{address}/api/gallery").status_code == 401
        assert httpx.get(f"{address}/api/gallery", headers={"X-Explorer-Token": "wrong"}).status_code == 401
        assert httpx.get(f"{address}/api/gallery", headers={"X-Explorer-Token": "right"}).status_code == 200
        assert httpx.get(address).status_code == 200  # the page itself holds nothing of the user


def test_parallel_requests_have_their_own_answers(address: str, explorer: Explorer) -> None:
    times = list(range(2, 14))
    expected = [ask(explorer, "jump", t=t, dt=7)["end"]["samples"] for t in times]

    def get(t: int) -> Any:
        return httpx.get(f"{address}/api/jump?model=oscillator&t={t}&dt=7", timeout=60).json()["end"]["samples"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(get, times)) == expected


def test_slow_clients_do_not_hold_up_others(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(20)]
    try:
        for client in slow:
            client.sendall(b"GET /api/jump?model=oscillator&t=5&dt=5 HTTP/1.1\r\nHost: local")  # and no more
        assert httpx.get(f"{address}/api/model?model=oscillator", timeout=30).status_code == 200
    finally:
        for client in slow:
            client.close()


# The newest request wins


def test_newer_request_replaces_the_waiting_and_the_running_one() -> None:
    import asyncio

    started, release, done = threading.Event(), threading.Event(), []

    def running(stop: Any) -> str:
        started.set()
        release.wait(30)
        stop()
        done.append("running")
        return "running"

    async def scenario() -> list[object]:
        latest = Latest()
        first = asyncio.create_task(latest.run("page/jump", running))
        while not started.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.create_task(latest.run("page/jump", lambda stop: done.append("second")))
        await asyncio.sleep(0)
        third = asyncio.create_task(latest.run("page/jump", lambda stop: "newest"))
        other = asyncio.create_task(latest.run("page/steps", lambda stop: "other"))
        await asyncio.sleep(0)
        release.set()
        results = await asyncio.gather(first, second, third, other, return_exceptions=True)
        latest.close()
        return list(results)

    first, second, third, other = asyncio.run(scenario())
    assert isinstance(first, SupersededError)
    assert isinstance(second, SupersededError)
    assert (third, other) == ("newest", "other")
    assert done == []


def test_steps_stop_when_they_are_no_longer_wanted(explorer: Explorer) -> None:
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise SupersededError

    with pytest.raises(SupersededError):
        explorer.answer("steps", {"model": SHIPPED, "t": "9", "dt": "400"}, stop)
    assert calls == 5


# The export


@pytest.fixture
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SEQUENCES", 1)
    for name, values in (("SIGNAL_TIMES", (0, 5)), ("SIGNAL_JUMPS", (1, 3)), ("PICTURE_TIMES", (0, 4))):
        monkeypatch.setattr(export, name, values)


@pytest.mark.usefixtures("small_grid")
def test_export_has_every_answer_of_its_grid(explorer: Explorer, tmp_path: Path) -> None:
    alone = Explorer(dict(explorer.sources), first="waves")
    alone._subjects.update(explorer._subjects)
    count, size = export.write(alone, tmp_path / "site")
    files = {str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*") if path.is_file()}
    assert files == {
        "index.html",
        "style.css",
        "icon.svg",
        "explorer.js",
        "export.js",
        "data/waves.js",
        "data/waves-0.js",
    }
    assert size == sum((tmp_path / "site" / name).stat().st_size for name in files)
    text = (tmp_path / "site" / "data" / "waves-0.js").read_text()
    answers = json.loads(text.removeprefix("Object.assign(tdvaeExport.answers, ").removesuffix(");\n"))
    key = text_of(parse({"model": "waves", "t": "5", "dt": "3"}))
    assert answers[f"jump?{key}"]["end"]["samples"] == ask(alone, "jump", model="waves", t=5, dt=3)["end"]["samples"]
    assert count == 2 + 4 + 1 + 8


def test_export_refuses_a_folder_with_something_in_it(explorer: Explorer, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(tdvae.InputError, match="--export: expected a new or empty folder"):
        export.write(explorer, tmp_path)


@pytest.mark.usefixtures("small_grid")
def test_export_of_two_models_has_both_on_the_sequences_of_the_first(explorer: Explorer, tmp_path: Path) -> None:
    export.write(explorer, tmp_path / "site")
    text = (tmp_path / "site" / "data" / "waves-0.js").read_text()
    answers = json.loads(text.removeprefix("Object.assign(tdvaeExport.answers, ").removesuffix(");\n"))
    for model in ("waves", "others"):
        key = text_of(parse({"model": model, "of": "waves", "t": "5", "dt": "3"}))
        expected = ask(explorer, "jump", model=model, of="waves", t=5, dt=3)
        assert answers[f"jump?{key}"]["end"]["samples"] == expected["end"]["samples"]
    assert '"pair":"waves,others"' in (tmp_path / "site" / "export.js").read_text()


def test_modules_of_the_page_can_be_joined() -> None:
    """Names at the top of the modules differ, and every imported name is exported by its module."""
    names: list[str] = []
    for path in sorted(export.STATIC.glob("*.js")):
        text = path.read_text()
        names += re.findall(r"^(?:export )?(?:async )?(?:function|class|const) (\w+)", text, re.MULTILINE)
        for imported, module in re.findall(r"^import \{([^}]*)\} from \"\./(\w+)\.js\";$", text, re.MULTILINE):
            exports = (export.STATIC / f"{module}.js").read_text()
            for name in imported.split(","):
                assert re.search(
                    rf"^export (?:async )?(?:function|class|const) {name.strip()}\b", exports, re.MULTILINE
                )
        assert len(re.findall(r"\bimport\b", text)) == len(re.findall(r"^import \{", text, re.MULTILINE))
    assert len(names) == len(set(names))
    joined = export.joined_modules()
    assert "import " not in joined.replace("important", "")
    assert not re.search(r"^export ", joined, re.MULTILINE)


def test_page_names_no_other_host() -> None:
    for path in export.STATIC.iterdir():
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", path.read_text()) == [], path.name


# The command


def test_run_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tdvae", "explore", str(tmp_path / "gone"), "--port", "0"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr().err
    assert (stop.value.code, printed.count("\n")) == (2, 1)
    assert "expected a run folder or one of" in printed


def test_damaged_run(runs: tuple[Path, Path], tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "damaged"
    shutil.copytree(runs[0], copy)
    for weights in copy.rglob("weights.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(tdvae.CheckpointError):
        explore(str(copy), "127.0.0.1", 0)


def test_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            tdvae.InputError, match=rf"expected a free address, got 127\.0\.0\.1:{port} \(address already"
        ):
            explore(SHIPPED, "127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("not a host", 0)])
def test_impossible_address(host: str, port: int) -> None:
    with pytest.raises(tdvae.InputError, match="--host, --port: expected a free address"):
        bind(host, port)


@pytest.mark.parametrize("name", ["uvicorn", "starlette.applications"])
def test_missing_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "tdvae.explorer.server", raising=False)
    with pytest.raises(tdvae.InputError, match=r"pip install 'tdvae\[explorer\]'"):
        explore(SHIPPED, "127.0.0.1", 0)


def test_data_for_a_model_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(tdvae.InputError, match="--data: expected a run of `tdvae fit`"):
        Explorer.of(SHIPPED, data=tmp_path / "mine.npz")
    with pytest.raises(tdvae.InputError, match="run: expected a run to compare or to give data to"):
        Explorer.of(compare=SHIPPED)


def test_own_file(runs: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "new.npz"
    np.savez(path, x=np.full((2, 30, 2), 5_000.0), actions=np.zeros((2, 30, 1)))
    explorer = Explorer.of(str(runs[0]), data=path)
    assert explorer.first == "waves"
    found = ask(explorer, "sequence", model="waves", sequence=1)
    assert np.allclose(found["x"], 5_000)
    assert "new.npz" in ask(explorer, "model", model="waves")["about"]
