"""Prevents work in the background from failing where another process drops segments meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.fs import LOCAL, FileSystem
from logstore.log import chain, names


def test_a_segment_that_goes_between_the_list_and_the_look_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16, background=False) as store:
        store.stream("s").add_many([{"pad": "x" * 1000}] * 300, batch=10)
        uuid = store._engine().uuid
        links, heads = chain.main_links(LOCAL, path, uuid), chain.heads(LOCAL, path, uuid)
        listed = names.segments

        def listed_and_gone(fs: FileSystem, place: Path) -> list[int]:
            found = listed(fs, place)
            names.segment(place, found[0]).unlink(missing_ok=True)
            return found

        monkeypatch.setattr(names, "segments", listed_and_gone)
        assert len(links) > 2
        assert chain.main_links(LOCAL, path, uuid) == links[1:]
        monkeypatch.setattr(names, "segments", lambda *_: [99, *listed(LOCAL, path)])
        del heads[links[0].number]
        assert chain.heads(LOCAL, path, uuid) == heads
        assert chain.main_links(LOCAL, path, uuid) == links[1:]
