"""The public surface: what `tdvae` offers, what importing it and asking for help load, and that examples run."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tdvae
from tdvae.cli import Command

ROOT = Path(__file__).resolve().parents[1]
OFFERED = {name: getattr(tdvae, name) for name in tdvae.__all__}
DOCUMENTED = [name for name, value in OFFERED.items() if not inspect.ismodule(value)]
SHELLS = ("bash", "zsh")
HEAVY = ("torch", "matplotlib", "gymnasium", "h5py")


# Names


def test_every_public_name_is_the_one_its_module_defines() -> None:
    modules = set(OFFERED) - set(tdvae._DEFINED_IN)
    assert set(tdvae._DEFINED_IN) == set(DOCUMENTED)
    assert all(OFFERED[name].__name__ == f"tdvae.{name}" for name in modules)
    assert sorted(tdvae.__all__) == sorted(set(tdvae.__all__))
    assert dir(tdvae) == sorted([*tdvae.__all__, "__version__"])


def test_type_checkers_are_told_the_same_names() -> None:
    tree = ast.parse(Path(tdvae.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    told = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told == set(tdvae.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tdvae' has no attribute 'nonsense'$"):
        tdvae.nonsense  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = doctest.DocTestFinder(recurse=False).find(OFFERED[name], name, module=False, globs={})
    assert found.examples, f"{name} has no example"
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(optionflags=flags).run(found, out=said.append)
    assert result.failed == 0, "".join(said)


# What is imported, and when


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    kept = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def loaded_after(code: str) -> set[str]:
    """Which of the large dependencies a fresh interpreter has imported after ``code``."""
    ask = f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    return set(json.loads(python(f"import json, sys\n{code}\n{ask}").splitlines()[-1]))


def test_importing_the_package_loads_nothing_large() -> None:
    assert loaded_after("import tdvae; tdvae.__version__, dir(tdvae)") == set()


def test_plots_environments_and_recordings_are_loaded_when_they_are_used() -> None:
    used = [
        "data.from_arrays",
        "models.for_data",
        "fit",
        "Learner",
        "jumps",
        "exact",
        "load",
        "rollout",
        "forecast",
        "stack",
    ]
    assert loaded_after("import tdvae\n" + "\n".join(f"tdvae.{name}" for name in used)) == {"torch"}
    assert loaded_after("import tdvae; tdvae.envs") >= {"gymnasium"}


def command(arguments: Sequence[str]) -> str:
    """Code that calls `tdvae` with these arguments and then goes on."""
    return (
        f"import sys; sys.argv = ['tdvae', *{list(arguments)}]\n"
        "from tdvae.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    pass"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "--version",
        "--help",
        "run --help",
        "record --help",
        "--tyro-print-completion bash",
        "--tyro-print-completion zsh",
    ],
)
def test_help_loads_nothing_large(arguments: str) -> None:
    assert loaded_after(command(arguments.split())) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        "run nonsense",
        "run oscillator --nonsense",
        "run oscillator --resume",
        "fit mine.npz --resume",
        "rollout oscillator --jumps one",
        "bench --repeats 0",
    ],
)
def test_a_refused_argument_loads_nothing_large(arguments: str) -> None:
    refused = command(arguments.split()) + "\n    assert stop.code == 2\nelse:\n    raise AssertionError('not refused')"
    assert loaded_after(refused) == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_the_commands(shell: str) -> None:
    script = python(command(["--tyro-print-completion", shell]))
    assert f"tdvae --tyro-print-completion {shell} >" in (ROOT / "README.md").read_text()
    names = {part.__metadata__[0].name for part in Command.__args__}
    assert names >= {"run", "fit", "eval"}
    assert all(re.search(rf"\b{name}\b", script) for name in names)


def test_a_command_runs_in_one_thread_unless_the_user_says_otherwise() -> None:
    run = (
        "import sys; sys.argv = ['tdvae', 'eval', 'oscillator']\n"
        "from tdvae import cli\n"
        "def main(self):\n    import torch\n    print(torch.get_num_threads())\n"
        "cli.Eval.main = main\n"
        "cli.main()"
    )
    assert python(run) == "1\n"
    assert python(run, OMP_NUM_THREADS="2") == "2\n"


# Versions


def test_the_version_is_written_once() -> None:
    assert python(command(["--version"])) == f"tdvae {tdvae.__version__}\n"
    assert f"version: {tdvae.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{tdvae.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("folder", ["src", "tests", "docs"])
def test_sources_are_valid_in_the_oldest_python_that_is_supported(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    for path in paths:
        ast.parse(path.read_text(), str(path), feature_version=(3, 11))
