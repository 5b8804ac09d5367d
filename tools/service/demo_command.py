"""``logstore demo``: a living store in a temporary directory, to look at and to try commands on.

Its parts are processes of their own (``demo_parts``). Invariants: Ctrl-C, SIGTERM, SIGHUP and the
end of ``--for`` all end it the same way: each part is stopped, at last killed, and then the
directory is removed, unless ``--keep`` was given. A part that loses this process ends by itself.
The web view and the browser are extras: without them one line says so, and a terminal gets ``top``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Self

import click

from logstore.api.showing import quoted
from logstore.loading import load
from logstore.tools import command_options as options
from logstore.tools.command_output import Output

GRACE_S = 5.0  # for a part to end, then once more for what it started
ENDING = (signal.SIGTERM, signal.SIGHUP)
STEP_S = 0.2
TRY = (
    "streams {}", "tail -f {} orders", "groups {}", "dead list {}", "doctor {}", "top {}",
)  # fmt: skip
TOLD = (
    ("page-views", "come in waves; the group search-index is too slow for them, and lags"),
    ("orders", "the group billing acks them; broken ones go to orders:dead"),
    ("jobs", "a job for each order; a worker is killed every 12 s, and another takes its job"),
    ("sensors:hall-1", "a stream with a schema"),
)


@options.command("demo", store=False)
@click.option("--keep", is_flag=True, help="Leave the store where it is at the end.")
@click.option("--for", "length", type=options.LENGTH, help="End after so long, as 30s.")
@click.option("--browser/--no-browser", default=True, show_default=True,
              help="Open the web view; without it there is 'top'.")  # fmt: skip
def demo(output: Output, keep: bool, length: timedelta | None, browser: bool) -> None:
    """Show a living store: events, a slow group, dead letters, and jobs whose workers are killed.

    It is made in a temporary directory, which is removed at the end, by Ctrl-C. The web view opens
    in the browser if the extra 'web' is installed; else the terminal shows what 'top' does. The
    commands to try in another terminal are printed.
    """
    run(output, keep=keep, length=length, browser=browser)


def run(output: Output, *, keep: bool, length: timedelta | None, browser: bool) -> None:
    """The demo, until it is ended."""
    import shutil
    import tempfile

    ending = threading.Event()
    with _ended_by_signals(ending):
        folder = Path(tempfile.mkdtemp(prefix="logstore-demo-"))
        try:
            with suppress(KeyboardInterrupt), Parts(folder, ending) as parts:
                _show(output, parts, length, browser=browser)
        finally:
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
    if not output.json:
        stays = f"The store stays in {folder / 'store'}"
        output.line(stays if keep else "The store was removed: --keep would leave it.")


@contextmanager
def _ended_by_signals(ending: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGHUP interrupt the block as Ctrl-C does, once: the end is not to be cut off."""

    from logstore.signal_handlers import handled

    came = False

    def end(*_: object) -> None:
        # It may come while this thread waits for the event and has its lock: only look at it here.
        nonlocal came
        if not (came or ending.is_set()):
            came = True
            raise KeyboardInterrupt

    with handled(end, signal.SIGINT, *ENDING):
        yield


class Parts:
    """The processes of a demo; the end of the block is their end."""

    def __init__(self, folder: Path, ending: threading.Event) -> None:
        self.path = folder / "store"
        self.address = ""
        self.missing = ""  # why there is no web view
        self.ending = ending
        self.on_kill: Callable[[int, str], None] = lambda _pid, _task: None
        self._log = folder / "log.txt"
        self._running: list[subprocess.Popen[bytes]] = []
        self._asked = threading.Event()  # the web view has said its address, or why there is none

    def __enter__(self) -> Self:
        load("logstore.tools.service.demo_parts").prepare(self.path)
        return self

    def start(self, *, browser: bool) -> None:
        """Start all parts, and wait for the address of the web view."""
        parts = ["visitors", "readers", "workers", *(["web"] if browser else [])]
        for part in parts:
            self._start(part)
        if browser:
            self._asked.wait()

    def _start(self, part: str) -> None:
        """A part runs in the folder, where no module of the user hides one of Python's; it finds
        the package that runs here."""
        import logstore
        from logstore.tools.service.demo_jobs import STORE_VARIABLE

        package = str(Path(logstore.__file__).parent.parent)
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "logstore.tools.service.demo_parts", part,
                   str(self.path), str(os.getpid())]  # fmt: skip
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                cwd=self.path.parent, process_group=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths),
                     STORE_VARIABLE: str(self.path)},
            )  # fmt: skip
        self._running.append(process)
        threading.Thread(target=self._hear, args=(process, part), daemon=True).start()

    def _hear(self, process: subprocess.Popen[bytes], part: str) -> None:
        """Take what a part tells, until it ends."""
        import json

        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            self.address = said.get("address", self.address)
            self.missing = said.get("missing", self.missing)
            if "killed" in said:
                self.on_kill(said["killed"], said["task"])
            if part == "web":
                self._asked.set()
        if part == "web" and not self.address:
            self.missing = self.missing or "the web view did not start"
        if part == "web":
            self._asked.set()

    def __exit__(self, *_: object) -> None:
        """Stop all; whoever does not end in time is asked again, which ends what it started, too,
        and is killed at last."""
        self.ending.set()
        for end in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            for process in self._running:
                if process.poll() is None:
                    process.send_signal(end)
            for process in self._running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_S)


# -- what is shown ----------------------------------------------------------------------------
def _show(output: Output, parts: Parts, length: timedelta | None, *, browser: bool) -> None:
    parts.start(browser=browser)
    in_browser = bool(parts.address) and _open_browser(parts.address)
    if output.json:
        output.json_object({"path": str(parts.path), "address": parts.address or None})
    else:
        _tell(output, parts, browser=browser, in_browser=in_browser)
    output.flush()

    def tell_kill(pid: int, task: str) -> None:
        if output.json:
            output.json_object({"killed": pid, "task": task})
        else:
            output.line(f"Worker {pid} was killed in the middle of {task}; another one is started.")
        output.flush()

    if not in_browser and not output.json and output.can_redraw and sys.stdin.isatty():
        if _top(output, parts, length) or length is not None:
            return
        output.line("The store lives on: try the commands above in another terminal.")
        output.line("Ctrl-C ends it.")
        output.flush()
    parts.on_kill = tell_kill
    parts.ending.wait(None if length is None else length.total_seconds())


def _tell(output: Output, parts: Parts, *, browser: bool, in_browser: bool) -> None:
    """What is there, and what can be done with it."""
    output.line(f"A living store: {parts.path}")
    output.table(("", ""), TOLD)
    output.line("")
    if parts.address:
        opened = "" if in_browser else " (no browser was found to open it)"
        output.line(f"In a browser: {parts.address}{opened}")
    elif browser:
        output.words(f"No web view: {parts.missing}")
    output.line("Try, in another terminal:")
    path = quoted(str(parts.path))
    for each in TRY:
        output.line(f"  logstore {each.format(path)}")
    output.line("Ctrl-C ends it.")


def _top(output: Output, parts: Parts, length: timedelta | None) -> bool:
    """What ``top`` shows, after a moment for what was printed, until 'q' or the end; whether a
    signal asks for the end of all."""
    from logstore.tools.views import top

    output.line("'top' comes in 3 seconds; q leaves it.")
    output.flush()
    parts.ending.wait(3)
    times = 0 if length is None else max(1, round(length.total_seconds()))
    with options.reading(parts.path) as store:
        return top.show(output, store, parts.path, 1.0, times)


def _open_browser(address: str) -> bool:
    """Open an address in a graphical browser; whether there is one."""
    import webbrowser

    shown = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in shown):
        return False  # what would be found shows pages in this terminal
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    threading.Thread(target=found.open, args=(address,), daemon=True).start()
    return True
