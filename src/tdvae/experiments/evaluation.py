"""Trained models under the lens: held-out measures and rollouts, for a run of any kind or a shipped model."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from tdvae import saved
from tdvae.data import mnist
from tdvae.distributions import Categorical
from tdvae.errors import InputError
from tdvae.experiments import first_person, minipacman, moving_mnist, oscillator, own_data
from tdvae.experiments.report import Measures, results, show_flat, show_table
from tdvae.rollouts import belief_at, rollout
from tdvae.training import checkpoint
from tdvae.training.config import derive_seed
from tdvae.types import Sequences

OTHERS = (minipacman.NAME, first_person.NAME)  # need more than one model to be measured


def evaluate_saved(run_or_name: str, seed: int, as_json: bool) -> None:
    """Print a saved model's measures on held-out data drawn from ``seed``."""
    begin = time.monotonic()
    if seed < 0:
        raise InputError(f"seed: expected at least 0, got {seed}")
    found = saved.load_saved(run_or_name)
    measures, names, paper = _measure(found, seed)
    preset = found.info.get("preset", "own")
    content = results(found.info["experiment"], preset, [seed], time.monotonic() - begin, [measures], paper)
    if as_json:
        print(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    elif found.info["experiment"] == moving_mnist.NAME:
        show_flat(f"{run_or_name} on test digits, seed {seed}", content["measures"], names)
    else:
        show_table(f"{run_or_name} on held-out sequences, seed {seed}", content["measures"], names)


def _measure(found: saved.SavedModel, seed: int) -> tuple[Measures, dict[str, str], Measures]:
    if found.info.get("experiment") == oscillator.NAME:
        settings, n = oscillator.settings_of(found.info), found.info["test_sequences"]
        return oscillator.evaluate(found.model, settings, n, seed), oscillator.TABLE, oscillator.PAPER
    if found.info.get("experiment") == moving_mnist.NAME:
        preset, given_dt = moving_mnist.PRESETS[found.info["preset"]], found.info["given_dt"]
        test, network = moving_mnist.held_out(preset, seed), moving_mnist.judge_of(preset, _judge_folder(found))
        measures = moving_mnist.evaluate(found.model, test, network, preset.samples, given_dt, seed)
        return measures, {name: label for name, label in moving_mnist.TABLE.items() if name in measures}, {}
    measures = own_data.evaluate(found.model, own_data.OwnData.from_info(_own_info(found)), seed)
    return measures, {name: label for name, label in own_data.TABLE.items() if name in measures}, {}


def _judge_folder(found: saved.SavedModel) -> Path:
    """Where the digit classifier is kept: beside the run it judged, else in the cache."""
    beside = Path(found.source).parent / "classifier"
    if (beside / checkpoint.MANIFEST).exists():
        return beside
    return mnist.default_folder().parent / f"classifier-{found.info['preset']}"


def _own_info(found: saved.SavedModel) -> dict[str, Any]:
    experiment = str(found.info.get("experiment"))
    if experiment in OTHERS:
        command = f"tdvae run {experiment.replace('_', '-')}"
        raise InputError(
            f"run: {found.source} is one of {experiment}'s, which `{command}` measures; tdvae.load opens it"
        )
    if experiment != own_data.NAME:
        raise InputError(f"run: {found.source} does not say which data it was trained on; evaluate it from Python")
    return found.info


def _held_out(found: saved.SavedModel, seed: int) -> Sequences:
    """One sequence the model has not seen."""
    if found.info.get("experiment") == oscillator.NAME:
        return oscillator.held_out(oscillator.settings_of(found.info), 1, seed)
    test = own_data.OwnData.from_info(_own_info(found)).parts()[2]
    return test.select(torch.tensor([seed % len(test)]))


@torch.no_grad()
def rollout_saved(run_or_name: str, start: int, jumps: list[int], samples: int, seed: int, as_json: bool) -> None:
    """Print what a saved model predicts after each jump, beside what happened where that is known."""
    for name, value, least in (("samples", samples, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name}: expected at least {least}, got {value}")
    found = saved.load_saved(run_or_name)
    if found.info.get("experiment") == moving_mnist.NAME:
        raise InputError(
            "rollout: prints numbers, and this model's observations are pictures; use tdvae.rollout in Python"
        )
    sequence = _held_out(found, seed)
    length = int(sequence.lengths[0])
    if not 0 <= start <= length:
        raise InputError(f"--from: expected between 0 and {length}, the sequence's length, got {start}")
    if any(jump < 1 for jump in jumps):
        raise InputError(f"--jumps: expected lengths of at least 1 step, got {jumps}")
    torch.manual_seed(derive_seed(seed))
    belief = belief_at(found.model, sequence, start)
    actions = None
    if sequence.actions is not None:
        if start + sum(jumps) > length:
            raise InputError(f"jumps: actions are known up to step {length}, the jumps reach {start + sum(jumps)}")
        actions = sequence.actions[:, start : start + sum(jumps)]
    decoded = found.model.decode(rollout(found.model, found.model.sample_state(belief, samples), jumps, actions))
    if isinstance(decoded, Categorical):
        raise InputError(
            "rollout: prints numbers, and this model's observations are classes; use tdvae.rollout in Python"
        )
    draws = decoded.sample()[:, :, 0].flatten(2)[..., 0]  # (jumps, samples): the first dimension of x
    quantiles = torch.quantile(draws, torch.tensor([0.05, 0.5, 0.95]), dim=1)
    rows = []
    time_step = start
    for index, jump in enumerate(jumps):
        time_step += jump
        known = time_step <= length
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
    shown = "x" if sequence.x[0, 0].numel() == 1 else "first number of x"
    _print_rows(rows, f"{run_or_name}: {shown} in {samples} futures after t = {start}", as_json)


def _print_rows(rows: list[dict[str, Any]], title: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("t", "jump", "5 %", "median", "95 %", "observed", title=title, title_justify="left")
    for row in rows:
        numbers = [f"{row[key]:.3f}" for key in ("low", "median", "high")]
        observed = "" if row["observed"] is None else f"{row['observed']:.3f}"
        table.add_row(str(row["t"]), str(row["jump"]), *numbers, observed)
    Console().print(table)
