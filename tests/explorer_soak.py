"""Random interactions with the page, its memory and its times: `python -m tests.explorer_soak --out results`.

Also takes the screenshots of the documentation.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tyro
from playwright.sync_api import Browser, Page

from tdvae.explorer.answers import Explorer
from tdvae.reporting.results import results, write_results
from tests.explorer_pages import opened, served, set_value, settle, started_browser
from tests.test_explorer import wave_run

SHOTS = {
    "explorer": ("#model=oscillator&t=30&dt=40", 1280, "light"),
    "explorer_dark": ("#model=oscillator&t=9&dt=60", 1280, "dark"),
    "explorer_narrow": ("#model=oscillator&t=60&dt=20", 390, "light"),
    "explorer_pictures": ("#model=moving_mnist&t=8&dt=6", 1280, "light"),
    "explorer_gallery": ("#", 1280, "light"),
}

# What a visitor may do, and how often.
OFTEN = {"t": 20, "dt": 20, "key": 20, "sequence": 6, "again": 4, "colour": 3, "model": 3, "compare": 2, "theme": 2}
OFTEN |= {"samples": 4, "link": 2, "point": 6, "play": 2}
KEYS = ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "[", "]", "Shift+ArrowRight")


def interact(page: Page, seed: int) -> str:
    """One random thing that a visitor may do. Few wait for the answer; most come while others are under way."""
    chance = random.Random(seed)
    what = chance.choices(
        [
            "t",
            "dt",
            "key",
            "sequence",
            "again",
            "colour",
            "model",
            "compare",
            "theme",
            "samples",
            "link",
            "point",
            "play",
        ],
        [20, 20, 20, 6, 4, 3, 3, 2, 2, 4, 2, 6, 2],
    )[0]
    if what in ("t", "dt"):
        page.evaluate(
            "([id, share]) => { const e = document.getElementById(id);"
            "e.value = Number(e.min) + Math.round(share * (e.max - e.min)); e.dispatchEvent(new Event('input')); }",
            [what, chance.random() ** (4 if what == "dt" else 1)],
        )
    elif what == "key":
        page.keyboard.press(chance.choice(KEYS))
    elif what in ("again", "theme", "play"):
        page.evaluate("(id) => document.getElementById(id).click()", what)
    elif what in ("colour", "model", "compare"):
        page.evaluate(
            "([id, share]) => { const e = document.getElementById(id);"
            "e.selectedIndex = Math.floor(share * e.options.length); e.dispatchEvent(new Event('change')); }",
            [what, chance.random()],
        )
    elif what in ("sequence", "samples"):
        set_value(page, what, chance.randrange(1, 20), "change")
    elif what == "link":
        page.evaluate("(hash) => { location.hash = hash; }", f"#model=oscillator&t={chance.randrange(150)}&dt=15")
    else:
        page.mouse.move(chance.randrange(1200), chance.randrange(880))
    if chance.random() < 0.12:
        settle(page)
    return what


def memory(page: Page) -> dict[str, float]:
    """Megabytes of the page's objects and of this process, and the number of nodes, after collecting garbage."""
    settle(page)
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    counted = session.send("Memory.getDOMCounters")
    heap = session.send("Runtime.getHeapUsage")
    session.detach()
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return {"page_mb": heap["usedSize"] / 1e6, "nodes": float(counted["nodes"]), "server_mb": resident / 1e6}


def response_times(page: Page, address: str) -> dict[str, dict[str, float]]:
    """Milliseconds from a slider step to its answer, as the page itself measures them: median and 95 %."""
    found: dict[str, dict[str, float]] = {}
    for name, count in (("oscillator", 60), ("moving_mnist", 19)):
        opened(page, f"{address}/#model={name}")
        shown = []
        for t in range(1, count):
            page.evaluate(
                "(t) => { const e = document.getElementById('t'); e.value = t; e.dispatchEvent(new Event('input')); }",
                t,
            )
            settle(page)
            shown.append(float(page.inner_text("#timing").split()[2]))
        found[name] = {"median": float(np.median(shown)), "95%": float(np.quantile(shown, 0.95))}
    return found


def processor_times(explorer: Explorer) -> dict[str, float]:
    """Milliseconds of one core for the answer to a slider step: the median, whatever else the machine does."""
    found = {}
    for name, last in (("oscillator", 120), ("moving_mnist", 19)):
        spent = []
        for t in range(last):
            begin = time.process_time()
            explorer.answer("jump", {"model": name, "t": str(t), "dt": "8"})
            spent.append(1e3 * (time.process_time() - begin))
        found[name] = float(np.median(spent))
    return found


def screenshots(browser: Browser, address: str, folder: Path) -> None:
    for name, (link, width, theme) in SHOTS.items():
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=theme)  # type: ignore[arg-type]
        opened(page, f"{address}/{link}")
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"{name}.png", full_page=True)
        page.close()


@dataclass(frozen=True)
class Soak:
    """Many random interactions with the explorer's page in a browser."""

    interactions: int = 2_000
    """Number of interactions."""
    out: Path | None = None
    """Write explorer.json and the screenshots to this folder."""
    only_screenshots: bool = False
    """Take the screenshots, and leave the rest as it is."""

    def run(self) -> None:
        if self.only_screenshots and self.out is not None:
            with started_browser() as browser, served(Explorer.of()) as address:
                screenshots(browser, address, self.out)
            return
        begin = time.monotonic()
        with TemporaryDirectory() as folder, started_browser() as browser:
            runs = [wave_run(Path(folder) / "first"), wave_run(Path(folder) / "second", seed=1)]
            explorer = Explorer.of(str(runs[0]), str(runs[1]))
            with served(explorer) as address:
                measures = self.soak(browser, address)
            shipped = Explorer.of()
            measures["processor_milliseconds"] = processor_times(shipped)
            with served(shipped) as address:
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                measures["milliseconds"] = response_times(page, address)
                if self.out is not None:
                    screenshots(browser, address, self.out)
        print(measures)
        if self.out is not None:
            content = results("explorer", "full", [0], time.monotonic() - begin, [measures], {})
            content["command"] = " ".join(["python -m tests.explorer_soak", *sys.argv[1:]])
            write_results(self.out / "explorer.json", content)

    def soak(self, browser: Browser, address: str) -> dict[str, Any]:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        problems: list[str] = []
        outside: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith(address) else outside.append(request.url))
        opened(page, f"{address}/#model=oscillator")
        settled: dict[str, float] = {}
        shown = 0
        for number in range(self.interactions):
            interact(page, number)
            if page.is_visible("#problem"):
                shown += 1
                problems.append(page.inner_text("#problem"))
                opened(page, f"{address}/#model=oscillator")
            if number % 200 == 199:
                print(f"{number + 1} interactions, {len(problems)} problems", flush=True)
            if number == self.interactions // 4:  # everything has been opened by then
                page.evaluate("() => { location.hash = '#model=oscillator&t=60&dt=20'; }")
                settled = memory(page)
        page.evaluate("() => { location.hash = '#model=oscillator&t=60&dt=20'; }")
        after = memory(page)
        page.close()
        for problem in sorted(set(problems)):
            print(problem)
        growth = {f"{name}_growth": after[name] - settled[name] for name in after}
        return {
            "interactions": self.interactions,
            "errors": len(problems),
            "shown_errors": shown,
            "outside_requests": sum(not url.startswith(("data:", "blob:")) for url in outside),
            **after,
            **growth,
        }


if __name__ == "__main__":
    tyro.cli(Soak).run()
