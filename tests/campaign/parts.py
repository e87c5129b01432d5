"""The parts of the campaign, each run in a process of its own."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from tests.campaign import api, commands, damage, hostile, kills, loops, pages, worlds
from tests.campaign.outcome import Tally, children_peak

Part = Callable[[Tally, int, random.Random, Path], None]
PARTS: dict[str, tuple[Part, int]] = {  # with the number of cases
    "kills": (kills.run, 200),
    "damaged_files": (damage.run, 1_000),
    "api_calls": (api.run, 10_000),
    "command_lines": (commands.run, 300),
    "forged_runs": (hostile.run_forged, 200),
    "hostile_files": (hostile.run_files, 60),
    "online_beliefs": (loops.run_online, 3),
    "threads": (loops.run_threads, 20),
    "workers": (loops.run_workers, 6),
    "explorer": (pages.run, 200),
    "environments": (worlds.run_wrappers, 100),
    "rounds": (worlds.run_rounds, 4),
}


def run_part(name: str, scale: float, seed: int) -> Tally:
    torch.set_num_threads(1)
    part, full = PARTS[name]
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        part(tally, max(1, round(scale * full)), random.Random(f"{seed}/{name}"), Path(folder, name))
    tally.peak_memory = children_peak()
    return tally
