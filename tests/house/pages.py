"""What a page of the documentation shows, run as a reader would run it.

Blocks of Python run in order, in one namespace; lines of ``$ logstore`` run as commands. A comment
``<!-- python ... -->`` in a page is run and not shown: what the examples need to be there. A
comment ``<!-- needs NAME -->`` in front of a block has it run where that package is installed, or
where the caller gives something of that name. ``<!-- not run: REASON -->`` leaves a block out.

Invariants: an example in Python is run, or left out for a reason that stands in the page; there is
no third way. A comment that is a value is what its expression gives. Commands that are not ours
(``make``, ``pip``) are not run. What is left out is still looked at, by `test_shown_commands` and
`test_shown_code`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from tests.house.repo import ROOT

BLOCK = re.compile(
    r"^(?:<!-- (?P<hidden>python|console)\n(?P<unseen>.*?)^-->$"
    r"|(?:(?P<reason><!-- not run: [^\n]+ -->\n)|<!-- needs (?P<needs>\w+) -->\n)?"
    r"^```(?P<shown>[^\n]*)\n(?P<seen>.*?)^```$)",
    re.MULTILINE | re.DOTALL,
)
RUN = {"python", "console"}
_ID = re.compile(r"\b\d{13}-\d+\b")
COMMAND_TIMEOUT_S = 120


class Block(NamedTuple):
    """A part of a page that is run."""

    language: str
    lines_above: int  # lines of the page in front of it
    text: str
    needs: str = ""  # a package, or a name that the caller gives


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are run, in order."""
    text = (ROOT / page).read_text()
    found = []
    for match in BLOCK.finditer(text):
        part = "unseen" if match["hidden"] else "seen"
        language = match["hidden"] or match["shown"]
        if language.startswith("python ") or (match["reason"] and match["hidden"]):
            raise ValueError(f"{page}: an example that is neither run nor left out: {language}")
        if language in RUN and not match["reason"]:
            above = text.count("\n", 0, match.start(part))
            found.append(Block(language, above, match[part], match["needs"] or ""))
    return found


def run(page: Path, *, commands: bool = True, **names: object) -> None:
    """Run what a page shows, in the present directory; an error carries the page and the line.

    Args:
        page: the page, from the top of the repository.
        commands: whether blocks of commands are run, too.
        names: what is there already, by name: a Spark session, say.
    """
    module = ModuleType("page")  # where decorators of tasks look a function up
    namespace = vars(module)
    namespace.update(names)
    sys.modules[module.__name__] = module
    try:
        for block in blocks(page):
            if block.needs and block.needs not in names and find_spec(block.needs) is None:
                continue
            if block.language == "python":
                _run_python(page, block, namespace)
            elif commands:
                _run_commands(page, block)
    finally:
        del sys.modules[module.__name__]


def _run_python(page: Path, block: Block, namespace: dict[str, object]) -> None:
    source = "\n" * block.lines_above + block.text
    flags = PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, ROOT / page, "exec", flags=flags | ast.PyCF_ONLY_AST)
    namespace[_compare.__name__] = _compare
    compared = ast.fix_missing_locations(_Comparing(source).visit(tree))
    code = compile(compared, ROOT / page, "exec", flags=flags)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(_awaited(code, namespace))
    else:
        exec(code, namespace)


class _Comparing(ast.NodeTransformer):
    """Has an expression whose comment is a value, as ``jobs.last["to"]  # ['bob']``, give it."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """The expression; with a comment that is a value, a call that compares both."""
        _, mark, comment = self._lines[(node.end_lineno or node.lineno) - 1].rpartition("  # ")
        try:
            ast.literal_eval(comment if mark else "no comment")
        except (ValueError, SyntaxError):
            return node
        name = ast.Name(_compare.__name__, ast.Load())
        call = ast.Call(name, [node.value, ast.Constant(comment)], [])
        return ast.copy_location(ast.Expr(call), node)


def _compare(value: object, comment: str) -> None:
    """Hold a value against its comment. IDs are of another moment: any of the store's will do."""
    found, told = (_ID.sub("0-0", text) for text in (repr(value), comment))
    assert ast.literal_eval(found) == ast.literal_eval(told), (value, comment)


async def _awaited(code: CodeType, namespace: dict[str, object]) -> None:
    await eval(code, namespace)


def _run_commands(page: Path, block: Block) -> None:
    """Each line that begins with ``$ ``, by a shell, as long as it is a command of ours."""
    for number, line in enumerate(block.text.splitlines(), block.lines_above + 1):
        if not line.startswith("$ logstore "):
            continue
        folder = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-ec", f"set -o pipefail; {line[2:]}"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            env={**os.environ, "PATH": folder, "PYTHONPATH": str(ROOT)},
        )
        outcome = f"{page}:{number}: {line}\n{done.stdout}{done.stderr}"
        assert (done.returncode, done.stderr) == (0, ""), outcome


# What needs Spark is run by tests/spark/test_pages.py; so is a page of which only a block needs it.
OF_SPARK = {Path(f"docs/{name}.md") for name in ("scan", "spark", "spark-cluster", "tutorial")}
PARTLY_OF_SPARK = {Path("README.md")}
