"""Prevents operators who cannot see who did what, or who see passwords there."""

from __future__ import annotations

import logging
import re

import pytest

from logstore.wire.audit import AT_ONCE
from tests.peers.servers import Peer
from tests.wire.lines import Line, Reply, request
from tests.wire.served import Served

SLOW = """
XADD s 1-1 a b
XADD s * f v
XLEN s
XRANGE s - +
PING
ECHO x
MULTI
XADD s * a b
XLEN s
EXEC
XREAD BLOCK 1 STREAMS s 0
AUTH default secret-1
HELLO 2 AUTH default secret-3 SETNAME n
HELLO 2 AUTH nobody secret-4
ACL SETUSER ann on >secret-5 #12
ACL SETUSER ann >secret-6
ACL GETUSER ann
ACL DELUSER ann
CONFIG GET port
""".strip().splitlines()


def entries(line: Line) -> list[Reply]:
    """What SLOWLOG GET tells, but for times and addresses."""
    found = line("SLOWLOG", "GET", -1)
    for number, when, took_us, _, address, _ in found:
        assert number >= 0
        assert when > 1_700_000_000
        assert took_us >= 0
        assert re.fullmatch(rb"127\.0\.0\.1:\d+", address)
    return [(each[3], each[5]) for each in found]


def test_slow_commands_are_told_as_in_redis(redis_peer: Peer, served: Served) -> None:
    told: list[list[Reply]] = []
    for port in (served.port, redis_peer.port):
        with Line(port) as admin, Line(port) as line:
            before = admin("CONFIG", "GET", "slowlog-*")
            admin("DEL", "s")
            try:
                for value in ("x", "-2", ""):
                    assert "argument" in admin("CONFIG", "SET", "slowlog-log-slower-than", value)
                admin("SLOWLOG", "RESET")
                admin("CONFIG", "SET", "slowlog-log-slower-than", 0)
                for words in SLOW:
                    line(*words.split())
                line("ECHO", b"x" * 200)
                line("DEL", *(f"key{n}" for n in range(40)))
                line("EXISTS", *(f"key{n}" for n in range(31)))
                admin("CONFIG", "SET", "slowlog-log-slower-than", -1)
                line("XLEN", "s")
                found = [sorted(before[::2]), entries(admin)]
                assert len(admin("SLOWLOG", "GET")) == 10
                assert len(admin("SLOWLOG", "GET", 3)) == 3
                assert admin("SLOWLOG", "LEN") == len(found[1])
                admin("CONFIG", "SET", "slowlog-max-len", 2)
                admin("CONFIG", "SET", "slowlog-log-slower-than", 0)
                line("PING")
                found.append(entries(admin)[:1])
                assert admin("SLOWLOG", "LEN") == 2
                assert admin("SLOWLOG", "RESET") == b"OK"
                told.append(found)
            finally:
                admin("CONFIG", "SET", "slowlog-log-slower-than", 10000, "slowlog-max-len", 128)
                admin("SLOWLOG", "RESET")
                admin("ACL", "LOG", "RESET")
    mine, theirs = told
    assert b"secret" not in repr(mine).encode()
    assert mine == theirs


def test_pipelined_adds_are_told_one_by_one_if_each_command_is(served: Served) -> None:
    with Line(served.port) as line:
        line("CONFIG", "SET", "slowlog-log-slower-than", 0)
        line.send(request([b"XADD", b"s", b"*", b"a", b"b"]) * 50)
        assert all(b"-" in line.reply() for _ in range(50))
        line("CONFIG", "SET", "slowlog-log-slower-than", -1)
        names = [each[3][0] for each in line("SLOWLOG", "GET", -1)]
        assert names.count(b"XADD") == 50


def test_slowlog_has_slow_commands_amid_fast_ones(served: Served) -> None:
    with Line(served.port) as line:
        line.send(request([b"XADD", b"s", b"*", b"a", b"b" * 100]) * 30_000)
        for _ in range(30_000):
            line.reply()
        line("SLOWLOG", "RESET")
        line("CONFIG", "SET", "slowlog-log-slower-than", 5000)
        quick, slow = request([b"XLEN", b"s"]), request([b"XRANGE", b"s", b"-", b"+"])
        line.send(quick * 20 + slow + quick * 20)
        assert len([line.reply() for _ in range(41)][20]) == 30_000
        names = [each[3] for each in line("SLOWLOG", "GET", -1)]
        assert [b"XRANGE", b"s", b"-", b"+"] in names


def test_monitor_shows_no_password(redis_peer: Peer, served: Served) -> None:
    told: list[list[bytes]] = []
    for port in (served.port, redis_peer.port):
        with Line(port) as watching, Line(port) as line:
            line("DEL", "s")
            assert watching("MONITOR") == b"OK"
            for words in (
                "AUTH default secret-1", "AUTH nobody secret-2", "HELLO 2 AUTH default secret-3",
                "HELLO 2 SETNAME x AUTH nobody secret-4", "HELLO 2", "ACL SETUSER u >secret-5",
                "ACL WHOAMI", "MULTI", "XADD s 1-1 a b", "XLEN s", "EXEC", "ACL DELUSER u", "TIME",
            ):  # fmt: skip
                line(*words.split())
            found: list[bytes] = []
            while not found or not found[-1].endswith(b'"TIME"'):
                found.append(re.sub(rb"^[0-9.]+ \[0 [0-9.:]+\] ", b"", bytes(watching.reply())))
            told.append(found)
    assert told[0] == told[1]
    assert b"secret" not in b"".join(told[0])


def test_the_log_tells_who_did_what(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="logstore"), Line(served.port) as line:
        line("ACL", "SETUSER", "ann", "on", ">secret-1", "secret-2", "~a*", "+@read")
        line("ACL", "SETUSER", "ann", "on", ">secret-1", "~a*", "+@read")
        line("CONFIG", "SET", "requirepass", "secret-3")
        line("CONFIG", "SET", "stream-node-max-entries", "7")
        line("FLUSHALL")
        line("XLEN", "s")
        line("ACL", "DELUSER", "bob")
        with Line(served.port) as ann:
            ann("AUTH", "ann", "secret-1")
            ann("AUTH", "ann", "secret-4")
            ann("XLEN", "b\n")
            ann("HELLO", 2, "AUTH", "ann", "secret-5")
    lines = [each.getMessage() for each in caplog.records if each.name == "logstore.audit"]
    text = "\n".join(each.getMessage() for each in caplog.records)
    assert "secret" not in text
    assert any("ACL SETUSER ann on (redacted) ~a* +@read" in each for each in lines), lines
    for told in (
        "CONFIG SET requirepass (redacted)", "CONFIG SET stream-node-max-entries 7", "FLUSHALL",
        "ACL DELUSER bob", "user 'ann' logged in from 127.0.0.1:",
    ):  # fmt: skip
        assert any(told in each for each in lines), (told, lines)
    assert any(re.search(r"user 'ann' at 127\.0\.0\.1:\d+ was refused", each) for each in lines)
    assert not any("XLEN s" in each for each in lines)
    assert "a login failed: user 'ann'" in text


def test_lines_of_the_log_are_limited(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    with caplog.at_level(logging.DEBUG, logger="logstore"), Line(served.port) as line:
        line("ACL", "SETUSER", "ann", "on", "nopass", "+acl|setuser", "+config|set")
        line("AUTH", "ann", "x")
        many = 500
        line.send(request([b"XLEN", b"s"]) * many)
        line.send(request([b"AUTH", b"ann", b"x"]) * many)
        line.send(request([b"CONFIG", b"SET", b"x" * 5000, b"y" * 5000]) * many)
        for _ in range(3 * many):
            line.reply()
    lines = [each.getMessage() for each in caplog.records if each.name == "logstore.audit"]
    assert len(lines) < 4 * (AT_ONCE + 10)
    assert max(map(len, lines)) < 1000
