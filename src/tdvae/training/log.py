"""Logs of a training run: metrics.jsonl, optionally TensorBoard, and a progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tdvae.errors import InputError
from tdvae.storage import RunFolder
from tdvae.training.monitor import SCORE

Progress = Literal["bar", "lines", "none"]


class Log:
    """The log interface of the training loop. This one discards everything; all ranks but the first have it."""

    def record(self, step: int, values: dict[str, float], words: str = "") -> None:
        pass

    def progress(self, step: int, terms: dict[str, float]) -> None:
        pass

    def written(self) -> dict[str, Any] | None:
        return None

    def close(self) -> None:
        pass


class RunLog(Log):
    """Writes metrics.jsonl in the run folder. On resume, lines of steps after the checkpoint are removed first.

    ``written`` is what the checkpoint says about the lines before it, from `RunLog.written`.
    """

    def __init__(
        self,
        folder: RunFolder,
        start: int,
        steps: int,
        tensorboard: bool,
        show: Progress,
        written: dict[str, Any] | None = None,
    ) -> None:
        self.board = _summary_writer(folder.path / "tensorboard", start) if tensorboard else None
        self.file = folder.open_metrics(start, written)
        self.name = folder.path.name
        self.console = Console(stderr=True)
        self.lines = show == "lines" or (show == "bar" and not self.console.is_terminal)
        self.bar = rich.progress.Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[terms]}"),
            console=self.console,
            disable=show != "bar" or self.lines,
        )
        self.bar.start()
        self.task = self.bar.add_task(self.name, total=steps, completed=start, terms="")

    def record(self, step: int, values: dict[str, float], words: str = "") -> None:
        self.file.write({"step": step, **values})
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)
        if "validation" in values and self.lines:
            total = self.bar.tasks[self.task].total
            name, score = ("score", values[SCORE]) if SCORE in values else ("loss", values["validation"])
            line = f"{self.name}  step {step}/{total:.0f}  validation {name} {score:.3f} nats"
            self.console.print(f"{line}  {words}".rstrip(), highlight=False, soft_wrap=True)
        if words:
            self.bar.update(self.task, description=f"{self.name}: {words}")

    def progress(self, step: int, terms: dict[str, float]) -> None:
        self.bar.update(self.task, completed=step, terms=f"loss {sum(terms.values()):.3f}")

    def written(self) -> dict[str, Any]:
        """The number and the digest of the lines so far, for a checkpoint."""
        return self.file.describe()

    def close(self) -> None:
        self.bar.stop()
        self.file.close()
        if self.board is not None:
            self.board.close()


def _summary_writer(folder: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "tensorboard: expected the package to be installed; pip install 'tdvae[tensorboard]'"
        ) from error
    if folder.is_symlink():
        raise InputError(f"tensorboard: expected a folder, got the symbolic link {folder}, which is not followed")
    return SummaryWriter(str(folder), purge_step=start + 1 if start else None)
