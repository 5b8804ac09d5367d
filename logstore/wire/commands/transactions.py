"""MULTI, EXEC, DISCARD, WATCH and UNWATCH.

What is queued between MULTI and EXEC is one commit; EXEC does nothing if a watched stream has
changed since WATCH. As in the peers, its groups and XSETID do not count, and a stream that was not
there has changed if one was made and dropped since.
"""

from __future__ import annotations

from functools import partial

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.wire.acl import Denied
from logstore.wire.audit import ADMINISTRATION
from logstore.wire.resp.failures import Failed
from logstore.wire.resp.reply import NULL_ARRAY, OK, Failure, Reply
from logstore.wire.resp.words import Words
from logstore.wire.service import QUEUED_BYTES, Client, Multi, Seen
from logstore.wire.steps import Admin, Step, Tell
from logstore.wire.store_reader import StoreReader
from logstore.wire.table import Command
from logstore.wire.together import StateReader

_FLAGS = ("noscript", "loading", "stale", "fast", "allow_busy")
_REFUSED = ("no_multi",)
_NO_MORE = {
    "command": "no permission to execute the command or subcommand",
    "key": "no permission to touch the specified keys",
}


def multi(client: Client, _words: Words) -> Step:
    """As MULTI."""
    if client.multi is not None:
        return _not_inside("ERR MULTI calls can not be nested")
    client.multi = Multi()
    return Tell(lambda: OK)


def _not_inside(refusal: str) -> Step:
    """What Redis says of MULTI and WATCH after MULTI: EXEC is not refused for it. In Valkey it is,
    by the flag ``no_multi``."""
    failure = Failure(refusal)
    return Tell(lambda: failure)


def execute(client: Client, _words: Words) -> Step:
    """As EXEC."""
    queued, watched = client.multi, client.watched
    if queued is None:
        raise Failed("ERR EXEC without MULTI")
    client.unwatch()
    if queued.refused:
        client.multi = None
        raise Failed("EXECABORT Transaction discarded because of previous errors.")
    service = client.service
    if service.monitors:
        for command, words in [*queued.requests, (service.table.commands["exec"], [b"EXEC"])]:
            service.tell_monitors(client, command, words)

    def unchanged(state: WriteTxn) -> bool:
        def look(view: Snapshot) -> bool:
            return not any(_changed(view, key, before) for key, before in watched.items())

        return StateReader(state, client.owed).once(look)

    def run() -> Reply:
        turns = _Turns(client, queued)
        try:
            replies = client.database.runner.transaction(
                queued.steps, unchanged if watched else None, client.owed, turns
            )
        finally:
            client.multi = None
        return NULL_ARRAY if replies is None else turns.told(replies)

    return Admin(run)


class _Turns:
    """What holds when a queued command has its turn: its user, and its protocol. Both may be those
    of a command before it, AUTH or HELLO. A turn that was settled stays so, however often the
    steps are decided."""

    def __init__(self, client: Client, queued: Multi) -> None:
        self._client = client
        self._requests = queued.requests
        self._refused: list[Failure | None] = []  # by place
        self._protocols: list[int] = []  # at the beginning of each turn

    def __call__(self, place: int) -> Failure | None:
        """The refusal of the command whose turn comes; None if the user may run it."""
        client = self._client
        while len(self._refused) <= place:  # adds that are joined have one turn
            self._protocols.append(client.protocol)
            user, (command, words) = client.user, self._requests[len(self._refused)]
            denied = None if user.everything else user.denies(command, words)
            self._refused.append(None if denied is None else _no_more(client, denied))
            if denied is None and command.name in ADMINISTRATION:
                client.service.audit.command(client, command, words)
        client.owed.protocol = self._protocols[place]
        return self._refused[place]

    def told(self, replies: list[Reply]) -> list[Reply]:
        """The replies, each in the protocol that held behind its command."""
        client = self._client
        client.owed.protocol = client.protocol
        protocols = [*self._protocols[1:], client.protocol]
        protocols += [client.protocol] * (len(replies) - len(protocols))
        return client.owed.each_in(replies, protocols) if len(set(protocols)) > 1 else replies


def _no_more(client: Client, denied: Denied) -> Failure:
    client.deny(denied.reason, denied.what, client.user.name)
    client.service.audit.refused(client, denied.reason, denied.what)
    return Failure(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the "
        "EXEC call. This command is no longer allowed for the following reason: "
        + _NO_MORE[denied.reason]
    )


def discard(client: Client, _words: Words) -> Step:
    """As DISCARD."""
    if client.multi is None:
        raise Failed("ERR DISCARD without MULTI")
    client.multi = None
    client.unwatch()
    return Tell(lambda: OK)


def watch(client: Client, words: Words) -> Step:
    """As WATCH."""
    if client.multi is not None:
        return _not_inside("ERR WATCH inside MULTI is not allowed")
    keys = words.rest()

    def look() -> Reply:
        reader = StoreReader(client.database.store, client.owed)
        for key in keys:
            if key not in client.watched:
                client.watched[key] = reader.once(partial(_seen, key=key))
                client.watched_bytes += len(key) + QUEUED_BYTES
        return OK

    return Admin(look, commits=False)


def _seen(view: Snapshot, key: bytes) -> Seen:
    """A key as it is."""
    record = view.record(key)
    if record is None:
        return Seen(0, next_stream=view.meta.next_stream)
    content = record.number, record.length, record.entries_added, record.expires_ms
    return Seen(record.position, content, (record.last, record.max_deleted))


def _changed(view: Snapshot, key: bytes, before: Seen) -> bool:
    """Whether a peer would say that a key has changed.

    A key that was missing and is so again: a stream was made and dropped since, maybe another one.
    """
    now = _seen(view, key)
    if now == before:
        return False
    if now.position == before.position == 0:
        made = now.next_stream - before.next_stream
        return made != sum(1 for _ in view.index.records(before.next_stream - 1))
    return now.content != before.content or now.last_ids == before.last_ids


def unwatch(client: Client, _words: Words) -> Step:
    """As UNWATCH."""

    def end() -> Reply:
        client.unwatch()
        return OK

    return Tell(end)


COMMANDS = [
    Command("multi", 1, multi, _FLAGS, since="1.2.0", group="transactions",
            summary="Begins to queue commands.", complexity="O(1)",
            categories=("fast", "transaction"), at_once=True, valkey_flags=_REFUSED),
    Command("exec", 1, execute, ("noscript", "loading", "stale", "skip_slowlog"),
            since="1.2.0", group="transactions", summary="Runs the queued commands as one commit.",
            complexity="that of the queued commands",
            categories=("slow", "transaction"), at_once=True),
    Command("discard", 1, discard, _FLAGS, since="2.0.0", group="transactions",
            summary="Forgets the queued commands.", complexity="O(N)",
            categories=("fast", "transaction"), at_once=True),
    Command("watch", -2, watch, _FLAGS, (1, -1, 1), since="2.2.0", group="transactions",
            summary="EXEC does nothing if one of these keys changes before.",
            complexity="O(1) for every key", categories=("fast", "transaction"), access=("",),
            at_once=True, valkey_flags=_REFUSED),
    Command("unwatch", 1, unwatch, _FLAGS, since="2.2.0", group="transactions",
            summary="Watches no key any more.", complexity="O(1)",
            categories=("fast", "transaction")),
]  # fmt: skip
