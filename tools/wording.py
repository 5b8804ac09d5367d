"""Values and messages as a shell shows them: bytes, entries, IDs, lengths of time, advice.

Invariants: text is unambiguous, and no character of it controls a terminal; JSON keeps all bytes,
in base64 where they are not UTF-8. Prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from logstore.api import showing
from logstore.api.showing import printable, quoted, readable
from logstore.ids import StreamID

if TYPE_CHECKING:
    from logstore.api.entry import Entry
    from logstore.api.values import ValueCodec
    from logstore.scan.scan_records import TypedLines
    from logstore.schema.stream_schema import Schema


def entry_line(entry: Entry[bytes], *, when: bool = False) -> str:
    """An entry on one line: its ID, with ``when`` the moment of it, then field=value, quoted as a
    shell would want them."""
    from logstore.api.entry import codec_of, stored_pairs  # here, for help must load fast

    codec, show = codec_of(entry), readable
    if codec is not None:
        show = partial(_value_shown, codec)
    parts = (f"{readable(name)}={show(value)}" for name, value in stored_pairs(entry))
    head = [str(entry.id), showing.stamp(entry.id.ms) if when else ""]
    return " ".join([*filter(None, head), *map(quoted, parts)])


def _value_shown(codec: ValueCodec, stored: bytes) -> str:
    from logstore.api.values import typed_text

    text = typed_text(codec, stored)
    return readable(stored) if text is None else printable(text)


def entry_object(entry: Entry[bytes]) -> dict[str, Any]:
    """An entry for JSON, in the first of the three forms that is faithful."""
    from logstore.api.entry import codec_of, stored_pairs
    from logstore.scan import scan_records

    codec = codec_of(entry)
    if codec is not None:
        import json

        from logstore.api.values import json_text

        flat = [
            part.decode("utf-8", "surrogateescape") for pair in stored_pairs(entry) for part in pair
        ]
        line = scan_records.CodedLines(partial(json_text, codec))([(entry.id, tuple(flat))])
        found: dict[str, Any] = json.loads(line)
        return found
    return scan_records.entry_object(str(entry.id), stored_pairs(entry))


class JsonText:
    """What is JSON already, and stands as it is in an object that is written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def entry_for_json(entry: Entry[bytes], schema: Schema | None) -> JsonText | dict[str, Any]:
    """An entry for JSON, with the types of a schema as `export` has them: all digits."""
    if schema is None:
        return entry_object(entry)
    from logstore.api.entry import stored_pairs

    flat = [part for pair in stored_pairs(entry) for part in pair]
    row = entry.id, tuple(part.decode("utf-8", "surrogateescape") for part in flat)
    return JsonText(_typed_lines(schema)([row]).decode().rstrip("\n"))


@cache
def _typed_lines(schema: Schema) -> TypedLines:
    from logstore.scan import scan_records

    return scan_records.TypedLines(schema)


def text_or_base64(raw: bytes) -> str:
    """Bytes as text if they are UTF-8, else in base64."""
    from logstore.scan import scan_records

    try:
        return raw.decode()
    except UnicodeDecodeError:
        return scan_records.in_base64(raw)


def name_object(name: bytes) -> dict[str, str]:
    """A stream's name for JSON: ``name``, or ``name_base64`` when it is no UTF-8."""
    from logstore.scan import scan_records

    try:
        return {"name": name.decode()}
    except UnicodeDecodeError:
        return {"name_base64": scan_records.in_base64(name)}


def by_json_names(info: Any) -> dict[str, Any]:
    """The values of an info, whose names are those of Redis, for JSON."""
    return {key.replace("-", "_"): value for key, value in info.as_dict().items()}


def dated(at: StreamID) -> str:
    """An ID, and how long ago its time is."""
    moment = showing.clock(at.ms)
    return str(at) if moment is None else f"{at}, {showing.ago(moment)}"


# Phrases of the store's errors, and those that a command says instead.
PHRASES = {
    "ship once with take_over=True": "ship once with --take-over",
    "from the store with verify=True": "from the store with --verify",
    "; give the directory of a store, or an empty or new one that may become a store": (
        "; give the directory of a store ('logstore add' makes one in a new or an empty directory)"
    ),
    "name the right one with option 'idColumn' (id_column in Python), or give '*' there and the "
    "store gives the IDs": "name the right one with --id-field, or give --auto-id",
    ", which is to be the ID": " for --id-field",
    "is a timedelta (how long ago), an aware datetime, a date, or text such as ": (
        "is a text such as "
    ),
    "set one with configure(schema=...)": "set one with 'logstore schema set'",
    "; IDs are given as start and end": "; IDs are given as START and END",
    "or to= a stream for this entry": "or --to a stream for this entry",
    ", or name the types with schema=": "",
    "give min_idle with backoff": "give --min-idle with --backoff",
    "dead_letter must be": "--dead-letter must be",
    "give max_deliveries and dead_letter both, or neither": (
        "give --max-deliveries and --dead-letter both, or neither"
    ),
    "give the key that schedule() returned, or its text": (
        "give a key that 'logstore schedule' lists"
    ),
    "with every= or cron=": "with --every or --cron",
    "give either every= or cron=": "give either --every or --cron",
    "give that as at, not after": "give that as --at, not --after",
    "read it, and add it in batches with add_many": (
        "take it through 'logstore export' and 'logstore import'"
    ),
    "give '<ms>-<seq>', '<ms>', (ms, seq), a StreamID or an aware datetime": "give MS-SEQ or MS",
    "give the smaller ID first, and reverse=True to read from the newest on": (
        "give the smaller ID first (a command that has --reverse reads from the newest on)"
    ),
    "give an ID above last_id, or '*'": "give an ID above the stream's last one, or '*'",
    "give one of max_entries, min_id and max_age": "give one of --max-entries and --min-id",
    "wait, raise lock_timeout, or look at that process": (
        "try again when it is done, or look at that process"
    ),
    "give readonly=True, or change the store itself": "change the store itself",
    "see store.pins()": "'logstore pins STORE' lists them",
    "run compact(purge=True) again": "run 'logstore compact --purge' again",
    "fix the permissions, or open with readonly=True": "fix the permissions",
    "drop the stream, or give replace=True": "give --replace, or --skip",
    "drop it, or give replace=True": "give --replace, or --skip",
    "read it from its server with XRANGE and add it in batches with add_many": (
        "let it go by pages, with a smaller --dump-max"
    ),
    "datetime.now(UTC), or '2026-11-26 12:00:00Z'": "'2026-11-26 12:00:00Z'",
    "date(2026, 11, 26), or '2026-11-26'": "2026-11-26",
    "time(12, 30), or '12:30:00'": "12:30:00",
    "Decimal('21.50')": "21.50",
    "True, or the text 'false'": "true",
    "uuid.uuid4()": "6f2a1c1e-0c5b-4a53-9c0e-2a0b6c4d8e1f",
    "{'room': 'a'}, or the bytes of a JSON text": '{"room": "a"}',
}


def for_a_shell(message: str) -> str:
    """A message with the advice that can be typed."""
    for said, typed in PHRASES.items():
        message = message.replace(said, typed)
    return message


def length_in_words(length: timedelta) -> str:
    """A length of time in words, in full: 7 seconds, 1 hour 30 minutes."""
    left = length
    parts: list[str] = []
    for name in ("days", "hours", "minutes", "seconds", "milliseconds"):
        count, left = divmod(left, timedelta(**{name: 1}))
        if count:
            parts.append(showing.counted(count, name.removesuffix("s")))
    return " ".join(parts) or "0 seconds"


BYTES_A_LINE = 16


def hex_lines(raw: bytes, offset: int) -> Iterator[str]:
    """Bytes in lines of 16: their offset, in hex, as text."""
    for at in range(0, len(raw), BYTES_A_LINE):
        part = raw[at : at + BYTES_A_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{offset + at:>10}  {part.hex(' ', 4):{BYTES_A_LINE * 2 + 3}}  {text}"
