"""What the streams that only one writer writes to must hold: a model, and how to look.

Plain values. ``changed`` is the model's rule for each operation; what only the store can know (the
IDs it gave) comes from the result, or, if the writer did not live to tell, from what is found.
"""

from __future__ import annotations

import copy
from typing import Any

import logstore
from logstore.engine.groups.claim import ATTEMPTS_AN_ENTRY
from tests.crash.kills import names
from tests.crash.kills.names import SMALL, number, tagged

State = dict[str, Any]
Step = dict[str, Any]
Result = dict[str, Any]
ADDS = {"add", "add_many", "tx", "idem", "expect"}  # what adds to the stream of rows


def empty() -> State:
    """Before the first operation."""
    return {
        "rows": [], "added": 0, "iids": 0, "twice": 0, "max_entries": None, "max_deliveries": 2,
        "jobs": [], "last": "0-0", "read": 0, "pending": {}, "dead": [], "later": {},
        "kept": {}, "brief": [], "patient": {},
    }  # fmt: skip


def read_own(store: logstore.Store[bytes], slot: int) -> State:
    """The same of a store, with every derived number held against what it stands for."""
    own = store.stream(names.own(slot))
    rows, info = tagged(store, names.own(slot)), own.info()
    assert info.length == len(own) == len(rows)
    jobs = tagged(store, names.jobs(slot), SMALL)
    group = store.stream(names.jobs(slot)).group("g")
    found, pending = group.info(), list(group.pending_entries())
    assert found.pending == group.pending().count == len(pending)
    for each in group.consumers():
        assert each.pending == sum(row.consumer == each.name for row in pending)
    last = str(found.last_delivered_id)
    assert found.lag == sum(number(id) > number(last) for id, _ in jobs)
    read = found.entries_read or 0  # None before the first read, as the servers tell it
    assert read == len(jobs) - found.lag
    dead = [names.origin_of(entry) for entry in store.stream(names.dead(slot)).range()]
    later = {str(each.key): each.fields[b"t"].decode()
             for each in store.stream(names.later(slot)).scheduled()}  # fmt: skip
    return {
        "rows": rows, "added": info.entries_added, "iids": info.iids_added,
        "twice": info.iids_duplicates, "max_entries": info.settings.max_entries,
        "max_deliveries": found.settings.max_deliveries, "jobs": jobs, "last": last,
        "read": read,
        "pending": {
            str(row.id): (row.consumer and row.consumer.decode(), row.delivery_count)
            for row in pending
        },
        "dead": dead, "later": later, "kept": _kept(store, slot), "brief": _lasting(store, slot),
        "patient": _patient(store, slot),
    }  # fmt: skip


def _kept(store: logstore.Store[bytes], slot: int) -> dict[str, str]:
    """The newest entry of each key, which is the last one of all that are still there."""
    stream = store.stream(names.kept(slot))
    last = {entry["k"].decode(): entry["t"].decode() for entry in stream}
    found = {key: stream.latest(key) for key in names.KEYS}
    newest = {key: entry["t"].decode() for key, entry in found.items() if entry is not None}
    assert newest == last, f"the newest entries are {newest}, the last of each key {last}"
    for key in names.KEYS:
        of_key = [entry.id for entry in stream if entry["k"] == key.encode()]
        assert [entry.id for entry in stream.range(where={"k": key})] == of_key
    return newest


def _patient(store: logstore.Store[bytes], slot: int) -> dict[str, str | None]:
    """What is pending in the group that gives back for later, with whom, or with nobody."""
    pending = store.stream(names.jobs(slot)).group("patient").pending_entries()
    return {str(each.id): each.consumer and each.consumer.decode() for each in pending}


def _lasting(store: logstore.Store[bytes], slot: int) -> list[str]:
    """What expires in an hour. Each came with one that expires at once, in one commit."""
    there = [tag for _, tag in tagged(store, names.brief(slot), SMALL)]
    lasting = [tag[:-1] for tag in there if tag.endswith("l")]
    assert {tag[:-1] for tag in there} == set(lasting), "half a transaction"
    return lasting


def changed(before: State, step: Step, result: Result) -> State:
    """The state after an operation."""
    after = copy.deepcopy(before)
    change(after, step, result)
    return after


def change(state: State, step: Step, result: Result) -> None:
    """Do it to the state."""
    kind = step["op"]
    if result.get("refused"):
        return
    if kind == "delete" or kind in ADDS:
        gone = set(step.get("delete", ()))
        rows = [row for row in state["rows"] if row[0] not in gone]
        tags = step.get("tags", ())[: len(result.get("ids", ()))]
        state["rows"] = rows + list(zip(result.get("ids", ()), tags, strict=True))
        state["added"] += len(tags)
        state["iids"] += kind == "idem"
        for id in step.get("ack", ()):
            state["pending"].pop(id, None)
    elif kind == "again":
        state["twice"] += 1
    elif kind == "trim":
        state["rows"] = state["rows"][max(0, len(state["rows"]) - step["max_entries"]) :]
    elif kind == "settings":
        state["max_entries"] = step["max_entries"]
    elif kind == "group settings":
        state["max_deliveries"] = step["max_deliveries"]
    elif kind in {"job", "requeue"}:
        state["dead"] = [id for id in state["dead"] if id != step.get("origin")]
        state["jobs"] = state["jobs"] + list(zip(result["job_ids"], step["tags"], strict=True))
    else:
        _of_features(state, step, result)


def _of_features(state: State, step: Step, result: Result) -> None:
    kind = step["op"]
    if kind == "keep":
        state["kept"] = state["kept"] | {step["key"]: step["tag"]}
    elif kind == "fetch":
        there = [id for id, _ in state["jobs"]][len(state["patient"]) :][: step["count"]]
        state["patient"] = state["patient"] | dict.fromkeys(there, step["by"])
    elif kind == "put off":
        state["patient"] = state["patient"] | dict.fromkeys(step["ids"])
    elif kind == "brief":
        state["brief"] = [*state["brief"], step["tag"]]
    elif kind == "later":
        state["later"][result["key"]] = step["tag"]
    elif kind == "cancel":
        state["later"].pop(step["key"], None)
    else:
        _work(state, step)


def _work(state: State, step: Step) -> None:
    """What a group does that one writer alone works with."""
    kind, pending = step["op"], state["pending"]
    if kind == "read":
        for id, _ in state["jobs"][state["read"] :][: step["count"]]:
            pending[id] = (step["by"], 1)
            state["last"], state["read"] = id, state["read"] + 1
    elif kind == "ack":
        for id in step["ids"]:
            pending.pop(id, None)
    elif kind == "nack":
        for id in step["ids"]:
            if id in pending and pending[id][1] >= state["max_deliveries"]:
                del pending[id]
                state["dead"].append(id)
            elif id in pending:
                pending[id] = (None, pending[id][1])
    elif kind == "claim":
        _claim(state, step)


def _claim(state: State, step: Step) -> None:
    pending, left, attempts = state["pending"], step["count"], step["count"] * ATTEMPTS_AN_ENTRY
    for id in sorted(pending, key=number):
        if not left or not attempts:
            break
        attempts -= 1
        if pending[id][1] >= state["max_deliveries"]:
            del pending[id]
            state["dead"].append(id)
        else:
            pending[id] = (step["by"], pending[id][1] + 1)
            left -= 1


def result_of(before: State, found: State, step: Step) -> Result:
    """What an operation must have returned if it happened."""

    def new(what: str) -> list[str]:
        known = {id for id, _ in before[what]}
        return [id for id, _ in found[what] if id not in known]

    result: Result = {"ids": new("rows"), "job_ids": new("jobs")}
    keys = [key for key in found["later"] if key not in before["later"]]
    if keys:
        result["key"] = keys[0]
    return result


def happened(before: State, found: State, step: Step) -> bool:
    """Whether an operation that was cut off happened; AssertionError if half of it did."""
    if found == before:
        return False
    tags = step.get("tags", [])
    counts = [len(tags)]
    if step["op"] == "add_many":  # a commit a batch: a prefix of whole batches may be there
        counts = [*range(step["batch"], len(tags), step["batch"]), len(tags)]
    result = result_of(before, found, step)
    right = step["op"] not in ADDS or len(result["ids"]) in counts
    right = right and (step["op"] not in {"job", "requeue"} or len(result["job_ids"]) == len(tags))
    right = right and (step["op"] != "later" or "key" in result)
    if right and found == changed(before, step, result):
        return True
    raise AssertionError(f"half of {step}: {difference(found, before)}")


def difference(found: State, expected: State) -> str:
    """What is missing and what is too much."""
    parts: list[str] = []
    for key, value in expected.items():
        if found[key] == value:
            continue
        if isinstance(value, list):
            missing = [row for row in value if row not in found[key]]
            extra = [row for row in found[key] if row not in value]
            parts.append(
                f"{key}: missing {missing[:5]} ({len(missing)}), not expected {extra[:5]} "
                f"({len(extra)})"
            )
        else:
            parts.append(f"{key}: {found[key]} and not {value}")
    return "; ".join(parts)
