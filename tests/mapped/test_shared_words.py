"""Prevents words that processes share from being stored or loaded otherwise than in order.

Processors of ARM exchange stores, and loads, unless they are told not to: there a plain store of
"it is over" may be seen before what it is about.
"""

from __future__ import annotations

import ast
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import mapped
from logstore.codec import codec_name
from tests.support.processes import Forked

ROOT = Path(__file__).parents[2] / "logstore"
HOME = ROOT / "mapped"
TURNS = 20_000
DATA, FLAG, OVER = 8, 64, 128  # words, each in a cache line of its own

Make = Callable[[Any, int], mapped.Words]


def fenced(memory: Any, size_bytes: int) -> mapped.Words:
    fence = mapped.system_fence()
    assert fence is not None
    return mapped.FencedWords(memory, size_bytes, fence)


def ways() -> Iterator[Any]:
    if codec_name() == "native":
        yield pytest.param(mapped.words, id="compiled")
    if os.uname().machine in mapped.IN_ORDER:
        yield pytest.param(mapped.PlainWords, id="plain")
    if mapped.system_fence() is not None:
        yield pytest.param(fenced, id="fenced")


@pytest.fixture(params=ways())
def make(request: Any) -> Make:
    """Each of the ways that is right on this machine."""
    made: Make = request.param
    return made


@pytest.mark.parametrize("size_bytes", [8, 4])
def test_words_are_those_of_the_memory(make: Make, size_bytes: int) -> None:
    memory = bytearray(size_bytes * 16)
    words = make(memory, size_bytes)
    most = (1 << 8 * size_bytes) - 1
    words[0], words[3], words[15] = 1, most, most - 1
    assert words.some(0, 4) == (1, 0, 0, most)
    assert (words[3], words[15]) == (most, most - 1)
    packed = struct.pack("@16" + "IQ"[size_bytes == 8], 1, 0, 0, most, *[0] * 11, most - 1)
    assert bytes(memory) == packed
    for at in (16, 1 << 40):
        with pytest.raises(IndexError):
            words[at]
        with pytest.raises(IndexError):
            words[at] = 1
    with pytest.raises(IndexError):
        words.some(14, 3)
    for odd in (-1, most + 1):
        with pytest.raises((OverflowError, ValueError)):
            words[0] = odd
    assert words[0] == 1
    with pytest.raises(BufferError):
        memory.append(0)
    words.release()
    memory.append(0)  # nothing holds it any more
    words.release()
    with pytest.raises((IndexError, ValueError)):
        words[0]


def test_words_that_are_none_are_refused(make: Make) -> None:
    for memory, size_bytes in ((bytearray(12), 8), (bytearray(8), 3)):
        with pytest.raises((ValueError, TypeError, KeyError)):
            make(memory, size_bytes)
    with pytest.raises(TypeError):
        make(bytes(8), 8)[0] = 1
    assert make(bytes(8), 8)[0] == 0


def test_memory_is_let_go_of_with_its_words(make: Make) -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    words = make(memory, 8)
    words[1] = 7
    del words
    memory.close()


def test_a_word_that_is_seen_tells_of_what_was_stored_before_it(make: Make) -> None:
    """Two processes: one stores a turn in DATA, then in FLAG; the other loads them the other way
    round, singly and together."""
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        words = make(memory, 8)

        def look() -> None:
            seen = make(memory, 8)
            last = 0
            while last < TURNS:
                flag = seen[FLAG]
                data = seen[DATA]
                assert last <= flag <= data, (last, flag, data)
                first, *_, second = seen.some(DATA, FLAG - DATA + 1)
                assert second >= first - 1, (first, second)
                last = flag
            seen[OVER] = 1

        with Forked(look):
            for turn in range(1, TURNS + 1):
                words[DATA] = turn
                words[FLAG] = turn
        assert words[OVER] == 1
        words.release()
        del words


# -- the one way -----------------------------------------------------------------------------------
PACKS = {"cast", "pack_into", "from_address", "from_buffer"}
NATIVE_CODES = {"Q", "q", "I", "i", "L", "l", "@Q", "@I"}


def plain_words(source: str) -> list[int]:
    """Lines that reach words of memory otherwise: by a view of another kind, by packing into it, by
    unpacking an attribute that holds memory, or by its bytes."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, first = node.func.attr, node.args[0] if node.args else None
            code = first.value if isinstance(first, ast.Constant) else None
            if (
                (name == "cast" and code in NATIVE_CODES)
                or name in PACKS - {"cast"}
                or (name == "unpack_from" and is_memory(first))
            ):
                found.append(node.lineno)
        elif isinstance(node, ast.Subscript) and is_memory(node.value):
            found.append(node.lineno)
    return sorted(found)


def is_memory(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("_map", "memory", "_memory")


SAMPLE = """
self._words = memory.cast("Q")
_WORDS.pack_into(self._map, 8, *words)
words = _WORDS.unpack_from(self._map, 8)
self._map[96:112] = packed
waited = self._map[192] != 0
position = _ONE.unpack_from(data, 8)[0]
text = cast("Any", found)
"""


def test_words_of_shared_memory_are_reached_in_one_way() -> None:
    """``mapped.words``; and by its address one that is polled where the system has no futex: who
    waited loads it again."""
    assert plain_words(SAMPLE) == [2, 3, 4, 5, 6]
    found = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "engine").rglob("*.py"))
        if plain_words(path.read_text())
    }
    assert found == {"engine/shm/futex.py"}
    assert len(plain_words((ROOT / "engine/shm/futex.py").read_text())) == 1


def test_modules_that_map_memory_to_write_are_known() -> None:
    writers = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if HOME not in path.parents and "map(writable=True)" in path.read_text()
    }
    assert writers == {"engine/shm/commit_words.py"}
