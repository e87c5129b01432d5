"""Run folders under damage: interrupted creation, changed bytes, two processes, symbolic links, hostile content."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tdvae
from tdvae import CheckpointError, InputError
from tdvae.storage import RunFolder, checkpoint, files
from tdvae.storage.run_folder import FORMAT, locked
from tdvae_paper import jobs
from tests.test_training import assert_same_run, learner, train


class Killed(BaseException):
    """Ends a training as SIGKILL would: no handler of the library catches it."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of eight steps with checkpoints after steps 6 and 8, and the best one."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "copy")


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def best(run: Path) -> Path:
    (path,) = checkpoint.list_checkpoints(run / "checkpoints", "best")
    return path


# Creation


@pytest.mark.parametrize("moment", ["before the config is complete", "before it is renamed", "after it is renamed"])
def test_a_start_that_was_killed_can_be_started_again_or_resumed(
    moment: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def kill(*args: Any) -> None:
        if moment == "after it is renamed":
            replace(*args)
        raise Killed

    monkeypatch.setattr(os, "fsync" if moment == "before the config is complete" else "replace", kill)
    with pytest.raises(Killed):
        train(tmp_path / "run")
    monkeypatch.undo()
    started = (tmp_path / "run" / "config.json").exists()
    assert started == (moment == "after it is renamed")
    with pytest.raises(InputError, match="add --resume" if started else "start without resume"):
        train(tmp_path / "run", resume=not started)
    train(tmp_path / "run", resume=started)
    assert_same_run(tmp_path / "run", whole)


def test_an_experiment_killed_at_its_start_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "run" / "seed-0").mkdir(parents=True)
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / "seed-0" / ".config.json.tmp").write_text("{")
    jobs.check_folders(tmp_path / "run", None, resume=False)
    (tmp_path / "run" / "seed-0" / "notes.txt").touch()
    with pytest.raises(InputError, match="not empty"):
        jobs.check_folders(tmp_path / "run", None, resume=False)


# Damage


def test_any_changed_byte_of_the_config_is_an_error_or_changes_nothing(run: Path) -> None:
    path, config = run / "config.json", RunFolder(run).read_config()
    content = path.read_bytes()
    positions = {content.index(key) + 1 for key in (b'"info"', b'"model"', b'"seed"', b'"sha256"', b'"init_log_sigma"')}
    for position in positions | set(range(0, len(content), 37)):
        flip(path, position)
        with contextlib.suppress(CheckpointError):
            assert RunFolder(run).read_config() == config  # only white space has changed
        path.write_bytes(content)
    for cut in (0, 1, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:cut])
        with pytest.raises(CheckpointError, match=r"config\.json: damaged"):
            tdvae.load(run)


def test_a_config_of_an_earlier_version_has_no_checksum(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["sha256"]
    (run / "config.json").write_text(json.dumps(config))
    assert {"format": FORMAT, **RunFolder(run).read_config()} == config
    train(run, resume=True)
    assert "sha256" in json.loads((run / "config.json").read_text())


def test_a_damaged_best_checkpoint_is_an_error_until_the_run_is_resumed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(best(run) / "weights.safetensors", -1)
    with pytest.raises(CheckpointError, match=r"best-.*damaged; resume the run"):
        tdvae.load(run)
    subject = train(run, resume=True)
    assert "best weights are chosen again" in capsys.readouterr().err
    loaded = tdvae.load(run)
    for name, value in subject.model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])


def test_a_missing_best_checkpoint_is_not_replaced_by_other_weights(run: Path) -> None:
    shutil.rmtree(best(run))
    with pytest.raises(CheckpointError, match=r"best step \d.*missing"):
        tdvae.load(run)


def test_a_best_checkpoint_killed_while_it_was_replaced_is_still_found(run: Path) -> None:
    expected, path = tdvae.load(run).state_dict(), best(run)
    path.rename(path.with_name(f".{path.name}.old"))
    loaded = tdvae.load(run).state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in expected.items())


@pytest.mark.parametrize("kind", ["manifest", "weights", "everything"])
def test_a_newest_checkpoint_with_missing_files_is_written_again(kind: str, run: Path, whole: Path) -> None:
    newest = checkpoint.list_checkpoints(run / "checkpoints", "step")[0]
    for file in list(newest.iterdir()):
        if kind in (file.stem, "everything"):
            file.unlink()
    train(run, resume=True)
    train(run, resume=True)
    assert_same_run(run, whole)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"\xff\xfe\x00" + path.read_bytes()),
        lambda path: path.write_bytes(path.read_bytes().replace(b'"step"', b'"stop"', 1)),
        lambda path: path.write_bytes(b"[" * 100_000 + b"\n" + path.read_bytes()),
        lambda path: path.write_bytes(path.read_bytes().replace(b"0.", b"1.", 1)),  # still valid JSON
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["bytes", "key", "nested", "number", "missing", "folder"],
)
def test_a_damaged_log_is_reported_and_does_not_block_a_resume(
    damage: Callable[[Path], object], run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run / "metrics.jsonl")
    train(run, resume=True)
    assert "metrics.jsonl: damaged" in capsys.readouterr().err
    first, second = (checkpoint.newest(folder / "checkpoints", "step")[0] for folder in (run, whole))
    assert all(torch.equal(value, second.tensors["weights"][name]) for name, value in first.tensors["weights"].items())
    train(run, resume=True)  # it can be resumed again


def test_damaged_measures_are_not_read(tmp_path: Path) -> None:
    files.write_checked(tmp_path / "measures.json", {"measures": {"nll": 1.25}, "train_seconds": 1.0})
    assert files.read_checked(tmp_path / "measures.json", ("measures",))["measures"] == {"nll": 1.25}
    (tmp_path / "measures.json").write_text((tmp_path / "measures.json").read_text().replace("1.25", "1.35"))
    with pytest.raises(CheckpointError, match=r"measures\.json: damaged or edited"):
        files.read_checked(tmp_path / "measures.json", ("measures",))


# One process at a time


def test_a_second_process_on_the_folder_is_refused_and_changes_nothing(run: Path) -> None:
    """The lock belongs to the open file, so a second one in the same process is refused, too."""
    before = contents(run)
    with locked(run), pytest.raises(InputError, match=rf"process {os.getpid()} on .* is using"):
        train(run, resume=True)
    assert {**contents(run), ".lock": b""} == {**before, ".lock": b""}
    train(run, resume=True)


def test_the_folder_is_locked_during_training(tmp_path: Path) -> None:
    subject = learner()

    def second_start(*args: Any) -> Any:
        with pytest.raises(InputError, match="no other process"):
            train(tmp_path / "run", resume=True)
        raise Killed

    subject.objective = second_start
    with pytest.raises(Killed):
        train(tmp_path / "run", subject=subject)


# Folders of strangers


@pytest.mark.parametrize("name", [".metrics.jsonl.tmp", "metrics.jsonl", ".config.json.tmp"])
def test_no_symbolic_link_is_written_through(name: str, run: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("years of work")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "precious.txt")
    train(run, resume=True)
    assert (tmp_path / "precious.txt").read_text() == "years of work"


@pytest.mark.parametrize("name", ["config.json", "checkpoints", "tensorboard", ".lock"])
def test_symbolic_links_are_refused(name: str, run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    if (run / name).exists():
        (run / name).rename(moved)
    else:
        moved.mkdir()
    (run / name).symlink_to(moved)
    before = moved.read_bytes() if moved.is_file() else contents(moved)
    with pytest.raises((InputError, CheckpointError, OSError), match=name):
        train(run, resume=True, tensorboard=True)
    assert before == (moved.read_bytes() if moved.is_file() else contents(moved))


def test_names_in_a_manifest_stay_in_their_folder(run: Path) -> None:
    path = best(run)
    (run / "outside.safetensors").write_bytes((path / "weights.safetensors").read_bytes())
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["sha256"] = {"../../outside": manifest["sha256"]["weights"]}
    del manifest["self"]
    files.write_file(path / "manifest.json", files.to_json({**manifest, "self": files.checksum(manifest)}))
    with pytest.raises(CheckpointError, match="expected names of letters and digits"):
        checkpoint.load(path)


@pytest.mark.parametrize("name", ["config.json", "manifest.json"])
def test_deep_and_long_json_is_refused(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = (run if name == "config.json" else best(run)) / name
    path.write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match=name):
        tdvae.load(run)
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 5_000)
    path.write_text(" " * 5_001)
    with pytest.raises(CheckpointError, match="at most 5000 bytes, got 5001"):
        tdvae.load(run)


def test_special_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", Path("/dev/zero"), tmp_path):
        with pytest.raises((InputError, IsADirectoryError)):
            files.sha256_of(path)


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.safetensors").mkdir()
    with pytest.raises(InputError, match=r"data.safetensors: expected a file or nothing in its place, got a folder"):
        RunFolder(tmp_path).write_file("data.safetensors", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["data.safetensors"]


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 12:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*run") as error:
        train(tmp_path / "run")
    monkeypatch.undo()
    assert error.value.filename is not None
    assert not list((tmp_path / "run").rglob("*.tmp"))
    train(tmp_path / "run", resume=True)
    train(tmp_path / "other")
    assert_same_run(tmp_path / "run", tmp_path / "other")
