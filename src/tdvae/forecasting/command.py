"""The commands `tdvae fit` and `tdvae forecast`: prepare, train and evaluate, and say what is done."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tdvae.forecasting.evaluation import evaluation_origins
from tdvae.forecasting.fitting import fit_forecaster, recipe
from tdvae.forecasting.forecaster import Forecaster
from tdvae.forecasting.forecasts import check_output, check_plot
from tdvae.forecasting.own_data import details, evaluate_run, kept, measures_of, tables
from tdvae.forecasting.predictors import takes_gaps
from tdvae.forecasting.preparation import OwnData, prepare
from tdvae.reporting.results import finite_numbers, results
from tdvae.reporting.tables import show
from tdvae.storage import RunFolder
from tdvae.storage.files import to_json, write_file
from tdvae.storage.run_folder import check_unused, create, remove_run
from tdvae.training.loop import check_accelerator


def fit_file(
    file: Path,
    preparation: dict[str, Any],
    fit: dict[str, Any],
    settings: dict[str, Any],
    seed: int,
    run_dir: Path,
    resume: bool,
    overwrite: bool,
    verbose: bool,
) -> None:
    """Fit a forecaster to a file, and print what was read, what is trained and how good it is.

    ``preparation`` are arguments of `prepare`, ``fit`` those of `fit_forecaster`, ``settings`` of the training.
    """
    first = int(os.environ.get("RANK", "0")) == 0  # only rank 0 prints
    if not resume and not overwrite:
        check_unused(run_dir)  # before the file is read, which may take long
    own = prepare(file, **preparation, seed=seed)
    chosen = {name: value for name, value in fit.items() if name not in ("minutes", "networks")}
    recipe(own, seed=seed, **chosen)  # refuses what does not fit before anything is said or written
    check_accelerator(settings["accelerator"])
    if overwrite and first:
        remove_run(run_dir)
    if not resume:
        create(run_dir)
    if first and not resume:
        print("\n".join([f"{file.name}: {own.split}", *own.notes]), flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what is kept is printed below
        forecaster = fit_forecaster(own, run_dir, seed=seed, resume=resume, settings=settings, **fit)
    if not first:
        return
    print("\n".join(_summary(forecaster)))
    print("\n".join(_judge(forecaster, f"{file.name}: forecasts of {tested(own)}", run_dir, seed, verbose)))
    print(f"forecast with: tdvae forecast {run_dir} --data FILE --horizon 1-{own.longest_jump} --plot forecast.png")
    print(f"see single jumps with: tdvae rollout {run_dir} --from {_middle(own)} --horizon {own.longest_jump}")


def tested(own: OwnData) -> str:
    """What the test part is."""
    return "later steps" if own.test.context else "held-out sequences"


def _middle(own: OwnData) -> int:
    return own.test.context or int(own.test.sequences.lengths.min()) // 2


def _summary(forecaster: Forecaster) -> list[str]:
    """What was trained, and what is kept of it."""
    info = forecaster.info or {}
    trained = ", ".join(f"{name} {steps:,} of {info['steps'][name]:,}" for name, steps in info["trained"].items())
    lines = [f"training steps: {trained}; {info['cpu_seconds']:.0f} seconds of processor time"]
    if forecaster.stack is not None:
        lines.append(f"kept: {kept(forecaster.kept)}")
        lines.append(f"tdvae.load returns the TD-VAE with the largest weight: {info['main']}")
    return lines


def _judge(forecaster: Forecaster, title: str, run_dir: Path, seed: int, verbose: bool) -> list[str]:
    """Evaluate a run on its test part, print the scores, and write results.json and the figure to its folder."""
    begin = time.monotonic()
    evaluation = evaluate_run(forecaster, seed)
    measures = measures_of(evaluation, forecaster.encoding)
    content = results("fit", "own data", [seed], time.monotonic() - begin, [measures], {})
    show(title, [*([details(content["measures"])] if verbose else []), *tables(content["measures"])])
    folder = RunFolder(run_dir)
    folder.write_file("results.json", to_json(finite_numbers(content)))
    written = [f"all scores: {run_dir / 'results.json'}"]
    if forecaster.stack is not None:
        from tdvae.forecasting.evaluation import draw

        data = forecaster.data
        origins = evaluation_origins(data.test, data.longest_jump)
        picture = draw(evaluation, forecaster.stack, data.test.sequences, origins, title, data.encoding)
        folder.write_file("forecasts.png", picture)
        written.append(f"figure: {run_dir / 'forecasts.png'}")
    return written


def forecast_file(
    run: Path,
    data: Path,
    horizon: Sequence[int],
    out: Path,
    quantiles: Sequence[float],
    samples: int,
    seed: int,
    plot: Path | None,
    overwrite: bool,
) -> None:
    """Forecast what follows the data of a file, write it to a new file, and draw it."""
    check_output(out, overwrite)
    if plot is not None:
        check_plot(plot, overwrite)
    forecaster = Forecaster.load(run)
    forecasts = forecaster.forecast(data, horizon, quantiles, samples, seed)
    forecasts.write(out, overwrite)
    missing = sum(int(np.isnan(each).sum()) for each in forecasts.series.x if each.dtype.kind == "f")
    if missing and not takes_gaps(forecaster.model):
        print(
            f"{missing} missing number(s): replaced by the model's own forecasts of one step, since its training data "
            "had none"
        )
    counts = len(forecasts.series), len(horizon), len(forecasts.channels)
    print("{}: {} sequence(s), {} step(s) ahead, {} channel(s)".format(out, *counts))
    if plot is not None:
        write_file(plot, forecasts.draw(plot.suffix[1:].lower()))
        print(f"figure: {plot}")
