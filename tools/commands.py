"""The command ``logstore``: a group of commands, each loaded when it is used; errors become a line
and a code.

Exit codes: 0 done, 1 an error, 2 wrong usage, 130 interrupted. ``check`` has its own. Invariants:
an error of logstore shows no traceback; a reader of stdout that goes away ends a command quietly.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from click.shell_completion import get_completion_class

from logstore import __version__, logger
from logstore.errors import CommittedInterrupt, Error, UsageError
from logstore.loading import load
from logstore.tools import command_options as options
from logstore.tools.command_output import EXIT_ERROR, EXIT_INTERRUPTED, Output

# Names to modules and functions: a command loads only what it needs.
COMMANDS = {
    "add": "entry_commands:add",
    "range": "entry_commands:range_",
    "tail": "entry_commands:tail",
    "streams": "views.overview:streams",
    "delete": "stream_changes:delete",
    "trim": "stream_changes:trim",
    "drop": "stream_changes:drop",
    "rename": "stream_changes:rename",
    "copy": "stream_changes:copy",
    "configure": "stream_changes:configure",
    "expire": "stream_changes:expire",
    "schedule": "stream_changes:schedule",
    "groups": "group_commands:groups",
    "pending": "group_commands:pending",
    "ack": "group_commands:ack",
    "claim": "group_commands:claim",
    "dead": "group_commands:dead",
    "info": "views.overview:info",
    "du": "views.overview:du",
    "map": "views.segment_map:map_",
    "inspect": "views.inspect_commands:inspect",
    "doctor": "views.doctor:doctor",
    "metrics": "views.top:metrics",
    "top": "views.top:top",
    "ping": "upkeep:ping",
    "check": "upkeep:check_store",
    "recover": "upkeep:recover",
    "checkpoint": "upkeep:checkpoint",
    "backup": "upkeep:backup",
    "ship": "upkeep:ship",
    "verify": "upkeep:verify",
    "restore": "upkeep:restore",
    "retain": "upkeep:retain",
    "compact": "upkeep:compact",
    "pins": "upkeep:pins",
    "import": "interchange.import_command:import_",
    "export": "interchange.export_command:export_",
    "sql": "entry_commands:sql",
    "serve": "service.serve_commands:serve",
    "web": "service.serve_commands:web",
    "work": "service.serve_commands:work",
    "redis": "interchange.redis_commands:redis",
    "completion": "commands:completion",
}
# What the list of commands says of each, so that no module is loaded for it; 60 characters at most.
SUMMARIES = {
    "Entries": {
        "add": "Add an entry.",
        "range": "Print entries from one ID, or moment, to another.",
        "tail": "Print the newest entries, and go on with those that come.",
        "import": "Add the rows of a file: CSV, JSON, Parquet, Arrow.",
        "export": "Write a stream to a file: JSON lines, CSV, Parquet.",
        "sql": "Ask DuckDB about the entries.",
    },
    "Streams": {
        "streams": "List the streams.",
        "info": "Tell about the store, or about one stream.",
        "configure": "Set what a stream keeps, or how a group redelivers.",
        "delete": "Delete entries.",
        "trim": "Drop the oldest entries.",
        "expire": "Set when a whole stream goes.",
        "schedule": "Have entries wait for their time, once or repeatedly.",
        "rename": "Give a stream another name.",
        "copy": "Copy a stream with its groups.",
        "drop": "Remove a stream.",
    },
    "Groups and jobs": {
        "groups": "List groups, and how far they are.",
        "pending": "List what was delivered and not acknowledged.",
        "ack": "Say that entries are done.",
        "claim": "Give pending entries to another consumer.",
        "dead": "Look at dead letters, give them back, or drop them.",
        "work": "Do the jobs of a program.",
    },
    "Seeing inside": {
        "top": "Show what goes on now.",
        "doctor": "Tell what is wrong or slow, and what mends it.",
        "du": "Tell what takes the space.",
        "map": "Draw the segments.",
        "inspect": "Show what lies in the files, also behind damage.",
        "metrics": "Write the numbers that Prometheus reads.",
    },
    "Looking after a store": {
        "ping": "A health check.",
        "check": "Verify every frame.",
        "recover": "Make a store whole after a crash.",
        "backup": "Copy a store that is in use.",
        "verify": "Tell whether a backup is whole.",
        "restore": "Make a store of a backup.",
        "ship": "Publish a store at a URI: S3, GCS, HDFS.",
        "retain": "Drop what streams no longer keep.",
        "compact": "Give deleted space back.",
        "checkpoint": "Have a lost index rebuilt sooner.",
        "pins": "List what keeps segments from compaction.",
    },
    "Serving": {
        "serve": "Serve clients of Redis and Valkey.",
        "web": "Show a store in a browser.",
        "redis": "Carry streams from and to Redis and Valkey.",
        "completion": "Print the script that completes words in a shell.",
    },
}


class Lazy(click.Group):
    """Finds commands in their modules: ``modules`` maps a command's name to its module's."""

    def __init__(self, *args: Any, modules: dict[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(self._modules)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; an unknown one is answered by those that it may mean."""
        if args and args[0] not in self._modules and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], self._modules)
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name."""
        if cmd_name not in self._modules:
            return None
        module, _, function = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(load(f"logstore.tools.{module}"), function)
        return command


class Commands(Lazy):
    """The group: ends all of its commands the same way."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, by what they are for."""
        for title, summaries in SUMMARIES.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:10}", text) for name, text in summaries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; leave with its exit code."""
        output = ctx.ensure_object(Output)
        try:
            super().invoke(ctx)
            output.flush()
        except (KeyboardInterrupt, CommittedInterrupt) as interrupt:
            if output.context or isinstance(interrupt, Error):
                output.error(interrupt)
            output.exit_code = EXIT_INTERRUPTED
        except BrokenPipeError:
            output.abandon()
        except (Error, OSError) as error:
            output.error(error)
            output.exit_code = output.exit_code or EXIT_ERROR
        ctx.exit(output.exit_code)


@click.group(
    cls=Commands, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="logstore")
@click.option("-v", "--verbose", is_flag=True, help="Also tell what opening the store did.")
def main(verbose: bool) -> None:
    """Look into, feed and care for a logstore: a directory with streams."""
    if verbose or "logging" in sys.modules:
        _tell(verbose)
    else:  # logging is loaded when there is something to tell
        logger.at_first_use(_tell)


PROGRAM = "logstore"
VARIABLE = "_LOGSTORE_COMPLETE"  # by which the script asks: click's name for this program
SHELLS = ["bash", "zsh", "fish"]


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@options.pass_output
def completion(output: Output, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, paths and streams.

    \b
    bash  logstore completion bash > ~/.local/share/bash-completion/completions/logstore
    zsh   logstore completion zsh > "${fpath[1]}/_logstore"
    fish  logstore completion fish > ~/.config/fish/completions/logstore.fish
    """
    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is None:  # a later click may do without a shell
        raise UsageError(f"this version of click does not know {shell}")
    for line in found(root, {}, PROGRAM, VARIABLE).source().splitlines():
        output.line(line)


def _tell(verbose: bool = False) -> None:
    """Let the store's log appear on stderr."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("logstore: %(message)s"))
    log = logging.getLogger("logstore")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO if verbose else logging.WARNING)
