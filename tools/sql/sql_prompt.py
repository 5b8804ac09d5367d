"""The prompt of ``logstore sql``: lines that are edited, kept as a history, and completed.

Invariants: a line is asked for until its statement ends with a semicolon; completing reads no
entry. Without prompt_toolkit there is a plain prompt, which says so.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore.loading import installing
from logstore.tools.command_output import Output
from logstore.tools.sql.stream_tables import StreamTables, is_whole, quoted

if TYPE_CHECKING:
    import duckdb
    from prompt_toolkit.history import History

PROMPT = "sql> "
FURTHER = "...> "
SHOWN_MAX = 200  # more words help nobody
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_WORD = re.compile(r"\w*\Z")


def reader(
    output: Output,
    tables: StreamTables,
    con: duckdb.DuckDBPyConnection,
    dotted: Sequence[str],
    modes: Sequence[str],
) -> Callable[[], str]:
    """What asks for the next statement or dot command; EOFError at the end of file,
    KeyboardInterrupt at Ctrl-C."""
    try:
        from prompt_toolkit import PromptSession
    except ModuleNotFoundError:
        output.beside(
            "a plain prompt, for prompt_toolkit is not installed, which completes and keeps a "
            f"history: {installing('duckdb')}"
        )
        return plainly
    from prompt_toolkit.application import get_app
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.filters import Condition

    words = Words(tables, con, dotted, modes)

    class Completed(Completer):
        """The words, as prompt_toolkit asks for them."""

        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:  # noqa: ARG002
            begun, found = words.completing(document.text_before_cursor, document.text)
            for each in islice(found, SHOWN_MAX):
                yield Completion(each, start_position=-len(begun))

    output.line("Statements end with a semicolon; .help tells more, .quit ends.")
    output.flush()
    session: PromptSession[str] = PromptSession(
        PROMPT,
        multiline=Condition(lambda: not is_ended(get_app().current_buffer.text)),
        prompt_continuation=FURTHER,
        history=history(),
        completer=Completed(),
        complete_while_typing=False,
        enable_history_search=True,
    )
    return session.prompt


def plainly() -> str:
    """Ask with Python's own prompt."""
    with suppress(ImportError):
        importlib.import_module("readline")  # edits the line that input() reads
    text = input(PROMPT)
    while not is_ended(text):
        text += "\n" + input(FURTHER)
    return text


def is_ended(text: str) -> bool:
    """Whether a text needs no further line."""
    stripped = text.strip()
    return not stripped or stripped.startswith(".") or is_whole(text)


def history() -> History:
    """The history: a file in the user's state directory, else one for this time."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        path = Path(state) / "logstore" / "sql_history"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return InMemoryHistory()
    return FileHistory(str(path))


class Words:
    """The words that a line may go on with."""

    def __init__(
        self,
        tables: StreamTables,
        con: duckdb.DuckDBPyConnection,
        dotted: Sequence[str],
        modes: Sequence[str],
    ) -> None:
        self._tables = tables
        self._con = con
        self._dotted = dotted
        self._modes = modes
        self._sql: list[str] = []
        self._reserved: set[str] = set()

    def completing(self, before: str, whole: str) -> tuple[str, Iterator[str]]:
        """The word that is begun before the cursor, and the words that begin so."""
        if before.lstrip().startswith("."):
            begun = before.rsplit(" ", maxsplit=1)[-1]
            command = before.split(maxsplit=1)[0]
            if begun == before:
                return begun, self._beginning(begun, self._dotted)
            named = self._modes if command == ".mode" else self._tables.tables()
            return begun, self._beginning(begun, map(self._identifier, named))
        self._learn()
        if before.count('"') % 2:
            begun = before[before.rindex('"') :]
            in_quotes = (quoted(each) for each in [*self._tables.tables(), *self._columns(whole)])
            return begun, self._beginning(begun, in_quotes)
        found = _WORD.search(before)
        begun = found[0] if found else ""
        known = [*self._tables.tables(), *self._columns(whole)]
        names = dict.fromkeys(map(self._identifier, known))
        upper = begun.isupper()
        more = (each.upper() if upper else each for each in self._sql)
        return begun, self._beginning(begun, [*names, *more])

    @staticmethod
    def _beginning(begun: str, words: Iterable[str]) -> Iterator[str]:
        wanted = begun.lower().removeprefix('"')
        return (each for each in words if each.lower().removeprefix('"').startswith(wanted))

    def _columns(self, text: str) -> list[str]:
        return sorted({*self._tables.made_columns(), *self._tables.columns_named_in(text)})

    def _identifier(self, name: str) -> str:
        self._learn()
        plain = _PLAIN.fullmatch(name) and name not in self._reserved
        return name if plain else quoted(name)

    def _learn(self) -> None:
        """The words of DuckDB, once."""
        if self._sql:
            return
        found = self._con.execute(
            "select keyword_name, keyword_category = 'reserved' from duckdb_keywords()"
        ).fetchall()
        self._reserved = {name for name, reserved in found if reserved}
        functions = self._con.execute("select distinct function_name from duckdb_functions()")
        callable_ = {name for (name,) in functions.fetchall() if _PLAIN.fullmatch(name)}
        self._sql = [*sorted(name for name, _ in found), *sorted(callable_)]
