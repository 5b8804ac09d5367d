"""Who goes on, how far, and what becomes of it: all of a history, from one seed.

Invariants: of all hands one runs at a time, so the same seed gives the same history, step by step,
and the same log, byte by byte; while a hand stands where it keeps the interpreter no other hand of
its process runs; a process that is killed is killed (SIGKILL), at a point; time moves on only when
all hands sleep; a power cut ends all processes, and takes from the log what was not synced, with
the index, WAKE and all that is not a log; the order of sleepers is that of the kernel, first come,
first woken.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import shutil
import signal
import zlib
from collections import Counter
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from logstore.engine.shm.wait_words import BUCKETS_OFFSET
from tests.simulation import watch
from tests.simulation.actor import GROUPED, LATER, STREAMS, Op, start
from tests.simulation.draw import draw
from tests.simulation.hands import Hand, Process
from tests.simulation.judge import COUNTS, REFUSED, Call, Judge, Wrong
from tests.simulation.system import SHORT, Clock

ENDLESS = 1 << 60
STUCK_S = 60.0
STEPS_MAX = 200_000
PROCESSES_MAX = 200
TIMEOUT_S = 0.4  # of a reader that waits, in simulated time
OPS = (
    *["add"] * 14, *["together"] * 3, "many", *["read"] * 4, *["wait"] * 5, *["ack"] * 4,
    *["settle"] * 3, *["claim"] * 2, *["back"] * 2, *["again"] * 2, *["range"] * 3,
    *["follow"] * 5, *["delete"] * 5, "sync", "roll",
)  # fmt: skip
OF_ANY = ("add", "together", "many", "settle", "range", "follow", "delete")  # the rest is of groups


class History:
    """One history."""

    def __init__(self, path: Path, seed: str, plant: Callable[[], None]) -> None:
        self.rng = random.Random(seed)
        self.plant = plant
        self.kind, self.setup, self.moment, self.mean, self.again, self.ops = draw(
            self.rng, path, seed
        )
        self.clock = Clock(mmap.mmap(-1, 4096))
        self.processes: list[Process] = []
        self.sleepers: list[Hand] = []
        self.synced: dict[str, int] = {}
        self.calls: list[Call] = []
        self.last: Hand | None = None  # that was chosen
        self.numbers = self.made = self.hands = self.step = 0
        self.newest = dict.fromkeys(STREAMS, (0, 0))  # that was told
        # IDs that were told, and that somebody was asked to delete.
        self.there: dict[str, list[tuple[int, int]]] = {name: [] for name in STREAMS}
        self.gone: dict[str, set[tuple[int, int]]] = {name: set() for name in STREAMS}
        # What the dead were given, and is pending for sure.
        self.left: dict[str, list[tuple[int, int]]] = {name: [] for name in GROUPED}
        self.did: Counter[str] = Counter()
        self.trace: list[str] = []

    # -- processes -----------------------------------------------------------------------------
    def start(self, count: int) -> Process:
        """A new process, with so many hands."""
        process = Process(self.made)
        self.made += 1
        if self.made > PROCESSES_MAX:
            raise Wrong(f"the store cannot be opened: {self.calls[-1].error}")
        lines = [Pipe() for _ in range(count)]
        others = [hand.line for each in self.processes for hand in each.hands]
        process.pid = start(lines, self.clock, self.setup, process.number, self.plant, others)
        for ours, theirs in lines:
            theirs.close()
            process.hands.append(Hand(ours, process, self.hands))
            self.hands += 1
        for hand in process.hands:
            self._receive(hand)
            hand.state = "idle"
        self.processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        """End it where it is."""
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        self.processes.remove(process)
        for hand in process.hands:
            hand.line.close()
            for name, ids in hand.given.items():
                self.left[name] += ids
            if hand in self.sleepers:
                self.sleepers.remove(hand)

    def cut(self) -> None:
        """The power goes."""
        self.did["power cuts"] += 1
        while self.processes:
            self.kill(self.processes[0])
        store = self.setup.path
        for file in sorted((store / "log").glob("*.log")):
            durable, size = self.synced.get(file.name, 0), file.stat().st_size
            if size > durable:
                os.truncate(file, self.rng.randint(durable, size))
        shutil.rmtree(store / "index", ignore_errors=True)
        (store / "WAKE").unlink(missing_ok=True)

    # -- one step ------------------------------------------------------------------------------
    def run(self, hand: Hand, left: int, payload: object) -> None:
        """Let a hand go on, and take in what it reports."""
        self.step += 1
        if self.step > STEPS_MAX:
            raise Wrong("it does not come to an end")
        hand.line.send((left, payload))
        hand.steps += 1
        self._receive(hand)

    def _receive(self, hand: Hand) -> None:
        while True:
            if not hand.line.poll(STUCK_S):
                raise Wrong(f"hand {hand.number} is stuck behind {hand.at}")
            try:
                told, more, hand.alone = hand.line.recv()
            except EOFError:
                raise Wrong(f"process {hand.process.number} died behind {hand.at}") from None
            hand.at = told
            self.trace.append(f"{hand.number} {told[:3]}")  # no word: it may be a pid
            for what, *rest in more:
                if what == "synced":
                    self.synced[rest[0]] = max(self.synced.get(rest[0], 0), rest[1])
                elif what == "wrong":
                    raise Wrong(f"{hand.at}: {rest[0]}")
                else:
                    self._unlocked(hand.process, rest[0])
            if hand.call is None or hand.call.op[0] != "check":  # which has a copy of its own
                watch.check_words(self.setup.path, told, self.synced)
            if told[0] != "wake":
                break
            hand.line.send((self._left(), self._wake(told[1], told[2])))
        self._take(hand, told)

    def _take(self, hand: Hand, told: tuple[Any, ...]) -> None:
        kind = told[0]
        hand.state = {"at": "runs", "ready": "idle"}.get(kind, kind)
        if kind in ("wait", "sleep", "lock"):
            hand.until_ns = told[-1] or ENDLESS
            self.sleepers.append(hand)
        elif kind == "broke":
            raise Wrong(f"{hand.call and hand.call.op}: {told[1]}\n{told[2]}")
        elif kind in ("done", "raised"):
            hand.state = "idle"
            self._ended(hand, told)

    def _ended(self, hand: Hand, told: tuple[Any, ...]) -> None:
        call, hand.call = hand.call, None
        assert call is not None
        call.ended = self.step
        if told[0] == "done":
            call.outcome, call.answer = COUNTS, told[1]
            if call.added:
                for (name, _), id in zip(call.added, call.ids, strict=True):
                    self.newest[name] = max(self.newest[name], id)
                    self.there[name].append(id)
                self._look_for_sleepers(call)
            elif call.op[0] in ("read", "claim"):
                hand.given[call.op[1]] += [one[0] for one in call.answer]
            elif call.op[0] == "back":
                self.left[call.op[1]] += call.op[2]
            elif call.op[0] == "follow" and call.answer:
                hand.seen[call.op[1]] = call.answer[-1][0]
            return
        self.did[f"raised {told[1]}"] += 1
        call.error = f"{told[1]}: {told[3]}"
        # What was handed to a reader who waits may be his, although the sync behind it failed.
        if not told[2] and (call.op[0], told[1]) != ("read", "StoreFailedError"):
            call.outcome = REFUSED
        if self.kind == "calm":
            raise Wrong(f"{call.op}: {call.error}")

    def _left(self) -> int:
        return int(self.rng.expovariate(1 / self.mean))

    def _wake(self, word: int, count: int) -> int:
        woken = [hand for hand in self.sleepers if hand.state == "wait" and hand.at[1] == word]
        for hand in woken[:count]:
            self._rouse(hand)
        return len(woken[:count])

    def _unlocked(self, process: Process, lock: int) -> None:
        for hand in [one for one in self.sleepers if one.process is process]:
            if hand.state == "lock" and hand.at[1] == lock:
                self._rouse(hand)

    def _rouse(self, hand: Hand) -> None:
        self.sleepers.remove(hand)
        hand.state = "runs"

    def _sleep(self) -> None:
        """All sleep: time moves on to the first that wakes by itself."""
        if self.kind == "calm":
            self._look_for_missed()
        first = min(hand.until_ns for hand in self.sleepers)
        if first == ENDLESS:
            raise Wrong(f"all wait for ever: {[hand.at for hand in self.sleepers]}")
        self.clock.ns = max(self.clock.ns, first)
        for hand in [one for one in self.sleepers if one.until_ns <= first]:
            self._rouse(hand)

    def _look_for_sleepers(self, call: Call) -> None:
        """Who follows a stream was woken before an add to it was told."""
        for hand in self.sleepers:
            if hand.state != "wait" or hand.call is None or hand.call.op[0] != "follow":
                continue
            _, name, after, _ = hand.call.op
            for (to, _), id in zip(call.added, call.ids, strict=True):
                if to == name and id > after and hand.at[1] >= BUCKETS_OFFSET:
                    raise Wrong(f"a wake-up was missed: {hand.call.op} sleeps, {id} was added")

    def _look_for_missed(self) -> None:
        """When all that sleep are readers who wait for entries, there is none for them."""
        reads = [
            hand.call for hand in self.sleepers
            if hand.call and hand.call.op[0] in ("read", "follow")
            and hand.state == "wait" and hand.at[1] >= BUCKETS_OFFSET
        ]  # fmt: skip
        if len(reads) != len(self.sleepers):
            return
        told = [call for call in self.calls if call.outcome == COUNTS]
        for read in reads:
            name = read.op[1]
            ids = [
                id for call in told if call.added
                for key, id in zip(call.added, call.ids, strict=True)
                if key[0] == name and id not in self.gone[name]
            ]  # fmt: skip
            if read.op[0] == "read":
                given = {
                    one[0] for call in told if call.op[:2] == ("read", name) for one in call.answer
                }
                missed = not given.issuperset(ids)
            else:
                missed = any(id > read.op[2] for id in ids)
            if missed:
                raise Wrong(f"a wake-up was missed: {read.op} sleeps, {name} has {len(ids)}")

    # -- the history ---------------------------------------------------------------------------
    def play(self) -> None:
        """All of it; ``Wrong`` if an answer cannot be."""
        first = self.start(1)
        self.finish(first.hands[0], ("open",))
        self.finish(first.hands[0], ("prepare",))
        first.is_open = True
        self.did.clear()
        while self.ops or any(hand.call for each in self.processes for hand in each.hands):
            self._turn()
        while self.processes:
            process = self.processes[-1]
            if process.is_open and self.rng.random() < 0.5:
                self.finish(process.hands[0], ("close",))
            self.kill(process)
        self._judge()

    def finish(self, hand: Hand, op: Op) -> Any:
        """One call, without anybody else; its answer."""
        self.begin(hand, op, ENDLESS)
        while hand.call is not None:
            if hand.state == "runs":
                self.run(hand, ENDLESS, 0)
            else:
                self._sleep()
        if hand.at[0] != "done":
            raise Wrong(f"{op}: {hand.at}")
        return hand.at[1]

    def begin(self, hand: Hand, op: Op, left: int) -> None:
        """Ask a hand for a call."""
        hand.call = Call(op, hand.number, self.step)
        self.trace.append(f"{hand.number} {op}")
        self.calls.append(hand.call)
        self.run(hand, left, op)

    def _turn(self) -> None:
        rng = self.rng
        if (self.ops and len(self.processes) < 3 and rng.random() < 0.2) or not self.processes:
            self.start(rng.choice((1, 1, 2)))
        ready = [
            hand for each in self.processes for hand in each.free()
            if hand.state == "runs" or (hand.state == "idle" and self._may_begin(hand))
        ]  # fmt: skip
        if not ready:
            if self.sleepers:
                self._sleep()
            else:
                self.ops = 0
            return
        hand = self.last
        if hand not in ready or hand.state != "idle" or rng.random() >= self.again:
            hand = self.last = rng.choice(ready)
        if hand.state == "idle":
            self._next(hand)
        elif not self._disturb(hand):
            answer, hand.answer = hand.answer, 0
            self.run(hand, self._left(), answer)
        self._settle(hand)

    def _may_begin(self, hand: Hand) -> bool:
        process = hand.process
        if not process.is_open or process.leaves:
            # One hand opens and closes; the others do nothing meanwhile.
            return hand is process.hands[0] and not any(one.call for one in process.hands)
        return self.ops > 0

    def _next(self, hand: Hand) -> None:
        process = hand.process
        if not process.is_open:
            if not self.ops:
                self.kill(process)
            else:
                self.begin(hand, ("open",), self._left())
            return
        if process.leaves:
            self.begin(hand, ("close",), self._left())
            return
        self.ops -= 1
        if self.rng.random() < 0.04:
            process.leaves = True
            return
        self.begin(hand, self._op(hand), self._left())

    def _settle(self, hand: Hand) -> None:
        """What follows from a call that ended."""
        process = hand.process
        if hand.call is not None or process not in self.processes or not self.calls:
            return
        last = next((call for call in reversed(self.calls) if call.who == hand.number), None)
        if last is None:
            return
        if last.op[0] == "close":
            self.kill(process)
        elif last.op[0] == "open":
            process.is_open = last.outcome == COUNTS
            if not process.is_open and self.kind not in ("faults", "syncs"):
                raise Wrong(f"the store cannot be opened: {last.error}")
            if not process.is_open:
                self.kill(process)
        elif "StoreFailed" in last.error or "CommittedError" in last.error:
            for each in self.processes:
                each.leaves = each.is_open or each.leaves

    def _op(self, hand: Hand) -> Op:
        rng = self.rng
        what, name = rng.choice(OPS), rng.choice(GROUPED)
        if what in OF_ANY and rng.random() < 0.3:
            name = rng.choice(LATER)
        if what in ("add", "together", "many"):
            return self._adds(what, name)
        if what in ("read", "wait"):
            timeout = TIMEOUT_S if what == "wait" else 0
            return "read", name, f"c{hand.number}", rng.choice((1, 2, 3, 50)), timeout
        if what in ("ack", "settle"):
            return self._acks(hand, what, name)
        if what in ("claim", "back"):
            return self._claims(hand, what, name)
        if what == "again":
            return "again", name, f"c{hand.number}"
        if what == "delete":
            return self._deletes(name)
        if what == "follow":
            after = hand.seen[name]
            if rng.random() < 0.7:  # or it would hardly ever wait
                after = max(after, self.newest[name])
            return "follow", name, after, TIMEOUT_S
        return (what, name) if what == "range" else (what,)

    def _adds(self, what: str, name: str) -> Op:
        """Add one, some to streams at random in one transaction, or some to one at once."""
        rng = self.rng
        if what == "add":
            return "add", name, self._number()
        if what == "together":
            return "together", [
                (rng.choice((*GROUPED, name)), self._number()) for _ in range(rng.randrange(1, 4))
            ]
        return "many", name, [self._number() for _ in range(rng.randrange(1, 5))]

    def _acks(self, hand: Hand, what: str, name: str) -> Op:
        """Ack some of what the hand was given, alone or with an entry to a stream."""
        rng = self.rng
        for each in rng.sample(GROUPED, len(GROUPED)):
            if given := hand.given[each]:
                some = sorted(rng.sample(given, rng.randrange(1, min(len(given), 4) + 1)))
                hand.given[each] = [id for id in given if id not in some]
                rows = [(name, self._number())] if what == "settle" else []
                return (what, each, some, rows) if rows else (what, each, some)
        return "range", name

    def _claims(self, hand: Hand, what: str, name: str) -> Op:
        """Take over, or give back, what the dead were given, or another who lives."""
        others = [each.given[name] for process in self.processes for each in process.hands]
        pools = [ids for ids in (self.left[name], *others) if not self.gone[name].issuperset(ids)]
        if not pools:
            return "range", name
        pool = pools[0]
        live = [id for id in pool if id not in self.gone[name]]
        ids = sorted(self.rng.sample(live, self.rng.randrange(1, min(len(live), 4) + 1)))
        pool[:] = [id for id in pool if id not in ids]
        return (what, name, ids) if what == "back" else (what, name, f"c{hand.number}", ids)

    def _deletes(self, name: str) -> Op:
        """Delete an entry of which somebody was told, and that nobody is about to take over."""
        claimed = {
            id for call in self.calls if call.ended < 0 and call.op[:2] == ("claim", name)
            for id in call.op[3]
        }  # fmt: skip
        ids = [id for id in self.there[name] if id not in self.gone[name] | claimed]
        if not ids:
            return "range", name
        id = self.rng.choice((ids[0], ids[-1], self.rng.choice(ids)))
        self.gone[name].add(id)
        return "delete", name, id

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    # -- what goes wrong -----------------------------------------------------------------------
    def _disturb(self, hand: Hand) -> bool:
        """Let something happen to a hand that stands at a point; whether it is gone."""
        rng, what = self.rng, hand.at[1] if hand.at[0] == "at" else ""
        chance = min(0.3, (self.mean + 1) / 400)
        if what in ("store", "pwrite", "fdatasync", "truncate", "rename"):
            chance = 0.008 if what in self.setup.stops else 2 * chance
        if self.moment and self.moment in (what, " ".join(map(str, hand.at[1:3]))):
            chance = 0.1
        if hand.torn:
            chance, hand.torn = 0.6, False
        if self.kind in ("kills", "faults") and rng.random() < chance:
            if what == "pwrite" and rng.random() < 0.6:
                self._tear(hand)  # and kill it in the midst of the write, perhaps
                return False
            self.did["kills"] += 1
            self.kill(hand.process)
            return True
        if self.kind == "cuts" and rng.random() < chance / 2:
            self.cut()
            return True
        if self.kind == "syncs" and what == "fdatasync" and rng.random() < 0.1:
            self.did["failed syncs"] += 1
            hand.answer = errno.EIO
        if self.kind != "faults" or rng.random() > 0.2:
            return False
        if what == "pwrite":
            self._tear(hand)
            hand.answer = rng.choice((errno.ENOSPC, errno.EIO, hand.answer))
            hand.torn = hand.answer < 0
        elif what == "realloc":
            self.did["no memory"] += 1
            hand.answer = errno.ENOMEM
        return False

    def _tear(self, hand: Hand) -> None:
        """Let it write a part of what it writes, and look at it before the rest."""
        self.did["short or failed writes"] += 1
        hand.answer, hand.torn = SHORT - self.rng.randrange(max(hand.at[2], 1)), True

    # -- the end -------------------------------------------------------------------------------
    def _judge(self) -> None:
        """A process that comes later tells what is there; so does one without the index."""
        kind, self.kind = self.kind, "after"
        last = self.start(1).hands[0]
        self.finish(last, ("open",))
        end = self.finish(last, ("look",))
        self.finish(last, ("close",))
        for file in sorted((self.setup.path / "log").iterdir()):
            self.trace.append(f"{file.name} {zlib.crc32(file.read_bytes()):08x}")
        damage = self.finish(last, ("check",))
        if damage:
            raise Wrong(f"the log is damaged: {damage}")
        self.finish(last, ("forget_index",))
        self.finish(last, ("open",))
        anew = self.finish(last, ("look",))
        self.finish(last, ("close",))
        self.kill(last.process)
        if anew != end:
            raise Wrong(f"the index and the log differ: {end} and {anew}")
        self.kind = kind
        Judge([call for call in self.calls if call.who != last.number], end).judge()

    def close(self) -> None:
        """End what still runs."""
        while self.processes:
            self.kill(self.processes[0])
