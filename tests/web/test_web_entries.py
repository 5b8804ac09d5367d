"""Prevents a search that hides what is there, and a page of an entry that is wrong or is run."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

import logstore
from logstore.web import shown_fields
from logstore.web.entry_search import (
    ENTRIES_A_PAGE,
    SEARCHED_MAX,
    Asked,
    quoted,
    search,
    text_of,
)
from logstore.web.json_markup import DEPTH_MAX, TEXT_MAX_CHARACTERS, TOKENS_MAX, indented
from tests.web.serving import ask, served

HOSTILE = "</script><script>alert(1)</script>\"'&"
BORN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of streams with a schema, with a codec, with neither, and of hostile values."""
    path = tmp_path_factory.mktemp("entries") / "store"
    with logstore.open(path, background=False) as opened:
        rooms = opened.stream("rooms")
        rooms.configure(schema="temp double, at timestamp?, tags json?, note string?, *")
        rooms.add({"temp": 19.5, "tags": {"room": "<a>"}, "at": "2026-11-26 12:00Z"}, "1-0")
        rooms.add({"temp": 23, "note": "<b>", "free": b"\xff"}, "2-0")
        for codec in ("json", "msgpack"):
            coded = opened.stream(codec, codec=codec)
            coded.add({"temp": 19.5, "tags": {"room": "<a>"}, "none": None}, "1-0")
            coded.add({"temp": 23, "note": "<b>"}, "2-0")
            opened.stream(codec).add({"temp": b"\xc1"}, "3-0")  # as another client would
        odd = opened.stream(b"odd\xff")
        values = {HOSTILE: HOSTILE, b"\xfe": b"\xff\0<i>", "n": json.dumps({"<k>": [HOSTILE]})}
        long = {"long": "<b>" * 10_000, "huge": "é" * 200_000, "none": ""}
        odd.add({**values, **long}, f"{BORN_MS}-7")
        _with_groups(opened)
    with served(path) as found:
        yield found


def _with_groups(store: logstore.Store[bytes]) -> None:
    """Entries 1 to 6 of which 1 is acked, 2 died, 3 is pending, 4 was deleted while it was."""
    stream = store.stream("work")
    for n in range(1, 7):
        stream.add({"n": str(n)}, f"{BORN_MS + n}-0")
    group = stream.group("<packers>", start="0")
    group.configure(max_deliveries=1, dead_letter="work:dead")
    first, second, *_ = group.read("<carl>", count=4)
    first.ack()
    second.nack(error=HOSTILE)
    stream.delete(f"{BORN_MS + 4}-0")
    stream.group("later", start="$")
    store.stream("work:dead").add({"by": "hand"})


def shown_of(address: str, name: str, **asked: str) -> tuple[int, str]:
    """Status and text of a stream's page."""
    status, _, page = ask(address, "/stream?" + urlencode({"name": name, **asked}))
    return status, page


def ids_of(page: str) -> list[str]:
    return re.findall(r'<td class="id"><a [^>]*>(.*?)</a></td>', page)


# -- search -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["rooms", "json", "msgpack"])
def test_values_are_shown_by_their_types(address: str, name: str) -> None:
    status, page = shown_of(address, name)
    assert status == 200
    assert '<dd class="number">19.5</dd>' in page
    assert '<dd class="json">{&#34;room&#34;:&#34;&lt;a&gt;&#34;}</dd>' in page
    assert "<dd>&lt;b&gt;</dd>" in page
    if name == "rooms":
        assert '<dd class="time">2026-11-26 12:00:00.000000Z</dd>' in page
    else:
        assert '<dd class="json">null</dd>' in page


@pytest.mark.parametrize("name", ["rooms", "json", "msgpack"])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("temp < 20 and tags.room like '%a%'", ["1-0"]),
        ("temp > 20", ["2-0"]),
        ("temp > 30", []),
        ("note is not null", ["2-0"]),
        ("id = '2-0'", ["2-0"]),
        ("<B>", None),  # a condition with a sign, which it is not: refused
        ('"<B>"', ["2-0"]),
        ("b", ["2-0"]),
        ("ROOM", ["1-0"]),
        ("23", ["2-0"]),
        ("é", []),
    ],
)
def test_a_line_finds_entries(address: str, name: str, line: str, wanted: list[str] | None) -> None:
    status, page = shown_of(address, name, q=line)
    assert (
        f'value="{html.escape(line).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")}"' in page
    )
    if wanted is None:
        assert (status, ids_of(page)) == (400, [])
        again = re.search(r'href="([^"]+)">Look for this as a text instead', page)
        assert again is not None
        assert ids_of(ask(address, html.unescape(again[1]))[2]) == ["2-0"]
        return
    assert (status, ids_of(page)) == (200, wanted), page
    assert ("<strong>none</strong> of" in page) == (not wanted)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("plain", "plain"),
        ("  two words ", "two words"),
        ("there is no such file in Rome", "there is no such file in Rome"),
        ("what you like", "what you like"),
        ('"a = b"', "a = b"),
        ('"say ""x"""', 'say "x"'),
        ('"a" = "b"', ""),
        ("a = b", ""),
        ("n is NULL", ""),
        ("n not like 'x%'", ""),
        ("n in (1, 2)", ""),
        ("n between 1 and 2", ""),
        ("", ""),
    ],
)
def test_a_line_is_a_text_or_a_condition(line: str, text: str) -> None:
    assert text_of(line) == text
    if line.strip():
        assert text_of(quoted(line)) == line.strip()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("heat > 20", "there is no column 'heat'"),
        ("temp > 'warm'", "'warm' is no number"),
        ("temp >", "is missing at the end"),
    ],
)
def test_a_condition_that_cannot_be_is_shown_with_its_place(
    address: str, line: str, why: str
) -> None:
    with_schema = "json" if line.startswith("heat") else "rooms"
    if with_schema == "json":  # without a schema any name is a field
        assert shown_of(address, with_schema, q=line)[0] == 200
        return
    status, page = shown_of(address, with_schema, q=line)
    trouble = html.unescape(page.partition('id="q-trouble"')[2])
    message, shown, caret = trouble.partition("<pre>")[2].partition("</pre>")[0].splitlines()
    assert (status, why in message, shown.strip(), caret.strip()) == (400, True, line, "^")
    assert 'aria-invalid="true"' in page
    assert 'name="q"' in page


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"since": "yesterday"}, "This is no moment"),
        ({"until": "<b>"}, "This is no moment"),
        ({"since": "2026-01-02", "until": "2026-01-01"}, "until is before since"),
        ({"q": "x" * 5000}, "at most 4,000 characters"),
    ],
)
def test_a_moment_that_is_none_is_told_where_it_was_typed(
    address: str, asked: dict[str, str], words: str
) -> None:
    status, page = shown_of(address, "rooms", **asked)
    assert (status, words in page, "<b>" in page.partition('role="alert"')[2][:200]) == (
        400,
        True,
        False,
    )
    *_, name = asked
    assert f'id="{name}-trouble" role="alert"' in page


def test_a_search_looks_at_so_many_entries_and_goes_on(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False) as opened:
        stream = opened.stream("many")
        stream.add_many((f"{n}-0", {"n": n}) for n in range(1, 2 * SEARCHED_MAX + 1))
        for line in ("n = 1", '"40000"'):
            found = search(stream, Asked(line=line, until="1970-01-02"))
            seen = [row.id for row in found.rows]
            assert (found.looked_at, found.older) == (SEARCHED_MAX, f"{SEARCHED_MAX + 1}-0")
            found = search(stream, Asked(line=line, before=found.older))
            seen += [row.id for row in found.rows]
            assert (seen, found.older) == (["1-0"] if "=" in line else ["40000-0"], "")
        found = search(stream, Asked(line="n > 1"))
        assert (len(found.rows), found.older) == (ENTRIES_A_PAGE, found.rows[-1].id)
        found = search(stream, Asked(line="id <= '3-0' and n > 0"))
        assert (len(found.rows), found.looked_at, found.older) == (3, 3, "")
        assert search(stream, Asked(line="n = 1", before="1-0")).looked_at == 0


def test_a_search_looks_at_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logstore.web.entry_search.SEARCHED_MAX_BYTES", 5000)
    with logstore.open(tmp_path / "store", background=False) as opened:
        opened.stream("x").add_many((f"{n}-0", {"v": "v" * 1000}) for n in range(1, 21))
        found = search(opened.stream("x"), Asked(line="absent"))
    assert (found.looked_at, found.older) == (5, "16-0")


def test_pages_of_a_search_keep_what_was_asked(tmp_path: Path) -> None:
    """Of an older page the address forgot since, or the form until."""
    with logstore.open(tmp_path / "store", background=False) as opened:
        opened.stream("x").add_many(
            (f"{BORN_MS + n}-0", {"v": f"a+b&c {n}"}) for n in range(2 * ENTRIES_A_PAGE)
        )
    with served(tmp_path / "store") as address:
        asked = {"since": "2023-11-14", "until": "2023-11-15", "q": "a+b&c"}
        _, page = shown_of(address, "x", **asked)
        assert "<strong>50</strong> of 50 entries looked at" in page
        link = re.search(r'rel="next" href="([^"#]+)', page)
        assert link is not None
        _, _, older = ask(address, html.unescape(link[1]))
        assert len(ids_of(older)) == ENTRIES_A_PAGE
        assert not set(ids_of(older)) & set(ids_of(page))
        for value in asked.values():
            assert f'value="{html.escape(value)}"' in older
        assert "there are no older ones" in older
        assert "newest</a>" in older


def test_an_empty_result_is_said(address: str) -> None:
    _, page = shown_of(address, "rooms", q="absent", since="1970-01-01")
    assert "<strong>none</strong> of 2 entries looked at" in page
    assert "Search at any time</a>" in page
    _, page = shown_of(address, "rooms", q="2-0")
    assert "open the entry 2-0</a>" in page


# -- the page of an entry ---------------------------------------------------------------------
def entry_of(address: str, name: str, id: str) -> tuple[int, str]:
    status, _, page = ask(address, "/entry?" + urlencode({"name": name, "id": id}))
    return status, page


def test_an_entry_has_a_page(address: str) -> None:
    id = f"{BORN_MS + 3}-0"
    status, page = entry_of(address, "work", id)
    assert status == 200
    assert "2023-11-14 22:13:20.003 UTC" in page
    assert re.search(r"[\d,]+ d ago, by its ID", page)
    assert re.search(r"segment 1, offset [\d,]+", page)
    for other in (f"{BORN_MS + 2}-0", f"{BORN_MS + 5}-0"):  # 4 was deleted
        assert f'href="/entry?name=work&amp;id={other}"' in page
    row = re.search(r'<th scope="row">&lt;packers&gt;</th>(.*?)</tr>', page, re.DOTALL)
    assert row is not None
    assert re.findall(r"<td[^>]*>(.*?)</td>", row[1])[:3] == ["pending", "&lt;carl&gt;", "1"]
    row = re.search(r'<th scope="row">later</th>(.*?)</tr>', page, re.DOTALL)
    assert row is not None
    assert "acked, or passed over when the group began" in row[1]
    for n, words in ((1, "not pending: acked"), (6, "not delivered yet")):
        page = entry_of(address, "work", f"{BORN_MS + n}-0")[1]
        row = re.search(r'<th scope="row">&lt;packers&gt;</th>(.*?)</tr>', page, re.DOTALL)
        assert row is not None
        assert words in row[1]


@pytest.mark.parametrize(
    ("name", "id", "words"),
    [
        ("work", f"{BORN_MS + 4}-0", "It was deleted or trimmed"),
        ("work", "99999999999999-0", "No entry was given this ID yet"),
        ("work", "1-1", "there never was one"),
        ("work", "hello", "This is no ID"),
        ("work", "5", "This is no ID"),
        ("work", "", "The address names no ID"),
        ("work", "<b>-1", "This is no ID"),
        ("work", "1" * 60_000 + "-0", "This is no ID"),
        ("absent", "1-1", "no stream of this name"),
    ],
)
def test_an_entry_that_is_not_there_is_a_page_with_a_way_on(
    address: str, name: str, id: str, words: str
) -> None:
    status, page = entry_of(address, name, id)
    assert (status, words in page, "<b>-1" in page) == (404, True, False), page
    assert 'href="/stream?name=work"' in page or name == "absent"
    assert ("&lt;packers&gt;" in page) == (id == f"{BORN_MS + 4}-0")  # pending, though it is gone


def test_a_page_has_each_field_with_its_type(address: str) -> None:
    _, page = entry_of(address, "rooms", "1-0")
    kinds = re.findall(r'<th scope="row">(\w+)</th>\s*<td>(\w+)', page)
    assert kinds == [("temp", "double"), ("tags", "json"), ("at", "timestamp")]
    assert "without a value here: note" in page
    assert '<pre class="json">{\n  <span class="json-name">&#34;room&#34;</span>' in page
    _, page = entry_of(address, "rooms", "2-0")
    assert "not in the schema" in page
    assert "000000  ff " in page
    _, page = entry_of(address, "msgpack", "1-0")
    kinds = re.findall(r'<th scope="row">(\w+)</th>\s*<td>(\w+)', page)
    assert kinds == [("temp", "double"), ("tags", "object"), ("none", "null")]
    _, page = entry_of(address, "msgpack", "3-0")
    assert "is no msgpack" in page


def test_values_are_never_run(address: str) -> None:
    for target in ("/stream?name=0x6f6464ff", f"/entry?name=0x6f6464ff&id={BORN_MS}-7", "/dead"):
        status, headers, page = ask(address, target)
        assert status == 200
        assert "default-src 'self'" in headers["content-security-policy"]
        assert HOSTILE not in page
        assert "<script>alert" not in page
        assert "<i>" not in page
        assert "<b><b>" not in page
        assert "<carl>" not in page
        assert "<k>" not in page


def test_a_long_value_is_folded_and_its_bytes_can_be_had(address: str) -> None:
    id = f"{BORN_MS}-7"
    _, page = shown_of(address, "0x6f6464ff")
    assert f'href="/entry?name=0x6f6464ff&amp;id={id}#field-4">all 29.3 KiB</a>' in page
    assert len(page) < 20_000
    _, page = entry_of(address, "0x6f6464ff", id)
    assert re.search(r'<span class="all">all 29\.3 KiB</span>', page)
    assert html.escape("<b>" * 10_000) in page
    assert "the first 64.0 KiB of 390.6 KiB" in page
    link = re.search(r'href="(/value[^"]+field=5)"', page)
    assert link is not None
    status, headers, body = ask(address, html.unescape(link[1]))
    assert (status, body) == (200, "é" * 200_000)
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == f'attachment; filename="{id}-5.bin"'
    assert headers["x-content-type-options"] == "nosniff"
    for number in ("0", "7", "-1", "x", "9" * 5000, "", "²"):
        target = f"/value?name=0x6f6464ff&id={id}&field={quote(number)}"
        assert ask(address, target)[0] == 404, number
    assert ask(address, "/value?name=0x6f6464ff&id=x&field=1")[0] == 404


def test_a_page_of_an_entry_is_bounded(tmp_path: Path) -> None:
    """Many fields, many groups: counted, and the groups go on."""
    with logstore.open(tmp_path / "s", background=False) as store:
        stream = store.stream("x")
        stream.add({f"f{n}": "v" * 60_000 for n in range(shown_fields.FIELDS_MAX + 5)}, "1-0")
        stream.add({"n": "2"}, "2-0")
        for begin in range(0, 1500, 500):
            with store.transaction() as tx:
                for n in range(begin, begin + 500):
                    tx.stream("x").group(f"group{n:04}").create("0")
        stream.group("group0700").read("w", count=1)
    with served(tmp_path / "s") as address:
        _, page = entry_of(address, "x", "1-0")
        assert len(page) < 2 * shown_fields.PAGE_MAX_BYTES
        assert "5 more fields" in page
        states: list[str] = []
        more: str | None = "/entry?name=x&id=1-0"
        while more:
            _, _, page = ask(address, more)
            states += re.findall(r'<th scope="row">(group\d+)</th>\s*<td class="warn">', page)
            assert page.count('<th scope="row">group') == 100
            link = re.search(r'href="(/entry[^"]+)">other groups', page)
            more = html.unescape(link[1]) if link else None
        assert states == ["group0700"]
        assert ask(address, "/entry?name=x&id=1-0&after=odd")[0] == 400


# -- dead letters -----------------------------------------------------------------------------
def test_a_dead_letter_says_why_before_it_says_who(address: str) -> None:
    _, _, page = ask(address, "/dead")
    error = html.escape(HOSTILE).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    assert f'<td class="error">{error}</td>' in page
    assert page.index(error) < page.index("&lt;carl&gt;")
    assert f'href="/entry?name=work&amp;id={BORN_MS + 2}-0"' in page
    assert "added <time" in page
    assert "2023-11-14 22:13:20</time>" in page
    assert "<dt>origin_" not in page
    assert "(no dead letter)" in page
    link = re.search(r'href="(/entry\?name=work%3Adead&amp;id=[^"]+-0)"', page)
    assert link is not None
    letters = re.findall(r'href="(/entry\?name=work%3Adead[^"]+)"', page)
    pages = [ask(address, html.unescape(each))[2] for each in letters]
    assert [">A dead letter<" in each for each in pages] == [False, True]
    assert f'href="/entry?name=work&amp;id={BORN_MS + 2}-0"' in pages[1]


# -- JSON -------------------------------------------------------------------------------------
def plain(text: str) -> str | None:
    """What is read of a text, without its marks."""
    shown = indented(text)
    return None if shown is None else html.unescape(re.sub(r"<[^>]*>", "", str(shown)))


def test_json_keeps_its_tokens() -> None:
    text = '{"a":1.50,"a":[1e999,-0,{}],"":[],"x\\"<b>":"\\u0000é<i>","t":[true,null]}'
    told = plain(text)
    assert told is not None
    assert told.splitlines()[:5] == ["{", '  "a": 1.50,', '  "a": [', "    1e999,", "    -0,"]
    assert re.sub(r"\s", "", told) == text
    assert "<i>" not in str(indented(text))
    huge = "9" * 5000
    assert plain(f"[{huge}]") == f"[\n  {huge}\n]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        '"text"',
        "{",
        "[1,]",
        "[" * 5000,
        "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1),
        "[" * 30_000 + "]" * 30_000,
        "[" + "1," * TOKENS_MAX + "1]",
        "[" * 40 + ",".join(["1"] * 9000) + "]" * 40,
        '["' + "x" * TEXT_MAX_CHARACTERS + '"]',
        "[\x00]",
    ],
)
def test_text_that_is_no_json_or_too_much_is_left_as_it_is(text: str) -> None:
    assert indented(text) is None


def test_bytes_are_dumped() -> None:
    assert shown_fields.hex_dump(b"A\xff" * 8 + b"\n").splitlines() == [
        "000000  " + "41 ff " * 8 + " " + "A." * 8,
        "000010  0a" + " " * 46 + " .",
    ]


def test_a_field_and_its_value_are_asked_for_as_on_the_command_line(tmp_path: Path) -> None:
    """Without quotes it was no condition, and the text was in no value."""
    with logstore.open(tmp_path / "store", background=False) as store:
        plain, typed = store.stream("plain"), store.stream("typed")
        typed.configure(schema="room string, n int?")
        for stream in (plain, typed):
            stream.add({"room": "cellar", "n": 1})
            stream.add({"room": "hall"})
            for line, count in (("room=cellar", 1), ("room=roof", 0), ("n=1", 1)):
                found = search(stream, Asked(line=line))
                assert (len(found.rows), found.is_understood) == (count, True), line
        assert "no column 'page'" in search(typed, Asked(line="page=/shoes")).troubles["q"]
        assert search(plain, Asked(line="room=")).troubles["q"]
