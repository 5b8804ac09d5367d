"""The shape of the radix tree in which the peers keep a stream's nodes, as XINFO STREAM tells it.

Invariants: keys are looked at one after the other and not kept, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable

KEY_BYTES = 16


def radix_tree(keys: Iterable[bytes]) -> tuple[int, int]:
    """How many of these sorted keys of 16 bytes there are, and how many nodes the peers' radix tree
    has for them.

    One for the empty tree; else a leaf for each key, a node for each branching point, and one for
    each stretch of more than no bytes between them, and none for the root if it branches itself.
    """
    total = count = 0
    depths: list[int] = []  # of the branching points on the path to the key before
    previous, width = b"", KEY_BYTES
    # (depth of the branching point or leaf above, counted when the path is left)
    for count, key in enumerate(keys, 1):
        total += 1
        if count == 1:
            previous = key
            continue
        common = _common(previous, key)
        below = width
        while depths and depths[-1] > common:
            depth = depths.pop()
            total += 1 if below - depth - 1 > 0 else 0
            below = depth
        if not depths or depths[-1] < common:
            depths.append(common)
            total += 1
        total += 1 if below - common - 1 > 0 else 0
        previous = key
    if not count:
        return 0, 1
    below = width
    while depths:
        depth = depths.pop()
        total += 1 if below - depth - 1 > 0 else 0
        below = depth
    return count, total + (1 if below > 0 else 0)


def _common(left: bytes, right: bytes) -> int:
    for place, (a, b) in enumerate(zip(left, right, strict=True)):
        if a != b:
            return place
    return len(left)
