"""`python -m tests.campaign`: run the campaign, print a table, write results/campaign.json."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: forked processes must have one thread

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tyro

from tdvae.reporting.results import results, write_results
from tdvae.reporting.tables import Table, show
from tests.campaign.outcome import Tally, combined
from tests.campaign.parts import PARTS, run_part


@dataclass(frozen=True)
class Campaign:
    """Kill trainings, damage files, fuzz calls and command lines. Every case is drawn from the seed."""

    scale: float = 1.0
    """Number of cases, relative to the full campaign."""
    seeds: tuple[int, ...] = (0, 1)
    """Each seed draws all cases anew."""
    only: tuple[str, ...] = ()
    """Parts to run; by default all."""
    out: Path | None = None
    """Write campaign.json to this folder."""
    processes: int = 12
    """Parts at a time."""
    problems: int = 20
    """Number of problems of each part to print."""

    def run(self) -> dict[str, Tally]:
        begin = time.monotonic()
        names = [name for name in PARTS if not self.only or name in self.only]
        # A part is a process of its own, so that its peak of memory is that of its cases.
        with ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
            running = {name: [pool.submit(run_part, name, self.scale, seed) for seed in self.seeds] for name in names}
            tallies = {name: combined([part.result() for part in parts]) for name, parts in running.items()}
        rows = [[name, *map(str, tally.measures.values())] for name, tally in tallies.items()]
        columns = list(next(iter(tallies.values())).measures)
        show(f"campaign, seeds {', '.join(map(str, self.seeds))}", [Table(["part", *columns], rows)])
        for name, tally in tallies.items():
            for problem in tally.problems[: self.problems]:
                print(f"{name}: {problem}")
        if self.out is not None:
            content = results("campaign", "full", list(self.seeds), time.monotonic() - begin, [{}], {})
            content["command"] = " ".join(["python -m tests.campaign", *sys.argv[1:]])
            content["measures"] = {name: tally.measures for name, tally in tallies.items()}
            write_results(self.out / "campaign.json", content)
        return tallies


if __name__ == "__main__":
    tyro.cli(Campaign).run()
