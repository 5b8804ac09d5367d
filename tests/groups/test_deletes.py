"""Prevents a delete that names a gone entry between two live ones from leaving an empty node."""

from __future__ import annotations

from pathlib import Path

import logstore


def test_a_gone_entry_between_live_ones_hides_no_node_that_got_empty(tmp_path: Path) -> None:
    """The peers take the node away, and so do we."""
    with logstore.open(tmp_path / "store", background=False) as store:
        stream = store.stream("s")
        for number in range(1, 5):
            stream.add({"a": "1"}, id=f"{number}-0")
        stream.delete("2-0")
        assert stream.delete("1-0", "2-0", "3-0", "4-0") == 3
        assert stream.info().radix_tree_keys == 0
