"""The recording of a walk in the data cache, and its windows for training, validation and test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from tdvae.data.cache import data_folder
from tdvae.data.recording import Recording
from tdvae.data.windows import FrameWindows, split_windows
from tdvae.envs import first_person as worlds
from tdvae.errors import InputError
from tdvae_paper.first_person.presets import Preset, Walk

SPLIT_SEED = 0  # the held-out episodes are the same for every training seed


def ensure_recorded(walk: Walk) -> Path:
    """Return the path of the recording in the data cache. If there is none, record it, which takes minutes."""
    path = data_folder("first_person") / walk.file
    if not path.exists():
        world = worlds.open_world(walk.world, size=walk.size)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            worlds.record(world, path, walk.frames, walk.seed, walk.episode, walk.size)
        finally:
            world.close()
    return path


def split_recording(preset: Preset) -> tuple[FrameWindows, FrameWindows, FrameWindows]:
    """Return training, validation and test windows, of different episodes."""
    walk, size = preset.walk, tuple(preset.model.event_shape)
    recording = Recording(ensure_recorded(walk))
    expected = (walk.world, walk.seed, walk.episode, walk.frames, walk.size)
    about = recording.about
    found = (about["world"], about["seed"], about["longest_episode"], len(recording), recording.size)
    if found != expected:
        raise InputError(f"file: expected a recording of {expected}, got {found} in {recording.path}; remove it")
    if size != (3, recording.size, recording.size):
        raise InputError(
            f"size: expected frames of {size} for the model, got a recording with {recording.size} pixels a side"
        )
    train, validation, test = split_windows(recording, preset.window, SPLIT_SEED, preset.stride)
    return train, validation, test


def evenly_spaced(windows: FrameWindows, count: int) -> FrameWindows:
    """Return at most ``count`` windows, evenly spaced over all episodes."""
    index = torch.linspace(0, len(windows) - 1, min(count, len(windows))).round().long()
    return replace(windows, starts=windows.starts[index])


def training_frames(preset: Preset) -> tuple[Tensor, ...]:
    """Return frames of training windows: the last observed ones, then those δt later; (N, 3, H, W) each."""
    windows = evenly_spaced(split_recording(preset)[0], preset.counted)
    times = [preset.seen - 1 + dt for dt in (0, *preset.measured)]
    batches = [windows.select(index).x[:, times] for index in torch.arange(len(windows)).split(64)]
    return torch.cat(batches).transpose(0, 1).unbind(0)
