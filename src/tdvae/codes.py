"""The codes of a recording: encoded once, then windows of them are training data in place of frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tdvae.codec import BATCH, CodecTraining, ConvCodec, ConvCodecConfig, FrameCodec, check_pictures, fit_codec
from tdvae.data.recording import Recording
from tdvae.data.windows import FrameWindows
from tdvae.errors import InputError
from tdvae.types import Sequences


def pictures_of(recording: Recording, numbers: Tensor) -> Tensor:
    """The frames with these numbers as pictures (N, 3, size, size) in [0, 1]."""
    frames = np.concatenate([recording.frames(number, number + 1) for number in numbers.tolist()])
    return torch.from_numpy(frames).permute(0, 3, 1, 2).float().div_(255)


def fit_codec_to(
    windows: FrameWindows,
    config: ConvCodecConfig,
    training: CodecTraining,
    progress: Callable[[int, float], None] = lambda step, error: None,
) -> ConvCodec:
    """Train a codec on the frames of training windows, and on no others."""
    recording = windows.recording
    if (3, recording.size, recording.size) != tuple(config.picture):
        raise InputError(
            f"picture: expected (3, {recording.size}, {recording.size}), the recording's, got {config.picture}"
        )
    inside = torch.zeros(len(recording), dtype=torch.bool)
    for start in windows.starts.tolist():
        inside[start : start + windows.length] = True
    numbers = inside.nonzero()[:, 0]
    return fit_codec(config, lambda index: pictures_of(recording, numbers[index]), len(numbers), training, progress)


def encode_recording(codec: FrameCodec, recording: Recording) -> Tensor:
    """The code of every frame of a recording, (frames, size)."""
    if tuple(codec.picture) != (3, recording.size, recording.size):
        raise InputError(
            f"codec: expected one of frames (3, {recording.size}, {recording.size}), got one of {tuple(codec.picture)}"
        )
    parts = []
    for start in range(0, len(recording), BATCH):
        frames = torch.from_numpy(recording.frames(start, min(start + BATCH, len(recording))))
        parts.append(codec.encode(frames.permute(0, 3, 1, 2).float().div_(255)))
    return torch.cat(parts)


def encode_sequences(codec: FrameCodec, sequences: Sequences) -> Sequences:
    """Sequences of pictures (N, T, channels, rows, columns) as sequences of their codes."""
    pictures = sequences.x.flatten(0, 1)
    check_pictures(codec, pictures)
    return replace(sequences, x=codec.encode(pictures).unflatten(0, sequences.x.shape[:2]))


def actions_of(recording: Recording) -> Tensor:
    """The action that led to each frame, one-hot; all zeros where none did, (frames, number of actions)."""
    actions = torch.from_numpy(recording.actions(0, len(recording)).astype(np.int64))
    if not recording.action_names or bool((actions < 0).all()):
        raise InputError(f"actions: expected a recording with actions, got none in {recording.path}")
    return one_hot(actions + 1, len(recording.action_names) + 1)[:, 1:].float()


@dataclass(frozen=True, eq=False)
class CodeWindows:
    """A ``SequenceSource``: the codes of `FrameWindows`, in memory. ``frames`` still gives pictures and poses."""

    frames: FrameWindows
    codes: Tensor  # (frames of the recording, size)
    actions: Tensor | None = None  # (frames of the recording, number of actions)

    def __post_init__(self) -> None:
        if len(self.codes) != len(self.frames.recording):
            raise InputError(
                f"codes: expected one for each of the {len(self.frames.recording)} frames of the recording, got "
                f"{len(self.codes)}"
            )

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def lengths(self) -> Tensor:
        return self.frames.lengths

    def select(self, index: Tensor | slice) -> Sequences:
        """Return the windows at ``index``."""
        steps = self.frames.starts[index][:, None] + torch.arange(self.frames.length)
        return Sequences(
            self.codes[steps],
            torch.full((len(steps),), self.frames.length),
            actions=None if self.actions is None else self.actions[steps],
        )
