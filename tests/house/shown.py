"""What the repository shows of commands and of code: in pages, docstrings, units and messages.

A *line* is typed as it stands: one of a block of a page, of a crontab, of an example's docstring.
A *mention* is code within a sentence: `` `logstore compact` `` or ``'logstore recover'``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.house.repo import ROOMS, ROOT, files, modules, tree

FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_UNSEEN = re.compile(r"^```.*?^```$|^<!--.*?-->$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
# A command between quotes, or between the double backticks of a docstring.
_QUOTED = re.compile(r"(?:``|['\"])(logstore [a-z][^`'\"]*)(?:``|['\"])")
# Of a docstring, or the head of a unit: what is indented, or behind a colon.
_TYPED = re.compile(
    r"^(?: {4,}|#(?: {3,}|.*: )|.*: )"
    r"((?:[A-Z_]+=\S+ )?(?:(?:logstore|uvicorn) [a-z]|pip install|python \w+\.py).*)$",
    re.MULTILINE,
)
COMMENT = re.compile(r"(^| +)# .*$", re.MULTILINE)
PAGES = [path for path in files() if path.suffix == ".md"]
NOTEBOOKS = [path for path in files() if path.suffix == ".ipynb"]
# Pages that tell of names that are gone.
OF_THE_PAST = {Path("CHANGELOG.md"), Path("docs/mutation.md"), Path("docs/previews.md")}


HOUSE = Path("tests/house")


class Shown(NamedTuple):
    """A command, or an expression, and where it is shown."""

    where: str
    text: str


class Fence(NamedTuple):
    """A block of a page."""

    page: Path
    line: int
    language: str
    text: str


def text_of(path: Path) -> str:
    """A page; of a notebook the cells that are text."""
    text = (ROOT / path).read_text()
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "markdown")


def fences() -> Iterator[Fence]:
    """The blocks of all pages."""
    for page in PAGES:
        text = text_of(page)
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start("text")) + 1
            yield Fence(page, line, found["language"], found["text"])


def typed() -> Iterator[Shown]:
    """The lines of blocks that a shell is given: those with a prompt, and those of a crontab."""
    for fence in fences():
        for number, line in enumerate(fence.text.splitlines(), fence.line):
            where = f"{fence.page}:{number}"
            if line.startswith("$ "):
                yield Shown(where, line[2:])
            elif found := re.match(r"(?:[\d*]+ +){5}(.*)", line):
                yield Shown(where, found[1].replace("\\%", "%"))
    for path in files():
        if path.parts[0] == "examples" and path.suffix in {".py", ".service", ".yaml", ""}:
            for match in _TYPED.finditer((ROOT / path).read_text()):
                yield Shown(str(path), match[1])


def rows(page: str, head: str) -> dict[str, str]:
    """The rows of the first table of a page whose first column is named so, by the code in it."""
    lines = (ROOT / page).read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"| {head} |"))
    found = {}
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        _, first, rest = line.split("|", 2)
        found |= dict.fromkeys(re.findall(r"`([^`]+)`", first), rest)
    return found


def mentions(*, past: bool = False) -> Iterator[Shown]:
    """Code within the sentences of pages, as one line each; of pages that tell of the past, too."""
    for page in [*PAGES, *NOTEBOOKS]:
        if past or page not in OF_THE_PAST:
            # A block leaves its lines, so that numbers of lines fit.
            text = _UNSEEN.sub(lambda found: "\n" * found[0].count("\n"), text_of(page))
            for found in _CODE.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                yield Shown(f"{page}:{line}", " ".join(found[1].split()))


def said() -> Iterator[Shown]:
    """Commands that docstrings, comments, errors and advice of the product name."""
    for path in modules(*ROOMS, "benchmarks", "examples"):
        named = re.search(r"[`'\"]logstore [a-z]", (ROOT / path).read_text())
        for node in ast.walk(tree(path)) if named else ():
            text = _constant(node)
            for found in _QUOTED.finditer(text):
                yield Shown(f"{path}:{getattr(node, 'lineno', 1)}", found[1])
    for path in files():
        if path.suffix in {".pyx", ".pxi", ".html"}:
            for found in _QUOTED.finditer((ROOT / path).read_text()):
                yield Shown(str(path), found[1])


def _constant(node: ast.AST) -> str:
    """The text of a string, with an X for each value that is put into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "X" for each in node.values)
        return "".join(map(str, parts))
    return ""


@cache
def variables() -> set[str]:
    """Variables of the environment that code, the Makefile or CI reads."""
    code = [
        path for path in files() if path.suffix in {".py", ".pyx"} and "house" not in path.parts
    ]
    texts = ((ROOT / path).read_text() for path in [*code, Path("Makefile"), Path(".ci/run")])
    return {name for text in texts for name in re.findall(r"\bLOGSTORE_\w+", text)}
