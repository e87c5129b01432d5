"""Evaluate saved models: held-out measures and rollouts of a run folder or of a model shipped with the package."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tdvae import forecasting, saved
from tdvae.checks import LONGEST_JUMP, Range, Samples, Seed, checked
from tdvae.distributions import Categorical
from tdvae.errors import InputError
from tdvae.forecasting import forecasts
from tdvae.reporting.results import Measures, finite_numbers, results
from tdvae.reporting.tables import Block, Table, show, significant
from tdvae.rollouts import belief_at, rollout
from tdvae.saved import SavedModel
from tdvae.storage.files import to_json, write_file
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper import registry

Jump = Annotated[int, Range(1, LONGEST_JUMP)]
MOST_SHOWN = 40  # numbers of an observation in a printed rollout, and futures in a plot; the JSON has all
NUMBERS = ("low", "median", "high", "observed")


class SavedRuns(Protocol):
    """Evaluates saved runs: those of one experiment (`ExperimentRuns`), or those of `tdvae fit`."""

    def evaluate(self, found: SavedModel, seed: int, data: Path | None, /) -> Measures: ...

    def tables_of_run(self, content: dict[str, Any]) -> list[Block]: ...

    def details_of_run(self, content: dict[str, Any]) -> list[Block]: ...

    def held_out(self, found: SavedModel, seed: int) -> Sequences: ...

    def channels(self, found: SavedModel) -> Sequence[str]: ...

    def times(self, found: SavedModel, seed: int) -> Callable[[int], str] | None: ...

    def in_units(self, found: SavedModel, x: Tensor) -> npt.NDArray[Any]: ...


@checked
def evaluate_saved(
    run_or_name: str, seed: Seed, as_json: bool, data: Path | None = None, verbose: bool = False
) -> None:
    """Print the measures of a saved model on test data drawn with ``seed``, or on a file like its training data."""
    begin = time.monotonic()
    found = saved.load_saved(run_or_name)
    runs = _runs_of(found)
    measures = runs.evaluate(found, seed, data)
    preset = found.info.get("preset", "own")
    content = results(found.info["experiment"], preset, [seed], time.monotonic() - begin, [measures], {})
    if as_json:
        print(to_json(finite_numbers(content)).decode(), end="")
        return
    what = "its test data" if data is None else data.name
    blocks = [*(runs.details_of_run(content) if verbose else []), *runs.tables_of_run(content)]
    show(f"{run_or_name} on {what}, seed {seed}", blocks)


def _runs_of(found: SavedModel) -> SavedRuns:
    """What evaluates a saved model, by the name of the experiment in its info."""
    name = str(found.info.get("experiment"))
    command = name.replace("_", "-")
    if name == "fit":
        return forecasting.RUNS
    if command not in registry.EXPERIMENTS:
        raise InputError(
            f"run: expected a run of an experiment or of `tdvae fit`, got {found.source}, whose info names neither; "
            "evaluate it from Python"
        )
    runs = registry.load(command).runs
    if runs is None:
        raise InputError(
            f"run: expected a run that can be evaluated on its own, got {found.source} of {name}, "
            f"which `tdvae run {command}` evaluates; open it with tdvae.load"
        )
    return runs


@torch.no_grad()
@checked
def rollout_saved(
    run_or_name: str,
    start: int,
    horizon: Sequence[Jump],
    samples: Samples,
    seed: Seed,
    as_json: bool,
    plot: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Print quantiles of a saved model's predictions at each horizon, and the observation where there is one.

    A jump leads from each horizon to the next.
    """
    jumps = np.diff([0, *horizon]).tolist()
    if min(jumps) < 1:
        raise InputError(f"--horizon: expected increasing numbers of steps from 1 on, got {list(horizon)}")
    if plot is not None:
        forecasts.check_plot(plot, overwrite)
    found = saved.load_saved(run_or_name)
    runs = _runs_of(found)
    sequence = runs.held_out(found, seed)
    length = int(sequence.lengths[0])
    if not 0 <= start <= length:
        raise InputError(f"--from: expected between 0 and {length} (the length of the sequence), got {start}")
    torch.manual_seed(derive_seed(seed))
    futures = runs.in_units(found, _sample_futures(found, sequence, start, jumps, samples))
    observed = runs.in_units(found, _with_gaps(sequence)[0, :length])
    rows = _summarise_futures(runs.channels(found), start, jumps, futures, observed)
    if time := runs.times(found, seed):
        rows = [{"t": row.pop("t"), "time": time(row_t), **row} for row in rows for row_t in [row["t"]]]
    if plot is not None:
        write_file(plot, _drawn(futures, observed, start, horizon, runs.channels(found)[0], plot.suffix[1:].lower()))
    if as_json:
        print(to_json(finite_numbers(rows)).decode(), end="")
        return
    numbers = len(rows) // len(jumps)
    shown = [row for number, row in enumerate(rows) if number % numbers < MOST_SHOWN]
    what = ", ".join(dict.fromkeys(row["channel"] for row in shown)) if numbers <= 4 else f"{numbers} numbers"
    what = what if numbers <= MOST_SHOWN else f"the first {MOST_SHOWN} of {what}"
    show(f"{run_or_name}: {what} in {samples} futures after t = {start}", [_table(shown)])


def _with_gaps(sequence: Sequences) -> Tensor:
    """x, with NaN where an observation is missing."""
    observed: Tensor | None = getattr(sequence, "observed", None)
    return sequence.x if observed is None else torch.where(observed, sequence.x, torch.nan)


def _sample_futures(found: SavedModel, sequence: Sequences, start: int, jumps: Sequence[int], samples: int) -> Tensor:
    """Sample x after each jump: (jumps, samples, *event)."""
    belief = belief_at(found.model, sequence, start)
    actions = None
    if sequence.actions is not None:
        length = int(sequence.lengths[0])
        if start + sum(jumps) > length:
            raise InputError(
                f"--horizon: expected at most {length - start} steps, the last with known actions, got {sum(jumps)}"
            )
        actions = sequence.actions[:, start : start + sum(jumps)]
    decoded = found.model.decode(rollout(found.model, found.model.sample_state(belief, samples), jumps, actions))
    if isinstance(decoded, Categorical):
        raise InputError(
            "run: expected a model of numeric observations, got one of classes; use tdvae.rollout in Python"
        )
    return decoded.sample()[:, :, 0]


def _summarise_futures(
    channels: Sequence[str], start: int, jumps: Sequence[int], futures: npt.NDArray[Any], observed: npt.NDArray[Any]
) -> list[dict[str, Any]]:
    """For each jump and channel the time step, quantiles of the samples, and the observation if there is one."""
    futures, seen = futures.reshape(*futures.shape[:2], -1), observed.reshape(len(observed), -1)
    names = list(channels) if len(channels) == futures.shape[2] else [f"x_{n}" for n in range(futures.shape[2])]
    quantiles = np.quantile(futures, [0.05, 0.5, 0.95], axis=1)
    rows = []
    for index, time_step in enumerate(start + np.cumsum(jumps)):
        for channel, name in enumerate(names):
            value = seen[time_step - 1, channel] if time_step <= len(seen) else np.nan
            rows.append(
                {
                    "t": int(time_step),
                    "jump": jumps[index],
                    "channel": name,
                    **{key: float(quantiles[i, index, channel]) for i, key in enumerate(("low", "median", "high"))},
                    "observed": None if np.isnan(value) else float(value),
                }
            )
    return rows


def _table(rows: list[dict[str, Any]]) -> Table:
    """One row per jump and channel; the channel is left out if there is one only."""
    several = len({row["channel"] for row in rows}) > 1
    labels = ["t", *(["time"] if "time" in rows[0] else []), "jump", *(["channel"] if several else [])]
    cells = []
    for row in rows:
        width = min(each["high"] - each["low"] for each in rows if each["channel"] == row["channel"])
        numbers = ["" if row[key] is None else significant(row[key], width) for key in NUMBERS]
        cells.append([*[str(row[label]) for label in labels], *numbers])
    return Table([*labels, "5 %", "median", "95 %", "observed"], cells)


def _drawn(
    futures: npt.NDArray[Any],
    observed: npt.NDArray[Any],
    start: int,
    horizon: Sequence[int],
    name: str,
    kind: str,
) -> bytes:
    """The first number of the observations before and after the start, and that of the futures; a picture file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axis = figure.subplots()
    seen = observed.reshape(len(observed), -1)[: start + max(horizon), 0]
    steps = np.arange(1, len(seen) + 1)
    lines = futures.reshape(*futures.shape[:2], -1)[:, :MOST_SHOWN, 0]
    axis.plot(start + np.array(horizon), lines, "." if len(horizon) == 1 else "-", color="C0", alpha=0.25, lw=1)
    axis.plot([], [], color="C0", label="possible futures")
    axis.plot(steps[:start], seen[:start], "k.", ms=4, label="observed")
    axis.plot(steps[start:], seen[start:], ".", color="0.6", ms=4, label="what followed")
    axis.axvline(start + 0.5, color="C1", lw=1)
    axis.set(xlabel="time step", ylabel=name)
    axis.legend(ncols=3, fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=130)
    return content.getvalue()
