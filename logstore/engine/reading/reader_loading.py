"""The compiled read core, where it was built, and the cache of nodes that fits.

Invariants: chosen once, when this is imported; who asks for the pure codec (LOGSTORE_CODEC) gets
nothing that is compiled from Cython. What was compiled of other sources is refused: where its
frames or the words of WAKE are others than those of the modules in Python, both would write to one
store. It may not know what they do.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logstore import format as fmt
from logstore.codec import codec_name
from logstore.engine.reading.reader_interface import NODES_MAX_BYTES
from logstore.engine.shm import commit_words, wait_words
from logstore.loading import built_of_others

if TYPE_CHECKING:
    from types import ModuleType

    from logstore.engine.reading.reader_interface import NodeCache, Reader
    from logstore.fs import File


def native_module(name: str) -> ModuleType | None:
    """A compiled module; None where it was not built, or the pure codec is asked for. UsageError
    for one that was built of other sources."""
    if codec_name() != "native":
        return None
    try:
        found = importlib.import_module(name)
    except ImportError:
        return None
    other = _other_number(found)
    if other:
        raise built_of_others(found, other)
    return found


def _other_number(native: Any) -> str:
    """The first number of a layout that is another one in a compiled module; "": all are the
    same."""
    try:
        words, log_words, layout = native.words(), native.log_words(), native.layout()
    except AttributeError:
        return "all of it"
    for name, value in words.items():
        module = commit_words if hasattr(commit_words, name) else wait_words
        ours = getattr(module, name, None)
        if value != (ours() if callable(ours) else ours):
            return str(name)
    begin = words["_LOG_OFFSET"]
    if log_words != tuple(range(begin, begin + 8 * len(commit_words.LogWords._fields), 8)):
        return "LogWords"
    for name, value in layout.items():
        kind = fmt.Kind.__members__.get(name)
        ours = getattr(fmt, name, None) if kind is None else kind
        if value != getattr(ours, "size", ours):
            return str(name)
    return ""


native_or_none = native_module("logstore.engine.reading.native")
IN_USE = True  # tests that want the twin say False
# What a look gives that could not be made: of no stream, and of nobody.
MISS: object = object() if native_or_none is None else native_or_none.MISS


def node_cache(most_bytes: int = NODES_MAX_BYTES) -> NodeCache:
    """An empty cache of nodes."""
    if native_or_none is not None:
        made: NodeCache = native_or_none.NodeCache(most_bytes)
        return made
    from logstore.engine.reading import pure_reader

    return pure_reader.NodeCache(most_bytes)


def open_reader(
    memory: Any,
    seed: int,
    nodes: NodeCache,
    files: dict[int, File],
    source: Callable[[int], File],
    now_ms: Callable[[], int],
) -> Reader | None:
    """The read core of an engine, which keeps nothing yet; None where it was not built.

    ``memory``: the control block; ``seed``: what checksums of the store's frames begin with;
    ``files``: open segments, to which ``source`` adds the one that it gives; ``now_ms``: the
    store's clock (unix ms).
    """
    if native_or_none is None or not IN_USE:
        return None
    made: Reader = native_or_none.Reader(memory, seed, nodes, files, source, now_ms)
    return made
