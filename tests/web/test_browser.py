"""Prevents pages that a real browser shows without style, too wide, too dim to be read, or dead."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import logstore
from tests.scan.scanned_stores import make_plan
from tests.web.browser import Browser, installed
from tests.web.serving import served

ENTRY = "entry?name=orders&id=1700000003000-0"
REFUSED = "stream?name=orders&q=" + "n+%3E+1+and+" * 9
PAGES = (
    "",
    "stream?name=orders",
    ENTRY,
    "entry?name=orders&id=5-5",
    "dead",
    "segments",
    "doctor",
    "stream?name=absent",
)
# What the eye sees: text that stands out of its ground by less can hardly be read.
CONTRAST_MIN = 4.5
CONTRASTS = """(() => {
  const light = (text) => {
    const at = text.match(/[\\d.]+/g).slice(0, 3).map((n) => n / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * at[0] + 0.7152 * at[1] + 0.0722 * at[2];
  };
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let worst = 21;
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || one.closest("title, script, style")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    worst = Math.min(worst, (a + 0.05) / (b + 0.05));
  }
  return worst;
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser; without one the tests are skipped, unless LOGSTORE_REQUIRE_BROWSER is set."""
    program = installed()
    if program is None and os.environ.get("LOGSTORE_REQUIRE_BROWSER"):
        pytest.fail("no browser is installed: apt-get install chromium")
    if program is None:
        pytest.skip("no browser is installed: apt-get install chromium")
    found = Browser(program, tmp_path_factory.mktemp("browser"))
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800, 390])
def test_pages_fit_and_can_be_read(browser: Browser, address: str, width: int, scheme: str) -> None:
    browser.look(width, scheme=scheme)
    grounds = set()
    for page in PAGES:
        browser.open(address + page)
        assert browser.of_page("document.documentElement.scrollWidth") <= width, page
        assert browser.of_page(CONTRASTS) >= CONTRAST_MIN, page
        grounds.add(browser.of_page("getComputedStyle(document.body).backgroundColor"))
    assert grounds == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)"}


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core; without it the tests are skipped, unless LOGSTORE_REQUIRE_BROWSER."""
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        why = "axe-core is not installed: pip install --no-deps axe-playwright-python"
        pytest.fail(why) if os.environ.get("LOGSTORE_REQUIRE_BROWSER") else pytest.skip(why)
    return (Path(found.origin).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_the_pages(
    browser: Browser, axe: str, store: Path, tmp_path: Path, scheme: str
) -> None:
    """Keyboards and screen readers: axe-core finds nothing that is serious or critical."""
    path = tmp_path / "copy"
    shutil.copytree(store, path)
    with served(path, "--write") as full:
        address = f"http://{urlsplit(full).netloc}/"
        browser.look(scheme=scheme)
        browser.open(full)
        browser.open(f"{address}doctor")
        browser.until("document.querySelector('.findings') != null")
        for page in PAGES:
            browser.open(address + page)
            browser.of_page(axe + "; 0")
            browser.of_page(
                "document.querySelectorAll('details').forEach((one) => one.open = true)"
            )
            found = browser.of_page(
                "axe.run(document, {resultTypes: ['violations']}).then((all) => all.violations"
                ".map((one) => [one.impact, one.id, one.nodes.map((node) => node.html).join(' ')]))"
            )
            assert [each for each in found if each[0] in {"serious", "critical"}] == [], page


def test_the_first_key_leads_to_the_content(browser: Browser, address: str) -> None:
    browser.look()
    browser.open(address)
    for kind in ("rawKeyDown", "keyUp"):
        browser.tell("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                     windowsVirtualKeyCode=9)  # fmt: skip
    assert browser.of_page("document.activeElement.getAttribute('href')") == "#main"
    assert browser.of_page("document.activeElement.getBoundingClientRect().top") >= 0
    assert browser.of_page("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_pins_fit_a_phone(browser: Browser, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(store, path)
    with logstore.open(path, background=False) as opened, served(path) as shown:
        pin = make_plan(opened, b"orders", purpose="spark").pin_id
        browser.look(390)
        browser.open(f"{shown}segments")
        assert pin in browser.of_page("document.querySelector('.pins').innerText")
        assert browser.of_page("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_request_without_a_token_gets_a_page_that_says_why(
    browser: Browser, store: Path, tmp_path: Path, scheme: str
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(store, path)
    with served(path, "--write") as full:
        browser.look(390, scheme=scheme)
        browser.open(f"http://{urlsplit(full).netloc}/dead")
        assert "a token is needed" in browser.of_page("document.body.innerText")
        assert browser.of_page("document.documentElement.scrollWidth") <= 390
        assert browser.of_page(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        ink = browser.of_page("getComputedStyle(document.body).color")
        assert (ink == "rgb(255, 255, 255)") == (scheme == "dark")


def test_a_page_shows_entries_and_breaks_nothing(
    browser: Browser, address: str, tell: Callable[[str], None]
) -> None:
    browser.look()
    browser.errors.clear()
    browser.open(f"{address}stream?name=orders")
    assert browser.of_page("document.querySelectorAll('.entries tbody tr').length") == 50
    assert browser.of_page("document.querySelector('.entries dd').innerText") == "119"
    browser.until("performance.getEntriesByName('first-contentful-paint').length")
    first = browser.of_page("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    tell(f"first paint of a page of the web view: {first:.0f} ms")
    browser.of_page("document.querySelector('details summary').click()")
    assert browser.of_page("document.querySelector('details').open")
    browser.of_page("document.querySelector('.pages a').click()")
    browser.until("document.querySelector('.entries dd')?.innerText == '69'")
    assert browser.errors == []


def test_a_live_page_shows_what_comes(browser: Browser, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(store, path)
    with served(path) as shown:
        browser.open(f"{shown}stream?name=orders")
        browser.of_page("document.getElementById('live').click()")
        browser.of_page("document.activeElement.blur()")
        with logstore.open(path) as opened:
            opened.stream("orders").add({"n": "came later"})
        browser.until("document.querySelector('.entries dd').innerText == 'came later'")
        browser.of_page("document.getElementById('live').click()")


def test_buttons_try_a_dead_letter_again_and_drop_one(
    browser: Browser, store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(store, path)
    count = "document.querySelectorAll('.entries tbody tr .act').length"
    with served(path, "--write") as full:
        browser.open(full)
        assert browser.of_page("location.search") == ""  # the token is no longer in the address
        browser.open(f"http://{urlsplit(full).netloc}/dead")
        assert browser.of_page(count) == 3
        browser.of_page("document.querySelector('form[action^=\"/retry\"] button').click()")
        browser.until(f"document.readyState == 'complete' && {count} == 2")
        drop = "document.querySelector('form[action^=\"/drop\"] button').click()"
        no = "var asked; confirm = (text) => { asked = text }"
        asked = browser.of_page(f"{no}; {drop}; asked")
        assert asked.endswith(" of orders:dead? It does not come back.")
        assert browser.of_page(count) == 2  # who says no has lost nothing
        browser.of_page(f"confirm = () => true; {drop}")
        browser.until(f"document.readyState == 'complete' && {count} == 1")
    with logstore.open(path, encoding="utf-8") as opened:
        assert len(opened.stream("orders:dead")) == 1
        last = opened.stream("orders").last
        assert last is not None
        assert last["who"] == "<b>anna</b>"


LABELLED = """[...document.querySelectorAll("input, button, th, summary")].filter((one) =>
  one.type != "hidden" && !(one.labels?.length || one.ariaLabel || one.textContent.trim())
  || (one.tagName == "TH" && !one.scope)).map((one) => one.outerHTML)"""


def test_a_search_and_an_entry_are_reached_by_the_keyboard(browser: Browser, address: str) -> None:
    def press(key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13}[key]
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            browser.tell("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                         **text)  # fmt: skip

    browser.look()
    browser.open(f"{address}stream?name=orders")
    browser.of_page("document.getElementById('q').focus()")
    browser.tell("Input.insertText", text="n = 77")
    press("Enter")
    browser.until("location.search.includes('77') && document.querySelector('.entries dd') != null")
    assert browser.of_page("document.querySelectorAll('.entries tbody tr').length") == 1
    assert browser.of_page("document.querySelector('.looked').innerText").startswith(
        "Entries for which n = 77 holds: 1 of 120 entries looked at"
    )
    browser.of_page("document.getElementById('q').focus()")
    for _ in range(20):
        press("Tab")
        if browser.of_page("document.activeElement.pathname == '/entry'"):
            break
    style = browser.of_page("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"  # what has the focus is seen
    press("Enter")
    browser.until("location.pathname == '/entry' && document.querySelector('.fields') != null")
    assert "1700000077000-0" in browser.of_page("document.title")
    for page in ("stream?name=orders", ENTRY, "dead", REFUSED):
        browser.open(address + page)
        assert browser.of_page(LABELLED) == [], page
