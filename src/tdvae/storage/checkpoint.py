"""Checkpoints: a folder with safetensors files and a JSON manifest, which holds the SHA-256 of each file.

A checkpoint is written to a temporary folder and then renamed, so that a killed process leaves no partial checkpoint
under the final name. Damaged checkpoints are not loaded, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tdvae.errors import CheckpointError, InputError
from tdvae.storage import files

MANIFEST = "manifest.json"
FORMAT = "tdvae-checkpoint-2"
MAX_TENSORS_BYTES = 16 * 2**30

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint: named groups of tensors (weights, optimizer_0, …) and JSON-compatible state."""

    path: Path
    tensors: dict[str, Tensors]
    state: dict[str, Any]


def save(path: Path, tensors: dict[str, Tensors], state: dict[str, Any]) -> None:
    """Write a checkpoint folder at ``path``. An existing checkpoint is removed only after the new one is complete."""
    if path.is_symlink() or (path.exists() and not (path / MANIFEST).exists()):
        raise CheckpointError(f"checkpoint {path}: exists and is not a checkpoint; nothing was written")
    temporary, old = files.temporary_path(path), path.with_name(f".{path.name}.old")
    if old.exists() and not path.exists():
        os.rename(old, path)  # the process was killed between the two renames below
    for left_over in (temporary, old):
        files.remove(left_over)
    try:
        with files.naming(path):
            _write(temporary, tensors, state)
            if path.exists():
                os.rename(path, old)
            os.rename(temporary, path)
    except OSError:
        files.remove(temporary)  # a full disk keeps no partial checkpoint
        raise
    files.remove(old)


def _write(folder: Path, tensors: dict[str, Tensors], state: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    digests = {}
    for name, group in tensors.items():
        content = safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in group.items()})
        digests[name] = hashlib.sha256(content).hexdigest()
        files.write_file(folder / f"{name}.safetensors", content)
    body = {"format": FORMAT, "sha256": digests, "state": state}
    files.write_file(folder / MANIFEST, files.to_json({**body, "self": files.checksum(body)}))


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and verify the SHA-256 of all its files."""
    try:
        if path.is_symlink():
            raise CheckpointError(f"checkpoint {path}: expected a folder, got a symbolic link, which is not followed")
        body = files.read_json(path / MANIFEST)
        digest = body.pop("self")
        if body["format"] != FORMAT:
            raise CheckpointError(f"checkpoint {path}: unknown format {body['format']!r}, expected {FORMAT!r}")
        if digest != files.checksum(body) or not isinstance(body["state"], dict):
            raise CheckpointError(f"checkpoint {path}: the manifest is damaged")
        tensors = {name: _load_verified(path, name, sha256) for name, sha256 in body["sha256"].items()}
    except OSError as error:
        raise CheckpointError(f"checkpoint {path}: cannot be read ({error.strerror}: {error.filename})") from error
    except (ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"checkpoint {path}: damaged or not a tdvae checkpoint ({error})") from error
    return Checkpoint(path, tensors, body["state"])


def _load_verified(path: Path, name: str, sha256: str) -> Tensors:
    if not re.fullmatch(r"\w+", name):
        raise InputError(f"expected names of letters and digits in the manifest, got {name!r}")
    content = files.read_file(path / f"{name}.safetensors", MAX_TENSORS_BYTES)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CheckpointError(f"checkpoint {path}: {name}.safetensors is incomplete or damaged")
    return safetensors.torch.load(content)


def list_checkpoints(folder: Path, kind: str) -> list[Path]:
    """The checkpoints named ``kind-STEP`` in a folder, newest first.

    If a process was killed while it replaced a checkpoint, the old one is still there under another name.
    """
    if folder.is_symlink():
        raise CheckpointError(f"{folder}: expected a folder, got a symbolic link, which is not followed")
    found: dict[int, Path] = {}
    for pattern, name in (
        (f".{kind}-*.old", rf"\.{kind}-([0-9]{{1,18}})\.old"),
        (f"{kind}-*", rf"{kind}-([0-9]{{1,18}})"),
    ):
        for path in folder.glob(pattern):
            if match := re.fullmatch(name, path.name):
                found[int(match[1])] = path
    return [found[step] for step in sorted(found, reverse=True)]


def newest(folder: Path, kind: str) -> tuple[Checkpoint, list[CheckpointError]]:
    """The newest undamaged checkpoint of a kind, and the errors of newer ones."""
    errors: list[CheckpointError] = []
    for path in list_checkpoints(folder, kind):
        try:
            return load(path), errors
        except CheckpointError as error:
            errors.append(error)
    detail = f": {'; '.join(map(str, errors))}" if errors else ""
    raise CheckpointError(f"no usable '{kind}' checkpoint in {folder}{detail}")


def best_or_newest(folder: Path) -> Checkpoint:
    """The checkpoint with the best validation loss; the newest one if the run was not validated.

    A damaged best checkpoint is an error, because the weights of another step give other numbers.
    """
    try:
        if best := list_checkpoints(folder, "best"):
            return load(best[0])
        last, _ = newest(folder, "step")
        if last.state.get("best") is not None:
            raise CheckpointError(f"checkpoint of the best step {last.state['best_step']}: missing in {folder}")
        return last
    except CheckpointError as error:
        raise CheckpointError(f"{error}; resume the run to choose the best weights again") from error


def save_numbered(
    folder: Path, kind: str, step: int, tensors: dict[str, Tensors], state: dict[str, Any], keep: int
) -> None:
    """Save ``kind-STEP``, then remove all but the ``keep`` newest checkpoints of this kind."""
    existing = list_checkpoints(folder, kind)  # raises if the folder is a symbolic link
    path = folder / f"{kind}-{step:08d}"
    save(path, tensors, state)
    for old in [path, *(p for p in existing if p != path)][keep:]:
        files.remove(old)


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
