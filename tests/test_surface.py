"""The public API: names in `tdvae`, modules loaded by imports and by --help, docstring examples, versions."""

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
PUBLIC = {name: getattr(tdvae, name) for name in tdvae.__all__}
DOCUMENTED = [name for name, value in PUBLIC.items() if not inspect.ismodule(value)]
SHELLS = ("bash", "zsh")
LARGE_DEPENDENCIES = ("torch", "matplotlib", "gymnasium", "h5py", "pandas", "pyarrow")


# Names


def test_public_names_are_those_their_modules_define() -> None:
    modules = set(PUBLIC) - set(tdvae._DEFINED_IN)
    assert set(tdvae._DEFINED_IN) == set(DOCUMENTED)
    assert all(PUBLIC[name].__name__ == f"tdvae.{name}" for name in modules)
    assert sorted(tdvae.__all__) == sorted(set(tdvae.__all__))
    assert dir(tdvae) == sorted([*tdvae.__all__, "__version__"])


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tdvae.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(tdvae.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tdvae' has no attribute 'nonsense'$"):
        tdvae.nonsense  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, module=False, globs={})
    assert found.examples, f"{name} has no example"
    output: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(optionflags=flags).run(found, out=output.append)
    assert result.failed == 0, "".join(output)


# Imported modules


def python(code: str, **environment: str) -> str:
    """Run code in a new interpreter and return what it prints."""
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
    """Which large dependencies are imported in a new interpreter after ``code``."""
    report = f"print(json.dumps([name for name in {LARGE_DEPENDENCIES} if name in sys.modules]))"
    return set(json.loads(python(f"import json, sys\n{code}\n{report}").splitlines()[-1]))


def test_importing_the_package_loads_no_large_dependency() -> None:
    assert loaded_after("import tdvae; tdvae.__version__, dir(tdvae)") == set()


def test_matplotlib_gymnasium_and_h5py_are_loaded_on_use() -> None:
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
        "prepare",
    ]
    assert loaded_after("import tdvae\n" + "\n".join(f"tdvae.{name}" for name in used)) == {"torch"}
    assert loaded_after("import tdvae; tdvae.envs") >= {"gymnasium"}


def command(arguments: Sequence[str]) -> str:
    """Code that calls `tdvae` with these arguments and continues after its exit."""
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
        "--completion bash",
        "--completion zsh",
    ],
)
def test_help_loads_no_large_dependency(arguments: str) -> None:
    assert loaded_after(command(arguments.split())) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        "run nonsense",
        "run oscillator --nonsense",
        "run oscillator --resume",
        "fit mine.npz --resume",
        "rollout oscillator --horizon one",
        "bench --repeats 0",
    ],
)
def test_argument_error_loads_no_large_dependency(arguments: str) -> None:
    code = command(arguments.split()) + "\n    assert stop.code == 2\nelse:\n    raise AssertionError('no error')"
    assert loaded_after(code) == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_has_all_commands(shell: str) -> None:
    script = python(command(["--completion", shell]))
    assert f"tdvae --completion {shell} >" in (ROOT / "docs" / "first_ten_minutes.md").read_text()
    names = {part.__metadata__[0].name for part in Command.__args__}
    assert names >= {"run", "fit", "eval"}
    assert all(re.search(rf"\b{name}\b", script) for name in names)


def test_commands_use_one_thread_by_default() -> None:
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


def test_versions_agree() -> None:
    assert python(command(["--version"])) == f"tdvae {tdvae.__version__}\n"
    assert f"version: {tdvae.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{tdvae.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("folder", ["src", "tests", "docs"])
def test_sources_are_valid_in_the_oldest_supported_python(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    for path in paths:
        ast.parse(path.read_text(), str(path), feature_version=(3, 11))
