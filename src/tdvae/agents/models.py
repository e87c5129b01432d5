"""The world model of an agent: the recipe of `tdvae fit`, for episodes of any length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tdvae.forecasting.fitting.recipes import NetworkKind, recipe
from tdvae.jumps import SemiGradient, WithinSequence
from tdvae.models import Model
from tdvae.storage import RunFolder
from tdvae.training import fit
from tdvae.training.log import Progress
from tdvae.types import Sequences

PAIRS = 16  # of a sequence in each training step


def fit_model(
    data: Sequences,
    run_dir: Path,
    longest_jump: int,
    steps: int,
    seed: int,
    kind: NetworkKind = "latent",
    start: Model | None = None,
    progress: Progress = "none",
    **options: Any,
) -> Model:
    """Train a model on episodes, or train ``start`` further; a training that was interrupted goes on.

    Half of the pairs are consecutive and half are jumps, with semi-gradients. A training has no validation: its last
    weights are taken, at the end of a cosine schedule.
    """
    found = recipe(data, longest_jump, steps, seed, patience=0, kind=kind, **options)
    if start is not None:
        found.learner.model.load_state_dict(start.state_dict())
    assert isinstance(found.jumps, SemiGradient)
    jumps = SemiGradient(WithinSequence(found.jumps.jumps))
    config = replace(found.config, pairs=PAIRS, checkpoint_every=steps, validate_every=steps)
    fit(found.learner, data, jumps, config, run_dir, resume=RunFolder(run_dir).has_run, progress=progress)
    return found.learner.model.eval()
