"""The MiniPacman experiment: its probes against what can be counted by hand, and the command end to end."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from tdvae import Learner, Pairs, cli
from tdvae.envs.minipacman import Cell, Recording, record
from tdvae.envs.minipacman.maze import FREE, WIDTH
from tdvae.models import build
from tdvae.reporting.results import write_results
from tdvae_paper.experiment import Task
from tdvae_paper.minipacman import EXPERIMENT, readers
from tdvae_paper.minipacman.experiment import parameters
from tdvae_paper.minipacman.games import played
from tdvae_paper.minipacman.measures import densities, frame_terms
from tdvae_paper.minipacman.presets import CLASSES, COMPARED, MAP_PRESETS, OBSERVED_PRESETS, PRESETS, Preset
from tdvae_paper.minipacman.readers import Clues, ghost_loss
from tdvae_paper.minipacman.truth import LONG_AGO, SKIPPED, Hidden, hidden, observed, rows_of
from tdvae_paper.probes import fit_reader

GAMES, FRAMES = 40, 60


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(GAMES, FRAMES, seed=3)


@pytest.fixture(scope="module")
def truth(recording: Recording) -> Hidden:
    return hidden(recording)


def frames_after_skipping(recording: Recording) -> list[tuple[int, int]]:
    return [(game, t) for game in range(GAMES) for t in range(SKIPPED, FRAMES)]


def test_a_ghost_is_out_of_sight_when_the_window_does_not_show_it(recording: Recording, truth: Hidden) -> None:
    assert recording.truth is not None
    for row, (game, t) in enumerate(frames_after_skipping(recording)):
        shown = bool((recording.x[game, t] >= Cell.GHOST).any())
        there = recording.truth.ghosts[game, t, 0, 0] >= 0
        assert bool(truth.out_of_sight[row]) == (there and not shown)
        if there:
            y, x = recording.truth.ghosts[game, t, 0]
            assert int(FREE[truth.ghost[row]]) == y * WIDTH + x


def test_where_a_ghost_was_seen_last_is_what_the_windows_showed(recording: Recording, truth: Hidden) -> None:
    assert recording.truth is not None
    for row, (game, t) in list(enumerate(frames_after_skipping(recording)))[::7]:
        sightings = [s for s in range(t + 1) if (recording.x[game, s] >= Cell.GHOST).any()]
        if not sightings:
            assert int(truth.last_seen[row]) == len(FREE)
            continue
        y, x = recording.truth.ghosts[game, sightings[-1], 0]
        assert int(FREE[truth.last_seen[row]]) == y * WIDTH + x
        assert int(truth.since[row]) == min(t - sightings[-1], LONG_AGO)


def test_what_is_in_view_and_what_was_eaten(recording: Recording, truth: Hidden) -> None:
    assert recording.truth is not None
    for row, (game, t) in list(enumerate(frames_after_skipping(recording)))[::11]:
        y, x = recording.truth.pacman[game, t]
        near = [abs(cell // WIDTH - y) <= 2 and abs(cell % WIDTH - x) <= 2 for cell in FREE.tolist()]
        assert truth.seen[row].tolist() == near
        food = [bool(recording.truth.food[game, t, cell // WIDTH, cell % WIDTH]) for cell in FREE.tolist()]
        assert truth.eaten[row].tolist() == [not there for there in food]


def test_knowing_nothing_of_the_ghost_costs_the_log_of_the_cells_out_of_view(truth: Hidden) -> None:
    rows = truth.out_of_sight.nonzero()[:, 0]
    some = rows_of(truth, rows)
    loss = ghost_loss(torch.zeros(len(rows), len(FREE)), some)
    torch.testing.assert_close(loss, torch.log((~some.seen).sum(1).float()))


def test_a_reader_finds_the_ghost_in_codes_that_hold_it(truth: Hidden) -> None:
    codes = torch.nn.functional.one_hot(truth.ghost.clamp(min=0), len(FREE)).float()
    reader = readers.fit(Clues(truth.pacman, codes), truth, ghost_loss, steps=200)
    rows = truth.out_of_sight.nonzero()[:, 0]
    loss = ghost_loss(readers.answers(reader, Clues(truth.pacman, codes)[rows]), rows_of(truth, rows))
    assert float(loss.mean()) < 0.1  # nats; knowing nothing costs 4.8


def test_maps_are_read_as_the_cells_of_the_maze(recording: Recording, truth: Hidden) -> None:
    """Cells in view have age 0, a cell is food or empty as it was left, and a ghost is where it was seen last."""
    preset = MAP_PRESETS["smoke"]
    rows = torch.arange(0, len(truth.ghost), 3)
    clues = readers.clues_of(build(preset.models["tdvae"]), recording, truth, rows)
    assert set(clues) == {"belief", "state", "code", "map"}
    kinds, some = clues["map"].kinds, rows_of(truth, rows)
    assert kinds is not None
    ages = len(readers.AGES) + 1
    assert bool(((kinds - 1)[some.seen] % ages == 0).all())  # just seen
    was_food = (kinds - 1) // ages == 1
    known = (kinds > 0) & ((kinds - 1) // ages < 2) & some.seen
    assert torch.equal(was_food[known], ~some.eaten[known])
    ghost = kinds >= readers.GHOST_KINDS
    newest = torch.where(ghost, kinds, 999).argmin(1)
    recent = (some.age >= 0) & (some.age < 3) & ghost.any(1)
    assert float((newest == some.last_seen)[recent].float().mean()) > 0.9


def test_a_reader_of_nothing_learns_the_base_rate() -> None:
    answers = (torch.arange(4_000) % 4 == 0).float()

    def loss(network: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
        logits = network(torch.zeros(len(rows), 2))[:, 0]
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, answers[rows])

    reader = fit_reader(lambda: torch.nn.Linear(2, 1), len(answers), loss, steps=400)
    assert abs(float(torch.sigmoid(reader(torch.zeros(1, 2)))) - 0.25) < 0.001


@pytest.mark.parametrize(
    ("preset", "ratio"), [(PRESETS["cpu"], 1.006), (PRESETS["paper"], 1.006), (OBSERVED_PRESETS["cpu"], 1.016)]
)
def test_the_three_models_have_as_many_parameters(preset: Preset, ratio: float) -> None:
    of_models = parameters(preset)
    counts = [of_models[method] for method in COMPARED]
    assert max(counts) < ratio * min(counts)


def test_what_the_cells_of_each_class_cost_adds_up_to_the_frame() -> None:
    preset = PRESETS["smoke"]
    model = build(preset.models["next_step"])
    data = observed(played(preset, 3, 0))
    measures = densities(model, data, samples=2)
    assert set(measures) == {"nll", "frame_by_class"}  # no state, no bound
    with torch.no_grad():
        t1 = torch.zeros(len(data), 1, dtype=torch.long)  # the objective of a next-step predictor does not use pairs
        loss = float(Learner(model)(data, Pairs(t1, t1 + 1)).total)
    assert measures["nll"] == pytest.approx(loss, rel=1e-5)
    assert sum(measures["frame_by_class"].values()) == pytest.approx(loss, rel=1e-5)
    # An untrained decoder finds all classes about as likely, so walls cost as many times ln 7 as a frame has walls.
    walls = float((data.x == Cell.WALL).float().sum((2, 3)).mean())
    assert measures["frame_by_class"]["wall"] == pytest.approx(walls * math.log(CLASSES), rel=0.03)


def test_only_the_named_model_learns_slower() -> None:
    preset = replace(PRESETS["smoke"], rates={"filtering": 0.5})
    rates = {}
    for method in ("filtering", "mean_field"):
        config = EXPERIMENT.training(preset, Task(0, method, method)).config
        rates[method] = config.learning_rate, config.muon_learning_rate
    assert rates["mean_field"] == (preset.train.learning_rate, preset.train.muon_learning_rate)
    assert rates["filtering"] == (0.5 * preset.train.learning_rate, 0.5 * preset.train.muon_learning_rate)


def test_the_bound_per_dimension_counts_each_colour_as_a_bit() -> None:
    """A model that is certain of every class pays its latent terms, and little else, over 75 dimensions."""
    preset = PRESETS["smoke"]
    model = build(preset.models["mean_field"])
    data = observed(played(preset, 3, 0))
    with torch.no_grad():
        terms = frame_terms(model, data).named()
        measures = densities(model, data, samples=2)
    assert terms["surprise"].shape == (3, preset.frames)
    # An untrained decoder says every colour is about as likely as not: some ln 2 a dimension, plus the latents' share.
    assert measures["elbo_per_dimension"] == pytest.approx(math.log(2) + float(terms["surprise"].mean()) / 75, abs=0.06)


def test_the_command_end_to_end_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ["--run-dir", str(tmp_path / "run"), "--out", str(tmp_path / "out")]

    def run(*more: str) -> dict[str, dict[str, dict[str, float]]]:
        monkeypatch.setattr("sys.argv", ["tdvae", "run", "minipacman", "--preset", "smoke", *where, *more])
        cli.main()
        content = json.loads((tmp_path / "out" / "minipacman.json").read_text())
        assert set(content["parameters"]) == {*COMPARED, "next_step"}
        measures: dict[str, dict[str, dict[str, float]]] = content["measures"]
        return measures

    measures = run()
    for name in ("elbo", "nll_joint", "elbo_per_dimension"):
        assert set(measures[name]) == set(COMPARED)
    assert set(measures["nll"]) == set(measures["frame_by_class"]) == {*COMPARED, "next_step"}
    for method in COMPARED:  # more samples tighten the bound
        assert measures["nll"][method]["mean"] < measures["elbo"][method]["mean"]
    ratio = measures["elbo"]["tdvae"]["mean"] / measures["elbo"]["filtering"]["mean"]
    assert measures["elbo_ratio"]["tdvae"]["mean"] == pytest.approx(ratio)
    assert {"uniform", "last seen", "tdvae, belief", "filtering, state"} <= set(measures["ghost_probe"])
    assert {"time alone", "mean_field, belief"} <= set(measures["food_probe"])
    with Image.open(tmp_path / "out" / "minipacman.png") as picture:
        assert picture.size[0] > 500
    (tmp_path / "run" / "filtering-seed-0" / "measures.json").unlink()  # as if it had been interrupted there
    assert run("--resume") == measures


def test_the_observed_state_is_a_block_beside_the_results_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command writes its own part of the file and keeps the other's."""
    path = tmp_path / "out" / "minipacman.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"experiment": "minipacman", "preset": "cpu", "measures": {"elbo": {"tdvae": 1}}}))
    command = ["run", "minipacman-observed-state", "--preset", "smoke", "--run-dir", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["tdvae", *command, "--out", str(path.parent)])
    cli.main()
    content = json.loads(path.read_text())
    assert content["measures"]["elbo"] == {"tdvae": 1}
    measures = content["measures"]["observed_state"]
    for name in ("elbo", "nll_joint", "nll_over_next_step"):
        assert set(measures[name]) == set(COMPARED)
    assert set(measures["nll"]) == {*COMPARED, "next_step"}
    of_seed = measures["nll"]["tdvae"]["mean"] / measures["nll"]["next_step"]["mean"]
    assert measures["nll_over_next_step"]["tdvae"]["mean"] == pytest.approx(of_seed)
    assert {"tdvae, belief", "last seen"} <= set(measures["ghost_probe"])
    assert content["blocks"]["observed_state"]["command"].startswith("tdvae run minipacman-observed-state")
    write_results(path, {"experiment": "minipacman", "measures": {"elbo": {"tdvae": 2}}})
    rewritten = json.loads(path.read_text())
    assert rewritten["measures"]["elbo"] == {"tdvae": 2}
    assert rewritten["measures"]["observed_state"] == measures
    assert (path.parent / "minipacman_observed_state.png").exists()


def test_jumps_are_a_block_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["tdvae", "run", "minipacman-jumps", "--preset", "smoke", "--run-dir", str(tmp_path / "run")]
    )
    cli.main()
    measures = json.loads((tmp_path / "run" / "minipacman.json").read_text())["measures"]["observed_state_jumps"]
    assert set(measures["elbo"]) == {"tdvae"}
    assert {"last seen", "tdvae, belief"} <= set(measures["ghost_probe"])


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("minipacman-map", "map"),
        ("minipacman-living-map", "living_map"),
        ("minipacman-shared-futures", "map_shared_futures"),
    ],
)
def test_models_with_a_map_are_measured_beside_the_exact_limit(
    name: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["tdvae", "run", name, "--preset", "smoke", "--run-dir", str(tmp_path / "run")])
    cli.main()
    measures = json.loads((tmp_path / "run" / "minipacman.json").read_text())["measures"][block]
    assert 0.2 < measures["limit"]["mean"] < measures["limit_factorised"]["mean"] < 1.2
    assert sum(measures["limit_parts"][part]["mean"] for part in ("place", "food", "ghost", "pills")) == pytest.approx(
        measures["limit"]["mean"]
    )
    nothing = measures["references"]["place known, last frame only"]["mean"]
    share = (nothing - measures["nll"]["tdvae"]["mean"]) / (nothing - measures["limit"]["mean"])
    assert measures["information_share"]["tdvae"]["mean"] == pytest.approx(share)
    controls = {"exact", "last seen", "map alone", "belief of an untrained model", "reader of the exact belief"}
    assert controls | {"tdvae, belief", "tdvae, code"} <= set(measures["ghost_by_age"])
    assert ("tdvae, learned states" in measures["ghost_probe"]) == (block == "living_map")
    assert measures["ghost_probe"]["exact"]["mean"] < measures["ghost_probe"]["uniform"]["mean"]
    if block == "map":
        with Image.open(tmp_path / "run" / "minipacman_beliefs.gif") as film:
            assert getattr(film, "n_frames", 1) == PRESETS["smoke"].frames - SKIPPED
