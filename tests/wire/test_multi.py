"""Prevents commands that do between MULTI and EXEC what the peers do not: each of them, one by one.

Every command of the table has a row here. MULTI, the command and EXEC go to this server and to the
real ones, each on a connection of its own, and both replies are compared.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.options import Profile
from logstore.wire.catalogue import table_of
from logstore.wire.service import Client
from logstore.wire.table import Command
from logstore.wire.users import User
from tests.peers.servers import Peer
from tests.wire.lines import Line, Reply, request
from tests.wire.served import SERVED_AS, Served, serving

STORE_WIDE = "ERR this command is not allowed inside a transaction"
# What is compared: the replies (all), their kinds (what they tell differs), or, where this server
# differs (docs/redis.md), the reply to EXEC is given.
SAME, KIND = "same", "kind"
ROWS: dict[str, str | list[Reply]] = {
    "XADD k 1-1 a b": SAME, "XADD s": SAME, "XLEN k": SAME, "XRANGE k - +": SAME,
    "XREVRANGE k + -": SAME, "XREAD BLOCK 0 STREAMS k $": SAME, "XDEL k 1-1": SAME,
    "XDELEX k IDS 1 1-1": SAME, "XSETID k 9-9": SAME, "XTRIM k MAXLEN 0": SAME,
    "XGROUP CREATE k g 0": SAME, "XGROUP SETID k g 0": SAME, "XGROUP DESTROY k g": SAME,
    "XGROUP CREATECONSUMER k g c": SAME, "XGROUP DELCONSUMER k g c": SAME, "XGROUP HELP": KIND,
    "XREADGROUP GROUP g c BLOCK 0 STREAMS k >": SAME, "XACK k g 1-1": SAME,
    "XACKDEL k g IDS 1 1-1": SAME, "XPENDING k g": SAME, "XCLAIM k g c 0 1-1": SAME,
    "XAUTOCLAIM k g c 0 0": SAME, "XINFO STREAM k": SAME, "XINFO GROUPS k": SAME,
    "XINFO CONSUMERS k g": SAME, "XINFO HELP": KIND,
    "DEL k": SAME, "UNLINK k": SAME, "EXISTS k": SAME, "TYPE k": SAME, "KEYS *": SAME,
    "SCAN 0": SAME, "RANDOMKEY": SAME, "OBJECT ENCODING k": SAME, "OBJECT FREQ k": KIND,
    "OBJECT IDLETIME k": KIND, "OBJECT REFCOUNT k": SAME, "OBJECT HELP": KIND,
    "MEMORY USAGE k": KIND, "MEMORY HELP": KIND, "PERSIST k": SAME, "EXPIRE k 9": SAME,
    "PEXPIRE k 9": SAME, "EXPIREAT k 9": SAME, "PEXPIREAT k 9": SAME, "TTL k": SAME, "PTTL k": SAME,
    "EXPIRETIME k": SAME, "PEXPIRETIME k": SAME, "RENAME k l": SAME, "RENAMENX k l": SAME,
    "COPY k l": SAME, "DUMP k": KIND, "RESTORE k 0 x": SAME,
    "PING": SAME, "ECHO a": SAME, "SELECT 0": SAME, "SELECT 99": SAME, "QUIT": SAME, "RESET": SAME,
    "AUTH x": SAME, "HELLO 3": KIND, "HELLO 9": SAME, "HELLO 2 AUTH default x": KIND,
    "ACL CAT": KIND, "ACL DELUSER u": SAME, "ACL DRYRUN default ping": SAME, "ACL GENPASS": KIND,
    "ACL GETUSER default": KIND, "ACL LIST": KIND, "ACL LOAD": KIND, "ACL LOG": SAME,
    "ACL SAVE": KIND, "ACL SETUSER u": SAME, "ACL USERS": KIND, "ACL WHOAMI": SAME,
    "ACL HELP": KIND, "CLIENT ID": KIND, "CLIENT GETNAME": SAME, "CLIENT SETNAME n": SAME,
    "CLIENT SETINFO lib-name n": SAME, "CLIENT LIST": KIND, "CLIENT INFO": KIND,
    "CLIENT KILL ID 99999": SAME, "CLIENT UNBLOCK 99999": SAME, "CLIENT NO-EVICT ON": SAME,
    "CLIENT NO-TOUCH ON": SAME, "CLIENT REPLY ON": SAME, "CLIENT HELP": KIND,
    "MULTI": SAME, "EXEC": SAME, "DISCARD": SAME, "WATCH k": SAME, "UNWATCH": SAME,
    "COMMAND": KIND, "COMMAND COUNT": KIND, "COMMAND DOCS xlen": KIND, "COMMAND INFO xlen": KIND,
    "COMMAND LIST": KIND, "COMMAND GETKEYS XLEN k": SAME, "CONFIG GET maxmemory": SAME,
    "CONFIG SET maxmemory 0": SAME, "CONFIG RESETSTAT": SAME, "CONFIG HELP": KIND,
    "DBSIZE": SAME, "FLUSHALL": SAME, "FLUSHDB": SAME, "SAVE": SAME, "BGSAVE": [STORE_WIDE],
    "LASTSAVE": KIND, "WAIT 0 0": SAME, "SHUTDOWN": SAME, "TIME": KIND, "INFO": [STORE_WIDE],
    "ROLE": SAME, "MONITOR": SAME, "SLOWLOG GET 0": SAME, "SLOWLOG LEN": KIND,
    "SLOWLOG RESET": SAME, "SLOWLOG HELP": KIND, "CLUSTER INFO": SAME, "CLUSTER HELP": KIND,
    "NOSUCH": SAME,
}  # fmt: skip
# Of no peer that is installed here: what they do behind XREADGROUP of the entry, in MULTI or not.
NEWEST: dict[str, Reply] = {
    "XNACK k g FAIL IDS 1 1-1": 1, "XNACK k g FAIL IDS 1 9-9": 0, "XIDMPRECORD k p one 1-1": b"OK",
    "XCFGSET k IDMP-DURATION 60": b"OK",
}  # fmt: skip


@pytest.fixture
def served(peer: Peer, tmp_path: Path) -> Iterator[Served]:
    """A server that is to answer as the peer does."""
    with serving(tmp_path / "s", profile=SERVED_AS[peer.name], allow_flush=True) as found:
        yield found


def names(commands: Iterator[Command]) -> Iterator[str]:
    for command in commands:
        if command.parse is not None and not command.name.startswith("cluster|"):
            yield command.name
        yield from names(iter(command.subcommands.values()))


@pytest.mark.parametrize("profile", ["redis-8.2", "redis-8.10", "valkey-9", "valkey-9.2"])
def test_every_command_has_its_row(profile: Profile) -> None:
    """A command that is new here would else be asked of no peer."""
    table = table_of(profile)
    asked = {table.find([word.encode() for word in ask.split()]).name
             for ask in (*ROWS, *NEWEST) if ask not in ("NOSUCH", "XADD s")
             and ask.split()[0].lower() in table.commands}  # fmt: skip
    assert set(names(iter(table.commands.values()))) - asked == set()


def ask(port: int, words: str) -> list[Reply]:
    """The reply to the command, to EXEC, and to a last one."""
    with Line(port) as line:
        line("FLUSHALL")
        line("XADD", "k", "1-1", "a", "b")
        line("XGROUP", "CREATE", "k", "g", "0")
        line("ACL", "LOG", "RESET")
        replies = [line("MULTI"), line(*words.split())]
        if words != "QUIT":
            replies += [line("EXEC"), line("PING")]
        return replies


def kinds(reply: Reply) -> Reply:
    """A reply without what it tells, but for what is refused."""
    return [kinds(each) for each in reply[:1]] if isinstance(reply, list) else type(reply)


def comparable(how: str | list[Reply], replies: list[Reply]) -> list[Reply]:
    if how == KIND and len(replies) == 4 and isinstance(replies[2], list):
        return [*replies[:2], [kinds(each) for each in replies[2]], replies[3]]
    return replies


def test_each_command_does_there_what_the_peers_do(peer: Peer, served: Served) -> None:
    """UNWATCH once ran at once, so that EXEC changed what a watcher had seen changed."""
    wrong: dict[str, Any] = {}
    for words, how in ROWS.items():
        if peer.name == "valkey" and words.split()[0] in ("XDELEX", "XACKDEL"):
            continue
        ours, theirs = ask(served.port, words), ask(peer.port, words)
        if isinstance(how, list):
            theirs[2] = how
        if comparable(how, ours) != comparable(how, theirs):
            wrong[words] = (ours, theirs)
    assert wrong == {}


@pytest.mark.parametrize("words", NEWEST)
def test_the_newest_commands_do_there_what_they_do_elsewhere(words: str, tmp_path: Path) -> None:
    with serving(tmp_path / "s", profile="redis-8.10") as served, Line(served.port) as line:
        for opened in (False, True):
            line("DEL", "k")
            line("XADD", "k", "1-1", "a", "b")
            line("XGROUP", "CREATE", "k", "g", "0")
            line("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")
            if not opened:
                assert line(*words.split()) == NEWEST[words]
                continue
            assert [line("MULTI"), line(*words.split())] == [b"OK", b"QUEUED"]
            assert line("EXEC") == [NEWEST[words]]


def test_unwatch_after_multi_leaves_what_is_watched(peer: Peer, served: Served) -> None:
    """EXEC once changed a key that a watcher saw change."""
    for port in (served.port, peer.port):
        with Line(port) as line, Line(port) as other:
            line("WATCH", "s")
            other("XADD", "s", "1-1", "a", "b")
            assert [line("MULTI"), line("UNWATCH"), line("DEL", "s")] == [
                b"OK",
                b"QUEUED",
                b"QUEUED",
            ]
            assert repr(line("EXEC")) == "ABSENT"
            assert line("XLEN", "s") == 1


def test_discard_leaves_nothing(peer: Peer, served: Served) -> None:
    """Commands once did their work when they were queued: UNWATCH and CLIENT SETINFO."""
    for port in (served.port, peer.port):
        with Line(port) as line, Line(port) as other:
            line("CONFIG", "SET", "acllog-max-len", 77)
            line("WATCH", "s")
            before = sorted(line("CLIENT", "INFO").split())
            config = (
                other("CONFIG", "GET", "acllog-max-len"),
                other("ACL", "USERS"),
                other("KEYS", "*"),
            )
            line("MULTI")
            for words in (
                "UNWATCH", "CLIENT SETINFO lib-name n", "CLIENT SETNAME n", "CLIENT NO-TOUCH ON",
                "HELLO 3", "CONFIG SET acllog-max-len 3", "ACL SETUSER neu", "ACL LOG RESET",
                "XADD s 1-1 a b", "MONITOR", "FLUSHALL",
            ):  # fmt: skip
                assert line(*words.split()) == b"QUEUED", words
            assert line("DISCARD") == b"OK"
            line("WATCH", "s")
            after = sorted(line("CLIENT", "INFO").split())
            names = (b"name", b"flags", b"lib-name", b"resp", b"user", b"watch")
            wanted = [b"flags=N", b"lib-name=", b"name=", b"resp=2", b"user=default", b"watch=1"]
            for found in (before, after):
                assert [part for part in found if part.partition(b"=")[0] in names] == wanted
            assert config == (
                other("CONFIG", "GET", "acllog-max-len"), other("ACL", "USERS"), other("KEYS", "*")
            )  # fmt: skip


# -- users ----------------------------------------------------------------------------------------
NO_MORE = (
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC "
    "call. This command is no longer allowed for the following reason: no permission to "
)


def test_commands_behind_auth_in_multi_have_the_rights_of_the_new_user(
    peer: Peer, served: Served
) -> None:
    """AUTH in a transaction once left the old user's rights to what followed."""
    for port in (served.port, peer.port):
        with Line(port) as admin, Line(port) as line:
            admin("FLUSHALL")
            admin("ACL", "LOG", "RESET")
            for name, rules in {
                "low": ["~low*", "-keys"],
                "high": ["~*"],
                "odd": ["~odd*"],
            }.items():
                admin("ACL", "SETUSER", name, "reset", "on", f">{name}", "+@all", *rules)
            line("AUTH", "high", "high")
            for words in ("MULTI", "XADD top 1-1 a b", "XADD top 1-2 a b", "AUTH low low",
                          "XADD top 2-1 a b", "XADD top 2-2 a b", "XADD low 1-1 a b", "KEYS *",
                          "ACL WHOAMI", "HELLO 2 AUTH high high", "XADD top 3-1 a b"):  # fmt: skip
                assert line(*words.split()) == (b"OK" if words == "MULTI" else b"QUEUED")
            replies = line("EXEC")
            assert isinstance(replies.pop(8), list)  # of HELLO
            keys, command = (NO_MORE + what for what in (
                "touch the specified keys", "execute the command or subcommand"))  # fmt: skip
            assert replies == [
                b"1-1", b"1-2", b"OK", keys, keys, b"1-1", command, b"low", b"3-1"
            ]  # fmt: skip
            assert line("ACL", "WHOAMI") == b"high"
            told = [each[:10] for each in line("ACL", "LOG")]
            assert told == [
                [b"count", count, b"reason", reason, b"context", b"multi", b"object", what,
                 b"username", b"low"]
                for count, reason, what in ((1, b"command", b"keys"), (2, b"key", b"top"))
            ]  # fmt: skip
            # Rights are those of the user at queueing, too.
            line("AUTH", "low", "low")
            line("MULTI")
            line("AUTH", "odd", "odd")
            assert line("XADD", "odd", "1-1", "a", "b") == "NOPERM No permissions to access a key"
            assert line("EXEC").startswith("EXECABORT")
            assert line("ACL", "WHOAMI") == b"low"


def test_the_log_tells_of_a_queued_command_when_it_is_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log once told of it when it was queued, under the old user, also if it was discarded."""
    with (
        serving(tmp_path / "s", profile="redis-8.2") as served,
        caplog.at_level(logging.INFO, logger="logstore.audit"),
        Line(served.port) as line,
    ):
        line("ACL", "SETUSER", "eve", "on", ">pw", "~*", "+@all")
        caplog.clear()
        for end in ("DISCARD", "EXEC"):
            line("MULTI")
            for words in ("CONFIG SET maxmemory 0", "AUTH eve pw", "CONFIG RESETSTAT"):
                line(*words.split())
            line(end)
        told = [re.sub(r" at \S+:", ":", record.getMessage()) for record in caplog.records]
        assert told == [
            "user 'default': CONFIG SET maxmemory 0", "user 'eve': CONFIG RESETSTAT",
        ]  # fmt: skip


def test_each_reply_is_in_the_protocol_that_its_command_finds(peer: Peer, served: Served) -> None:
    """HELLO in a transaction once left its reply, and those behind it, in the old protocol."""
    found: list[list[Reply]] = []
    for port in (served.port, peer.port):
        with Line(port) as line:
            replies: list[Reply] = []
            for first, last in ((2, 3), (3, 2), (2, 2)):
                line("HELLO", first)
                line("MULTI")
                for words in ("CONFIG GET maxmemory", "DUMP none", f"HELLO {last}",
                              "CONFIG GET maxmemory", "DUMP none"):  # fmt: skip
                    line(*words.split())
                each = line("EXEC")
                each[2] = type(each[2])
                replies.append([each, line("CONFIG", "GET", "maxmemory")])
            found.append(replies)
    assert found[0] == found[1]


def test_a_transaction_looks_at_one_wrong_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passwords were once guessed in a transaction as fast as they came, without a delay."""
    waits: list[float] = []
    with serving(tmp_path / "s", profile="redis-8.2") as served:
        service = served.service
        looked: list[bytes] = []
        login, failed = service.users.login, service.logins.failed

        def looks(name: bytes, word: bytes) -> User | None:
            looked.append(word)
            return login(name, word)

        def fails(address: str, user: bytes) -> float:
            waits.append(failed(address, user))
            return 0.001

        monkeypatch.setattr(service.users, "login", looks)
        monkeypatch.setattr(service.logins, "failed", fails)
        with Line(served.port) as admin, Line(served.port) as line:
            admin("ACL", "SETUSER", "eve", "on", ">right", "~*", "+@all")
            for _ in range(2):
                line("MULTI")
                for word in ("1", "2", "right"):
                    line("AUTH", "eve", word)
                line("HELLO", "2", "AUTH", "eve", "right")
                line("XADD", "s", "*", "a", "b")
                replies = line("EXEC")
                assert [str(each)[:9] for each in replies[:4]] == ["WRONGPASS"] * 4
                assert line("ACL", "WHOAMI") == b"default"
            assert looked == [b"1", b"1"]
            assert waits == [0.05, 0.1]
            line("MULTI")
            line("AUTH", "eve", "right")
            assert line("EXEC") == [b"OK"]


def test_the_reply_of_a_transaction_waits_for_a_login_that_failed(tmp_path: Path) -> None:
    """The delay of a failed login once came with a later command, if with any."""
    with serving(tmp_path / "s", profile="redis-8.2") as served, Line(served.port) as line:
        line("MULTI")
        line("AUTH", "eve", "wrong")
        client: Client = max(served.service.clients.values(), key=lambda each: each.id)
        line.send(request([b"EXEC"]))
        assert str(line.reply()[0]).startswith("WRONGPASS")
        assert client.delay_s == 0.0  # it was waited for
        assert client.multi is None
