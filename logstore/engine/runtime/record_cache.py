"""What one commit leaves decoded for the next one of the same process.

Invariants: records, open nodes, groups and settings are valid at one applied position of one
generation, so they are forgotten when somebody else committed or a commit was taken back. Numbers
by name outlive that: a number is never given twice, and who uses one looks at the name in the
record that it names. So does a node: what stands at a committed position never changes, and it is
used again when its locator is still the one in the index.

It is a write-back cache: rows that plain commits changed may be *owed* to the index, which lags
behind them. Then record and open node are here, and a write that fails or is aborted leaves them
owed. Rows of groups, names of new streams, sealed nodes and their tombstones are owed only while a
lane commits: the pipeline lets the index follow before it decides anything. It does so, too, if
``skipped`` is set: commits of other processes changed groups that are not here, so that the index
must have followed, from the log, before it is asked.
What is owed may be forgotten by ``clear`` at any time: the index can follow from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.features.setting_rows import SettingCache
from logstore.ids import StreamID
from logstore.index.group_keys import ConsumerRecord, GroupRecord
from logstore.index.group_txn import NO_RUNS, DecodedRuns, GroupTxn, RunPlace
from logstore.index.keys import Locator, Meta, OpenNode, StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log.frame import Tombstone
from logstore.tuples import NamedTuple

CACHED_STREAMS_MAX = 2000
SHRINK_COMMITS = 64


class BeforeImage(NamedTuple):
    """A stream as it was before a commit added to it."""

    last: StreamID
    entries_added: int


class GroupCache:
    """Decoded records of groups and consumers, as valid as the ``RecordCache``; numbers by name."""

    def __init__(self) -> None:
        self.groups: dict[int, GroupRecord] = {}
        self.numbers: dict[tuple[int, bytes], int] = {}
        self.consumers: dict[tuple[int, int], ConsumerRecord] = {}
        self.consumer_numbers: dict[tuple[int, bytes], int] = {}
        self.runs = DecodedRuns()
        # Whose rows LMDB has not as they are here; by group, all that is pending between bounds.
        self.owed: set[int] = set()
        self.owed_consumers: set[tuple[int, int]] = set()
        self.owed_runs: dict[int, list[RunPlace]] = {}

    def paid(self) -> None:
        """LMDB has committed all that was owed."""
        self.owed.clear()
        self.owed_consumers.clear()
        self.owed_runs.clear()

    def owe(self, group: int, consumers: Sequence[int], runs: list[RunPlace]) -> None:
        """Commits changed a group, these consumers of it, and what is pending between the bounds
        of these runs, and not the index. What was owed of these intervals before is in them.
        """
        self.owed.add(group)
        self.owed_consumers.update([(group, number) for number in consumers])
        if runs:
            self.runs.near.pop(group, None)
            before = self.owed_runs.get(group, ())
            kept = [
                near
                for near in before
                if not any(near[0] < run[2] and run[0] < near[2] for run in runs)
            ]
            self.owed_runs[group] = sorted([*kept, *runs], key=_low) if kept else runs

    def write_owed(self, txn: GroupTxn) -> None:
        """Write what is owed. Unless that is committed, runs here do not know any more how they are
        stored: the cache must be cleared."""
        txn.decoded = self.runs
        for number in self.owed:
            txn.put_group(self.groups[number])
        for group, number in self.owed_consumers:
            txn.put_consumer(group, self.consumers[group, number])
        for number, owed in self.owed_runs.items():
            for low, run, upper in owed:
                txn.put_between(number, low, upper, run)
            _, run, upper = owed[-1]
            if run is not None and len(run):
                self.runs.near[number] = (run.first, run, upper)
            elif not self.groups[number].pending:
                self.runs.near[number] = NO_RUNS

    def lack(self, group: int) -> None:
        """The index has all of a group, beyond where the cache stands: it is asked now."""
        self.groups.pop(group, None)
        self.runs.clear()  # how runs are stored now is not known here
        self.owed.discard(group)
        self.owed_runs.pop(group, None)
        for pair in [each for each in self.consumers if each[0] == group]:
            del self.consumers[pair]
            self.owed_consumers.discard(pair)

    def __len__(self) -> int:
        return len(self.groups) + len(self.consumers)

    def clear(self) -> None:
        """Forget what is decoded."""
        self.groups.clear()
        self.consumers.clear()
        self.runs.clear()
        self.paid()

    def shrink_names(self, most: int) -> None:
        """Forget the numbers of names if there are too many."""
        if len(self.numbers) + len(self.consumer_numbers) > most:
            self.numbers.clear()
            self.consumer_numbers.clear()


def _low(near: RunPlace) -> bytes:
    return near[0]


class SealedNode(NamedTuple):
    """A sealed node, and where it is."""

    stream: int
    master: StreamID
    locator: Locator


class CachedNode(NamedTuple):
    """A sealed node with live entries, as a write state found it last."""

    stream: int
    master: StreamID
    locator: Locator
    lp: bytes


class RecordCache:
    """Decoded records and open nodes, and the numbers of names."""

    def __init__(self) -> None:
        self.applied = -1
        self.generation = 0
        self.meta: Meta | None = None
        self.records: dict[int, StreamRecord] = {}
        self.opens: dict[int, OpenNode] = {}
        self.numbers: dict[bytes, int] = {}
        # The sealed node that a group was read from last; whether it is known to be there still.
        self.node: CachedNode | None = None
        self.node_is_sure = False
        self.groups = GroupCache()
        self.settings = SettingCache()
        # Streams whose record, or open node, LMDB does not have as it is here; and of how many
        # commits, at most, LMDB has no row.
        self.owed_records: set[int] = set()
        self.owed_opens: set[int] = set()
        self.owed_names: set[int] = set()  # of these the names, too: they are new
        self.owed_nodes: list[SealedNode] = []
        self.owed_tombstones: list[Tombstone] = []
        self.owed_commits = 0
        self.skipped = False
        self._shrunk_at = 0  # the number of a commit
        # Streams that commits of this process changed since the cache stood there; None: it is not
        # known, others may have changed any.
        self.changed: set[int] | None = None
        self.since = -1

    def owe(self, records: set[int], opens: set[int], commits: int = 1) -> None:
        """So many commits changed these streams' records and open nodes, and not the index."""
        self.owed_records |= records
        self.owed_opens |= opens
        self.owed_commits += commits

    def owe_begun(self, new: dict[bytes, int], sealed: Sequence[SealedNode]) -> None:
        """Commits made these streams, whose records are owed, and sealed these nodes."""
        self.numbers.update(new)
        self.owed_names.update(new.values())
        self.owed_nodes += sealed

    def owe_tombstones(self, bodies: Sequence[Tombstone]) -> None:
        """Commits deleted entries of sealed nodes, of which the index has the rows as they were."""
        if bodies:
            self.owed_tombstones += bodies
            self.node = None

    def paid(self) -> None:
        """LMDB has committed all that was owed."""
        self.owed_records.clear()
        self.owed_opens.clear()
        self.owed_names.clear()
        self.owed_nodes.clear()
        self.owed_tombstones.clear()
        self.owed_commits = 0
        self.skipped = False
        self.groups.paid()

    def changed_since(self, applied: int) -> None:
        """From here on it is kept which streams are changed: the cache stands there."""
        self.changed, self.since = set(), applied

    def committed(self, meta: Meta, generation: int, changed: set[int]) -> None:
        """A commit of this process, which changed these streams, is through: the cache stands
        behind it."""
        if self.changed is not None:
            self.changed |= changed
        self.meta, self.generation = meta, generation
        self.applied = meta.applied

    def clear(self) -> None:
        """Forget all that is decoded: another process committed, or a commit was taken back."""
        self.applied = -1
        self.changed = None
        self.meta = None
        self.records.clear()
        self.opens.clear()
        self.node_is_sure = False
        self.groups.clear()
        self.settings.clear()
        self.paid()

    def paid_by_another(self) -> None:
        """Another process wrote what was owed: how runs are stored now is not known here."""
        self.groups.runs.clear()
        self.paid()

    def lack(self, stream: int) -> None:
        """The index has all of a stream, beyond where the cache stands: it is asked now."""
        self.records.pop(stream, None)
        self.opens.pop(stream, None)
        self.owed_records.discard(stream)
        self.owed_opens.discard(stream)
        self.owed_names.discard(stream)
        if self.owed_nodes:
            self.owed_nodes = [node for node in self.owed_nodes if node.stream != stream]
        if self.node is not None and self.node.stream == stream:
            self.node = None

    @property
    def must_follow(self) -> bool:
        """Whether the index must follow before it may be asked, or written to."""
        return self.skipped or bool(
            self.groups.owed or self.owed_tombstones or self.owed_names or self.owed_nodes
        )

    def node_at(self, index: IndexTxn, stream: int, at: StreamID) -> CachedNode | None:
        """The node that was read last, if this ID belongs into it."""
        node = self.node
        if node is None or node.stream != stream or not node.master <= at <= node.locator.last:
            return None
        if not self.node_is_sure:
            if index.node(stream, node.master) != node.locator:
                self.node = None
                return None
            self.node_is_sure = True
        return node

    def shrink(self, commit: int) -> None:
        """Forget what would grow without end; only now and then, by the commit's number. All
        that is owed was written, to LMDB's transaction at least."""
        if 0 <= commit - self._shrunk_at < SHRINK_COMMITS:
            return
        self._shrunk_at = commit
        most = CACHED_STREAMS_MAX
        if len(self.records) > most or len(self.opens) > most:
            for held, owed in ((self.records, self.owed_records), (self.opens, self.owed_opens)):
                for number in [number for number in held if number not in owed]:
                    del held[number]
        if len(self.groups) > most or len(self.settings) > most:
            self.groups.clear()
            self.settings.clear()
        if len(self.numbers) > most:
            kept = {self.records[number].name: number for number in self.owed_names}
            self.numbers.clear()
            self.numbers.update(kept)
        self.groups.shrink_names(most)
