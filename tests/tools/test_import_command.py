"""Prevents imports that take bad lines, lose good ones, or leave open where to go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep

import pytest

import logstore
from logstore.tools.interchange.import_command import Load
from logstore.tools.interchange.text_rows import ImportRow
from tests.tools.commands import (
    COMMAND,
    ROOT,
    TIMEOUT_S,
    environment,
    invoke,
    no_traceback,
    objects,
    ok,
    pairs,
    process,
)

GOOD = b'{"id":"1-0","a":"1"}\n{"id":"2-0","a":"2"}\n'


def load(store: Path, text: bytes | str, *more: str) -> dict[str, object]:
    """Import from stdin as JSON lines, as text; the report."""
    found: dict[str, object] = json.loads(
        ok("import", store, "--stream", "s", "--schema", "none", "--json", *more, stdin=text)
    )
    return found


# -- JSON lines ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('{"id": "5-1", "fields": {"a": "b", "id": "9"}}', [(b"a", b"b"), (b"id", b"9")]),
        ('{"id": "5-1", "pairs": [["a", "b"], ["a", 1.10]]}', [(b"a", b"b"), (b"a", b"1.10")]),
        ('{"id": "5-1", "pairs_base64": [["/w==", ""]]}', [(b"\xff", b"")]),
        ('{"id": "5-1", "a": 1e3, "a": -0}', [(b"a", b"1e3"), (b"a", b"-0")]),
        ('{"a": "b", "id": "5-1", "fields": "x"}', [(b"a", b"b"), (b"fields", b"x")]),
        ('{"seq": 1, "a": "b", "ms": 5}', [(b"a", b"b")]),
        ('{"id": "5-1", "a": null, "b": true, "ms": 5, "seq": 9}',
         [(b"b", b"true"), (b"ms", b"5"), (b"seq", b"9")]),
        ('{"id": "5-1", "fields": {"a": {"b": [1.50, null, "\\u00fc\\"", {}]}, "c": null}}',
         [(b"a", '{"b":[1.50,null,"ü\\"",{}]}'.encode())]),
        ('[{"id": "5-1", "a": "]},{"}]', [(b"a", b"]},{")]),
    ],
)  # fmt: skip
def test_the_forms_of_a_json_line(
    line: str, wanted: list[tuple[bytes, bytes]], empty: Path
) -> None:
    assert load(empty, line)["last_id"] == "5-1"
    assert pairs(empty) == [("5-1", wanted)]
    if not line.startswith("["):  # behind another one
        ok("import", empty, "--stream", "t", stdin=f'{{"id":"1-0","a":"1"}}\n{line}\n')
        assert pairs(empty, "t")[1:] == [("5-1", wanted)]


ARRAY = (b'\xef\xbb\xbf \n[ {"id": "1-0", "a": ["[,]", "\\\\"]},\n{"id": "2-0", "a": "\\"}"}\n'
         b', {"a": "x" }, {"id": "9-0", "a": 9}]\n')  # fmt: skip


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_an_array_of_objects(piece: int, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read at a time; its rows are counted, a bad one is named."""
    monkeypatch.setattr("logstore.tools.interchange.text_lines.PIECE", piece)
    done = invoke("import", empty, "--stream", "s", "--batch", "2", "--json", stdin=ARRAY)
    told = json.loads(done.stderr)
    assert (done.exit_code, told["row"], told["imported"]) == (1, 3, 2)
    assert load(empty, ARRAY, "--skip-bad", "--resume")["imported"] == 1
    assert pairs(empty) == [
        ("1-0", [(b"a", b'["[,]","\\\\"]')]), ("2-0", [(b"a", b'"}')]), ("9-0", [(b"a", b"9")]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[{"a": 1}', "row 1: the array ends too early"),
        ('[{"a": "', "row 1: the array ends too early"),
        ('[{"a": 1}] x', "row 1: there is more behind the array"),
        ('[{"a": 1},]', "row 2: no JSON"),
        ('[{"a": 1},,{"a": 1}]', "row 2: no JSON"),
        ('[{"a": 1}}]', "row 1: no JSON"),
        ('[{"a": 1]]', "row 1: no JSON"),
        ("[1]", "row 1: no entry"),
        (f'[{{"a": "{"x" * 99}"}}]', "row 1: longer than 90 bytes"),
        (f'[{{"a": "{"x" * 30}"}}, {"[" * 200}', "row 2: the array ends too early"),
    ],
)
def test_an_array_that_is_none(text: str, why: str, empty: Path) -> None:
    done = invoke("import", empty, "--stream", "s", "--line-max-bytes", "90", stdin=text)
    assert done.exit_code == 1
    assert why in done.stderr
    with logstore.open(empty) as opened:
        assert opened.streams() == []


def test_an_empty_array(empty: Path) -> None:
    assert load(empty, " [ ] ")["imported"] == 0


def test_a_byte_order_mark_empty_lines_and_no_last_newline(empty: Path) -> None:
    assert (
        load(empty, b"\xef\xbb\xbf" + GOOD + b"\n\r\n" + b'{"id":"3-0","a":"3"}')["imported"] == 3
    )


def test_ids_of_now(empty: Path) -> None:
    load(empty, b'{"id":"x","a":"1"}\n', "--auto-id")
    ((_, found),) = pairs(empty)
    assert found == [(b"id", b"x"), (b"a", b"1")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "no JSON"),
        (b"[1]", "give a JSON object"),
        (b"7", "give a JSON object"),
        (b"\xff", "no UTF-8"),
        (b'{"a": "\\ud800"}', "no UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "no fields"),
        (b'{"fields": {}}', "no fields"),
        (b'{"fields": []}', "must be an object"),
        (b'{"pairs": [["a"]]}', "must be a list of [field, value]"),
        (b'{"pairs_base64": [["a", "?"]]}', "base64"),
        (b'{"a": null}', "no fields"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"id": "x", "a": "b"}', "Invalid stream ID"),
        (b'{"id": "18446744073709551616-0", "a": "b"}', "Invalid stream ID"),
        (b'{"id": "3-*", "a": "b"}', "Invalid stream ID"),
        (b'{"id": "2-0", "a": "b"}', "not above 2-0"),
        (b'{"a": "b"}', "has no ID"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_stops(line: bytes, why: str, empty: Path) -> None:
    """The batch before it is in the store, the batch that holds it is not; the number is told."""
    text = GOOD + line + b"\n" + b'{"id":"9-0","a":"9"}\n'
    done = invoke("import", empty, "--stream", "s", "--batch", "2", "--json", stdin=text)
    assert done.exit_code == 1
    told = json.loads(done.stderr)
    assert (told["error"], told["line"], told["imported"]) == ("InputLineError", 3, 2)
    assert why in told["message"]
    assert told["last_id"] == "2-0"
    assert [id for id, _ in pairs(empty)] == ["1-0", "2-0"]
    after = load(empty, text, "--skip-bad", "--resume")
    assert (after["imported"], after["bad"]) == (1, 0 if b'"2-0"' in line else 1)
    assert [id for id, _ in pairs(empty)] == ["1-0", "2-0", "9-0"]


def test_all_rows_have_ids_or_none(empty: Path) -> None:
    """Also where no row is before the first one."""
    text = b'{\n{"id":"1-0","a":"1"}\n{"a":"2"}\n{"id":"2-0","a":"3"}\n'
    assert load(empty, text, "--skip-bad")["bad"] == 2
    assert [id for id, _ in pairs(empty)] == ["1-0", "2-0"]


def test_0_0_is_refused(empty: Path) -> None:
    """As the first row of a stream, where every other ID is above the last."""
    done = invoke("import", empty, "--stream", "s", stdin=b'{"id":"0-0","a":"b"}')
    assert done.exit_code == 1
    assert "line 1" in done.stderr


def test_the_batch_of_a_bad_line_is_not_in_the_store(empty: Path) -> None:
    done = process("import", empty, "--stream", "s", stdin=GOOD + b"{\n")
    assert done.returncode == 1
    assert done.stderr.startswith(b"logstore: line 3: no JSON")
    assert b"imported 0" in done.stderr
    assert no_traceback(done.stderr)
    with logstore.open(empty) as opened:
        assert opened.streams() == []


def test_skipped_lines_are_counted_and_named(empty: Path) -> None:
    arguments = ("--stream", "s", "--skip-bad", "--schema", "none", "--json")
    done = process("import", empty, *arguments, stdin=b"{\n" + GOOD)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "imported": 2, "bad": 1, "resumed_over": 0, "last_id": "2-0",
    }  # fmt: skip
    assert [one["line"] for one in objects(done.stderr)] == [1]


# -- order and resuming -------------------------------------------------------------------------
def test_again_without_resume_is_refused(empty: Path) -> None:
    load(empty, GOOD)
    done = invoke("import", empty, "--stream", "s", stdin=GOOD)
    assert done.exit_code == 1
    assert "line 1" in done.stderr
    assert "--resume" in done.stderr


def test_resume_goes_on_after_the_last_id(empty: Path) -> None:
    load(empty, GOOD)
    found = load(empty, GOOD + b'{"id":"3-0","a":"3"}\n', "--resume")
    assert (found["imported"], found["resumed_over"]) == (1, 2)
    assert [id for id, _ in pairs(empty)] == ["1-0", "2-0", "3-0"]


@pytest.mark.parametrize(("kind", "text"), [("jsonl", b'{"a":"b"}\n'), ("csv", b"a\nb\n")])
def test_resume_needs_ids(kind: str, text: bytes, empty: Path) -> None:
    done = invoke("import", empty, "--stream", "s", "--resume", "--format", kind, stdin=text)
    assert done.exit_code == 1
    assert "cannot be resumed" in done.stderr


def test_no_create(store: Path, empty: Path) -> None:
    done = invoke("import", store, "--stream", "nobody", "--no-create", stdin=GOOD)
    assert done.exit_code == 1
    assert "--no-create" in done.stderr


# -- CSV ----------------------------------------------------------------------------------------
def csv(store: Path, text: bytes, *more: str) -> dict[str, object]:
    """Import CSV from stdin; the report."""
    return load(store, text, "--format", "csv", *more)


def test_csv_from_a_file(empty: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(b'\xef\xbb\xbfid,name,note\n1-5,Anna,"a ""b"",\nc"\n\n2-0,\xc3\xbc,\n')
    done = process("import", empty, file, "--stream", "s", "--schema", "none")
    assert (done.returncode, done.stderr) == (0, b"")
    assert pairs(empty) == [
        ("1-5", [(b"name", b"Anna"), (b"note", b'a "b",\nc')]),
        ("2-0", [(b"name", "ü".encode()), (b"note", b"")]),
    ]


SECONDS, MICROSECONDS, NANOSECONDS = 1_700_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000
# Numbers of rows, seconds, microseconds, and nanoseconds: none is a time of today in milliseconds.
NO_IDS = ["1", "0", "00000000000000005", "99999999999", f"{SECONDS}", f"{MICROSECONDS}",
          f"{NANOSECONDS}"]  # fmt: skip


@pytest.mark.parametrize("given", NO_IDS)
@pytest.mark.parametrize("form", ["id,a\n{},x\n", '{{"id": "{}", "a": "x"}}', '{{"a":"x","id":{}}}',
                                  '[{{"id":"{}","fields":{{"a":"x"}}}}]'])  # fmt: skip
def test_a_number_that_is_no_time_is_no_id_unless_asked_for(
    given: str, form: str, empty: Path
) -> None:
    """IDs of 1, 2, 3 are entries of 1970, and retention by age drops them all."""
    if given.startswith("00") and ":{}" in form:
        pytest.skip("a number of JSON has no zeros in front")
    text = form.format(given)
    how = ("--format", "csv") if form.startswith("id,") else ()
    done = invoke("import", empty, "--stream", "s", *how, stdin=text)
    assert done.exit_code == 1
    assert f"line 2: 'id' has '{given}'" in done.stderr or f" 1: 'id' has '{given}'" in done.stderr
    assert "--auto-id" in done.stderr
    assert "--id-field id" in done.stderr
    if empty.exists():
        with logstore.open(empty) as opened:
            assert opened.streams() == []
    load(empty, text, *how, "--auto-id")
    ((made, fields),) = pairs(empty)
    assert int(made.partition("-")[0]) > 1_700_000_000_000
    assert sorted(fields) == [(b"a", b"x"), (b"id", given.encode())] or "fields" in form
    if int(given):
        ok("import", empty, "--stream", "t", "--id-field", "id", *how, stdin=text)
        assert pairs(empty, "t") == [(f"{int(given)}-0", [(b"a", b"x")])]


@pytest.mark.parametrize("given", ["1-0", "100000000000", "1700000000000", "253402300799999"])
def test_a_column_of_ids_needs_no_option(given: str, empty: Path) -> None:
    """An ID with its sequence, and milliseconds from 1973 to 9999."""
    assert csv(empty, f"id,a\n{given},x\n".encode())["imported"] == 1
    ok("import", empty, "--stream", "t", stdin=f'{{"id": "{given}", "a": "x"}}')
    wanted = given if "-" in given else f"{given}-0"
    assert pairs(empty) == pairs(empty, "t") == [(wanted, [(b"a", b"x")])]


@pytest.mark.parametrize(
    ("format_", "times"),
    [
        ("iso", ("2013-01-01T05:00:00+05:00", "2013-01-01", "2013-01-01T00:00:01Z")),
        ("s", ("1356998400", "1356998400.0", "1356998401")),
        ("ms", ("1356998400000", "1356998400000", "1356998401000")),
        ("%d.%m.%y %H:%M:%S", ("01.01.13 00:00:00", "01.01.13 00:00:00", "01.01.13 00:00:01")),
    ],
)
def test_times_and_ranks(format_: str, times: tuple[str, ...], empty: Path) -> None:
    text = "t,v\n" + "".join(f"{time},x\n" for time in times)
    csv(empty, text.encode(), "--time-field", "t", "--time-format", format_)
    assert [id for id, _ in pairs(empty)] == [
        "1356998400000-0", "1356998400000-1", "1356998401000-0",
    ]  # fmt: skip
    assert pairs(empty)[0][1] == [(b"t", times[0].encode()), (b"v", b"x")]


def test_times_of_json_lines(empty: Path) -> None:
    """Also behind a line that is none."""
    rows = b'{\n{"t":"7","a":"1"}\n{"t":7,"a":"2"}\n{"a":"3"}\n{"t":"8"}\n'
    options = ("--time-field", "t", "--time-format", "ms", "--skip-bad")
    assert load(empty, rows, *options)["bad"] == 2
    assert [id for id, _ in pairs(empty)] == ["7-0", "7-1", "8-0"]


def test_ranks_are_the_same_when_resumed(empty: Path) -> None:
    rows = [b"7,%d\n" % at for at in range(9)]
    options = ("--time-field", "t", "--time-format", "ms", "--resume")
    csv(empty, b"t,v\n" + b"".join(rows[:4]), *options)
    csv(empty, b"t,v\n" + b"".join(rows), *options)
    assert [id for id, _ in pairs(empty)] == [f"7-{at}" for at in range(9)]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (b"5-0,1", "2 cells under a header of 3"),
        (b"5-0,1,2,3", "4 cells under a header of 3"),
        (b"x,1,2", "Invalid stream ID"),
        (b",1,2", "Invalid stream ID"),
        (b"5-*,1,2", "Invalid stream ID"),
        (b"5-0,\xff,2", "no UTF-8"),
        (b'5-0,"1"x,2', "no CSV"),
        (b"1-0,1,2", "not above 1-0"),
    ],
)
def test_a_bad_row_is_named(row: bytes, why: str, empty: Path) -> None:
    text = b"id,a,b\n1-0,1,2\n" + row + b"\n9-0,1,2\n"
    arguments = ("import", empty, "--stream", "s", "--format", "csv", "--batch", "1", "--json")
    done = invoke(*arguments, stdin=text)
    told = json.loads(done.stderr)
    assert (done.exit_code, told["line"], told["imported"]) == (1, 3, 1)
    assert why in told["message"]
    assert csv(empty, text, "--skip-bad", "--resume")["bad"] == (0 if b"1-0" in row else 1)
    assert [id for id, _ in pairs(empty)] == ["1-0", "9-0"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--id-field", "nix"), "there is no field 'nix'"),
        (("--time-field", "nix"), "there is no field 'nix'"),
        (("--time-field", "a", "--time-format", "%Y"), "'x' is no time in the format '%Y'"),
        (("--time-field", "b"), "'1960-01-01' is no time of an ID"),
    ],
)
def test_a_row_without_its_id(options: tuple[str, ...], why: str, empty: Path) -> None:
    done = invoke(
        "import", empty, "--stream", "s", "--format", "csv", *options, stdin=b"a,b\nx,1960-01-01\n"
    )
    assert done.exit_code == 1
    assert "line 2: " in done.stderr
    assert why in done.stderr


def test_other_encodings_and_delimiters(empty: Path) -> None:
    csv(empty, b"id;a\n1-0;\xfc\n", "--encoding", "latin-1", "--delimiter", ";")
    assert pairs(empty) == [("1-0", [(b"a", "ü".encode())])]


@pytest.mark.parametrize("delimiter", ["tab", "\\t", "\t"])
def test_tabs_can_be_named_and_typed(delimiter: str, empty: Path) -> None:
    csv(empty, b"id\ta\n1-0\tx,y\n", "--delimiter", delimiter)
    assert pairs(empty) == [("1-0", [(b"a", b"x,y")])]


def test_a_tsv_has_tabs(empty: Path, tmp_path: Path) -> None:
    """Not one field whose name is the whole header."""
    source, target = tmp_path / "in.tsv", tmp_path / "out.tsv"
    source.write_bytes(b"id\ta\tb\n1-0\tx,y\tz\n")
    ok("import", empty, source, "--stream", "s")
    assert pairs(empty) == [("1-0", [(b"a", b"x,y"), (b"b", b"z")])]
    ok("export", empty, "s", target)
    assert target.read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ("--encoding", "nix"), ("--delimiter", ";;"), ("--auto-id", "--id-field", "a"),
        ("--batch", "0"), ("--format", "xml"), ("missing.csv",),
    ],
)  # fmt: skip
def test_wrong_usage_makes_no_store(options: tuple[str, ...], empty: Path) -> None:
    more = () if "--format" in options else ("--format", "csv")
    assert invoke("import", empty, "--stream", "s", *more, *options).exit_code == 2
    assert not empty.exists()


# -- what is too long ---------------------------------------------------------------------------
def limited(store: Path, text: bytes, *more: str) -> list[tuple[str, list[tuple[bytes, bytes]]]]:
    """What comes in of lines with a limit of 40 bytes, if bad ones are skipped."""
    done = invoke(
        "import", store, "--stream", "s", "--skip-bad", "--line-max-bytes", 40, *more, stdin=text
    )
    assert done.exit_code == 0, done.output
    assert "longer than 40 bytes" in done.stderr
    return pairs(store)


@pytest.mark.parametrize("long", [41, 60, 5_000_000])
def test_a_line_that_is_too_long_is_passed_over(empty: Path, long: int) -> None:
    text = b'{"id":"1-0","a":"1"}\n{"a":"' + b"x" * long + b'"}\n{"id":"3-0","a":"3"}'
    assert [id for id, _ in limited(empty, text)] == ["1-0", "3-0"]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "long",
    [b"x" * 60, b"x" * 3_000_000, b'"' + b"x" * 60 + b'"',
     b'"xx\n4-0,y\n' + b"z" * 50 + b'\n5-0,v"', b'"' + b'a""\n6-0,b\n' * 9 + b'"'],
)  # fmt: skip
def test_a_record_that_is_too_long_is_passed_over_to_its_end(
    empty: Path, long: bytes, ending: bytes
) -> None:
    """What stands in quotes over several lines gives no rows of its own."""
    rows = [b"id,a", b"1-0,1", b"2-0," + long, b"7-0,3"]
    found = limited(empty, ending.join(rows), "--format", "csv")
    assert found == [("1-0", [(b"a", b"1")]), ("7-0", [(b"a", b"3")])]


def test_lines_at_the_limit_are_taken(empty: Path) -> None:
    line = b'{"id":"1-0","a":"%b"}' % (b"x" * 21)
    assert len(line) == 40
    loaded = load(empty, line + b"\n", "--line-max-bytes", "41")
    assert loaded["imported"] == 1
    assert load(empty, line.replace(b"1-0", b"2-0"), "--line-max-bytes", "40")["imported"] == 1


def test_a_header_that_is_too_long_ends_it(empty: Path) -> None:
    """Else the first row would be taken for the names."""
    done = invoke(
        "import", empty, "--stream", "s", "--skip-bad", "--line-max-bytes", 20, "--format", "csv",
        stdin=b"id," + b"a" * 30 + b"\n1-0,1\n2-0,2\n",
    )  # fmt: skip
    assert done.exit_code == 1
    assert "line 1" in done.stderr


MEASURED = """
import atexit
# Not getrusage: what it tells begins with the memory of the process that started this one.
peak = lambda: next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
atexit.register(lambda: print(peak().split()[1]))
from logstore.tools.cli import main
main()
"""


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_field_of_400_mib_takes_no_gigabytes(tmp_path: Path, kind: str) -> None:
    head, tail = (b"id,a\n1-0,", b"\n") if kind == "csv" else (b'{"id":"1-0","a":"', b'"}\n')
    path = tmp_path / f"long.{kind}"
    with path.open("wb") as file:
        file.write(head)
        for _ in range(400):
            file.write(b"x" * (1 << 20))
        file.write(tail)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "import", tmp_path / "store", path, "--stream", "s"],
        capture_output=True, text=True, check=False, env=environment(), cwd=ROOT,
    )  # fmt: skip
    path.unlink()
    assert done.returncode == 1, done.stderr
    line = 2 if kind == "csv" else 1
    assert f"line {line}" in done.stderr
    assert "--line-max-bytes" in done.stderr
    assert int(done.stdout.split()[-1]) < 400 << 10  # kilobytes


@pytest.mark.parametrize(
    "encoding",
    ["undefined", "rot13", "hex", "idna", "unicode_escape", "raw_unicode_escape", "punycode",
     "base64", "zlib", "a\x00b"],
)  # fmt: skip
def test_an_unknown_encoding_is_refused_at_the_option(empty: Path, encoding: str) -> None:
    done = invoke(
        "import", empty, "--stream", "s", "--format", "csv", "--encoding", encoding, stdin=b"a\n1\n"
    )
    assert done.exit_code == 2, done.output
    assert "encoding" in done.stderr
    assert not empty.exists()


def test_input_in_a_broken_encoding_shows_no_traceback(empty: Path) -> None:
    text = "id,a\n1-0,b\n".encode("utf-16") + b"\x00"
    done = invoke(
        "import", empty, "--stream", "s", "--format", "csv", "--encoding", "utf-16", stdin=text
    )
    assert done.exit_code in (0, 1)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("form", "head", "row"), [("jsonl", b"", b'{"n": 1}\n'), ("csv", b"n,m\n", b"1,2\n")]
)
def test_rows_of_a_pipe_are_there_at_once_and_stay(
    tmp_path: Path, form: str, head: bytes, row: bytes, number: int
) -> None:
    """Prevents a live feed of which nothing is seen until a batch is full, and a stop loses it."""
    path = tmp_path / "s"
    command = [*COMMAND, "import", str(path), "--stream", "live", "--format", form]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(),
    ) as other:  # fmt: skip
        assert other.stdin is not None
        assert other.stderr is not None
        other.stdin.write(head + row * 3)
        other.stdin.flush()
        with logstore.open(path, background=False) as store:
            stream = store.stream("live")
            while len(stream) < 3:  # no batch is full, and the input goes on
                assert other.poll() is None
                sleep(0.01)
            other.stdin.write(row * 2)
            other.stdin.flush()
            while len(stream) == 3 and other.poll() is None:
                sleep(0.01)
            other.send_signal(number)
            assert other.wait(TIMEOUT_S) == 130
            assert len(stream) == 5
        assert b"interrupted (imported 5," in other.stderr.read()
        with suppress(BrokenPipeError):
            other.stdin.close()


def test_rows_that_were_read_stay_at_an_interrupt(tmp_path: Path) -> None:
    """Those that wait for others of their batch, too."""

    def rows() -> Iterator[ImportRow]:
        yield ImportRow(1, None, [(b"n", b"1")])
        yield ImportRow(2, None, [(b"n", b"2")])
        raise KeyboardInterrupt

    with logstore.open(tmp_path / "s", background=False) as store:
        load = Load(store.stream("live"), rows=rows())  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            load.run()
        assert (load.counts.imported, len(store.stream("live"))) == (2, 2)
