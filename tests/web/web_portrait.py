"""``python -m tests.web.web_portrait STORE [FOLDER]``: pictures of the web view.

Without FOLDER the picture of the documentation: the list of streams of a store that lives, as that
of ``logstore demo --keep``. With it all pages at three widths, light and dark, to be looked at.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.web.browser import Browser, installed
from tests.web.serving import served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PAGES = {"streams": "", "segments": "segments", "doctor": "doctor", "dead": "dead"}
WIDTHS = (390, 800, 1600)
LOOKS_S = 25  # until the charts have a line


def main() -> None:
    """Take them."""
    program = installed()
    if program is None:
        sys.exit("no browser is installed: apt-get install chromium")
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with served(Path(sys.argv[1])) as address, tempfile.TemporaryDirectory() as home:
        browser = Browser(program, Path(home))
        browser.open(address)
        time.sleep(LOOKS_S)
        if folder is None:
            browser.look(1280, 720)
            browser.open(address)
            browser.picture(IMAGES / "web.png")
        else:
            _all(browser, address, folder)
        browser.close()


def _all(browser: Browser, address: str, folder: Path) -> None:
    browser.open(address)
    link = browser.of_page("document.querySelector('tbody a')?.getAttribute('href') ?? '/'")
    for name, page in {**PAGES, "stream": link.removeprefix("/")}.items():
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                browser.look(width, 1000, scheme)
                browser.open(address + page)
                browser.picture(folder / f"{name}-{width}-{scheme}.png")


if __name__ == "__main__":
    main()
