"""A text of JSON as it is read by people: a line for each value, indented, its parts marked.

Invariants: what is shown has the tokens of the text and no others, so numbers keep their digits and
names that repeat stay. All of it is escaped. A text that is no JSON, is nested deep, or would get
much longer, is not made anything of.
"""

from __future__ import annotations

import json
import re
from typing import Final

from markupsafe import Markup, escape

DEPTH_MAX: Final = 50
TEXT_MAX_CHARACTERS: Final = 64 << 10
SHOWN_MAX_CHARACTERS: Final = 4 * TEXT_MAX_CHARACTERS  # with all blanks, without markup
TOKENS_MAX: Final = 20_000
INDENT: Final = "  "
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_SIGNS: Final = frozenset("{}[],:")
_WORDS: Final = frozenset(("true", "false", "null"))


def indented(text: str) -> Markup | None:
    """A JSON object or array, indented; None for what is none, or too much."""
    if len(text) > TEXT_MAX_CHARACTERS or text[:64].lstrip()[:1] not in ("{", "["):
        return None
    try:
        # Numbers are not made: thousands of digits take long, and are not needed here.
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    parts = _laid_out(_TOKEN.findall(text))
    return None if parts is None else Markup("".join(parts))  # each part is escaped


def _laid_out(tokens: list[str]) -> list[str] | None:
    """The tokens and the blanks between them; None if that is deep or long."""
    parts: list[str] = []
    depth = length = 0
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else ""
        is_end = token in ("}", "]")
        depth -= is_end
        blank = ""
        if before == ":":
            blank = " "
        elif at and token not in (",", ":") and not (is_end and before in ("{", "[")):
            blank = "\n" + INDENT * depth
        depth += token in ("{", "[")
        length += len(blank) + len(token)
        if depth > DEPTH_MAX or length > SHOWN_MAX_CHARACTERS or at == TOKENS_MAX:
            return None
        parts += (blank, _marked(token, is_name=tokens[at + 1 : at + 2] == [":"]))
    return parts


def _marked(token: str, *, is_name: bool) -> str:
    """A token, escaped, in what says its kind."""
    if token in _SIGNS:
        return token
    kind = "word" if token in _WORDS else "number"
    if token.startswith('"'):
        kind = "name" if is_name else "text"
    return f'<span class="json-{kind}">{escape(token)}</span>'
