"""The parts of the campaign, each run in a process of its own."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from tests.campaign import api, commands, damage, kills
from tests.campaign.outcome import Tally

Part = Callable[[Tally, int, random.Random, Path], None]
PARTS: dict[str, tuple[Part, int]] = {  # with the number of cases
    "kills": (kills.run, 200),
    "damaged_files": (damage.run, 1_000),
    "api_calls": (api.run, 10_000),
    "command_lines": (commands.run, 300),
}


def run_part(name: str, scale: float, seed: int) -> Tally:
    torch.set_num_threads(1)
    part, full = PARTS[name]
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        part(tally, max(1, round(scale * full)), random.Random(f"{seed}/{name}"), Path(folder, name))
    return tally
