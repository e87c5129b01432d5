"""README and docs: code blocks run, tables match results/, commands and linked files exist."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import tyro

from tdvae.cli import Command, Run, main

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import render  # noqa: E402

PYTHON = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", range(len(PYTHON)))
def test_readme_code_runs(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.random.seed(0)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(PYTHON[block], "README.md", "exec"), names)
    if "future" in names:
        assert tuple(names["future"].shape) == (6, 16, 1, 1)  # type: ignore[attr-defined]
    if "forecasts" in names:
        assert names["forecasts"].quantiles.shape == (5, 3, 3, 1)  # type: ignore[attr-defined]
    if "recipe" in names:
        assert (tmp_path / "runs" / "mine" / "metrics.jsonl").exists()
    else:
        assert names["model"] is not None


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All code and commands of the page about own data, in their order."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python)?\n(.*?)```", (ROOT / "docs" / "own_data.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    commands = 0
    for language, block in blocks:
        if language:
            exec(compile(block, "own_data.md", "exec"), names)
            continue
        for line in block.splitlines():
            monkeypatch.setattr("sys.argv", shlex.split(line))
            main()
            commands += 1
    assert commands == 5
    steps, columns = names["forecast"].shape  # type: ignore[attr-defined]
    assert (steps, columns) == (4, 11)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"sales", "python"}


def test_demo_command_of_the_makefile_is_valid() -> None:
    command = re.search(r"\$\(BIN\)/tdvae (run .*)", (ROOT / "Makefile").read_text())
    assert command is not None
    parsed = tyro.cli(Command, args=command[1].split())
    assert parsed == Run("oscillator", preset="demo")


@pytest.mark.parametrize("page", render.PAGES)
def test_tables_match_the_results(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "<!-- table:" in text
    assert render.rendered(text) == text


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_linked_files_exist(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem)
def test_published_command_can_be_repeated(path: Path) -> None:
    """Neither it nor the command of a block has --resume or an absolute path."""
    content = json.loads(path.read_text())
    commands = [
        entry["command"].split() for entry in (content, *content.get("blocks", {}).values()) if "command" in entry
    ]
    assert commands
    for command in commands:
        assert "--resume" not in command
        assert not [part for part in command if part.startswith("/")]
