"""Copies of the repository in which the product is broken; the tree itself never is.

Invariants: a copy holds what git would commit, the compiled codec, and the links between the
rooms; a module that was broken is put back with its old time, so that its bytecode counts again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def take(into: Path, *, only: str = "") -> None:
    """Copy the repository, or what is below one of its folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    names = [name.decode() for name in listed.split(b"\0") if name]
    names += [str(path.relative_to(ROOT)) for path in ROOT.glob("logstore/codec/*.so")]
    for name in names:
        source, target = ROOT / name, into / name
        if name.startswith(only) and os.path.lexists(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def again(tree: Path, into: Path) -> Path:
    """A copy of a copy; returns where it is."""
    if into.exists():
        shutil.rmtree(into)
    shutil.copytree(tree, into, symlinks=True, ignore=shutil.ignore_patterns("build"))
    return into


@contextmanager
def broken(module: Path, source: str) -> Iterator[None]:
    """For as long as the block runs, the module reads like this."""
    before, times = module.read_bytes(), module.stat()
    module.write_text(source)
    try:
        yield
    finally:
        module.write_bytes(before)
        os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))
