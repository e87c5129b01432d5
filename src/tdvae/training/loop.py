"""The training loop.

Its random state is (seed, step): the data order, the pairs and the noise of every step are drawn with seeds derived
from them. A resumed run is therefore bit-identical to an uninterrupted one, and a checkpoint holds only the weights,
the states of the optimisers and the step.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from lightning_fabric import Fabric
from torch import Generator, Tensor, nn

from tdvae.checks import checked
from tdvae.errors import CheckpointError, DivergenceError, InputError, TDVAEError
from tdvae.jumps import Jumps
from tdvae.objectives import Learner
from tdvae.storage import RunFolder, checkpoint
from tdvae.storage.files import to_json
from tdvae.training.config import RESUMABLE, TrainConfig, derive_seed, kl_weight, make_optimizers, rate_factor
from tdvae.training.log import Log, Progress, RunLog
from tdvae.training.monitor import SCORE, Monitor
from tdvae.training.noise import noise_of_rank
from tdvae.types import Pairs, Sequences, SequenceSource, Terms

ORDER, PAIRS, NOISE, VALIDATION = range(4)  # purposes of derived seeds
KEPT_CHECKPOINTS = 2
LARGE_DATA = 1e6  # the squares of larger values soon exceed the range of 32-bit numbers
VALIDATION_BATCH = 256

T = TypeVar("T")


@dataclass(frozen=True)
class FitResult:
    """The result of `fit`.

    >>> import torch, tdvae
    >>> data = tdvae.data.from_arrays(torch.randn(16, 10))
    >>> learner = tdvae.Learner(tdvae.models.build(tdvae.TDVAEConfig()))
    >>> config = tdvae.TrainConfig(steps=2, validate_every=1)
    >>> result = tdvae.fit(learner, data, tdvae.jumps.Uniform(1, 3), config, "runs/short", progress="none")
    >>> result.steps, result.best_score
    (2, None)
    """

    run_dir: Path
    steps: int
    best_step: int  # step with the best score; the last one without validation
    best_score: float | None  # of the monitor, or else the loss on the validation sequences in nats per pair
    seconds: float | None  # training time without lost steps; None if resumed from a checkpoint that lacks it
    finished: dict[str, float] = field(default_factory=dict)  # what the monitor did at the end


class TensorLearner(nn.Module):
    """Wraps a learner so that its arguments and results are tensors, which Fabric and DDP can handle."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(
        self, batch: dict[str, Tensor], pairs: dict[str, Any], kl_weight: float = 1.0
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted loss, and its unweighted terms."""
        terms: Terms = self.learner(Sequences(**batch), Pairs(**pairs))
        return terms.weighted(kl_weight), terms.named()


@checked
def fit(
    learner: Learner,
    data: SequenceSource,
    jumps: Jumps,
    config: TrainConfig,
    run_dir: str | Path,
    validation: SequenceSource | None = None,
    resume: bool = False,
    info: dict[str, Any] | None = None,
    progress: Progress = "bar",
    monitor: Monitor | None = None,
    files: Mapping[str, bytes] | None = None,
    until: int | None = None,
) -> FitResult:
    """Train ``learner``. Afterwards it has the weights with the best score, or the last without validation.

    The files of the run are written to ``run_dir``: config.json, metrics.jsonl, checkpoints/. If the folder is not
    empty, ``resume`` must be true. ``info`` is stored in config.json. ``progress`` is ``bar`` (``lines`` if
    there is no terminal), ``lines`` (one line at each validation) or ``none``. The score is the loss on the
    ``validation`` sequences, unless a ``monitor`` measures another one. A monitor also computes further metrics, at
    each validation, and may change the best weights at the end. ``files`` are written to the run folder before
    training, by name. ``until`` is a step to stop at, before the last, so that the run can be resumed from there.

    >>> import torch, tdvae
    >>> train, validation, test = tdvae.data.split(tdvae.data.from_arrays(torch.randn(100, 10)), seed=0)
    >>> model = tdvae.models.for_data(train, layers=1, latent=4)
    >>> config = tdvae.TrainConfig(steps=2, validate_every=2)
    >>> learner, jumps = tdvae.Learner(model), tdvae.jumps.Uniform(1, 3)
    >>> result = tdvae.fit(learner, train, jumps, config, "runs/mine", validation, progress="none")
    >>> result.best_step
    2
    """
    for sequences in (data, validation):
        if sequences is not None:
            if isinstance(sequences, Sequences):
                sequences.check_lengths()
            jumps.check_room(sequences.lengths)
    with ExitStack() as in_use:  # keeps the lock of the run folder
        training = _Training(
            learner,
            data,
            jumps,
            config,
            RunFolder(run_dir),
            validation,
            resume,
            info or {},
            progress,
            monitor or Monitor(),
            files or {},
            in_use,
            config.steps if until is None else min(until, config.steps),
        )
        return training.run()


class _Training:
    """The state of one call of `fit`."""

    def __init__(
        self,
        learner: Learner,
        data: SequenceSource,
        jumps: Jumps,
        config: TrainConfig,
        folder: RunFolder,
        validation: SequenceSource | None,
        resume: bool,
        info: dict[str, Any],
        progress: Progress,
        monitor: Monitor,
        files: Mapping[str, bytes],
        in_use: ExitStack,
        until: int,
    ) -> None:
        self.until = until
        self.learner, self.data, self.jumps, self.config = learner, data, jumps, config
        self.folder, self.validation, self.progress, self.monitor = folder, validation, progress, monitor
        self.fabric = _fabric(config)
        self.home = next(learner.parameters()).device
        self.step, self.best, self.best_step = 0, math.inf, 0
        self.seconds_before: float | None = 0.0
        self.began = time.monotonic()
        self.metrics_before: dict[str, Any] | None = None  # the lines of metrics.jsonl up to the checkpoint
        self.lost_best = False  # the best checkpoint was damaged
        description = self._description(info)
        self._on_first(lambda: self._prepare_folder(resume, description, in_use))
        optimizers = make_optimizers(config, learner)
        self.rates = [group["lr"] for o in optimizers for group in o.param_groups]
        module, *wrapped = self.fabric.setup(TensorLearner(learner), *optimizers)
        self.module, self.optimizers = module, wrapped
        if resume:
            self._restore()
        self._on_first(lambda: self.folder.write_config(description, files))

    # Training steps

    def run(self) -> FitResult:
        self.log = log = self._log()
        self.paced = self.step, time.monotonic()
        try:
            if self.lost_best:
                self._keep_if_best(self._measure())
            while self.step < self.until and not self._out_of_patience():
                terms = self._train_step()
                self.step += 1
                self._report(log, terms)
            finished = self._take_best(log)
        finally:
            log.close()
            self.learner.to(self.home)  # the device it was on before
        if self.best_step == 0:
            return FitResult(self.folder.path, self.step, self.step, None, self._seconds())
        return FitResult(self.folder.path, self.step, self.best_step, self.best, self._seconds(), finished)

    def _out_of_patience(self) -> bool:
        """Whether the last ``patience`` validations were no better. It depends on the steps only, also on resume."""
        config = self.config
        waited = self.step - self.best_step
        return self.validation is not None and 0 < config.patience <= waited // config.validate_every

    def _take_best(self, log: Log) -> dict[str, float]:
        """Load the weights with the best score, if there are any, let the monitor finish them, and save them again."""
        if self.best_step == 0:
            return {}
        best, _ = checkpoint.newest(self.folder.checkpoints, "best")
        self._load_weights(best)
        self.learner.eval()
        finished = self.monitor.finish() if self.until == self.config.steps else {}
        if finished:
            log.record(self.step, finished)
            self._save("best", keep=1, optimizers=False)
        return finished

    def _on_first(self, action: Callable[[], T]) -> T:
        """Call ``action`` on the first rank and return its result on all ranks. If it fails there, all ranks fail."""
        if self.fabric.world_size == 1:
            return action()
        result: T | None = None
        failure: Exception | None = None
        if self.fabric.is_global_zero:
            try:
                result = action()
            except Exception as error:
                failure = error
        result, message = self.fabric.broadcast((result, None if failure is None else str(failure)))
        if failure is not None:
            raise failure
        if message is not None:
            raise TDVAEError(message)
        return cast(T, result)

    def _seconds(self) -> float | None:
        before = self.seconds_before
        return None if before is None else round(before + time.monotonic() - self.began, 1)

    def _train_step(self) -> dict[str, Tensor]:
        batch, pairs = self._draw(self.step)
        factor = rate_factor(self.config, self.step)
        groups = [group for o in self.optimizers for group in o.param_groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate * factor
        weight = kl_weight(self.config, self.step)
        torch.manual_seed(derive_seed(self.config.seed, NOISE, self.step))
        with noise_of_rank(self.fabric.global_rank, self.fabric.world_size):
            loss, terms = self.module(batch, vars(pairs), weight)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.fabric.backward(loss.sum())
        norm = self.learner.clip_gradients(self.config.clip)
        self._check_finite({**terms, "gradient": norm})
        self.gradient_norm = norm.detach()
        for optimizer in self.optimizers:
            optimizer.step()
        return {name: term.detach() for name, term in terms.items()}

    def _draw(self, step: int) -> tuple[dict[str, Tensor], Pairs]:
        """The part of the batch for this rank, and its pairs. Each rank draws the whole batch and takes a slice."""
        batch, size = self.config.batch_size, len(self.data)
        positions = range(step * batch, (step + 1) * batch)
        index = torch.tensor([int(self._order(p // size)[p % size]) for p in positions])
        generator = Generator().manual_seed(derive_seed(self.config.seed, PAIRS, step))
        pairs = self.jumps.sample(
            self.data.lengths[index], self.config.pairs, generator, progress=step / self.config.steps
        )
        share = batch // self.fabric.world_size
        rows = slice(self.fabric.global_rank * share, (self.fabric.global_rank + 1) * share)
        return self.data.select(index[rows]).to(self.fabric.device).named(), pairs.select(rows).to(self.fabric.device)

    def _order(self, epoch: int) -> Tensor:
        """The order of the sequences in an epoch."""
        if getattr(self, "_epoch", None) != epoch:
            self._epoch = epoch
            generator = Generator().manual_seed(derive_seed(self.config.seed, ORDER, epoch))
            shuffled = self.config.shuffle
            self._permutation = (
                torch.randperm(len(self.data), generator=generator) if shuffled else torch.arange(len(self.data))
            )
        return self._permutation

    def _check_finite(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            if not bool(torch.isfinite(value).all()):
                saved = checkpoint.list_checkpoints(self.folder.checkpoints, "step")
                raise DivergenceError(
                    f"step {self.step}: {name} is {value.sum().item()}; last good checkpoint: "
                    f"{saved[0] if saved else 'none'}. {self._advice()}"
                )

    def _advice(self) -> str:
        """What may have made the loss infinite: data of an extreme scale, or else the training."""
        batch, _ = self._draw(min(self.step, self.config.steps - 1))
        largest = float(batch["x"].abs().max())
        if largest > LARGE_DATA:
            return f"x has values up to {largest:g}, which is the likely cause; scale the data"
        return "Try a lower learning rate or a smaller clip"

    # Logging, validation and checkpoints after a step

    def _report(self, log: Log, terms: dict[str, Tensor]) -> None:
        config, step, last = self.config, self.step, self.step == self.until
        if step % config.log_every == 0 or last:
            shown = {name: self._mean_over_ranks(term) for name, term in terms.items()}
            log.progress(step, shown)
            log.record(step, {**shown, "total": sum(shown.values()), **self._pace()})
        if step % config.validate_every == 0 or last:
            measured = self._measure()
            if measured:
                log.record(step, measured, self.monitor.in_words(measured))
            self._keep_if_best(measured)
        if step % config.checkpoint_every == 0 or last:
            self._save("step", keep=KEPT_CHECKPOINTS, optimizers=True)

    def _measure(self) -> dict[str, float]:
        """Compute the validation loss and the monitor's metrics."""
        self.learner.eval()
        measured = self.monitor.measure()
        if self.validation is not None:
            measured = {"validation": self._validate(self.validation), **measured}
            self._check_finite({"validation": torch.tensor(measured["validation"])})
        self.learner.train()
        return measured

    def _keep_if_best(self, measured: dict[str, float]) -> None:
        """Save the weights if their score is the best so far."""
        score = measured.get(SCORE, measured.get("validation", math.inf))
        if score < self.best:
            self.best, self.best_step = score, self.step
            self._save("best", keep=1, optimizers=False)

    def _pace(self) -> dict[str, float]:
        """The learning rate (of the first optimiser), the gradient norm before clipping, and the speed."""
        now = time.monotonic()
        steps, seconds = self.step - self.paced[0], now - self.paced[1]
        self.paced = self.step, now
        return {
            "learning_rate": self.optimizers[0].param_groups[0]["lr"],
            "gradient_norm": float(self.gradient_norm.mean()),
            "steps_per_second": round(steps / max(seconds, 1e-9), 2),
        }

    def _mean_over_ranks(self, term: Tensor) -> float:
        mean = self.fabric.all_reduce(term, reduce_op="mean")
        assert isinstance(mean, Tensor)
        return float(mean.mean())

    @torch.no_grad()
    def _validate(self, validation: SequenceSource) -> float:
        """The loss on all validation sequences, with the final distribution of jumps and fixed pairs and noise."""
        total, seed = 0.0, self.config.seed
        for number, index in enumerate(torch.arange(len(validation)).split(VALIDATION_BATCH)):
            sequences = validation.select(index)
            torch.manual_seed(derive_seed(seed, VALIDATION, number))
            pairs = self.jumps.sample(sequences.lengths, self.config.pairs, torch.default_generator).to(
                self.fabric.device
            )
            loss, _ = self.module(sequences.to(self.fabric.device).named(), vars(pairs))
            total += float(loss.mean()) * len(index)
        return total / len(validation)

    # The run folder

    def _description(self, info: dict[str, Any]) -> dict[str, Any]:
        lengths = self.data.lengths
        return {
            "model": self.learner.describe(),
            "objective": self.learner.describe_objective(),
            "data": {"sequences": len(lengths), "steps": int(lengths.sum())},
            "train": asdict(self.config),
            "jumps": self.jumps.describe(),
            "info": info,
        }

    def _prepare_folder(self, resume: bool, description: dict[str, Any], in_use: ExitStack) -> None:
        in_use.enter_context(self.folder.use(resume))
        if resume:
            self._check_same(description)

    def _check_same(self, description: dict[str, Any]) -> None:
        """Raise if the run to resume was started with another model, objective, data, config or jumps."""
        run_dir, before = self.folder.path, self.folder.read_config()
        try:
            settings = before["train"] = {**asdict(TrainConfig()), **before["train"]}
        except (KeyError, TypeError) as error:
            raise InputError(f"run_dir: expected a run to resume, got {run_dir} ({error!r})") from error
        now = json.loads(to_json(description))
        for entry in RESUMABLE:
            settings.pop(entry, None), now["train"].pop(entry, None)
        for part, new in now.items():
            old = before.get(part, new)  # runs of older versions lack some entries
            if old != new:
                comparable = isinstance(old, dict) and isinstance(new, dict)
                names = sorted(k for k in {*old, *new} if old.get(k) != new.get(k)) if comparable else []
                raise InputError(
                    f"resume: expected the same settings, but {run_dir} was started with another {part} "
                    f"({', '.join(names) or old})"
                )

    def _log(self) -> Log:
        if not self.fabric.is_global_zero:
            return Log()
        config = self.config
        return RunLog(self.folder, self.step, config.steps, config.tensorboard, self.progress, self.metrics_before)

    def _save(self, kind: str, keep: int, optimizers: bool) -> None:
        def save() -> None:
            tensors = {"weights": self.learner.state_dict()}
            if optimizers:
                for number, optimizer in enumerate(self.optimizers):
                    tensors[f"optimizer_{number}"] = checkpoint.optimizer_tensors(optimizer)
            state = {
                "step": self.step,
                "best": self.best if math.isfinite(self.best) else None,
                "best_step": self.best_step,
                "seconds": self._seconds(),
                "metrics": self.log.written(),
            }
            checkpoint.save_numbered(self.folder.checkpoints, kind, self.step, tensors, state, keep)

        self._on_first(save)

    def _restore(self) -> None:
        """Continue from the newest whole checkpoint. The first rank chooses it, and all ranks load it."""
        found: list[checkpoint.Checkpoint | None] = [None, None]

        def choose() -> list[Path | None]:
            found[:] = [self.folder.newest_step(), self.folder.newest_best()]
            return [None if one is None else one.path for one in found]

        paths = self._on_first(choose)
        step, best = (
            one or (None if path is None else checkpoint.load(path)) for one, path in zip(found, paths, strict=True)
        )
        if step is None:
            return  # the run was stopped before its first checkpoint, so it starts again from step 0
        self._load_weights(step)
        try:
            for number, optimizer in enumerate(self.optimizers):
                checkpoint.restore_optimizer(optimizer, step.tensors[f"optimizer_{number}"])
            self.step = int(step.state["step"])
            if best is not None:
                # The best checkpoint may be newer than the step resumed from; it remains valid.
                self.best, self.best_step = best.state["best"], best.state["best_step"]
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise CheckpointError(f"checkpoint {step.path}: expected the state of this training ({error!r})") from error
        self.seconds_before = step.state.get("seconds")
        self.metrics_before = step.state.get("metrics")
        self.lost_best = best is None and step.state.get("best") is not None

    def _load_weights(self, saved: checkpoint.Checkpoint) -> None:
        try:
            self.learner.load_state_dict(saved.tensors["weights"])
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"checkpoint {saved.path}: the weights belong to another model") from error


def check_accelerator(name: str) -> None:
    """Raise if this machine has no such accelerator."""
    try:
        Fabric(accelerator=name, devices=1)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"accelerator: expected auto or one that this machine has, got {name!r}") from error


def _fabric(config: TrainConfig) -> Fabric:
    processes, started = config.devices * config.nodes, int(os.environ.get("WORLD_SIZE", "1"))
    if processes != started:
        raise InputError(
            f"devices: expected {processes} processes, got {started}; for several processes "
            f"use torchrun --nproc-per-node {config.devices} -m tdvae … --devices {config.devices}"
        )
    check_accelerator(config.accelerator)
    fabric = Fabric(
        accelerator=config.accelerator, devices=config.devices, num_nodes=config.nodes, precision=config.precision
    )
    fabric.launch()
    if started > 1:
        atexit.unregister(_leave_process_group)  # one call suffices after several trainings
        atexit.register(_leave_process_group)
    return fabric


def _leave_process_group() -> None:
    """End the threads of the process group. A process that exits while they run can abort; Fabric ends NCCL's only."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
