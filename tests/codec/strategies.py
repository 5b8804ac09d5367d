"""What the codec's properties draw from: texts near every border, IDs, whole workloads."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

BORDERS = [0, 1, 127, 128, 4095, 4096, 32767, 32768, 8388607, 8388608, 2**31 - 1, 2**31]
BORDERS += [2**63 - 1, 2**63, 10**18, 10**19]
NEAR_INTEGERS = [b"", b"-0", b"007", b"+1", b" 1", b"1.0", b"-", b"1" * 19, b"9" * 20, b"9" * 21]

integer_texts = st.builds(
    lambda border, step, sign: b"%d" % (sign * (border + step)),
    st.sampled_from(BORDERS),
    st.integers(-2, 2),
    st.sampled_from([1, -1]),
)
long_texts = st.builds(
    lambda size, byte: bytes((byte,)) * size,
    st.sampled_from([62, 63, 64, 65, 125, 126, 127, 128, 300, 4093, 4096]),
    st.integers(0, 255),
)
texts = st.one_of(integer_texts, st.sampled_from(NEAR_INTEGERS), st.binary(max_size=12), long_texts)
names = st.sampled_from([b"a", b"b", b"", b"7", b"long field name", b"\xff"])
flats = st.lists(st.tuples(names, texts), min_size=1, max_size=4).map(
    lambda pairs: [text for pair in pairs for text in pair]
)
same_shape = st.tuples(texts, texts).map(lambda values: [b"x", values[0], b"y", values[1]])
entries = st.one_of(flats, same_shape, same_shape)

limits = st.tuples(
    st.sampled_from([0, 1, 60, 128, 200, 500, 4096]), st.sampled_from([0, 1, 2, 5, 100])
)
# How far an ID lies above the one before: (ms, seq); a step of ms makes seq start anywhere.
steps = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, 200, 2**20, 2**62]),
    st.sampled_from([0, 1, 5, 127, 5000, 2**40, 2**63, 2**64 - 1]),
)


def next_id(last: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
    """The ID at ``step`` above ``last``."""
    ms, seq = step
    if ms and last[0] + ms < 2**64:
        return last[0] + ms, seq
    if last[1] + seq + 1 < 2**64:
        return last[0], last[1] + seq + 1
    return last[0] + 1, 0


class Workload:
    """Strategies of operations on one stream; targets of deletes and trims are indexes."""

    add = st.tuples(st.just("add"), steps, entries)
    delete = st.tuples(st.just("delete"), st.integers(0, 200))
    maxlen = st.tuples(
        st.just("maxlen"), st.integers(0, 30), st.booleans(), st.sampled_from([0, 1, 7])
    )
    minid = st.tuples(
        st.just("minid"), st.integers(0, 200), st.booleans(), st.sampled_from([0, 1, 7])
    )


operations: st.SearchStrategy[list[tuple[Any, ...]]] = st.lists(
    st.one_of(Workload.add, Workload.add, Workload.add, Workload.delete, Workload.delete)
    | st.one_of(Workload.add, Workload.maxlen, Workload.minid),
    min_size=1,
    max_size=60,
)
