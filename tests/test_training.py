"""The training loop and its checkpoints: bit-identical resumption, damaged checkpoints, optimisers and logs."""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

import tdvae
from tdvae import CheckpointError, DivergenceError, InputError, Learner, Sequences, TDVAEConfig, TrainConfig, jumps
from tdvae.models import LSTM, ConvTDVAEConfig, FilteringConfig, GatedMaps, Gaussian, ResidualMaps, Unknown, build
from tdvae.storage import RunFolder, checkpoint
from tdvae.training.config import derive_seed, make_optimizers, rate_factor
from tdvae.training.muon import Muon, orthogonalise
from tdvae.types import LossTerms, Pairs, Terms
from tdvae_paper.chrono_lstm import ChronoLSTM
from tdvae_paper.stack import Stack

TINY = TDVAEConfig(layers=2, latent=2, belief=LSTM(6), decoder=Gaussian((8,)), maps=ResidualMaps(8, blocks=1))
QUICK = TrainConfig(
    steps=8,
    batch_size=4,
    pairs=3,
    optimizer="muon",
    checkpoint_every=2,
    validate_every=2,
    log_every=1,
    learning_rate=1e-2,
)


def learner() -> Learner:
    torch.manual_seed(derive_seed(7))
    return Learner(build(TINY))


def data(n: int = 10) -> Sequences:
    generator = torch.Generator().manual_seed(0)
    return Sequences(torch.randn(n, 20, 1, generator=generator), torch.full((n,), 20))


JUMPS = jumps.Widening(jumps.Uniform(1, 8), start=2, until=0.6)


def train(run_dir: Path, resume: bool = False, subject: Learner | None = None, **changes: Any) -> Learner:
    subject = subject or learner()
    config = TrainConfig(**{**QUICK.__dict__, **changes})
    tdvae.fit(subject, data(), JUMPS, config, run_dir, validation=data(5), resume=resume, progress="none")
    return subject


def last_weights(run_dir: Path) -> dict[str, Tensor]:
    return checkpoint.newest(run_dir / "checkpoints", "step")[0].tensors["weights"]


def metrics(run_dir: Path) -> list[dict[str, float]]:
    """The logged metrics without the speed, the only one that differs between equal runs."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "steps_per_second"} for line in lines]


def assert_same_run(run_dir: Path, other: Path) -> None:
    first, second = (checkpoint.newest(folder / "checkpoints", "step")[0] for folder in (run_dir, other))
    clocked = {"seconds": None, "metrics": None}  # the log has the speed
    assert {**first.state, **clocked} == {**second.state, **clocked}
    for group, tensors in first.tensors.items():
        for name, value in tensors.items():
            assert torch.equal(value, second.tensors[group][name]), (group, name)
    assert metrics(run_dir) == metrics(other)


def test_run_resumed_with_more_steps_equals_one_long_run(tmp_path: Path) -> None:
    uniform = jumps.Uniform(1, 8)
    for folder, steps in (("whole", (8,)), ("parts", (4, 8))):
        for part, until in enumerate(steps):
            config = TrainConfig(**{**QUICK.__dict__, "steps": until})
            tdvae.fit(learner(), data(), uniform, config, tmp_path / folder, data(5), resume=part > 0, progress="none")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_seconds_include_the_time_before_an_interruption(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=4)
    folder = tmp_path / "run" / "checkpoints"
    before, _ = checkpoint.newest(folder, "step")
    shutil.rmtree(before.path)
    checkpoint.save_numbered(folder, "step", 4, before.tensors, {**before.state, "seconds": 1e6}, keep=2)
    config = TrainConfig(**{**QUICK.__dict__, "steps": 8})
    result = tdvae.fit(learner(), data(), JUMPS, config, tmp_path / "run", data(5), resume=True, progress="none")
    assert result.seconds is not None
    assert 1e6 <= result.seconds < 1.1e6  # rounded to tenths, which a short training may not fill


KILLED = """
import functools, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests import test_training as t
import tdvae
from tdvae.storage import files
run_dir, where, count = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
calls = 0
def kill_at_count(original):
    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == count:
            if where == "write":  # leave half of the bytes on disk
                Path(args[0]).write_bytes(args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    return wrapped
subject = t.learner()
if where == "step":
    subject.objective = kill_at_count(subject.objective)
else:
    files.write_file = kill_at_count(files.write_file)
t.train(run_dir, subject=subject, schedule="cosine")
"""


@pytest.mark.parametrize(("where", "count"), [("step", 9), ("write", 9)])
def test_killed_and_resumed_run_is_bit_identical(tmp_path: Path, where: str, count: int) -> None:
    """The process is killed by SIGKILL during a step, and while it writes a checkpoint."""
    root = Path(__file__).resolve().parents[1]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), str(tmp_path / "killed"), where, str(count)],
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    reached = checkpoint.newest(tmp_path / "killed" / "checkpoints", "step")[0].state["step"]
    assert 0 < reached < QUICK.steps
    train(tmp_path / "killed", resume=True, schedule="cosine")
    train(tmp_path / "whole", schedule="cosine")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_damaged_checkpoint_is_rejected_and_the_previous_one_is_loaded(tmp_path: Path) -> None:
    train(tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    last, previous = checkpoint.list_checkpoints(folder, "step")
    generator = torch.Generator().manual_seed(0)
    for file in sorted(last.iterdir()):
        whole = file.read_bytes()
        cuts = {0, 1, len(whole) - 1, *torch.randint(len(whole) - 1, (25,), generator=generator).tolist()}
        for cut in cuts:
            for damaged in (whole[:cut], whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :]):
                if damaged.strip() == whole.strip() and file.suffix == ".json":
                    continue  # only the final line break is missing
                file.write_bytes(damaged)
                with pytest.raises(CheckpointError, match=last.name):
                    checkpoint.load(last)
        file.write_bytes(whole[: len(whole) // 2])
        found, errors = checkpoint.newest(folder, "step")
        assert found.path == previous
        assert len(errors) == 1
        file.write_bytes(whole)
    (last / "weights.safetensors").unlink()
    assert checkpoint.newest(folder, "step")[0].path == previous
    resumed = train(tmp_path / "run", resume=True)  # from the previous checkpoint
    train(tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert isinstance(resumed, Learner)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'{"format": "other"}', b"\x80\x04pickle"])
def test_checkpoint_of_another_format_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="step-00000001"):
        checkpoint.load(tmp_path / "step-00000001")


def test_weights_of_another_model_are_rejected(tmp_path: Path) -> None:
    train(tmp_path / "run")
    edit_config(tmp_path / "run", lambda config: config["model"].update(latent=4))
    with pytest.raises(CheckpointError, match="do not match"):
        tdvae.load(tmp_path / "run")


def test_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    train(tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(InputError, match="not empty"):
        train(tmp_path / "run")
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_resume_before_the_first_checkpoint_starts_from_step_0(tmp_path: Path) -> None:
    @functools.wraps(tdvae.objectives.tdvae_loss)
    def interrupt(model: Any, sequences: Sequences, pairs: Pairs) -> LossTerms:
        raise KeyboardInterrupt

    subject = learner()
    subject.objective = interrupt
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", subject=subject)
    train(tmp_path / "run", resume=True)
    train(tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_too_short_sequences_are_rejected_before_anything_is_written(tmp_path: Path) -> None:
    short = Sequences(torch.randn(3, 5, 1), torch.full((3,), 5))
    for data_, validation in ((short, data()), (data(), short)):
        with pytest.raises(InputError, match="sequences: expected at least 8 steps, the longest jump, got 5"):
            tdvae.fit(learner(), data_, JUMPS, QUICK, tmp_path / "run", validation, progress="none")
    assert not (tmp_path / "run").exists()


def test_resuming_with_other_settings_is_rejected(tmp_path: Path) -> None:
    train(tmp_path / "run")
    with pytest.raises(InputError, match=r"another train \(learning_rate\)"):
        train(tmp_path / "run", resume=True, learning_rate=1e-3)
    with pytest.raises(InputError, match=r"another model \(latent\)"):
        train(tmp_path / "run", resume=True, subject=Learner(build(TDVAEConfig(**{**TINY.__dict__, "latent": 4}))))
    with pytest.raises(InputError, match=r"another objective \(tdvae_loss\(\)\)"):
        train(
            tmp_path / "run",
            resume=True,
            subject=Learner(build(TINY), functools.partial(tdvae.objectives.tdvae_loss, gradient="path")),
        )
    with pytest.raises(InputError, match=r"another data \(sequences, steps\)"):
        tdvae.fit(learner(), data(5), JUMPS, QUICK, tmp_path / "run", data(5), resume=True, progress="none")
    with pytest.raises(InputError, match="expected a run to resume"):
        train(tmp_path / "nothing", resume=True)


def test_empty_run_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    train(tmp_path / "run")
    assert last_weights(tmp_path / "run")


def test_checkpoint_does_not_replace_another_folder(tmp_path: Path) -> None:
    (tmp_path / "classifier").mkdir()
    (tmp_path / "classifier" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="exists and is not a checkpoint"):
        checkpoint.save(tmp_path / "classifier", {"weights": {}}, {})
    assert [p.name for p in tmp_path.rglob("*")] == ["classifier", "notes.txt"]


@pytest.mark.parametrize("term", ["smoothing", "transition", "reconstruction"])
def test_nan_raises_with_step_term_and_last_checkpoint(tmp_path: Path, term: str) -> None:
    calls = 0

    def loss_with_nan(model: Any, sequences: Sequences, pairs: Pairs) -> LossTerms:
        nonlocal calls
        calls += model.training
        terms = tdvae.objectives.tdvae_loss(model, sequences, pairs)
        return LossTerms(**{**terms.named(), term: terms.total * math.nan}) if calls == 6 else terms

    subject = learner()
    subject.objective = loss_with_nan
    with pytest.raises(DivergenceError, match=rf"step 5: {term} is nan; last good checkpoint: .*step-00000004"):
        train(tmp_path / "run", subject=subject)
    assert all(bool(torch.isfinite(value).all()) for value in last_weights(tmp_path / "run").values())


def test_best_validated_weights_are_kept_and_loaded(tmp_path: Path) -> None:
    subject = learner()
    result = tdvae.fit(
        subject,
        data(),
        JUMPS,
        TrainConfig(**{**QUICK.__dict__, "learning_rate": 0.3}),
        tmp_path / "run",
        data(5),
        progress="none",
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    validations = {line["step"]: line["validation"] for line in lines if "validation" in line}
    assert result.best_score == min(validations.values())
    assert validations[result.best_step] == result.best_score
    loaded = tdvae.load(tmp_path / "run")
    for name, value in subject.model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    training_lines = [line for line in lines if "smoothing" in line]
    assert [line["step"] for line in training_lines] == list(range(1, QUICK.steps + 1))
    assert all(
        abs(sum(line[k] for k in ("smoothing", "transition", "reconstruction")) - line["total"]) < 1e-4
        for line in training_lines
    )


def test_learning_rate_gradient_norm_and_speed_are_logged(tmp_path: Path) -> None:
    train(tmp_path / "run", schedule="cosine")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "learning_rate" in line]
    config = replace(QUICK, schedule="cosine")
    expected = [config.learning_rate * rate_factor(config, step) for step in range(config.steps)]
    assert [line["learning_rate"] for line in logged] == pytest.approx(expected)
    assert all(line["gradient_norm"] > 0 and line["steps_per_second"] > 0 for line in logged)


def test_training_stops_when_validation_gets_no_better_also_after_a_resume(tmp_path: Path) -> None:
    """A learning rate at which the loss grows: the best validation is an early one."""
    changes: dict[str, Any] = {
        "learning_rate": 0.5,
        "muon_learning_rate": 0.5,
        "steps": 40,
        "validate_every": 1,
        "checkpoint_every": 1,
    }
    train(tmp_path / "all", **changes)
    validations = [line["validation"] for line in metrics(tmp_path / "all") if "validation" in line]
    best, since, steps = math.inf, 0, 0
    for steps, value in enumerate(validations, start=1):
        best, since = (value, steps) if value < best else (best, since)
        if steps - since == 3:
            break
    assert steps < 40
    config = replace(QUICK, **changes, patience=3)
    result = tdvae.fit(learner(), data(), JUMPS, config, tmp_path / "stopped", data(5), progress="none")
    assert (result.steps, result.best_step) == (steps, steps - 3)
    for folder in checkpoint.list_checkpoints(tmp_path / "stopped" / "checkpoints", "step")[:1]:
        shutil.rmtree(folder)
    again = tdvae.fit(learner(), data(), JUMPS, config, tmp_path / "stopped", data(5), resume=True, progress="none")
    assert (again.steps, again.best_step) == (steps, steps - 3)


def test_files_are_part_of_the_run(tmp_path: Path) -> None:
    tdvae.fit(learner(), data(), JUMPS, QUICK, tmp_path / "run", progress="none", files={"notes.txt": b"mine"})
    assert (tmp_path / "run" / "notes.txt").read_bytes() == b"mine"


def test_tensorboard_receives_the_metrics(tmp_path: Path) -> None:
    train(tmp_path / "run", tensorboard=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("validation")] == [2, 4, 6, 8]


RANK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import safetensors.torch, torch
from tests import test_training as t
import tdvae
for kind in t.DISTRIBUTED:
    subject = t.distributed_learner(kind)
    tdvae.fit(subject, t.data(), t.JUMPS, t.two_steps(devices=2), Path(sys.argv[2]) / kind, progress="none")
    tensors = {name: p.grad for name, p in subject.named_parameters()}
    rank = torch.distributed.get_rank()
    safetensors.torch.save_file(tensors, Path(sys.argv[2]) / f"{kind}-{rank}.safetensors")
"""
# One of each kind of noise: normal samples, a mixture's choice of component, samples step by step.
DISTRIBUTED = {
    "tdvae": TINY,
    "mixture": replace(TINY, dt=Unknown(lengths=3)),
    "filtering": FilteringConfig(layers=1, latent=2, belief=LSTM(6), decoder=Gaussian((8,)), maps=GatedMaps(8)),
}


def distributed_learner(kind: str) -> Learner:
    torch.manual_seed(derive_seed(7))
    return Learner(build(DISTRIBUTED[kind]))


def two_steps(devices: int) -> TrainConfig:
    return TrainConfig(steps=2, batch_size=4, pairs=3, log_every=1, accelerator="cpu", devices=devices)


def test_two_processes_compute_the_same_loss_and_gradient_as_one(tmp_path: Path) -> None:
    """The noise belongs to the sequences: two ranks under torchrun share the batch of one process."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    root = Path(__file__).resolve().parents[1]
    launched = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
        + [str(script), str(root), str(tmp_path)],
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"},
        check=False,
    )
    assert launched.returncode == 0, launched.stderr.decode()
    for kind in DISTRIBUTED:
        subject = distributed_learner(kind)
        tdvae.fit(subject, data(), JUMPS, two_steps(devices=1), tmp_path / f"{kind}-one", progress="none")
        one, two = (metrics(tmp_path / folder) for folder in (f"{kind}-one", kind))
        assert len(one) == len(two) == 2
        for single, shared in zip(one, two, strict=True):
            assert shared == pytest.approx(single, abs=1e-5)
        for rank in (0, 1):
            gradients = safetensors.torch.load_file(tmp_path / f"{kind}-{rank}.safetensors")
            for name, p in subject.named_parameters():
                assert p.grad is not None
                torch.testing.assert_close(gradients[name], p.grad, rtol=1e-4, atol=1e-6)


def test_batch_size_and_processes_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch_size: expected a multiple of the 2 processes, got 5"):
        TrainConfig(batch_size=5, devices=2)
    with pytest.raises(InputError, match="devices: expected 2 processes, got 1"):
        tdvae.fit(learner(), data(), JUMPS, two_steps(devices=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_each_epoch_contains_every_sequence_once(tmp_path: Path) -> None:
    seen: list[int] = []

    def recording_loss(model: Any, sequences: Sequences, pairs: Pairs) -> LossTerms:
        if model.training:
            seen.extend(int(value) for value in sequences.x[:, 0, 0])
        return tdvae.objectives.tdvae_loss(model, sequences, pairs)

    subject = learner()
    subject.objective = recording_loss
    numbered = Sequences(torch.arange(10.0)[:, None, None].expand(10, 20, 1).contiguous(), torch.full((10,), 20))
    tdvae.fit(subject, numbered, JUMPS, TrainConfig(steps=5, batch_size=4, pairs=2), tmp_path / "run", progress="none")
    assert sorted(seen[:10]) == list(range(10))
    assert sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]


def test_learning_rate_warmup_and_decay() -> None:
    config = TrainConfig(steps=100, schedule="cosine", warmup=9)
    factors = [rate_factor(config, step) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == factors[9]
    assert factors[9:] == sorted(factors[9:], reverse=True)
    assert factors[-1] < 0.001
    assert rate_factor(TrainConfig(steps=100), 99) == 1


def test_a_restart_anneals_twice() -> None:
    config = TrainConfig(steps=150, schedule="restart")
    factors = [rate_factor(config, step) for step in range(150)]
    assert [step for step, factor in enumerate(factors) if factor == 1] == [0, 50]
    assert max(factors[49], factors[149]) < 0.002


def test_muon_updates_inner_matrices_and_orthogonalises_them() -> None:
    optimizers = make_optimizers(QUICK, learner())
    assert isinstance(optimizers[1], Muon)
    shapes = [tuple(p.shape) for group in optimizers[1].param_groups for p in group["params"]]
    assert set(shapes) == {(8, 8)}
    count = sum(len(group["params"]) for o in optimizers for group in o.param_groups)
    assert count == len(list(learner().parameters()))
    update = orthogonalise(torch.randn(3, 20, 20))
    singular = torch.linalg.svdvals(update)
    assert float(singular[:, :15].min()) > 0.6
    assert float(singular.max()) < 1.3


def test_muon_for_all_matrices_selects_by_size() -> None:
    module = Learner(build(TDVAEConfig(event_shape=(700,), encoder=(30, 20), belief=LSTM(12), maps=GatedMaps(10))))
    optimizers = make_optimizers(TrainConfig(optimizer="muon", muon_matrices="all"), module)
    shapes = {tuple(p.shape) for group in optimizers[1].param_groups for p in group["params"]}
    assert (20, 30) in shapes
    assert (48, 12) in shapes
    assert (30, 700) not in shapes
    assert all(len(shape) == 2 and min(shape) > 8 and max(shape) <= 600 for shape in shapes)
    for update in (orthogonalise(torch.randn(2, 40, 12)), orthogonalise(torch.randn(2, 12, 40))):
        singular = torch.linalg.svdvals(update)
        assert float(singular.min()) > 0.5
        assert float(singular.max()) < 1.3


def test_muon_updates_convolution_kernels_as_matrices() -> None:
    torch.manual_seed(0)
    module = Learner(build(ConvTDVAEConfig((3, 16, 16), encoder=(9, 9), layers=1, channels=40, belief=LSTM(8))))
    optimizers = make_optimizers(TrainConfig(optimizer="muon", muon_learning_rate=0.1), module)
    kernels = [p for group in optimizers[1].param_groups for p in group["params"]]
    shapes = {tuple(p.shape) for p in kernels}
    assert all(len(shape) == 4 for shape in shapes)
    assert (9, 3, 3, 3) in shapes
    assert (160, 56, 3, 3) not in shapes  # the kernel of the gates, whose shorter side of 160 is too long
    assert sum(len(group["params"]) for o in optimizers for group in o.param_groups) == len(list(module.parameters()))
    kernel, before = kernels[0], kernels[0].detach().clone()
    kernel.grad = torch.randn_like(kernel)
    optimizers[1].step()
    singular = torch.linalg.svdvals((kernel.detach() - before).flatten(1)) / 0.1
    assert float(singular.min()) > 0.5
    assert float(singular.max()) < 1.3


def test_adam_reduces_the_loss() -> None:
    """A sanity check of model, loss and optimiser: on constant signals the loss must decrease a lot."""
    config = TDVAEConfig(
        latent=2, drift="residual", posterior="product", belief=LSTM(8), decoder=Gaussian((16,)), maps=GatedMaps(16)
    )
    torch.manual_seed(0)
    subject = Learner(build(config))
    batch = Sequences(torch.randn(16, 1, 1).expand(16, 10, 1).contiguous(), torch.full((16,), 10))
    pairs = jumps.Uniform(1, 5).sample(batch.lengths, 8, torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(subject.parameters(), lr=1e-2)
    first = last = None
    for _ in range(250):
        terms = subject(batch, pairs)
        optimizer.zero_grad()
        terms.total.backward()
        optimizer.step()
        last = terms.total.item()
        first = last if first is None else first
    assert first is not None
    assert last is not None
    assert last < first - 0.7


# Runs of earlier versions


def stopped(run_dir: Path, law: jumps.Jumps = JUMPS, subject: Learner | None = None) -> None:
    """A run that was stopped in its sixth step: its last checkpoint is that of the fourth."""
    subject = subject or learner()
    original, calls = subject.objective, 0

    @functools.wraps(original)
    def stops(model: Any, sequences: Sequences, pairs: Pairs) -> Terms:
        nonlocal calls
        calls += model.training
        if calls == 6:
            raise KeyboardInterrupt
        return original(model, sequences, pairs)

    if isinstance(subject, Stack):
        subject._template[0].objective = stops  # the runs' common objective
    else:
        subject.objective = stops
    with pytest.raises(KeyboardInterrupt):
        fit_with(law, run_dir, subject, resume=False)


def fit_with(law: jumps.Jumps, run_dir: Path, subject: Learner, resume: bool) -> None:
    config = TrainConfig(**{**QUICK.__dict__, "optimizer": "adam", "batch_size": 6})
    tdvae.fit(subject, data(12), law, config, run_dir, validation=data(6), resume=resume, progress="none")


def stacked_learner() -> Stack:
    torch.manual_seed(derive_seed(8))
    return Stack([Learner(build(replace(TINY, belief=ChronoLSTM(6)))) for _ in range(3)])


def edit_config(run_dir: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change config.json to what another version might have written."""
    config = RunFolder(run_dir).read_config()
    edit(config)
    RunFolder(run_dir).write_config(config)


MAKERS: dict[str, Callable[[], Learner]] = {"one run": learner, "a stack": stacked_learner}


def model_of(config: dict[str, Any]) -> dict[str, Any]:
    """The config of the model, or of each model of a stack."""
    described: dict[str, Any] = config["model"].get("of", config["model"])
    return described


@pytest.mark.parametrize("kind", MAKERS)
def test_a_run_from_before_a_setting_existed_resumes_to_the_same_end(tmp_path: Path, kind: str) -> None:
    """Settings of the training that config.json does not have had what is now their default."""
    fit_with(JUMPS, tmp_path / "whole", MAKERS[kind](), resume=False)
    stopped(tmp_path / "old", subject=MAKERS[kind]())

    def forget(config: dict[str, Any]) -> None:
        del config["train"]["kl_warmup"]
        del config["objective"]

    edit_config(tmp_path / "old", forget)
    fit_with(JUMPS, tmp_path / "old", MAKERS[kind](), resume=True)
    assert_same_run(tmp_path / "old", tmp_path / "whole")
    now, whole = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("old", "whole"))
    assert now == whole  # what was missing is there now


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda c: model_of(c).update(forgotten=1),
            r"another model \((forgotten|of)\)",
        ),
        (lambda c: model_of(c).update(kind="rnn"), r"another model \((kind|of)\)"),
        (lambda c: c["train"].update(forgotten=1), r"another train \(forgotten\)"),
        (lambda c: c["train"].update(clip=3.0), r"another train \(clip\)"),
        (lambda c: c.update(jumps="Uniform(low=1, high=9)"), r"another jumps \(Uniform\(low=1, high=9\)\)"),
        (lambda c: c.update(objective="other_loss()"), r"another objective \(other_loss\(\)\)"),
        (lambda c: model_of(c).update(observed_state=True), r"another model \((observed_state|of)\)"),
        # Left out, it has its default, which is not what this run had.
        (lambda c: model_of(c).pop("belief"), r"another model \((belief|of)\)"),
        (lambda c: c["train"].pop("pairs"), r"another train \(pairs\)"),
    ],
)
def test_a_run_of_other_or_unknown_settings_is_not_resumed(
    tmp_path: Path, kind: str, edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    stopped(tmp_path / "run", subject=MAKERS[kind]())
    edit_config(tmp_path / "run", edit)
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=message):
        fit_with(JUMPS, tmp_path / "run", MAKERS[kind](), resume=True)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_a_stack_and_a_single_run_are_not_resumed_as_each_other(tmp_path: Path) -> None:
    for before, after, message in (
        ("one run", "a stack", r"another model \(.*kind.*\)"),
        ("a stack", "one run", r"another model \(.*kind.*\)"),
    ):
        stopped(tmp_path / before, subject=MAKERS[before]())
        with pytest.raises(InputError, match=message):
            fit_with(JUMPS, tmp_path / before, MAKERS[after](), resume=True)


@dataclass(frozen=True)
class Newer(jumps.Uniform):
    """`Uniform` as a later version might have it."""

    offset: int = 0

    def draw(self, shape: tuple[int, ...], generator: torch.Generator, progress: float = 1.0) -> Tensor:
        return super().draw(shape, generator, progress) + self.offset


Newer.__name__ = "Uniform"


@pytest.mark.parametrize("inside", [False, True])
def test_a_law_of_jumps_with_a_new_field_resumes_to_the_same_end(tmp_path: Path, inside: bool) -> None:
    def law(one: jumps.Jumps) -> jumps.Jumps:
        return jumps.InTurn(one, jumps.Mixture((one, jumps.Uniform(1, 2)), (0.5, 0.5)), 0.5) if inside else one

    assert law(Newer(1, 6)).describe() == law(jumps.Uniform(1, 6)).describe()
    fit_with(law(jumps.Uniform(1, 6)), tmp_path / "whole", learner(), resume=False)
    stopped(tmp_path / "old", law(jumps.Uniform(1, 6)))
    with pytest.raises(InputError, match=r"another jumps"):
        fit_with(law(Newer(1, 6, offset=1)), tmp_path / "old", learner(), resume=True)
    fit_with(law(Newer(1, 6)), tmp_path / "old", learner(), resume=True)
    assert_same_run(tmp_path / "old", tmp_path / "whole")
