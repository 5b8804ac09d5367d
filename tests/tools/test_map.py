"""Prevents a picture of the space that does not fit its terminal, or that shows other shares."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.compaction.usage import SegmentUse, StreamUse, Usage
from logstore.engine.runtime import pins
from logstore.fs import LOCAL
from logstore.tools.command_output import cell_len
from logstore.tools.views import segment_map
from logstore.tools.views.segment_map import Picture
from tests.tools.commands import invoke, objects, ok

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


def made(segments: int) -> Usage:
    """A store of so many segments."""
    uses = [
        SegmentUse(n + 1, 0, False, n + 1 == segments, 1000 + n, 500, 100, {b"a": 500})
        for n in range(segments)
    ]
    uses[0].pins = ["p"]
    return Usage(uses, [StreamUse(b"b" * 100, 5, 1, 500)], [], {}, 1, 1)


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
def test_it_fits(width: int, segments: int, blocks: bool) -> None:
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
