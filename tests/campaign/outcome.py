"""Outcomes of cases, and processes in which cases run with a time limit."""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tdvae.errors import TDVAEError

# right: the result is that without the fault. clear: an error that names the cause. foreign: another error. silent: a
# wrong result without a word. hang: no result in time. Limits are in seconds of processor time, so that a busy machine
# is not taken for a hang; a case that waits and uses none ends after WAIT times as many seconds.
Outcome = Literal["right", "clear", "foreign", "silent", "hang"]
OUTCOMES: tuple[Outcome, ...] = ("right", "clear", "foreign", "silent", "hang")
WAIT = 10


@dataclass
class Tally:
    """The number of cases by outcome, and a description of each that is neither right nor clear."""

    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    problems: list[str] = field(default_factory=list)
    orphans: int = 0  # processes that went on without the one that started them
    outside_reads: int = 0  # files whose content came from other files
    peak_memory: int = 0  # MB of the largest process

    def add(self, outcome: Outcome, description: str, times: int = 1) -> None:
        self.counts[outcome] += times
        if outcome not in ("right", "clear"):
            self.problems.append(f"{outcome}: {description}")

    @property
    def measures(self) -> dict[str, int]:
        counts = {str(outcome): count for outcome, count in self.counts.items()}
        more = {name: getattr(self, name) for name in ("orphans", "outside_reads", "peak_memory")}
        return {"tried": sum(self.counts.values()), **counts, **more}


def combined(tallies: list[Tally]) -> Tally:
    """One tally of several seeds."""
    return Tally(
        {outcome: sum(each.counts[outcome] for each in tallies) for outcome in OUTCOMES},
        [problem for each in tallies for problem in each.problems],
        sum(each.orphans for each in tallies),
        sum(each.outside_reads for each in tallies),
        max(each.peak_memory for each in tallies),
    )


def children_peak() -> int:
    """MB of the largest process that this one has started and that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


class Hang(BaseException):
    """A case took too long. Not an Exception, so that no handler of the library catches it."""


def limited(seconds: float, case: Callable[[], Outcome]) -> tuple[Outcome, str]:
    """The outcome of a case in this process. Errors of the library are clear, others are foreign."""

    def stop(*_: Any) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WAIT * seconds)
    try:
        return case(), ""
    except Hang:
        return "hang", f"no result after {seconds} s"
    except TDVAEError as error:
        return "clear", str(error)
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "foreign", f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def in_process(
    seconds: float, work: Callable[[], Any], delay: float | None = None, memory: int | None = None
) -> tuple[Any, int | None]:
    """Run ``work`` in a forked process; returns its JSON-compatible result and exit code, negative if it was killed.

    With ``delay``, the process is killed by SIGKILL after this many seconds, if it still runs. After ``seconds`` of
    processor time it is killed as well, and the exit code is None. ``memory`` limits its address space, in bytes.
    """
    reader, writer = os.pipe()
    sys.stdout.flush(), sys.stderr.flush()
    with warnings.catch_warnings():
        # Python warns if there are other threads, as in a process of pytest-xdist. They wait and hold no locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            most = math.ceil(seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            with os.fdopen(writer, "w") as pipe:
                json.dump(work(), pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    code, content, end = _wait(child, reader, time.monotonic() + (WAIT * seconds if delay is None else delay))
    if end:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status) if delay is not None else None
    os.close(reader)
    if code == -signal.SIGXCPU:
        code = None
    return (json.loads(content) if code == 0 and content else None), code


def _wait(child: int, reader: int, until: float) -> tuple[int | None, bytes, bool]:
    """Read what a process writes until it ends: its exit code and output, and whether the time is over."""
    content = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None, content, True
        part = os.read(reader, 65536)
        content += part
        if not part:  # closed: the process has ended
            _, status = os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status), content, False


def run_blocks(
    tally: Tally,
    blocks: Iterable[Callable[[], list[tuple[Outcome, str]]]],
    seconds: float,
    memory: int | None = None,
) -> None:
    """Run blocks of cases, each in its own process, so that a crash ends one block only."""
    for block in blocks:
        results, code = in_process(seconds, block, memory=memory)
        if results is None:
            tally.add("hang" if code is None else "foreign", f"the process of a block of cases ended with {code}")
        else:
            for outcome, description in results:
                tally.add(outcome, description)
