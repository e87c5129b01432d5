"""Tests of recordings and their windows: round trips, atomic writes, damaged files, splits and resizing."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import tdvae
from tdvae import InputError
from tdvae.__main__ import end_by_sigterm
from tdvae.data import FrameWindows, Recording, split_windows, windows
from tdvae.data.images import to_square
from tdvae.data.recording import Ending, Episode, RecordingWriter
from tdvae.models import LinearRecurrence
from tdvae.types import SequenceSource

SIZE, NAMES = 8, ("forward", "left", "right")


def make_episode(steps: int, seed: int, pose: bool = True) -> Episode:
    random = np.random.default_rng(seed)
    actions = random.integers(0, 3, steps).astype(np.int16)
    actions[0] = -1
    return Episode(
        frames=random.integers(0, 256, (steps, SIZE, SIZE, 3), dtype=np.uint8),
        actions=actions,
        rewards=random.normal(size=steps).astype(np.float32),
        pose=random.normal(size=(steps, 3)).astype(np.float32) if pose else None,
        ending=Ending(seed % 3),
        seed=seed,
        unseen_reward=0.5 * seed,
    )


LENGTHS = (30, 3, 17, 41, 12)
EPISODES = [make_episode(steps, seed) for seed, steps in enumerate(LENGTHS)]


def write(path: Path, episodes: list[Episode], pose: bool = True) -> Path:
    with RecordingWriter(path, SIZE, NAMES, pose, {"world": "made up"}) as writer:
        for episode in episodes:
            writer.append(episode)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "made.h5", EPISODES)


# Writing and reading


def test_recording_round_trip(path: Path) -> None:
    with Recording(path) as recording:
        assert len(recording) == sum(LENGTHS)
        assert recording.lengths.tolist() == list(LENGTHS)
        assert recording.action_names == NAMES
        assert recording.about["world"] == "made up"
        for number, written in enumerate(EPISODES):
            read = recording.episode(number)
            for name in ("frames", "actions", "rewards", "pose"):
                values, expected = getattr(read, name), getattr(written, name)
                assert np.array_equal(values, expected)
                assert values.dtype == expected.dtype
            assert (read.ending, read.seed, read.unseen_reward) == (written.ending, number, 0.5 * number)


def test_file_layout_is_the_documented_one(path: Path) -> None:
    with h5py.File(path) as file:
        layout = {name: (file[name].shape, str(file[name].dtype)) for name in ("frames", "actions", "rewards", "pose")}
        assert layout == {
            "frames": ((103, 8, 8, 3), "uint8"),
            "actions": ((103,), "int16"),
            "rewards": ((103,), "float32"),
            "pose": ((103, 3), "float32"),
        }
        assert sorted(file["episodes"]) == ["ending", "length", "seed", "start", "unseen_reward"]
        names = h5py.check_enum_dtype(file["episodes/ending"].dtype)
        assert names == {"cut": 0, "truncated": 1, "terminated": 2}


def test_recording_without_poses(tmp_path: Path) -> None:
    with Recording(write(tmp_path / "blind.h5", [make_episode(5, 1, pose=False)], pose=False)) as recording:
        assert not recording.has_pose
        assert recording.episode(0).pose is None
        with pytest.raises(InputError, match=r"^file: expected a recording with poses, got .*blind\.h5"):
            recording.pose(0, 2)
        with pytest.raises(InputError, match="expected a recording with poses"):
            windows(recording, 2).pose(torch.tensor([0]))


def test_windows_can_be_pickled(path: Path) -> None:
    recording = Recording(path)
    copy = pickle.loads(pickle.dumps(windows(recording, 5)))
    assert torch.equal(copy.select(torch.arange(3)).x, windows(recording, 5).select(torch.arange(3)).x)


# Atomic writes


def test_existing_file_is_not_overwritten(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"^out: expected a new file, got .*made\.h5, which exists already"):
        write(path, EPISODES)
    assert path.read_bytes() == before


def test_file_created_during_recording_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    writer = RecordingWriter(out, SIZE, NAMES, True, {}).__enter__()
    writer.append(EPISODES[0])
    out.write_text("another file")
    with pytest.raises(InputError, match="exists already"):
        writer.__exit__(None, None, None)
    assert out.read_text() == "another file"
    assert list(tmp_path.iterdir()) == [out]


def test_sigterm_leaves_no_file(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        end_by_sigterm()
        with pytest.raises(SystemExit), RecordingWriter(tmp_path / "walk.h5", 8, ["left"], pose=False, about={}):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_interruption_leaves_no_file(kind: type[BaseException], tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with RecordingWriter(tmp_path / "out.h5", SIZE, NAMES, True, {}) as writer:
            writer.append(EPISODES[0])
            assert [entry.name.startswith(".out.h5.") for entry in tmp_path.iterdir()] == [True]
            raise kind

    with pytest.raises(kind):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_writer_that_is_never_closed_leaves_no_file(tmp_path: Path) -> None:
    """An interruption can prevent the call of ``__exit__``."""
    writer = RecordingWriter(tmp_path / "out.h5", SIZE, NAMES, True, {}).__enter__()
    writer.append(EPISODES[0])
    del writer
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_compressed_file_can_be_read(path: Path, tmp_path: Path) -> None:
    with h5py.File(path) as file, h5py.File(tmp_path / "small.h5", "w") as small:
        for name in file:
            if name != "frames":
                file.copy(name, small)
        small.create_dataset("frames", data=file["frames"][:], compression="gzip", chunks=(4, SIZE, SIZE, 3))
        small.attrs.update(file.attrs)
    with Recording(path) as plain, Recording(tmp_path / "small.h5") as packed:
        assert np.array_equal(plain.frames(3, 90), packed.frames(3, 90))


def test_empty_recording_raises_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^out: expected at least 1 episode"):
        write(tmp_path / "out.h5", [])
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^out: expected an existing folder, got .*nowhere"):
        RecordingWriter(tmp_path / "nowhere" / "out.h5", SIZE, NAMES, True, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": np.zeros((4, 9, 9, 3), np.uint8)}, r"frames: expected shape \(4, 8.* of uint8, got \(4, 9, 9, 3\)"),
        ({"frames": np.zeros((4, 3, 8, 8), np.uint8)}, "frames: expected shape"),
        ({"frames": np.zeros((4, 8, 8, 3), np.float32)}, "frames: expected shape .*, got .* of float32"),
        ({"frames": np.zeros((0, 8, 8, 3), np.uint8)}, "actions: expected shape"),
        ({"rewards": np.zeros(3, np.float32)}, r"rewards: expected shape .*, got \(3,\)"),
        ({"rewards": np.full(4, np.nan, np.float32)}, "rewards: expected finite values"),
        ({"actions": np.full(4, 3, np.int16)}, "actions: expected -1 to 2, got 3 to 3"),
        ({"pose": None}, "pose: expected poses, .*got none"),
    ],
)
def test_invalid_episode_raises_and_leaves_no_file(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    valid = vars(make_episode(4, 0))
    with pytest.raises(InputError, match=f"^{message}"):
        write(tmp_path / "out.h5", [EPISODES[0], Episode(**(valid | changes))])
    assert list(tmp_path.iterdir()) == []


# Damaged files


def test_truncated_file_raises(path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 1, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"^file: expected an undamaged tdvae recording, got .*made\.h5"):
            Recording(path)


def test_changed_frames_raise_when_they_are_read(path: Path) -> None:
    with h5py.File(path) as file:
        place = file["frames"].id.get_chunk_info(2).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 5] ^= 1
    path.write_bytes(content)
    with Recording(path) as recording:
        recording.frames(0, 16)
        with pytest.raises(InputError, match="expected an undamaged tdvae recording"):
            recording.frames(10, 20)


def test_other_files_raise(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected an existing file, got .*nowhere"):
        Recording(tmp_path / "nowhere.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.zeros(3)
    with pytest.raises(InputError, match=r"expected a tdvae recording, got another HDF5 file"):
        Recording(tmp_path / "other.h5")


@pytest.mark.parametrize("damage", ["version", "missing", "shorter", "episodes", "about"])
def test_inconsistent_file_raises(damage: str, path: Path) -> None:
    with h5py.File(path, "r+") as file:
        if damage == "version":
            file.attrs["version"] = 99
        elif damage == "missing":
            del file["rewards"]
        elif damage == "shorter":
            file["actions"].resize(50, axis=0)
        elif damage == "episodes":
            file["episodes/length"][1] = 5
        else:
            del file["about"]
            file["about"] = "not JSON"
    with pytest.raises(
        InputError, match=r"^file: expected (an undamaged tdvae recording|version 1 of the format), got .*made\.h5"
    ):
        Recording(path)


# Windows


def test_windows_are_a_sequence_source(path: Path) -> None:
    source = windows(Recording(path), 5)
    assert isinstance(source, SequenceSource)
    assert source.lengths.tolist() == [5] * len(source)
    assert len(source) == 6 + 0 + 3 + 8 + 2


@pytest.mark.parametrize("stride", [None, 1, 3, 50])
def test_windows_equal_slices_of_the_episodes(stride: int | None, path: Path) -> None:
    recording = Recording(path)
    source = windows(recording, 12, stride, with_actions=True, with_rewards=True)
    selected = source.select(torch.arange(len(source)))
    rows: list[tuple[Episode, int]] = []
    for episode in EPISODES:
        rows += [(episode, start) for start in range(0, len(episode) - 11, stride or 12)]
    assert len(rows) == len(selected)
    assert selected.actions is not None
    assert selected.rewards is not None
    pose = source.pose(slice(None))
    for number, (episode, start) in enumerate(rows):
        part = slice(start, start + 12)
        expected = episode.frames[part].transpose(0, 3, 1, 2) / np.float32(255)
        assert np.array_equal(selected.x[number].numpy(), expected)
        one_hot = episode.actions[part, None] == np.arange(3)
        assert np.array_equal(selected.actions[number].numpy(), one_hot.astype(np.float32))
        assert np.array_equal(selected.rewards[number].numpy(), episode.rewards[part])
        assert episode.pose is not None
        assert np.array_equal(pose[number].numpy(), episode.pose[part])


def test_frames_are_floats_from_0_to_1_with_channels_first(path: Path) -> None:
    batch = windows(Recording(path), 5).select(torch.tensor([4, 0, 4]))
    assert batch.x.shape == (3, 5, 3, SIZE, SIZE)
    assert batch.x.dtype == torch.float32
    assert 0 <= batch.x.min() < 0.1 < 0.9 < batch.x.max() <= 1
    assert torch.equal(batch.x[0], batch.x[2])
    assert batch.actions is None
    assert batch.rewards is None


def test_only_the_first_frame_of_an_episode_has_no_action(path: Path) -> None:
    actions = windows(Recording(path), 5, with_actions=True).select(torch.tensor([0, 1])).actions
    assert actions is not None
    assert actions[0, 0].sum() == 0
    assert actions[0, 1:].sum() == 4
    assert actions[1].sum() == 5


def test_split_uses_each_long_episode_in_exactly_one_part(path: Path) -> None:
    recording = Recording(path)
    parts = split_windows(recording, 5, seed=0, stride=1)
    ends = recording.starts + recording.lengths
    episodes = [set(np.searchsorted(ends, part.starts.numpy(), side="right").tolist()) for part in parts]
    assert set.union(*episodes) == {0, 2, 3, 4}
    assert sum(map(len, episodes)) == 4
    assert [len(one) for one in episodes] == [2, 1, 1]
    assert sum(map(len, parts)) == len(windows(recording, 5, 1))
    again = split_windows(recording, 5, seed=0, stride=1)
    assert all(torch.equal(a.starts, b.starts) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length: expected an integer of at least 1, got 0"),
        ({"length": 5, "stride": 0}, "stride: expected an integer of at least 1, got 0"),
        ({"length": 42}, "length: expected at most 41, the longest of 5 episodes, got 42"),
        ({"length": 5, "episodes": [5]}, "episodes: expected numbers from 0 to 4, got 5 to 5"),
        ({"length": 5, "episodes": []}, "length: expected at most 0, the longest of 0 episodes, got 5"),
    ],
)
def test_invalid_window_arguments_raise(arguments: dict[str, Any], message: str, path: Path) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        windows(Recording(path), **arguments)


def test_invalid_selections_and_splits_raise(path: Path) -> None:
    recording = Recording(path)
    source = windows(recording, 5)
    with pytest.raises(InputError, match=r"^index: expected windows from 0 to 18, got 3 to 19"):
        source.select(torch.tensor([3, 19]))
    with pytest.raises(InputError, match=r"^index: expected at least 1 window, got none"):
        source.select(torch.tensor([], dtype=torch.int64))
    with pytest.raises(InputError, match=r"^starts: expected one axis of torch\.int64"):
        FrameWindows(recording, 5, torch.zeros(3))
    with pytest.raises(InputError, match=r"^shares: expected three"):
        split_windows(recording, 5, 0, shares=(0.5, 0.5, 0.5))
    with pytest.raises(InputError, match=r"^length: expected at least 3 episodes of 20 frames .*, got 2 in "):
        split_windows(recording, 20, 0)
    with pytest.raises(InputError, match=r"^number: expected an episode from 0 to 4, got 5"):
        recording.episode(5)


def test_fit_on_windows(path: Path, tmp_path: Path) -> None:
    train, validation, _ = split_windows(Recording(path), 6, seed=0, with_actions=True)
    model = tdvae.models.for_data(train.select(slice(None)), layers=1, latent=2, belief=LinearRecurrence(4))
    config = tdvae.TrainConfig(steps=2, batch_size=3, validate_every=1)
    learner = tdvae.Learner(model)
    result = tdvae.fit(learner, train, tdvae.jumps.Uniform(1, 3), config, tmp_path / "run", validation, progress="none")
    assert result.best_score is not None
    assert np.isfinite(result.best_score)


# Resizing of frames


def test_resized_pixel_is_the_mean_of_its_area() -> None:
    image = np.zeros((4, 8, 3), np.uint8)
    image[:2, :4] = (200, 100, 50)
    image[3, 7] = 80
    square = to_square(image, 2)
    assert square.tolist() == [[[200, 100, 50], [0, 0, 0]], [[0, 0, 0], [10, 10, 10]]]


@pytest.mark.parametrize(
    ("image", "hint"),
    [
        (np.zeros((3, 64, 64), np.uint8), "channels seem to be first"),
        (np.zeros((64, 64), np.uint8), "grey"),
        (np.zeros((64, 64, 1), np.uint8), "grey"),
        (np.zeros((64, 64, 4), np.uint8), "fourth channel"),
        (np.zeros((64, 64, 3), np.float32), "got .* of float32"),
        (np.zeros((5, 64, 64, 3), np.uint8), r"got \(5, 64, 64, 3\)"),
    ],
)
def test_invalid_image_raises(image: Any, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        to_square(image, 64)
