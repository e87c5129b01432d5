"""Checkpoints: a folder with safetensors files and a JSON manifest, which holds the SHA-256 of each file.

A checkpoint is written to a temporary folder and then renamed, so that a killed process leaves no partial checkpoint
under the final name. Damaged checkpoints are not loaded, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tdvae.errors import CheckpointError

MANIFEST = "manifest.json"
FORMAT = "tdvae-checkpoint-1"

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint: named groups of tensors (weights, optimizer_0, …) and JSON-compatible state."""

    path: Path
    tensors: dict[str, Tensors]
    state: dict[str, Any]


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically: ``path`` holds either the old or the complete new content."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def to_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def save(path: Path, tensors: dict[str, Tensors], state: dict[str, Any]) -> None:
    """Write a checkpoint folder at ``path``. An existing checkpoint is removed only after the new one is complete."""
    if path.exists() and not (path / MANIFEST).exists():
        raise CheckpointError(f"checkpoint {path}: exists and is not a checkpoint; nothing was written")
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    digests = {}
    for name, group in tensors.items():
        content = safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in group.items()})
        digests[name] = hashlib.sha256(content).hexdigest()
        write_file(temporary / f"{name}.safetensors", content)
    body = {"format": FORMAT, "sha256": digests, "state": state}
    write_file(temporary / MANIFEST, to_json({**body, "self": _digest(body)}))
    old = path.with_name(f".{path.name}.old")
    if path.exists():
        os.rename(path, old)
    os.rename(temporary, path)
    shutil.rmtree(old, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and verify the SHA-256 of all its files."""
    try:
        body = json.loads((path / MANIFEST).read_bytes())
        digest = body.pop("self")
        if body["format"] != FORMAT:
            raise CheckpointError(f"checkpoint {path}: unknown format {body['format']!r}, expected {FORMAT!r}")
        if digest != _digest(body):
            raise CheckpointError(f"checkpoint {path}: the manifest is damaged")
        tensors = {name: _load_verified(path, name, sha256) for name, sha256 in body["sha256"].items()}
    except OSError as error:
        raise CheckpointError(f"checkpoint {path}: cannot be read ({error.strerror}: {error.filename})") from error
    except (ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"checkpoint {path}: damaged or not a tdvae checkpoint ({error})") from error
    return Checkpoint(path, tensors, body["state"])


def _load_verified(path: Path, name: str, sha256: str) -> Tensors:
    content = (path / f"{name}.safetensors").read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CheckpointError(f"checkpoint {path}: {name}.safetensors is incomplete or damaged")
    return safetensors.torch.load(content)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def list_checkpoints(folder: Path, kind: str) -> list[Path]:
    """The checkpoints named ``kind-STEP`` in a folder, newest first."""
    found = [p for p in folder.glob(f"{kind}-*") if re.fullmatch(rf"{kind}-\d+", p.name)]
    return sorted(found, key=lambda p: int(p.name.rpartition("-")[2]), reverse=True)


def newest(folder: Path, kind: str) -> tuple[Checkpoint, list[str]]:
    """The newest undamaged checkpoint of a kind, and the errors of newer ones."""
    errors: list[str] = []
    for path in list_checkpoints(folder, kind):
        try:
            return load(path), errors
        except CheckpointError as error:
            errors.append(str(error))
    detail = f": {'; '.join(errors)}" if errors else ""
    raise CheckpointError(f"no usable '{kind}' checkpoint in {folder}{detail}")


def best_or_newest(folder: Path) -> Checkpoint:
    """The checkpoint with the best validation loss; the newest one if there is no undamaged best one."""
    try:
        return newest(folder, "best")[0]
    except CheckpointError:
        return newest(folder, "step")[0]


def save_numbered(
    folder: Path, kind: str, step: int, tensors: dict[str, Tensors], state: dict[str, Any], keep: int
) -> None:
    """Save ``kind-STEP``, then remove all but the ``keep`` newest checkpoints of this kind."""
    save(folder / f"{kind}-{step:08d}", tensors, state)
    for old in list_checkpoints(folder, kind)[keep:]:
        shutil.rmtree(old)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    """The state of an optimiser as named tensors, with keys \"INDEX.NAME\" of parameter index and state variable."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value) for index, entry in state.items() for name, value in entry.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
