"""Prevents words and pictures that do not fit their terminal, and bytes that are shown as other
bytes.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.api.entry import Entry
from logstore.api.opening import opened_of
from logstore.compaction.usage import SegmentUse, SpaceUsage, StreamUse
from logstore.engine.runtime import pins
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.telemetry.segment_parts import Picture
from logstore.tools import wording as forms
from logstore.tools.interchange.text_lines import read_json
from logstore.tools.interchange.text_rows import ImportRow, RowIDs, one_by_one
from logstore.tools.text_tables import cell_len
from logstore.tools.views import segment_map
from tests.support.threads import running
from tests.tools.commands import invoke, objects, ok, on_a_terminal
from tests.tools.pseudo_terminal import last_screen

EVIL = "evil\x1b[7mred\x1b[2J\nline"
OURS = re.compile(r"\x1b\[[0-9;]*m")
WIDTH = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that are long, or evil; groups, dead letters, schedules, tombstones."""
    path = tmp_path_factory.mktemp("terminals") / "store"
    with logstore.open(path, encoding="utf-8", segment_bytes=64 << 10) as opened:
        for name in ("orders", "a:stream:with:a:name:of:" + "many:parts:" * 9, EVIL):
            ids = opened.stream(name).add_many({"n": str(n), "to": "anna"} for n in range(900))
            opened.stream(name).delete(*ids[::3])
            group = opened.stream(name).group(name[:60], start="0")
            group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
            for delivery in group.read(name[:60], count=3):
                delivery.nack()
            group.read(name[:60], count=3)
            for every in (5, 10):
                opened.stream(name).schedule(
                    {"text": "a reminder of " + "many words " * 9},
                    every=timedelta(minutes=every), name=f"each {every} minutes",
                )  # fmt: skip
    return path


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("streams", 0), ("du --segments", 0), ("map", 0), ("doctor", 3), ("info orders", 0),
        ("schedule orders", 0), ("groups", 0), ("pending orders orders", 0), ("dead list", 0),
        ("inspect segment 1", 0), ("top -n 2 --interval 200ms", 0),
    ],
)  # fmt: skip
def test_names_with_control_characters_do_not_steer_the_terminal(
    store: Path, said: str, code: int
) -> None:
    words = said.split()
    at = 2 if words[0] in {"dead", "inspect"} else 1
    shown = on_a_terminal([*words[:at], str(store), *words[at:]], WIDTH, 50, code)
    assert "\x1b[7m" not in shown
    lines = [OURS.sub("", line) for line in shown.replace("\r", "").split("\n")]
    too_long = [line for line in lines if len(line) > WIDTH and not line.startswith("       $ ")]
    assert not too_long or words[0] == "top"  # which has a test of its own


def test_no_name_among_the_numbers_for_prometheus_steers_the_terminal(store: Path) -> None:
    shown = on_a_terminal(["metrics", str(store)], WIDTH, 50)
    assert "\x1b" not in shown
    assert "evil\\x1b[7mred" in shown
    assert "evil\x1b[7mred" in ok("metrics", store)  # it takes names as they are


def test_a_pipe_gets_a_line_for_each_thing(store: Path) -> None:
    lines = ok("schedule", store, "orders").splitlines()
    assert len(lines) == 2
    text = ok("top", store, "--interval", "100ms")
    assert "\x1b" not in text
    assert "evil\\x1b[7mred" in text


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with 40 streams, two of them with groups, to one of which a thread adds; in a group
    somebody waits."""
    path = tmp_path_factory.mktemp("top") / "store"
    with logstore.open(path, encoding="utf-8") as store:
        for n in range(40):
            store.stream(f"s{n:02}").add_many({"a": "b"} for _ in range(n + 1))
        store.stream("s39").group("late", "0").read("c", count=7)
        waiting = store.stream("s00").group("prompt", "0")
        stop = threading.Event()

        def adds() -> None:
            while not stop.wait(0.005):
                store.stream("s05").add({"a": "b"})

        def waits() -> None:
            while not stop.is_set():
                for delivery in waiting.read("c", timeout=0.2):
                    delivery.ack()

        threads = [threading.Thread(target=work) for work in (adds, waits)]
        with running(threads):
            yield path
            stop.set()


def test_a_terminal_that_cannot_draw_over_gets_one_picture(busy: Path) -> None:
    text = on_a_terminal(["top", str(busy), "--interval", "100ms"], 80, 50, term="dumb")
    assert re.search(r"^stream +adds/s", text, re.MULTILINE)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_a_terminal_it_writes_one_picture(busy: Path) -> None:
    text = ok("top", busy, "--interval", "300ms")
    lines = text.splitlines()
    assert lines[0].startswith(str(busy)[:30])
    assert re.search(r"^stream +adds/s +entries +size +last$", text, re.MULTILINE)
    first = next(at for at, line in enumerate(lines) if line.startswith("stream "))
    assert re.match(r"s05 +\d+(\.\d)? ", lines[first + 1])
    assert not re.match(r"s05 +0 ", lines[first + 1])
    assert re.search(r"^s39 / late +\S* +33 +7 ", text, re.MULTILINE)
    assert re.search(r"and \d more$", text, re.MULTILINE)
    assert max(map(len, lines[1:])) <= 80


def test_programs_get_a_line_for_each_look(busy: Path) -> None:
    looks = [
        json.loads(line)
        for line in ok(
            "top", busy, "--interval", "200ms", "-n", 2, "--json", "--stream", "s*"
        ).splitlines()
    ]
    assert len(looks) == 2
    for look in looks:
        rates = {each["stream"]: each["adds_per_s"] for each in look["streams_by_name"]}
        assert len(rates) == 40
        assert rates.pop("s05") > 0
        assert set(rates.values()) == {0}
        groups = {each["group"]: each for each in look["groups_by_name"]}
        assert (groups["late"]["lag"], groups["late"]["pending"]) == (33, 7)
    assert any(each["waiting"] for look in looks for each in look["groups_by_name"])
    assert looks[1]["entries"] > looks[0]["entries"]


@pytest.mark.parametrize(("columns", "lines"), [(40, 20), (80, 24), (200, 50)])
def test_it_fits_the_terminal(busy: Path, columns: int, lines: int) -> None:
    shown = on_a_terminal(["top", str(busy), "--interval", "200ms", "-n", "2"], columns, lines)
    rows, left_behind = last_screen(shown.encode()), shown.partition("\x1b[?1049l")[2]
    last = "\n".join(rows)
    assert 10 < len(rows) <= lines
    assert max(map(len, rows)) <= columns
    assert "s05" in last
    assert "s39 / late" in last
    assert ("consumers" in last) is (columns >= 200)
    assert "s39 / late" in left_behind


def test_an_empty_store_and_none(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s"):
        pass
    assert "0 in 0 streams" in ok("top", tmp_path / "s", "--interval", "100ms")
    assert invoke("top", tmp_path / "absent").exit_code == 1
    done = invoke("top", tmp_path / "s", "--interval", "1ms")
    assert done.exit_code == 1
    assert "100ms at least" in done.stderr


PAIRS = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), min_size=1, max_size=5)


def entry(pairs: list[tuple[bytes, bytes]]) -> Entry[bytes]:
    """An entry of some pairs."""
    return Entry(StreamID(1, 2), [part for pair in pairs for part in pair], None)


@given(PAIRS)
def test_json_gives_every_byte_back(pairs: list[tuple[bytes, bytes]]) -> None:
    line = json.dumps(forms.entry_object(entry(pairs)), ensure_ascii=False).encode()
    assert list(one_by_one(read_json(io.BytesIO(line), RowIDs()))) == [
        ImportRow(1, StreamID(1, 2), pairs)
    ]


@given(st.lists(st.binary(max_size=6), min_size=2, max_size=2, unique=True))
def test_readable_text_is_unambiguous_and_of_one_line(two: list[bytes]) -> None:
    texts = [forms.readable(raw) for raw in two]
    assert texts[0] != texts[1]
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        ("Zürich".encode(), "Zürich"),
        (b"a\xffb", "a\\xffb"),
        (b"\x1b[31m", "\\x1b[31m"),
        (b"two\nlines", "two\\nlines"),
        (b"C:\\xff", "C:\\\\xff"),
    ],
)
def test_readable(raw: bytes, text: str) -> None:
    assert forms.readable(raw) == text


@pytest.mark.parametrize(
    ("pairs", "form"),
    [
        ([(b"a", b"b")], {"id": "1-2", "fields": {"a": "b"}}),
        ([(b"a", b"b"), (b"a", b"c")], {"id": "1-2", "pairs": [["a", "b"], ["a", "c"]]}),
        ([(b"a", b"\xff")], {"id": "1-2", "pairs_base64": [["YQ==", "/w=="]]}),
    ],
)
def test_the_three_forms(pairs: list[tuple[bytes, bytes]], form: dict[str, object]) -> None:
    assert forms.entry_object(entry(pairs)) == form


def test_a_line_is_quoted_for_a_shell() -> None:
    assert forms.entry_line(entry([(b"a", b"b c"), (b"d", b"'")])) == "1-2 'a=b c' 'd='\"'\"''"


SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten streams, one of them with markup in its name, one with deleted entries; a pin of all."""
    path = tmp_path_factory.mktemp("map") / "store"
    with logstore.open(path, segment_bytes=64 << 10, background=False) as store:
        for n in range(9):
            store.stream(f"s{n}").add_many({"a": "x" * 40} for _ in range(400 - 40 * n))
        store.stream("<b>&").add_many({"a": "x" * 40} for _ in range(1000))
        ids = [entry.id for entry in store.stream("<b>&").range()]
        store.stream("<b>&").delete(*ids[::3])
        now_ms = opened_of(store).engine().clock.now_ms()
        pins.create(LOCAL, path, now_ms, 3_600_000, purpose="spark")
    return path


def made(segments: int) -> SpaceUsage:
    """A store of so many segments."""
    uses = [
        SegmentUse(n + 1, 0, False, n + 1 == segments, 1000 + n, 500, 100, {b"a": 500})
        for n in range(segments)
    ]
    uses[0].pins = ["p"]
    return SpaceUsage(uses, [StreamUse(b"b" * 100, 5, 1, 500)], [], {}, 1, 1)


def test_du_in_text(path: Path) -> None:
    text = ok("du", path, "--segments", "-n", 3)
    assert "and 7 more streams" in text
    assert re.search(r"^<b>& +666 ", text, re.MULTILINE)
    assert re.search(r"^log +\d.* KiB in \d segments$", text, re.MULTILINE)
    assert re.search(r"^  tombstoned +\d.* KiB, \d+ %$", text, re.MULTILINE)
    assert re.search(r"^pin +spark of process", text, re.MULTILINE)
    assert "pinned" in text


def test_du_and_map_tell_programs_the_same(path: Path) -> None:
    found = json.loads(ok("du", path, "--json"))
    assert len(found["streams"]) == 10
    assert found["segments"] == objects(ok("map", path, "--json"))
    assert found["live_bytes"] == sum(each["live_bytes"] for each in found["segments"])
    assert found["log_bytes"] == sum(
        found[f"{name}_bytes"] for name in ("live", "tombstoned", "dead")
    )
    assert found["pins"][0]["purpose"] == "spark"
    assert all(each["pins"] == [found["pins"][0]["id"]] for each in found["segments"])


def test_the_picture_without_a_terminal(path: Path) -> None:
    """Letters stand for streams; each bar is as long as its file."""
    head, _, *lines = ok("map", path).splitlines()
    assert re.fullmatch(
        r".* KiB in \d segments: \d+ % live, \d+ % tombstoned, .* dead; 1 pin: .*", head
    )
    bars = [line for line in lines if "live" in line]
    assert [line.split()[0] for line in bars] == [str(n + 1) for n in range(len(bars))]
    assert all("pinned" in line for line in bars)
    assert "active" in bars[-1]
    assert any("x" in line.split()[1] for line in bars)
    assert "AA <b>&" in "\n".join(lines)
    assert "other streams" in "\n".join(lines)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("segments", [1, 7, segment_map.BARS_MAX + 1, 500])
@pytest.mark.parametrize("blocks", [True, False])
def test_tables_fit_the_terminal(width: int, segments: int, blocks: bool) -> None:
    lines = list(segment_map.drawn(Picture(made(segments)), width, colours=blocks, blocks=blocks))
    assert all(len(line.plain) <= width for line in lines)
    assert blocks or all(line.plain.isascii() for line in lines)
    assert len(lines) < max(segments, 60) + 10


@pytest.mark.parametrize("width", [1, 7, 50])
@pytest.mark.parametrize("sizes", [(0, 0, 0), (1, 1, 1), (997, 2, 1), (5, 0, 10**12)])
def test_shares_add_up(width: int, sizes: tuple[int, ...]) -> None:
    found = segment_map.cells(dict(zip("abc", sizes, strict=True)), width)
    assert sum(found.values()) == (width if any(sizes) else 0)
    assert all(found[letter] <= width for letter in found)


def test_svg(path: Path, tmp_path: Path) -> None:
    """It is XML whatever streams are called, whole by itself, and has a bar for each segment."""
    file = tmp_path / "map.svg"
    assert ok("map", path, "--svg", file) == ""
    assert ok("map", path, "--svg", "-") == file.read_text()
    root = ET.fromstring(file.read_text())
    bars = root.findall(f"{SVG}g")
    assert len(bars) == len(objects(ok("map", path, "--json")))
    assert all(bar.find(f"{SVG}rect[@class='pinned']") is not None for bar in bars)
    texts = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert any(text.startswith("<b>&, ") for text in texts)
    assert "http" not in file.read_text().replace("http://www.w3.org/2000/svg", "")
    assert len(ET.fromstring(segment_svg(500)).findall(f"{SVG}g")) == 500


@pytest.mark.parametrize(
    "name", ["a", "sensors:hall-7:north:roof", "é" * 60, "工場" * 30, "W" * 40]
)
@pytest.mark.parametrize("title", ["store", "folder/" * 40 + "events"], ids=("short", "long"))
def test_no_text_of_the_svg_reaches_another_or_the_edge(name: str, title: str) -> None:
    from logstore.tools.views import segment_map

    found = made(3)
    found.segments[1].compacted = True
    for n, use in enumerate(found.segments):
        use.pins, use.size_bytes = ["p"], 10**15
        use.streams = {f"{n}{at}{name}".encode(): 100 for at in range(4)}
    found.streams[:] = [StreamUse(each, 5, 1, 9) for use in found.segments for each in use.streams]
    root = ET.fromstring(segment_map.svg_of(Picture(found), title))
    texts = [each for each in root.iter(f"{SVG}text") if each.get("text-anchor") is None]
    at = [(float(each.get("y", 0)), float(each.get("x", 0)), each) for each in texts]
    for y, x, each in at:
        head = each.get("class") == "title"
        cell = segment_map.TITLE_CELL if head else segment_map.CELL
        end = x + cell * cell_len(each.text or "")
        assert end <= segment_map.SVG_WIDTH - segment_map.SVG_MARGIN, each.text
        following = [other for line, other, _ in at if line == y and other > x]
        assert all(end < other - segment_map.SWATCH for other in following), each.text
    ground = root.find(f"{SVG}rect[@class='ground']")
    assert ground is not None
    assert (ground.get("width"), ground.get("height")) == (root.get("width"), root.get("height"))


def segment_svg(segments: int) -> str:
    """The picture of a store of so many segments."""
    from logstore.tools.views.segment_map import svg_of

    return svg_of(Picture(made(segments)), "a <store>")


def test_bad_input(path: Path, tmp_path: Path) -> None:
    done = invoke("map", path, "--svg", tmp_path / "a.svg", "--json")
    assert (done.exit_code, (tmp_path / "a.svg").exists()) == (2, False)
    done = invoke("map", path, "--svg", tmp_path / "missing" / "a.svg")
    assert (done.exit_code, "a.svg cannot be a file" in done.stderr) == (1, True)
    assert ".tmp" not in done.stderr
    for wrong in (tmp_path, Path("/proc/a.svg"), Path("/dev/fd/a.svg")):
        done = invoke("map", path, "--svg", wrong)
        assert (done.exit_code, f"{wrong} cannot be" in done.stderr) == (1, True)
        assert ".tmp" not in done.stderr
    assert not list(tmp_path.parent.glob("*.tmp"))
    assert invoke("du", tmp_path / "none").exit_code == 1


def test_an_empty_store(tmp_path: Path) -> None:
    logstore.open(tmp_path / "new").close()
    assert "live" in ok("du", tmp_path / "new")
    assert "0 % live" in ok("map", tmp_path / "new")
    assert ok("map", tmp_path / "new", "--svg", "-").startswith("<svg")
