"""What both clients do when they are made: take the store's service, and make a pool that leads
to it.

Invariant: a client that could not be made has given the service back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from logstore.wire.embedded import Shared
from logstore.wire.service import Profile

T = TypeVar("T")


@contextmanager
def taken(
    path: str | os.PathLike[str], compat: Profile, store: dict[str, Any] | None
) -> Iterator[str]:
    """The key of the store's service, which is kept if the block is left without an error."""
    key = Shared.take(path, compat, store or {})
    try:
        yield key
    except BaseException:
        Shared.give_back(key)
        raise


def pool_of(kind: Callable[..., T], connection: type, key: str, options: dict[str, Any]) -> T:
    """A pool of such connections; over no network there is no time-out unless one is asked for."""
    return kind(connection_class=connection, service_key=key, **{"socket_timeout": None, **options})
