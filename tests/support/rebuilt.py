"""Another build of a compiled module, in a folder of its own: with other text, or other flags.

Invariants: the sources of the tree are not touched; a text that is to be replaced stands there
exactly once, else the build fails and says which, so that what a test breaks is still there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LANE, CODEC, MAPPED = (
    Path("logstore/engine/lane"), Path("logstore/codec"), Path("logstore/mapped")
)  # fmt: skip


class Change(NamedTuple):
    """Another text in a part of the sources."""

    file: str  # below the folder of the module
    old: str
    new: str


def needed() -> None:
    """Skip the test where nothing can be compiled."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    if importlib.util.find_spec("Cython") is None:
        pytest.skip("no Cython")


def build(
    module: Path, folder: Path, changes: Iterable[Change] = (), flags: Iterable[str] = ("-O1",)
) -> Path:
    """Compile the module ``native`` of a package, its sources copied; the shared object."""
    for part in (CODEC, module):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for source in (ROOT / part).glob("*.p[yx][xi]"):
            shutil.copy(source, folder / part)
    for change in changes:
        path = folder / module / change.file
        text = path.read_text()
        assert text.count(change.old) == 1, f"{change.file} has not once: {change.old}"
        path.write_text(text.replace(change.old, change.new))
    name = ".".join((*module.parts, "native"))
    place = folder / module / "native"
    made = place.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
    _run(sys.executable, "-m", "cython", "-3", "--module-name", name, f"{place}.pyx")
    include = sysconfig.get_paths()["include"]
    _run("cc", "-shared", "-fPIC", "-fwrapv", "-w", *flags, f"-I{include}", f"{place}.c",
         "-o", str(made))  # fmt: skip
    return made


def _run(*command: str, more: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(more or {})}
    )
    assert not done.returncode, f"{command}: {done.stdout}{done.stderr}"
