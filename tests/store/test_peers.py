"""Prevents a store that answers, refuses or packs otherwise than Redis and Valkey do: random
workloads on two streams, played on the store and on both servers, compared reply by reply and node
byte by node byte; also after reopening, and after the index was rebuilt.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore.engine.txn import nodes
from tests.codec.strategies import entries, steps
from tests.peers.servers import Peer
from tests.store.mirror import Mirror

pytestmark = pytest.mark.peers

MAX = 2**64 - 1
MORE = os.environ.get("LOGSTORE_WORKLOADS")  # so many other workloads at each run
sizes = st.tuples(
    st.sampled_from([0, 60, 128, 200, 500, 4096]), st.sampled_from([0, 1, 2, 3, 5, 100])
)
streams = st.sampled_from([0, 0, 0, 1])
known = st.tuples(st.just("known"), st.integers(0, 200))
odd_ids = st.tuples(st.just("raw"), st.sampled_from([
    "0-0", "0", "01-01", "5", "1-", "-1", "-", "+", "", "abc", "1-2-3", "0x1-1", "1 -1", "(5",
    "(1-1",
    "*-*", "0-*", "-*", "5-*x", "18446744073709551616-0", "0-18446744073709551616", f"{MAX}-{MAX}",
    f"{MAX}-0", f"{MAX}-*", f"{MAX}", "1" * 128, "$", b"\xff-1", "1_0-1", "\u0661-1",
]))  # fmt: skip
auto = st.tuples(st.just("raw"), st.sampled_from(["*", b"*"]))
auto_of = st.tuples(st.just("auto of"), st.sampled_from([0, 0, 0, 1, 2**50, 2**63]))
stepped = st.tuples(st.just("step"), steps)
add_ids = st.one_of(stepped, stepped, stepped, stepped, auto, auto, auto_of, known, odd_ids)
any_ids = st.one_of(known, known, known, known, stepped, odd_ids)
after = st.tuples(st.just("after"), st.integers(0, 200))
whole = st.sampled_from(
    [("raw", "-"), ("raw", "+"), ("raw", f"({MAX}-{MAX}"), ("raw", "(0-0"), ("raw", "(-")]
)
bare = st.tuples(st.just("ms"), st.sampled_from([b"", b"("]), st.integers(0, 200))
edges = st.one_of(known, known, known, after, after, bare, bare, whole, odd_ids)


def trims(required: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Options of a trim: mostly one that makes sense."""
    max_entries = st.integers(0, 12) | st.sampled_from([-1, 40])
    limit = st.sampled_from([None, None, 0, 1, 3, 7, -1])
    one = st.one_of(
        st.fixed_dictionaries({"max_entries": max_entries, "approximate": st.just(False)}),
        st.fixed_dictionaries(
            {"max_entries": max_entries, "approximate": st.just(True), "limit": limit}
        ),
        st.fixed_dictionaries({"min_id": known | any_ids, "approximate": st.just(False)}),
        st.fixed_dictionaries({"min_id": known, "approximate": st.just(True), "limit": limit}),
    )
    odd = st.fixed_dictionaries({}, optional={
        "max_entries": max_entries, "min_id": any_ids, "limit": limit, "approximate": st.booleans(),
    })  # fmt: skip
    sane = [one] * 8
    return st.one_of(*sane, odd) if required else st.one_of(*[st.just({})] * 14, *sane[:4], odd)


batches = st.lists(entries, max_size=12)
add = st.tuples(
    st.just("add"), streams, add_ids, entries, trims(False), st.sampled_from([True] * 7 + [False])
)
many = st.tuples(
    st.just("many"), streams, batches,
    st.none() | st.lists(st.sampled_from([(0, 0), (0, 3), (1, 0), (9, 2**63)]), max_size=12),
    st.integers(1, 7), trims(False),
)  # fmt: skip
delete = st.tuples(st.just("delete"), streams, st.lists(any_ids, min_size=1, max_size=6))
delete_range = st.tuples(st.just("delete_range"), streams, edges, edges)
trim = st.tuples(st.just("trim"), streams, trims(True))
set_id = st.tuples(
    st.just("set_id"), streams, stepped | known | any_ids,
    st.none() | st.integers(0, 8) | st.just(-9), st.none() | any_ids,
)  # fmt: skip
read_range = st.tuples(
    st.just("range"), streams, edges, edges, st.sampled_from([None, None, 0, 1, 4]), st.booleans()
)
read = st.tuples(
    st.just("read"), st.lists(any_ids | st.just(("raw", "$")), min_size=1, max_size=2),
    st.sampled_from([None, 0, 1, 5]),
)  # fmt: skip
other = st.one_of(
    st.tuples(st.just("drop"), streams),
    st.tuples(st.just("create"), streams),
    st.tuples(st.just("clock"), st.sampled_from([0, 1, 1000, 2**46, -5000])),
    st.tuples(st.just("nodes")),
)
reopen = st.tuples(
    st.just("reopen"), st.sampled_from(["reopen", "roll", "rebuild", "roll, rebuild"])
)
fill = st.tuples(
    st.just("many"), st.just(0), st.lists(entries, min_size=6, max_size=20),
    st.just([(1, 0)] * 20), st.integers(2, 20), st.just({}),
)  # fmt: skip
operation = st.one_of(
    add, add, add, add, many, many, delete, delete, delete_range, trim, trim, set_id,
    read_range, read_range, read, other, reopen,
)  # fmt: skip
operations = st.builds(
    lambda first, others: [first, *others], fill, st.lists(operation, min_size=12, max_size=40)
)


@settings(
    max_examples=int(MORE or 100), derandomize=not MORE, suppress_health_check=list(HealthCheck)
)
@given(sizes=sizes, drawn=operations, inline=st.sampled_from([65536, 65536, 250]))
def test_a_workload_is_answered_and_packed_as_the_servers_do(
    redis_peer: Peer, valkey_peer: Peer, sizes: tuple[int, int], drawn: list[tuple[Any, ...]],
    inline: int,
) -> None:  # fmt: skip
    """With a small ``inline``, open nodes are soon kept as runs, as large ones are."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "OPEN_INLINE_MAX_BYTES", inline)
        mirror = Mirror(Path(folder) / "store", sizes)
        try:
            for operation in drawn:
                mirror.run(operation)
            mirror.do_nodes()
            mirror.do_reopen("rebuild")
            mirror.do_restore()
        finally:
            mirror.store.close()
    mirror.judge(redis_peer)
    mirror.judge(valkey_peer)
