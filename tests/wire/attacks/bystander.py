"""A client that has nothing to do with an attack: its waiting is what the attack costs.

A process of its own, so that nothing which the attacker computes delays it. It asks PING, XADD and
XRANGE in turn, or some of them, one every two milliseconds, and a reply counts from the moment at
which the request was due: a server that stands still for a second is seen as hundreds of late
replies, not as one. It writes a line when it has begun; for each byte of its stdin, and when that
ends, one of JSON that tells what it waited since the last one.

Knows no other module: it must start at once.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

EVERY_S = 0.002
SILENCE_MAX_S = 120.0


def _request(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in words)


PING = _request(b"PING")
ADD = _request(b"XADD", b"bystander", b"MAXLEN", b"~", b"1000", b"*", b"n", b"1")
RANGE = _request(b"XRANGE", b"bystander", b"-", b"+", b"COUNT", b"3")
ASKS = {"all": (PING, ADD, RANGE), "reads": (PING, RANGE), "adds": (ADD,)}


class _Replies:
    """Reads whole replies and throws them away."""

    def __init__(self, found: socket.socket) -> None:
        self._file = found.makefile("rb")

    def skip(self) -> bool:
        """Read one reply; whether it was no error."""
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("the server ended the bystander's connection")
        if line[:1] == b"$" and line != b"$-1\r\n":
            self._file.read(int(line[1:]) + 2)
        elif line[:1] == b"*" and line != b"*-1\r\n":
            for _ in range(int(line[1:])):
                self.skip()
        return line[:1] != b"-"


def main(address: str, what: str, login: list[bytes]) -> None:
    """Ask until stdin ends."""
    asks = ASKS[what]
    if address.isdecimal():
        found = socket.create_connection(("127.0.0.1", int(address)), timeout=SILENCE_MAX_S)
    else:
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(SILENCE_MAX_S)
        found.connect(address)
    replies = _Replies(found)
    if login:
        found.sendall(_request(b"AUTH", *login))
        if not replies.skip():
            sys.exit("the bystander's password is refused")
    waited: list[float] = []
    errors = 0
    ended = ""
    began = time.monotonic()
    begun = False
    try:
        while True:
            if waited and select.select([0], [], [], 0)[0]:
                if not os.read(0, 1):
                    break
                _tell(waited, errors, ended)
                began = time.monotonic()
                waited, errors = [], 0
            # Who fell behind does not ask all of it at once: what was due meanwhile waited as well.
            due = began + len(waited) * EVERY_S
            now = time.monotonic()
            if now < due:
                time.sleep(due - now)
            found.sendall(asks[len(waited) % len(asks)])
            errors += not replies.skip()
            done = time.monotonic()
            waited.append(done - due)
            while began + len(waited) * EVERY_S < done - EVERY_S:
                waited.append(done - (began + len(waited) * EVERY_S))
            if not begun:
                begun = True
                print("begun", flush=True)
    except (OSError, EOFError) as exc:
        waited.append(time.monotonic() - began - len(waited) * EVERY_S)
        ended = f"{type(exc).__name__}: {exc}"
    _tell(waited, errors, ended)


def _tell(waited: list[float], errors: int, ended: str) -> None:
    waited.sort()
    count = len(waited)
    told = {
        "asked": count, "errors": errors, "ended": ended,
        "p50_ms": waited[count // 2] * 1000, "p99_ms": waited[(count * 99) // 100] * 1000,
        "max_ms": waited[-1] * 1000,
    }  # fmt: skip
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [each.encode() for each in sys.argv[3:]])
