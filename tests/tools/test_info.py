"""Prevents counts that are missing or of another thing."""

from __future__ import annotations

import json
from pathlib import Path

import logstore
from tests.tools.commands import ok, process


def test_a_store(store: Path) -> None:
    found = json.loads(ok("info", store, "--json"))
    with logstore.open(store) as opened:
        wanted = opened.info().as_dict()
    for name in ("path", "uuid", "streams", "segments", "log_bytes", "codec"):
        assert found[name] == wanted[name], name


def test_text_as_a_process(store: Path) -> None:
    done = process("info", store)
    assert done.returncode == 0
    names = [line.split("  ")[0] for line in done.stdout.decode().splitlines()]
    assert {"path", "streams", "disk bytes", "deleted bytes"} <= set(names)


def test_a_stream(store: Path) -> None:
    found = json.loads(ok("info", store, "race", "--json"))
    assert found["name"] == "race"
    assert (found["length"], found["entries_added"]) == (4, 4)
    assert found["last_generated_id"] == "3-0"
    assert found["first_entry"] == {"id": "1-1", "fields": {"rider": "Castilla", "speed": "30.2"}}
    assert found["last_entry"] == {"id": "3-0", "pairs_base64": [["AP8=", "/g=="]]}


def test_a_stream_in_text(store: Path) -> None:
    lines = dict(line.split("  ", 1) for line in ok("info", store, "race").splitlines())
    assert lines["length"].strip() == "4"
    assert lines["first entry"].strip() == "1-1 rider=Castilla speed=30.2"
