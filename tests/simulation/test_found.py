"""Prevents that the simulation finds nothing: bugs are planted, one at a time, and are found.

Those of compiled code are built aside, which takes a minute for each; so they are where
``LOGSTORE_TORTURE`` is set, and else one of Python that is found soon.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.engine.lane.lane_loading import native_or_none
from tests.simulation.plants import COMPILED, PYTHON
from tests.simulation.playing import played
from tests.support import rebuilt

SEED = "1"
MOST = 400  # histories
pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled"),
]
torture = pytest.mark.skipif(
    "LOGSTORE_TORTURE" not in os.environ, reason="it takes minutes: `make torture` runs it"
)
SOON = "INDEXED is raised too early"


def _found(folder: Path, *more: str) -> str:
    code, said = played(folder, SEED, MOST, *more)
    wrong = [line for line in said.splitlines() if line.startswith(f"seed {SEED}, history ")]
    assert code == 1, f"it was not found: {said[-2000:]}"
    assert wrong, said[-2000:]
    return wrong[-1]


@pytest.mark.parametrize("name", COMPILED)
def test_each_bug_of_compiled_code_has_one_place(name: str) -> None:
    """What is to be changed stands there once, so that the build is another one."""
    change = COMPILED[name][1]
    assert (rebuilt.ROOT / rebuilt.LANE / change.file).read_text().count(change.old) == 1


def test_a_bug_is_found_soon(tmp_path: Path, tell: Callable[[str], None]) -> None:
    tell(f"{SOON}: {_found(tmp_path, '--plant', SOON)}")


@torture
@pytest.mark.parametrize("name", [name for name in PYTHON if name != SOON])
def test_a_bug_of_python_is_found(tmp_path: Path, name: str, tell: Callable[[str], None]) -> None:
    tell(f"{name}: {_found(tmp_path, '--plant', name)}")


@torture
@pytest.mark.parametrize("name", COMPILED)
def test_a_bug_of_compiled_code_is_found(
    tmp_path: Path, name: str, tell: Callable[[str], None]
) -> None:
    rebuilt.needed()
    lane = rebuilt.build(rebuilt.LANE, tmp_path, [COMPILED[name][1]], ("-O0",))
    tell(f"{name}: {_found(tmp_path / 'store', '--lane', str(lane))}")


@torture
def test_a_build_without_a_bug_is_not_found_fault_with(tmp_path: Path) -> None:
    """What is found in the others is what was planted."""
    rebuilt.needed()
    lane = rebuilt.build(rebuilt.LANE, tmp_path, (), ("-O0",))
    code, said = played(tmp_path / "store", SEED, 60, "--lane", str(lane))
    assert not code, said
