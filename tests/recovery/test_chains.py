"""Prevents a node from being put together of frames that are not its own, or of too few of them."""

from __future__ import annotations

from pathlib import Path

import logstore
from logstore.codec import codec
from logstore.engine.snapshots import snapshot
from logstore.ids import StreamID
from logstore.recovery.salvage import nodes
from logstore.recovery.salvage.nodes import Wanted


def test_a_node_is_found_by_its_frames(tmp_path: Path) -> None:
    """As it stands at any place of the log, among frames of other streams and other nodes."""
    limits = {"node_max_entries": 6, "background": False}
    with logstore.open(tmp_path / "store", encoding=None, **limits) as store:  # type: ignore[call-overload]
        engine = store._engine()
        places: list[tuple[int, int, bytes]] = []  # where the log ended, the open node, its bytes
        number = 0

        def took() -> None:
            nonlocal number

            def look(view: snapshot.Snapshot) -> tuple[int, bytes]:
                nonlocal number
                record = view.index.record_by_name(b"s")
                assert record is not None
                number = record.number
                node = view.index.open_node(number)
                assert node is not None
                assert node.lp is not None
                return record.open_master.ms, node.lp

            places.append((engine.wake.applied, *snapshot.read(engine, look)))

        for ms in range(1, 15):
            store.stream("s").add({b"f": b"%d" % ms}, f"{ms}-0")
            took()
            store.stream("t").add({b"g": b"%d" % ms}, f"{ms}-0")
            if ms in (3, 9):
                store.stream("s").delete(f"{ms - 1}-0", f"{ms}-0")
                took()

        def find(stream: int, master: int, before: int) -> Wanted | None:
            wanted = Wanted(stream, StreamID(master, 0), before)
            found = nodes.find(engine.fs, engine.path, engine.uuid, engine.seed, [wanted])
            return found.get((stream, StreamID(master, 0)))

        for before, master, lp in places:
            live = codec().counts(lp)[0]
            found = find(number, master, before)
            assert found is not None
            assert found.as_sealed(live) == (lp, True)
            assert found.as_sealed(live + 1) == (found.lp, False)
        end = engine.wake.applied
        assert find(number, 2, end) is None
        assert find(number + 9, 1, end) is None
        assert find(number, 1, places[0][0] - 1000) is None
        assert nodes.find(engine.fs, engine.path, engine.uuid, engine.seed, []) == {}
