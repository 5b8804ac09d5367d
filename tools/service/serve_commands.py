"""``logstore serve``, ``web`` and ``work``: commands that run until they are stopped.

What ``serve`` does is in ``server_process``, which is loaded to do it.

Invariants: ``web`` opens the store read-only unless it may write. Beyond loopback, and where it may
write, a browser must show the token that is printed. A stop (Ctrl-C, SIGTERM) ends each process of
``work`` after its running job; a second stop ends it at once. With --drain the exit code is 0 only
if there was a moment without a job. Progress is shown on a terminal only; the report at the end is
always written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from logstore.errors import StreamNotFoundError, UsageError
from logstore.loading import load, needing
from logstore.options import Profile
from logstore.tools import command_options as options
from logstore.tools.command_options import F
from logstore.tools.command_output import Output
from logstore.tools.service.listen_refusals import refusal
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.options import Sync
    from logstore.web.app import Server

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_BYTES = 24
PROGRESS_S = 1.0
_PORT = options.number(0, 65535)
_SECRET = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Mode(click.ParamType[int]):
    """Rights of a file in octal digits."""

    name = "mode"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch("0?[0-7]{3}", value):
            self.fail(f"{value!r} is no mode: give three octal digits, such as 770", param, ctx)
        return int(value, 8)


def _listening(port: int) -> Callable[[F], F]:
    """The options --host and --port."""

    def made(command: F) -> F:
        command = click.option("--port", type=_PORT, default=port, show_default=True,
                               help="0: any free one, which is printed.")(command)  # fmt: skip
        return click.option(
            "--host", default="127.0.0.1", show_default=True, help="Where to listen."
        )(command)

    return made


# -- serve ----------------------------------------------------------------------------------------
class ServeOptions(NamedTuple):
    """The options of ``serve``, as they were typed."""

    host: str
    port: int
    unixsocket: Path | None
    unixsocket_mode: int | None
    requirepass_file: Path | None
    aclfile: Path | None
    auth_timeout: timedelta
    tls_cert: Path | None
    tls_key: Path | None
    compat: Profile
    sync: Sync
    databases: tuple[str, ...]
    allow_flush: bool
    metrics_port: int | None
    metrics_host: str


@options.command("serve")
@_listening(6379)
@click.option("--unixsocket", type=click.Path(path_type=Path), help="Also listen on this path.")
@click.option(
    "--unixsocket-mode",
    type=_Mode(),
    help="Who may connect there, as chmod says it in octal digits: 770 is its group, too.",
)
@click.option("--requirepass-file", type=_SECRET,
              help="A file with the password of the default user.")  # fmt: skip
@click.option("--aclfile", type=_SECRET,
              help="A file with users and what they may do, as Redis has it.")  # fmt: skip
@click.option("--auth-timeout", type=options.length_at_least("1ms"), default="10s",
              show_default=True,
              help="A client that has not given the password by then is cut off.")  # fmt: skip
@click.option("--tls-cert", type=_SECRET)
@click.option("--tls-key", type=_SECRET)
@click.option("--compat", type=click.Choice(get_args(Profile)), default="redis-8.10",
              show_default=True, help="Whose commands and replies.")  # fmt: skip
@options.sync_option
@click.option("--database", "databases", multiple=True, metavar="N=PATH",
              help="Another store, which SELECT N chooses; STORE is number 0.")  # fmt: skip
@click.option("--allow-flush", is_flag=True, help="FLUSHALL and FLUSHDB remove everything.")
@click.option("--metrics-port", type=_PORT,
              help="Answer Prometheus here: /metrics, /health, /ready.")  # fmt: skip
@click.option("--metrics-host", default="127.0.0.1", show_default=True,
              help="Where; it asks for no password.")  # fmt: skip
def serve(output: Output, path: Path, **given: Any) -> None:
    """Serve STORE to clients of Redis and Valkey until interrupted; it is made if it is missing.

    Other processes may have the store open meanwhile. Beyond loopback a password is needed.
    systemd is told of the start, the end and the watchdog (Type=notify, WatchdogSec=).
    """
    load("logstore.tools.service.server_process").serve(output, path, ServeOptions(**given))


# -- web ------------------------------------------------------------------------------------------
def _show_demo(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    """The callback of --demo: the demo in place of the command."""
    if value and not ctx.resilient_parsing:
        ctx.invoke(load("logstore.tools.service.demo_command").demo)
        ctx.exit()


@options.command("web")
@_listening(8080)
@click.option("--write", is_flag=True, help="Let dead letters be tried again and dropped.")
@click.option("--demo", is_flag=True, is_eager=True, expose_value=False, callback=_show_demo,
              help="Show the living store of 'logstore demo', at any free port.")  # fmt: skip
def web(output: Output, path: Path, host: str, port: int, write: bool) -> None:
    """Show STORE in a browser until interrupted: streams, entries, groups, dead letters, segments.

    The address is printed. It has a token in it where more can be reached than this machine's own
    pages, or where something can be changed. Needs the extra 'web'.
    """
    import secrets

    make_server = needing("web", _server_class)
    token = secrets.token_urlsafe(TOKEN_BYTES) if write or host not in LOOPBACK else ""
    with options.changing(path) if write else options.reading(path) as store:
        server = make_server(store, host, port, token, write=write)
        try:
            server.bind()
        except OSError as exc:
            raise refusal(host, port, exc) from exc
        if output.json:
            output.json_object({"path": str(path), "address": server.address()})
        else:
            output.line(server.address())
        output.flush()
        server.run()


def _server_class() -> type[Server]:
    from logstore.web.app import Server

    return Server


# -- work -----------------------------------------------------------------------------------------
@options.command("work", store=False)
@click.argument("app", metavar="MODULE:JOBS")
@click.option("--processes", type=options.number(1, 1000), default=1, show_default=True,
              help="How many jobs are done at once.")  # fmt: skip
@click.option("--batch", type=options.number(1, 10_000), default=4, show_default=True,
              help="Jobs that a process fetches at once while they are quick.")  # fmt: skip
@click.option("--grace", type=options.LENGTH, default="30s", show_default=True,
              help="How long a running job may go on after a stop.")  # fmt: skip
@click.option("--drain", is_flag=True, help="End when no job is left.")
def work(
    output: Output, app: str, processes: int, batch: int, grace: timedelta, drain: bool
) -> None:
    """Do the jobs of a queue: MODULE:JOBS names the Jobs(...) of a program, as app:jobs.

    Processes that die are started again, and their jobs go to others. Ctrl-C or SIGTERM ends each
    process after its running job; a second one at once.

    With --drain it ends when no job waits, runs, also of workers that died, or is to be tried
    again, which it waits for. Jobs that are scheduled for later stay. Stopped before, it ends
    with 1 if jobs are left.
    """
    from logstore.jobs.pool import Pool
    from logstore.jobs.pool import load as load_jobs
    from logstore.signal_handlers import stopped_by_signals

    with load_jobs(app) as jobs:
        jobs.ready()
        begun, before = time.monotonic(), jobs.info()
        left = (lambda: jobs.info().left) if drain else None
        pool = Pool(app, processes, batch=batch, grace_s=grace.total_seconds(), left=left)
        with stopped_by_signals(pool.stop), output.live() as show:
            pool.run(_progress_line(jobs, show))
        after = jobs.info()
    output.report(
        {
            "finished": after.finished - before.finished,
            "dead": after.dead,
            "waiting": after.waiting,
            "retrying": after.retrying,
            "scheduled": after.scheduled,
            "workers_died": pool.died,
            "workers_killed": pool.killed,
            "seconds": round(time.monotonic() - begun, 1),
        }
    )
    if drain and not pool.drained and after.left:
        raise UsageError(
            f"stopped before the end, with {after.left} of the jobs left: run it again"
        )


def _progress_line(jobs: Any, show: Callable[[str], None] | None) -> Callable[[int], None]:
    """A function that shows a line of progress about once a second, on a terminal."""
    state: dict[str, float] = {"at": 0.0, "finished": -1}

    def show_counts(running: int) -> None:
        now = time.monotonic()
        if show is None or now - state["at"] < PROGRESS_S:
            return
        try:
            info, longest = jobs.info(), jobs.running()[:1]
        except StreamNotFoundError:
            return
        rate = (info.finished - state["finished"]) / (now - state["at"])
        rated = f" ({rate:,.0f}/s)" if state["finished"] >= 0 else ""
        state.update(at=now, finished=info.finished)
        counts = [
            f"{running} workers",
            f"{info.running:,} running" + "".join(map(_longest, longest)),
            f"{info.waiting:,} waiting",
            *(f"{count:,} {what}" for what, count in (
                ("dead", info.dead), ("retrying", info.retrying), ("scheduled", info.scheduled)
            ) if count),
            f"{info.finished:,} finished{rated}",
        ]  # fmt: skip
        show(", ".join(counts))

    return show_counts


def _longest(job: Any) -> str:
    """The task that runs longest, and for how long."""
    return f" ({job.task} {job.since.total_seconds():,.0f} s)"
