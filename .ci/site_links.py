"""Links of the documentation on its site: what lies outside of docs/ is named there, not linked.

MkDocs calls `on_page_markdown` for each page. A link to a source file leads somewhere in a
checkout, and nowhere on a site; the README's counterpart on the site is its first page.
"""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./(?!images/)([^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with links that the site can follow."""
    return OUTSIDE.sub(lambda link: _instead(link[1], link[2]), markdown)


def _instead(text: str, target: str) -> str:
    return f"[{text}](index.md)" if target.startswith("README.md") else text
