"""Prevents a demo that leaves processes or a directory behind, whose commands do not run, or that
needs more than the package.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import logstore
from logstore.tools.service.demo_parts import DEAD, ORDERS, SEARCH, VIEWS
from tests.tools.commands import COMMAND, environment, no_traceback, process
from tests.tools.pseudo_terminal import Terminal

PATIENCE_S = 120
# A Python without the packages of the extra 'web', as after an install without extras.
WITHOUT_WEB = """
import sys
for name in ("jinja2", "starlette", "uvicorn"):
    sys.modules[name] = None
"""


def processes_of(folder: Path) -> list[str]:
    """The processes whose command line names a folder."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("there is no /proc: processes cannot be looked for")
    found: list[str] = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            there = (each.parent / "cwd").readlink()
        except OSError:  # it has just ended, or is another user's
            continue
        if str(folder) in line or there.is_relative_to(folder):
            found.append(line)
    return found


def nothing_is_left(folder: Path) -> None:
    """No process, no file."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert list(folder.iterdir()) == []


@contextmanager
def running(folder: Path, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A demo in a folder."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**environment(), "TMPDIR": str(folder), **more},
    ) as demo:  # fmt: skip
        try:
            yield demo
        finally:
            demo.kill()


def first(demo: subprocess.Popen[str]) -> dict[str, str]:
    """What a demo with --json says first."""
    assert demo.stdout is not None
    found: dict[str, str] = json.loads(demo.stdout.readline())
    return found


def test_it_lives_a_worker_is_killed_and_all_goes_at_ctrl_c(tmp_path: Path) -> None:
    with running(tmp_path, "demo", "--no-browser", "--json") as demo:
        assert demo.stdout is not None
        path = first(demo)["path"]
        assert Path(path).is_relative_to(tmp_path)
        killed = json.loads(demo.stdout.readline())
        assert killed["task"] == "send_invoice"
        with logstore.open(path, encoding="utf-8", create=False) as store:
            views, orders = store.stream(VIEWS), store.stream(ORDERS)
            done = store.stream("jobs:results")
            deadline = time.monotonic() + PATIENCE_S
            # The job of the killed worker is done by another, and broken orders are dead letters.
            while not (store.stream(DEAD).count() and done.count() > 2):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert orders.count() > 0
            lag = next(group.lag for group in views.groups() if group.name == SEARCH)
            assert lag is not None
            assert lag > 0
        while Path(f"/proc/{killed['killed']}").exists():  # its pool looks ten times a second
            assert time.monotonic() < deadline
            time.sleep(0.1)
        demo.send_signal(signal.SIGINT)
        said, errors = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, errors
    assert no_traceback(errors)
    assert all("killed" in json.loads(line) for line in said.splitlines())
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_end_like_any_other(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "demo", "--json") as demo:
        first(demo)
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, errors) == (0, "")
    nothing_is_left(tmp_path)


def test_a_demo_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with running(tmp_path, "demo", "--json") as demo:
        first(demo)
        demo.kill()
        demo.wait()
    deadline = time.monotonic() + PATIENCE_S
    while processes_of(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_commands_that_it_prints_run(tmp_path: Path) -> None:
    with running(tmp_path, "demo", "--no-browser", "--for", "1h") as demo:
        assert demo.stdout is not None
        lines: list[str] = []
        while not lines or "Ctrl-C" not in lines[-1]:
            lines.append(demo.stdout.readline())
        commands = [line.split()[1:] for line in lines if line.startswith("  logstore ")]
        assert len(commands) == 6
        assert max(map(len, lines)) <= 80 + len(str(tmp_path))
        for command in commands:
            words = [word for word in command if word != "-f"]
            done = process(*words)
            assert done.returncode in {0, 3}, (command, done.stderr)
            assert done.stdout
        demo.terminate()
        assert demo.wait(PATIENCE_S) == 0


def test_it_ends_by_itself_and_keeps_what_it_is_told_to_keep(tmp_path: Path) -> None:
    with running(tmp_path, "demo", "--no-browser", "--for", "1s", "--keep") as demo:
        said, errors = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, errors
    path = said.splitlines()[-1].removeprefix("The store stays in ")
    assert process("check", path).returncode == 0
    assert processes_of(tmp_path) == []


def test_without_the_extra_a_line_says_so(tmp_path: Path) -> None:
    site = tmp_path / "without"
    site.mkdir()
    (site / "sitecustomize.py").write_text(WITHOUT_WEB)
    folder = tmp_path / "demos"
    folder.mkdir()
    paths = os.pathsep.join([str(site), environment()["PYTHONPATH"]])
    with running(folder, "demo", "--for", "500ms", PYTHONPATH=paths) as demo:
        said, errors = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, errors) == (0, "")
    told = [line for line in said.splitlines() if line.startswith("No web view")]
    assert len(told) == 1
    assert "[web]" in told[0]
    nothing_is_left(folder)


def test_a_browser_that_is_there_gets_the_address(tmp_path: Path) -> None:
    """It is asked for a page of the web view, which answers."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: install the extra 'web'")
    folder, seen = tmp_path / "demos", tmp_path / "seen"
    folder.mkdir()
    browser = tmp_path / "browser"
    browser.write_text(
        f"#!{sys.executable}\nimport sys, urllib.request as r\n"
        f"page = r.urlopen(sys.argv[1]).read()\nopen({str(seen)!r}, 'wb').write(page)\n"
    )
    browser.chmod(0o700)
    with running(folder, "web", "--demo", BROWSER=str(browser)) as demo:
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if line.startswith("In a browser"))
        assert re.fullmatch(r"In a browser: http://127\.0\.0\.1:\d+/\n", line)
        deadline = time.monotonic() + PATIENCE_S
        while not (seen.exists() and VIEWS.encode() in seen.read_bytes()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.terminate()
        assert demo.wait(PATIENCE_S) == 0
    nothing_is_left(folder)


@pytest.mark.parametrize("end", ["\x03", signal.SIGTERM])
def test_a_terminal_without_a_browser_gets_top(tmp_path: Path, end: str | signal.Signals) -> None:
    folder = tmp_path / "demos"
    folder.mkdir()
    terminal = Terminal("demo", "--no-browser", home=tmp_path, TMPDIR=str(folder))
    terminal.until("q leaves it")
    terminal.screen("page-views", "orders / billing", "quit")
    if isinstance(end, str):
        terminal.type("q")
        terminal.until("The store lives on")
        terminal.type(end)
    else:
        os.kill(terminal.pid, end)
    assert terminal.end() == 0
    assert b"Traceback" not in terminal.said
    nothing_is_left(folder)
