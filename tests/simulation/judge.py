"""What was asked, what was told, and whether some order of it gives what is there in the end.

Each entry is added once, and perhaps deleted once, by its ID: so at each moment a stream is the
first part of all that was ever in it, but for what was deleted by then. That order, by the IDs, is
what all answers must agree with. A call *may count* if its process was killed in it, or if the
store said so. Invariants: nothing of the store is asked here but what
it told; the fields of an entry are those of its number; the end of the streams is that of the one
model (``tests.model.store``), to which the calls that count were added in this order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.collections import sealed
from tests.crash.states.model import model_content
from tests.model.store import StoreModel
from tests.simulation.actor import GROUP, GROUPED, STREAMS, Op, row

ID = tuple[int, int]
COUNTS, REFUSED, MAY_COUNT = "counts", "refused", "may count"


@dataclass
class Call:
    """One call of a hand."""

    op: Op
    who: int  # the hand, of all there were
    began: int  # a step of the history
    ended: int = -1
    outcome: str = MAY_COUNT
    answer: Any = None
    error: str = ""

    @property
    def added(self) -> list[tuple[str, int]]:
        """Streams and numbers of the entries that it adds."""
        kind = self.op[0]
        if kind == "add":
            return [(self.op[1], self.op[2])]
        if kind == "together":
            return list(self.op[1])
        if kind == "settle":
            return list(self.op[3])
        if kind == "many":
            return [(self.op[1], number) for number in self.op[2]]
        return []

    @property
    def ids(self) -> list[ID]:
        """The IDs that were told of these."""
        return [self.answer] if self.op[0] == "add" else list(self.answer)

    @property
    def acked(self) -> tuple[str, list[ID]]:
        """A stream, and the entries of it that it acks."""
        return (self.op[1], list(self.op[2])) if self.op[0] in ("ack", "settle") else ("", [])

    def before(self, other: Call) -> bool:
        """Whether it was over when the other began."""
        return 0 <= self.ended < other.began


class Wrong(AssertionError):  # noqa: N818  (what is so, not a mistake)
    """No order fits."""


def fields(number: int) -> list[tuple[bytes, bytes]]:
    """The fields of an entry, as they are read."""
    return list(sealed.as_read(row(number)).items())


class Judge:
    """The end of a history, and its calls."""

    def __init__(self, calls: list[Call], end: dict[str, Any]) -> None:
        self.calls, self.end = calls, end
        self.numbers: dict[tuple[str, ID], int] = {}
        self.ids: dict[tuple[str, int], ID] = {}
        self.rows: dict[str, list[ID]] = {}  # all that was ever told to be there, or is
        self.deletes = {call.op[1:3]: call for call in calls if call.op[0] == "delete"}

    def judge(self) -> None:
        """Raise ``Wrong`` if something is."""
        for name in STREAMS:
            self._entries(name)
        self._adds()
        self._model()
        for call in self.calls:
            if call.op[0] == "range" and call.outcome == COUNTS:
                self._range(call, (0, 0))
            elif call.op[0] == "follow" and call.outcome == COUNTS:
                self._range(call, call.op[2])
        for name in GROUPED:
            self._group(name)

    def _entries(self, name: str) -> None:
        """Each is there once, with its own fields; IDs ascend."""
        rows = self.end[name]["rows"]
        if self.end[name]["length"] != len(rows):
            raise Wrong(f"{name}: length {self.end[name]['length']}, {len(rows)} entries")
        before: ID = (0, 0)
        for id, pairs in rows:
            number = self._number(name, id, pairs)
            if id <= before:
                raise Wrong(f"{name}: {id} is not above {before}")
            if (name, number) in self.ids:
                raise Wrong(f"{name}: entry {number} is there twice")
            self.ids[name, number], self.numbers[name, id] = id, number
            before = id
        self._deleted(name, {id for id, _ in rows})
        self.rows[name] = sorted(id for of, id in self.numbers if of == name)

    def _deleted(self, name: str, there: set[ID]) -> None:
        """What a delete took is not there any more, and what a refused one did not take is."""
        told = {
            (key[0], id): key[1] for call in self.calls if call.outcome == COUNTS and call.added
            for key, id in zip(call.added, call.ids, strict=True)
        }  # fmt: skip
        for (of, id), call in self.deletes.items():
            if of != name:
                continue
            if call.outcome == COUNTS and (id in there or call.answer != 1):
                raise Wrong(f"{call.op} told {call.answer}, and the entry is there: {id in there}")
            if call.outcome == REFUSED and id not in there:
                raise Wrong(f"{call.op} was refused ({call.error}), and the entry is gone")
            if id not in there:
                number = told[name, id]
                self.ids[name, number], self.numbers[name, id] = id, number

    def _is_gone(self, name: str, id: ID, call: Call) -> bool:
        """Whether an entry was deleted before a call began."""
        delete = self.deletes.get((name, id))
        return delete is not None and delete.outcome == COUNTS and delete.before(call)

    def _may_be_gone(self, name: str, id: ID, call: Call) -> bool:
        """Whether a call may have found an entry deleted."""
        delete = self.deletes.get((name, id))
        return delete is not None and delete.outcome != REFUSED and not call.before(delete)

    @staticmethod
    def _number(name: str, id: ID, pairs: list[tuple[bytes, bytes]]) -> int:
        number = int(pairs[0][1]) if pairs and pairs[0][1].isdigit() else -1
        if number < 0 or list(pairs) != fields(number):
            raise Wrong(f"{name}: {id} has other fields than it was added with: {pairs}")
        return number

    def _adds(self) -> None:
        """What counts is there, under the ID that was told; what was refused is not; an add that
        was over when another began has the lower ID."""
        of: dict[tuple[str, int], Call] = {}
        for call in self.calls:
            there = [key in self.ids for key in call.added]
            of |= dict.fromkeys(call.added, call)
            if call.outcome == COUNTS and call.added:
                ids = [self.ids.get(key) for key in call.added]
                if ids != call.ids:
                    raise Wrong(f"lost, or moved: {call.op} told {call.ids}, found {ids}")
            elif call.outcome == REFUSED and any(there):
                raise Wrong(f"{call.op} was refused ({call.error}), and is there")
            elif call.op[0] in ("together", "settle") and len(set(there)) > 1:
                raise Wrong(f"{call.op} is there in part: {there}")
            elif call.op[0] == "settle":
                self._settled(call, all(there))
        for name in STREAMS:
            last = -1  # the latest beginning so far
            for id in self.rows[name]:
                key = name, self.numbers[name, id]
                if key not in of:
                    raise Wrong(f"{key} was never added")
                call = of[key]
                if 0 <= call.ended < last:
                    raise Wrong(f"{name}: {id} was told before one with a lower ID was asked for")
                last = max(last, call.began)

    def _settled(self, call: Call, counts: bool) -> None:
        """What a transaction added is there, or not, and what it acked is acked with that."""
        name, ids = call.acked
        pending = dict(self.end[name]["pending"])
        if any((id in pending) is counts for id in ids):
            raise Wrong(f"{call.op} is there in part: {counts}, and pending are {sorted(pending)}")

    def _model(self) -> None:
        """The model holds the same in the end."""
        model = StoreModel(0)
        for name in STREAMS:
            there = {id for id, _ in self.end[name]["rows"]}
            for id in self.rows[name]:
                number = self.numbers[name, id]
                model.add(name.encode(), tuple(fields(number)), id)
            model.delete(name.encode(), [id for id in self.rows[name] if id not in there])
        expected = model_content(model)
        for name in STREAMS:
            rows = expected.get(name, {"rows": []})["rows"]
            found = [(f"{id[0]}-{id[1]}", pairs) for id, pairs in self.end[name]["rows"]]
            if rows != found:
                raise Wrong(f"{name}: the model has {rows}, not {found}")

    def _known(self, name: str, call: Call) -> set[ID]:
        """Entries that somebody was told of before this call began."""
        known: set[ID] = set()
        for other in self.calls:
            if other.outcome != COUNTS or not other.before(call):
                continue
            if other.added:
                known |= {self.ids[key] for key in other.added if key[0] == name}
            elif other.op[0] in ("range", "follow", "read") and other.op[1] == name:
                known |= {one[0] for one in other.answer}
        return known

    def _range(self, call: Call, after: ID) -> None:
        name = call.op[1]
        for id, pairs in call.answer:
            if self._number(name, id, pairs) != self.numbers.get((name, id)):
                raise Wrong(f"{call.op} shows {id}, which is not there in the end")
            if self._is_gone(name, id, call):
                raise Wrong(f"{call.op} at {call.began} shows {id}, which was deleted before")
        found = [id for id, _ in call.answer]
        if found != sorted(set(found)):
            raise Wrong(f"{call.op} is not in order: {found}")
        last = max(found, default=after)
        first = {id for id in self.rows[name] if after < id <= last}
        missing = (first | self._known(name, call)) - set(found)
        missing = {id for id in missing if id > after and not self._may_be_gone(name, id, call)}
        if missing:
            raise Wrong(f"{call.op} at {call.began} does not show {sorted(missing)}")

    # -- groups ----------------------------------------------------------------------------------
    def _group(self, name: str) -> None:
        """Each entry is given to one reader, in order; what was given and not acked is pending."""
        reads = [call for call in self.calls if call.op[:2] == ("read", name)]
        given: dict[ID, Call] = {}
        for call in reads:
            if call.outcome != COUNTS:
                continue
            for id, count, pairs in call.answer:
                self._number(name, id, pairs)
                if (name, id) not in self.numbers:
                    raise Wrong(f"{call.op} gave {id}, which is not there in the end")
                if count != 1 or id in given:
                    raise Wrong(f"{name}: {id} was given twice")
                if self._is_gone(name, id, call):
                    raise Wrong(f"{call.op} at {call.began} gave {id}, which was deleted before")
                given[id] = call
        self._pending(name, given, reads)
        for call in self.calls:
            if call.op[:2] == ("again", name) and call.outcome == COUNTS:
                self._again(name, call, given, reads)
        for call in reads:
            if call.outcome == COUNTS:
                self._enough(name, call, reads, given)

    def _pending(self, name: str, given: dict[ID, Call], reads: list[Call]) -> None:
        ended, may_have = self._acked(name)
        owners = self._owners(name, given)
        pending = dict(self.end[name]["pending"])
        if len(pending) != len(self.end[name]["pending"]):
            raise Wrong(f"{name}: {self.end[name]['pending']}")
        for id in given:
            if id in ended and id in pending:
                raise Wrong(f"{name}: {id} was acked, and is pending")
            if id not in ended | may_have and pending.get(id) not in owners[id]:
                raise Wrong(f"{name}: {id} is not pending with {owners[id]}: {pending.get(id)}")
        lost = Counter(
            call.op[2].encode() for call in reads if call.outcome == MAY_COUNT
        )  # who may have more than it was told of
        for id, who in pending.items():
            if id not in given and not lost[who] and not self._handed(name, id, who, reads):
                raise Wrong(f"{name}: {id} is pending with {who!r}, who was not given it")
        were = [id for id in self.rows[name] if id in given or id in pending]
        rows = [id for id in self.rows[name] if id in were or (name, id) not in self.deletes]
        if were != rows[: len(were)]:
            raise Wrong(f"{name}: {sorted(set(rows[: len(were)]) - set(were))} were never given")

    def _again(self, name: str, call: Call, given: dict[ID, Call], reads: list[Call]) -> None:
        """A reader's backlog is what it may have had, and all that nobody else touched."""
        ids = [id for id, _, _ in call.answer]
        if ids != sorted(set(ids)):
            raise Wrong(f"{call.op} is not in order: {ids}")
        had = {id for id, read in given.items() if read.op[2] == call.op[2]}
        had |= {
            id for other in self.calls if other.op[:3] == ("claim", name, call.op[2])
            for id in other.op[3]
        }  # fmt: skip
        lost = any(read.op[2] == call.op[2] and read.outcome == MAY_COUNT for read in reads)
        for id, count, pairs in call.answer:
            if pairs:
                self._number(name, id, pairs)
            elif not self._may_be_gone(name, id, call):
                raise Wrong(f"{call.op} says that {id} is gone")
            if pairs and (count < 2 or self._is_gone(name, id, call)):
                raise Wrong(f"{call.op} at {call.began} gave {id}, with count {count}")
            if (
                id not in had
                and not lost
                and not self._handed(name, id, call.op[2].encode(), reads)
            ):
                raise Wrong(f"{call.op} gave {id}, which is another's")
        touched = {
            id for other in self.calls
            if other.op[0] in ("ack", "settle", "claim", "back") and other.op[1] == name
            for id in other.op[2 if other.op[0] != "claim" else 3]
        }  # fmt: skip
        mine = {id for id in had - touched if given[id].before(call)}
        if not mine <= set(ids):
            raise Wrong(f"{call.op} at {call.began} does not show {sorted(mine - set(ids))}")

    def _handed(self, name: str, id: ID, who: bytes, reads: list[Call]) -> bool:
        """Whether a reader who waited may have been handed an entry that was gone when it came."""
        delete = self.deletes.get((name, id))
        return delete is not None and any(
            read.op[2].encode() == who and read.op[4] and not read.before(delete)
            and not delete.before(read)
            for read in reads
        )  # fmt: skip

    def _owners(self, name: str, given: dict[ID, Call]) -> dict[ID, set[bytes]]:
        """Who may have what was given: who claimed it last, or perhaps did. Only what is pending
        for sure is claimed, and by one at a time."""
        owners = {id: {call.op[2].encode()} for id, call in given.items()}
        for call in self.calls:
            if call.op[:2] not in (("claim", name), ("back", name)) or call.outcome == REFUSED:
                continue
            claims, ids = call.op[0] == "claim", call.op[-1]
            who = call.op[2].encode() if claims else b""
            if call.outcome == MAY_COUNT:
                for id in ids:
                    owners[id].add(who)
                continue
            if not claims:
                owners |= {id: {who} for id in ids}
                if call.answer != len(ids):
                    raise Wrong(f"{call.op} gave back {call.answer}")
                continue
            if [id for id, _, _ in call.answer] != ids:
                raise Wrong(f"{call.op} took over {call.answer}")
            for id, count, pairs in call.answer:
                self._number(name, id, pairs)
                if count < 2:
                    raise Wrong(f"{call.op} took {id} over for the first time")
                owners[id] = {who}
        return owners

    def _acked(self, name: str) -> tuple[set[ID], set[ID]]:
        """What is acked, and what may be."""
        ended: set[ID] = set()
        may_have: set[ID] = set()
        for call in self.calls:
            if call.acked[0] != name:
                continue
            ids = set(call.acked[1])
            if call.outcome == COUNTS:
                if call.op[0] == "ack" and not len(ids - may_have - ended) <= call.answer <= len(
                    ids - ended
                ):
                    raise Wrong(f"{call.op} told {call.answer}")
                ended |= ids
            elif call.outcome == MAY_COUNT:
                may_have |= ids
        return ended, may_have

    def _enough(self, name: str, call: Call, reads: list[Call], given: dict[ID, Call]) -> None:
        """A reader that got less than it asked for found no more."""
        count = call.op[3]
        if len(call.answer) >= count:
            return
        overlapping = [
            other for other in reads
            if other is not call and not call.before(other) and not other.before(call)
        ]  # fmt: skip
        if overlapping:
            return  # those who wait go first, and one that was killed may have had it
        for id in self._known(name, call):
            if self._may_be_gone(name, id, call):
                continue
            got = given.get(id)
            if got is None and id in dict(self.end[name]["pending"]):
                continue  # of one who was killed
            if got is None or call.before(got):
                raise Wrong(f"{call.op} at {call.began} gave {call.answer}, and not {id}")


__all__ = ["COUNTS", "GROUP", "MAY_COUNT", "REFUSED", "Call", "Judge", "Wrong"]
