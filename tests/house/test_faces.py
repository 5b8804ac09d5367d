"""Prevents faces that drift apart, and public names that come or go without anyone having decided
it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.aio.store import AsyncGroup, AsyncStream
from tests.house import public_face
from tests.house.repo import ROOT
from tests.support.parameters import parameters

FACES: dict[type, type] = {
    logstore.Store: aio.AsyncStore, logstore.Stream: AsyncStream, logstore.Group: AsyncGroup,
}  # fmt: skip
PLAIN_CALLS = {"stream", "transaction", "on_dead_letter", "metrics"}  # these wait for nothing
# What is an attribute in both: it is known without a look into the store.
ATTRIBUTES = {"name", "path", "encoding", "durable_upto", "recovery", "stream"}
DUNDERS = {"__len__": "len", "__contains__": "contains", "__iter__": "__aiter__"}
# Of a stream of a store they are entries, and `get` gives them; of a store they are streams.
NOT_AWAITED = {"__getitem__", "__reversed__", "__bool__"}
NAMES = [
    (plain, name)
    for plain in FACES
    for name in dir(plain)
    if not name.startswith("_") or name in DUNDERS
]
TYPES = (
    ("Iterator[", "AsyncIterator["), ("Stream[T]", "AsyncStream[T]"),
    ("Stream[Any]", "AsyncStream[Any]"),
    ("Group[T]", "AsyncGroup[T]"),
    ("Transaction[T]", "AsyncTransaction[T]"),
    ("Scan", "AsyncIterator[pa.RecordBatch]"),
)  # fmt: skip
# What an argument of the asyncio face may be, too.
WIDER = {
    ("consume", "handler"): (
        "Callable[[Delivery[T]], object]",
        "Callable[[AsyncDelivery[T]], object] | Callable[[Delivery[T]], object]",
    ),
    ("add_many", "rows"): (
        "Iterable[Row | tuple[IDLike, Row]]",
        "Iterable[Row | tuple[IDLike, Row]] | AsyncIterable[Row | tuple[IDLike, Row]]",
    ),
}  # fmt: skip


def type_text(kind: Any) -> str:
    """A type as it is written, on one line."""
    return " ".join(str(kind).split())


def arguments(function: Callable[..., Any]) -> dict[str, tuple[Any, Any, str]]:
    """Of each argument its kind, what it is by default, and its type."""
    return {
        name: (each.kind, each.default, type_text(each.annotation))
        for name, each in parameters(function).items()
    }


@pytest.mark.parametrize(
    ("plain", "name"), NAMES, ids=[f"{plain.__name__}.{name}" for plain, name in NAMES]
)
def test_both_faces_have_the_same_methods(plain: type, name: str) -> None:
    ours, theirs = getattr(plain, name), getattr(FACES[plain], DUNDERS.get(name, name), None)
    assert theirs is not None, f"{FACES[plain].__name__} has no {name}"
    if isinstance(theirs, property):
        assert name in ATTRIBUTES
        return
    function = ours.fget if isinstance(ours, property) else ours
    expected, found = arguments(function), arguments(theirs)
    for (method, argument), (before, after) in WIDER.items():
        if method == name:
            assert found[argument][2] == after
            found[argument] = (*found[argument][:2], before)
    if not name.startswith("__"):
        assert found == expected
    result = type_text(inspect.signature(function).return_annotation)
    for before, after in TYPES:
        if f"Async{before}" not in result:
            result = result.replace(before, after)
    declared = getattr(theirs, "__wrapped__", None)
    if declared is None:
        given = type_text(inspect.signature(theirs).return_annotation)
        assert given == result or name in DUNDERS
    else:  # the types of what is declared by the plain face follow from it
        assert declared is function
    lazy = "AsyncIterator[" in result or name in {"__iter__", *PLAIN_CALLS}
    awaited = inspect.iscoroutinefunction(theirs)
    assert awaited != lazy, f"{name} must {'not ' * lazy}be awaited"


def test_nothing_is_in_the_asyncio_face_alone() -> None:
    for plain, face in FACES.items():
        own = {name for name in dir(face) if not name.startswith("_")}
        assert own - set(dir(plain)) - ATTRIBUTES == {"len", "contains"} & own


def test_both_are_opened_alike() -> None:
    assert arguments(aio.open.__init__) == arguments(logstore.open)


def test_attributes_of_handles_are_in_both(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False) as store:
        public = {name for name in vars(store) if not name.startswith("_")}
    assert public == {"path", "encoding"}
    for name in public:
        assert isinstance(getattr(aio.AsyncStore, name), property)


def test_special_methods_have_their_kin() -> None:
    for plain, face in FACES.items():
        special = {
            name for base in plain.__mro__[:-1] for name in vars(base)
            if name.startswith("__") and name in {*DUNDERS, *NOT_AWAITED}
        }  # fmt: skip
        for name in special - NOT_AWAITED:
            assert hasattr(face, DUNDERS[name]), (face, name)


PINNED = ROOT / "tests" / "house" / "public_names.txt"


def pinned() -> list[str]:
    """The names of the committed list; `#` starts a comment."""
    lines = (line.partition("#")[0].strip() for line in PINNED.read_text().splitlines())
    return [line for line in lines if line]


def test_the_list_is_sorted() -> None:
    assert pinned() == sorted(set(pinned()))


def test_the_public_names_are_the_pinned_ones() -> None:
    assert sorted(logstore.__all__) == pinned()


def test_the_public_members_are_the_pinned_ones() -> None:
    """What goes is deprecated first; then `python -m tests.house.public_face` writes the list."""
    assert public_face.lines() == [
        line for line in public_face.PINNED.read_text().splitlines() if not line.startswith("#")
    ]


def test_every_public_name_is_there() -> None:
    assert [name for name in logstore.__all__ if not hasattr(logstore, name)] == []
