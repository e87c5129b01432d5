"""Hooks of MkDocs: figures of results/, markers of rendered tables, equations as MathML, links to figures."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
MARKER = re.compile(
    r"^<!-- (?:table: \w+|help: \w+|end) -->\n|<!-- (?:value: [^>]*|end) -->",
    re.MULTILINE,
)
EQUATION = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
DOCSTRING_EQUATION = re.compile(r":math:<code>(.*?)</code>", re.DOTALL)
FIGURE = re.compile(r'<img [^>]*?src="([^"]+)"[^>]*>')
SHORT_CODE = re.compile(r"<code>(?=[^<]{1,24}</code>)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the figures of results/, which is not part of docs/."""
    for path in sorted((ROOT / "results").iterdir()):
        if path.suffix in (".png", ".gif"):
            files.append(
                File.generated(
                    config, f"results/{path.name}", abs_src_path=str(path)
                )
            )
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Remove the markers of rendered text, keep "mean ± spread" on one line, and point to the figures of the site."""
    return (
        MARKER.sub("", markdown)
        .replace(" ± ", "\u00a0±\u00a0")
        .replace("](../results/", "](results/")
    )


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Convert equations to MathML, which browsers draw without any script or font from elsewhere.

    A figure links to its file, since details are small within a page. Short code is not broken across lines.
    """

    def converted(latex: str, display: str) -> str:
        try:
            return convert(latex, display=display)
        except Exception as error:
            raise PluginError(
                f"{page.file.src_uri}: the equation {latex!r} is not valid: {error}"
            ) from error

    def equation(match: re.Match[str]) -> str:
        latex = html.unescape(match[2]).strip()[2:-2]  # without \( \) or \[ \]
        mathml = converted(latex, "block" if match[1] == "div" else "inline")
        return (
            f'<div class="equation">{mathml}</div>'
            if match[1] == "div"
            else mathml
        )

    content = EQUATION.sub(equation, content)
    content = DOCSTRING_EQUATION.sub(
        lambda match: converted(html.unescape(match[1]), "inline"), content
    )
    content = FIGURE.sub(r'<a class="figure" href="\1">\g<0></a>', content)
    return SHORT_CODE.sub('<code class="short">', content)


def on_post_build(config: MkDocsConfig) -> None:
    """Remove what the search needs for other languages only."""
    shutil.rmtree(Path(config.site_dir) / "assets" / "javascripts" / "lunr")
