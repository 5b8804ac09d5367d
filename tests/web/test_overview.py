"""Prevents lists in another order than the command's, findings that the doctor does not have,
charts of nothing, and parts of segments that only their colour tells."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.telemetry.segment_parts import Picture
from logstore.telemetry.stream_lines import SORTS
from logstore.tools.views import overview, top_picture
from logstore.web import views
from logstore.web.stream_list import COLUMNS, STREAMS_A_PAGE
from tests.tools.commands import invoke, ok
from tests.web.serving import ask, served

STREAMS = 105
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More streams than a page has, each with other numbers; a finding of the doctor's."""
    path = tmp_path_factory.mktemp("many") / "store"
    with logstore.open(path, encoding="utf-8", background=False) as opened:
        for n in range(STREAMS):
            stream = opened.stream(f"s{n:03}")
            stream.add_many({"n": "x" * (n % 7)} for _ in range(1 + n * 37 % STREAMS))
            for group in range(n % 4):
                stream.group(f"g{group}", start="0").read("anna", count=n % 5)
        dead = opened.stream("s001").group("g0")
        dead.configure(max_deliveries=1, dead_letter="s000")
    return path


@pytest.fixture(scope="module")
def many_address(many: Path) -> Iterator[str]:
    with served(many) as found:
        yield found


def names(address: str, target: str) -> list[str]:
    """The streams on a page, in its order."""
    return re.findall(r'<td><a href="[^"]*">(s\d+)</a>', ask(address, target)[2])


@pytest.mark.parametrize("sort", list(SORTS))
def test_a_list_has_the_order_of_the_command(many: Path, many_address: str, sort: str) -> None:
    listed = ok("streams", many, "--sort", sort, "--json").splitlines()
    wanted = [json.loads(line)["name"] for line in listed]
    found = names(many_address, f"/?sort={sort}") + names(many_address, f"/?sort={sort}&page=2")
    assert found == wanted
    page = html.unescape(ask(many_address, f"/?sort={sort}")[2])
    way = "ascending" if sort == "name" else "descending"
    assert re.findall(r'aria-sort="(\w+)"', page) == [way]
    assert f"/?q=&sort={sort}&up" in page  # a second click turns it
    more = re.search(r'href="([^"]*page=2)"', page)
    assert more is not None
    assert names(many_address, more[1]) == wanted[STREAMS_A_PAGE:]
    turned = names(many_address, f"/?sort={sort}&up")
    assert turned[0] == wanted[-1]
    assert (
        'aria-sort="' + ("descending" if sort == "name" else "ascending")
        in ask(many_address, f"/?sort={sort}&up")[2]
    )


def test_an_order_that_there_is_not_is_by_name(many_address: str) -> None:
    assert names(many_address, "/?sort=odd")[:2] == ["s000", "s001"]


def test_each_matter_has_one_word() -> None:
    """As in `logstore streams`, `groups` and `top`."""
    words = {column.word.lower() for column in COLUMNS}
    age = {"last entry"}  # the command has its ID and its age in two columns
    assert words - age <= {*overview.STREAMS_HEAD}
    assert {"entries", "size"} <= {*top_picture.STREAM_HEAD} & words
    assert {"lag", "pending"} <= {*top_picture.GROUP_HEAD} & words


def test_findings_are_those_of_the_doctor(many: Path, many_address: str) -> None:
    told = invoke("doctor", many, "--json", "--watch", "0").stdout
    wanted = [(each["level"], each["command"]) for each in json.loads(told)["findings"]]
    end = time.monotonic() + PATIENCE_S
    while '<ul class="findings">' not in (page := ask(many_address, "/doctor")[2]):
        assert time.monotonic() < end, page
    levels = re.findall(r'<strong class="level \w+">(\w+)</strong>', page)
    commands = [html.unescape(each) for each in re.findall(r'data-copy="([^"]*)"', page)]
    assert levels == [level for level, _ in wanted]
    assert commands == [command for _, command in wanted if command]
    mark = re.search(r'class="mark (\w+)">(\d+)', ask(many_address, "/segments")[2])
    assert mark is not None
    assert mark.groups() == (levels[0], str(len(wanted)))


def test_rates_become_charts(tmp_path: Path) -> None:
    """Of the store and of a stream, and what is not added to has a chart of nothing."""
    with logstore.open(tmp_path / "s", encoding="utf-8") as opened:
        opened.stream("idle").add({"a": "b"})
        busy = opened.stream("busy")
        group = busy.group("g", start="0")
        with served(tmp_path / "s") as address:
            end = time.monotonic() + PATIENCE_S
            words: list[str] = []
            while not any(re.search(r"[1-9][\d.,]* at most", each) for each in words):
                assert time.monotonic() < end, words
                busy.add({"a": "b"})
                for delivery in group.read("anna"):
                    delivery.ack()
                words = charts(ask(address, "/stream?name=busy")[2])
            assert [each.partition(" a second in the last ")[0] for each in words] == [
                "adds", "acks",
            ]  # fmt: skip
            whole = charts(ask(address, "/")[2])
            assert re.search(r"[1-9][\d.,]* at most", whole[0])
            idle = charts(ask(address, "/stream?name=idle")[2])
            assert all(each.endswith(": 0 now, 0 at least, 0 at most") for each in idle)


def charts(page: str) -> list[str]:
    """What the charts of a page say in words."""
    return re.findall(r'<svg [^>]*aria-label="(\w+ a second[^"]*)"', page)


def test_parts_of_segments_have_letters_and_words(many: Path, many_address: str) -> None:
    with logstore.open(many, readonly=True) as opened:
        picture = Picture(views.used(opened))
    page = ask(many_address, "/segments")[2]
    legend = page.partition('<ul class="legend"')[2].partition("</ul>")[0]
    for part in picture.parts.values():
        assert f"</svg> {part.label} <small>" in legend
        if part.letter not in "x.":
            assert f">{part.letter}</text>" in legend
            assert f'fill="{part.colour}"' in page
    said = re.findall(r'role="img" aria-label="(segment [^"]*)"', page)
    assert len(said) == len(picture.usage.segments)
    largest = next(iter(picture.parts.values())).label
    assert f"% {largest}" in said[0]
