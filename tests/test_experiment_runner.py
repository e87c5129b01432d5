"""The experiment runner, tested with a toy experiment that is defined and registered here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tdvae import InputError, Learner, TrainConfig, cli
from tdvae.data import from_arrays
from tdvae.jumps import Uniform
from tdvae.models import LSTM, GatedMaps, Model, TDVAEConfig, build
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, by_key, flat, markdown, show
from tdvae.training import FitResult
from tdvae.training.log import Progress
from tdvae_paper import jobs, registry
from tdvae_paper.experiment import Experiment, Task, TrainedRun, Training, by_seed
from tdvae_paper.runner import run

ROOT = Path(__file__).resolve().parents[1]
WALKS = torch.randn(16, 10, 1, generator=torch.Generator().manual_seed(0)).cumsum(1)


@dataclass(frozen=True)
class Preset:
    steps: int = 2
    variants: tuple[str, ...] = ("narrow",)
    seeds: tuple[int, ...] = (0,)


class Toy(Experiment[Preset]):
    """Models of two sizes, trained on random walks."""

    name = "toy_walks"
    title = "toy"
    presets = {"smoke": Preset(), "cpu": Preset(variants=("narrow", "wide"), seeds=(0, 1))}  # noqa: RUF012

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"{variant}-{seed}", variant) for seed in seeds for variant in preset.variants]

    def training(self, preset: Preset, task: Task) -> Training:
        torch.manual_seed(task.seed)
        model = build(TDVAEConfig(latent=2, belief=LSTM(4 if task.variant == "narrow" else 8), maps=GatedMaps(4)))
        config = TrainConfig(steps=preset.steps, batch_size=4, pairs=2, seed=task.seed, accelerator="cpu")
        return Training(Learner(model), from_arrays(WALKS), Uniform(1, 3), config, info={"note": "kept"})

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        return {"parameters": float(sum(p.numel() for p in models[0].parameters())), "seed": float(task.seed)}

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        return [
            {name: {variant: values[name] for variant, values in variants.items()} for name in ("parameters", "seed")}
            for variants in by_seed(measures).values()
        ]

    def complete(self, preset: Preset, content: dict[str, Any], replicates: list[Measures]) -> None:
        content["measures"]["limit"] = {"mean": 0.25, "spread": None, "n": len(replicates)}

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        measures = content["measures"]
        rows = [("number of parameters", measures["parameters"]), ("seed", measures["seed"])]
        return {self.name: [by_key(rows), flat(measures, {"limit": "the limit"})]}

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        path = folder / "toy.txt"
        path.write_text(f"{runs[0].task.variant}: {len(runs[0].metrics) > 0}")
        return [path]


TOY = Toy()


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.EXPERIMENTS, "toy-walks", f"{__name__}:TOY")


def test_run_trains_measures_and_writes_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = registry.load("toy-walks")
    run(experiment, "smoke", None, tmp_path / "run", tmp_path / "out", resume=False)
    content = json.loads((tmp_path / "out" / "toy_walks.json").read_text())
    assert content["seeds"] == [0]
    assert content["measures"]["limit"]["mean"] == 0.25
    assert list(content["train_seconds"]) == ["narrow-0"]
    info = json.loads((tmp_path / "run" / "narrow-0" / "config.json").read_text())["info"]
    assert info == {"experiment": "toy_walks", "preset": "smoke", "note": "kept"}
    assert (tmp_path / "out" / "toy.txt").read_text() == "narrow: True"
    printed = capsys.readouterr().out
    assert "toy, preset smoke, seeds 0" in printed
    assert "number of parameters" in printed
    assert "| the limit | 0.250 |" in markdown(experiment.tables(content)["toy_walks"])
    assert "seeds 0: mean ± standard deviation" in experiment.made(content)


def test_run_combines_tasks_by_seed_and_resumes(tmp_path: Path) -> None:
    run(TOY, "cpu", None, tmp_path / "run", None, resume=False)
    first = json.loads((tmp_path / "run" / "toy_walks.json").read_text())
    assert first["measures"]["seed"]["wide"] == {"mean": 0.5, "spread": pytest.approx(0.5**0.5), "n": 2}
    assert first["measures"]["parameters"]["wide"]["mean"] > first["measures"]["parameters"]["narrow"]["mean"]
    (tmp_path / "run" / "wide-1" / "measures.json").unlink()  # as after an interruption before it was measured
    run(TOY, "cpu", None, tmp_path / "run", None, resume=True)
    again = json.loads((tmp_path / "run" / "toy_walks.json").read_text())
    assert again["measures"] == first["measures"]


def trained(run_dir: Path, resume: bool, progress: Progress) -> FitResult:
    run_dir.mkdir()
    return FitResult(run_dir, steps=1, best_step=1, best_score=None, seconds=2.5)


def measured(run_dir: Path) -> Measures:
    return {"process": float(os.getpid()), "threads": float(torch.get_num_threads()), "name": float(run_dir.name)}


def test_jobs_run_in_parallel_and_return_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_usable_cores", lambda: 2)
    todo = [jobs.Job(tmp_path / str(n), trained, measured, resume=False, progress="none") for n in range(3)]
    finished = jobs.run_jobs(todo)
    assert [one.measures["name"] for one in finished] == [0, 1, 2]
    assert [one.train_seconds for one in finished] == [2.5] * 3
    assert float(os.getpid()) not in {one.measures["process"] for one in finished}
    assert {one.measures["threads"] for one in finished} == {1.0}
    # A single job needs no process, and what is done is only read.
    assert jobs.run_jobs([replace(todo[0], resume=True)]) == finished[:1]
    (tmp_path / "0" / "measures.json").unlink()
    (again,) = jobs.run_jobs([replace(todo[0], resume=True)])
    assert again.measures["process"] == os.getpid()


SLEEPERS = """
import os, sys, time
from pathlib import Path
from tdvae.__main__ import end_by_sigterm
from tdvae_paper import jobs

def train(run_dir, resume, progress):
    run_dir.mkdir()
    (run_dir / "pid").write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    end_by_sigterm()
    jobs._usable_cores = lambda: 2
    jobs.run_jobs([jobs.Job(Path(name), train, train, False, "none") for name in sys.argv[1:]])
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(end: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "sleepers.py").write_text(SLEEPERS)
    runs = [tmp_path / "0", tmp_path / "1"]
    command = [sys.executable, str(tmp_path / "sleepers.py"), *map(str, runs)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    while not all((run / "pid").exists() and (run / "pid").read_text() for run in runs):
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(end)
    try:
        parent.communicate(timeout=30)  # returns when the last process that could write to the pipe has ended
    except subprocess.TimeoutExpired:
        for run in runs:
            os.kill(int((run / "pid").read_text()), signal.SIGKILL)
        raise
    assert parent.returncode == (143 if end == signal.SIGTERM else -end)


@pytest.mark.parametrize(
    ("method", "advice"),
    [("prepare", "nothing was written"), ("measure", "continue from the last checkpoint with --run-dir run --resume")],
)
def test_an_interruption_advises_to_resume_only_if_there_is_a_run(
    method: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Toy, method, interrupt)
    monkeypatch.setattr("tyro.cli", lambda *args, **kwargs: cli.Run("toy-walks", "smoke", run_dir=Path("run")))
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err.splitlines()[-1] == f"tdvae: interrupted; {advice}"


def test_eval_of_a_run_that_cannot_be_evaluated_alone_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(TOY, "smoke", None, tmp_path / "run", None, resume=False)
    monkeypatch.setattr("sys.argv", ["tdvae", "eval", str(tmp_path / "run" / "narrow-0")])
    with pytest.raises(SystemExit):
        cli.main()
    assert "which `tdvae run toy-walks` evaluates" in capsys.readouterr().err


def test_unknown_experiment_or_preset_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="oscillator, oscillator-demo-seeds, oscillator-ablations"):
        registry.load("pendulum")
    with pytest.raises(InputError, match="preset: expected one of smoke, cpu; got paper"):
        run(TOY, "paper", None, tmp_path / "run", None, resume=False)


@pytest.mark.parametrize("name", registry.EXPERIMENTS)
def test_every_registered_experiment_can_be_loaded(name: str) -> None:
    experiment = registry.load(name)
    assert experiment.name == name.replace("-", "_")
    assert experiment.published in experiment.presets
    for preset in experiment.presets.values():
        tasks = experiment.tasks(preset, list(preset.seeds))
        assert len({task.folder for task in tasks}) == len(tasks)


def test_loading_experiments_does_not_import_matplotlib() -> None:
    code = (
        "import sys; from tdvae_paper import registry; "
        "[registry.load(name) for name in registry.EXPERIMENTS]; import tdvae_paper.bench.bench, tdvae.forecasting; "
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Tables


def test_wide_table_is_transposed_and_numbers_are_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [f"measure number {index}" for index in range(12)]
    table = Table(["", *columns], [["one", *["0.123 ± 0.456"] * 12], ["two", *["7.890 ± 0.123"] * 12]])
    assert table.transposed().transposed() == table
    show("heading", [table])
    printed = capsys.readouterr().out
    assert printed.count("0.123 ± 0.456") == printed.count("7.890 ± 0.123") == 12
    assert sum("measure number" in line for line in printed.splitlines()) == 12


def test_markdown_of_a_table_and_a_note() -> None:
    measures = {"a": {"mean": 0.5, "spread": 0.25}, "b": {"x": {"mean": 2e-5, "spread": None}}}
    table = flat(measures, {"a": "A", "b": "B {}"})
    expected = "| | |\n|---|---|\n| A | 0.500 ± 0.250 |\n| B x | 2.0e-05 |\n\na note"
    assert markdown([table, "a note"]) == expected
