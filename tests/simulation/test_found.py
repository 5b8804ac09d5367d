"""Prevents that the simulation finds nothing: bugs are planted, one at a time, and are found.

Those of compiled code are built aside, which takes a minute for each; so the whole of it runs where
``LOGSTORE_TORTURE`` is set, and else the bugs of Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.engine.lane.loading import native_or_none
from tests.simulation.plants import COMPILED, NOT_YET, PYTHON
from tests.simulation.test_histories import played
from tests.support import rebuilt

SEED = "1"
MOST = 400  # histories
pytestmark = [
    pytest.mark.inside,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled"),
    # Some seeds end otherwise each time, or where all wait: it is not told yet whose fault that is.
    pytest.mark.skipif("LOGSTORE_TORTURE" not in os.environ, reason="`make torture` runs it"),
]


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


@pytest.mark.parametrize("name", [name for name in PYTHON if name not in NOT_YET])
def test_a_bug_of_python_is_found(tmp_path: Path, name: str, tell: Callable[[str], None]) -> None:
    tell(f"{name}: {_found(tmp_path, '--plant', name)}")


@pytest.mark.skipif(
    "LOGSTORE_TORTURE" not in os.environ, reason="a build for each: `make torture` runs it"
)
@pytest.mark.parametrize("name", [name for name in COMPILED if name not in NOT_YET])
def test_a_bug_of_compiled_code_is_found(
    tmp_path: Path, name: str, tell: Callable[[str], None]
) -> None:
    rebuilt.needed()
    lane = rebuilt.build(rebuilt.LANE, tmp_path, [COMPILED[name][1]], ("-O0",))
    tell(f"{name}: {_found(tmp_path / 'store', '--lane', str(lane))}")


@pytest.mark.skipif("LOGSTORE_TORTURE" not in os.environ, reason="a build: `make torture` runs it")
def test_a_build_without_a_bug_is_not_found_fault_with(tmp_path: Path) -> None:
    """What is found in the others is what was planted."""
    rebuilt.needed()
    lane = rebuilt.build(rebuilt.LANE, tmp_path, (), ("-O0",))
    code, said = played(tmp_path / "store", SEED, 60, "--lane", str(lane))
    assert not code, said
