"""README and docs: code runs and gives what is shown; tables match results/; commands, names and linked files exist."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from tdvae.cli import Run, parse
from tdvae_paper.registry import load

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import figures  # noqa: E402
import render  # noqa: E402
import tutorials  # noqa: E402

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
RESULTS = sorted((ROOT / "results").glob("*.json"))
PYTHON = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", range(len(PYTHON)))
def test_readme_code_runs(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.random.seed(0)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(PYTHON[block], "README.md", "exec"), names)
    if block == 0:
        assert (tmp_path / "futures.png").stat().st_size > 10_000
    else:
        assert names["forecasts"].quantiles.shape == (5, 3, 3, 1)  # type: ignore[attr-defined]
        assert (tmp_path / "runs" / "mine" / "metrics.jsonl").exists()


@pytest.mark.parametrize("page", tutorials.PAGES)
def test_code_of_the_page_runs(page: str, tmp_path: Path) -> None:
    """All code and commands of a page, in their order; it prints and draws what the page shows."""
    assert tutorials.problems(page, tmp_path) == []
    if page == "own_data.md":
        assert (tmp_path / "forecast.csv").read_text().count("\n") == 1 + 4  # steps
        assert {path.name for path in (tmp_path / "runs").iterdir()} == {"sales", "python"}


def test_first_pages_and_tutorials_are_executed() -> None:
    nav = re.search(r"^nav:\n(.*?)\n  - How it works", (ROOT / "mkdocs.yml").read_text(), re.DOTALL | re.MULTILINE)
    assert nav is not None
    pages = set(re.findall(r"\w+\.md", nav[1])) - {"tutorials.md"}
    assert len(pages) >= 6
    assert pages <= set(tutorials.PAGES)


def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A page with this text."""
    (tmp_path / "page.md").write_text(text)
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(tutorials, "DOCS", tmp_path)
    return "page.md"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\nprint('loss', 1.0)\n```\n\n```text\nloss 2.0\n```\n", "prints"),
        ("```python\nprint('loss')\n```\n\n```text\ngain\n```\n", "prints"),
        ("```python\nx = 1\n```\n\n![A figure](figures/what_is_this.png)\n", "does not write"),
        (
            "```python\nfrom PIL import Image\nImage.new('L', (9, 9)).save('what_is_this.png')\n```\n"
            "![A figure](figures/what_is_this.png)\n",
            "differs",
        ),
    ],
)
def test_page_that_shows_something_else_is_noticed(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = written(tmp_path, monkeypatch, text)
    (found,) = tutorials.problems(page, tmp_path / "run")
    assert problem in found


@pytest.mark.parametrize("text", ["```python\n1 / 0\n```\n", "```sh\nfalse\n```\n", "```sh\ntdvae eval nothing\n```\n"])
def test_page_whose_code_fails_is_noticed(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = written(tmp_path, monkeypatch, text)
    with pytest.raises((ZeroDivisionError, RuntimeError, SystemExit)):
        tutorials.problems(page, tmp_path / "run")


def figures_without_command(text: str, page: str) -> list[str]:
    """Figures of results/ on a page that does not have the command of their results."""
    missing = []
    for alt, name in re.findall(r"!\[([^\]]*)\]\((?:\.\./)?results/([\w.]+)\)", text):
        stem = max((file.stem for file in RESULTS if name.startswith(file.stem)), key=len, default="")
        content = json.loads((ROOT / "results" / f"{stem}.json").read_text()) if stem else {}
        blocks = [block for block in content.get("blocks", {}).values() if name.startswith(block["experiment"])]
        command = blocks[0]["command"] if blocks else content.get("command")
        if not alt or command is None or command not in text:
            missing.append(f"{page}: {name}")
    return missing


@pytest.mark.parametrize("page", PAGES)
def test_figures_have_their_command(page: str) -> None:
    text = (ROOT / page).read_text()
    assert figures_without_command(text, page) == []
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    others = [image for image in images if not re.match(r"(\.\./)?results/|figures/", image)]
    assert others == []
    if tutorials.FIGURE.search(text):
        assert Path(page).name in tutorials.PAGES  # whose code writes the figure


def test_figures_that_need_no_training_are_those_of_the_pages(tmp_path: Path) -> None:
    figures.redraw(tmp_path)
    for theme in figures.THEMES:
        figures.method(tmp_path / f"method_{theme}.png", theme)
    drawn = sorted(tmp_path.iterdir())
    assert len(drawn) == 5
    for path in drawn:
        shown = (figures.FIGURES if path.name.startswith("method") else figures.RESULTS) / path.name
        assert tutorials.similar(shown, path), path.name


def test_figure_without_its_command_is_noticed() -> None:
    page = (ROOT / "docs" / "minipacman.md").read_text()
    assert figures_without_command(page, "page") == []
    assert figures_without_command(page.replace("tdvae run minipacman --preset cpu", ""), "page") != []
    assert figures_without_command(page.replace("tdvae run minipacman-observed-state --run-dir", ""), "page") != []
    assert figures_without_command("![A figure](../results/nothing.png)", "page") == ["page: nothing.png"]


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page_exist(page: str) -> None:
    """Blocks without a language are not run; their commands can be parsed."""
    for block in tutorials.blocks_of((ROOT / page).read_text()):
        lines = [] if block.language else block.code.replace("\\\n", " ").splitlines()
        for line in lines:
            command = re.search(
                r"(?:^|-m )tdvae ((?:run|fit|forecast|eval|rollout|explore|bench|record|convert) .*)", line
            )
            if command is not None and "[options]" not in line:
                parse(shlex.split(command[1], comments=True))


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_page_exist(page: str) -> None:
    """Names such as `tdvae.data.split`, outside of code blocks."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    for name in set(re.findall(r"`(tdvae(?:\.\w+)+)", text)):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            pytest.fail(f"{page}: {name} does not exist")


def test_excerpts_agree_with_the_source() -> None:
    excerpts = [block for page in ROOT.glob("docs/*.md") for block in tutorials.blocks(page.name) if block.is_excerpt]
    assert excerpts
    for block in excerpts:
        lines = iter((ROOT / block.title).read_text().splitlines())
        missing = [line for line in block.code.splitlines() if line not in lines]  # each after the one before
        assert missing == []


def test_demo_command_of_the_makefile_is_valid() -> None:
    command = re.search(r"\$\(BIN\)/tdvae (run .*)", (ROOT / "Makefile").read_text())
    assert command is not None
    assert parse(command[1].split()) == Run("oscillator", preset="demo")


@pytest.mark.parametrize("page", render.PAGES)
def test_tables_match_the_results(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "<!-- end -->" in text
    assert render.rendered(text) == text


@pytest.mark.parametrize(
    ("mean", "text"), [(0.012783, "0.0128"), (78.23, "78.2"), (999.4, "999"), (999.7, "1,000"), (-1623.4, "-1,623")]
)
def test_values_have_three_digits_or_are_whole_numbers(mean: float, text: str) -> None:
    assert render.number(mean) == text


def test_inverse_of_a_measure() -> None:
    keys = "bench/time_to_loss_ratio/+ our model"
    share, inverse = (float(render.value(of, *keys.split("/", 1))) for of in (None, "1 / "))
    assert share * inverse == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("page", PAGES)
def test_linked_files_exist(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_published_command_can_be_repeated(path: Path) -> None:
    """Neither it nor the command of a block has --resume or an absolute path; what it runs exists."""
    content = json.loads(path.read_text())
    commands = [
        entry["command"].split() for entry in (content, *content.get("blocks", {}).values()) if "command" in entry
    ]
    assert commands
    for command in commands:
        assert "--resume" not in command
        assert not [part for part in command if part.startswith("/")]
        if command[:2] == ["tdvae", "run"] and "--preset" in command:
            assert command[command.index("--preset") + 1] in load(command[2]).presets
        if command[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(command[2])
