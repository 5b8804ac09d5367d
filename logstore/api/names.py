"""Streams by their names and patterns, as scans and merged reads are given them.

Invariants: a name that is no pattern must be there; a stream comes once, in the order in which it
was named; what a pattern stands for is looked up at each reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from logstore.api import arguments
from logstore.api.opening import OpenStore
from logstore.errors import OptionError, StreamNotFoundError, shown

T = TypeVar("T", bytes, str)
_SPECIAL = frozenset("*?[")


def stream_names(opened: OpenStore[T], streams: object) -> Callable[[], list[bytes]]:
    """What finds the streams that are named, at each reading.

    Args:
        opened: the store.
        streams: None for all, a name, or several; one with ``*``, ``?`` or ``[`` is a pattern.

    Raises:
        StreamNotFoundError: a stream is not there; of a pattern there need not be any.
        OptionError: none is named.
    """
    given: list[Any] = (
        [streams] if isinstance(streams, str | bytes) else ["*"] if streams is None else []
    )
    if not given:
        if not isinstance(streams, Sequence | set | frozenset) or not streams:
            raise OptionError(
                f"streams is a name, a pattern such as 'race:*', or several: {shown(streams)}"
            )
        given = list(streams)
    raw = [arguments.stream_name(name, opened.encoding) for name in given]

    def found() -> list[bytes]:
        from fnmatch import fnmatchcase  # here: whoever opens a store needs no patterns

        there: list[bytes] | None = None
        names: dict[bytes, None] = {}
        for name in raw:
            text = name.decode("utf-8", "surrogateescape")
            if not _SPECIAL.intersection(text):
                if opened.record(name) is None:
                    raise StreamNotFoundError("there is no such stream", stream=name)
                names[name] = None
                continue
            if there is None:
                there = sorted(opened.view(lambda view: [each.name for each in view.listed()]))
            names |= {
                each: None
                for each in there
                if fnmatchcase(each.decode("utf-8", "surrogateescape"), text)
            }
        return list(names)

    found()
    return found
