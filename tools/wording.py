"""Errors in the words of a shell: the store says what to do in Python, a command what to type.

Invariants: what is wrong stays as it was said; only the advice changes. Every phrase on the left is
one that the store still says, and none that a command can meet is missing: a test looks.
"""

from __future__ import annotations

# What the store says, and what a command says instead.
PHRASES = {
    "give '<ms>-<seq>', '<ms>', (ms, seq), a StreamID or an aware datetime": "give MS-SEQ or MS",
    "give the smaller ID first, and reverse=True to read from the newest on":
        "give the smaller ID first (a command that has --reverse reads from the newest on)",
    "give an ID above last_id, or '*'": "give an ID above the stream's last one, or '*'",
    "give one of maxlen, minid and max_age": "give one of --maxlen and --minid",
    "wait, raise lock_timeout, or look at that process":
        "try again when it is done, or look at that process",
    "see store.pins()": "'logstore pins STORE' lists them",
    "run compact(purge=True) again": "run 'logstore compact --purge' again",
    "fix the permissions, or open with readonly=True": "fix the permissions",
    "drop the stream, or give replace=True": "give --replace, or --skip",
    "drop it, or give replace=True": "give --replace, or --skip",
    "read it from its server with XRANGE and add it in batches with add_many":
        "let it go by pages, with a smaller --dump-max",
}  # fmt: skip


def for_a_shell(message: str) -> str:
    """A message with the advice that can be typed."""
    for said, typed in PHRASES.items():
        message = message.replace(said, typed)
    return message
