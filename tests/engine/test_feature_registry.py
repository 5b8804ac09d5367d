"""Prevents features that cannot be added in one place: the registry holds what it promises.

A feature is written into a copy of the sources, as a developer would: its own two modules, a line
in the registry, the number and the layout of its frame. Then a store is opened with that copy.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.house.repo import ROOT
from tests.support.processes import run_program

STORED = '''"""Labels of streams, as they are stored: a text each."""

from __future__ import annotations

from logstore import format as fmt
from logstore.features.feature import Compared, Copied, Feature, FrameKind
from logstore.row_seal import seal, unseal
from logstore.tuples import NamedTuple

DATABASE = "labels"


class Label(NamedTuple):
    """The stream has this label now."""

    stream: int
    text: bytes


def key(stream):
    return stream.to_bytes(8, "big")


class LabelRows:
    """The labels as one transaction sees them."""

    def __init__(self, index):
        self._database = index.generation.databases[DATABASE]
        self._txn = index.txn

    def get(self, stream):
        data = self._txn.get(key(stream), db=self._database)
        return None if data is None else unseal(key(stream), data)

    def put(self, stream, text):
        self._txn.put(key(stream), seal(key(stream), text), db=self._database)

    def delete(self, stream):
        self._txn.delete(key(stream), db=self._database)

    def rows(self):
        with self._txn.cursor(db=self._database) as cursor:
            for at, data in cursor:
                yield int.from_bytes(at, "big"), unseal(at, data)


def apply(txn, at, body):
    if txn.advance(body.stream, at) is not None:
        LabelRows(txn.index).put(body.stream, body.text)


def page(index, after):
    rows = [row for row in LabelRows(index).rows() if row[0] > (after or 0)]
    return ([{"kind": "labels", "rows": rows}], rows[-1][0]) if rows else None


def load(txn, chunk):
    for stream, text in chunk["rows"]:
        LabelRows(txn.index).put(stream, text)


def decode(payload):
    return Label(*fmt.LABEL_BODY.unpack_from(payload), payload[fmt.LABEL_BODY.size :])


FEATURE = Feature(
    database=DATABASE,
    frames=(
        FrameKind(
            kind=fmt.Kind.LABEL,
            bodies=(Label,),
            encode=lambda body: fmt.LABEL_BODY.pack(body.stream) + body.text,
            decode=decode,
            apply=apply,
            of_record=True,
        ),
    ),
    copies=(Copied("labels", page, load),),
    compares=(Compared("labels differ", lambda index: LabelRows(index).rows()),),
    dropped=lambda txn, stream: LabelRows(txn.index).delete(stream),
)
'''
DECIDED = '''"""Deciding labels: a stream that is there is given one."""

from __future__ import annotations

from logstore.engine.streams import add
from logstore.features.labels import Label


def label(txn, name, text):
    txn.emit(Label(add.existing(txn, name).number, text))
'''
USED = """
import shutil, sys
from pathlib import Path

import logstore
from logstore.engine.features import labels as decided
from logstore.engine.snapshots import snapshot
from logstore.features.labels import LabelRows
from logstore.fs import LOCAL
from logstore.index import env
from logstore.index.txn import IndexTxn
from logstore.log import file_names as names
from logstore.recovery import compare
from logstore.recovery.check import check

path = Path(sys.argv[1])


def opened():
    return logstore.open(path, background=False)


def labels(store):
    return dict(snapshot.read(store._engine(), lambda view: list(LabelRows(view.index).rows())))


def lose_index():
    shutil.rmtree(path / "index")


with opened() as store:
    for name in "abc":
        store.stream(name).add({"n": 1})
    for name, text in ((b"a", b"first"), (b"b", b"second"), (b"b", b"third"), (b"c", b"gone")):
        store._opened.commit(lambda txn: decided.label(txn, name, text), None)
    store.drop("c")
    assert labels(store) == {1: b"first", 2: b"third"}
assert check(path).index == compare.AGREES
lose_index()  # from its frames
with opened() as store:
    assert store.recovery["rebuilt"]
    assert labels(store) == {1: b"first", 2: b"third"}
    assert store.checkpoint() > 0
    store._opened.commit(lambda txn: decided.label(txn, b"a", b"behind"), None)
lose_index()  # from the checkpoint, and a frame behind it
with opened() as store:
    assert store.recovery["rebuilt"]
    assert labels(store) == {1: b"behind", 2: b"third"}
assert check(path).index == compare.AGREES
kept = names.generation(path, names.generations(LOCAL, path)[-1])
other = shutil.copytree(kept, path.with_name("copy"))
own = env.open_generation(LOCAL, other, 1)
with own.env.begin(write=True) as txn:  # a row that no frame says
    LabelRows(IndexTxn(own, txn)).put(2, b"unsaid")
own.close()
true, own = env.open_untouched(kept, 1), env.open_untouched(other, 1)
assert compare._differences(true, true) == []
assert compare._differences(true, own) == ["labels differ"]
print("whole")
"""


def edit(path: Path, before: str, after: str) -> None:
    """Replace a text that stands once in a file."""
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name} has no {before!r}"
    path.write_text(text.replace(before, after))


def touched(package: Path) -> set[str]:
    """The files that differ from the sources they were copied from."""
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if not (source := ROOT / "logstore" / path.relative_to(package)).exists()
        or source.read_bytes() != path.read_bytes()
    }


def test_a_new_feature_is_two_modules_a_line_of_the_registry_and_its_format(tmp_path: Path) -> None:
    package = tmp_path / "logstore"
    shutil.copytree(ROOT / "logstore", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "features" / "labels.py").write_text(STORED)
    (package / "engine" / "features" / "labels.py").write_text(DECIDED)
    registry = package / "features" / "feature_list.py"
    edit(registry, "    latest,\n    sched", "    labels,\n    latest,\n    sched")
    edit(registry, "FEATURES = (\n", "FEATURES = (\n    labels.FEATURE,\n")
    layouts = package / "format.py"
    edit(layouts, "    SCHEMA = 47\n", "    SCHEMA = 47\n    LABEL = 48\n")
    edit(layouts, "RENAME_BODY = ", 'LABEL_BODY = struct.Struct("<Q")\nRENAME_BODY = ')
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run_program(USED, tmp_path / "store", env=env, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("whole\n", "")
    files = touched(package)
    assert files == {
        "features/labels.py", "features/feature_list.py", "engine/features/labels.py", "format.py",
    }  # fmt: skip
    told = (ROOT / "docs" / "internals.md").read_text()
    for file in files:
        folder, _, name = f"logstore/{file}".rpartition("/")
        new = f"`NAME.py` in `{folder}/`" in told and name == "labels.py"
        assert new or f"`logstore/{file}`" in told
