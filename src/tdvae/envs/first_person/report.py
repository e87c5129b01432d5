"""Terminal output of recording and conversion: a progress bar, and a summary table of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tdvae.data.recording import Recording
from tdvae.envs.first_person.recorder import Summary


@contextmanager
def progress_bar(title: str, frames: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal; yields a function of the number of frames so far."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("frames"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=frames)
        yield lambda done: bar.update(task, completed=done)


def show_recorded(summary: Summary) -> None:
    """Print a table with the agent, its actions, the time taken and the content of the file."""
    total = max(1, summary.actions.total())
    actions = ", ".join(f"{name} {count / total:.0%}" for name, count in summary.actions.most_common())
    endings = ", ".join(f"{count} {name}" for name, count in summary.endings.most_common())
    speed = f"{summary.seconds:.1f} s, {summary.frames / max(summary.seconds, 1e-9):.0f} frames/s"
    rewards = f"{summary.reward:g} in total"
    rows = {"agent": summary.agent, "actions": actions or "none", "endings": endings, "rewards": rewards}
    _show(summary.path, {**rows, "time": speed})


def show_converted(path: Path) -> None:
    """Print a table with the content of a converted file."""
    with Recording(path) as recording:
        _show(recording.path, {"actions": f"{len(recording.action_names)} available"})


def _show(path: Path, rows: dict[str, str]) -> None:
    with Recording(path) as recording:
        content = (
            f"{len(recording):,} frames of {recording.size} × {recording.size} in {len(recording.starts):,} episodes"
        )
        table = Table(title=f"{recording.about['world']} in {recording.path}", show_header=False)
        table.add_row("recorded", content)
        for name, value in rows.items():
            table.add_row(name, value)
        table.add_row("poses", "yes" if recording.has_pose else "no")
        table.add_row("file", f"{recording.path.stat().st_size / 1e6:.0f} MB")
    Console().print(table)
