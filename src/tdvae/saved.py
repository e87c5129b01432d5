"""Trained models: load them from a run folder, or by name from the weights that ship with the package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tdvae.checks import checked
from tdvae.codec import ConvCodec, load_codec
from tdvae.errors import CheckpointError, InputError
from tdvae.models import Model, build
from tdvae.models.config import ModelConfig
from tdvae.storage import RunFolder, checkpoint

CODEC = "codec"  # the folder of a codec, beside the weights of a model of its codes
WEIGHTS = Path(str(resources.files("tdvae"))) / "weights"


@dataclass(frozen=True)
class SavedModel:
    """A trained model in evaluation mode, with the ``info`` of its run."""

    model: Model
    source: str
    info: dict[str, Any]
    folder: Path
    """Where it was found. A codec or a reader that belongs to the model is in a folder of its own there."""

    @property
    def codec(self) -> ConvCodec | None:
        """The codec of the pictures whose codes the model predicts, if there is one."""
        return load_codec(self.folder / CODEC) if (self.folder / CODEC).is_dir() else None


def shipped_names() -> list[str]:
    """The names of the models that ship with the package."""
    return sorted(path.name for path in WEIGHTS.glob("*") if (path / checkpoint.MANIFEST).exists())


@checked
def load(run_or_name: str | Path) -> Model:
    """Load a trained model by name (``"oscillator"``), or from a run folder (its best validated weights).

    >>> import tdvae
    >>> model = tdvae.load("oscillator")
    >>> model.config.event_shape
    (1,)
    """
    return load_saved(run_or_name).model


@checked
def load_saved(run_or_name: str | Path) -> SavedModel:
    """Like `load`, but returns the model with its source and info. An existing path is a run, anything else a name."""
    path = Path(run_or_name)
    if os.path.exists(path):  # unlike Path.exists, False for names that no file can have
        config = RunFolder(path).read_config()
        if config["model"].get("kind") == "stack":
            raise InputError(f"run: expected a run of one model, got the stack {path}; use tdvae_paper.stack.load_runs")
        saved = checkpoint.best_or_newest(path / "checkpoints")
        # The keys of a learner's weights start with "model.".
        weights = {name.removeprefix("model."): value for name, value in saved.tensors["weights"].items()}
        return SavedModel(_build_model(config["model"], weights, str(path)), str(path), config["info"], path)
    name = str(run_or_name)
    if name not in shipped_names():
        raise InputError(f"run or name: expected a run folder or one of {shipped_names()}, got {name!r}")
    saved = checkpoint.load(WEIGHTS / name)
    model = _build_model(saved.state["model"], saved.tensors["weights"], name)
    return SavedModel(model, name, saved.state["info"], WEIGHTS / name)


@checked
def ship(model: Model, name: str, info: dict[str, Any], folder: Path = WEIGHTS, codec: ConvCodec | None = None) -> Path:
    """Save a model in half precision as ``folder/name``, as the weights that ship with the package are."""
    path = folder / name
    if path.exists():
        raise InputError(f"name: expected a new one, got {path}, which exists; remove it first")
    checkpoint.save(path, {"weights": _halved(model)}, {"model": model.describe(), "info": info})
    if codec is not None:
        checkpoint.save(path / CODEC, {"weights": _halved(codec)}, {"codec": codec.describe()})
    return path


def _halved(module: nn.Module) -> dict[str, Tensor]:
    return {name: v.half() if v.is_floating_point() else v for name, v in module.state_dict().items()}


def _build_model(description: dict[str, Any], weights: Mapping[str, Tensor], source: str) -> Model:
    """The model of a description. Shapes are compared first: a stranger's config may ask for any amount of memory."""
    config = ModelConfig.from_description(description, "model")
    if config.shapes() != {name: value.shape for name, value in weights.items()}:
        raise CheckpointError(f"{source}: the weights do not match the model config")
    model = build(config)
    model.load_state_dict({k: v.float() if v.dtype == torch.float16 else v for k, v in weights.items()})
    return model.eval()
