"""The world model of an agent: the recipe of `tdvae fit`, for episodes of any length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tdvae.checks import Positive, Seed, checked
from tdvae.forecasting.fitting.recipes import NetworkKind, recipe
from tdvae.jumps import SemiGradient, WithinSequence
from tdvae.models import Model, NextStep
from tdvae.models.defaults import standardise
from tdvae.saved import load
from tdvae.storage import RunFolder
from tdvae.storage.run_folder import create
from tdvae.training import fit
from tdvae.training.log import Progress
from tdvae.types import Sequences

PAIRS = 16  # of a sequence in each training step
PREDICTOR, MODEL = "predictor", "model"  # folders of a run


@checked
def fit_model(
    data: Sequences,
    run_dir: str | Path,
    longest_jump: Positive,
    steps: Positive,
    seed: Seed,
    kind: NetworkKind = "latent",
    before: Path | None = None,
    progress: Progress = "none",
    **options: Any,
) -> Model:
    """Train a model on episodes; a training that was interrupted goes on. ``before`` is a run to start from.

    The belief network of a TD-VAE is that of a next-step predictor, and stays so: trained by Eq. 6 from there on, it
    forgets slow hidden variables, of which short jumps see little. Half of the pairs are consecutive and half are
    jumps, with semi-gradients. A training has no validation: the weights at the end of a cosine schedule are taken.
    """
    run_dir = Path(run_dir)
    create(run_dir)
    known = {name: value for name, value in options.items() if name in ("belief", "batch_size")}
    predictor = _fit(data, run_dir / PREDICTOR, longest_jump, steps, seed, "next_step", before, progress, known)
    if kind == "next_step":
        return predictor
    return _fit(data, run_dir / MODEL, longest_jump, steps, seed, kind, before, progress, options, predictor)


def _fit(
    data: Sequences,
    run_dir: Path,
    longest_jump: int,
    steps: int,
    seed: int,
    kind: NetworkKind,
    before: Path | None,
    progress: Progress,
    options: dict[str, Any],
    predictor: Model | None = None,
) -> Model:
    found = recipe(data, longest_jump, steps, seed, patience=0, kind=kind, **options)
    model = found.learner.model
    if isinstance(model, NextStep) and before is None:
        standardise(model.encoder, model.head, data)
    if before is not None:
        model.load_state_dict(load(before / run_dir.name).state_dict())
    if predictor is not None:
        found.start_from(predictor)
        for name in ("encoder", "belief"):
            model.get_submodule(name).requires_grad_(False)
    assert isinstance(found.jumps, SemiGradient)
    jumps = SemiGradient(WithinSequence(found.jumps.jumps))
    config = replace(found.config, pairs=PAIRS, checkpoint_every=steps, validate_every=steps)
    fit(found.learner, data, jumps, config, run_dir, resume=RunFolder(run_dir).has_run, progress=progress)
    return model.eval()
