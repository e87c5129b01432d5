"""The choice of the state: candidates are trained one after the other, and forecasts of the validation part choose.

No state is best on all data. The linear start suits a few hundred numbers, but with many it hinders the training of
the latent state. Where single observations are very noisy, a model whose state contains them learns to rely on them
and not to filter. Short trials do not show which will be best: the linear start is ahead at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from tdvae.checks import NonNegative, Positive, PositiveNumber, Seed, check_fields, checked
from tdvae.errors import InputError
from tdvae.forecasting.preparation import OwnData
from tdvae.forecasting.recipe import PATIENCE, Recipe, StateKind, recipe
from tdvae.storage import RunFolder, files
from tdvae.storage.run_folder import check_unused, create, locked
from tdvae.training import FitResult
from tdvae.training.log import Progress

FOLDER, SCORES_FILE = "candidates", "candidates.json"  # in a run folder


@dataclass(frozen=True)
class Candidates:
    """Recipes that differ in the state of their model, by its kind; `candidates` makes them.

    >>> import numpy as np, tdvae
    >>> made = tdvae.candidates(tdvae.prepare(np.random.randn(50, 300), longest_jump=5))
    >>> list(made.recipes)
    ['observed', 'latent']
    """

    recipes: Mapping[StateKind, Recipe]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.recipes:
            raise InputError("recipes: expected at least one, got none")

    @checked
    def fit(
        self,
        data: OwnData,
        run_dir: str | Path = "runs/own",
        resume: bool = False,
        info: dict[str, Any] | None = None,
        progress: Progress = "bar",
    ) -> FitResult:
        """Train every recipe with `Recipe.fit`; the run with the best forecasts of the validation part is kept.

        Until then each has its own folder in ``run_dir``. ``finished`` of the result has the NLL of each candidate
        per dimension, ``candidate/KIND``, if there were several.
        """
        folder = RunFolder(run_dir)
        if len(self.recipes) == 1:
            return next(iter(self.recipes.values())).fit(data, None, folder.path, resume, info, progress)
        if folder.has_run and resume:  # the choice has been made
            kind = folder.read_config()["info"].get("state")
            if kind not in self.recipes:
                raise InputError(f"resume: expected a run with one of the states {list(self.recipes)}, got {kind!r}")
            result = self.recipes[kind].fit(data, None, folder.path, resume, info, progress)
        else:
            result = self._train(folder, data, resume, info, progress)
        files.remove(folder.path / FOLDER)
        found = files.read_checked(folder.path / SCORES_FILE, ("nll", "seconds"))
        scores = {f"candidate/{kind}": value for kind, value in found["nll"].items()}
        return replace(result, run_dir=folder.path, seconds=found["seconds"], finished={**result.finished, **scores})

    def _train(
        self, folder: RunFolder, data: OwnData, resume: bool, info: dict[str, Any] | None, progress: Progress
    ) -> FitResult:
        """Train all in subfolders, or resume them; copy the best run to ``folder``."""
        subfolders = {kind: RunFolder(folder.path / FOLDER / kind) for kind in self.recipes}
        if not resume:
            check_unused(folder.path)
        elif not any(sub.has_run for sub in subfolders.values()):
            raise InputError(f"run_dir: expected a run to resume, got {folder.path}, which has none")
        create(folder.path)
        with locked(folder.path):
            results = {
                kind: made.fit(data, None, subfolders[kind].path, subfolders[kind].has_run, info, progress)
                for kind, made in self.recipes.items()
            }
            best, nll = self._best(data)
            seconds = [each.seconds for each in results.values() if each.seconds is not None]
            total = round(sum(seconds), 1) if len(seconds) == len(results) else None
            files.write_checked(folder.path / SCORES_FILE, {"nll": nll, "seconds": total})
            folder.copy_from(subfolders[best])
        return results[best]

    def _best(self, data: OwnData) -> tuple[StateKind, dict[StateKind, float]]:
        """The kind with the lowest NLL of the validation forecasts, and the NLL of all, per dimension."""
        nll: dict[StateKind, float] = {}
        size = data.history.x[0, 0].numel()
        for kind, made in self.recipes.items():
            scores = made.monitor(data.validated).scores()
            if scores is not None:
                nll[kind] = round(float(scores.mean()) / size, 4)
        best = min(nll, key=lambda kind: nll[kind]) if nll else next(iter(self.recipes))
        return best, nll


@checked
def candidates(
    data: OwnData,
    steps: Positive = 10_000,
    seed: Seed = 0,
    minutes: PositiveNumber | None = None,
    patience: NonNegative = PATIENCE,
    batch_size: Positive | None = None,
    **model_options: Any,
) -> Candidates:
    """What `tdvae fit` trains: a recipe for each state that may suit the data.

    With few numbers this is the linear start alone, and so it is for categorical data and pictures, and if a model
    option determines the state. The arguments are those of `tdvae.recipe`. Each candidate is trained for so many
    ``steps``; ``minutes`` are for all together.

    >>> import numpy as np, tdvae
    >>> data = tdvae.prepare(np.random.randn(40, 30), longest_jump=5)
    >>> made = tdvae.candidates(data, steps=5, latent=2)
    >>> result = made.fit(data, run_dir="runs/best", progress="none")
    >>> result.steps
    5
    """
    vectors = data.history.x.is_floating_point() and data.history.x.ndim == 3
    one = recipe(data, None, steps, seed, None, patience, batch_size, **model_options).state
    several = vectors and not model_options.keys() & {"state", "decoder"}
    kinds: tuple[StateKind, ...] = get_args(StateKind) if several else (one,)
    budget = None if minutes is None else minutes / len(kinds)
    return Candidates(
        {
            kind: recipe(data, None, steps, seed, budget, patience, batch_size, state=kind, **model_options)
            for kind in kinds
        }
    )
