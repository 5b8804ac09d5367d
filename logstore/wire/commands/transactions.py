"""MULTI, EXEC, DISCARD, WATCH and UNWATCH.

What is queued between MULTI and EXEC is one commit; EXEC does nothing if a watched stream, or one
of its groups, has changed since WATCH.
"""

from __future__ import annotations

from functools import partial

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.snapshot import Snapshot
from logstore.wire.acl import Denied
from logstore.wire.resp.failures import Failed
from logstore.wire.resp.reply import NULL_ARRAY, OK, Failure, Reply
from logstore.wire.resp.words import Words
from logstore.wire.runner import StoreReader
from logstore.wire.service import QUEUED_BYTES, Client, Multi
from logstore.wire.steps import Admin, Step, Tell
from logstore.wire.table import Command
from logstore.wire.together import StateReader

_FLAGS = ("noscript", "loading", "stale", "fast", "allow_busy")
_NO_MORE = {
    "command": "no permission to execute the command or subcommand",
    "key": "no permission to touch the specified keys",
}


def multi(client: Client, _words: Words) -> Step:
    """As MULTI."""
    if client.multi is not None:
        return _not_inside(client, "multi", "ERR MULTI calls can not be nested")
    client.multi = Multi()
    return Tell(lambda: OK)


def _not_inside(client: Client, name: str, refusal: str) -> Step:
    """A command that is not allowed after MULTI; in Valkey EXEC is refused for it, too."""
    if client.service.profile == "valkey-9":
        raise Failed(f"ERR Command '{name}' not allowed inside a transaction")
    failure = Failure(refusal)
    return Tell(lambda: failure)


def execute(client: Client, _words: Words) -> Step:
    """As EXEC."""
    queued, watched = client.multi, client.watched
    if queued is None:
        raise Failed("ERR EXEC without MULTI")
    steps = [] if queued.refused else _still_permitted(client, queued)
    client.multi = None
    client.unwatch()
    if queued.refused:
        raise Failed("EXECABORT Transaction discarded because of previous errors.")

    def unchanged(state: WriteTxn) -> bool:
        reader = StateReader(state, client.owed)
        return watched == reader.once(lambda view: {key: _version(view, key) for key in watched})

    def run() -> Reply:
        replies = client.database.runner.transaction(
            steps, unchanged if watched else None, client.owed
        )
        return NULL_ARRAY if replies is None else replies

    return Admin(run)


def _still_permitted(client: Client, queued: Multi) -> list[Step]:
    """The steps of a transaction; what the user lost the right to since then is refused."""
    service = client.service
    if service.monitors:
        for command, words in [*queued.requests, (service.table.commands["exec"], [b"EXEC"])]:
            service.tell_monitors(client, command, words)
    if client.user.everything:
        return queued.steps
    steps: list[Step] = []
    for step, (command, words) in zip(queued.steps, queued.requests, strict=True):
        denied = client.user.denies(command, words)
        steps.append(step if denied is None else _no_more(client, denied))
    return steps


def _no_more(client: Client, denied: Denied) -> Step:
    client.deny(denied.reason, denied.what, client.user.name)
    client.service.audit.refused(client, denied.reason, denied.what)
    failure = Failure(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the "
        "EXEC call. This command is no longer allowed for the following reason: "
        + _NO_MORE[denied.reason]
    )
    return Tell(lambda: failure)


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
        return _not_inside(client, "watch", "ERR WATCH inside MULTI is not allowed")
    keys = words.rest()

    def look() -> Reply:
        reader = StoreReader(client.database.store, client.owed)
        for key in keys:
            if key not in client.watched:
                client.watched[key] = reader.once(partial(_version, key=key))
                client.watched_bytes += len(key) + QUEUED_BYTES
        return OK

    return Admin(look, commits=False)


def _version(view: Snapshot, key: bytes) -> object:
    """What changes whenever the stream, or one of its groups, does."""
    record = view.record(key)
    if record is None:
        return None
    groups = view.index.groups.of_stream(record.number)
    return record.number, record.position, tuple((group.number, group.position) for group in groups)


def unwatch(client: Client, _words: Words) -> Step:
    """As UNWATCH."""
    client.unwatch()
    return Tell(lambda: OK)


COMMANDS = [
    Command("multi", 1, multi, _FLAGS, since="1.2.0", group="transactions",
            summary="Begins to queue commands.", complexity="O(1)",
            categories=("fast", "transaction")),
    Command("exec", 1, execute, ("noscript", "loading", "stale", "skip_slowlog"),
            since="1.2.0", group="transactions", summary="Runs the queued commands as one commit.",
            complexity="that of the queued commands",
            categories=("slow", "transaction")),
    Command("discard", 1, discard, _FLAGS, since="2.0.0", group="transactions",
            summary="Forgets the queued commands.", complexity="O(N)",
            categories=("fast", "transaction")),
    Command("watch", -2, watch, _FLAGS, (1, -1, 1), since="2.2.0", group="transactions",
            summary="EXEC does nothing if one of these keys changes before.",
            complexity="O(1) for every key", categories=("fast", "transaction"), access=("",)),
    Command("unwatch", 1, unwatch, _FLAGS, since="2.2.0", group="transactions",
            summary="Watches no key any more.", complexity="O(1)",
            categories=("fast", "transaction")),
]  # fmt: skip
