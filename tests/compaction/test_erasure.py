"""Prevents an erasure from leaving bytes that others, or a killed process, put in its way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.compaction import nodes, segments
from tests.compaction.dumps import everywhere

SECRET = os.urandom(24)


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let others change something once, between the copy of the nodes and its adoption."""
    adopt = segments.write_and_adopt
    done: list[object] = []

    def changed(engine: Any, committer: Any, groups: Iterable[nodes.Group], *rest: Any) -> None:
        read = list(groups)
        if not done:
            done.append(change())
        adopt(engine, committer, read, *rest)

    monkeypatch.setattr(segments, "write_and_adopt", changed)


def test_a_node_that_others_change_meanwhile_is_erased_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        stream = store.stream("s")
        secret = stream.add({"secret": SECRET})
        assert secret is not None
        ids = list(stream.add_many({"n": n} for n in range(500)))
        meanwhile(monkeypatch, lambda: stream.delete(ids[3]))
        assert stream.delete(secret, purge=True) == 1
        assert everywhere(path, SECRET) == []
        assert [entry.id for entry in stream] == [*ids[:3], *ids[4:]]


def test_a_node_that_becomes_open_again_meanwhile_is_erased_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        stream = store.stream("s")
        stream.add_many({"n": n} for n in range(50))
        secret = stream.add({"secret": SECRET})
        big = stream.add({"pad": "x" * 5000})
        assert secret is not None
        assert big is not None

        def reopen() -> None:
            stream.delete(big)
            stream.add({"n": "behind"})

        meanwhile(monkeypatch, reopen)
        stream.delete(secret, purge=True)
        assert everywhere(path, SECRET) == []
        assert len(stream) == 51


def test_what_a_killed_process_left_under_a_temporary_name_is_erased(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        secret = store.stream("s").add({"secret": SECRET})
        assert secret is not None
        store.sync()
        pin = "0" * 32
        for name in (
            "log/00000000000000000009.log.tmp", "log/00000000000000000009.hint.tmp",
            "log/00000000000000000009.hint", f"checkpoint/{9:020d}.ckpt.tmp",
            "index/99.tmp/data.mdb", "index/0/data.mdb",  # being built, and one from long ago
            f"pins/{pin}", f"pins/{pin}.snap", f"pins/{pin}.{pin}.tmp",
            f"quarantine/{1:020d}-{1:010d}.tail",
        ):  # fmt: skip
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(SECRET)
        store.stream("s").delete(secret, purge=True)
        assert everywhere(path, SECRET) == []


def test_an_erasure_that_never_catches_up_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others change the node in every pass: nothing may claim that the bytes are gone."""
    with logstore.open(tmp_path / "store") as store:
        stream = store.stream("s")
        secret = stream.add({"secret": SECRET})
        assert secret is not None
        ids = list(stream.add_many({"n": n} for n in range(500)))
        adopt = segments.write_and_adopt
        left = iter(ids)

        def changed(engine: Any, committer: Any, groups: Iterable[nodes.Group], *rest: Any) -> None:
            read = list(groups)
            stream.delete(next(left))
            adopt(engine, committer, read, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(segments, "write_and_adopt", changed)
            with pytest.raises(logstore.ErasureIncompleteError, match="again"):
                stream.delete(secret, purge=True)
        assert secret not in stream
        store.compact(purge=True)
        assert everywhere(tmp_path / "store", SECRET) == []
