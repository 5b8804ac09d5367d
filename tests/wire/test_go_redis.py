"""Prevents an answer that go-redis takes otherwise than a real server's.

A small program in Go asks `logstore serve` and a real server the same, and prints what go-redis
makes of each answer. It is built where there is a `go` that can get go-redis: from its proxy, or
as GOFLAGS (`-modfile=...`, say) tell it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.peers.servers import Peer
from tests.wire.wired import InProcess

SOURCE = Path(__file__).parent / "goredis"
BUILD_S, RUN_S = 300, 60


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on PATH: it is in Debian's golang-go")
    copy = tmp_path_factory.mktemp("go") / "goredis"
    shutil.copytree(SOURCE, copy)
    try:
        built = subprocess.run(
            [go, "build", "-mod=mod", "-o", "program", "."], cwd=copy, capture_output=True,
            text=True, timeout=BUILD_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"go-redis was not had and built in {BUILD_S} s")
    if built.returncode:
        pytest.skip(f"go-redis cannot be had or built here: {built.stderr.strip()[-300:]}")
    return copy / "program"


@pytest.mark.peers
def test_go_redis_finds_what_it_finds_at_a_real_server(
    program: Path, tmp_path: Path, peer: Peer
) -> None:
    profile = "redis-8.2" if peer.name == "redis" else "valkey-9"
    served = InProcess(tmp_path / "store", profile)
    try:
        told = [
            subprocess.run(
                [program, f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=RUN_S,
                check=True,
            ).stdout.splitlines()
            for port in (served.port, peer.port)
        ]  # fmt: skip
    finally:
        served.stop()
    assert told[0] == told[1]
    assert "2 xread block: [{t [{9-1 map[a:b]}]}] <nil>" in told[0]
    assert "3 destroy: 1 <nil>" in told[0]
