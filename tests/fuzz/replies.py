"""A server that lies: whatever it replies, an import from it ends, with a typed error or without.

An input is a byte that says how (bit 0: followed; bit 1: small payloads only, so that streams come
by pages), then the replies, a mark between two: one for each command, whatever that is; behind the
last one the server ends the connection.
"""

from __future__ import annotations

import atexit
import re
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import logstore
from logstore.api.store import Store
from logstore.errors import Error
from logstore.rdb import dump_payload
from logstore.transfer import Follow, Server, Wanted, follow, import_server
from tests.fuzz.payloads import _value, signed

STEPS = 4
MARK = b"\xff\x00"
_COMMAND = re.compile(rb"(?:^|\r\n)\*\d+\r\n(?=\$)")
WANTED = Wanted((b"pub*",), b"", "replace")


def _bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _list(*items: bytes) -> bytes:
    return b"*%d\r\n" % len(items) + b"".join(items)


def _flat(**pairs: bytes) -> bytes:
    named = [
        part for name, at in pairs.items() for part in (_bulk(name.replace("_", "-").encode()), at)
    ]
    return _list(*named)


ID, NAME = _bulk(b"5-8"), _bulk(b"pub1")
SCAN = _list(_bulk(b"0"), _list(NAME, _bulk(b"other")))
PAYLOAD = _bulk(signed(dump_payload.encode(_value(), 15)[:-10]))
ENTRY = _list(ID, _list(_bulk(b"f"), _bulk(b"v")))
INFO = _flat(
    length=b":4\r\n", radix_tree_keys=b":1\r\n", last_generated_id=ID,
    max_deleted_entry_id=_bulk(b"0-0"),
    entries_added=b":4\r\n", groups=b":1\r\n", first_entry=ENTRY, last_entry=ENTRY,
)  # fmt: skip
GROUPS = _list(_flat(name=_bulk(b"g"), consumers=b":1\r\n", pending=b":1\r\n", last_delivered_id=ID,
                     entries_read=b":4\r\n", lag=b":0\r\n"))  # fmt: skip
CONSUMERS = _list(_flat(name=_bulk(b"c"), pending=b":1\r\n", idle=b":5\r\n", inactive=b":5\r\n"))
PENDING = _list(_list(ID, _bulk(b"c"), b":5\r\n", b":1\r\n"))
READ = _list(_list(NAME, _list(_list(_bulk(b"5-9"), _list(_bulk(b"f"), _bulk(b"v"))))))
OTHER_READ = READ.replace(b"pub1", b"priv")
TIME = _list(_bulk(b"1700000000"), _bulk(b"5"))
STATS = _bulk(b"# Commandstats\r\ncmdstat_xadd:calls=5,usec=1\r\nrun_id:a\r\n")
OK, QUEUED, MISSING, SIZE = b"+OK\r\n", b"+QUEUED\r\n", b":-2\r\n", b":2\r\n"
DUMPED = [INFO, b":900\r\n", OK, QUEUED, QUEUED, _list(PAYLOAD, b":-1\r\n")]
PAGED = [
    INFO, b":90000000000\r\n", _list(ENTRY), OK, *[QUEUED] * 4,
    _list(_list(), INFO, GROUPS, TIME), _list(), OK, *[QUEUED] * 6,
    _list(_list(), INFO, GROUPS, TIME, CONSUMERS, PENDING), b":-1\r\n",
]  # fmt: skip
LOOKED = [STATS, SIZE, SCAN, MISSING]
REPLIES = [
    (0, [MISSING, SIZE, SCAN, b":4\r\n", *DUMPED]),
    (0, [MISSING, SIZE, SCAN, *[b"-ERR unknown command\r\n"] * 4]),
    (2, [MISSING, SIZE, SCAN, b":4\r\n", *PAGED]),
    (1, [*LOOKED, *DUMPED, INFO, GROUPS, READ, OK, *[QUEUED] * 3, _list(READ, STATS, INFO),
         _list(ENTRY), *LOOKED, INFO, GROUPS]),
    (1, [*LOOKED, *DUMPED, INFO, GROUPS, OTHER_READ, OK, *[QUEUED] * 3,
         _list(OTHER_READ, STATS, INFO)]),
]  # fmt: skip
SEEDS = [bytes((how,)) + MARK.join(replies) for how, replies in REPLIES]


class _Liar:
    """A server on a Unix socket, which sends what it is given to each that connects."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="logstore-fuzz-"))
        self.path = self.folder / "socket"
        self.data = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.path))
        self._socket.listen(16)
        threading.Thread(target=self._run, daemon=True).start()
        self.store: Store[bytes] = logstore.open(self.folder / "store", sync="os", background=False)

    def _run(self) -> None:
        while True:
            found, _ = self._socket.accept()
            with suppress(OSError), found:
                self._answer(found)

    def _answer(self, found: socket.socket) -> None:
        left = self.data.split(MARK)
        while asked := found.recv(1 << 16):
            count = len(_COMMAND.findall(asked))
            if b"SETINFO" in asked:
                found.sendall(OK * count)
                continue
            found.sendall(b"".join(left[:count]))
            if len(left) < count:
                return
            del left[:count]


class _Steps(threading.Event):
    """Ends what follows after some steps, and never waits."""

    def __init__(self) -> None:
        super().__init__()
        self._left = STEPS

    def is_set(self) -> bool:
        """Whether it is enough."""
        self._left -= 1
        return self._left < 0

    def wait(self, timeout: float | None = None) -> bool:
        """Not at all."""
        return self.is_set()


@cache
def _liar() -> _Liar:
    made = _Liar()
    atexit.register(close)
    return made


def close() -> None:
    """Close the store that the replies went to, and remove it."""
    if _liar.cache_info().currsize:
        made = _liar()
        made.store.close()
        shutil.rmtree(made.folder, ignore_errors=True)
        _liar.cache_clear()


def one(data: bytes) -> None:
    """It ends, and writes to nothing that was not asked for."""
    how, liar = (data[0] if data else 0), _liar()
    liar.data = data[1:]
    store = liar.store
    small = 100 if how & 2 else 1 << 20
    with Server(f"unix://{liar.path}", reply_s=0.05) as server:
        try:
            if how & 1:
                options = Follow(look_s=0.001, settle_s=0.001, dump_max_bytes=small)
                follow(store, server, WANTED, options, stop=_Steps())
            else:
                import_server(store, server, WANTED, dump_max_bytes=small)
        except Error:
            pass
    for name in store.streams():
        assert name.startswith(b"pub"), name
        store.drop(name)
