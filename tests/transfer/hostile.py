"""A server on loopback that answers what its script says: the attacker of those who import.

Beside the script it answers as a Redis with one stream ``pub1`` of one entry does.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

Words: TypeAlias = list[bytes]
Answer: TypeAlias = bytes | Callable[[Words], bytes]
NULL = b"*-1\r\n"
NOTHING = b"*0\r\n"
INFO = b"redis_version:8.2.3\r\nrun_id:abc\r\ntotal_commands_processed:5\r\n"


def bulk(text: bytes) -> bytes:
    """A string."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


def array(*items: bytes) -> bytes:
    """A list of replies."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def number(value: int) -> bytes:
    """A number."""
    return b":%d\r\n" % value


def entry(id: bytes, *flat: bytes) -> bytes:
    """An entry."""
    return array(bulk(id), array(*map(bulk, flat)))


def facts(last: bytes = b"1-1", length: int = 1) -> bytes:
    """A reply of XINFO STREAM."""
    return array(
        bulk(b"length"), number(length), bulk(b"last-generated-id"), bulk(last),
        bulk(b"max-deleted-entry-id"), bulk(b"0-0"), bulk(b"entries-added"), number(length),
        bulk(b"first-entry"), entry(b"1-1", b"a", b"1"), bulk(b"last-entry"),
        entry(last, b"a", b"1"),
    )  # fmt: skip


def _range(words: Words) -> bytes:
    """XRANGE of the one entry."""
    return NOTHING if words[2].startswith(b"(") else array(entry(b"1-1", b"a", b"1"))


class Hostile:
    """One server; ``script`` is by command, and may change while it runs."""

    def __init__(self, payload: bytes) -> None:
        self.script: dict[str, Answer] = {}
        self.seen: list[Words] = []
        self._honest: dict[str, Answer] = {
            "CLIENT": b"+OK\r\n", "INFO": bulk(INFO), "DBSIZE": number(1),
            "SCAN": array(bulk(b"0"), array(bulk(b"pub1"))), "PEXPIRETIME": number(-2),
            "XLEN": number(1), "XINFO STREAM": facts(), "XINFO GROUPS": NOTHING,
            "MEMORY": number(100), "DUMP": bulk(payload), "XREAD": NULL, "XREVRANGE":
            array(entry(b"1-1", b"a", b"1")), "XRANGE": _range,
            "XTRIM": number(0), "TIME": array(bulk(b"1"), bulk(b"1")), "EXISTS": number(0),
        }  # fmt: skip
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._ended = threading.Event()

    def run(self) -> None:
        """Accept until the end."""
        while not self._ended.is_set():
            with suppress(OSError):
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def end(self) -> None:
        """Listen no more."""
        self._ended.set()
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as file:
            queued: list[Words] | None = None
            while words := _request(file.readline, file.read):
                self.seen.append(words)
                name = words[0].decode()
                if name == "MULTI":
                    queued = []
                    connection.sendall(b"+OK\r\n")
                elif name == "EXEC" and queued is not None:
                    inside = array(*map(self._answer, queued))
                    queued = None
                    connection.sendall(self._scripted("EXEC", words) or inside)
                elif queued is not None:
                    queued.append(words)
                    connection.sendall(b"+QUEUED\r\n")
                else:
                    connection.sendall(self._answer(words))

    def _answer(self, words: Words) -> bytes:
        name = words[0].decode()
        if name == "XINFO":
            name += " " + words[1].decode()
        return self._scripted(name, words) or b"-ERR unknown command\r\n"

    def _scripted(self, name: str, words: Words) -> bytes | None:
        found = self.script.get(name, self._honest.get(name))
        return found(words) if callable(found) else found


def _request(line: Callable[[], bytes], read: Callable[[int], bytes]) -> Words:
    head = line()
    if not head:
        return []
    words: Words = []
    for _ in range(int(head[1:])):
        words.append(read(int(line()[1:])))
        line()
    return words


@contextmanager
def hostile(payload: bytes) -> Iterator[Hostile]:
    """Such a server while the block runs."""
    server = Hostile(payload)
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield server
    finally:
        server.end()
