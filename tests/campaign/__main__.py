"""`python -m tests.campaign`: run the campaign, print a table, write results/campaign.json."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: forked processes must have one thread

import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from tdvae.reporting.results import results, write_results
from tdvae.reporting.tables import Table, show
from tests.campaign import api, commands, damage, kills
from tests.campaign.outcome import OUTCOMES, Tally

Part = Callable[[Tally, int, random.Random, Path], None]
PARTS: dict[str, tuple[Part, int]] = {
    "kills": (kills.run, 200),
    "damaged_files": (damage.run, 1_000),
    "api_calls": (api.run, 10_000),
    "command_lines": (commands.run, 300),
}


@dataclass(frozen=True)
class Campaign:
    """Kill trainings, damage files, fuzz calls and command lines. Every case is drawn from the seed."""

    scale: float = 1.0
    """Number of cases, relative to the full campaign."""
    seed: int = 0
    """Seed of all cases."""
    only: tuple[str, ...] = ()
    """Parts to run; by default all."""
    out: Path | None = None
    """Write campaign.json to this folder."""
    problems: int = 20
    """Number of problems of each part to print."""

    def run(self) -> dict[str, Tally]:
        torch.set_num_threads(1)
        begin, tallies = time.monotonic(), {}
        with tempfile.TemporaryDirectory() as folder:
            for name, (part, full) in PARTS.items():
                if self.only and name not in self.only:
                    continue
                tallies[name] = Tally()
                part(
                    tallies[name],
                    max(1, round(self.scale * full)),
                    random.Random(f"{self.seed}/{name}"),
                    Path(folder, name),
                )
        rows = [[name, *map(str, tally.measures.values())] for name, tally in tallies.items()]
        show(f"campaign, seed {self.seed}", [Table(["part", "tried", *OUTCOMES], rows)])
        for name, tally in tallies.items():
            for problem in tally.problems[: self.problems]:
                print(f"{name}: {problem}")
        if self.out is not None:
            content = results("campaign", "full", [self.seed], time.monotonic() - begin, [{}], {})
            content["command"] = " ".join(["python -m tests.campaign", *sys.argv[1:]])
            content["measures"] = {name: tally.measures for name, tally in tallies.items()}
            write_results(self.out / "campaign.json", content)
        return tallies


if __name__ == "__main__":
    tyro.cli(Campaign).run()
