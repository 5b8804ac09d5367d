"""The planner of the reader in the JVM: what Spark's driver asks, a line of JSON each.

``python -m logstore.spark_io.plan`` first says which version it is. Then it answers each line of
its standard input by a line on its standard output, until there is no more input: the driver ended.
What is read is decided by the code of the Python source.

A request is an object: ``id``, ``kind`` (a name in `KINDS`), ``options`` (those of Spark),
``cores``, ``log_level``, and what that kind needs. The answer has the same ``id``. Instead of what
was asked for it may have ``error``, with the class of the error as ``kind`` and its text as
``message``, or ``python``: why the Python source must read.

Invariants: each line is answered by one line, whatever it is. Nothing else goes to standard output:
what Python prints meanwhile goes to standard error, with warnings and the log of plans. No store
stays open between two requests.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, TypeAlias

from logstore import __version__
from logstore import format as fmt
from logstore.errors import Error, OptionError
from logstore.ids import MAX_ID, ZERO_ID
from logstore.scan.snapshot_file import Split
from logstore.spark_io import planning, pushed_conditions, spark_columns, spark_log, spark_options
from logstore.spark_io.source import LogstoreSource, any_read
from logstore.spark_io.spark_log import log
from logstore.spark_io.stream_query import StreamQuery
from logstore.store_path import shown

Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]


class PlannedSource(LogstoreSource):
    """The source as the reader in the JVM has it: it says what is to be read, and reads nothing."""

    for_jvm = True


def schema(request: Request) -> Answer:
    """The columns of a load without a schema: ``schema``, in Spark's JSON."""
    source = PlannedSource(request["options"])
    why = _why_python(source.given)
    return {"python": why} if why else {"schema": source.schema().json()}


def columns(request: Request) -> Answer:
    """How the columns of ``schema`` are read, and which stores are."""
    source, asked = _asked(request)
    given = source.given_for(asked)
    why = _why_python(given)
    if why:
        return {"python": why}
    options = any_read(given)
    wanted = spark_columns.columns(asked, options)
    return {
        "columns": [
            {
                "kind": spark_columns.kind(each, options),
                "field": each.name if each.field is None else each.field,
            }
            for each in wanted
        ],
        "mode": options.mode,
        "fail_on_loss": options.fail_on_loss,
        "must_be_jvm": options.reader == spark_options.JVM,
        "stores": list(options.paths),
        "shown": [shown(each) for each in options.paths],
    }


def plan(request: Request) -> Answer:
    """The splits of a new plan of a batch with the columns of ``schema``, pinned. ``counting``: no
    value of them is read. ``exact``: the sum of ``entries`` is the number of rows."""
    source, asked = _asked(request)
    options = source.parsed_read(asked)
    wanted = spark_columns.columns(asked, options)
    fields = spark_columns.fields(wanted, options)
    hidden = spark_columns.hidden(wanted, options)
    counting = bool(request.get("counting")) and options.fail_on_loss
    made = planning.plan(options, request["cores"], fields, hidden, counting=counting)
    return {"splits": [_split(each) for each in made.splits], "exact": made.exact}


def select(request: Request) -> Answer:
    """In which nodes of ``splits`` of a plan an entry may be for which ``condition`` is true: for
    each split bits in base64, as `planning.possible_nodes` has them."""
    asked = pushed_conditions.condition(request["condition"])
    splits = [
        Split(
            each["store"], each["home"], bytes.fromhex(each["uuid"]), each["pin_id"],
            each["offset"], each["size_bytes"], ZERO_ID, MAX_ID, 0, 0, 0,
        )
        for each in request["splits"]
    ]  # fmt: skip
    found = planning.possible_nodes(splits, asked)
    return {"nodes": [base64.b64encode(each).decode() for each in found]}


# -- streaming queries --------------------------------------------------------------------------
_queries: dict[str, StreamQuery] = {}


def stream(request: Request) -> Answer:
    """Begin the streaming query that is called ``query`` from now on. ``initial``: where it begins
    if it is new; ``max_rows`` and ``max_bytes`` of a batch, 0: no limit."""
    options = spark_options.parse_stream_read(PlannedSource(request["options"]).given)
    query = StreamQuery(options, request["cores"])
    _queries[request["query"]] = query
    return {"max_rows": options.max_rows, "max_bytes": options.max_bytes}


def initial(request: Request) -> Answer:
    """Where a new query begins: an ``offset``, as JSON that Spark keeps as it is."""
    return {"offset": json.dumps(_query(request).initial())}


def available_now(request: Request) -> Answer:
    """Read up to the entries that there are now."""
    _query(request).prepare_for_available_now()
    return {}


def latest(request: Request) -> Answer:
    """The ``offset`` at which the batch from ``start`` on ends, and where the streams end now."""
    query = _query(request)
    end = query.latest(json.loads(request["start"]), limited=request["limited"])
    ends = query.reported()
    return {"offset": json.dumps(end), "ends": None if ends is None else json.dumps(ends)}


def batch(request: Request) -> Answer:
    """The splits of the batch from ``start`` to ``end``, pinned until it is committed."""
    start, end = json.loads(request["start"]), json.loads(request["end"])
    return {"splits": [_split(each) for each in _query(request).splits(start, end)]}


def commit(request: Request) -> Answer:
    """The batch that ends at ``end`` is done, and all before it."""
    _query(request).commit(json.loads(request["end"]))
    return {}


def stop(request: Request) -> Answer:
    """The query ends; nothing is wrong if it is not known."""
    query = _queries.pop(request["query"], None)
    if query is not None:
        query.stop()
    return {}


def _query(request: Request) -> StreamQuery:
    found = _queries.get(request["query"])
    if found is None:
        raise OptionError(
            "the process that planned this streaming query ended, and another one has taken its "
            "place: start the query again, it goes on from its checkpoint"
        )
    return found


KINDS: dict[str, Callable[[Request], Answer]] = {
    "schema": schema,
    "columns": columns,
    "plan": plan,
    "select": select,
    "stream": stream,
    "initial": initial,
    "available now": available_now,
    "latest": latest,
    "batch": batch,
    "commit": commit,
    "stop": stop,
}


def _asked(request: Request) -> tuple[PlannedSource, Any]:
    """The source, and the columns that are asked of it, as Spark's StructType."""
    from pyspark.sql.types import StructType

    return PlannedSource(request["options"]), StructType.fromJson(json.loads(request["schema"]))


def _why_python(given: dict[str, str]) -> str:
    """Why the Python source must read; empty if it need not."""
    reader = given.get("reader", "").lower()
    if reader == spark_options.PYTHON:
        return "option 'reader' is python"
    if "table" not in given:
        return ""
    if reader == spark_options.JVM:
        raise OptionError(
            "option 'reader' is jvm, and option 'table' is for the Python source: leave 'reader' "
            "out"
        )
    return "option 'table' is for it"


def _split(split: Split) -> Answer:
    """A split as the JVM takes it."""
    return split._asdict() | {
        "shown": shown(split.store),
        "uuid": split.uuid.hex(),
        "blocks": base64.b64encode(split.blocks).decode(),
        "objects": [each._asdict() for each in split.objects],
    }


# -- the process --------------------------------------------------------------------------------
def answered(line: bytes) -> Answer:
    """The answer to a request, or to whatever stands in its place."""
    number: Any = None
    found: Exception
    try:
        request = json.loads(line)
        number = request["id"]
        spark_log.listen(request.get("log_level", spark_log.UNKNOWN))
        return {"id": number, **KINDS[request["kind"]](request)}
    except Error as error:
        found = error
    except Exception as error:  # the driver must have an answer, and this process goes on
        log.exception("a request of Spark's driver failed")
        found = error
    return {"id": number, "error": {"kind": type(found).__name__, "message": str(found)}}


def main() -> None:
    """Answer until there is no more input."""
    with own_output() as answers:
        hello: Answer = {"version": __version__, "format": fmt.FORMAT_VERSION}
        _write(answers, hello)
        for line in sys.stdin.buffer:
            _write(answers, answered(line))


def own_output() -> BinaryIO:
    """Standard output, for answers alone: what else is printed goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _write(answers: BinaryIO, answer: Answer) -> None:
    answers.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
