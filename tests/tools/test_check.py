"""Prevents scripts that take a damaged store for a whole one, and a check that changes the store.

The exit codes: 0 clean, 1 damaged, 2 wrong usage or no store, 3 an unacknowledged tail.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.tools.commands import contents, invoke, no_traceback, ok, process, segments


def flip(path: Path, offset: int) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def test_clean_as_a_process(store: Path) -> None:
    done = process("check", store, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert (found["damage"], found["tail_bytes"]) == ([], 0)


def test_text(store: Path) -> None:
    names = [line.partition("  ")[0] for line in ok("check", store).splitlines()]
    assert {"damage", "tail"} <= set(names)
    assert "tail offset" not in names  # where there is none


def test_damage_is_1(large: Path) -> None:
    """A byte in the middle of a sealed segment; what was found is printed all the same."""
    log = segments(large)[1]
    flip(log, log.stat().st_size // 2)
    done = process("check", large, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["damage"]
    assert no_traceback(done.stderr)
    text = process("check", large)
    assert text.returncode == 1
    assert b"damage 1 segment" in text.stdout


def test_a_tail_is_3(store: Path) -> None:
    """What a writer leaves that was killed inside its write."""
    with segments(store)[-1].open("ab") as log:
        log.write(b"\x07" * 25)
    done = process("check", store, "--json")
    assert (done.returncode, done.stderr) == (3, b"")
    assert json.loads(done.stdout)["tail_bytes"] == 25


def test_check_of_no_store_exits_with_2(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        done = process("check", path)
        assert done.returncode == 2
        assert done.stderr.startswith(b"logstore: ")
    assert invoke("check").exit_code == 2


def test_a_reader_that_goes_away_does_not_change_the_code(store: Path) -> None:
    """A script that pipes the report away still learns of the damage."""
    import subprocess

    from tests.tools.commands import COMMAND, environment

    with segments(store)[-1].open("ab") as log:
        log.write(b"\x07" * 25)
    with subprocess.Popen(
        [*COMMAND, "check", str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(),
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.wait(60) == 3
        assert running.stderr.read() == b""


def test_nothing_is_changed(store: Path) -> None:
    with segments(store)[-1].open("ab") as log:
        log.write(b"\x07" * 25)
    before = contents(store)
    assert invoke("check", store).exit_code == 3
    assert contents(store) == before
