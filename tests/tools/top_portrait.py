"""``python -m tests.tools.top_portrait STORE``: the pictures of ``logstore top`` in the README.

It looks at a store for half a minute, as that of ``logstore demo --keep``, and writes what ``top``
would show then, for a light page and for a dark one. Nothing of it is drawn by hand.
"""

from __future__ import annotations

import re
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group
from rich.terminal_theme import TerminalTheme

import logstore
from logstore.telemetry.store_samples import Watch
from logstore.tools.views.text_canvas import Canvas
from logstore.tools.views.top_picture import picture
from logstore.tools.views.top_view import TopView

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH, HEIGHT = 84, 22
LOOKS, INTERVAL_S = 30, 1.0
# Background, text, then the eight colours of a terminal and their bright ones.
LIGHT: tuple[Any, ...] = ((255, 255, 255), (31, 41, 51), [
    (31, 41, 51), (185, 28, 28), (21, 115, 71), (154, 91, 0), (29, 78, 216), (126, 34, 206),
    (14, 110, 120), (107, 114, 128),
])  # fmt: skip
DARK: tuple[Any, ...] = ((16, 21, 28), (222, 228, 235), [
    (16, 21, 28), (248, 113, 113), (94, 201, 143), (230, 180, 80), (122, 162, 247), (192, 132, 252),
    (98, 200, 210), (139, 149, 163),
])  # fmt: skip
# Without the fonts that rich fetches from elsewhere: a picture of a page may fetch nothing.
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono"
_WITHOUT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
FORMAT = _WITHOUT.replace("Fira Code", _FONTS)
EDGES = ("rgba(255,255,255,0.35)", "rgba(128,128,128,0.45)")  # of the window: seen on white, too


def main(path: Path) -> None:
    """Look, and write both pictures."""
    console = Console(file=StringIO(), width=WIDTH, record=True, force_terminal=True)
    with logstore.open(path, readonly=True) as store:
        watch = Watch(store, INTERVAL_S, ())
        for _ in range(LOOKS):
            time.sleep(INTERVAL_S)
            watch.look()
        canvas: Canvas = Canvas(WIDTH, HEIGHT)
        console.print(Group(*picture(canvas, Path("shop"), watch, TopView())))
    for name, colours in (("light", LIGHT), ("dark", DARK)):
        svg = console.export_svg(
            title="logstore top shop", theme=TerminalTheme(*colours), clear=False,
            code_format=FORMAT, unique_id=f"top-{name}",
        )  # fmt: skip
        lines = (line.rstrip() for line in svg.replace(*EDGES).splitlines())
        (IMAGES / f"top-{name}.svg").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
