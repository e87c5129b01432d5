"""The documentation site: it is built strictly, loads nothing from other hosts, and has all public names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from inspect import ismodule
from pathlib import Path

import pytest
from filelock import FileLock

import tdvae

ROOT = Path(__file__).resolve().parents[1]
# What the theme's scripts could load, and by which part of a page. No page may have these parts.
PARTS_THAT_LOAD = {
    "https://unpkg.com/mermaid": "mermaid",
    "https://api.github.com": "md-source",
    "https://${": "md-source",
}
MENTIONED = ("https://unpkg.com/resize-observer", "https://bit.ly")  # in messages of the theme's scripts
NAMESPACES = ("http://www.w3.org/",)  # names in SVG and MathML


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    options = [
        "--strict",
        "--site-dir",
        str(folder),
        "--config-file",
        str(config),
    ]  # not --quiet, which ignores --strict
    command = [sys.executable, "-m", "mkdocs", "build", *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The built site. Parallel test processes share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            done = build(ROOT / "mkdocs.yml", folder.with_name("unfinished"))
            assert done.returncode == 0, done.stderr
            folder.with_name("unfinished").rename(folder)
    return folder


class Loads(HTMLParser):
    """Collects what a page loads, and the classes and ids of its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.classes: set[str] = set()
        self.ids: set[str] = set()
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.classes |= set(found.get("class", "").split())
        self.ids.add(found.get("id", ""))
        for name in ("src", "srcset", "data", "poster"):
            if name in found and tag != "a":
                self.loads.append(found[name])
        if tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(found["href"])
        if tag in ("use", "image"):
            self.loads += [found.get("href", ""), found.get("xlink:href", "")]
        if tag == "meta" and found.get("http-equiv") == "refresh":
            self.loads.append(found["content"])
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]


def elsewhere(address: str) -> bool:
    return re.match(r"\s*(?:[a-z]+:)?//", address) is not None and not address.startswith(NAMESPACES)


def outside_requests(folder: Path) -> list[str]:
    """Everything that a page, style sheet or script of a site could load from another host."""
    found, classes = [], set()
    for path in sorted(folder.rglob("*.html")):
        text = path.read_text()
        page = Loads(text)
        classes |= page.classes
        styles = re.findall(r"<style.*?</style>|style=\"[^\"]*\"", text, re.DOTALL)
        scripts = re.findall(r"<script.*?</script>", text, re.DOTALL)
        found += [f"{path.name}: {address}" for address in page.loads if elsewhere(address)]
        found += [f"{path.name}: {address}" for style in styles for address in _of_style(style)]
        found += [f"{path.name}: {address}" for script in scripts for address in _of_script(script, set())]
    for path in sorted(folder.rglob("*.css")):
        found += [f"{path.name}: {address}" for address in _of_style(path.read_text())]
    for path in sorted(folder.rglob("*.js")):
        found += [f"{path.name}: {address}" for address in _of_script(path.read_text(), classes)]
    return found


def _of_style(text: str) -> list[str]:
    addresses = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text)
    return [address for pair in addresses for address in pair if elsewhere(address)]


def _of_script(text: str, classes: set[str]) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)  # comments with the homes of libraries
    addresses = [a for a in re.findall(r"https?://[^\s\"'`)\\<]+", text) if not a.startswith((*MENTIONED, *NAMESPACES))]
    unused = tuple(address for address, part in PARTS_THAT_LOAD.items() if part not in classes)
    return [address for address in addresses if not (unused and address.startswith(unused))]


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    assert len(list(site.glob("*.html"))) > 25
    assert outside_requests(site) == []


def test_browsers_are_told_to_refuse_other_hosts(site: Path) -> None:
    for path in site.glob("*.html"):
        policy = Loads(path.read_text()).policy
        assert policy == "default-src 'self' 'unsafe-inline' data: blob:", path.name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://example.org/a.js"></script>'),
        ("a.html", '<link rel="stylesheet" href="//example.org/a.css">'),
        ("a.html", '<img src="http://example.org/a.png">'),
        ("a.html", "<script>fetch('https://example.org/a')</script>"),
        ("a.html", '<p style="background: url(https://example.org/a.png)">'),
        ("a.css", "@import 'https://example.org/a.css';"),
        ("a.css", "@font-face { src: url(https://example.org/a.woff2) }"),
        ("a.js", 'import("https://example.org/a.js")'),
    ],
)
def test_outside_requests_are_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert outside_requests(tmp_path) != []


def test_links_to_other_hosts_are_no_requests(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="https://example.org">paper</a> <img src="figures/a.png">')
    assert outside_requests(tmp_path) == []


def test_reference_has_every_public_name(site: Path) -> None:
    ids = {name for path in site.glob("python*.html") for name in Loads(path.read_text()).ids}
    public = {f"tdvae.{name}" for name in tdvae.__all__ if not ismodule(getattr(tdvae, name))}
    assert public - ids == set()


def test_examples_of_docstrings_are_code(site: Path) -> None:
    assert "&gt;&gt;&gt;" in (site / "python_models.html").read_text()
    for path in site.glob("python*.html"):
        assert "<blockquote>" not in path.read_text(), path.name


def test_markers_leave_sentences_as_they_are(site: Path) -> None:
    text = (site / "negatives.html").read_text()
    assert "<!-- value" not in text
    assert re.search(r"0\.\d+\s+of the sequences correctly", re.sub(r"<[^>]+>", "", text))


def test_equations_are_mathml(site: Path) -> None:
    assert (site / "loss.html").read_text().count("<math") > 5
    for path in site.glob("*.html"):
        text = path.read_text()
        assert "arithmatex" not in text, path.name
        assert ":math:" not in text, path.name


def test_figures_link_to_their_files(site: Path) -> None:
    """Details are small within a page."""
    found = [
        target
        for path in site.glob("*.html")
        for target, shown in re.findall(r'<a class="figure" href="([^"]+)"><img [^>]*src="([^"]+)"', path.read_text())
        if target == shown
    ]
    assert len(found) > 15
    assert [target for target in found if not (site / target.partition("#")[0]).exists()] == []  # #only-light


def test_broken_links_and_unknown_names_are_errors(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(
        "# Title\n\n[page](nothing.md) [place](#nowhere) [`tdvae.nothing`][] ![figure](figures/nothing.png)\n"
    )
    (tmp_path / "docs" / "forgotten.md").write_text("# Not in the navigation\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md]\ndocs_dir: docs\nhooks: []\nwatch: []\nextra_css: []\n"
        f"theme: {{custom_dir: {ROOT / 'docs' / 'theme'}}}\n"
    )
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    for missing in ("nothing.md", "#nowhere", "tdvae.nothing", "figures/nothing.png", "forgotten.md"):
        assert missing in done.stderr, missing
