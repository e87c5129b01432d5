"""Tests of checksums, of the TFRecord reader, and of the conversion of RL Unplugged."""

from __future__ import annotations

import gzip
import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tdvae.data.recording import NO_ACTION, Ending, Recording
from tdvae.errors import InputError
from tdvae_paper.first_person.rl_unplugged import convert, masked_crc, parse_example, read_episodes, read_examples
from tests import tf_files
from tests.tf_files import encode_record, example, field, lab_episode, varint, write

FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=20)
INTS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)
FEATURES = st.dictionaries(
    st.text(max_size=12),
    st.one_of(
        st.tuples(st.just("bytes"), st.lists(st.binary(max_size=40), max_size=5)),
        st.tuples(st.just("floats"), FLOATS),
        st.tuples(st.just("ints"), INTS),
    ),
    max_size=6,
)
SAMPLE: dict[str, Any] = {"a": ("ints", [1, -2, 300]), "b": ("floats", [0.5, -1.5]), "c": ("bytes", [b"xyz", b""])}


# Checksums


def test_masked_crc_is_a_rotation_and_an_offset() -> None:
    assert masked_crc(b"") == 0xA282EAD8
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15) + ((0xE3069283 & 0x7FFF) << 17) + 0xA282EAD8) % 2**32


# Examples


@given(FEATURES, st.booleans())
def test_example_round_trip(features: dict[str, tuple[str, Any]], packed: bool) -> None:
    parsed = parse_example(example(features, packed))
    assert set(parsed) == set(features)
    for name, (kind, values) in features.items():
        if kind == "floats" and len(values):
            assert parsed[name].dtype == np.float32  # type: ignore[union-attr]
        assert list(parsed[name]) == list(values)


def test_unknown_fields_are_skipped() -> None:
    content = example(SAMPLE)
    extra = varint(9 << 3 | 0) + varint(5) + varint(9 << 3 | 1) + bytes(8) + varint(9 << 3 | 5) + bytes(4)
    assert list(parse_example(extra + field(12, b"what") + content)["a"]) == [1, -2, 300]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x0a", "unterminated"),
        (b"\x0a\x05abc", "to end at byte 5 or before, got 7"),
        (b"\xff" * 11, "unterminated"),
        (b"\x80" * 9 + b"\x7f", "64 bits"),
        (b"\x0b", "expected wire type .*, got 3"),
        (b"\x02\x00", "field number of at least 1, got 0"),
        (field(1, field(1, field(1, b"\xff\xfe"))), "expected a feature name in UTF-8"),
        (
            field(1, field(1, field(1, b"a") + field(2, field(2, field(1, b"abc"))))),
            "expected a multiple of 4 bytes for a list of floats, got 3",
        ),
        (
            field(1, field(1, field(1, b"a") + field(2, field(3, b"\x0d" + bytes(4))))),
            "expected wire type 0 or 2 .*, got 5",
        ),
    ],
)
def test_invalid_example_raises(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_example(content)


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_raise_input_error(content: bytes) -> None:
    parsed: object = {}
    with suppress(InputError):
        parsed = parse_example(content)
    assert isinstance(parsed, dict)


def test_example_of_the_protobuf_library() -> None:
    message = protobuf_example()
    message.features.feature["ints"].int64_list.value.extend([0, -1, 2**62])
    message.features.feature["floats"].float_list.value.extend([0.25, -3.5])
    message.features.feature["bytes"].bytes_list.value.extend([b"", b"picture"])
    parsed = parse_example(message.SerializeToString())
    assert {name: list(values) for name, values in parsed.items()} == {
        "ints": [0, -1, 2**62],
        "floats": [0.25, -3.5],
        "bytes": [b"", b"picture"],
    }


def protobuf_example() -> Any:
    """Return an empty tf.train.Example of the protobuf library, from the published definition of the message."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tf", syntax="proto3")
    for name, of in (("Bytes", kind.TYPE_BYTES), ("Float", kind.TYPE_FLOAT), ("Int64", kind.TYPE_INT64)):
        values = file.message_type.add(name=f"{name}List")
        values.field.add(name="value", number=1, type=of, label=kind.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("Bytes", "Float", "Int64"), 1):
        feature.field.add(
            name=f"{name.lower()}_list",
            number=number,
            type=kind.TYPE_MESSAGE,
            label=kind.LABEL_OPTIONAL,
            type_name=f".tf.{name}List",
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    message: dict[str, Any] = {"type": kind.TYPE_MESSAGE, "label": kind.LABEL_OPTIONAL}
    entry.field.add(name="value", number=2, type_name=".tf.Feature", **message)
    features.field.add(
        name="feature",
        number=1,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=".tf.Features.FeatureEntry",
    )
    message_type = file.message_type.add(name="Example")
    message_type.field.add(name="features", number=1, type_name=".tf.Features", **message)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tf.Example"))()


# Files


def test_records_of_the_tensorboard_writer(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.record_writer")
    with (tmp_path / "file").open("wb") as file:
        records = writer.RecordWriter(file)
        for number in range(3):
            records.write(example({"n": ("ints", [number]), "long": ("bytes", [bytes(50_000)])}))
        records.flush()
    assert [list(one["n"]) for one in read_examples(tmp_path / "file")] == [[0], [1], [2]]


@pytest.mark.parametrize("compressed", [True, False])
def test_records_are_read_in_order(compressed: bool, tmp_path: Path) -> None:
    contents = [example({"n": ("ints", [number])}) for number in range(5)]
    found = [list(one["n"]) for one in read_examples(write(tmp_path / "file", contents, compressed))]
    assert found == [[0], [1], [2], [3], [4]]
    assert list(read_examples(write(tmp_path / "none", [], compressed))) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_changed_byte_raises(data: st.DataObject, tmp_path: Path) -> None:
    whole = encode_record(example(SAMPLE)) + encode_record(example(SAMPLE))
    place, change = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    path = tmp_path / "file"
    path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
    with pytest.raises(InputError, match=r"^file: expected (an undamaged TFRecord|a readable) file, got .*file"):
        list(read_examples(path))


@pytest.mark.parametrize("compressed", [True, False])
def test_truncated_file_raises_at_any_length(compressed: bool, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", [example(SAMPLE)], compressed).read_bytes()
    for length in range(1, len(whole)):
        (tmp_path / "truncated").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"^file: .*truncated\b"):
            list(read_examples(tmp_path / "truncated"))


def test_error_names_the_damaged_record(tmp_path: Path) -> None:
    good, bad = encode_record(example(SAMPLE)), bytearray(encode_record(example(SAMPLE)))
    bad[20] ^= 1
    (tmp_path / "file").write_bytes(gzip.compress(good + good + bytes(bad)))
    with pytest.raises(InputError, match="record 2: the content does not match its checksum"):
        list(read_examples(tmp_path / "file"))


def test_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected an existing file, got .*nowhere"):
        list(read_examples(tmp_path / "nowhere"))


# RL Unplugged


def images(steps: int, seed: int = 0, shape: tuple[int, int] = (72, 96)) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (steps, *shape, 3), dtype=np.uint8)


def lab_file(path: Path, *episodes: dict[str, Any]) -> Path:
    return write(path, [example(episode) for episode in episodes])


def test_read_lab_episode(tmp_path: Path) -> None:
    rgb = np.zeros((4, 72, 96, 3), np.uint8)
    rgb[..., 0] = 200  # red
    path = lab_file(tmp_path / "tfrecord", lab_episode(rgb, [3, 14, 0, 5], [0.0, 1.0, -1.0, 10.0]))
    ((episode, actions),) = read_episodes(path)
    assert actions == 15
    assert episode.frames.shape == (4, 64, 64, 3)
    assert (episode.frames == [200, 0, 0]).all()  # still red
    assert episode.actions.tolist() == [NO_ACTION, 3, 14, 0]  # the action that led to each frame
    assert episode.rewards.tolist() == [0, 0, 1, -1]
    assert episode.unseen_reward == 10
    assert episode.ending == Ending.TERMINATED
    assert episode.pose is None


def test_frames_of_the_target_size_are_unchanged(tmp_path: Path) -> None:
    rgb = images(3, shape=(64, 64))
    ((episode, _),) = read_episodes(lab_file(tmp_path / "file", lab_episode(rgb, [1, 2, 3], [0, 0, 0])))
    assert np.array_equal(episode.frames, rgb)


def test_convert_several_files_to_one_recording(tmp_path: Path) -> None:
    episodes = [lab_episode(images(5, seed), [seed] * 5, [0.5] * 5) for seed in range(3)]
    files = [lab_file(tmp_path / "one", *episodes[:2]), lab_file(tmp_path / "two", episodes[2])]
    progress: list[int] = []
    convert(files, tmp_path / "all.h5", progress=progress.append)
    assert progress == [5, 10, 15]
    with Recording(tmp_path / "all.h5") as recording:
        assert recording.lengths.tolist() == [5, 5, 5]
        assert len(recording.action_names) == 15
        assert recording.actions(0, 15).tolist() == [-1, 0, 0, 0, 0, -1, 1, 1, 1, 1, -1, 2, 2, 2, 2]
        assert not recording.has_pose
        assert recording.about["world"] == "RL Unplugged, DeepMind Lab"
    convert(files, tmp_path / "some.h5", frames=6, size=32)
    with Recording(tmp_path / "some.h5") as recording:
        assert recording.lengths.tolist() == [5, 5]
        assert recording.size == 32


def test_sequence_within_an_episode_keeps_its_first_action(tmp_path: Path) -> None:
    changed = lab_episode(images(2), [1, 2], [0.0, 0.0], start_idx=("ints", [100]))
    ((episode, _),) = read_episodes(lab_file(tmp_path / "file", changed))
    assert episode.actions.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations_pixels": ("bytes", [])}, "observations_pixels: expected a list of images, got none"),
        ({"observations_pixels": ("bytes", [b"junk", b"junk"])}, "expected PNG or JPEG images"),
        ({"observations_pixels": ("bytes", [tf_files.png(np.zeros((72, 96), np.uint8))] * 2)}, r"got \(72, 96\)"),
        ({"rewards": ("floats", [1.0])}, "rewards: expected 2 values, one per image, got 1"),
        ({"rewards": ("ints", [1, 2])}, "rewards: expected floats, got int64"),
        ({"discounts": ("bytes", [b"a"])}, "discounts: expected floats, got bytes"),
        ({"rewards": ("floats", [1.0, float("nan")])}, "rewards: expected finite values"),
        (
            {"observations_action": ("floats", [0.0] * 31)},
            "expected a multiple of 2 values, the number of images, got 31",
        ),
        ({"observations_action": ("floats", [1.0, 1.0, 0.0, 0.0])}, "expected one-hot rows"),
        ({"start_idx": ("ints", [])}, "start_idx: expected one int64, got 0 values"),
    ],
)
def test_invalid_episode_raises_and_leaves_no_file(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = lab_episode(images(2), [0, 1], [0.0, 0.0])
    path = lab_file(tmp_path / "file", good, good | changes)
    with pytest.raises(InputError, match=message) as caught:
        convert([path], tmp_path / "out.h5")
    assert f"{path}, episode 1: " in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_missing_feature_raises(tmp_path: Path) -> None:
    episode = lab_episode(images(2), [0, 1], [0.0, 0.0])
    del episode["discounts"]
    with pytest.raises(InputError, match="discounts: expected floats, got none"):
        list(read_episodes(lab_file(tmp_path / "file", episode)))


def test_invalid_convert_arguments_raise(tmp_path: Path) -> None:
    path = lab_file(tmp_path / "file", lab_episode(images(2), [0, 1], [0.0, 0.0]))
    with pytest.raises(InputError, match=r"^files: expected at least one TFRecord file of RL Unplugged, got none"):
        convert([], tmp_path / "out.h5")
    with pytest.raises(InputError, match=r"^frames: expected at least 1, got 0"):
        convert([path], tmp_path / "out.h5", frames=0)
    with pytest.raises(InputError, match=r"^size: .*got 4"):
        convert([path], tmp_path / "out.h5", size=4)
    with pytest.raises(InputError, match=r"^out: .* exists already"):
        convert([path], path)
    with pytest.raises(InputError, match=r"^files: expected at least one episode in"):
        convert([write(tmp_path / "empty", [])], tmp_path / "out.h5")


def test_missing_package_is_one_line_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    monkeypatch.delitem(sys.modules, "tdvae_paper.first_person.rl_unplugged")
    with pytest.raises(InputError, match=r"^convert: expected the package google-crc32c.*pip install 'tdvae\[lab\]'$"):
        importlib.import_module("tdvae_paper.first_person.rl_unplugged")
