"""Running the commands: in this process, as a process, and as the left end of a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import logstore
from logstore.tools.commands import main

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = (sys.executable, "-m", "logstore.tools.cli")
TIMEOUT_S = 300


def invoke(*arguments: Any, stdin: bytes | str | None = None) -> Result:
    """Run a command in this process; an exception that it lets out is the test's."""
    return CliRunner().invoke(main, [str(one) for one in arguments], stdin, catch_exceptions=False)


def ok(*arguments: Any, stdin: bytes | str | None = None) -> str:
    """What a command that must not fail writes to stdout."""
    done = invoke(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def objects(text: str | bytes) -> list[dict[str, Any]]:
    """The JSON objects of some lines."""
    return [json.loads(line) for line in text.splitlines()]


def environment() -> dict[str, str]:
    """What a process needs to import the checkout; its output is buffered, as it is for users."""
    inherited = {name: at for name, at in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**inherited, "PYTHONPATH": str(ROOT)}


def process(*arguments: Any, stdin: bytes = b"", **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a process of its own, its output caught in pipes."""
    command = [*COMMAND, *(str(one) for one in arguments)]
    return subprocess.run(
        command, input=stdin, capture_output=True, check=False, env=environment(),
        timeout=TIMEOUT_S, **more,
    )  # fmt: skip


def piped(*arguments: Any) -> tuple[int, bytes, bytes]:
    """Run ``command | head -1``: the command's exit code, the line, the command's stderr."""
    command = [*COMMAND, *(str(one) for one in arguments)]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        ) as left,
        subprocess.Popen(["head", "-1"], stdin=left.stdout, stdout=subprocess.PIPE) as right,
    ):
        assert left.stdout is not None
        assert left.stderr is not None
        left.stdout.close()
        line, _ = right.communicate(timeout=TIMEOUT_S)
        said = left.stderr.read()
        return left.wait(TIMEOUT_S), line, said


def no_traceback(stderr: bytes | str) -> bool:
    """Tell whether what went to stderr is for users."""
    text = stderr if isinstance(stderr, str) else stderr.decode()
    return "Traceback" not in text and "Exception ignored" not in text


def on_a_terminal(
    arguments: list[str], columns: int, lines: int, code: int = 0, term: str = "xterm-256color"
) -> str:
    """What a command that ends with this code writes to a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    env = {**environment(), "TERM": term}
    env.pop("COLUMNS", None)
    env.pop("LINES", None)
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    ) as running:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # its end is closed
            pass
        os.close(ours)
        assert running.wait(TIMEOUT_S) == code, said
    return said.decode()


def pairs(store: Path, name: str = "s") -> list[tuple[str, list[tuple[bytes, bytes]]]]:
    """IDs and pairs of all entries, as they are stored, whatever schema there is."""
    with logstore.open(store, create=False) as opened:
        flats: list[tuple[str, Any]] = [
            (str(entry.id), entry._flat) for entry in opened.stream(name)
        ]
    return [(id, list(zip(flat[::2], flat[1::2], strict=True))) for id, flat in flats]


def contents(store: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a store, with the time of its last change."""
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def segments(store: Path) -> list[Path]:
    """The segments, oldest first."""
    return sorted((store / "log").glob("*.log"))
