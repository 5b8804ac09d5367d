"""Errors on the wire: what the peers say, word for word.

``Failed`` ends the parsing of a command; ``failure_of`` turns an error of the store into the words
that the peers have for it. The store's own messages begin with those words and go on with advice,
which clients that compare errors must not see. That a full disk refuses changes is told to who
operates the server, too, in its log.
"""

from __future__ import annotations

from logstore.engine.groups.admin import NO_KEY as NO_KEY_FOR_GROUP
from logstore.errors import (
    CommittedError,
    DiskFullError,
    Error,
    GroupExistsError,
    GroupNotFoundError,
    LockTimeoutError,
    ReadOnlyError,
    StreamNotFoundError,
    TooLargeError,
)
from logstore.wire.log_limiter import Seldom
from logstore.wire.resp.reply import Failure

SYNTAX = "ERR syntax error"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NO_KEY = "ERR no such key"
TOO_LARGE = "ERR Elements are too large to be stored"
UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

# What a message of the store may begin with, if the peers have the same words for it.
_SAME_WORDS = (
    "Invalid stream ID specified as stream command argument",
    "The ID specified in XADD must be greater than 0-0",
    "The ID specified in XADD is equal or smaller than the target stream top item",
    "The stream has exhausted the last possible ID, unable to add more items",
    "Elements are too large to be stored",
    "invalid start ID for the interval",
    "invalid end ID for the interval",
    NO_KEY_FOR_GROUP,
    "The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
    "The ID specified in XSETID is smaller than current max_deleted_entry_id",
    "The ID specified in XSETID is smaller than the target stream top item",
    "The entries_added specified in XSETID is smaller than the target stream length",
    "entries_added must be positive",
    "value for ENTRIESREAD must be positive or -1",
    "no such key",
    "DUMP payload version or checksum are wrong",
    "Bad data format",
)

# Other errors of the store, and what stands before their words, or in their place.
_CODES: tuple[tuple[type[Error], str], ...] = (
    (StreamNotFoundError, NO_KEY),
    (TooLargeError, TOO_LARGE),
    (DiskFullError, "MISCONF {}"),
    (CommittedError, "MISCONF {}"),
    (ReadOnlyError, "READONLY You can't write against a read only replica."),
    (LockTimeoutError, "BUSY {}"),
)
_full = Seldom()


class Failed(Exception):  # noqa: N818
    """A command that is refused; its text goes to the client as it is."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def wrong_arity(name: str) -> Failed:
    """The wrong number of arguments for a command, or ``command|subcommand``."""
    return Failed(f"ERR wrong number of arguments for '{name}' command")


def failure_of(error: BaseException) -> Failure:
    """The reply that tells a client of an error."""
    if isinstance(error, Failed):
        return Failure(error.text)
    if not isinstance(error, Error):
        return Failure(f"ERR internal error: {type(error).__name__}")
    if isinstance(error, DiskFullError):
        _full.warn("a client's change was refused: %s", error)
    if error.told is not None:
        return Failure(error.told.decode("utf-8", "surrogateescape"))
    message = error.message
    if isinstance(error, GroupNotFoundError | GroupExistsError):
        return Failure(message)
    for words in _SAME_WORDS:
        if message.startswith(words):
            return Failure(f"ERR {words}")
    for kind, text in _CODES:
        if isinstance(error, kind):
            return Failure(text.format(message))
    return Failure(f"ERR {message}")
