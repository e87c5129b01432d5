"""Evaluate saved models: held-out measures and rollouts of a run folder or of a model shipped with the package."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import torch
from torch import Tensor

from tdvae import saved
from tdvae.checks import LONGEST_JUMP, Range, Samples, Seed, checked
from tdvae.distributions import Categorical
from tdvae.errors import InputError
from tdvae.experiments.registry import kind_of_run
from tdvae.reporting.results import Measures, finite_numbers, results
from tdvae.reporting.tables import Block, Table, show
from tdvae.rollouts import belief_at, rollout
from tdvae.saved import SavedModel
from tdvae.storage.files import to_json
from tdvae.training.config import derive_seed
from tdvae.types import Sequences

Jump = Annotated[int, Range(1, LONGEST_JUMP)]


class RunKind(Protocol):
    """Evaluates runs of one kind: those of one experiment, or those of `tdvae fit`."""

    @property
    def paper(self) -> Measures: ...

    def evaluate(self, found: SavedModel, seed: int) -> Measures: ...

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]: ...

    def held_out(self, found: SavedModel, seed: int) -> Sequences: ...


@checked
def evaluate_saved(run_or_name: str, seed: Seed, as_json: bool) -> None:
    """Print the measures of a saved model on held-out data drawn with ``seed``."""
    begin = time.monotonic()
    found = saved.load_saved(run_or_name)
    kind = _run_kind(found)
    measures, preset = kind.evaluate(found, seed), found.info.get("preset", "own")
    content = results(found.info["experiment"], preset, [seed], time.monotonic() - begin, [measures], kind.paper)
    if as_json:
        print(to_json(finite_numbers(content)).decode(), end="")
        return
    show(f"{run_or_name} on held-out sequences, seed {seed}", kind.tables_of_run(content))


def _run_kind(found: SavedModel) -> RunKind:
    kind = kind_of_run(str(found.info.get("experiment")))
    if kind is None:
        raise InputError(
            f"run: expected a run of an experiment or of `tdvae fit`, got {found.source}, whose info names neither; "
            "evaluate it from Python"
        )
    return kind


@torch.no_grad()
@checked
def rollout_saved(
    run_or_name: str, start: int, jumps: Sequence[Jump], samples: Samples, seed: Seed, as_json: bool
) -> None:
    """Print quantiles of a saved model's predictions after each jump, and the observation where there is one."""
    found = saved.load_saved(run_or_name)
    sequence = _run_kind(found).held_out(found, seed)
    length = int(sequence.lengths[0])
    if not 0 <= start <= length:
        raise InputError(f"--from: expected between 0 and {length} (the length of the sequence), got {start}")
    torch.manual_seed(derive_seed(seed))
    rows = _summarise_futures(sequence, start, jumps, _sample_futures(found, sequence, start, jumps, samples))
    if as_json:
        print(to_json(finite_numbers(rows)).decode(), end="")
        return
    quantity = "x" if sequence.x[0, 0].numel() == 1 else "first number of x"
    show(f"{run_or_name}: {quantity} in {samples} futures after t = {start}", [_table(rows)])


def _sample_futures(found: SavedModel, sequence: Sequences, start: int, jumps: Sequence[int], samples: int) -> Tensor:
    """Sample the first dimension of x after each jump: (jumps, samples)."""
    belief = belief_at(found.model, sequence, start)
    actions = None
    if sequence.actions is not None:
        length = int(sequence.lengths[0])
        if start + sum(jumps) > length:
            raise InputError(
                f"--jumps: expected to end by step {length}, the last with known actions, got {start + sum(jumps)}"
            )
        actions = sequence.actions[:, start : start + sum(jumps)]
    decoded = found.model.decode(rollout(found.model, found.model.sample_state(belief, samples), jumps, actions))
    if isinstance(decoded, Categorical):
        raise InputError(
            "run: expected a model of numeric observations, got one of classes; use tdvae.rollout in Python"
        )
    return decoded.sample()[:, :, 0].flatten(2)[..., 0]


def _summarise_futures(sequence: Sequences, start: int, jumps: Sequence[int], futures: Tensor) -> list[dict[str, Any]]:
    """Return for each jump its time step, quantiles of the samples, and the observation if there is one."""
    quantiles = torch.quantile(futures, torch.tensor([0.05, 0.5, 0.95]), dim=1)
    rows = []
    time_step = start
    for index, jump in enumerate(jumps):
        time_step += jump
        observed = time_step <= int(sequence.lengths[0])
        rows.append(
            {
                "t": time_step,
                "jump": jump,
                "low": float(quantiles[0, index]),
                "median": float(quantiles[1, index]),
                "high": float(quantiles[2, index]),
                "observed": float(sequence.x[0, time_step - 1].flatten()[0]) if observed else None,
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
