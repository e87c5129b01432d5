"""The commands `tdvae fit` and `tdvae forecast`: prepare, train and evaluate, and say what is done."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tdvae.forecasting.evaluation import evaluation_origins
from tdvae.forecasting.fitting import fit_forecaster, recipe
from tdvae.forecasting.forecaster import Forecaster
from tdvae.forecasting.forecasts import check_output
from tdvae.forecasting.own_data import evaluate_run, tables
from tdvae.forecasting.predictors import takes_gaps
from tdvae.forecasting.preparation import OwnData, prepare
from tdvae.reporting.results import finite_numbers, results
from tdvae.reporting.tables import show
from tdvae.storage import RunFolder
from tdvae.storage.files import to_json
from tdvae.storage.run_folder import check_unused, create


@dataclass(frozen=True)
class Options:
    """The options of `tdvae fit`: arguments of `prepare` and of `fit_forecaster`, and how to train."""

    preparation: dict[str, Any]
    fit: dict[str, Any]
    seed: int = 0
    settings: dict[str, Any] | None = None  # of the training: devices, nodes, tensorboard


def fit_file(file: Path, options: Options, run_dir: Path, resume: bool) -> None:
    """Fit a forecaster to a file, and print what was read, what is trained and how good it is."""
    speaks = int(os.environ.get("RANK", "0")) == 0  # only rank 0 prints
    if not resume:
        check_unused(run_dir)  # before the file is read, which may take long
    own = prepare(file, **options.preparation, seed=options.seed)
    chosen = {name: value for name, value in options.fit.items() if name not in ("minutes", "networks")}
    recipe(own, seed=options.seed, **chosen)  # refuses what does not fit before anything is said or written
    if not resume:
        create(run_dir)
    if speaks and not resume:
        print("\n".join([f"{file.name}: {own.split}", *own.notes]), flush=True)
    forecaster = fit_forecaster(
        own, run_dir, seed=options.seed, resume=resume, settings=options.settings, **options.fit
    )
    if not speaks:
        return
    print("\n".join(_summary(forecaster)))
    print("\n".join(_judge(forecaster, file.name, run_dir, options.seed)))
    print(f"the run is in {run_dir}; forecast with: tdvae forecast {run_dir} --data FILE --steps 1,{own.longest_jump}")
    print(f"see a held-out sequence with: tdvae rollout {run_dir} --from {_middle(own)} --jumps 1,1")


def _middle(own: OwnData) -> int:
    return own.test.context or int(own.test.sequences.lengths.min()) // 2


def _summary(forecaster: Forecaster) -> list[str]:
    """What was trained, and how it is combined."""
    info = forecaster.info or {}
    trained = ", ".join(f"{name} {steps:,} of {info['steps'][name]:,}" for name, steps in info["trained"].items())
    lines = [f"training steps: {trained}; {info['cpu_seconds']:.0f} seconds of processor time"]
    if forecaster.stack is not None:
        lines.append(f"weights of the combination: {forecaster.stack.describe()}")
        lines.append(f"tdvae.load returns the TD-VAE with the largest weight: {info['main']}")
    return lines


def _judge(forecaster: Forecaster, name: str, run_dir: Path, seed: int) -> list[str]:
    """Evaluate a run on held-out data, print the tables, and write results.json and the figure to its folder."""
    begin = time.monotonic()
    evaluation = evaluate_run(forecaster, seed)
    content = results("fit", "own data", [seed], time.monotonic() - begin, [evaluation.with_differences()], {})
    show(f"{name}: forecasts of held-out sequences", tables(content["measures"]))
    folder = RunFolder(run_dir)
    folder.write_file("results.json", to_json(finite_numbers(content)))
    written = [f"wrote {run_dir / 'results.json'}"]
    if forecaster.stack is not None:
        from tdvae.forecasting.evaluation import draw

        data = forecaster.data
        origins = evaluation_origins(data.test, data.longest_jump)
        title = f"{name}: forecasts of held-out sequences"
        picture = draw(evaluation, forecaster.stack, data.test.sequences, origins, title, data.encoding)
        folder.write_file("forecasts.png", picture)
        written.append(f"wrote {run_dir / 'forecasts.png'}")
    return written


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
