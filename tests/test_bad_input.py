"""What is wrong is said in one line that names it: on the command line and in Python."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tdvae import InputError, TDVAEError, belief_at, cli, prepare, rollout, saved
from tdvae.config import Config
from tdvae.data import from_arrays, split
from tdvae.data.recording import check_new_file
from tdvae.forecasting.forecasts import check_output
from tdvae.models import (
    LSTM,
    TDVAE,
    Bits,
    Classes,
    Coordinates,
    DeepLSTM,
    GatedMaps,
    Gaussian,
    LinearRecurrence,
    Readout,
    ResidualMaps,
    TDVAEConfig,
    Unknown,
    Waves,
    build,
    for_data,
)
from tdvae.models.decoders import DecoderConfig
from tdvae.storage import RunFolder
from tdvae.storage.files import write_file
from tdvae.types import Sequences, State

torch.set_num_threads(1)

SMALL = ["--steps", "2", "--latent", "2", "--belief", "4", "--batch-size", "4"]


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# The command line


class Refusal:
    """Calls `tdvae` with arguments it must refuse, and gives back the one line it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> str:
        self.capsys.readouterr()
        self.monkeypatch.setattr("sys.argv", ["tdvae", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, error = self.capsys.readouterr()
        assert stop.value.code not in (0, None)
        assert out == ""
        assert error.startswith("tdvae: ")
        assert error.count("\n") == 1
        assert error.endswith("\n")
        assert "Traceback" not in error
        return error.removeprefix("tdvae: ").rstrip("\n")


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refusal:
    monkeypatch.chdir(tmp_path)  # a command that is wrongly accepted must not write here
    return Refusal(monkeypatch, capsys)


def fit_small(folder: Path, **arrays: Any) -> Path:
    """A run of two steps on sequences of twelve."""
    np.savez(folder / "mine.npz", **arrays)
    with pytest.MonkeyPatch.context() as patch:
        arguments = ["fit", str(folder / "mine.npz"), *SMALL, "--longest-jump", "3", "--run-dir", str(folder / "run")]
        patch.setattr("sys.argv", ["tdvae", *arguments])
        cli.main()
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_small(tmp_path_factory.mktemp("plain"), x=numbers(10, 12, 2))


@pytest.fixture(scope="module")
def run_with_actions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences of 8 real steps, padded to 12."""
    arrays = {"x": numbers(10, 12, 2), "actions": numbers(10, 12, 1), "lengths": np.full(10, 8)}
    return fit_small(tmp_path_factory.mktemp("actions"), **arrays)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["run", "fit"])
def test_a_folder_with_something_in_it_is_refused_and_left_as_it_was(
    command: str, refusal: Refusal, tmp_path: Path
) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    before = contents(folder)
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    what = ["oscillator", "--preset", "smoke"] if command == "run" else [tmp_path / "mine.npz", *SMALL]
    message = refusal(command, *what, "--run-dir", folder)
    assert "precious" in message
    assert "not empty" in message
    assert contents(folder) == before
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("command", ["run", "fit"])
def test_a_file_in_the_place_of_the_run_folder_is_refused_and_left(
    command: str, refusal: Refusal, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    what = ["oscillator", "--preset", "smoke"] if command == "run" else [tmp_path / "mine.npz", *SMALL]
    assert "taken" in refusal(command, *what, "--run-dir", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "a file"


def test_resume_needs_to_know_which_run(refusal: Refusal, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    commands: list[list[str | Path]] = [["run", "oscillator", "--preset", "smoke"], ["fit", tmp_path / "mine.npz"]]
    for arguments in commands:
        message = refusal(*arguments, "--resume")
        assert "--resume" in message
        assert "--run-dir" in message
    assert not (tmp_path / "runs").exists()


def test_nothing_to_resume_is_said_and_nothing_is_made(refusal: Refusal, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    message = refusal("fit", tmp_path / "mine.npz", *SMALL, "--run-dir", tmp_path / "none", "--resume")
    assert "run to resume" in message
    assert not (tmp_path / "none").exists()


def test_a_run_is_resumed_only_as_what_it_is(refusal: Refusal, run: Path) -> None:
    before = contents(run)
    options = ["--longest-jump", "3", "--run-dir", str(run), "--resume"]
    assert "another model" in refusal("fit", run.parent / "mine.npz", *SMALL, *options, "--latent", "3")
    assert contents(run) == before


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_an_unknown_name_lists_the_known_ones(
    command: str, refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "shelf"
    for name in ("pendulum", "tides"):
        saved.ship(
            build(TDVAEConfig(latent=2, belief=LSTM(4), decoder=Gaussian((4,)), maps=GatedMaps(4))), name, {}, shelf
        )
    monkeypatch.setattr(saved, "WEIGHTS", shelf)
    message = refusal(command, "oscilator")
    for word in ("oscilator", "pendulum", "tides"):
        assert word in message


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_a_folder_that_is_no_run_is_refused(command: str, refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    assert "holiday" in refusal(command, tmp_path / "holiday")
    for content in ("not json", "[]", '{"other": 1}'):
        (tmp_path / "holiday" / "config.json").write_text(content)
        assert "holiday" in refusal(command, tmp_path / "holiday")


@pytest.mark.parametrize("damage", ["torn weights", "changed weights", "changed manifest", "no files", "none at all"])
def test_a_run_with_only_damaged_checkpoints_is_refused(
    damage: str, refusal: Refusal, run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    for name, content in contents(run).items():
        path = copy / name
        if "checkpoints" in name:
            if damage == "none at all":
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if damage == "no files":
                continue
            if damage == "torn weights" and path.suffix == ".safetensors":
                content = content[: len(content) // 2]
            elif damage == "changed weights" and path.suffix == ".safetensors":
                content = content[:-1] + bytes([content[-1] ^ 1])
            elif damage == "changed manifest" and path.name == "manifest.json":
                content = content.replace(b'"best_step": ', b'"best_step": 9')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for command in ("eval", "rollout"):
        message = refusal(command, copy)
        assert "checkpoint" in message
        assert str(copy) in message


@pytest.mark.parametrize("experiment", ["minipacman", "first_person"])
def test_a_run_that_is_measured_beside_others_says_by_what(experiment: str, refusal: Refusal, run: Path) -> None:
    copy = shutil.copytree(run, Path("copy"))
    RunFolder(copy).write_config({**RunFolder(run).read_config(), "info": {"experiment": experiment}})
    assert f"tdvae run {experiment.replace('_', '-')}" in refusal("eval", copy)


def test_a_stack_says_how_it_is_opened(refusal: Refusal, run: Path) -> None:
    copy = shutil.copytree(run, Path("copy"))
    RunFolder(copy).write_config({**RunFolder(run).read_config(), "model": {"kind": "stack", "runs": 2}})
    assert "load_runs" in refusal("eval", copy)


def test_each_number_is_refused_by_its_own_name(refusal: Refusal, run: Path) -> None:
    assert refusal("rollout", run, "--seed", "-1") == "seed: expected at least 0, got -1"
    assert refusal("bench", "oscillator", "--repeats", "0") == "--repeats: expected at least 1, got 0"
    message = refusal("run", "oscillator-ablations", "--preset", "smoke")
    assert message == "preset: expected one of demo; got smoke"


def test_integers_that_are_hardly_classes_are_refused(refusal: Refusal) -> None:
    np.savez("counts.npz", x=np.full((10, 12), 10**9))
    assert "convert measurements to float" in refusal("fit", "counts.npz", *SMALL)


def test_text_is_no_array_and_no_pickle(refusal: Refusal) -> None:
    Path("mine.npy").write_text("1,2,3")
    assert (
        refusal("fit", "mine.npy", *SMALL)
        == "file: expected a complete .npz or .npy file of numeric arrays, got mine.npy"
    )


def test_a_test_sequence_must_have_a_future(refusal: Refusal) -> None:
    messages = []
    for short in range(10):  # in whichever part it is, it is refused
        lengths = np.full(10, 12)
        lengths[short] = 1
        np.savez("mine.npz", x=numbers(10, 12), lengths=lengths)
        messages.append(refusal("fit", "mine.npz", *SMALL, "--longest-jump", "3"))
    assert sum("nothing to forecast" in message for message in messages) == 1


@pytest.mark.parametrize("horizon", ["one", "1,two", "1.5", "1,,2", "", "1;2", "1-", "1-2-3"])
def test_horizons_that_are_no_whole_numbers_are_refused(horizon: str, refusal: Refusal, run: Path) -> None:
    message = refusal("rollout", run, "--from", "3", "--horizon", horizon)
    assert message.startswith("--horizon: expected whole numbers")
    assert repr(horizon) in message


@pytest.mark.parametrize("horizon", ["0", "1,0", "-1", "2,2", "5-3"])
def test_horizons_that_do_not_increase_are_refused(horizon: str, refusal: Refusal, run: Path) -> None:
    assert "horizon: expected" in refusal("rollout", run, "--from", "3", f"--horizon={horizon}")


@pytest.mark.parametrize("start", ["13", "-1", "1000"])
def test_a_start_outside_the_sequence_is_refused_with_its_length(start: str, refusal: Refusal, run: Path) -> None:
    message = refusal("rollout", run, "--from", start, "--horizon", "1")
    assert "from" in message
    assert "12" in message
    assert start in message


@pytest.mark.parametrize("horizon", ["5", "3-5", "9"])
def test_a_rollout_ends_where_the_known_actions_end(horizon: str, refusal: Refusal, run_with_actions: Path) -> None:
    """Eight steps are real; the actions in the padding after them are not known."""
    message = refusal("rollout", run_with_actions, "--from", "4", "--horizon", horizon)
    assert "expected at most 4 steps, the last with known actions" in message


def test_too_few_samples_are_refused(refusal: Refusal, run: Path) -> None:
    assert "samples" in refusal("rollout", run, "--from", "3", "--horizon", "1", "--samples", "0")


def test_negative_seeds_are_refused_before_anything_is_written(refusal: Refusal, run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    new = tmp_path / "new"
    commands: list[list[str | Path]] = [
        ["run", "oscillator", "--preset", "smoke", "--run-dir", new],
        ["fit", tmp_path / "mine.npz", *SMALL, "--longest-jump", "3", "--run-dir", new],
        ["eval", run],
        ["rollout", run, "--from", "3", "--horizon", "1"],
    ]
    for arguments in commands:
        message = refusal(*arguments, "--seed", "-1")
        assert "seed" in message
        assert "-1" in message
    assert not new.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--steps", "0"), ("--batch-size", "0"), ("--layers", "0"), ("--latent", "0"), ("--belief", "-1")],
)
def test_sizes_of_nothing_are_refused_by_name(option: str, value: str, refusal: Refusal, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    message = refusal("fit", tmp_path / "mine.npz", *SMALL, "--longest-jump", "3", "--run-dir", "new", option, value)
    assert option.removeprefix("--").replace("-", "_") in message
    assert value in message
    assert not (tmp_path / "new").exists()


def test_a_missing_file_is_named(refusal: Refusal, tmp_path: Path) -> None:
    assert "nowhere.npz" in refusal("fit", tmp_path / "nowhere.npz", *SMALL)
    assert not (tmp_path / "runs").exists()


def test_infinity_in_a_file_is_refused_with_its_place(refusal: Refusal, tmp_path: Path) -> None:
    x = numbers(10, 12)
    x[7, 3] = np.inf
    np.savez(tmp_path / "infinite.npz", x=x)
    message = refusal("fit", tmp_path / "infinite.npz", *SMALL)
    assert "sequence 7" in message
    assert "step 3" in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", ["text", "pickle"])
def test_a_file_that_is_no_plain_array_is_refused(content: str, refusal: Refusal, tmp_path: Path) -> None:
    if content == "text":
        (tmp_path / "bad.npz").write_text("1,2,3\n")
    else:
        objects: Any = np.array([[1, None]], dtype=object)
        np.savez(tmp_path / "bad.npz", x=objects)
    assert "bad.npz" in refusal("fit", tmp_path / "bad.npz", *SMALL)


def test_too_few_sequences_are_refused(refusal: Refusal, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", x=numbers(2, 12))
    assert "at least 3 sequences" in refusal("fit", tmp_path / "two.npz", *SMALL, "--split", "sequence")
    assert "steps to split by time" in refusal("fit", tmp_path / "two.npz", *SMALL)


@pytest.mark.parametrize("part", [0, 1], ids=["training", "validation"])
def test_sequences_too_short_for_the_longest_jump_are_refused_before_training(
    part: int, refusal: Refusal, tmp_path: Path
) -> None:
    """In whichever part the short one lies: the message has both numbers, and no folder is made."""
    x = np.arange(10, dtype=np.float32)[:, None].repeat(12, 1)
    short = int(split(from_arrays(x), 0)[part].x[0, 0, 0])
    lengths = np.full(10, 12)
    lengths[short] = 4
    np.savez(tmp_path / "short.npz", x=x, lengths=lengths)
    message = refusal("fit", tmp_path / "short.npz", *SMALL, "--longest-jump", "5", "--run-dir", tmp_path / "new")
    assert "jump" in message
    assert "4" in message
    assert "5" in message
    assert not (tmp_path / "new").exists()


def test_a_longest_jump_of_nothing_is_refused(refusal: Refusal, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    assert "jump" in refusal("fit", tmp_path / "mine.npz", *SMALL, "--longest-jump", "0")


TABLE = "date,y,z\n" + "".join(f"2024-01-{day:02d},{day},{day % 7}\n" for day in range(1, 32))

# What is wrong with a file, its content, further options, and what the message must contain.
BAD_FILES: list[tuple[str, str, str, list[str], list[str]]] = [
    ("unknown column", "a.csv", TABLE, ["--values", "w"], ["'w'", "a.csv", "'date', 'y', 'z'"]),
    ("unknown time", "a.csv", TABLE, ["--time", "when"], ["'when'", "a.csv"]),
    ("column with two roles", "a.csv", TABLE, ["--values", "y", "--covariates", "y"], ["'y'", "two"]),
    ("no column left", "a.csv", "date\n2024-01-01\n2024-01-02\n", [], ["values", "a.csv"]),
    ("unsorted times", "a.csv", TABLE.replace("2024-01-09", "2023-01-09"), [], ["'date'", "row 9", "row 8", "sort"]),
    ("duplicate times", "a.csv", TABLE.replace("2024-01-09", "2024-01-08"), [], ["'date'", "row 9", "row 8", "id"]),
    ("time between steps", "a.csv", TABLE.replace("2024-01-09", "2024-01-09 07:00"), [], ["'date'", "row 9", "1 day"]),
    ("time far away", "a.csv", TABLE.replace("2024-01-31", "2204-01-31"), [], ["'date'", "row 31", "gap"]),
    ("no time", "a.csv", TABLE.replace("2024-01-09", ""), ["--time", "date"], ["'date'", "row 9"]),
    ("no date", "a.csv", TABLE.replace("2024-01-09", "9. Jan"), ["--time", "date"], ["'date'", "row 9", "'9. Jan'"]),
    ("cell of text", "a.csv", TABLE.replace(",9,", ",nine,"), [], ["'y'", "'nine'", "row 9", "a.csv"]),
    ("infinite cell", "a.csv", TABLE.replace(",9,", ",inf,"), [], ["'y'", "infinity", "row 9"]),
    ("covariate is empty", "a.csv", TABLE.replace(",9,2", ",9,"), ["--covariates", "z"], ["'z'", "row 9", "covariate"]),
    ("all missing", "a.csv", "y,z\n" + ",1\n" * 40, [], ["'y'", "only missing values", "a.csv"]),
    ("one row", "a.csv", "y,z\n1,2\n", [], ["two rows", "1", "a.csv"]),
    ("heading only", "a.csv", "y,z\n", [], ["two rows", "0", "a.csv"]),
    ("empty file", "a.csv", "", [], ["empty", "a.csv"]),
    ("no heading", "a.csv", "1,2\n3,4\n", [], ["heading", "a.csv"]),
    ("same name twice", "a.csv", "y,y\n1,2\n3,4\n", [], ["'y' twice", "a.csv"]),
    ("cut in a row", "a.csv", TABLE + "2024-02-01", [], ["complete", "a.csv", "Row #33", "Expected 3 columns"]),
    ("calendar without times", "a.csv", "y\n" + "1\n" * 40, ["--calendar"], ["calendar", "time"]),
    ("window too long", "a.csv", TABLE, ["--longest-jump", "2", "--window", "99"], ["window", "99", "21"]),
    ("window too short", "a.csv", TABLE, ["--longest-jump", "2", "--window", "2"], ["window", "2", "longest jump"]),
    ("season too long", "a.csv", TABLE, ["--season", "25"], ["season", "25", "20"]),
    ("season longer than a window", "a.csv", TABLE, ["--window", "9", "--season", "8"], ["season", "8", "7", "window"]),
    ("too few steps", "a.csv", TABLE, ["--longest-jump", "9"], ["31", "58", "longest_jump"]),
    ("group of an id", "a.csv", TABLE, ["--group", "z"], ["'z'", "one group"]),
    ("no Parquet", "a.parquet", TABLE, [], ["Parquet", "a.parquet"]),
    ("no HDF5", "a.h5", TABLE, [], ["HDF5", "a.h5"]),
    ("unknown ending", "a.doc", TABLE, [], [".csv", "a.doc"]),
]


@pytest.mark.parametrize(
    ("what", "name", "content", "options", "words"), BAD_FILES, ids=[each[0] for each in BAD_FILES]
)
def test_a_bad_table_is_refused_and_nothing_is_left_behind(
    what: str, name: str, content: str, options: list[str], words: list[str], refusal: Refusal, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    message = refusal(
        "fit", name, *SMALL, *(options if "--longest-jump" in options else [*options, "--longest-jump=2"])
    )
    for word in words:
        assert word in message
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("ending", ["parquet", "h5", "npz"])
def test_a_file_that_was_cut_short_is_refused(ending: str, refusal: Refusal, tmp_path: Path) -> None:
    import h5py
    import pandas

    path = tmp_path / f"cut.{ending}"
    if ending == "parquet":
        pandas.DataFrame({"y": np.arange(500.0)}).to_parquet(path)
    elif ending == "npz":
        np.savez(path, x=numbers(20, 30))
    else:
        with h5py.File(path, "w") as file:
            file["x"] = numbers(20, 30)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert f"cut.{ending}" in refusal("fit", path.name, *SMALL)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "new.csv", "--horizon", "0"], ["horizon", "0"]),
        (["--data", "new.csv", "--horizon", "one"], ["--horizon", "'one'"]),
        (["--data", "new.csv", "--quantiles", "5"], ["quantiles", "5"]),
        (["--data", "new.csv", "--samples=-1"], ["samples", "-1"]),
        (["--data", "new.csv", "--out", "forecast.txt.doc"], ["out", ".csv", "forecast.txt.doc"]),
        (["--data", "new.csv", "--out", "new.csv"], ["out", "new.csv", "exists"]),
        (["--data", "new.csv", "--out", "no/folder.csv"], ["out", "folder"]),
        (["--data", "new.csv", "--plot", "forecast.gif"], ["plot", ".png", "forecast.gif"]),
        (["--data", "nowhere.csv"], ["nowhere.csv"]),
        (["--data", "three.npy"], ["shape", "(2,)", "(3,)"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_forecast_that_cannot_be_made_writes_nothing(
    arguments: list[str], words: list[str], refusal: Refusal, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("a,b\n" + "1,2\n" * 20)
    np.save(tmp_path / "three.npy", numbers(1, 12, 3))
    before = sorted(tmp_path.iterdir())
    message = refusal("forecast", run, *arguments)
    for word in words:
        assert word in message
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_with_actions_needs_their_future(refusal: Refusal, run_with_actions: Path) -> None:
    np.savez("new.npz", x=numbers(1, 6, 2), actions=numbers(1, 8, 1))
    message = refusal("forecast", run_with_actions, "--data", "new.npz", "--horizon", "1,3")
    assert "actions" in message
    assert "3 steps" in message
    assert "got 2" in message
    assert not Path("forecast.csv").exists()


def test_a_run_without_its_data_file_says_so(refusal: Refusal, run: Path) -> None:
    copy = shutil.copytree(run, Path("copy"))
    (copy / "data.safetensors").write_bytes(b"torn")
    for command in ("eval", "rollout"):
        assert "data.safetensors" in refusal(command, copy)


def test_only_runs_of_fit_are_evaluated_on_files(refusal: Refusal) -> None:
    assert "oscillator" in refusal("eval", "oscillator", "--data", "mine.npz")


# Models

EVENT, ACTIONS = 2, 3


def data(with_actions: bool = False, with_rewards: bool = False) -> Sequences:
    return from_arrays(
        numbers(4, 6, EVENT),
        numbers(4, 6, ACTIONS) if with_actions else None,
        numbers(4, 6) if with_rewards else None,
    )


def model(with_actions: bool = False, with_rewards: bool = False) -> TDVAE:
    torch.manual_seed(0)
    return for_data(
        data(with_actions, with_rewards),
        latent=2,
        belief=LinearRecurrence(4),
        decoder=Gaussian((4,), noise="predicted"),
        maps=ResidualMaps(4),
    )


def state(of: TDVAE) -> State:
    with torch.no_grad():
        return of.sample_state(of.initial(4), 2)


@pytest.mark.parametrize("name", ["actions", "rewards"])
def test_a_model_without_actions_or_rewards_refuses_them(name: str) -> None:
    """It would silently ignore them otherwise."""
    plain, rich = model(), data(with_actions=name == "actions", with_rewards=name == "rewards")
    with pytest.raises(InputError, match=f"{name}.*without"):
        plain.filter(rich)
    a = None if rich.actions is None else rich.actions[:, 0]
    r = None if rich.rewards is None else rich.rewards[:, 0]
    with pytest.raises(InputError, match=f"{name}.*without"):
        plain.update(plain.initial(4), rich.x[:, 0], a, r)
    with pytest.raises(InputError, match=f"{name}.*without"):
        belief_at(plain, rich, 2)


@pytest.mark.parametrize("name", ["actions", "rewards"])
def test_a_model_with_actions_or_rewards_insists_on_them(name: str) -> None:
    rich, plain = model(with_actions=name == "actions", with_rewards=name == "rewards"), data()
    with pytest.raises(InputError, match=f"{name}.*got None"):
        rich.filter(plain)
    with pytest.raises(InputError, match=f"{name}.*got None"):
        rich.update(rich.initial(4), plain.x[:, 0])


def test_a_transition_takes_actions_exactly_where_the_model_does() -> None:
    plain, acting = model(), model(with_actions=True)
    with pytest.raises(InputError, match=r"actions.*without"):
        plain.transition(state(plain), 2, torch.zeros(2, ACTIONS))
    for verb in (acting.transition, acting.predict):
        with pytest.raises(InputError, match=r"actions.*got None"):
            verb(state(acting), 2)


def test_too_few_actions_for_a_jump_are_refused_with_both_numbers() -> None:
    acting = model(with_actions=True)
    for dt in (3, torch.tensor([1, 3, 2, 1])):
        with pytest.raises(InputError, match=r"(?s)3.*2"):
            acting.transition(state(acting), dt, torch.zeros(4, 2, ACTIONS))
    with pytest.raises(InputError, match=r"(?s)3.*2"):
        rollout(acting, state(acting), [1, 2], torch.zeros(4, 2, ACTIONS))
    assert acting.transition(state(acting), 3, torch.zeros(4, 3, ACTIONS)).z.layers[0].shape == (2, 4, 2)


def test_actions_of_another_size_are_refused_with_both_sizes() -> None:
    acting, x = model(with_actions=True), data().x
    with pytest.raises(InputError, match=r"actions.*3.*5"):
        acting.update(acting.initial(4), x[:, 0], torch.zeros(4, 5))
    with pytest.raises(InputError, match=r"3.*5"):
        acting.transition(state(acting), 1, torch.zeros(4, 1, 5))


@pytest.mark.parametrize("dt", [0, -1, torch.tensor([1, 0, 2, 1])], ids=["zero", "negative", "one of many"])
def test_a_transition_goes_at_least_one_step(dt: int | Tensor) -> None:
    plain = model()
    for verb in (plain.transition, plain.predict):
        with pytest.raises(InputError, match=r"^dt: .*at least 1"):
            verb(state(plain), dt)


def test_a_rollout_has_at_least_one_jump() -> None:
    plain = model()
    with pytest.raises(InputError, match=r"^dt: .*at least one"):
        rollout(plain, state(plain), [])


@pytest.mark.parametrize("t", [-1, 7])
def test_a_belief_is_asked_for_within_the_sequence(t: int) -> None:
    with pytest.raises(InputError, match=rf"between 0 and 6.*{t}"):
        belief_at(model(), data(), t)
    beyond = replace(data(), lengths=data().lengths + 1)
    with pytest.raises(InputError, match=r"^lengths: expected between 1 and the horizon 6, got 7"):
        belief_at(model(), beyond, 7)


@pytest.mark.parametrize("event", [(3,), (1,), (), (2, 2)], ids=str)
def test_observations_of_another_shape_are_refused_with_both_shapes(event: tuple[int, ...]) -> None:
    plain = model()
    with pytest.raises(InputError, match=r"^x: .*\(2,\)"):
        plain.update(plain.initial(4), torch.zeros(4, *event))
    wrong = Sequences(torch.zeros(4, 6, *event), torch.full((4,), 6))
    with pytest.raises(InputError, match=r"^x: .*\(2,\)"):
        plain.filter(wrong)


def test_an_unknown_choice_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"^for_data: unknown choices \['belieff'\]; known are .*'belief'"):
        for_data(data(), belieff=20)


@pytest.mark.parametrize(
    "settings",
    [
        {"layers": 0},
        {"latent": 0},
        {"actions": -1},
        {"event_shape": ()},
        {"event_shape": (0,)},
        {"event_shape": (2, -1)},
        {"encoder": (0,)},
        {"drift": "fall"},
        {"posterior": "none"},
        {"state": "linear"},
        {"belief": 50},
        {"belief": "gru"},
        {"belief": Gaussian()},
        {"readout": 64},
        {"decoder": (20, 20)},
        {"decoder": LSTM()},
        {"maps": "dense"},
        {"dt": "raw"},
        {"event_shape": (9,), "decoder": Coordinates()},
        {"event_shape": (2, 2), "decoder": Coordinates()},
        {"state": "observed", "decoder": Coordinates()},
        {"state": "observed", "dt": Unknown(lengths=3)},
        {"decoder": Coordinates(), "dt": Unknown(lengths=3)},
        {"actions": 2, "dt": Unknown(lengths=3)},
        {"smoothing_sees_b2": False, "state": "observed"},
    ],
    ids=str,
)
def test_an_impossible_config_is_refused_when_it_is_made(settings: dict[str, Any]) -> None:
    """By the name of the setting, before any network is built: not by whatever breaks first."""
    with pytest.raises(TDVAEError, match=rf"^{next(iter(settings))}: expected .*, got [^\n]+$"):
        TDVAEConfig(**settings)


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        *((part, {"size": size}) for part in (LSTM, DeepLSTM, LinearRecurrence, Readout) for size in (0, -5, 2**25)),
        (LSTM, {"input_skip": -1}),
        (DeepLSTM, {"layers": 0}),
        (DeepLSTM, {"layers": 129}),
        (LinearRecurrence, {"timescales": (0.0, 10.0)}),
        (LinearRecurrence, {"timescales": (10.0,)}),
        (LinearRecurrence, {"max_frequency": float("nan")}),
        (Readout, {"hidden": 0}),
        (Readout, {"blocks": -1}),
        (GatedMaps, {"hidden": 0}),
        (ResidualMaps, {"blocks": -1}),
        (Gaussian, {"hidden": (20, 0)}),
        (Gaussian, {"noise": 0.1}),
        (Gaussian, {"missing_values": 1}),
        *((Coordinates, {"sigma": sigma}) for sigma in (0.0, -1.0, float("nan"))),
        (Bits, {"hidden": 20}),
        (Classes, {"count": 0}),
        (Waves, {"octaves": 0}),
        (Waves, {"octaves": 63}),
        (Unknown, {"lengths": 0}),
    ],
    ids=str,
)
def test_an_impossible_config_of_a_part_is_refused_when_it_is_made(
    part: type[Config], settings: dict[str, Any]
) -> None:
    with pytest.raises(TDVAEError, match=rf"^{next(iter(settings))}(\[\d\])?: expected .*, got [^\n]+$"):
        part(**settings)


@pytest.mark.parametrize(
    ("decoder", "x", "said"),
    [
        (Bits(), torch.full((2, 5, 3), 200.0), "got 200 to 200; divide bytes by 255"),
        (Classes(4), torch.full((2, 5, 3), 1.7), "expected integer classes"),
        (Classes(4), torch.full((2, 5, 3), -1), "got class -1"),
        (Classes(4), torch.full((2, 5, 3), 4), "got class 4"),
    ],
)
def test_values_that_a_decoder_does_not_know_are_refused(decoder: DecoderConfig, x: Tensor, said: str) -> None:
    model = build(TDVAEConfig(event_shape=(3,), decoder=decoder))
    with pytest.raises(InputError, match=f"^x: .*{said}"):
        model.filter(Sequences(x, torch.full((2,), 5)))


# Paths


@pytest.mark.parametrize("ending", ["csv", "parquet", "h5", "npz", "npy"])
def test_pipes_and_paths_with_null_characters_are_refused_without_waiting(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"pipe.{ending}")
    for name in (f"pipe.{ending}", f"null\x00.{ending}"):
        with pytest.raises(InputError, match=r"^file: expected (a regular file|a path without null|an existing file)"):
            prepare(tmp_path / name)


def test_outputs_are_not_written_to_paths_with_null_characters(tmp_path: Path) -> None:
    for check in (check_output, check_new_file):
        with pytest.raises(InputError, match=r"^out: expected a path without null characters"):
            check(tmp_path / "null\x00.csv")
    with pytest.raises(InputError, match=r"^file: expected a path without null characters"):
        write_file(tmp_path / "null\x00.csv", b"")
