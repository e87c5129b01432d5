"""The explorer's page in a real browser: what a visitor does, and what the page then shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request

from tdvae.explorer import export
from tdvae.explorer.answers import Explorer
from tests.explorer_pages import MISSING, browser_path, opened, served, set_value, settle, started_browser
from tests.explorer_soak import interact
from tests.test_explorer import wave_run, with_maze

pytestmark = pytest.mark.skipif(browser_path() is None, reason=MISSING)

PIXELS = "(selector) => [...document.querySelectorAll(selector)].map((canvas) => canvas.toDataURL())"
LEFT, CHARTS, STATE = "#panels .panel:first-child canvas", "#panels canvas", "#cloud"
AT = "#model=oscillator&sequence=0&t=60&dt=20&samples=8"


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    folder = tmp_path_factory.mktemp("runs")
    return Explorer.of(str(wave_run(folder / "waves")), str(wave_run(folder / "others", seed=1, scale=300.0)))


@pytest.fixture(scope="module")
def address(explorer: Explorer) -> Iterator[str]:
    with served(explorer) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which no script may fail, and which may ask no other host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    found = context.new_page()
    found.set_default_timeout(60_000)
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("request", lambda request: problems.extend(outside(request)))
    yield found
    context.close()
    assert problems == []


def outside(request: Request) -> list[str]:
    allowed = ("http://127.0.0.1:", "file:", "data:", "blob:")
    return [] if request.url.startswith(allowed) else [request.url]


def pixels(page: Page, selector: str) -> list[str]:
    found: list[str] = page.evaluate(PIXELS, selector)
    return found


def slide(page: Page, slider: str, value: int) -> None:
    set_value(page, slider, value, "input")
    settle(page)


def test_gallery_leads_to_a_model(page: Page, address: str) -> None:
    page.goto(f"{address}/#")
    page.wait_for_selector("#explorer:not([hidden])")  # the run that the explorer was started with
    page.click("#home")
    page.wait_for_selector("#gallery:not([hidden])")
    cards = page.locator(".card h2").all_inner_texts()
    assert {"Noisy oscillator", "Moving digits", "waves", "others"} <= set(cards)
    page.click("text=Noisy oscillator")
    page.wait_for_selector("#explorer:not([hidden])")
    settle(page)
    assert page.inner_text("#title") == "Noisy oscillator"
    assert "belief" in page.inner_text("#story")
    assert "jump" in page.inner_text("#story")


@pytest.mark.parametrize(("slider", "value"), [("t", 100), ("dt", 70)])
def test_sliders_change_pixels_and_numbers(page: Page, address: str, slider: str, value: int) -> None:
    opened(page, f"{address}/{AT}")
    charts, state, numbers = pixels(page, CHARTS), pixels(page, STATE), page.inner_text("#scores")
    slide(page, slider, value)
    assert all(before != after for before, after in zip(charts, pixels(page, CHARTS), strict=True))
    assert pixels(page, STATE) != state
    assert page.inner_text("#scores") != numbers
    assert f"{slider}={value}" in page.url
    assert str(value) in page.inner_text("#story")
    slide(page, slider, 60 if slider == "t" else 20)
    assert pixels(page, CHARTS) == charts


def test_keys_and_free_entry(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowUp", "]", "r"):
        page.keyboard.press(key)
        settle(page)
    for part in ("t=71", "dt=21", "sequence=1", "seed=1"):
        assert part in page.url
    page.fill("#dt-number", "133")
    page.keyboard.press("Enter")
    settle(page)
    assert "dt=133" in page.url
    assert "133" in page.inner_text("#story")
    page.fill("#dt-number", "99999")
    page.keyboard.press("Enter")
    settle(page)
    assert "dt=480" in page.url


def test_many_fast_moves_end_at_the_last(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.evaluate(
        "() => { const e = document.getElementById('t');"
        "for (let t = 61; t <= 160; t++) { e.value = t; e.dispatchEvent(new Event('input')); } }"
    )
    settle(page)
    assert "t=160" in page.url
    assert "160" in page.inner_text("#story")
    assert sum("/api/jump" in url for url in sent) <= 4  # a hundred moves, but they do not pile up


def test_long_work_can_be_cancelled(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    page.route("**/api/steps*", lambda route: None)  # an answer that never comes
    page.keyboard.press("ArrowRight")
    page.click("text=Cancel")
    settle(page)
    assert not page.is_visible(".waiting")
    page.unroute("**/api/steps*")
    page.keyboard.press("ArrowRight")
    settle(page)
    assert "evaluations" in page.inner_text("#panels .panel:last-child .cost")


def test_play_lets_observations_come_in(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    page.click("#play")
    page.wait_for_function("() => Number(document.getElementById('t').value) >= 63")
    page.click("#play")
    settle(page)
    stopped = page.input_value("#t")
    assert page.inner_text("#play") == "▶"
    assert f"t={stopped}" in page.url


def test_link_restores_the_view(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    slide(page, "t", 44)
    slide(page, "dt", 33)
    page.fill("#samples", "5")
    page.keyboard.press("Enter")
    page.click("#again")
    page.select_option("#colour", "amplitude")
    settle(page)
    shown = pixels(page, CHARTS), pixels(page, STATE), page.inner_text("#scores")
    again = opened(page.context.new_page(), page.url)
    assert (pixels(again, CHARTS), pixels(again, STATE), again.inner_text("#scores")) == shown
    assert again.input_value("#colour") == "amplitude"


def test_two_models_side_by_side(page: Page, address: str) -> None:
    opened(page, f"{address}/")  # started with a second run to compare with
    assert page.locator(CHARTS).count() == 4
    charts = pixels(page, CHARTS)
    assert len(set(charts)) == 4
    rows = page.locator("#scores tbody td:first-child").all_inner_texts()
    kinds = ("one jump", "step by step", "combination, as in `tdvae forecast`")
    assert rows == [f"{model}: {kind}" for model in "AB" for kind in kinds]
    offered = page.eval_on_selector_all("#compare option", "(options) => options.map((each) => each.value)")
    assert offered == ["", "others"]  # only models of the same kind of data
    page.select_option("#compare", "")
    settle(page)
    assert page.locator(CHARTS).count() == 2


def test_edited_input_changes_the_future(page: Page, address: str) -> None:
    opened(page, f"{address}/#model=waves&t=10&dt=3")
    before = pixels(page, CHARTS)
    page.fill("#inputs input", "40")
    page.keyboard.press("Enter")
    settle(page)
    changed = pixels(page, CHARTS)
    assert changed != before
    assert "edits=0%3A40%3A1%3A3" in page.url
    box = page.locator("#inputs canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.up()
    settle(page)
    assert pixels(page, CHARTS) != changed
    page.click("text=As recorded")
    settle(page)
    assert pixels(page, CHARTS) == before


def test_channels_can_be_chosen(page: Page, address: str) -> None:
    opened(page, f"{address}/#model=waves&t=10&dt=3")
    assert "combination, as in `tdvae forecast`" in page.inner_text("#legend")
    assert "combination, as in `tdvae forecast`" in page.inner_text("#scores")
    first = pixels(page, LEFT)
    page.select_option("#channel", "1")
    settle(page)
    assert pixels(page, LEFT) != first
    assert "channel=1" in page.url


def test_pointing_at_a_state_shows_what_is_observed_there(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    page.focus("#cloud")
    page.keyboard.press("n")
    assert "observed here: x ≈" in page.inner_text("#decoded")
    opened(page, f"{address}/#model=moving_mnist")
    page.focus("#cloud")
    page.keyboard.press("n")
    assert page.locator("#decoded canvas").count() == 1


def test_futures_of_pictures_play(page: Page, address: str) -> None:
    opened(page, f"{address}/#model=moving_mnist&t=8&dt=5&samples=3")
    assert page.is_visible("#seen")
    before = pixels(page, "#panels .panel:last-child canvas")[0]
    page.wait_for_function(
        "(before) => document.querySelector('#panels .panel:last-child canvas').toDataURL() !== before", arg=before
    )
    seen = pixels(page, "#seen")
    slide(page, "t", 12)
    assert pixels(page, "#seen") != seen


def test_maze_shows_both_beliefs(page: Page, explorer: Explorer) -> None:
    with served(with_maze(explorer)) as address:
        opened(page, f"{address}/{AT}")
        assert page.is_visible("#maze-learned")
        assert pixels(page, "#maze-learned") != pixels(page, "#maze-exact")
        assert "misses 0.693 nats" in page.inner_text("#maze-exact-caption")


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("#model=nonsense", "model: expected one of"),
        ("#model=moving_mnist&with=oscillator", "compare: expected two models"),
    ],
)
def test_errors_are_shown(page: Page, address: str, link: str, message: str) -> None:
    opened(page, f"{address}/{link}")
    assert message in page.inner_text("#problem")


def test_server_that_has_ended_is_noticed(page: Page, explorer: Explorer) -> None:
    with served(explorer) as address:
        opened(page, f"{address}/{AT}")
    slide(page, "t", 20)
    assert "does not answer" in page.inner_text("#problem")


def test_wrong_token_is_shown(page: Page, explorer: Explorer) -> None:
    with served(explorer, token="right") as address:
        opened(page, f"{address}/?token=wrong{AT}")
        assert "token: expected the one" in page.inner_text("#problem")
        opened(page, f"{address}/?token=right{AT}")
        assert page.inner_text("#title") == "Noisy oscillator"


def test_view_can_be_saved(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    with page.expect_download() as picture:
        page.click("#save-png")
    assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")
    assert picture.value.suggested_filename == "oscillator-sequence-1-t-60-dt-20.png"
    with page.expect_download() as numbers:
        page.click("#save-json")
    content = json.loads(Path(numbers.value.path()).read_text())
    assert content["view"]["t"] == 60
    assert len(content["jumps"][0]["end"]["samples"]) == 8


def test_narrow_screens_and_dark_theme(page: Page, address: str) -> None:
    opened(page, f"{address}/{AT}")
    light = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    charts = pixels(page, LEFT)
    page.click("#theme")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != light
    assert pixels(page, LEFT) != charts
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert page.evaluate("() => document.querySelector('#panels canvas').clientWidth") <= 340


def test_exported_page_opens_from_a_file(
    page: Page, explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "SEQUENCES", 2)
    for name, values in (("SIGNAL_TIMES", (0, 5, 60)), ("SIGNAL_JUMPS", (1, 20)), ("PICTURE_TIMES", (0, 4))):
        monkeypatch.setattr(export, name, values)
    gallery = Explorer({name: explorer.sources[name] for name in ("oscillator", "moving_mnist")})
    export.write(gallery, tmp_path / "site")
    page.goto(f"file://{tmp_path}/site/index.html")
    settle(page)
    page.click("text=Noisy oscillator")
    page.wait_for_selector("#explorer:not([hidden])")
    settle(page)
    charts = pixels(page, CHARTS)
    for key, part in (("ArrowLeft", "t=5"), ("ArrowLeft", "t=0"), ("]", "sequence=1")):
        page.keyboard.press(key)
        settle(page)
        assert part in page.url
    assert pixels(page, CHARTS) != charts
    assert not page.is_visible("#problem")
    opened(page, f"file://{tmp_path}/site/index.html#model=moving_mnist")
    assert page.locator(CHARTS).count() == 2
    assert not page.is_visible("#problem")


def test_short_soak(page: Page, address: str) -> None:
    """Random interactions; `python -m tests.explorer_soak` has many more, and looks at the memory."""
    opened(page, f"{address}/{AT}")
    for number in range(25):
        interact(page, seed=number)
    settle(page)
    assert not page.is_visible("#problem"), page.inner_text("#problem")
