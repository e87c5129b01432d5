"""The recorded walk, made once, and its windows for training, validation and test."""

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
from tdvae.experiments.first_person.presets import Preset, Walk

SPLIT_SEED = 0  # every seed of a training has the same episodes held out


def recorded(walk: Walk) -> Path:
    """The recording of a walk, from the place for data; made if it is not there yet, which takes minutes."""
    path = data_folder("first_person") / walk.file
    if not path.exists():
        world = worlds.open_world(walk.world, size=walk.size)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            worlds.record(world, path, walk.frames, walk.seed, walk.episode, walk.size)
        finally:
            world.close()
    return path


def parts(preset: Preset) -> tuple[FrameWindows, FrameWindows, FrameWindows]:
    """Training, validation and test windows of different episodes."""
    walk, size = preset.walk, tuple(preset.model.event_shape)
    recording = Recording(recorded(walk))
    expected = (walk.world, walk.seed, walk.episode, walk.frames, walk.size)
    about = recording.about
    found = (about["world"], about["seed"], about["longest_episode"], len(recording), recording.size)
    if found != expected:
        raise InputError(f"file: {recording.path} holds another walk, {found}, expected {expected}; remove it")
    if size != (3, recording.size, recording.size):
        raise InputError(f"size: the model takes frames of {size}, the recording has {recording.size} pixels a side")
    train, validation, test = split_windows(recording, preset.window, SPLIT_SEED, preset.stride)
    return train, validation, test


def spaced(windows: FrameWindows, count: int) -> FrameWindows:
    """At most ``count`` windows, evenly spaced over all episodes."""
    index = torch.linspace(0, len(windows) - 1, min(count, len(windows))).round().long()
    return replace(windows, starts=windows.starts[index])


def training_frames(preset: Preset) -> tuple[Tensor, ...]:
    """Frames of training windows: those seen last, then those of each δt later; (N, 3, H, W) each."""
    windows = spaced(parts(preset)[0], preset.counted)
    times = [preset.seen - 1 + dt for dt in (0, *preset.measured)]
    some = [windows.select(index).x[:, times] for index in torch.arange(len(windows)).split(64)]
    return torch.cat(some).transpose(0, 1).unbind(0)
