"""The command line under mistakes of the user and faults of the machine: one line, no traceback."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tdvae
from tdvae import cli
from tdvae.errors import InputError, failure
from tdvae.forecasting.own_data import OwnDataRuns
from tdvae.reporting.results import finite_numbers
from tdvae.storage import RunFolder
from tdvae_paper import jobs
from tests.test_bad_input import SMALL, Refusal, fit_small, numbers

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refusal:
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", x=numbers(10, 12))
    return Refusal(monkeypatch, capsys)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_small(tmp_path_factory.mktemp("run"), x=numbers(10, 12))


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    return fail


# Faults of the machine


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "runs/mine/x"), "runs/mine/x: No space left on device"),
        (PermissionError(13, "Permission denied", "/root/x"), "/root/x: Permission denied"),
        (MemoryError("Unable to allocate 3 TiB"), "not enough memory; choose smaller sizes"),
        (
            ImportError("a.so: failed to map segment from shared object"),
            "a library cannot be loaded; check the free memory",
        ),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "not enough memory; choose"),
        (RuntimeError("could not create a primitive"), "not enough memory; choose"),
        (ModuleNotFoundError("No module named 'h5py'", name="h5py"), "the package h5py is missing; install tdvae"),
        (ZeroDivisionError("two\nlines"), "unexpected ZeroDivisionError: two lines; please report this"),
    ],
)
def test_a_fault_is_one_line(error: Exception, message: str, refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.Eval, "main", failing(error))
    assert refusal("eval", "oscillator").startswith(message)


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.Eval, "main", failing(ZeroDivisionError("inside")))
    monkeypatch.setattr("sys.argv", ["tdvae", "eval", "oscillator", "--debug"])
    with pytest.raises(ZeroDivisionError, match="inside"):
        cli.main()
    monkeypatch.setattr("sys.argv", ["tdvae", "eval", "oscillator"])
    monkeypatch.setenv("TDVAE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError, match="inside"):
        cli.main()


def test_an_interruption_while_arguments_are_read_is_one_line(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tyro.cli", failing(KeyboardInterrupt()))
    assert refusal("fit", "mine.npz") == "interrupted; nothing was written"


@pytest.mark.parametrize("place", ["", "networks/latent", "seed-0/networks/latent"])
def test_an_interruption_advises_to_resume_what_can_be_resumed(place: str, tmp_path: Path) -> None:
    def interrupted() -> list[str]:
        with pytest.raises(KeyboardInterrupt) as found, cli._advice_to_resume(tmp_path):
            raise KeyboardInterrupt
        return getattr(found.value, "__notes__", [])

    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    assert interrupted() == []
    (tmp_path / place / "config.json").touch()
    assert "--resume" in interrupted()[0]
    jobs.check_folders(tmp_path, None, resume=True)


def test_names_with_commas_are_quoted() -> None:
    assert cli._names(()) is None
    assert cli._names(("a, b",)) == ["a", "b"]
    assert cli._names(('"a, b",c "d"',)) == ["a, b", 'c "d"']
    assert cli._names(("a", '"b,c"')) == ["a", "b,c"]


@pytest.mark.parametrize("local_rank", [0, 1])
def test_the_first_process_of_a_machine_speaks_for_all(local_rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    assert failure(InputError("run_dir: taken")) == ("" if local_rank else "run_dir: taken")
    assert ("process 1: " in failure(OSError(5, "Input/output error"))) == bool(local_rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start all of them with --resume" in failure(RuntimeError("Connection closed by peer [127.0.0.1]:4242"))


def test_a_folder_that_cannot_be_written_is_named(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("file/sub", "x" * 300, "/proc/nothing"):
        assert folder[:20] in refusal("fit", "mine.npz", *SMALL, "--longest-jump", "3", "--run-dir", folder)


# Mistakes of the user


def test_integers_beyond_64_bits_are_refused(refusal: Refusal, run: Path) -> None:
    large = str(10**30)
    for arguments in (
        ["fit", "mine.npz", "--seed", large],
        ["fit", "mine.npz", "--steps", large],
        ["fit", "mine.npz", "--longest-jump", large],
        ["eval", str(run), "--seed", large],
        ["rollout", str(run), "--seed", large],
        ["rollout", str(run), "--horizon", large, "--from", "3"],
        ["rollout", str(run), "--samples", large],
        ["run", "oscillator", "--preset", "smoke", "--seed", large],
        ["bench", "--repeats", large],
    ):
        assert "64 bits" in refusal(*arguments)


@pytest.mark.parametrize(
    "options",
    [["--latent", "100000000"], ["--belief", "9000000"], ["--layers", "100000"], ["--batch-size", "999999999"]],
)
def test_sizes_beyond_the_memory_of_any_machine_are_refused(options: list[str], refusal: Refusal) -> None:
    message = refusal("fit", "mine.npz", *SMALL, "--longest-jump", "3", *options)
    said = "a model of" if options[0] == "--belief" else ""  # so many units would be allowed, but not their weights
    named = "config" if options[0] == "--belief" else options[0].removeprefix("--").replace("-", "_")
    assert message.startswith(f"{named}: expected {said}")
    assert "at most" in message


def test_more_samples_than_fit_into_memory_are_refused(refusal: Refusal, run: Path) -> None:
    assert "samples: expected at most" in refusal("rollout", run, "--from", "3", "--samples", "999999999")


def damaged_archives(folder: Path) -> dict[str, bytes]:
    """Files that NumPy or zipfile refuse with errors of many kinds."""
    np.savez(folder / "whole.npz", x=numbers(10, 12))
    whole = (folder / "whole.npz").read_bytes()
    header = b"\x93NUMPY\x01\x00"
    deep = b"(" * 5_000 + b")" * 5_000
    huge = b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999), }"
    method = io.BytesIO()
    with zipfile.ZipFile(method, "w") as archive:
        archive.writestr("x.npy", whole)
    unknown = method.getvalue().replace(b"PK\x03\x04\x14\x00\x00\x00\x00\x00", b"PK\x03\x04\x14\x00\x00\x00\x63\x00")
    unknown = unknown.replace(
        b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x63\x00"
    )
    encrypted = bytearray(whole)
    for start, flag in ((whole.find(b"PK\x03\x04"), 6), (whole.find(b"PK\x01\x02"), 8)):
        encrypted[start + flag] |= 1
    return {
        "encrypted": bytes(encrypted),
        "compression": unknown,
        "deep": header + len(deep).to_bytes(2, "little") + deep,
        "huge": header + len(huge).to_bytes(2, "little") + huge,
        "empty": b"",
        "half": whole[: len(whole) // 2],
    }


@pytest.mark.parametrize("kind", ["encrypted", "compression", "deep", "huge", "empty", "half"])
def test_a_file_that_cannot_be_read_is_named(kind: str, refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(damaged_archives(tmp_path)[kind])
    assert "bad.npz" in refusal("fit", "bad.npz", *SMALL)


@pytest.mark.parametrize("command", ["fit", "convert", "eval"])
def test_pipes_do_not_hang(command: str, refusal: Refusal, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    options = {"fit": SMALL, "convert": ["--out", "new.h5"], "eval": []}[command]
    assert "pipe.npz" in refusal(command, "pipe.npz", *options)


def test_info_and_data_that_are_not_those_of_the_run_are_refused(refusal: Refusal, run: Path, tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(run, tmp_path / "copy"))
    config, stored = folder.read_config(), folder.path / "data.safetensors"
    missing = {name: value for name, value in config["info"].items() if name != "context"}
    for info in (missing, {**config["info"], "longest_jump": 0}, {**config["info"], "encoding": {"kind": "vector"}}):
        folder.write_config({**config, "info": info})
        assert "info" in refusal("eval", folder.path)
    folder.write_config(config)
    content = stored.read_bytes()
    changed = content[:-1] + bytes([content[-1] ^ 1])
    stored.write_bytes(changed)
    assert "data.safetensors: damaged" in refusal("eval", folder.path)
    stored.unlink()
    stored.symlink_to(run / "data.safetensors")
    assert "data.safetensors: cannot be read" in refusal("eval", folder.path)
    stored.unlink()
    stored.symlink_to("/dev/zero")
    assert "data.safetensors: cannot be read" in refusal("forecast", folder.path, "--data", run.parent / "mine.npz")


def test_infinite_measures_are_null_in_json(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(OwnDataRuns, "evaluate", lambda *args: {"nll": {"1": float("inf"), "2": 1.5}})
    monkeypatch.setattr("sys.argv", ["tdvae", "eval", str(run), "--json"])
    cli.main()
    measures = json.loads(capsys.readouterr().out)["measures"]
    assert measures["nll"]["1"]["mean"] is None
    assert measures["nll"]["2"]["mean"] == 1.5
    assert finite_numbers([float("nan"), {"a": (1, float("-inf"))}]) == [None, {"a": [1, None]}]


# Several processes


def torchrun(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "PYTHONPATH": str(ROOT / "src")},
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds, as long as the process runs."""
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


def test_two_machines_train_and_one_continues_when_the_other_dies(tmp_path: Path) -> None:
    """Two nodes of one process each on loopback. One is killed, and the run is resumed with one process."""
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["fit", "mine.npz", *SMALL, "--longest-jump", "3", "--steps", "4000", "--nodes", "2", "--run-dir", "run"]
    shared = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
    nodes = [torchrun(*shared, f"--node-rank={rank}", "-m", "tdvae", *command, cwd=tmp_path) for rank in (0, 1)]
    wait_for(lambda: any((tmp_path / "run").glob("networks/*/checkpoints/step-*")), nodes[0])
    children = subprocess.run(["pgrep", "-P", str(nodes[1].pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(children.split()[0]), signal.SIGKILL)
    outputs = [node.communicate()[1] for node in nodes]
    assert all(node.returncode != 0 for node in nodes)
    (line,) = (line for line in outputs[0].splitlines() if line.startswith("tdvae: "))
    assert line == "tdvae: the connection to another process was lost, which has ended; start all of them with --resume"

    own = tdvae.prepare(tmp_path / "mine.npz", 3)
    reached = RunFolder(tmp_path / "run" / "networks" / "latent").newest_step()
    assert reached is not None
    options: dict[str, Any] = {"layers": 2, "latent": 2, "belief": 4, "batch_size": 4, "networks": ["latent"]}
    fitted = tdvae.fit_forecaster(own, tmp_path / "run", steps=reached.state["step"] + 1, resume=True, **options)
    assert (fitted.info or {})["trained"] == {"latent": reached.state["step"] + 1}


def test_a_run_folder_that_is_taken_is_one_line_under_torchrun(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=numbers(10, 12))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    options = ["--longest-jump", "3", "--devices", "2", "--run-dir", "run"]
    started = torchrun(
        "--standalone", "--nproc-per-node=2", "-m", "tdvae", "fit", "mine.npz", *SMALL, *options, cwd=tmp_path
    )
    _, error = started.communicate()
    ours = error.split("torch/distributed/elastic")[0].splitlines()  # then torchrun adds its own report
    assert [line for line in ours if line.startswith("tdvae: ")] == [
        "tdvae: run_dir: expected a new folder, got run, which is not empty; add --resume or --overwrite"
    ]
    assert not any("Traceback" in line or "[rank" in line for line in ours)
