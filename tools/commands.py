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
from logstore.tools.command_help import Command
from logstore.tools.command_output import EXIT_ERROR, EXIT_INTERRUPTED, Output

# Commands by what they are for, with their modules, which are loaded when a command is used, and
# their line in the list of commands, of 60 characters at most.
SECTIONS = {
    "Entries": {
        "add": ("entry_commands", "Add an entry."),
        "range": ("entry_commands", "Print entries from one ID, or moment, to another."),
        "tail": ("entry_commands", "Print the newest entries, and go on with those that come."),
        "import": (
            "interchange.import_command",
            "Add the rows of a file: CSV, JSON, Parquet, Arrow.",
        ),
        "export": (
            "interchange.export_command",
            "Write a stream to a file: JSON lines, CSV, Parquet.",
        ),
        "sql": ("sql.sql_command", "Ask DuckDB about the entries, once or at a prompt."),
    },
    "Streams": {
        "streams": ("views.overview", "List the streams."),
        "info": ("views.overview", "Tell about the store, or about one stream."),
        "configure": ("stream_changes", "Set what a stream keeps, or how a group redelivers."),
        "schema": ("schema_commands", "Show, infer or set the columns of a stream."),
        "delete": ("stream_changes", "Delete entries."),
        "trim": ("stream_changes", "Drop the oldest entries."),
        "expire": ("stream_changes", "Set when a whole stream goes."),
        "schedule": ("stream_changes", "Have entries wait for their time, once or repeatedly."),
        "rename": ("stream_changes", "Give a stream another name."),
        "copy": ("stream_changes", "Copy a stream with its groups."),
        "drop": ("stream_changes", "Remove a stream."),
    },
    "Groups and jobs": {
        "groups": ("group_commands", "List groups, and how far they are."),
        "pending": ("group_commands", "List what was delivered and not acknowledged."),
        "ack": ("group_commands", "Say that entries are done."),
        "claim": ("group_commands", "Give pending entries to another consumer."),
        "dead": ("group_commands", "Look at dead letters, give them back, or drop them."),
        "work": ("service.serve_commands", "Do the jobs of a program."),
    },
    "Seeing inside": {
        "top": ("views.top", "Show what goes on now."),
        "doctor": ("views.doctor", "Tell what is wrong or slow, and what mends it."),
        "du": ("views.overview", "Tell what takes the space."),
        "map": ("views.segment_map", "Draw the segments."),
        "inspect": ("views.inspect_commands", "Show what lies in the files, also behind damage."),
        "metrics": ("views.prometheus_text", "Write the numbers that Prometheus reads."),
    },
    "Looking after a store": {
        "ping": ("upkeep", "A health check."),
        "check": ("upkeep", "Verify every frame."),
        "recover": ("upkeep", "Make a store whole after a crash."),
        "backup": ("upkeep", "Copy a store that is in use."),
        "verify": ("upkeep", "Tell whether a backup is whole."),
        "restore": ("upkeep", "Make a store of a backup."),
        "ship": ("upkeep", "Publish a store at a URI: S3, GCS, HDFS."),
        "upgrade": ("upkeep", "Bring a store to today's format; or back."),
        "retain": ("upkeep", "Drop what streams no longer keep."),
        "compact": ("upkeep", "Give deleted space back."),
        "checkpoint": ("upkeep", "Have a lost index rebuilt sooner."),
        "pins": ("upkeep", "List what keeps segments from compaction."),
    },
    "Serving": {
        "serve": ("service.serve_commands", "Serve clients of Redis and Valkey."),
        "web": ("service.serve_commands", "Show a store in a browser."),
        "redis": ("interchange.redis_commands", "Carry streams from and to Redis and Valkey."),
        "demo": ("service.demo_command", "Show a living store, to look at and to try commands."),
        "completion": ("commands", "Print the script that completes words in a shell."),
    },
}
COMMANDS = {name: module for each in SECTIONS.values() for name, (module, _) in each.items()}


class Commands(options.CommandGroup):
    """The group: finds commands in their modules, and ends all of them the same way."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name. Its function has the same name, with a _ behind it where Python
        has a built-in of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = load(f"logstore.tools.{COMMANDS[cmd_name]}")
        found: click.Command = getattr(module, f"{cmd_name}_", None) or getattr(module, cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, by what they are for."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:10}", text) for name, (_, text) in commands.items()])

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


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="logstore")
@click.option("-v", "--verbose", is_flag=True, help="Also tell what opening the store did.")
def main(verbose: bool) -> None:
    """Look into, feed and care for a logstore: a directory with streams."""
    if verbose or "logging" in sys.modules:
        _log_to_stderr(verbose)
    else:  # logging is loaded when there is something to tell
        logger.at_first_use(_log_to_stderr)


PROGRAM = "logstore"
VARIABLE = "_LOGSTORE_COMPLETE"  # the variable of the script, by click's rule
SHELLS = ["bash", "zsh", "fish"]


@click.command("completion", cls=Command)
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


def _log_to_stderr(verbose: bool = False) -> None:
    """Let the store's log appear on stderr."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("logstore: %(message)s"))
    log = logging.getLogger("logstore")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO if verbose else logging.WARNING)
