"""Command lines: valid ones with one or two mistakes, and with faults of the machine."""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaign.outcome import Outcome, Tally, in_process

LIMIT = 60.0
IMPORTED = (
    "pandas",
    "pyarrow.parquet",
    "tdvae_paper.bench.bench",
    "tdvae.cli",
    "tdvae_paper.first_person.rl_unplugged",
    "tdvae.envs.first_person.report",
    "tdvae_paper.first_person.experiment",
    "tdvae_paper.minipacman",
    "tdvae_paper.oscillator.experiment",
    "tdvae_paper.evaluation",
    "tdvae_paper.runner",
    "tdvae_paper.switching",
    "tdvae.forecasting",
    "tdvae.forecasting.command",
)
MEMORY = 8 * 2**30  # bytes of address space
FIT = ["--steps", "2", "--latent", "2", "--belief", "4", "--batch-size", "4", "--longest-jump", "3"]
NUMBERS = ("-1", "0", "1", "2", "3", "2.5", "nan", "", "x", "9" * 30, "2147483648", "100000000", "٣")
PATHS = (
    ("missing.npz", True),
    ("text.npz", True),
    ("empty.npz", True),
    ("pipe.npz", True),
    ("folder", True),
    ("/dev/zero", True),
    ("/dev/full", True),
    ("mine.npz/sub", True),
    ("x" * 300, True),
    ("nul\x00byte", True),
    ("nan.npz", False),
    ("huge.npz", False),
    ("mine.npz", False),
)
TABLES = (
    ("missing.csv", True),
    ("empty.csv", True),
    ("heading.csv", True),
    ("pipe.csv", True),
    ("pipe.parquet", True),
    ("pipe.h5", True),
    ("random.csv", True),
    ("random.parquet", True),
    ("random.h5", True),
    ("random.npy", True),
    ("ragged.csv", True),
    ("words.csv", True),
    ("table.csv", False),
    ("markup.csv", False),
)
LEVELS = (("0.1,0.9", False), ("0", True), ("1", True), ("-0.5", True), ("nan", True), ("", True), ("0.5,", True))


def run(tally: Tally, lines: int, generator: random.Random, folder: Path) -> None:
    os.makedirs(folder)
    for module in IMPORTED:  # here once, and not in each of the processes
        import_module(module)
    code = in_process(LIMIT, partial(_prepare, folder))[1]
    assert code == 0, "the command without faults failed"
    for number in range(lines):
        arguments, must_fail, fault = draw(generator, number)
        result, code = in_process(LIMIT, partial(_command, folder, arguments, fault), memory=MEMORY)
        outcome = judge(result, code, must_fail)
        tally.add(outcome, f"tdvae {' '.join(arguments)} [{fault}] → {result or code}")


def _prepare(folder: Path) -> None:
    os.chdir(folder)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(10, 12)).astype(np.float32)
    np.savez("mine.npz", x=x)
    np.savez("nan.npz", x=np.where(x > 1, np.nan, x))
    np.savez("huge.npz", x=(1e38 * x).astype(np.float32))
    Path("text.npz").write_text("1,2,3\n")
    Path("empty.npz").touch()
    for ending in ("csv", "parquet", "h5", "npy"):
        Path(f"random.{ending}").write_bytes(generator.bytes(500))
    Path("empty.csv").touch()
    Path("heading.csv").write_text("a,b\n")
    Path("ragged.csv").write_text("a,b\n1,2\n3,4,5,6\n7\n")
    Path("words.csv").write_text("a,b\n" + "one,two\n" * 30)
    Path("table.csv").write_text("a\n" + "".join(f"{value}\n" for value in x.flatten()))
    rows = "".join(f"{a},{b},{c}\n" for a, b, c in x.reshape(-1, 3))
    Path("markup.csv").write_text('[/b],"a, [bold]",\x1b[31m\n' + rows)
    for ending in ("npz", "csv", "parquet", "h5"):
        os.mkfifo(f"pipe.{ending}")
    Path("folder").mkdir()
    for file, run in (("mine.npz", "run"), ("markup.csv", "marked")):
        assert _command(folder, ["fit", file, *FIT, "--run-dir", run], "none")["code"] == 0


def _command(folder: Path, arguments: list[str], fault: str) -> dict[str, Any]:
    """Run a command in this process; returns its exit code and the end of what it said."""
    from tdvae import cli

    os.chdir(folder)
    if fault == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
    elif fault == "little memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, used + 2**24))
    elif fault == "few files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
    sys.argv = ["tdvae", *arguments]
    said, code = io.StringIO(), 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return {"code": code, "said": said.getvalue()[-600:]}


def judge(result: dict[str, Any] | None, code: int | None, must_fail: bool) -> Outcome:
    if code is None:
        return "hang"
    if result is None:
        return "foreign"
    if result["code"] == 0:
        return "silent" if must_fail else "right"
    text = result["said"]
    return "foreign" if "Traceback" in text or "tdvae: unexpected" in text or not text.strip() else "clear"


def draw(generator: random.Random, number: int) -> tuple[list[str], bool, str]:
    """Arguments of a command, whether it must fail, and the fault of the machine."""
    new = f"new-{number}"
    commands: list[Callable[[], tuple[list[str], bool]]] = [
        lambda: _fit(generator, new),
        lambda: _fit(generator, new),
        lambda: _rollout(generator),
        lambda: _eval(generator),
        lambda: _forecast(generator, new),
        lambda: _forecast(generator, new),
        lambda: _convert(generator, new),
        lambda: _run(generator, new),
        lambda: _bench(generator),
        lambda: _record(generator, new),
        lambda: _garbage(generator),
    ]
    arguments, must_fail = generator.choice(commands)()
    fault = generator.choice(("none",) * 6 + ("full disk", "little memory", "few files"))
    return arguments, must_fail, fault


def _option(generator: random.Random, names: tuple[str, ...]) -> tuple[list[str], bool]:
    """An option with a number that is likely to be wrong. Its name has to be one of whole numbers."""
    name, value = generator.choice(names), generator.choice(NUMBERS)
    return [name, value], value in ("-1", "2.5", "nan", "", "x", "9" * 30)


def _fit(generator: random.Random, new: str) -> tuple[list[str], bool]:
    file, bad_file = generator.choice(PATHS + TABLES) if generator.random() < 0.25 else ("mine.npz", False)
    folder, bad_folder = generator.choice(
        (*[(new, False)] * 12, ("mine.npz/sub", True), ("y" * 300, True), ("/proc/no", True), ("run", True))
    )
    names = ("--steps", "--layers", "--latent", "--belief", "--batch-size", "--seed", "--devices", "--longest-jump")
    extra, bad_option = _option(generator, names) if generator.random() < 0.4 else ([], False)
    if extra[:1] == ["--steps"] and not bad_option:
        extra = []  # a valid number of steps would only take long
    resume = ["--resume"] if generator.random() < 0.1 else []
    arguments = ["fit", file, *FIT, "--run-dir", folder, *extra, *resume]
    return arguments, bad_file or bad_option or (bad_folder and not resume)


def _rollout(generator: random.Random) -> tuple[list[str], bool]:
    run, bad_run = generator.choice((*[("run", False)] * 12, ("oscillator", False), *PATHS[:8]))
    names = ("--from", "--samples", "--seed", "--horizon")
    extra, bad = _option(generator, names) if generator.random() < 0.7 else ([], False)
    flags = ["--json"] if generator.random() < 0.5 else []
    return ["rollout", run, "--from", "3", "--horizon", "1,2", *extra, *flags], bad or bad_run


def _eval(generator: random.Random) -> tuple[list[str], bool]:
    run, bad_run = generator.choice((*[("run", False)] * 10, *[("marked", False)] * 2, *PATHS[:10]))
    extra, bad = _option(generator, ("--seed",)) if generator.random() < 0.5 else ([], False)
    file, bad_file = generator.choice(PATHS + TABLES)
    data, bad_data = (["--data", file], bad_file) if generator.random() < 0.3 else ([], False)
    json = ["--json"] if generator.random() < 0.5 else []
    return ["eval", run, *extra, *data, *json], bad or bad_run or bad_data


def _forecast(generator: random.Random, new: str) -> tuple[list[str], bool]:
    run, bad_run = generator.choice((*[("run", False)] * 16, *PATHS[:10]))
    file, bad_file = generator.choice(PATHS + TABLES) if generator.random() < 0.4 else ("mine.npz", False)
    out, bad_out = generator.choice(
        (
            *[(f"{new}.csv", False)] * 8,
            (f"{new}.npz", False),
            (f"{new}.parquet", False),
            (f"{new}.txt", True),
            ("mine.npz", True),
            ("missing/new.csv", True),
            ("folder", True),
            ("/dev/full", True),
            ("z" * 300 + ".csv", True),
            ("nul\x00byte.csv", True),
        )
    )
    extra, bad = _option(generator, ("--horizon", "--samples", "--seed")) if generator.random() < 0.4 else ([], False)
    levels, bad_levels = generator.choice(LEVELS) if generator.random() < 0.2 else ("0.5", False)
    data = ["--data", file] if generator.random() < 0.95 else []
    arguments = ["forecast", run, *data, "--horizon", "1,5", "--out", out, "--quantiles", levels, *extra]
    return arguments, bad_run or bad_file or bad_out or bad or bad_levels or not data


def _convert(generator: random.Random, new: str) -> tuple[list[str], bool]:
    """There is no valid file to convert."""
    file, _ = generator.choice(PATHS + TABLES)
    out = generator.choice((f"{new}.h5", "mine.npz", "missing/new.h5"))
    extra, _ = _option(generator, ("--frames", "--size")) if generator.random() < 0.5 else ([], False)
    return ["convert", file, "--out", out, *extra], True


def _run(generator: random.Random, new: str) -> tuple[list[str], bool]:
    """Experiments are only started with arguments that are wrong, because even the smallest takes seconds."""
    wrong = generator.choice(
        (["--preset", "huge"], ["--seed", "-1"], ["--seed", "9" * 30], ["--resume"], ["--run-dir", "mine.npz/sub"])
    )
    name = generator.choice(("oscillator", "switching", "minipacman", "first-person"))
    return ["run", name, *(["--preset", "smoke"] if wrong[0] != "--preset" else []), *wrong], True


def _bench(generator: random.Random) -> tuple[list[str], bool]:
    extra, _ = generator.choice(((["--repeats", "0"], True), (["--minutes", "nan"], True), (["--repeats", "x"], True)))
    return ["bench", generator.choice(("oscillator", "devices", "nothing")), *extra], True


def _record(generator: random.Random, new: str) -> tuple[list[str], bool]:
    extra, bad = _option(generator, ("--frames", "--episode", "--size", "--seed"))
    if extra[0] == "--frames" and not bad:
        extra = []
    out, bad_out = generator.choice(((f"{new}.h5", False), ("mine.npz", True), ("missing/new.h5", True)))
    world, bad_world = generator.choice((("tdvae/Corridors-v0", False), ("CartPole-v1", True), ("nothing", True)))
    return ["record", world, "--out", out, "--frames", "20", "--episode", "10", *extra], bad or bad_out or bad_world


def _garbage(generator: random.Random) -> tuple[list[str], bool]:
    words = (
        "fit",
        "eval",
        "--seed",
        "-",
        "--",
        "run",
        "\x1b[31m",
        "é",
        "1",
        "--help",
        "--resume",
        "oscillator",
        "=",
        "''",
    )
    arguments = [generator.choice(words) for _ in range(generator.randint(0, 4))]
    return arguments, False
