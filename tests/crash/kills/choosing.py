"""What a writer of the kill test is to do next: a random step that is possible now."""

from __future__ import annotations

import random

from tests.crash.kills import names
from tests.crash.kills.operations import Work
from tests.crash.kills.own_streams import Step

IDLE_S = 0.05  # of the shared group: who is idle for longer loses what it has
WEIGHTS = {
    "add": 12, "add_many": 12, "tx": 16, "shared": 12, "delete": 6, "trim": 6, "settings": 2,
    "group settings": 2, "idem": 6, "again": 4, "later": 3, "cancel": 2, "soon": 3, "job": 6,
    "expect": 4, "keep": 6, "brief": 4, "fetch": 4, "put off": 4,
    "requeue": 4, "read": 8, "ack": 6, "nack": 4, "claim": 5, "take": 14, "done": 12, "give": 4,
    "compact": 1, "purge": 0.3, "checkpoint": 1, "reopen": 1, "sync": 1,
}  # fmt: skip
# A writer with a lane does mostly what goes there.
LANE_WEIGHTS = {kind: weight / 6 for kind, weight in WEIGHTS.items()} | {
    "shared": 60, "take": 90, "done": 90, "read": 20, "ack": 15,
}  # fmt: skip
LANE_IDLE = 0.08


def choose(work: Work, rng: random.Random, number: int, kind: str = "") -> Step:
    """The next operation, of a kind that is wanted or at random."""
    live = [id for id, _ in work.state["rows"]]
    weights = LANE_WEIGHTS if work.lane else WEIGHTS
    kind = kind or rng.choices(list(weights), list(weights.values()))[0]
    if kind in {"delete", "trim"} and len(live) < 10:
        kind = "add"
    step: Step = {"n": number, "op": kind}
    tag = f"{work.slot}.{number}"
    if kind == "tx":
        _transaction(work, rng, step, tag, live)
    elif kind in {"add", "idem", "expect"}:
        step["tags"] = [tag]
    elif kind in {"add_many", "job"}:
        step["tags"] = [f"{tag}.{row}" for row in range(rng.randint(2, 40 if kind != "job" else 5))]
        step["batch"] = rng.choice((5, 1000))
    elif kind == "shared":
        step["shared"] = tag
    elif kind == "delete":
        step["delete"] = rng.sample(live, rng.randint(1, 4))
    elif kind == "trim":
        step["max_entries"] = len(live) * rng.randint(1, 3) // 4
    else:
        _others(work, rng, step, tag, live)
    return step


def _others(work: Work, rng: random.Random, step: Step, tag: str, live: list[str]) -> None:
    kind = step["op"]
    if kind == "settings":
        step["max_entries"] = 1_000_000 + rng.randrange(1000)
    elif kind == "group settings":
        step["max_deliveries"] = rng.randint(2, 4)
    elif kind == "again":
        # One whose entry was deleted since would be added anew.
        known = [(tag, id) for tag, id in work.remembered if id in live]
        step["tag"], step["id"] = rng.choice(known or [("", "")])
    elif kind in {"later", "soon"}:
        step["tag"], step["after"] = tag, rng.choice((0, 0.005, 0.03, 0.2))
    elif kind == "requeue":
        step["origin"] = rng.choice(work.state["dead"] or [""])
        step["tags"] = [tag for id, tag in work.state["jobs"] if id == step["origin"]]
    elif kind == "cancel":
        step["key"] = rng.choice(sorted(work.state["later"]) or [""])
    elif kind in {"read", "claim", "take", "fetch"}:
        _read(work, rng, step)
    elif kind in {"ack", "nack"}:
        step["ids"] = _some(rng, list(work.state["pending"]), 3)
    elif kind == "put off":
        step["ids"] = _some(rng, list(work.state["patient"]), 3)
    elif kind in {"keep", "brief"}:
        step["tag"], step["key"], step["ttl"] = tag, rng.choice(names.KEYS), rng.choice((0.01, 0.2))
    elif kind in {"done", "give"}:
        step["ids"] = _some(rng, sorted(work.held), rng.randint(1, 4))


def _read(work: Work, rng: random.Random, step: Step) -> None:
    """Who reads or claims, how many, and what is idle for how long, too."""
    step["by"], step["count"] = rng.choice("ab"), rng.randint(1, 6)
    step["idle"] = rng.choice((None, IDLE_S))
    if work.lane:  # what is idle goes through the pipeline: seldom, but then in bulk
        step["idle"] = IDLE_S if rng.random() < LANE_IDLE else None
        step["count"] *= 5 if step["idle"] else 1


def _transaction(
    work: Work, rng: random.Random, step: Step, tag: str, live: list[str]
) -> None:  # fmt: skip
    pending = work.state["pending"]
    step["tags"] = [f"{tag}.{row}" for row in range(rng.randint(1, 3))]
    step["delete"] = _some(rng, live, rng.randint(0, 2))
    step["shared"] = tag
    step["ack"] = [
        id for id in _some(rng, list(pending), 2)
        if pending[id][0] and (id, pending[id][1]) in work.mine
    ]  # fmt: skip
    step["done"] = _some(rng, sorted(work.held), rng.randint(0, 2))


def _some(rng: random.Random, what: list[str], most: int) -> list[str]:
    return rng.sample(what, min(len(what), most))
