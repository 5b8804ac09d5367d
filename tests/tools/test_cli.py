"""Prevents commands without help, tracebacks for users, bars in pipes, noise on a closed pipe."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from logstore.tools.command_output import Output
from logstore.tools.commands import COMMANDS, SECTIONS
from tests.support.processes import run_program
from tests.tools.commands import (
    COMMAND,
    contents,
    environment,
    invoke,
    no_traceback,
    ok,
    piped,
    process,
)

READERS = (("range", "s"), ("tail", "s", "-n", "5000"), ("export", "s"))
ON_A_STORE = (
    "range s", "tail s", "streams", "info", "check", "retain", "compact", "export s", "recover",
)  # fmt: skip


def on(path: Path, command: str) -> list[str]:
    """A command line with the store in its place."""
    name, *rest = command.split()
    return [name, str(path), *rest]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(name: str) -> None:
    text = ok(name, "--help")
    if "COMMAND [ARGS]" in text:  # a group: so has each of its own
        below = text.partition("Commands:")[2].splitlines()
        each_of = [line.split()[0] for line in below if re.match(r"  \w", line)]
        texts = [ok(name, each, "--help") for each in each_of]
    else:
        texts = [text]
    for each in texts:
        # a program names its own store, the demo makes one
        assert "STORE" in each or name in {"work", "completion", "demo"}
        assert "--json" in each or name == "completion"  # a script for a shell


def test_the_group_lists_all_commands() -> None:
    text = ok("--help")
    assert all(f"  {name} " in text for name in COMMANDS)


def test_the_list_of_commands_is_short_and_loads_none_of_them() -> None:
    summaries = {name: text for each in SECTIONS.values() for name, (_, text) in each.items()}
    assert summaries.keys() == COMMANDS.keys()
    assert len(summaries) == sum(map(len, SECTIONS.values()))
    assert max(map(len, ok("--help").splitlines())) <= 80
    assert [text for text in summaries.values() if len(text) > 60 or text[-1] != "."] == []
    code = (
        "import sys; from logstore.tools.commands import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*(name for name in sys.modules if name.startswith('logstore.')))"
    )
    done = run_program(code)
    assert not {"logstore.api.store", "rich", "logging"} & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_usage_is_2(name: str) -> None:
    done = process(name, *(["--nothing"] if name == "demo" else []))  # nothing must be said to it
    assert done.returncode == 2
    assert b"Usage" in done.stderr
    assert no_traceback(done.stderr)


@pytest.mark.parametrize(("typed", "meant"), [("stream", "streams"), ("complete", "completion")])
def test_a_slip_in_a_command_is_answered_by_the_one_meant(typed: str, meant: str) -> None:
    done = invoke(typed, "events")
    assert done.exit_code == 2
    assert f"No such command {typed!r}. Did you mean " in done.stderr
    assert meant in done.stderr.partition("Did you mean ")[2]
    assert "Did you mean" not in invoke("zzz").stderr


@pytest.mark.parametrize("command", ON_A_STORE)
def test_no_store_is_one_line_and_no_store_is_made(command: str, empty: Path) -> None:
    done = process(*on(empty, command))
    assert done.returncode == (2 if command == "check" else 1)
    assert done.stdout == b""
    assert done.stderr.startswith(b"logstore: ")
    assert done.stderr.count(b"\n") == 1
    assert not empty.exists()


@pytest.mark.parametrize("command", ON_A_STORE)
def test_no_store_in_json(command: str, empty: Path) -> None:
    done = invoke(*on(empty, command), "--json")
    assert json.loads(done.stderr)["error"] == "NotAStoreError"


@pytest.mark.parametrize("command", [" ".join(one) for one in READERS])
def test_a_reader_that_goes_away_is_no_error(command: str, large: Path) -> None:
    code, line, said = piped(*on(large, command))
    assert (code, said) == (0, b"")
    assert line.count(b"\n") == 1


@pytest.mark.parametrize("command", ["range s", "tail s", "streams", "info", "export s"])
def test_reading_changes_no_byte(command: str, large: Path) -> None:
    before = contents(large)
    ok(*on(large, command))
    assert contents(large) == before


@pytest.mark.parametrize("command", ["range", "tail", "info", "export"])
def test_an_unknown_stream_is_named(command: str, store: Path) -> None:
    done = invoke(command, store, "nobody")
    assert done.exit_code == 1
    assert "'nobody'" in done.stderr


def test_a_bar_is_shown_on_a_terminal_only(large: Path, tmp_path: Path) -> None:
    """Export of the same store, its stderr a pipe and then a terminal."""
    target = str(tmp_path / "out.jsonl")
    assert process("export", large, "s", target).stderr == b""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "export", str(large), "s", target], stdout=subprocess.PIPE, stderr=theirs,
        env={**environment(), "TERM": "xterm"},
    ) as running:  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # Linux says so when the other side is closed
            pass
        assert running.wait(60) == 0
    os.close(ours)
    assert b"Exporting" in shown


@pytest.mark.parametrize("command", ["range s", "streams", "export s", "info --json"])
def test_a_stdout_that_is_closed_is_one_line(command: str, store: Path) -> None:
    name, *rest = command.replace(" s", " race").split()
    line = " ".join([*COMMAND, name, shlex.quote(str(store)), *rest, ">&-"])
    done = subprocess.run(
        line, shell=True, stderr=subprocess.PIPE, env=environment(), check=False, timeout=60
    )
    assert done.returncode == 1
    assert b"stdout is closed" in done.stderr
    assert no_traceback(done.stderr)


def test_an_interrupt_is_told_in_one_word(capfd: pytest.CaptureFixture[str]) -> None:
    """In a codec Python adds words of its own to it."""
    output = Output()
    output.error(KeyboardInterrupt("decoding with 'utf-8-sig' codec failed"))
    output.json = True
    output.error(KeyboardInterrupt())
    text, told = capfd.readouterr().err.splitlines()
    assert text == "logstore: interrupted"
    assert json.loads(told)["message"] == "interrupted"
