"""Prevents our ``NamedTuple`` from differing from that of ``typing``, or from being forgotten."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from typing import Any, Generic, TypeVar

import pytest

from logstore import tuples
from tests.support.processes import run_program

T = TypeVar("T")


class Ours(tuples.NamedTuple):
    """A doc."""

    number: int
    text: str = "x"
    rest: bytes | None = None

    @property
    def twice(self) -> int:
        """A method of its own."""
        return 2 * self.number


class Theirs(typing.NamedTuple):
    """A doc."""

    number: int
    text: str = "x"
    rest: bytes | None = None


class OfMany(tuples.NamedTuple, Generic[T]):
    """A generic one."""

    value: T


class Below(Ours):
    """A class below one: adds methods, and no fields."""

    remark: str = "no field"


class Empty(tuples.NamedTuple):
    """Without fields."""


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}), ((1, "a", b"b"), {}), ((), {"number": 1, "rest": b""}), ((1,), {"text": "t"}),
    ((), {}), ((1, 2, 3, 4), {}), ((1,), {"number": 2}), ((1,), {"other": 2}),
]  # fmt: skip


def made(cls: Any, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
    try:
        return tuple(cls(*values, **named))
    except TypeError as error:
        return str(error).replace("Theirs", "Ours")


def test_instances_are_made_alike_the_first_and_the_next() -> None:
    for values, named in CALLS:
        fresh: Any = type("Ours", (tuples.NamedTuple,), {
            "__annotations__": dict.fromkeys(Ours._fields, "Any"), "text": "x", "rest": None,
            "__qualname__": "Ours",
        })  # fmt: skip
        wanted = made(Theirs, values, named)
        times = tuples.FEW + 2  # with a ``__new__`` of its own at the end
        assert [made(fresh, values, named) for _ in range(times)] == [wanted] * times


def test_the_class_and_its_instances_answer_alike() -> None:
    ours: Any
    theirs: Any
    ours, theirs = Ours(1, rest=b"r"), Theirs(1, rest=b"r")
    assert ours == theirs == (1, "x", b"r")
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours.twice == 2
    assert (ours.number, ours.text, ours.rest) == ours
    for given in (Ours, *(type("Ours", (Ours,), {}) for _ in range(2))):
        assert str(inspect.signature(given)) == "(number, text='x', rest=None)"
        assert [given(1) for _ in range(tuples.FEW + 1)][-1] == (1, "x", None)
        assert str(inspect.signature(given)) == "(number, text='x', rest=None)"
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__", "__doc__"):
        assert getattr(Ours, name) == getattr(Theirs, name)
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(text="y") == theirs._replace(text="y")
    assert type(ours._replace(text="y")) is Ours
    assert Ours._make([1, 2, 3]) == Theirs._make([1, 2, 3])  # type: ignore[list-item]
    assert list(inspect.signature(Ours).parameters) == list(inspect.signature(Theirs).parameters)
    assert not hasattr(ours, "__dict__")
    for cls in (Ours, Theirs):
        with pytest.raises(TypeError, match="Expected 3 arguments, got 1"):
            cls._make([1])
        with pytest.raises((ValueError, TypeError), match="Got unexpected field names"):
            cls(1)._replace(other=1)
        with pytest.raises(AttributeError):
            cls(1).number = 2  # type: ignore[misc]


def test_instances_are_pickled_copied_and_matched() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(Ours(3), protocol))
        assert back == Ours(3)
        assert type(back) is Ours
    assert copy.copy(Ours(3)) == copy.deepcopy(Ours(3)) == Ours(3)
    match Ours(3, "t"):
        case Ours(number, text):
            assert (number, text) == (3, "t")


def test_classes_below_add_no_fields() -> None:
    assert Below._fields == Ours._fields
    assert Below(1) == (1, "x", None)
    assert type(Below(1)._replace(number=2)) is Below
    assert OfMany[int](1).value == 1
    assert OfMany._fields == ("value",)
    assert Empty() == ()


def test_opening_makes_none_with_typing(tmp_path: Any) -> None:
    """Each takes ten times as long to make as one of ours."""
    code = f"""
import typing
real, made = typing.NamedTupleMeta.__new__, []
def noted(meta, name, bases, body):
    made.append(body.get("__module__"))
    return real(meta, name, bases, body)
typing.NamedTupleMeta.__new__ = noted
import logstore
with logstore.open({str(tmp_path / "store")!r}, background=False) as store:
    store.stream("s").add({{"a": "1"}})
print(*made)
"""
    assert run_program(code).stdout == "\n"
