"""A log that cannot grow: a limit of this process on the size of files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.engine.runtime.engine import Engine


@contextmanager
def room_for(engine: Engine, size_bytes: int) -> Iterator[None]:
    """The active segment may grow by so many bytes."""
    end = engine.wake.applied & 0xFFFFFFFF
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (end + size_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
