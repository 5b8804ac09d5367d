"""MULTI, EXEC, DISCARD, WATCH and UNWATCH."""

from __future__ import annotations

from logstore.wire.command_words import Words
from logstore.wire.session import Session
from logstore.wire.steps import Step
from logstore.wire.table import Command

_FLAGS = ("noscript", "loading", "stale", "fast", "allow_busy")


def multi(session: Session, _words: Words) -> Step:
    """As MULTI."""
    return session.begin()


def execute(session: Session, _words: Words) -> Step:
    """As EXEC."""
    return session.execute()


def discard(session: Session, _words: Words) -> Step:
    """As DISCARD."""
    return session.discard()


def watch(session: Session, words: Words) -> Step:
    """As WATCH."""
    return session.watch(words.rest())


def unwatch(session: Session, _words: Words) -> Step:
    """As UNWATCH."""
    return session.unwatch()


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
