"""Prevents a recovery that does not tell what it did, or that loses what was acknowledged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.tools.commands import invoke, no_traceback, ok, process, segments


def test_a_clean_store(store: Path) -> None:
    found = json.loads(ok("recover", store, "--json"))
    assert found["torn_bytes"] == 0
    assert len(ok("range", store, "race").splitlines()) == 4


def test_a_tail_is_set_aside_and_told(store: Path) -> None:
    with segments(store)[-1].open("ab") as log:
        log.write(b"\x07" * 25)
    done = process("recover", store, "--json")
    assert done.returncode == 0
    assert no_traceback(done.stderr)
    assert json.loads(done.stdout)["torn_bytes"] == 25
    assert invoke("check", store).exit_code == 0
    assert len(ok("range", store, "race").splitlines()) == 4


def test_without_an_index(store: Path) -> None:
    shutil.rmtree(store / "index")
    assert "rebuilt" in ok("recover", store)
    assert len(ok("range", store, "race").splitlines()) == 4
