"""What the house tests look at: the rooms, their modules, and the files of the repository."""

from __future__ import annotations

import ast
import functools
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
MAPPED = ("index", "compaction", "recovery", "spark_io", "tools")
ROOMS = ("logstore", *MAPPED)


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file of the repository, relative to its root: committed, or about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    paths = (Path(name.decode()) for name in listed.split(b"\0") if name)
    return tuple(sorted(path for path in paths if (ROOT / path).is_file()))


def modules(*folders: str) -> list[Path]:
    """The Python modules of some folders of the top level, relative to the root."""
    return [path for path in files() if path.suffix == ".py" and path.parts[0] in folders]


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse((ROOT / path).read_text(), filename=str(path))


@functools.cache
def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
