"""Prevents hostile, cut or inline requests from being read as something else."""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.wire.resp import requests
from logstore.wire.resp.requests import (
    BULK_MAX_BYTES,
    INLINE_MAX_BYTES,
    ProtocolError,
    RequestParser,
)
from tests import seeds
from tests.peers.servers import Peer
from tests.tools.commands import TIMEOUT_S
from tests.wire.lines import Line, Refusal, request
from tests.wire.served import SERVED_AS, Served, serving

WORDS = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


def parsed(parser: RequestParser) -> list[list[bytes]]:
    """All requests that are whole."""
    found: list[list[bytes]] = []
    while (words := parser.next()) is not None:
        found.append(words)
    return found


@given(st.lists(WORDS, max_size=5), st.data())
def test_requests_cut_anywhere_are_the_same(
    requests: list[list[bytes]], data: st.DataObject
) -> None:
    whole = b"".join(map(request, requests))
    parser, found, at = RequestParser(), [], 0
    while at < len(whole):
        step = data.draw(st.integers(1, max(1, len(whole) - at)))
        parser.feed(whole[at : at + step])
        found += parsed(parser)
        at += step
    assert found == requests
    assert parser.held_bytes == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"PING\r\n", [b"PING"]),
        (b"  XLEN   a \n", [b"XLEN", b"a"]),
        (b"\r\n", []),
        (b"*0\r\n", []),
        (b"*-1\r\n", []),
        (b'ECHO "a b"\r\n', [b"ECHO", b"a b"]),
        (b"ECHO 'it'\r\n", [b"ECHO", b"it"]),
        (b"\xff\xfe x\r\n", [b"\xff\xfe", b"x"]),
    ],
)
def test_inline_and_empty_requests(line: bytes, words: list[bytes]) -> None:
    parser = RequestParser()
    parser.feed(line)
    assert parser.next() == words
    assert parser.next() is None


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n+3\r\n", r"expected '\$', got '\+'"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$%d\r\n" % (BULK_MAX_BYTES + 1), "invalid bulk length"),
        (b"*" + b"1" * (INLINE_MAX_BYTES + 1), "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * (INLINE_MAX_BYTES + 1), "too big bulk count string"),
        (b"x" * (INLINE_MAX_BYTES + 1), "too big inline request"),
        (b"ECHO 'a\r\n", "unbalanced quotes"),
    ],
)
def test_malformed_requests_are_refused(data: bytes, told: str) -> None:
    parser = RequestParser()
    parser.feed(data)
    with pytest.raises(ProtocolError, match=told):
        parsed(parser)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"*11\r\n", "unauthenticated multibulk length"),
        (b"*2\r\n$16385\r\n", "unauthenticated bulk length"),
        (b"*2\r\n$16000\r\n" + b"x" * 16000 + b"\r\n$385\r\n", "unauthenticated bulk length"),
        (b"a b c d e f g h i j k\r\n", "unauthenticated multibulk length"),
        (b"'a' b c d e f g h i j k 'l\r\n", "unauthenticated multibulk length"),
        (b"x" * 16385, "too big inline request"),
        (b"x" * 16385 + b"\r\n", "too big inline request"),
        (b"*" + b"1" * 16385, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 16385, "too big bulk count string"),
    ],
)
def test_strangers_may_send_little(data: bytes, told: str) -> None:
    parser = RequestParser()
    parser.trusted = False
    parser.feed(data)
    with pytest.raises(ProtocolError, match=told):
        parser.next()


@pytest.mark.parametrize(
    "data", [b"a b c d e f g h i j\r\n", b"x" * 16384 + b"\n", request([b"AUTH", b"x" * 16380])]
)
def test_requests_before_auth_within_the_limits_are_taken(data: bytes) -> None:
    parser = RequestParser()
    parser.trusted = False
    parser.feed(data)
    assert parser.next()


@given(st.binary(max_size=300))
def test_rubbish_gives_words_or_an_error(data: bytes) -> None:
    parser = RequestParser()
    parser.feed(data)
    try:
        found = parsed(parser)
    except ProtocolError:
        return
    assert sum(map(len, found)) + parser.held_bytes <= len(data) + 1000


def test_a_promised_word_takes_no_memory_before_it_comes() -> None:
    parser = RequestParser()
    parser.feed(b"*1048576\r\n$536870912\r\nabc")
    assert parser.next() is None
    assert parser.held_bytes < 20


LINES = 3000
PIECES = [
    b"a", b"bc", b" ", b"  ", b"\t", b"\r", b"\v", b"\f", b'"', b"'", b"\\", b'\\"', b"\\'", b"\\n",
    b"\\r", b"\\t", b"\\b", b"\\a", b"\\x41", b"\\xfF", b"\\xg1", b"\\x4", b"\\\\", b"\xff", b'""',
    b"''", b'"d e"', b"'f g'", b'" ', b"' ", b"x41", b"$3", b"*",
]  # fmt: skip


def test_random_lines_are_the_words_of_redis(redis_peer: Peer, tell: Callable[[str], None]) -> None:
    """COMMAND GETKEYS tells a command's words, as many as there are."""
    seed = seeds.seed()
    tell(f"inline lines, seed {seed}")
    rng = random.Random(seed)
    unbalanced = 0
    line = Line(redis_peer.port)
    for _ in range(LINES):
        text = b"".join(rng.choices(PIECES, k=rng.randrange(1, 12)))
        words = requests.split_inline(b"COMMAND GETKEYS DEL k " + text)
        line.send(b"COMMAND GETKEYS DEL k " + text + b"\r\n")
        reply = line.reply()
        if words is None:
            unbalanced += 1
            assert reply == Refusal("ERR Protocol error: unbalanced quotes in request"), text
            line.close()
            line = Line(redis_peer.port)
        else:
            assert reply == words[3:], text
    line.close()
    assert LINES * 0.1 < unbalanced < LINES * 0.9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", []),
        (b" \r", []),
        (rb'ECHO "\x41\x0a\n\r\t\b\a\q\\\""', [b"ECHO", b'A\n\n\r\t\b\aq\\"']),
        (rb"ECHO 'it\'s \n'", [b"ECHO", b"it's \\n"]),
        (b'a"b c" d', [b"ab c", b"d"]),
        (b"\"\" ''", [b"", b""]),
        (b"a\vb \vc", [b"a\vb", b"c"]),
        (b'"a"b', None),
        (b'a "', None),
        (rb'"a\"', None),
        (rb"'a\'", None),
        (b"a'b", None),
    ],
)
def test_lines_and_their_words(text: bytes, words: list[bytes] | None) -> None:
    assert requests.split_inline(text) == words
    if words:
        for most in range(1, len(words) + 1):
            assert requests.split_inline(text, most) == words[:most]


@pytest.mark.parametrize(
    "piece",
    [b"a ", b'"', b"'", b'"a" ', b"'' ", b'\\"', b"\\'", b"\\", b'"\\a', b"'\\'", b"\v", b'\v"',
     b"a", b'" ', b'"\\" ', b"a\"'"],
)  # fmt: skip
def test_no_line_takes_long(piece: bytes) -> None:
    """Sixteen of the longest lines; where time grew with the square it would be minutes."""
    for start in (b"", b'"', b"'"):
        text = (start + piece * (16 * INLINE_MAX_BYTES // len(piece)))[: 16 * INLINE_MAX_BYTES]
        begun = time.process_time()
        requests.split_inline(text)
        assert time.process_time() - begun < 5.0


# -- a web page ------------------------------------------------------------------------------------
HEAD = b"Host: 127.0.0.1:6379\r\nContent-Length: 23\r\nContent-Type: text/plain\r\n\r\n"
BODY = b"\nXADD s * a 1\nFLUSHALL\nSHUTDOWN\n"
PAGES = [
    b"POST / HTTP/1.1\r\n" + HEAD,
    b"POST / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HEAD,
    b"PUT / HTTP/1.1\r\nhOST: x\r\n\r\n",
    b"OPTIONS /a b HTTP/1.1\r\nHOST: x\r\n\r\n",
    b"PING\r\npost x\r\n",
    b"*1\r\n$4\r\nPoSt\r\n",
    b"*2\r\n$5\r\nHost:\r\n$1\r\nx\r\n",
    b"MULTI\r\nPOST\r\n",
]  # fmt: skip


@pytest.mark.parametrize("password", [b"", b"a secret"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_web_page_runs_nothing(
    tmp_path: Path, password: bytes, apart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The body in the same packet, or in one that comes later."""
    with serving(tmp_path / "store", allow_flush=True, password=password) as served:
        for page in PAGES:
            found = socket.create_connection(("127.0.0.1", served.port), timeout=60)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.sendall(page if apart else page + BODY)
            if apart:
                with suppress(ConnectionError):
                    found.sendall(BODY)
            _ended(found)
        with Line(served.port) as line:
            if password:
                assert line("AUTH", password) == b"OK"
            assert line("EXISTS", "s") == 0
            port = line._socket.getsockname()[1]
    told = [each.message for each in caplog.records if "attack" in each.message]
    assert len(told) == 1  # for all of them
    assert re.search(r"127\.0\.0\.1:\d+ sent POST or Host:", told[0])
    assert str(port) not in told[0]


def _ended(found: socket.socket) -> None:
    """Read to the end of a connection."""
    try:
        while found.recv(65536):
            pass
    except ConnectionError:  # it did not read all that was sent
        pass
    finally:
        found.close()


def test_redis_closes_these_connections_too(redis_peer: Peer) -> None:
    for page in PAGES:
        with Line(redis_peer.port) as line:
            line.send(page + b"XADD s * a 1\n")
            _ended(line._socket)
    assert redis_peer.command("EXISTS", "s") == 0


@pytest.mark.parametrize("program", ["curl", "node"])
def test_http_requests_are_not_run(served: Served, program: str) -> None:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    where = f"http://127.0.0.1:{served.port}/"
    script = f"fetch('{where}', {{method: 'POST', body: '\\nXADD s * a 1\\nSHUTDOWN\\n'}})"
    words = {
        "curl": ["--http0.9", "-s", "-m", "60", "-X", "POST", "--data-binary",
                 "\nXADD s * a 1\nSHUTDOWN\n", where],
        "node": ["-e", script + ".catch(() => 0)"],
    }  # fmt: skip
    subprocess.run([found, *words[program]], capture_output=True, check=False, timeout=TIMEOUT_S)
    with Line(served.port) as line:
        assert line("EXISTS", "s") == 0


def answered(port: int, data: bytes) -> bytes:
    """All that comes back if this is sent, and nothing more."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connected:
        connected.sendall(data)
        connected.shutdown(socket.SHUT_WR)
        found = b""
        while part := connected.recv(4096):
            found += part
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"*1\n$4\nPING\n", b"*1\r\n$4\nPING\r\n", b"*1\r\n$04\r\nPING\r\n",
        b"*01\r\n$4\r\nPING\r\n",
        b"*00\r\n", b"*+1\r\n$4\r\nPING\r\n", b"*1\r\n$+4\r\nPING\r\n", b"*1\r\n$-0\r\n\r\n",
        b"*-1\r\nPING\r\n", b"*-0\r\nPING\r\n", b"*1 \r\n$4\r\nPING\r\n", b"*1\r\n$4 \r\nPING\r\n",
        b"*1\r\n$0\r\n\r\nPING\r\n", b"*\r\n", b"*1\r\n$\r\n", b"PING\n",
        b"*1\r\n$99999999999999999999\r\n", b"*1_0\r\n", "*١\r\n".encode(),
    ],
)  # fmt: skip
def test_a_length_is_read_as_the_peers_read_it(data: bytes, peer: Peer, tmp_path: Path) -> None:
    """Lengths with zeros in front, and lines without a carriage return, were taken once."""
    with serving(tmp_path / "s", profile=SERVED_AS[peer.name]) as served:
        assert answered(served.port, data) == answered(peer.port, data)


def test_any_byte_behind_a_carriage_return_ends_a_line(redis_peer: Peer, tmp_path: Path) -> None:
    """As in Redis; Valkey 9.1 refuses it."""
    data = b"*1\r\r$4\r\rPING\r\r"
    with serving(tmp_path / "s") as served:
        assert answered(served.port, data) == answered(redis_peer.port, data) == b"+PONG\r\n"
