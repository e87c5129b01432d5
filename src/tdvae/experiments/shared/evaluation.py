"""Evaluate saved models: held-out measures and rollouts, of a run of any kind or a model that ships."""

from __future__ import annotations

import json
import time
from typing import Any, Protocol

import torch
from torch import Tensor

from tdvae import saved
from tdvae.distributions import Categorical
from tdvae.errors import InputError
from tdvae.experiments.registry import kind_of_run
from tdvae.reporting.results import Measures, results
from tdvae.reporting.tables import Block, Table, show
from tdvae.rollouts import belief_at, rollout
from tdvae.saved import SavedModel
from tdvae.training.config import derive_seed
from tdvae.types import Sequences


class RunKind(Protocol):
    """What is known about runs of one kind: an experiment's, or those of `tdvae fit`."""

    @property
    def paper(self) -> Measures: ...

    def evaluate(self, found: SavedModel, seed: int) -> Measures: ...

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]: ...

    def held_out(self, found: SavedModel, seed: int) -> Sequences: ...


def evaluate_saved(run_or_name: str, seed: int, as_json: bool) -> None:
    """Print a saved model's measures on held-out data drawn from ``seed``."""
    begin = time.monotonic()
    if seed < 0:
        raise InputError(f"seed: expected at least 0, got {seed}")
    found = saved.load_saved(run_or_name)
    kind = _kind(found)
    measures, preset = kind.evaluate(found, seed), found.info.get("preset", "own")
    content = results(found.info["experiment"], preset, [seed], time.monotonic() - begin, [measures], kind.paper)
    if as_json:
        print(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
        return
    show(f"{run_or_name} on held-out sequences, seed {seed}", kind.tables_of_run(content))


def _kind(found: SavedModel) -> RunKind:
    kind = kind_of_run(str(found.info.get("experiment")))
    if kind is None:
        raise InputError(f"run: {found.source} does not say which data it was trained on; evaluate it from Python")
    return kind


@torch.no_grad()
def rollout_saved(run_or_name: str, start: int, jumps: list[int], samples: int, seed: int, as_json: bool) -> None:
    """Print what a saved model predicts after each jump, beside what happened where that is known."""
    for name, value, least in (("samples", samples, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name}: expected at least {least}, got {value}")
    found = saved.load_saved(run_or_name)
    sequence = _kind(found).held_out(found, seed)
    length = int(sequence.lengths[0])
    if not 0 <= start <= length:
        raise InputError(f"--from: expected between 0 and {length}, the sequence's length, got {start}")
    if any(jump < 1 for jump in jumps):
        raise InputError(f"--jumps: expected lengths of at least 1 step, got {jumps}")
    torch.manual_seed(derive_seed(seed))
    rows = _rows(sequence, start, jumps, _draws(found, sequence, start, jumps, samples))
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    shown = "x" if sequence.x[0, 0].numel() == 1 else "first number of x"
    show(f"{run_or_name}: {shown} in {samples} futures after t = {start}", [_table(rows)])


def _draws(found: SavedModel, sequence: Sequences, start: int, jumps: list[int], samples: int) -> Tensor:
    """Sampled futures, the first dimension of x after each jump: (jumps, samples)."""
    belief = belief_at(found.model, sequence, start)
    actions = None
    if sequence.actions is not None:
        length = int(sequence.lengths[0])
        if start + sum(jumps) > length:
            raise InputError(f"jumps: actions are known up to step {length}, the jumps reach {start + sum(jumps)}")
        actions = sequence.actions[:, start : start + sum(jumps)]
    decoded = found.model.decode(rollout(found.model, found.model.sample_state(belief, samples), jumps, actions))
    if isinstance(decoded, Categorical):
        raise InputError(
            "rollout: prints numbers, and this model's observations are classes; use tdvae.rollout in Python"
        )
    return decoded.sample()[:, :, 0].flatten(2)[..., 0]


def _rows(sequence: Sequences, start: int, jumps: list[int], draws: Tensor) -> list[dict[str, Any]]:
    """For each jump its time, quantiles of the draws, and the observation if there is one."""
    quantiles = torch.quantile(draws, torch.tensor([0.05, 0.5, 0.95]), dim=1)
    rows = []
    time_step = start
    for index, jump in enumerate(jumps):
        time_step += jump
        known = time_step <= int(sequence.lengths[0])
        rows.append(
            {
                "t": time_step,
                "jump": jump,
                "low": float(quantiles[0, index]),
                "median": float(quantiles[1, index]),
                "high": float(quantiles[2, index]),
                "observed": float(sequence.x[0, time_step - 1].flatten()[0]) if known else None,
            }
        )
    return rows


def _table(rows: list[dict[str, Any]]) -> Table:
    cells = []
    for row in rows:
        numbers = [f"{row[key]:.3f}" for key in ("low", "median", "high")]
        observed = "" if row["observed"] is None else f"{row['observed']:.3f}"
        cells.append([str(row["t"]), str(row["jump"]), *numbers, observed])
    return Table(["t", "jump", "5 %", "median", "95 %", "observed"], cells)
