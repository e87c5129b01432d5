"""Data of the corridors experiment in the data cache: the recording, the codec, and the codes of all frames."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from tdvae.codec import CodecTraining, ConvCodec, ConvCodecConfig, load_codec, save_codec
from tdvae.codes import CodeWindows, actions_of, encode_recording, fit_codec_to
from tdvae.data.cache import data_folder
from tdvae.data.recording import Recording
from tdvae.data.windows import split_windows
from tdvae.envs.corridors_walk import Follower, record_walks
from tdvae.storage import checkpoint
from tdvae.storage.files import to_json

SPLIT_SEED = 0  # the held-out mazes are the same for every training seed


@dataclass(frozen=True)
class World:
    """Settings of the recording, and of the codec that is trained on its training episodes."""

    frames: int = 120_000
    episode: int = 200  # frames; each episode is in a maze of its own
    seed: int = 0
    size: int = 64
    codec: ConvCodecConfig = field(default_factory=lambda: ConvCodecConfig(channels=(8, 24, 48, 96)))
    training: CodecTraining = field(default_factory=lambda: CodecTraining(steps=2_000))
    window: int = 56
    stride: int = 4

    @property
    def file(self) -> Path:
        name = f"corridors-{self.frames}x{self.size}-episodes-{self.episode}-seed-{self.seed}.h5"
        return data_folder("first_person") / name

    @property
    def codec_folder(self) -> Path:
        settings = (asdict(self.training), self.codec.describe(), self.window, asdict(Follower()))
        return self.file.with_suffix("") / hashlib.sha256(to_json(settings)).hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class Coded:
    """A codec, and the windows of codes for training, validation and test, of different mazes."""

    codec: ConvCodec
    train: CodeWindows
    validation: CodeWindows
    test: CodeWindows


@lru_cache(maxsize=2)
def coded(world: World, with_actions: bool) -> Coded:
    """Return codec and codes; record, train and encode what is not in the data cache."""
    if not world.file.exists():
        world.file.parent.mkdir(parents=True, exist_ok=True)
        record_walks(world.file, world.frames, world.seed, world.episode, world.size)
    recording = Recording(world.file)
    parts = split_windows(recording, world.window, SPLIT_SEED, world.stride)
    folder = world.codec_folder
    if not (folder / "codec").exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_codec(fit_codec_to(parts[0], world.codec, world.training, _report), folder / "codec")
    codec = load_codec(folder / "codec")
    codes, actions = _codes(codec, recording, folder / "codes"), actions_of(recording) if with_actions else None
    train, validation, test = (CodeWindows(part, codes, actions) for part in parts)
    return Coded(codec, train, validation, test)


def _codes(codec: ConvCodec, recording: Recording, path: Path) -> Tensor:
    if not path.exists():
        checkpoint.save(path, {"codes": {"codes": encode_recording(codec, recording)}}, {})
    return checkpoint.load(path).tensors["codes"]["codes"]


def _report(step: int, error: float) -> None:
    if step % 100 == 0:
        print(f"codec: step {step}, mean absolute error {255 * error:.2f} of 255", flush=True)


def moments(windows: CodeWindows, count: int) -> CodeWindows:
    """Return at most ``count`` windows, evenly spaced over all episodes."""
    index = torch.linspace(0, len(windows) - 1, min(count, len(windows))).round().long()
    return replace(windows, frames=replace(windows.frames, starts=windows.frames.starts[index]))
