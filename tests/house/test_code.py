"""Prevents modules that outgrow a sitting, files touched behind logstore.fs, swallowed errors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.repo import ROOMS, ROOT, modules, tree

FUNCTION_LINES_MAX = 70
LINE_LETTERS_MAX = 100  # as ruff has it of Python
OURS = (*ROOMS, "benchmarks", ".ci")

# What touches files. tools/ may read what the user names on the command line.
GUARDED = tuple(room for room in ROOMS if room != "tools")
FILE_MODULES = {"fcntl", "shutil", "tempfile"}
OS_CALLS = {
    *("fdatasync", "fsync", "ftruncate", "link", "makedirs", "mkdir", "open", "posix_fallocate"),
    *("pread", "preadv", "pwrite", "pwritev", "read", "remove", "rename", "replace", "rmdir"),
    *("sendfile", "symlink", "truncate", "unlink", "write", "writev"),
}
PATH_CALLS = {"read_bytes", "read_text", "touch", "write_bytes", "write_text"}

# Modules of Cython, and their parts.
COMPILED = [
    path.relative_to(ROOT)
    for suffix in ("pxi", "pyx")
    for path in sorted((ROOT / "logstore").rglob(f"*.{suffix}"))
]

Rule = Callable[[Path], Iterator[str]]


def long_functions(path: Path) -> Iterator[str]:
    """Functions that do not fit a screen."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.name} has {count} lines"


def long_lines(path: Path) -> Iterator[str]:
    """Lines of what is compiled that do not fit a screen."""
    for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1):
        if len(line) > LINE_LETTERS_MAX:
            yield f"{path}:{number}: {len(line)} letters, at most {LINE_LETTERS_MAX}"


def no_header(path: Path) -> Iterator[str]:
    """A part of a compiled module that does not say what it is."""
    if not (ROOT / path).read_text().startswith("# "):
        yield f"{path}: it does not begin with a comment"


def no_docstring(path: Path) -> Iterator[str]:
    """A module that does not say what it is."""
    if not (ast.get_docstring(tree(path)) or "").strip():
        yield f"{path}: no docstring"


def bare_except(path: Path) -> Iterator[str]:
    """Handlers that catch all, also an interrupt."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{path}:{node.lineno}: bare except"


def printing(path: Path) -> Iterator[str]:
    """Output that does not go through tools/command_output.py, so has no JSON form."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"{path}:{node.lineno}: print()"


def touching_files(path: Path) -> Iterator[str]:
    """File calls that a failing or crashing file system of the tests would not see."""
    has_paths = "pathlib" in (ROOT / path).read_text()
    for node in ast.walk(tree(path)):
        found = None
        if isinstance(node, ast.Import):
            found = {alias.name for alias in node.names} & FILE_MODULES
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} if node.module == "os" else set()
            found = (names & OS_CALLS) | ({node.module} & {*FILE_MODULES, "mmap"})
        elif isinstance(node, ast.Call):
            found = file_call(ast.unparse(node.func), has_paths)
        if found:
            yield f"{path}:{node.lineno}: {', '.join(sorted(map(str, found)))} beside logstore.fs"


def file_call(name: str, has_paths: bool) -> set[str]:
    """The name of a call, if it touches a file: `open`, `os.rename`, a method of a Path."""
    owner, _, last = name.rpartition(".")
    opens = name in {"open", "io.open", "mmap.mmap"}
    in_os = owner == "os" and last in OS_CALLS
    of_path = has_paths and last in PATH_CALLS and owner != "" and not owner.endswith("fs")
    return {name} if opens or in_os or of_path else set()


def riddles(path: Path) -> Iterator[str]:
    """Tests that are not named by the thing they test, as ``test_what_is_left``."""
    for node in ast.walk(tree(path)):
        name = node.name if isinstance(node, ast.FunctionDef) else ""
        if name.startswith(("test_what_", "test_who_")):
            yield f"{path}:{node.lineno}: {name}: begin with the thing that is tested"


def is_fs(path: Path) -> bool:
    """Tell whether a module is the one that may touch files; or the one that reads /proc."""
    return path.parts[0] == "logstore" and path.parts[1].removesuffix(".py") in {"fs", "fsinfo"}


RULES: dict[str, tuple[Rule, list[Path]]] = {
    "functions fit a screen": (long_functions, modules(*OURS)),
    "lines of compiled modules fit a screen": (long_lines, COMPILED),
    "every part of a compiled module says what it is": (
        no_header,
        [path for path in COMPILED if path.suffix == ".pxi"],
    ),
    "every module has a docstring": (no_docstring, modules(*OURS, "tests")),
    "no bare except": (bare_except, modules(*OURS, "tests")),
    "tests are named by the thing they test": (riddles, modules("tests")),
    "only tools/command_output.py prints": (
        printing,
        [path for path in modules(*ROOMS) if path != Path("tools/command_output.py")],
    ),
    "only logstore.fs touches files": (
        touching_files,
        [path for path in modules(*GUARDED) if not is_fs(path)],
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    rule, paths = RULES[name]
    broken = [found for path in paths for found in rule(path)]
    assert not broken, f"{name}:\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("call", "caught"),
    [
        ("open", True),
        ("os.rename", True),
        ("path.write_bytes", True),
        ("fs.open", False),
        ("self._fs.read_bytes", False),
        ("mmap.mmap", True),
        ("os.getpid", False),
        ("lmdb.open", False),
    ],
)
def test_the_guard_of_files_catches(call: str, caught: bool) -> None:
    """A canary: a guard that lets everything pass would stay green for ever."""
    assert bool(file_call(call, has_paths=True)) is caught
