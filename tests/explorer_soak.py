"""Random interactions with the page, its memory and its times: `python -m tests.explorer_soak --out results`.

Also takes the screenshots of the documentation.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import tyro
from playwright.sync_api import Browser, Page

from tdvae.reporting.results import results, write_results
from tdvae.saved import shipped_names
from tests.explorer_pages import opened, set_value, settle, started_browser
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
STEPS = 60  # of the slider, for the times of each model


@contextmanager
def exploring(*arguments: str) -> Iterator[tuple[str, int]]:
    """`tdvae explore` in a process of its own: its address and the number of the process."""
    command = [sys.executable, "-m", "tdvae", "explore", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://[^/]+", process.stdout.readline())
        assert found is not None
        try:
            yield found[0], process.pid
        finally:
            process.send_signal(signal.SIGINT)


def interact(page: Page, seed: int) -> str:
    """One random thing that a visitor may do. Few wait for the answer; most come while others are under way."""
    chance = random.Random(seed)
    what = chance.choices(list(OFTEN), list(OFTEN.values()))[0]
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


def memory(page: Page, server: int) -> dict[str, float]:
    """Megabytes of the page's objects after collecting garbage, its number of nodes, and megabytes of the server."""
    settle(page)
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    counted = session.send("Memory.getDOMCounters")
    heap = session.send("Runtime.getHeapUsage")
    session.detach()
    resident = int(Path(f"/proc/{server}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"page_mb": heap["usedSize"] / 1e6, "nodes": float(counted["nodes"]), "server_mb": resident / 1e6}


def response_times(page: Page, address: str, name: str) -> dict[str, float]:
    """Milliseconds from a slider step to its answer, as the page itself measures them: median and 95 %."""
    opened(page, f"{address}/#model={name}")
    last = int(page.get_attribute("#t", "max") or 0)
    shown = []
    for t in range(1, min(STEPS, last)):
        set_value(page, "t", t, "input")
        settle(page)
        shown.append(float(page.inner_text("#timing").split()[2]))
    return {"median": float(np.median(shown)), "95%": float(np.quantile(shown, 0.95))}


def processor_time(address: str, server: int, name: str) -> float:
    """Milliseconds of one core that the server takes for the answer to a slider step."""

    def spent() -> float:
        fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
        return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with httpx.Client(base_url=address, timeout=600) as client:
        model = client.get("/api/model", params={"model": name}).json()
        dt = min(8, model["longest_request"])

        def answer(t: int) -> None:
            client.get("/api/jump", params={"model": name, "t": t, "dt": dt}).raise_for_status()

        answer(0)  # the first one prepares the others
        steps, begin = range(1, min(STEPS, model["lengths"][0] - dt)), spent()
        for t in steps:
            answer(t)
    return (spent() - begin) / len(steps)


def screenshots(browser: Browser, address: str, folder: Path) -> None:
    for name, (link, width, theme) in SHOTS.items():
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=theme)  # type: ignore[arg-type]
        page.set_default_timeout(120_000)
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
        begin, measures = time.monotonic(), {}
        with TemporaryDirectory() as folder, started_browser() as browser:
            if not self.only_screenshots:
                runs = [str(wave_run(Path(folder) / name, seed)) for seed, name in enumerate(("first", "second"))]
                with exploring(runs[0], "--compare", runs[1]) as (address, server):
                    measures = self.soak(browser, address, server)
            with exploring() as (address, server):
                if not self.only_screenshots:
                    page, names = browser.new_page(viewport={"width": 1280, "height": 900}), shipped_names()
                    page.set_default_timeout(120_000)
                    measures["milliseconds"] = {name: response_times(page, address, name) for name in names}
                    measures["processor_milliseconds"] = {n: processor_time(address, server, n) for n in names}
                    page.close()
                if self.out is not None:
                    screenshots(browser, address, self.out)
        if self.out is not None and not self.only_screenshots:
            content = results("explorer", "full", [0], time.monotonic() - begin, [measures], {})
            content["command"] = " ".join(["python -m tests.explorer_soak", *sys.argv[1:]])
            write_results(self.out / "explorer.json", content)
        print(measures)

    def soak(self, browser: Browser, address: str, server: int) -> dict[str, Any]:
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
                settled = memory(page, server)
        page.evaluate("() => { location.hash = '#model=oscillator&t=60&dt=20'; }")
        after = memory(page, server)
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
