"""What the Python source reads of a split, to be compared with what the JVM reads."""

from __future__ import annotations

from logstore.codec import codec_name
from logstore.errors import Error
from logstore.scan import split_reads
from logstore.scan.record_batches import Gather, Losses
from logstore.scan.snapshot_file import Split
from logstore.spark_io.split_tasks import ADVICE
from logstore.tuples import NamedTuple
from tests.spark.jvm.split_dump import Answer, SplitDump

Row = tuple[str, str, list[tuple[str, bytes]]]
# The pure codec says more of what is wrong in a node; the JVM speaks as the compiled one.
SAME_WORDS = codec_name() == "native"


class Read(NamedTuple):
    """The rows, how the reading ended, and how many entries were left out at most."""

    rows: list[Row]
    error: str
    lost: int


def read(split: Split, *, lossy: bool = False) -> Read:
    """What Python reads."""
    losses = Losses(allowed=lossy, advice=ADVICE)
    gather = Gather(["stream", "id", "pairs"], batch_rows=1000, binary=["pairs"])
    rows: list[Row] = []
    error = ""
    try:
        for batch in split_reads.batches(split, gather, losses=losses):
            for row in batch.to_pylist():
                pairs = [(pair["field"], pair["value"]) for pair in row["pairs"]]
                rows.append((row["stream"], row["id"], pairs))
    except Error as exc:
        error = f"{type(exc).__name__}: {exc}"
    return Read(rows, error, losses.entries if lossy else 0)


def rows_of(answer: Answer) -> list[Row]:
    """The rows of an answer in the same form."""
    found: list[Row] = []
    for each in answer.entries:
        names = [name.decode("utf-8", "replace") for name in each.flat[::2]]
        pairs = list(zip(names, each.flat[1::2], strict=True))
        found.append((each.stream.decode("utf-8", "replace"), each.id, pairs))
    return found


def check(jvm: SplitDump, split: Split, *, lossy: bool = False) -> Answer:
    """Read a split in both, and compare: the rows if there is no error, else the errors."""
    want = read(split, lossy=lossy)
    found = jvm.read(split, lossy=lossy)
    assert found.kind != "crash", found.error
    if want.error and not SAME_WORDS and "CorruptNodeError" in want.error:
        assert found.kind == "CorruptNodeError"
    else:
        assert found.error == want.error
    if not want.error:
        assert rows_of(found) == want.rows
        assert found.lost == want.lost
    return found
