"""Prevents a page that shows a store wrongly, lets in who may not, or changes what it must not."""

from __future__ import annotations

import html
import re
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request

import logstore
from logstore.api import showing
from logstore.api.opening import opened_of
from logstore.engine.groups.group_rows import PAGE_ROWS
from logstore.index.group_txn import GroupTxn
from logstore.index.txn import IndexTxn
from logstore.web import views
from logstore.web.addresses import key_of, name_of
from logstore.web.app import Pages
from logstore.web.entry_search import Asked, search
from tests.tools.commands import invoke
from tests.web.serving import ENTRIES, ask, served


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, ""), (0.2, "now"), (59, "59 s"), (90, "2 min"), (7200, "2 h"), (864_000, "10 d")],
)
def test_lengths_of_time(seconds: float | None, told: str) -> None:
    assert showing.length(None if seconds is None else timedelta(seconds=seconds)) == told


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes(count: int, told: str) -> None:
    assert showing.size(count) == told


@pytest.mark.parametrize("name", [b"a", b"", "ä/?&#".encode(), b"\xff\x00", b"0x", b"0x61"])
def test_a_name_comes_back_from_its_address(name: bytes) -> None:
    assert name_of(key_of(name)) == name


def test_pages_show_what_is_there(address: str) -> None:
    status, headers, page = ask(address, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert re.search(r'href="/stream\?name=orders">orders</a></td>\s*<td class="n">120<', page)
    assert "5</b> streams" in page
    _, _, page = ask(address, "/stream?name=orders")
    assert page.count("<dt>n</dt>") == 50
    assert "&lt;b&gt;anna&lt;/b&gt;" in page
    assert "<b>anna" not in page
    assert "packers" in page
    assert "dora" in page
    older = re.search(r'href="(/stream\?name=orders&amp;before=[^"#]+)', page)
    assert older is not None
    _, _, page = ask(address, older[1].replace("&amp;", "&"))
    assert re.findall(r"<dt>n</dt><dd>(\d+)<", page) == [str(n) for n in range(69, 19, -1)]
    since = "2023-11-14T22:13:30Z"  # entry number 10 on
    _, _, page = ask(address, f"/stream?name=orders&since={since}&until=2023-11-14T22:13:32Z")
    assert re.findall(r"<dt>n</dt><dd>(\d+)<", page) == ["12", "11", "10"]
    _, _, page = ask(address, "/dead")
    assert page.count("no such &lt;article&gt;") == 3
    assert "Try again</button>" not in page
    assert "segment 1," in ask(address, "/segments")[2]


def test_a_monitor_learns_of_a_store_that_fails_and_lists_no_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logstore.open(tmp_path / "s", background=False) as opened:
        opened.stream("a").add({"a": "b"})
        pages, request = Pages(opened, write=False), Request({"type": "http"})
        monkeypatch.setattr(logstore.Store, "streams", None)
        monkeypatch.setattr(IndexTxn, "records", None)
        answer = pages.health(request)
        assert (answer.status_code, answer.body) == (200, b'{"status":"ok"}')
        opened_of(opened).engine().wake.failed_at = 1
        answer = pages.health(request)
        assert answer.status_code == 503
        assert b"a sync of " in answer.body


def test_a_page_is_bounded_whatever_the_store_holds(tmp_path: Path) -> None:
    """Large entries, many groups, many consumers: all can be reached, or are counted."""
    with logstore.open(tmp_path / "s", background=False) as store:
        stream = store.stream("x")
        large = [str(stream.add({"v": b"v" * (3 << 20), "n": str(n)})) for n in range(6)]
        names = [f"group{n:03}" for n in range(2 * views.GROUPS_A_PAGE + 5)]
        with store.transaction() as tx:
            for name in names:
                tx.stream("x").group(name).create()
        busy = stream.group(names[0])
        for n in range(views.CONSUMERS_A_GROUP + 3):
            busy.add_consumer(f"worker{n:03}")
        seen: list[str] = []
        before = ""
        while True:
            found_rows = search(stream, Asked(before=before))
            assert len(found_rows.rows) <= 2
            seen += [row.id for row in found_rows.rows]
            before = found_rows.older
            if not before:
                break
        assert seen == large[::-1]
    with served(tmp_path / "s") as address:
        found: list[str] = []
        more = "/stream?name=x"
        while more:
            _, _, page = ask(address, more)
            found += re.findall(r"<td>(group\d+)</td>", page)
            link = re.search(r'href="([^"]*groups=\d+)"', page)
            more = html.unescape(link[1]) if link else ""
        assert found == names
        _, _, page = ask(address, "/stream?name=x")
        assert page.count("<td>worker") == views.CONSUMERS_A_GROUP
        assert f"{views.CONSUMERS_A_GROUP + 3} consumers, the first" in page
        assert ask(address, "/stream?name=x&groups=odd")[0] == 200


def test_a_page_of_groups_reads_no_more_of_them_than_it_sorts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 groups or consumers a page took seconds."""
    count = 2 * PAGE_ROWS + 5
    with logstore.open(tmp_path / "s", background=False) as store:
        store.stream("x").add({"n": "1"})
        for some in batched_names("group", count):
            with store.transaction() as tx:
                for name in some:
                    tx.stream("x").group(name).create()
        looked: list[str] = []
        group, consumers = GroupTxn.group, GroupTxn.page_of_consumers
        monkeypatch.setattr(
            GroupTxn, "group", lambda txn, number: looked.append("group") or group(txn, number)
        )
        monkeypatch.setattr(
            GroupTxn,
            "page_of_consumers",
            lambda txn, number, after, most: (
                looked.append("c" * most) or consumers(txn, number, after, most)
            ),
        )
        found: list[str] = []
        place: views.GroupPlace | None = views.GroupPlace()
        while place is not None:
            looked.clear()
            rows, place = views.group_rows(store, b"x", place)
            found += [row.name for row in rows]
            assert looked.count("group") < PAGE_ROWS + 10 * views.GROUPS_A_PAGE
            assert max(map(len, looked)) <= views.CONSUMERS_A_GROUP
        assert sorted(found) == [f"group{n:05}" for n in range(count)]
        assert found[:PAGE_ROWS] == sorted(found[:PAGE_ROWS])
        looked.clear()
        assert store.stream("x").group(found[-1]).info().name == found[-1].encode()
        assert looked.count("group") < 10
        with pytest.raises(logstore.OptionError):
            views.group_rows(store, b"x", views.GroupPlace("odd"))
    with served(tmp_path / "s") as address:
        assert ask(address, "/stream?name=x&after=odd")[0] == 400
        assert ask(address, "/stream?name=x&after=ff&groups=9")[0] == 200


def batched_names(prefix: str, count: int) -> Iterator[list[str]]:
    names = [f"{prefix}{n:05}" for n in range(count)]
    return (names[at : at + 500] for at in range(0, count, 500))


def test_names_that_are_no_text_have_addresses(address: str) -> None:
    _, _, page = ask(address, "/")
    for key, value in (("0x6f6464ff", "1"), ("0x30786162", "2")):
        assert f"/stream?name={key}" in page
        assert f"<dt>a</dt><dd>{value}</dd>" in ask(address, f"/stream?name={key}")[2]


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/stream?name=absent", 404, "no stream of this name"),
        ("/stream", 404, "no stream of this name"),
        ("/stream?name=0xzz", 400, "no stream has this name"),
        ("/stream?name=orders&before=x", 400, "Invalid stream ID"),
        ("/stream?name=orders&since=yesterday", 400, "yesterday"),
        ("/stream?name=" + "a" * 60_000, 404, ""),
        ("/?page=99999999999999999999", 200, "orders"),
        ("/?page=-1", 200, "orders"),
        ("/../../etc/passwd", 404, "no such page"),
        ("/assets/..%2f..%2fserver.py", 404, "no such page"),
        ("/assets/base.html", 404, "no such page"),
    ],
)
def test_unreadable_streams_are_shown_as_errors(
    address: str, target: str, status: int, words: str
) -> None:
    found, _, page = ask(address, target)
    assert (found, words in page) == (status, True), page
    assert "Traceback" not in page


def test_another_host_or_page_may_neither_look_nor_change(address: str) -> None:
    assert ask(address, "/", Host="evil.example")[0] == 421
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": address.rstrip("/")}):
        assert ask(address, "/drop?name=orders&id=1-1", "POST", **headers)[0] == 403
    _, headers, _ = ask(address, "/")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "server" not in headers


def test_beyond_loopback_nothing_is_shown_without_the_token(store: Path) -> None:
    """Also where nothing can be changed; any name of the host is taken."""
    with served(store, "--host", "0.0.0.0") as full:
        token = urlsplit(full).query
        assert len(token) > 30
        for target in ("/", "/stream?name=orders", "/segments", "/health", "/?token=wrong"):
            status, _, page = ask(full, target, Host="db.example")
            assert (status, "orders" in page) == (403, False), target
            assert "open the address that 'logstore web' printed" in page
        status, headers, _ = ask(full, f"/?{token}", Host="db.example")
        cookie = {"Cookie": headers["set-cookie"].partition(";")[0]}
        assert (status, ask(full, "/", Host="db.example", **cookie)[0]) == (303, 200)


def test_the_age_of_an_entry_added_a_moment_ago(store: Path, tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", encoding="utf-8") as opened:
        opened.stream("later").add({"a": "b"}, id=f"{int(time.time() * 1000) + 900}-0")
        with served(tmp_path / "store") as shown:
            page = ask(shown, "/")[2]
    assert re.search(r">(just now|\d+ s ago|in \d+ s)</time>", page)


def test_dead_letters_are_tried_again_and_dropped_with_a_token(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(store, path)
    with served(path, "--write") as full:
        token = urlsplit(full).query
        assert len(token) > 30
        for wrong in ("/dead", "/dead?token=", "/dead?token=" + "x" * 32):
            assert ask(full, wrong)[0] == 403
        status, headers, _ = ask(full, f"/dead?{token}")
        assert (status, headers["location"]) == (303, "/dead")
        cookie = headers["set-cookie"].partition(";")[0]
        assert {"HttpOnly", "SameSite=strict"} <= set(headers["set-cookie"].split("; "))
        mine = {"Cookie": cookie, "Origin": f"http://{urlsplit(full).netloc}"}
        _, _, page = ask(full, "/dead", **mine)
        retries = re.findall(r'action="(/retry[^"]+)"', page)
        drops = re.findall(r'action="(/drop[^"]+)"', page)
        assert (len(retries), len(drops)) == (3, 3)
        other = {**mine, "Origin": "http://evil.example"}
        assert ask(full, retries[0].replace("&amp;", "&"), "POST", **other)[0] == 403
        for action in (retries[0], drops[1]):
            assert ask(full, action.replace("&amp;", "&"), "POST", **mine)[0] == 303
        again = ask(full, retries[0].replace("&amp;", "&"), "POST", **mine)
        assert (again[0], "is gone" in again[2]) == (404, True)
    with logstore.open(path, encoding="utf-8") as opened:
        assert len(opened.stream("orders:dead")) == 1
        last = opened.stream("orders").last
        assert last is not None
        assert list(last.fields) == ["n", "who"]
        assert len(opened.stream("orders")) == ENTRIES + 1


def test_unservable_options_are_refused(tmp_path: Path, address: str) -> None:
    assert invoke("web", tmp_path / "absent").exit_code == 1
    logstore.open(tmp_path / "store").close()
    taken = invoke("web", tmp_path / "store", "--port", urlsplit(address).port)
    assert taken.exit_code == 1
    assert "stop it, or give another port, 0 for any" in taken.stderr
    elsewhere = invoke("web", tmp_path / "store", "--host", "192.0.2.1", "--port", 0)
    assert elsewhere.exit_code == 1
    assert "this machine has no such address: give 127.0.0.1" in elsewhere.stderr
