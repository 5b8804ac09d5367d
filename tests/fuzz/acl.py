"""ACL files: refused as a whole by a RuleError, or what is saved of it gives the same users again,
who may do the same.

An input is the text of a file.
"""

from __future__ import annotations

from functools import cache

from logstore.wire.acl import RuleError
from logstore.wire.catalogue import table_of
from logstore.wire.table import Table
from logstore.wire.users import Users

ASKED = (
    (b"xadd", b"orders:1", b"*", b"f", b"v"), (b"xrange", b"orders:1", b"-", b"+"),
    (b"xreadgroup", b"GROUP", b"g", b"c", b"STREAMS", b"a", b"orders:1", b">", b">"),
    (b"copy", b"a", b"orders:1"), (b"flushall",), (b"acl", b"whoami"), (b"config", b"get", b"*"),
    (b"xadd",), (b"xread", b"STREAMS"),
)  # fmt: skip
HASH = b"#" + b"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
SEEDS = [
    b"user default on nopass ~* &* +@all",
    b"user default off\nuser admin on " + HASH + b" ~* +@all\nuser r on " + HASH + b" ~* +@read",
    b"user orders on >secret %W~orders:* %R~a resetchannels -@all +xadd +acl|whoami -config|get",
    b"user s on nopass (~a* +@stream -xadd) (%RW~b[a-c]* +@all -@dangerous) clearselectors (+ping)",
    b"user x reset on <a >a nopass resetpass allkeys allcommands nocommands resetkeys allchannels",
    b"user y on +@all -@all +@write -@write +xadd|f +config|get|x &news:* sanitize-payload",
    b"user \xff on ~\\* ~[^a]?\r\n\r\nuser z off +nothing\n",
]


@cache
def _table() -> Table:
    return table_of("redis-8.2")


def _user_lines(users: Users) -> bytes:
    return b"\n".join(map(bytes, users.in_order()))


def one(data: bytes) -> None:
    """Refused, or the same again."""
    users = Users(_table(), b"a password")
    try:
        users.load(data, "users.acl")
    except RuleError:
        assert _user_lines(users) == _user_lines(Users(_table(), b"a password"))
        return
    saved = _user_lines(users)
    again = Users(_table(), b"another")
    again.load(saved, "users.acl")
    assert _user_lines(again) == saved
    for name, user in users.by_name.items():
        other = again.by_name[name]
        for words in ASKED:
            command = _table().lookup(words)
            if command is not None:
                assert user.denies(command, words) == other.denies(command, words), (name, words)
