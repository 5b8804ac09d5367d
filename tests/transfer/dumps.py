"""What servers dump, and what was imported of it."""

from __future__ import annotations

from logstore.api.store import Store
from tests.peers.servers import Peer
from tests.rdb.bodies import body


def dumps(peer: Peer) -> dict[bytes, bytes]:
    """All streams of a server."""
    return {name: body(peer.command("DUMP", name)) for name in peer.command("KEYS", "*")}


def ours(store: Store[bytes]) -> dict[bytes, bytes]:
    """All streams of a store."""
    return {name: body(store.stream(name).dump()) for name in store.streams()}
