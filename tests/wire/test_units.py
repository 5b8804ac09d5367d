"""Prevents units and other ready files that systemd or logstore does not take, that differ from the
documentation, or that confine the server less than it says.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import click
import pytest

import logstore
from logstore.tools.commands import main
from tests.house.repo import ROOT
from tests.tools.commands import COMMAND, environment

DEPLOY = ROOT / "examples" / "deploy"
EXPOSURE_MAX = 20  # tenths
APPLICATION = """
from logstore.jobs import Jobs
from only_of_the_application import ANSWER

jobs = Jobs("work.store")


@jobs.task
def answer() -> int:
    return ANSWER
"""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit of docs/security.md, for a command that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    found = re.search(r"```ini\n(.*?)```", (ROOT / "docs" / "security.md").read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "logstore.service"
    path.write_text(found[1].replace("/usr/bin/logstore", sys.executable))
    return path


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """What systemd-analyze says."""
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_units_are_understood(unit: Path) -> None:
    for ready in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")):
        text = re.sub(r"/(usr|opt/APP/venv)/bin/logstore", sys.executable, ready.read_text())
        (unit.parent / ready.name).write_text(text)
    names = [path.name for path in unit.parent.iterdir()]
    assert len(names) == 7
    done = analyze("verify", *(str(unit.parent / name) for name in names))
    assert [line for line in done.stderr.splitlines() if any(name in line for name in names)] == []


def test_the_unit_is_that_of_the_ready_files() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    assert f"```ini\n{(DEPLOY / 'logstore.service').read_text()}```" in page


@pytest.mark.parametrize(
    "file",
    ["logstore.service", *(f"logstore-{name}.service" for name in ("doctor", "web", "work")),
     "Dockerfile"],
)  # fmt: skip
def test_commands_of_the_ready_files_parse(file: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    text = (DEPLOY / file).read_text().replace("\\\n", " ")
    text = re.sub(r"/run/secrets/logstore-|\$\{CREDENTIALS_DIRECTORY\}/", f"{tmp_path}/", text)
    if file == "Dockerfile":
        lines = [json.loads(found) for found in re.findall(r"CMD (\[.*\])", text)]
        started = [words[words[0] == "logstore" :] for words in lines]
        assert [words[0] for words in started] == ["ping", "serve"]
    else:
        command_lines = re.findall(r"^ExecStart=/\S+/bin/logstore (.*)", text, re.MULTILINE)
        started = [shlex.split(line) for line in command_lines]
        assert len(started) == 1
    for name, *words in started:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        command.make_context(name, words)  # raises UsageError


def test_the_unit_of_workers_runs_the_python_of_the_application(tmp_path: Path) -> None:
    """What the application imports is installed where it runs; the server's Python has none of it.

    The line of the unit runs as it stands, but for the paths, and does a job.
    """
    text = (DEPLOY / "logstore-work.service").read_text().replace("/opt/", f"{tmp_path}/")
    (folder,) = re.findall(r"^WorkingDirectory=(.*)$", text, re.MULTILINE)
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    (script,) = shlex.split(line)[:1]
    assert Path(script).is_relative_to(folder), "it is not the application's"
    prefix = Path(script).parent.parent
    venv.create(prefix, symlinks=True)
    site = next(prefix.glob("lib/python3*/site-packages"))
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path))
    (site / "only_of_the_application.py").write_text("ANSWER = 42\n")
    Path(script).write_text(f"#!{prefix}/bin/python\nfrom logstore.tools.cli import main\nmain()\n")
    Path(script).chmod(0o755)
    (Path(folder) / "app.py").write_text(APPLICATION)
    asked = "import app; print(app.answer.delay().result(timeout=60))"
    with subprocess.Popen(shlex.split(line), cwd=folder, env=environment()) as workers:
        try:
            said = subprocess.run(
                [f"{prefix}/bin/python", "-c", asked], cwd=folder, env=environment(),
                capture_output=True, text=True, timeout=120, check=True,
            )  # fmt: skip
            assert said.stdout == "42\n"
            workers.terminate()
            assert workers.wait(60) == 0
        finally:
            workers.kill()


def test_the_synopsis_of_the_server_is_that_of_the_command() -> None:
    """Its options, their choices, of which the default comes first, and other defaults."""
    text = (ROOT / "docs" / "redis.md").read_text()
    synopsis = text.partition("```text\nlogstore serve STORE ")[2].partition("```")[0]
    told = dict(re.findall(r"(--[a-z-]+)(?: ([^\s\]]+))?", synopsis))
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    options = {each.opts[0]: each for each in command.params if isinstance(each, click.Option)}
    assert set(told) == set(options)
    for name, value in told.items():
        option = options[name]
        assert bool(value) is not option.is_flag, name
        if isinstance(option.type, click.Choice):
            assert sorted(value.split("|")) == sorted(option.type.choices)
        if isinstance(option.default, str | float | int) and not option.is_flag:
            assert value.split("|")[0] == str(option.default).removesuffix(".0"), name


def test_the_backup_of_the_unit_is_verified_and_old_ones_go(tmp_path: Path) -> None:
    """Its shell command runs as it stands, but for the paths."""
    with logstore.open(tmp_path / "logstore" / "events") as store:
        store.stream("s").add({"a": "b"})
    backups = tmp_path / "logstore-backup"
    for day in range(10, 30):
        (backups / f"2026-01-{day}T000000Z").mkdir(parents=True)
    text = (DEPLOY / "logstore-backup.service").read_text().replace("\\\n", "")
    shell = re.findall(r"^ExecStart=/bin/sh -ec '(.*)'$", text, re.MULTILINE)[0]
    shell = shell.replace("$$", "$").replace("%%", "%").replace("/var/lib", str(tmp_path))
    shell = shell.replace("/usr/bin/logstore", " ".join(COMMAND))
    command = ["/bin/sh", "-ec", shell]
    subprocess.run(command, env=environment(), timeout=60, check=True)
    left = sorted(backups.iterdir())
    assert len(left) == 14
    assert left[0].name == "2026-01-17T000000Z"
    with logstore.open(left[-1], readonly=True) as saved:
        assert len(saved["s"]) == 1
    shutil.rmtree(tmp_path / "logstore")  # nothing to back up: the unit fails, and nothing goes
    assert subprocess.run(command, env=environment(), timeout=60, check=False).returncode != 0
    assert len(list(backups.iterdir())) == 14


def test_the_compose_file_names_files_that_are_there_and_its_backup_runs(tmp_path: Path) -> None:
    """Its shell command runs as it stands, but for the paths."""
    text = (DEPLOY / "compose.yaml").read_text()
    (context,) = re.findall(r"context: (\S+)", text)
    (dockerfile,) = re.findall(r"dockerfile: (\S+)", text)
    assert (DEPLOY / context / dockerfile).resolve() == DEPLOY / "Dockerfile"
    used = set(re.findall(r"^ +- (\w+):/", text, re.MULTILINE))
    assert used == set(re.findall(r"^  (\w+): \{\}", text, re.MULTILINE)) == {"events", "backups"}
    # A new volume belongs to root, unless the image has a directory of the user there.
    places = set(re.findall(r"^ +- \w+:(/\w+)$", text, re.MULTILINE))
    made = re.findall(r"install -d -m 0700 -o logstore (.*)", (DEPLOY / "Dockerfile").read_text())
    assert places == set(made[0].split()) == {"/data", "/backup"}
    with logstore.open(tmp_path / "data" / "events") as store:
        store.stream("s").add({"a": "b"})
    (shell,) = re.findall(r"command:\n +- \|\n((?: {8}.*\n)+)", text)
    shell = re.sub(r"/(?=data/|backup/)", f"{tmp_path}/", shell.replace("$$", "$"))
    shell = shell.replace("logstore ", " ".join(COMMAND) + " ")
    (tmp_path / "backup").mkdir()
    subprocess.run(["/bin/sh", "-ec", shell], env=environment(), timeout=60, check=True)
    (saved,) = (tmp_path / "backup").iterdir()
    with logstore.open(saved, readonly=True) as store:
        assert len(store["s"]) == 1


def test_the_unit_confines(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(unit))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze does not look at files")
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_no_call_that_the_store_needs_is_filtered(unit: Path) -> None:
    allowed, refused = _calls("@system-service") | _calls("@default"), _calls("@privileged")
    refused |= _calls("@resources")
    assert "SystemCallFilter=@system-service\n" in unit.read_text()
    needed = {"futex", "flock", "fsync", "fdatasync", "fallocate", "msync", "mmap", "statx"}
    if not allowed:
        pytest.skip("this systemd-analyze lists no system calls")
    assert needed <= allowed - refused


def _calls(name: str) -> set[str]:
    """The system calls of a set, those of its sets included."""
    found: set[str] = set()
    for line in analyze("syscall-filter", name).stdout.splitlines():
        word = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
        if not word or word.startswith("#") or word == name:
            continue
        found |= _calls(word) if word.startswith("@") else {word}
    return found
