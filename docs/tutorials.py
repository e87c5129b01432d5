"""Run the code and the commands of the pages. `python docs/tutorials.py [PAGE …]` writes their outputs and figures.

- `python` and `sh` blocks are run in the order of the page, in one new folder per page. A `python` block with a title
  is written to the file of that name.
- A `text` block right after one of them is what it prints.
- A figure `figures/NAME` on a page is the file NAME that the code of the page writes.
- A `python` block whose title begins with `src/` is an excerpt of that file, and is not run.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

DOCS = Path(__file__).resolve().parent
FIGURES = DOCS / "figures"
BLOCK = re.compile(
    r"^```(\w*)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
FIGURE = re.compile(
    r"!\[[^\]]*\]\(figures/([^)#]+)\)"
)  # those with #only-light are drawn by figures.py
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, at the characters ``start`` to ``end`` of its text without the fence."""

    language: str
    title: str
    code: str
    start: int
    end: int

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and not self.is_excerpt

    @property
    def is_excerpt(self) -> bool:
        return self.title.startswith("src/")


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a text. Those without a language are not run."""
    return [
        Block(m[1], m[2] or "", m[3], m.start(3), m.end(3))
        for m in BLOCK.finditer(text)
    ]


def blocks(page: str) -> list[Block]:
    return blocks_of((DOCS / page).read_text())


PAGES = sorted(
    path.name
    for path in DOCS.glob("*.md")
    if any(block.runs for block in blocks(path.name))
)


@dataclass(frozen=True)
class Output:
    """The `text` block of a page, and what the block before it printed."""

    block: Block
    printed: str


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Use the folder as the working directory and for imports."""
    before, modules = Path.cwd(), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        for name in set(sys.modules) - modules:
            if str(
                getattr(sys.modules[name], "__file__", None) or ""
            ).startswith(str(folder)):
                del sys.modules[name]


def run_page(page: str, folder: Path) -> list[Output]:
    """Run a page in the folder. Return what is printed where the page shows it."""
    import matplotlib

    matplotlib.use("Agg")
    outputs, printed, names = [], "", {"__name__": "__main__"}
    with working_in(folder):
        for block in blocks(page):
            if block.runs:
                printed = _run(block, page, names)
            elif block.language == "text":
                outputs.append(Output(block, printed))
    return outputs


def _run(block: Block, page: str, names: dict[str, Any]) -> str:
    if block.title:
        Path(block.title).write_text(block.code)
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        if block.language == "sh":
            run_commands(block.code)
        elif not block.title:
            exec(compile(block.code, page, "exec"), names)
    return stdout.getvalue()


def run_commands(code: str) -> None:
    """Run commands. `tdvae …` and `python FILE` run in this process: a new one takes seconds to import everything."""
    from tdvae.cli import main
    from tdvae_paper import jobs

    lines = [
        shlex.split(line, comments=True)
        for line in code.replace("\\\n", " ").splitlines()
    ]
    if all(
        line[0] == "tdvae" or (line[0] == "python" and line[1].endswith(".py"))
        for line in lines
    ):
        for line in lines:
            program, arguments = (
                (main, line)
                if line[0] == "tdvae"
                else (partial(_run_file, line[1]), line[1:])
            )
            with (
                patch.object(sys, "argv", arguments),
                patch.object(jobs, "_usable_cores", lambda: 1),
            ):
                program()
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"{code}\n{done.stdout}\n{done.stderr}")


def _run_file(path: str) -> None:
    runpy.run_path(path, run_name="__main__")


def agree(
    shown: str, printed: str, relative: float = 0.05, absolute: float = 0.02
) -> bool:
    """Whether two texts are equal up to white space and small differences of their numbers."""
    if NUMBER.sub("", shown).split() != NUMBER.sub("", printed).split():
        return False
    numbers = [
        [float(number) for number in NUMBER.findall(text)]
        for text in (shown, printed)
    ]
    return len(numbers[0]) == len(numbers[1]) and all(
        math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
        for a, b in zip(*numbers, strict=True)
    )


def figures(page: str) -> list[str]:
    """The names of the figures on a page that its code has to write."""
    return FIGURE.findall((DOCS / page).read_text())


def similar(shown: Path, drawn: Path) -> bool:
    """Whether two figures have the same size and nearly the same pixels; fonts and rounding may differ a little."""
    from PIL import Image

    first, second = (
        np.asarray(Image.open(path).convert("L"), float)
        for path in (shown, drawn)
    )
    return (
        first.shape == second.shape and float(np.abs(first - second).mean()) < 8
    )


def problems(page: str, folder: Path) -> list[str]:
    """Run a page in the folder. Return where it shows something else than its code gives."""
    found = []
    for output in run_page(page, folder):
        if not agree(output.block.code, output.printed):
            found.append(
                f"{page} shows:\n{output.block.code}but its code prints:\n{output.printed}"
            )
    for name in figures(page):
        if not (folder / name).exists():
            found.append(
                f"{page}: the code of the page does not write the figure {name}"
            )
        elif not similar(FIGURES / name, folder / name):
            found.append(
                f"{page}: figures/{name} differs from what the code draws; run docs/tutorials.py {page}"
            )
    return found


def write_page(page: str) -> None:
    """Run a page, and write its outputs and figures."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        outputs = run_page(page, folder)
        text = (DOCS / page).read_text()
        for output in reversed(outputs):
            text = (
                text[: output.block.start]
                + output.printed.rstrip()
                + "\n"
                + text[output.block.end :]
            )
        (DOCS / page).write_text(text)
        for name in figures(page):
            shutil.copy(folder / name, FIGURES / name)


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        write_page(name)
