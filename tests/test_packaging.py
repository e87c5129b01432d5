"""The built package: building does not change the source tree, and the installed wheel works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git tracks."""
    copy = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    before = files(source)
    pip("wheel", source, "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    assert files(source) == before
    (built,) = folder.iterdir()
    return built


def test_wheel_holds_exactly_the_files_of_the_package(source: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {str(path) for path in files(source / "src")}
    assert held == package
    assert {"tdvae/py.typed", "tdvae/weights/oscillator/weights.safetensors"} <= held


def test_installed_wheel_evaluates_a_shipped_model(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    pip("install", wheel, "--no-deps", "--no-index", "--no-compile", "--target", installed)
    # With these limits glibc keeps freed memory, and the evaluation takes two thirds of the time.
    memory = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**32)}

    def python(*arguments: str) -> str:
        environment = {**os.environ, **memory, "PYTHONPATH": str(installed)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    printed = python(
        "-c", "import tdvae; from importlib.metadata import version; print(tdvae.__file__, version('tdvae'))"
    )
    path, version = printed.split()
    assert Path(path).is_relative_to(installed)
    assert python("-m", "tdvae", "--version") == f"tdvae {version}\n"
    measures = json.loads(python("-m", "tdvae", "eval", "oscillator", "--json"))["measures"]
    assert measures["information_share"]["1"]["mean"] > 0.95
