"""Prevents counts and lists of streams that are missing or of another thing."""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import logstore
from tests.tools.commands import invoke, objects, ok, process


def test_a_store(store: Path) -> None:
    found = json.loads(ok("info", store, "--json"))
    with logstore.open(store) as opened:
        wanted = opened.info().as_dict()
    for name in ("path", "uuid", "streams", "segments", "log_bytes", "codec"):
        assert found[name] == wanted[name], name


def test_a_closed_store_is_durable_to_its_end(store: Path) -> None:
    found = json.loads(ok("info", store, "--json"))
    assert found["applied_offset"] > 0
    assert found["durable_segment"] == found["applied_segment"]
    assert found["durable_offset"] == found["applied_offset"]
    assert found["deleted_bytes"] == 0
    assert 0 <= found["reclaimable_bytes"] < found["log_bytes"]


def test_text_as_a_process(store: Path) -> None:
    done = process("info", store)
    assert done.returncode == 0
    names = [line.split("  ")[0] for line in done.stdout.decode().splitlines()]
    assert {"path", "streams", "on disk", "deleted", "reclaimable", "pins"} <= set(names)


def test_info_and_du_tell_the_log_in_the_same_lines(empty: Path) -> None:
    """What is dead stands beside what is reclaimable, also where nothing was deleted."""
    with logstore.open(empty, background=False) as opened:
        for number in range(3000):
            opened.stream("s").add({"n": str(number), "pad": "x" * 60})
    shown = ok("info", empty).splitlines()
    at = [line.split("  ")[0] for line in shown].index("log")
    parts = shown[at + 1 : at + 4]
    assert [line.split()[0] for line in parts] == ["live", "tombstoned", "dead"]
    for line in parts:
        assert line.split() in [each.split() for each in ok("du", empty).splitlines()]
    told = {line.split()[0]: line.split(None, 1)[1] for line in shown}
    assert told["deleted"] == "no entry that is still in the log"
    assert "of the log" in told["reclaimable"]
    assert not told["dead"].startswith("0 ")


def test_top_tells_of_compactions_since_the_store_is_open(empty: Path) -> None:
    with logstore.open(empty, background=False) as opened:
        opened.stream("s").add({"a": "1"})
    assert "not since it is open" in ok("top", empty, "--interval", "100ms")
    ok("compact", empty)
    assert "never" not in ok("top", empty, "--interval", "100ms")


def test_a_stream(store: Path) -> None:
    found = json.loads(ok("info", store, "race", "--json"))
    assert found["name"] == "race"
    assert (found["length"], found["entries_added"]) == (4, 4)
    assert found["last_generated_id"] == "3-0"
    assert found["first_entry"] == {"id": "1-1", "fields": {"rider": "Castilla", "speed": "30.2"}}
    assert found["last_entry"] == {"id": "3-0", "pairs_base64": [["AP8=", "/g=="]]}


def test_a_stream_in_text(store: Path) -> None:
    lines = dict(line.split("  ", 1) for line in ok("info", store, "race").splitlines())
    assert lines["length"].strip() == "4 entries"
    assert lines["first entry"].strip() == "1-1 rider=Castilla speed=30.2"  # no time of a clock


def test_the_groups_of_a_stream(store: Path) -> None:
    with logstore.open(store) as opened:
        opened.stream("race").group("riders", start="0").read("alice", count=2)
        opened.stream("race").group(b"odd\xff", start="0")
    found = json.loads(ok("info", store, "race", "--json"))
    assert found["groups"] == 2
    assert set(found["consumer_groups"][1].pop("settings").values()) == {None, 3_600_000}
    assert found["consumer_groups"][1] == {
        "name": "riders", "consumers": 1, "pending": 2, "last_delivered_id": "1-2",
        "entries_read": 2, "lag": 2,
    }  # fmt: skip
    assert found["consumer_groups"][0]["name_base64"] == "b2Rk/w=="
    head, *rows = [re.split(r"  +", line) for line in ok("info", store, "race").splitlines()[-3:]]
    assert head == ["group", "consumers", "pending", "lag", "last delivered", "settings"]
    assert [row[:5] for row in rows] == [
        ["odd\\xff", "0", "0", "4", "0-0"], ["riders", "1", "2", "2", "1-2"],
    ]  # fmt: skip


def test_people_get_sizes_dates_and_settings(empty: Path) -> None:
    """What is raw is for programs."""
    with logstore.open(empty) as opened:
        stream = opened.stream("s")
        last = stream.add({"a": "x" * 3000}, id=str(int(time.time() * 1000) - 3 * 3_600_000))
        stream.configure(max_age=timedelta(days=7), max_entries=5_000_000, max_bytes=1 << 30)
        stream.group("g", start="0").configure(min_idle=90)
    text = ok("info", empty, "s")
    assert f"{last}, 3 h ago" in text
    assert "max age 7d, max entries 5,000,000, max bytes 1.0 GiB" in text
    assert "min idle 1m30s" in text
    assert json.loads(ok("info", empty, "s", "--json"))["settings"]["max_age_ms"] == 604_800_000
    with logstore.open(empty) as opened:
        opened.stream("s").trim(max_entries=0, approximate=False)
    text = ok("info", empty)
    assert re.search(r"^deleted +3\.\d KiB still in the log", text, re.MULTILINE)
    assert re.search(r"^reclaimable +.* % of the log: 'logstore compact'", text, re.MULTILINE)
    assert "durable up to  all of it" in text


def test_all_of_a_stream(store: Path) -> None:
    """Also names that are no text, and lists that are cut."""
    with logstore.open(store) as opened:
        group = opened.stream("race").group("riders", start="0")
        group.read("alice", count=2)
        group.read(b"odd\xff", count=1)
        group.nack("1-1")
    found = json.loads(ok("info", store, "race", "--full", "--json"))
    assert (found["name"], found["length"], len(found["entries"])) == ("race", 4, 4)
    assert found["entries"][3] == {"id": "3-0", "pairs_base64": [["AP8=", "/g=="]]}
    riders = found["groups"][0]
    assert (riders["name"], riders["pel_count"], riders["nacked_count"]) == ("riders", 3, 1)
    first, second, third = riders["pending"]
    assert (first["consumer"], first["delivery_time"]) == (None, 0)
    assert (second["id"], second["consumer"], third["consumer_base64"]) == (
        "1-2", "alice", "b2Rk/w==",
    )  # fmt: skip
    assert riders["consumers"][0]["pending"][0].keys() == {
        "id", "delivery_time", "delivery_count",
    }  # fmt: skip
    short = json.loads(ok("info", store, "race", "--full", "--count", "1", "--json"))
    assert (len(short["entries"]), len(short["groups"][0]["pending"])) == (1, 1)
    lines = dict(line.split("  ", 1) for line in ok("info", store, "race", "--full").splitlines())
    assert lines["groups 1 name"].strip() == "riders"
    assert lines["groups 1 consumers 1 pending 1 id"].strip() == "1-2"
    assert lines["groups 1 consumers 2 name"].strip() == "odd\\xff"


def test_full_is_about_a_stream(store: Path) -> None:
    assert process("info", store, "--full").returncode == 2


def test_table(store: Path) -> None:
    head, *rows = ok("streams", store).splitlines()
    assert re.split(r"  +", head) == [
        "stream", "entries", "size bytes", "last ID", "age", "groups", "lag", "pending",
    ]  # fmt: skip
    assert [row.split() for row in rows] == [
        ["odd\\xff", "1", "29", "7-7"], ["race", "4", "135", "3-0"],
    ]  # fmt: skip


def test_json_as_a_process(store: Path) -> None:
    done = process("streams", store, "--json")
    assert done.returncode == 0
    more = {"groups": 0, "lag": 0, "pending": 0}
    assert objects(done.stdout) == [
        {"name_base64": "b2Rk/w==", "entries": 1, "last_id": "7-7", "first_id": "7-7",
         "size_bytes": 29, **more},
        {"name": "race", "entries": 4, "last_id": "3-0", "first_id": "1-1",
         "size_bytes": 135, **more},
    ]  # fmt: skip


def test_the_groups_of_a_stream_are_summed_up(store: Path) -> None:
    """The lag is the largest, what is pending that of all; one that is not known hides no other."""
    with logstore.open(store) as opened:
        race = opened.stream("race")
        race.group("fast", start="0").read("a", count=3)
        race.group("slow", start="0").read("b", count=1)
        race.group("unknown", start="1-1")
    found = next(each for each in objects(ok("streams", store, "--json")) if "name" in each)
    assert (found["groups"], found["lag"], found["pending"]) == (3, 3, 4)
    assert ok("streams", store).splitlines()[-1].split()[-3:] == ["3", "3", "4"]


def test_entries_of_info_are_those_of_range(empty: Path) -> None:
    """The values of a typed stream were texts here and numbers there; no digit is lost."""
    with logstore.open(empty) as opened:
        typed = opened.stream("typed")
        typed.configure(schema="n long, price decimal(30, 2), tags json?, *")
        typed.add({"n": 2**60 + 1, "price": "1234567890123456789012345.60", "x": "07"}, "1-0")
        typed.add({"n": -1, "price": 2, "tags": {"a": [1, "1"]}}, "2-0")
        opened.stream("coded", codec="json").add({"n": 7, "at": [1, None]}, "1-0")
        group = opened.stream("typed").group("g", start="0")
        group.read("c")
    for name in ("typed", "coded"):
        lines = ok("range", empty, name, "--json").splitlines()
        plain = ok("info", empty, name, "--json")
        found = json.loads(plain)
        assert [found["first_entry"], found["last_entry"]] == [
            json.loads(lines[0]), json.loads(lines[-1]),
        ]  # fmt: skip
        assert lines[0] in plain
    whole = ok("info", empty, "typed", "--full", "--json")
    assert all(line in whole for line in ok("range", empty, "typed", "--json").splitlines())
    assert '"price": 1234567890123456789012345.60' in ok("info", empty, "typed", "--json")


def test_a_name_is_no_markup(empty: Path) -> None:
    """Rich would take [red] for a colour."""
    ok("add", empty, "[red]a", "a=b")
    assert "[red]a" in ok("streams", empty)


def test_the_numbers_of_a_store(store: Path) -> None:
    families = list(text_string_to_metric_families(ok("metrics", store)))
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert found["logstore_streams",] == 2
    assert found["logstore_stream_entries", "race"] == 4
    assert not any(name[0].startswith("logstore_process") for name in found)
    rows = objects(ok("metrics", store, "--json", "--series", 1, "--stream", "r*"))
    assert {"name": "logstore_stream_entries", "stream": "race", "value": 4} in rows
    assert [row["stream"] for row in rows if row["name"] == "logstore_stream_entries"] == ["race"]
    assert {row["name"] for row in rows} >= {name.removesuffix("_total") for name, *_ in found}


def test_no_store_is_no_store(tmp_path: Path) -> None:
    done = invoke("metrics", tmp_path / "absent")
    assert done.exit_code == 1
    assert not (tmp_path / "absent").exists()


def test_streams_by_pattern_and_order(empty: Path) -> None:
    with logstore.open(empty) as store:
        for name, count in (("a:1", 3), ("a:2", 9), ("b:1", 5)):
            store.stream(name).add_many({"n": str(n)} for n in range(count))
        store.stream("a:1").group("g", start="0").read("c", count=2)

    def names(*arguments: object) -> list[str]:
        return [each["name"] for each in objects(ok("streams", empty, *arguments, "--json"))]

    assert names("a:*") == ["a:1", "a:2"]
    assert names("--sort", "bytes") == ["a:2", "b:1", "a:1"]
    assert names("--sort", "entries", "-n", 2) == ["a:2", "b:1"]
    assert names("?:1", "--sort", "entries") == ["b:1", "a:1"]
    assert names("--sort", "pending", "-n", 1) == ["a:1"]
    assert names("--sort", "lag", "-n", 1) == ["a:1"]
    assert names("-n", 1) == ["a:1"]
    assert names("-n", 0) == ["a:1", "a:2", "b:1"]
    assert names("c*") == []
    text = ok("streams", empty, "--sort", "bytes", "-n", 1).splitlines()
    assert text[-1] == "and 2 more streams: -n 0 shows all"
    assert ok("streams", empty, "c*") == "no stream is called like 'c*'\n"


def test_an_info_is_printed_as_a_screen(empty: Path) -> None:
    with logstore.open(empty, encoding="utf-8") as store:
        stream = store.stream("s")
        stream.add({"text": "x" * 500})
        stream.configure(max_age="7d", max_bytes=1 << 30)
        stream.group("g", start="0").read("c")
        (group,) = stream.groups()
        consumer = stream.group("g").consumers()[0]
        for info in (stream.info(), store.info(), group, consumer, stream.info_full()):
            lines = str(info).splitlines()
            assert 3 <= len(lines) <= 24
            assert all(len(line) <= 80 for line in lines)
        told = dict(re.split("  +", line, maxsplit=1) for line in str(stream.info()).splitlines())
    assert (told["name"], told["length"], told["max age"]) == ("s", "1", "7 d")
    assert told["max bytes"] == "1.0 GiB"
    assert told["last generated id"].endswith("just now")
    assert "expires at" not in told
