"""Prevents numbers for Prometheus and OpenTelemetry that differ from what the store tells itself,
or that fail where a store is odd.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import logstore
from logstore.api.opening import opened_of
from logstore.errors import OptionError
from logstore.telemetry.gathering import exposition, gather
from logstore.telemetry.opentelemetry import observe
from logstore.telemetry.prometheus import StoreCollector
from tests.support.inside import FixedClock

NOW_MS = 1_700_000_000_000
NAMES = ["orders", 'quote"\\\n', b"\xff"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logstore.Store[bytes]]:
    """Streams with odd names, the first with two groups; one that expired; the clock stands."""
    clock = FixedClock(NOW_MS)
    with logstore.open(tmp_path / "s", background=False, sync="os", clock=clock) as opened:
        for name in NAMES:
            opened.stream(name).add_many([{"a": "b"}] * 5)
        opened.stream(NAMES[1]).delete(f"{NOW_MS}-4")
        mail = opened.stream("orders").group("mail", "0")
        opened.stream("orders").group("idle", "$")
        mail.read("c", count=3)
        clock.ms = NOW_MS + 20_000
        mail.read("c", count=1)
        clock.ms = NOW_MS + 60_000
        gone = opened.stream("gone")
        gone.add({"a": "b"})
        gone.expire(after=timedelta(seconds=1))
        clock.ms += 10_000
        yield opened


def numbers(store: logstore.Store[bytes], *given: Any) -> dict[tuple[str, ...], float]:
    """Samples by name and labels."""
    return {
        (family.name, *labels): number
        for family in gather(opened_of(store), *given)
        for labels, number in family.samples
    }


def test_the_numbers_are_those_that_the_store_tells(store: logstore.Store[bytes]) -> None:
    found, info = numbers(store), store.info()
    for name, of in {
        "streams": "streams", "segments": "segments", "nodes": "nodes", "log_bytes": "log_bytes",
        "disk_bytes": "disk_bytes", "reclaimable_bytes": "reclaimable_bytes", "pins": "pins",
        "live_bytes": "live_bytes", "tombstoned_bytes": "tombstoned_bytes",
        "dead_bytes": "dead_bytes",
    }.items():  # fmt: skip
        assert found[f"logstore_{name}",] == getattr(info, of), name
    assert found["logstore_entries",] == 14
    assert found["logstore_groups",] == 2
    assert found["logstore_pending",] == 4
    assert found["logstore_streams_without_series",] == 0
    assert found["logstore_stream_entries", "orders"] == 5
    assert found["logstore_stream_entries", "\\xff"] == 5
    assert found["logstore_stream_entries", NAMES[1]] == 4
    assert found["logstore_stream_entries_added", NAMES[1]] == 5
    assert found["logstore_stream_last_timestamp_seconds", "orders"] == NOW_MS / 1000
    assert ("logstore_stream_entries", "gone") not in found
    lag = "logstore_group_lag"
    for group in store.stream("orders").groups():
        name = group.name.decode()
        assert found[lag, "orders", name] == group.lag
        assert found["logstore_group_pending", "orders", name] == group.pending
        assert found["logstore_group_consumers", "orders", name] == group.consumers
    assert found["logstore_group_oldest_pending_seconds", "orders", "mail"] == 70
    assert found["logstore_group_oldest_pending_seconds", "orders", "idle"] == 0
    assert found["logstore_process_added_entries",] == 16
    assert found["logstore_not_durable_bytes",] > 0
    store.sync()
    assert numbers(store)["logstore_not_durable_bytes",] == 0


def test_entries_that_were_given_back_have_no_age(tmp_path: Path) -> None:
    """It had that of the line it stands in, or an hour as soon as it was put off for a moment."""
    clock = FixedClock(NOW_MS)
    oldest = "logstore_group_oldest_pending_seconds", "jobs", "workers"
    with logstore.open(tmp_path / "jobs", background=False, clock=clock) as store:
        jobs = store.stream("jobs")
        jobs.add_many([{"a": "b"}] * 3)
        group = jobs.group("workers", "0")
        group.configure(min_idle=3600)
        first, second, third = group.read("w", count=3)
        clock.ms += 5_000
        assert numbers(store)[oldest] == 5
        group.nack(first.id)
        group.nack(second.id, delay=1)
        assert numbers(store)[oldest] == 5  # of the third
        third.ack()
        assert numbers(store)[oldest] == 0
        clock.ms += 60_000
        assert group.read("v", count=1)
        clock.ms += 7_000
        assert numbers(store)[oldest] == 7


def test_series_have_a_cap_and_totals_have_none(
    store: logstore.Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.telemetry.gathering.ROWS_A_SNAPSHOT", 1)
    found = numbers(store, 1)
    assert [key for key in found if key[0] == "logstore_stream_entries"] == [
        ("logstore_stream_entries", "orders")
    ]
    assert [key for key in found if key[0] == "logstore_group_lag"] == [
        ("logstore_group_lag", "orders", "mail")
    ]
    assert found["logstore_streams_without_series",] == 2
    assert found["logstore_groups_without_series",] == 1
    assert (found["logstore_streams",], found["logstore_entries",]) == (3, 14)
    assert found["logstore_pending",] == 4
    chosen = numbers(store, 1, ("q*",))
    assert ("logstore_stream_entries", NAMES[1]) in chosen
    assert ("logstore_stream_entries", "orders") not in chosen
    assert chosen["logstore_groups_without_series",] == 2
    assert not [key for key in numbers(store, 0) if len(key) > 1]


def test_prometheus_reads_what_it_is_sent(store: logstore.Store[bytes]) -> None:
    """Its own parser judges, names with quotes and line ends included."""
    families = gather(opened_of(store))
    read = {
        (
            sample.name.removesuffix("_total"),
            *(sample.labels[name] for name in ("stream", "group") if name in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(exposition(families).decode())
        for sample in family.samples
    }
    told = {
        (family.name, *labels): number for family in families for labels, number in family.samples
    }
    assert read == told
    assert all(family.help.endswith(".") for family in families)


def test_a_registry_of_the_program_has_the_store_until_it_is_closed(
    store: logstore.Store[bytes],
) -> None:
    registry = CollectorRegistry()
    registry.register(StoreCollector(store, streams=["ord*"]))
    said = generate_latest(registry).decode()
    assert 'logstore_stream_entries{stream="orders"} 5.0\n' in said
    assert "quote" not in said
    store.close()
    assert generate_latest(registry) == b""
    for wrong in (-1, True, "5", None):
        with pytest.raises(OptionError, match="series_max must be a number from 0 on"):
            StoreCollector(store, series_max=wrong)  # type: ignore[arg-type]


def test_opentelemetry_observes_the_same(store: logstore.Store[bytes]) -> None:
    reader = InMemoryMetricReader()
    observe(store, MeterProvider([reader]).get_meter("test"))
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[tuple[str, ...], float] = {}
    units: dict[str, str | None] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        units[metric.name] = metric.unit
        for point in metric.data.data_points:
            labels = [str(value) for value in (point.attributes or {}).values()]
            found[metric.name.replace(".", "_", 1), *labels] = point.value  # type: ignore[union-attr]
    expected = numbers(store)
    assert found.keys() == expected.keys()
    kept = [key for key in expected if "free_bytes" not in key[0] and "disk_bytes" not in key[0]]
    assert {key: found[key] for key in kept} == {key: expected[key] for key in kept}
    assert units["logstore.disk_bytes"] == "By"
    assert units["logstore.group_oldest_pending_seconds"] == "s"
    store.close()
    closed = reader.get_metrics_data()
    assert closed is None or not closed.resource_metrics


def test_a_copy_is_not_taken_for_one_that_may_lose_something(
    store: logstore.Store[bytes], tmp_path: Path
) -> None:
    store.backup(tmp_path / "copy")
    with logstore.open(tmp_path / "copy", readonly=True) as copy:
        assert numbers(copy)["logstore_not_durable_bytes",] == 0
        assert numbers(copy)["logstore_streams",] == 3


def test_reclaimable_bytes_do_not_depend_on_paging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of streams with tombstones in sealed nodes, with and without open nodes; the last adds are
    in the log and not yet in the index."""
    with logstore.open(
        tmp_path / "s", background=False, node_max_entries=10, segment_bytes=64 << 10
    ) as store:
        for n in range(7):
            stream = store.stream(f"s{n}")
            ids = stream.add_many([{"a": str(n), "b": "x" * 40}] * (200 + 10 * n))
            stream.delete(*[id for at, id in enumerate(ids) if at % 10 > n])
        store.drop("s3")
        for n in (1, 5, 5, 1, 5):
            store.stream(f"s{n}").add({"a": "late", "b": "y" * 100})
        monkeypatch.setattr("logstore.telemetry.gathering.ROWS_A_SNAPSHOT", 2)
        monkeypatch.setattr("logstore.compaction.usage.ROWS_A_SNAPSHOT", 3)
        found = numbers(store)
        monkeypatch.undo()
        whole = store.info().reclaimable_bytes
        assert found["logstore_reclaimable_bytes",] == whole > 10_000
        for n in (0, 1, 2, 4, 5, 6):
            info = store.stream(f"s{n}").info()
            size = info.node_bytes + info.open_node_bytes
            assert found["logstore_stream_bytes", f"s{n}"] == size
