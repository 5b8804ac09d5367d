"""``NamedTuple`` as ``typing`` has it, whose classes cost a tenth as much to make.

Opening a store loads about eighty of them, and making each with ``typing`` takes longer than all
else in its module: annotations are compiled one by one, and ``__new__`` is compiled from text. That
is a seventh of an import, an open and a close. Here annotations stay text, and ``__new__`` is
compiled when some instances were made. Type checkers see the class of ``typing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter

    FEW = 4  # instances that a class without a ``__new__`` of its own makes: most make no more
    _made = {}  # how many were, by class

    class NamedTupleMeta(type):
        """Turns the annotated names of a class body into fields; subclasses of that add none."""

        def __new__(meta, name, bases, body):
            if not any(getattr(base, "_fields", ()) for base in bases):
                names = tuple(body.get("__annotations__", ()))
                body["_field_defaults"] = {each: body[each] for each in names if each in body}
                body |= {each: _tuplegetter(at, None) for at, each in enumerate(names)}
                body["_fields"] = body["__match_args__"] = names
                body["__slots__"] = ()
            return super().__new__(meta, name, bases, body)

        @property
        def __signature__(cls):
            """What ``inspect`` is told as long as there is no ``__new__`` that tells it."""
            if cls.__new__ is not NamedTuple.__new__:
                raise AttributeError("__signature__")
            from inspect import Parameter, Signature

            kind, defaults = Parameter.POSITIONAL_OR_KEYWORD, cls._field_defaults
            return Signature(
                [
                    Parameter(name, kind, default=defaults.get(name, Parameter.empty))
                    for name in cls._fields
                ]
            )

    class NamedTuple(tuple, metaclass=NamedTupleMeta):
        """Base of a class whose annotated names are its fields, in order, with their defaults."""

        def __new__(cls, *values: Any, **named: Any):
            """The first instances of a class; the next gives it a ``__new__`` of its own."""
            rest, given = set(cls._fields[len(values) :]), cls._field_defaults | named
            if rest >= named.keys() and rest <= given.keys() and len(values) <= len(cls._fields):
                count = _made[cls] = _made.get(cls, 0) + 1
                if count <= FEW:
                    left = [given[name] for name in cls._fields[len(values) :]]
                    return tuple.__new__(cls, (*values, *left))
            names = "".join(f"{name}, " for name in cls._fields)
            made = eval(  # as collections.namedtuple does it
                f"lambda _cls, {names}: _new(_cls, ({names}))", {"_new": tuple.__new__}
            )
            made.__name__, made.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
            made.__defaults__ = tuple(cls._field_defaults.values())
            cls.__new__ = staticmethod(made)
            return made(cls, *values, **named)

        @classmethod
        def _make(cls, values):
            """An instance of as many values as there are fields."""
            found = tuple.__new__(cls, values)
            if len(found) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(found)}")
            return found

        def _replace(self, **changes):
            """The same with other values for some fields."""
            found = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {list(changes)!r}")
            return found

        __replace__ = _replace

        def _asdict(self):
            """A dict of the fields."""
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            fields = zip(self._fields, self, strict=True)
            return (
                f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"
            )

        def __getnewargs__(self):
            return tuple(self)


__all__ = ["NamedTuple"]
