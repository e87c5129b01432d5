"""Checkpoints that are whole or refused: safetensors and JSON in a folder, each file's SHA-256 in the manifest.

A checkpoint is written beside its place and renamed into it, so a name is never half a checkpoint, whenever the process
is killed. Nothing is ever unpickled.
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
    """What was saved: groups of tensors by name (weights, optimizer_0, …) and plain state."""

    path: Path
    tensors: dict[str, Tensors]
    state: dict[str, Any]


def write_file(path: Path, content: bytes) -> None:
    """Write so that ``path`` holds the old content or the new one, never a part."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def to_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def save(path: Path, tensors: dict[str, Tensors], state: dict[str, Any]) -> None:
    """Write a checkpoint folder at ``path``; one that is there already goes only when the new one is complete."""
    if path.exists() and not (path / MANIFEST).exists():
        raise CheckpointError(f"checkpoint {path}: something else is there already; nothing was written")
    beside = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    digests = {}
    for name, group in tensors.items():
        content = safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in group.items()})
        digests[name] = hashlib.sha256(content).hexdigest()
        write_file(beside / f"{name}.safetensors", content)
    body = {"format": FORMAT, "sha256": digests, "state": state}
    write_file(beside / MANIFEST, to_json({**body, "self": _digest(body)}))
    old = path.with_name(f".{path.name}.old")
    if path.exists():
        os.rename(path, old)
    os.rename(beside, path)
    shutil.rmtree(old, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and verify every byte of it."""
    try:
        body = json.loads((path / MANIFEST).read_bytes())
        own = body.pop("self")
        if body["format"] != FORMAT:
            raise CheckpointError(f"checkpoint {path}: unknown format {body['format']!r}, expected {FORMAT!r}")
        if own != _digest(body):
            raise CheckpointError(f"checkpoint {path}: its manifest is damaged")
        tensors = {name: _load_verified(path, name, digest) for name, digest in body["sha256"].items()}
    except OSError as error:
        raise CheckpointError(f"checkpoint {path}: cannot be read ({error.strerror}: {error.filename})") from error
    except (ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"checkpoint {path}: damaged or not one of ours ({error})") from error
    return Checkpoint(path, tensors, body["state"])


def _load_verified(path: Path, name: str, digest: str) -> Tensors:
    content = (path / f"{name}.safetensors").read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(f"checkpoint {path}: {name}.safetensors is torn or damaged")
    return safetensors.torch.load(content)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def numbered(folder: Path, kind: str) -> list[Path]:
    """The checkpoints named ``kind-STEP`` in a folder, newest first."""
    found = [p for p in folder.glob(f"{kind}-*") if re.fullmatch(rf"{kind}-\d+", p.name)]
    return sorted(found, key=lambda p: int(p.name.rpartition("-")[2]), reverse=True)


def newest(folder: Path, kind: str) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint of a kind that is whole, and why newer ones were refused."""
    refused: list[str] = []
    for path in numbered(folder, kind):
        try:
            return load(path), refused
        except CheckpointError as error:
            refused.append(str(error))
    detail = f": {'; '.join(refused)}" if refused else ""
    raise CheckpointError(f"no usable '{kind}' checkpoint in {folder}{detail}")


def best_or_newest(folder: Path) -> Checkpoint:
    """The best validated checkpoint; the newest one, if there is no best or none that is whole."""
    try:
        return newest(folder, "best")[0]
    except CheckpointError:
        return newest(folder, "step")[0]


def save_numbered(
    folder: Path, kind: str, step: int, tensors: dict[str, Tensors], state: dict[str, Any], keep: int
) -> None:
    """Save ``kind-STEP`` and remove all but the ``keep`` newest: the old ones go only when the new one is in place."""
    save(folder / f"{kind}-{step:08d}", tensors, state)
    for old in numbered(folder, kind)[keep:]:
        shutil.rmtree(old)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    """An optimiser's state as named tensors: parameter index and quantity."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value) for index, entry in state.items() for name, value in entry.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
