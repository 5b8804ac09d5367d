"""Prevents a shell that completes nothing, or that shows an error amid what is being typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import contents, environment, invoke, ok, segments

PROGRAM = Path(sys.executable).parent / "logstore"
TIMEOUT_S = 60


def asked(*words: str, shell: str = "zsh") -> list[str]:
    """The words that a shell is told when the last of ``words`` is being completed."""
    line = {"COMP_WORDS": " ".join(("logstore", *words)), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [PROGRAM], env=environment() | line | {"_LOGSTORE_COMPLETE": f"{shell}_complete"},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()[1::3]  # kind, word, help


@pytest.fixture(autouse=True)
def _is_installed() -> None:
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not there: the package is not installed")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams with names of all kinds, one with groups."""
    path = tmp_path_factory.mktemp("store") / "s"
    with logstore.open(path) as store:
        for name in ("orders", "orders:eu", "payments", b"orders\n", b"orders\xff"):
            store.stream(name).add({"a": "b"})
        for group in ("mail", "money", "stock"):
            store.stream("orders").group(group).create("0")
        store.stream("orders").group("mail").read("worker-1")
    return path


def test_streams_and_groups_of_the_store_are_completed(filled: Path) -> None:
    assert asked("pending", str(filled), "ord") == ["orders", "orders:eu"]
    assert asked("pending", str(filled), "orders", "m") == ["mail", "money"]
    assert asked("pending", str(filled), "nothing", "m") == []
    assert asked("configure", str(filled), "orders", "--group", "mo") == ["money"]
    assert asked("pending", str(filled), "orders", "mail", "--consumer", "w") == ["worker-1"]
    assert asked("claim", str(filled), "orders", "mail", "w") == ["worker-1"]
    for words in (["streams"], ["rename"], ["copy"], ["copy", "payments"]):
        command, *names = words
        assert asked(command, str(filled), *names, "orders:") == ["orders:eu"]
    assert asked("doctor", str(filled), "--ignore", "dead") == ["dead-share", "dead-letters"]
    assert asked("comp") == ["compact", "completion"]


def test_completion_changes_nothing(filled: Path, tmp_path: Path) -> None:
    """Also of a store that somebody was killed with, which an opener would make whole."""
    path = tmp_path / "killed"
    shutil.copytree(filled, path)
    with segments(path)[-1].open("ab") as log:
        log.write(b"\x07" * 25)  # a torn tail
    before = contents(path)
    assert asked("pending", str(path), "ord") == ["orders", "orders:eu"]
    assert asked("pending", str(path), "orders", "mo") == ["money"]
    assert contents(path) == before


@pytest.mark.parametrize("broken", ["no store", "no directory", "damaged"])
def test_completion_without_a_readable_store_is_silent(
    broken: str, filled: Path, tmp_path: Path
) -> None:
    path = tmp_path / "elsewhere"
    if broken == "no directory":
        path.write_text("a file")
    elif broken == "damaged":
        shutil.copytree(filled, path)
        for segment in path.glob("**/*.log"):
            segment.write_bytes(b"\xff" * 5000)
    assert asked("pending", str(path), "ord") == []
    assert path.exists() == (broken != "no store")


def test_bash_takes_the_script(filled: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    script = tmp_path / "script"
    script.write_text(ok("completion", "bash"))
    typed = f"""
        source {script}
        COMP_WORDS=(logstore delete {filled} pay) COMP_CWORD=3
        _logstore_completion logstore
        printf '%s\\n' "${{COMPREPLY[@]}}"
        complete -p logstore
    """
    env = environment() | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "--norc", "-c", typed], env=env, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    command, *rest = done.stdout.splitlines()
    if "_logstore_completion" not in done.stdout and "bash" in done.stderr.lower():
        pytest.skip(done.stderr)  # a bash too old for click's script
    assert command == "payments", done.stdout + done.stderr
    assert "-F _logstore_completion logstore" in rest[0]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_are_taken(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(ok("completion", shell))
    assert f"_LOGSTORE_COMPLETE={shell}_complete" in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", str(script)], timeout=TIMEOUT_S, check=True)


def test_another_shell_is_named(tmp_path: Path) -> None:
    done = invoke("completion", "tcsh")
    assert done.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr
