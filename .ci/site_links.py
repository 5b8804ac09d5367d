"""Links of the documentation on its site: what lies outside of docs/ is named there, not linked.

MkDocs calls these functions for each page. A link to a source file leads somewhere in a
checkout, and nowhere on a site; the README's counterpart on the site is its first page.
"""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./(?!images/)([^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with links that the site can follow."""
    return OUTSIDE.sub(lambda link: _instead(link[1], link[2]), markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """``logstore.open`` under the name that users write; where it is defined it has another one."""
    return html.replace(">open_store<", ">open<") if page.file.src_uri == "api.md" else html


def _instead(text: str, target: str) -> str:
    return f"[{text}](index.md)" if target.startswith("README.md") else text
