"""A running explorer and a browser, for the tests of the page, its soak and its screenshots."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from tdvae.explorer.answers import Explorer
from tdvae.explorer.server import application, bind

MISSING = (
    "a Chromium browser is needed: install the Debian package chromium, or set TDVAE_CHROMIUM to the path of a browser"
)
SETTLED = "() => document.body.dataset.busy === '0'"


def browser_path() -> str | None:
    """The system's Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("TDVAE_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def served(explorer: Explorer, token: str | None = None) -> Iterator[str]:
    """A server in a thread of this process; yields its address."""
    listening = bind("127.0.0.1", 0)
    config = uvicorn.Config(application(explorer, token), log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listening.close()


@contextmanager
def started_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(page: Page, address: str) -> Page:
    """The page at an address, after all requests have been answered."""
    page.goto(address)
    settle(page)
    return page


def settle(page: Page) -> None:
    """Wait until no request is under way."""
    page.wait_for_function(SETTLED)


def set_value(page: Page, name: str, value: float, event: str) -> None:
    """Set a control as a visitor does."""
    code = "([id, value, event]) => { const e = document.getElementById(id); e.value = value; %s }"
    page.evaluate(code % "e.dispatchEvent(new Event(event));", [name, value, event])
