"""The commands `tdvae fit` and `tdvae forecast`: prepare, train and evaluate, and say what is done."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tdvae.errors import InputError
from tdvae.forecasting.choice import FOLDER, Candidates, candidates
from tdvae.forecasting.forecaster import Forecaster, check_output
from tdvae.forecasting.gaps import takes_gaps
from tdvae.forecasting.own_data import evaluate, origins, tables
from tdvae.forecasting.preparation import OwnData, prepare
from tdvae.forecasting.recipe import Recipe, recipe
from tdvae.reporting.results import finite_numbers, results
from tdvae.reporting.tables import show
from tdvae.saved import load
from tdvae.storage import RunFolder
from tdvae.storage.files import to_json
from tdvae.storage.run_folder import check_unused, create
from tdvae.training import FitResult


@dataclass(frozen=True)
class Options:
    """The options of `tdvae fit`: arguments of `prepare` and of `recipe` or `candidates`, and how to train."""

    columns: dict[str, Any]
    preparation: dict[str, Any]
    recipe: dict[str, Any]
    seed: int = 0
    devices: int = 1
    nodes: int = 1
    tensorboard: bool = False


def fit_file(file: Path, options: Options, run_dir: Path, resume: bool) -> None:
    """Fit a model to a file, and print what was read, what is trained, how long it takes, and how good it is."""
    speaks = int(os.environ.get("RANK", "0")) == 0  # the first process speaks for all
    if not resume:
        check_unused(run_dir)  # before the file is read, which may take long
    own = prepare(file, **options.columns, **options.preparation, seed=options.seed)
    made = _candidates(own, options, run_dir if resume else None)
    if not resume:
        create(run_dir)  # before the time of a step is measured
    if speaks and not resume:
        print("\n".join([f"{file.name}: {own.split}", *own.notes]))
        print(_outlook(made, own, timed=options.devices * options.nodes == 1), flush=True)
    result = made.fit(own, run_dir=run_dir, resume=resume)
    if not speaks:
        return
    if len(made.recipes) > 1:
        print(_choice(run_dir, result))
    if result.steps < next(iter(made.recipes.values())).config.steps:
        chosen_by = "loss" if own.encoding.kind == "picture" else "forecasts"
        print(
            f"stopped early at step {result.steps}: no better {chosen_by} of the validation part since step "
            f"{result.best_step}"
        )
    if result.finished.get("improved") == 0:
        print(
            "training did not clearly improve the forecasts of the validation part, so the model is the linear "
            "regression that it started from"
        )
    print("\n".join(_judge(own, file.name, run_dir, options.seed)))
    print(f"the run is in {run_dir}; forecast with: tdvae forecast {run_dir} --data FILE --steps 1,{own.longest_jump}")
    middle = own.test.context or int(own.test.sequences.lengths.min()) // 2
    print(f"see a held-out sequence with: tdvae rollout {run_dir} --from {middle} --jumps 1,1")


def _judge(own: OwnData, name: str, run_dir: Path, seed: int) -> list[str]:
    """Evaluate a run on held-out data, print the tables, and write results.json and the figure to its folder."""
    begin, model = time.monotonic(), load(run_dir)
    evaluation = evaluate(model, own.history, own.test, own.longest_jump, seed, own.season)
    content = results("fit", "own data", [seed], time.monotonic() - begin, [evaluation.with_differences()], {})
    show(f"{name}: forecasts of held-out sequences", tables(content["measures"]))
    folder = RunFolder(run_dir)
    folder.write_file("results.json", to_json(finite_numbers(content)))
    written = [f"wrote {run_dir / 'results.json'}"]
    if "crps" in evaluation.measures:
        from tdvae.forecasting.figure import draw

        picture = draw(
            evaluation,
            model,
            own.test.sequences,
            origins(own.test, own.longest_jump),
            f"{name}: forecasts of held-out sequences",
            own.encoding,
        )
        folder.write_file("forecasts.png", picture)
        written.append(f"wrote {run_dir / 'forecasts.png'}")
    return written


def _candidates(own: OwnData, options: Options, resumed: Path | None) -> Candidates:
    """What is trained: a recipe for each state, or for the one that was asked for."""
    settings: dict[str, Any] = {**options.recipe, "seed": options.seed}
    if resumed is not None and settings.get("minutes") is not None:
        settings |= {"minutes": None, "steps": _steps_of(resumed)}  # as chosen when the run was started
    state = settings.pop("state")
    if state == "auto" and options.devices * options.nodes == 1:
        made = candidates(own, **settings)
    else:
        one = recipe(own, state=None if state == "auto" else state, **settings)
        made = Candidates({one.state: one})

    def on_devices(each: Recipe) -> Recipe:
        config = replace(each.config, devices=options.devices, nodes=options.nodes, tensorboard=options.tensorboard)
        return replace(each, config=config)

    return Candidates({kind: on_devices(each) for kind, each in made.recipes.items()})


def _steps_of(run: Path) -> int:
    """The number of training steps of a run, or of the first of its candidates."""
    runs = [run, *sorted((run / FOLDER).glob("*"))]
    try:
        started = next((folder for folder in map(RunFolder, runs) if folder.has_run), RunFolder(run))
        return int(started.read_config()["train"]["steps"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"run_dir: expected a run to resume, got {run} ({error!r})") from error


def _outlook(made: Candidates, own: OwnData, timed: bool) -> str:
    """The models, their sizes, and how long the training will take."""
    texts, seconds = [], 0.0
    for kind, each in made.recipes.items():
        texts.append(f"{each.describe()}, {each.config.steps:,} training steps")
        if len(made.recipes) > 1:
            texts[-1] = f"state {kind}: {texts[-1]}"
        seconds += each.seconds_per_step(own) * each.config.steps if timed else 0.0
    if len(texts) > 1:
        texts.append("the one with the best forecasts of the validation part is kept; --state trains only one")
    if timed:
        minutes = seconds / 60
        texts[-1] += f": about {minutes:.0f} minutes" if minutes >= 1.5 else f": about {seconds:.0f} seconds"
    return "\n".join(texts)


def _choice(run_dir: Path, result: FitResult) -> str:
    """Which of the candidates was kept."""
    kept = RunFolder(run_dir).read_config()["info"]["state"]
    prefix = "candidate/"
    found = [f"{k.removeprefix(prefix)} {v:.3f}" for k, v in result.finished.items() if k.startswith(prefix)]
    return f"kept the state {kept}; NLL of the validation part, nats per dimension: {', '.join(found)}"


def forecast_file(
    run: Path, data: Path, steps: Sequence[int], out: Path, quantiles: Sequence[float], samples: int, seed: int
) -> None:
    """Forecast what follows the data of a file, and write it to a new file."""
    check_output(out)
    forecaster = Forecaster.load(run)
    forecasts = forecaster.forecast(data, steps, quantiles, samples, seed)
    forecasts.write(out)
    missing = sum(int(np.isnan(each).sum()) for each in forecasts.series.x if each.dtype.kind == "f")
    if missing and not takes_gaps(forecaster.model):
        print(
            f"{missing} missing number(s): replaced by the model's own forecasts of one step, since its training data "
            "had none"
        )
    print(
        f"{out}: {len(forecasts.series)} sequence(s), {len(steps)} step(s) ahead, {len(forecasts.channels)} channel(s)"
    )
