"""Models that were trained: from a run folder, or by name from the weights that ship with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae.errors import CheckpointError, InputError
from tdvae.models import Model, build
from tdvae.models.config import config_from_dict
from tdvae.objectives import Learner
from tdvae.stack import Stack
from tdvae.training import checkpoint

WEIGHTS = Path(str(resources.files("tdvae"))) / "weights"


@dataclass(frozen=True)
class SavedModel:
    """A trained model, ready for use, with what its run recorded about itself."""

    model: Model
    source: str
    info: dict[str, Any]


def shipped_names() -> list[str]:
    """The names that `load` knows."""
    return sorted(path.name for path in WEIGHTS.glob("*") if (path / checkpoint.MANIFEST).exists())


def load(run_or_name: str | Path) -> Model:
    """A trained model by name (``"oscillator"``) or from a run folder (its best validated weights).

    >>> import tdvae
    >>> model = tdvae.load("oscillator")
    >>> model.config.event_shape
    (1,)
    """
    return load_saved(run_or_name).model


def load_saved(run_or_name: str | Path) -> SavedModel:
    """`load`, with the run's own notes: a path that exists is a run; anything else is a name."""
    path = Path(run_or_name)
    if path.exists():
        config = _read_config(path)
        if config["model"].get("kind") == "stack":
            raise InputError(f"run: {path} is a stack of many runs; tdvae.saved.load_runs opens it")
        saved = checkpoint.best_or_newest(path / "checkpoints")
        # A learner's weights carry the name of the part they belong to.
        weights = {name.removeprefix("model."): value for name, value in saved.tensors["weights"].items()}
        return SavedModel(_assemble(config["model"], weights, str(path)), str(path), config["info"])
    name = str(run_or_name)
    if name not in shipped_names():
        raise InputError(f"run or name: no folder {name!r} here, and no model of that name; known: {shipped_names()}")
    saved = checkpoint.load(WEIGHTS / name)
    return SavedModel(_assemble(saved.state["model"], saved.tensors["weights"], name), name, saved.state["info"])


def load_runs(run: str | Path) -> list[Model]:
    """The models of a run folder: those of a stack, or the only one."""
    path = Path(run)
    description = _read_config(path)["model"]
    if description.get("kind") != "stack":
        return [load(path)]
    stack = Stack([Learner(build(config_from_dict(description["of"]))) for _ in range(description["runs"])])
    stack.load_state_dict(checkpoint.best_or_newest(path / "checkpoints").tensors["weights"])
    return stack.models()


def ship(model: Model, name: str, info: dict[str, Any], folder: Path = WEIGHTS) -> Path:
    """Write a model in half precision as ``folder/name``: how the package's own weights are made."""
    weights = {k: v.half() if v.is_floating_point() else v for k, v in model.state_dict().items()}
    path = folder / name
    if path.exists():
        raise InputError(f"name: {path} exists; remove it first")
    checkpoint.save(path, {"weights": weights}, {"model": model.describe(), "info": info})
    return path


def _read_config(run: Path) -> dict[str, Any]:
    if inside := sorted(str(config.parent) for config in run.glob("*/config.json")):
        raise InputError(f"run: {run} is a folder of runs, not a run; choose one: {', '.join(inside)}")
    try:
        config = json.loads((run / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"run: {run} is not a run folder, its config.json cannot be read ({error})") from error
    if not isinstance(config, dict) or not {"model", "info"} <= set(config):
        raise InputError(f"run: {run}/config.json was not written by this library")
    return config


def _assemble(description: dict[str, Any], weights: Mapping[str, Tensor], source: str) -> Model:
    model = build(config_from_dict(description))
    try:
        model.load_state_dict({k: v.float() if v.dtype == torch.float16 else v for k, v in weights.items()})
    except RuntimeError as error:
        raise CheckpointError(f"{source}: the weights do not fit the model's config") from error
    return model.eval()
