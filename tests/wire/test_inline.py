"""Prevents inline requests that are read as other words than Redis reads, or that take long, and
web pages from sending any.
"""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from logstore.wire.resp import requests
from logstore.wire.resp.requests import INLINE_MAX_BYTES
from tests import seeds
from tests.peers.servers import Peer
from tests.tools.commands import TIMEOUT_S
from tests.wire.lines import Line, Refusal
from tests.wire.served import Served, serving

LINES = 3000
PIECES = [
    b"a", b"bc", b" ", b"  ", b"\t", b"\r", b"\v", b"\f", b'"', b"'", b"\\", b'\\"', b"\\'", b"\\n",
    b"\\r", b"\\t", b"\\b", b"\\a", b"\\x41", b"\\xfF", b"\\xg1", b"\\x4", b"\\\\", b"\xff", b'""',
    b"''", b'"d e"', b"'f g'", b'" ', b"' ", b"x41", b"$3", b"*",
]  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server without a password."""
    with serving(tmp_path / "store", profile="redis-8.2") as found:
        yield found


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
def test_what_curl_and_fetch_post_is_not_run(served: Served, program: str) -> None:
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
