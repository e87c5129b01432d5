"""Tests of frame codecs: training, determinism, the likelihood of bytes, files, codes of recordings, other encoders."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tdvae.codec import CodecTraining, ConvCodec, ConvCodecConfig, FrameCodec, fit_codec, load_codec, save_codec
from tdvae.codes import CodeWindows, actions_of, encode_recording, fit_codec_to, pictures_of
from tdvae.config import Config
from tdvae.data.recording import Recording
from tdvae.data.windows import split_windows
from tdvae.envs.corridors_walk import record_walks
from tdvae.errors import CheckpointError, InputError
from tdvae.storage import checkpoint

SMALL = ConvCodecConfig((3, 16, 16), size=8, channels=(8, 16))


def pictures(count: int = 64, seed: int = 0) -> Tensor:
    """Pictures of two areas of different colours, with the border at a random column."""
    generator = torch.Generator().manual_seed(seed)
    border = torch.randint(2, 14, (count, 1, 1, 1), generator=generator)
    left, right = (torch.randint(256, (count, 3, 1, 1), generator=generator) / 255 for _ in range(2))
    return torch.where(torch.arange(16) < border, left, right).expand(count, 3, 16, 16).contiguous()


def trained(steps: int = 150, seed: int = 0) -> ConvCodec:
    data = pictures()
    training = CodecTraining(steps=steps, batch_size=16, seed=seed, warmup=5)
    return fit_codec(SMALL, lambda index: data[index], len(data), training)


@pytest.fixture(scope="module")
def codec() -> ConvCodec:
    return trained()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(record_walks(tmp_path_factory.mktemp("walks") / "a.h5", 120, episode=20, size=16))


def test_training_lowers_the_error_and_leaves_the_global_random_state(codec: ConvCodec) -> None:
    data = pictures(seed=1)
    state = torch.random.get_rng_state()
    untrained = trained(steps=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    errors = [float((one.decode(one.encode(data)) - data).abs().mean()) for one in (codec, untrained)]
    assert errors[0] < 0.6 * errors[1]


def test_equal_seeds_give_equal_codecs(codec: ConvCodec) -> None:
    again, other = trained(), trained(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(codec.state_dict().values(), again.state_dict().values(), strict=True))
    assert not torch.equal(codec.encode(pictures()), other.encode(pictures()))


def test_encoding_and_decoding_are_deterministic_and_codes_standardised(codec: ConvCodec) -> None:
    data = pictures(300)
    codes = codec.encode(data)
    assert torch.equal(codes, codec.encode(data))
    assert torch.equal(codec.decode(codes), codec.decode(codes))
    assert torch.allclose(codes[:50], codec.encode(data[:50]), atol=1e-5)
    assert codec.decode(codes.view(3, 100, 8)).shape == (3, 100, 3, 16, 16)
    own = codec.encode(pictures())
    assert own.mean(0).abs().max() < 0.5
    assert float((own.std(0) - 1).abs().max()) < 0.5


def test_likelihood_is_a_distribution_of_bytes(codec: ConvCodec) -> None:
    code = codec.encode(pictures(1))
    levels = torch.arange(256) / 255
    frames = levels[:, None, None, None].expand(256, 3, 16, 16)
    one = codec.likelihood(code)
    total = type(one)(one.location, one.log_scale, event_ndim=0).log_prob(frames).exp().sum(0)
    assert torch.allclose(total, torch.ones_like(total), atol=1e-4)
    bits = codec.bits_per_dim(pictures(32))
    assert bits == pytest.approx(
        float(-codec.likelihood(codec.encode(pictures(32))).log_prob(pictures(32)).mean()) / (768 * math.log(2))
    )
    assert bits < 8 < codec.bits_per_dim(torch.rand(32, 3, 16, 16))


def test_saved_codec_is_the_same(codec: ConvCodec, tmp_path: Path) -> None:
    save_codec(codec, tmp_path / "codec")
    assert not list(tmp_path.rglob("*.pt"))
    again = load_codec(tmp_path / "codec")
    assert again.config == codec.config == Config.from_description(codec.describe())
    assert torch.equal(again.encode(pictures()), codec.encode(pictures()))
    assert again.bits_per_dim(pictures()) == codec.bits_per_dim(pictures())


def test_damaged_codecs_are_refused(codec: ConvCodec, tmp_path: Path) -> None:
    other = ConvCodecConfig((3, 16, 16), size=4, channels=(8, 16)).describe()
    checkpoint.save(tmp_path / "other", {"weights": codec.state_dict()}, {"codec": other})
    with pytest.raises(CheckpointError, match=r"the weights do not match the codec's config$"):
        load_codec(tmp_path / "other")
    checkpoint.save(tmp_path / "none", {"weights": codec.state_dict()}, {})
    with pytest.raises(InputError, match=r"^codec: "):
        load_codec(tmp_path / "none")


def test_bad_pictures_and_codes_are_refused_in_one_line(codec: ConvCodec) -> None:
    with pytest.raises(InputError, match=r"^pictures: expected \(N, 3 × 16 × 16\) of floats .* got \(2, 3, 32, 32\)"):
        codec.encode(torch.zeros(2, 3, 32, 32))
    with pytest.raises(InputError, match=r"^pictures: .* of torch.uint8$"):
        codec.encode(torch.zeros(2, 3, 16, 16, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"^codes: expected 8 numbers each, as this codec makes, got shape \(2, 9\)$"):
        codec.decode(torch.zeros(2, 9))
    with pytest.raises(
        InputError, match=r"^picture: expected sides that 4 halvings divide, multiples of 16, got 40 × 64"
    ):
        ConvCodecConfig((3, 40, 64))
    with pytest.raises(InputError, match=r"^picture: expected channels, rows and columns"):
        ConvCodecConfig((64, 64))
    with pytest.raises(InputError, match=r"^count: expected at least 1 picture"):
        fit_codec(SMALL, lambda index: pictures()[index], 0)


def test_codes_of_a_recording_are_those_of_its_frames(codec: ConvCodec, recording: Recording) -> None:
    codes = encode_recording(codec, recording)
    assert codes.shape == (120, 8)
    assert torch.allclose(codes[[5, 77]], codec.encode(pictures_of(recording, torch.tensor([5, 77]))), atol=1e-5)
    train, _, _ = split_windows(recording, 10, 0, 5)
    windows = CodeWindows(train, codes, actions_of(recording))
    part, frames = windows.select(torch.tensor([2, 0])), train.select(torch.tensor([2, 0]))
    assert part.x.shape == (2, 10, 8)
    assert torch.allclose(part.x[1], codec.encode(frames.x[1]), atol=1e-5)
    assert part.actions is not None
    assert part.actions.shape == (2, 10, 3)
    with pytest.raises(InputError, match=r"^codes: expected one for each of the 120 frames of the recording, got 119"):
        CodeWindows(train, codes[1:])


def test_codec_is_trained_on_training_frames_only(recording: Recording) -> None:
    train, _, _ = split_windows(recording, 10, 0, 5)
    asked: list[int] = []

    class Watched:
        path, size = recording.path, recording.size

        def __len__(self) -> int:
            return len(recording)

        def frames(self, start: int, stop: int) -> object:
            asked.append(start)
            return recording.frames(start, stop)

    object.__setattr__(train, "recording", Watched())
    fit_codec_to(train, SMALL, CodecTraining(steps=20, batch_size=16))
    allowed = {int(start) + step for start in train.starts for step in range(10)}
    assert set(asked) <= allowed
    assert len(set(asked)) > 50


def test_codec_of_other_pictures_is_refused(recording: Recording) -> None:
    large = ConvCodecConfig((3, 32, 32), size=8, channels=(8, 16))
    with pytest.raises(InputError, match=r"^codec: expected one of frames \(3, 16, 16\), got one of \(3, 32, 32\)$"):
        encode_recording(large.build(), recording)
    with pytest.raises(InputError, match=r"^picture: expected \(3, 16, 16\), the recording's, got \(3, 32, 32\)$"):
        fit_codec_to(split_windows(recording, 10, 0)[0], large, CodecTraining(steps=1))


class Averages:
    """An encoder of a user: the mean of each quarter of each colour."""

    picture: tuple[int, ...] = (3, 16, 16)
    size = 12

    def encode(self, pictures: Tensor) -> Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(pictures, 2).flatten(1)

    def decode(self, codes: Tensor) -> Tensor:
        small = codes.unflatten(-1, (3, 2, 2))
        return small.repeat_interleave(8, -1).repeat_interleave(8, -2)


def test_any_encoder_can_take_the_codecs_place(recording: Recording) -> None:
    own = Averages()
    assert isinstance(own, FrameCodec)
    codes = encode_recording(own, recording)
    assert codes.shape == (120, 12)
    assert own.decode(codes[:4]).shape == (4, 3, 16, 16)
