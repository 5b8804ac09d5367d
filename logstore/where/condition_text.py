"""The text of a condition to its tree, by a grammar of lark's.

The language is the conditions of SQL: comparisons of a column with a value, ``between``, ``in``,
``like``, ``is null``, ``and``, ``or``, ``not``. Keywords may have any case, names have their own.
A name with more than letters, digits and ``_`` stands in "double quotes" or `backticks`; what
stands behind a dot, or in brackets, is a step into JSON.

Invariants: the parser holds no call a level of parentheses. A text above TEXT_MAX_LETTERS is
refused before it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any, Final

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from logstore.errors import OptionError, shown
from logstore.schema.column_types import DATE, TIME
from logstore.where.condition_tree import (
    DEPTH_MAX,
    MIRRORED,
    TESTS_MAX,
    All,
    Always,
    Compared,
    Either,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Not,
    OneOf,
    depth_of,
    normal,
    refused,
    tests_of,
)
from logstore.where.condition_values import moment_of

TEXT_MAX_LETTERS: Final = 64 << 10
NUMBER_MAX_LETTERS: Final = 400
PATTERN_MAX_LETTERS: Final = 1000
EXAMPLE: Final = "temp > 20 and room = 'a'"
GRAMMAR: Final = r"""
?start: either
?either: both (_OR both)*
?both: inverse (_AND inverse)*
?inverse: _NOT inverse -> inverted
    | "(" either ")"
    | operand SIGN operand -> compared
    | NAME _BETWEEN literal _AND literal -> between
    | NAME _NOT _BETWEEN literal _AND literal -> not_between
    | NAME _IN "(" literal ("," literal)* ")" -> one_of
    | NAME _NOT _IN "(" literal ("," literal)* ")" -> not_one_of
    | NAME _IS NULL -> is_null
    | NAME _IS _NOT NULL -> is_not_null
    | NAME _LIKE text [_ESCAPE text] -> like
    | NAME _NOT _LIKE text [_ESCAPE text] -> not_like
    | NAME -> truth
    | TRUE -> always
    | FALSE -> always
    | NULL -> unknown
?operand: NAME -> name
    | literal
?literal: text
    | NUMBER -> number
    | TRUE -> truth_value
    | FALSE -> truth_value
    | NULL -> null
    | _TIMESTAMP TEXT -> timestamp
    | _DATE TEXT -> day
    | _TIME TEXT -> time_of_day
text: TEXT

_AND.3: /and(?!\w)/i
_OR.3: /or(?!\w)/i
_NOT.3: /not(?!\w)/i
_IN.3: /in(?!\w)/i
_IS.3: /is(?!\w)/i
_LIKE.3: /like(?!\w)/i
_BETWEEN.3: /between(?!\w)/i
_ESCAPE.3: /escape(?!\w)/i
TRUE.3: /true(?!\w)/i
FALSE.3: /false(?!\w)/i
NULL.3: /null(?!\w)/i
_TIMESTAMP.3: /timestamp(?=\s*')/i
_DATE.3: /date(?=\s*')/i
_TIME.3: /time(?=\s*')/i
NUMBER.2: /[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?(?![\w.])/i
SIGN: /<=|>=|<>|!=|==|=|<|>/
TEXT: /'(?:[^']|'')*'/
NAME: /(?:[^\W\d]\w*|"(?:[^"]|"")+"|`(?:[^`]|``)+`)(?:\.(?:\w+|"(?:[^"]|"")*"|`(?:[^`]|``)*`)|\[[0-9]{1,9}\])*/
%ignore /\s+/
"""  # noqa: E501  (a terminal of lark's is one line)

_STEP = re.compile(
    r"""\.?(?:"(?P<quoted>(?:[^"]|"")*)"|`(?P<ticked>(?:[^`]|``)*)`|\[(?P<at>[0-9]+)\]|(?P<bare>\w+))"""
)


def parse(text: str) -> Node:
    """The normal tree of a text. OptionError, with a caret under the place, for what is none."""
    if len(text) > TEXT_MAX_LETTERS:
        raise OptionError(f"where: a condition has at most {TEXT_MAX_LETTERS} letters")
    if not text.strip():
        raise OptionError(f"where: there is no condition: give one, such as {EXAMPLE}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise refused(text, error.start, "half of a surrogate pair is no text") from None
    try:
        found: Node = _parser().parse(text)
    except UnexpectedInput as error:
        raise _misread(text, error) from None
    except _Refusal as error:
        raise refused(text, error.at, str(error)) from None
    if tests_of(found) > TESTS_MAX:
        raise OptionError(f"where: a condition has at most {TESTS_MAX} tests; in (..) is one")
    return normal(found)


@cache
def _parser() -> Any:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=False, transformer=_Tree())


class _Refusal(Exception):  # noqa: N818
    """What the grammar allows and the language does not."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


def _misread(text: str, error: UnexpectedInput) -> OptionError:
    """What to say of a text that is not of the grammar."""
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        expected: set[str] = getattr(error, "expected", set())
        missing = next((what for each, what in _MISSING if each <= expected), "something")
        return refused(text, len(text), f"{missing} is missing at the end; {_AS}")
    at = error.pos_in_stream or 0
    if isinstance(error, UnexpectedCharacters):
        quoted = _QUOTED.get(text[at])
        if quoted is not None and text.find(text[at], at + 1) < 0:
            return refused(text, at, f"{quoted} has no end")
    is_call = text[at : at + 1] == "(" and text[:at].rstrip()[-1:].isalnum()
    why = "there are no functions: a column itself is compared" if is_call else _STRAY
    return refused(text, at, f"{why}; {_AS}")


_STRAY = "this cannot stand here"


_AS: Final = f"a condition is such as {EXAMPLE}"
_QUOTED: Final = {"'": "a text in 'quotes'", '"': "a name in quotes", "`": "a name in quotes"}
_MISSING: Final = [
    ({"RPAR"}, "')'"),
    ({"NAME", "TEXT"}, "a column or a value"),
    ({"TEXT"}, "a text in 'quotes'"),
    ({"SIGN"}, "a comparison"),
]


class _Tree:
    """Makes the nodes as the parser finds them. Each method has the name of a rule."""

    # -- what is combined ---------------------------------------------------------------------
    def either(self, parts: list[Node]) -> Node:
        """``or``."""
        return _bounded(Either(tuple(parts), depth_of(parts)))

    def both(self, parts: list[Node]) -> Node:
        """``and``."""
        return _bounded(All(tuple(parts), depth_of(parts)))

    def inverted(self, parts: list[Node]) -> Node:
        """``not``."""
        return _bounded(Not(parts[0], depth_of(parts)))

    # -- tests --------------------------------------------------------------------------------
    def compared(self, parts: list[Any]) -> Node:
        """Of a column and a value, whichever stands first."""
        left, token, right = parts
        sign = {"==": "=", "<>": "!="}.get(str(token), str(token))
        if isinstance(left, Name) and isinstance(right, Name):
            raise _Refusal(
                right.at, "a column is compared with a value, and a text stands in 'quotes'"
            )
        if isinstance(left, Name):
            return Compared(left, sign, right)
        if isinstance(right, Name):
            return Compared(right, MIRRORED[sign], left)
        raise _Refusal(left.at, "two values are compared: name a column")

    def between(self, parts: list[Any]) -> Node:
        """Both ends belong to it."""
        name, low, high = self.name(parts), parts[1], parts[2]
        return self.both([Compared(name, ">=", low), Compared(name, "<=", high)])

    def not_between(self, parts: list[Any]) -> Node:
        """What is outside of both ends."""
        return self.inverted([self.between(parts)])

    def one_of(self, parts: list[Any]) -> Node:
        """``in``."""
        return OneOf(self.name(parts), tuple(parts[1:]), negated=False)

    def not_one_of(self, parts: list[Any]) -> Node:
        """``not in``."""
        return OneOf(self.name(parts), tuple(parts[1:]), negated=True)

    def is_null(self, parts: list[Any]) -> Node:
        """``is null``."""
        return IsNull(self.name(parts), negated=False)

    def is_not_null(self, parts: list[Any]) -> Node:
        """``is not null``."""
        return IsNull(self.name(parts), negated=True)

    def like(self, parts: list[Any], *, negated: bool = False) -> Node:
        """``%`` is any text, ``_`` one character, and what stands behind the escape itself."""
        pattern, escape = parts[1], parts[2] if len(parts) > 2 else None
        if escape is not None and len(escape.value) > 1:
            raise _Refusal(escape.at, "an escape is one character")
        if len(pattern.value) > PATTERN_MAX_LETTERS:
            raise _Refusal(pattern.at, f"a pattern has at most {PATTERN_MAX_LETTERS} letters")
        sign = "" if escape is None else escape.value
        if sign and sign in re.sub(f"{re.escape(sign)}[%_{re.escape(sign)}]", "", pattern.value):
            raise _Refusal(
                pattern.at, f"behind the escape {sign!r} stands %, _ or the escape itself"
            )
        return Like(self.name(parts), pattern, sign, negated)

    def not_like(self, parts: list[Any]) -> Node:
        """``not like``."""
        return self.like(parts, negated=True)

    def truth(self, parts: list[Token]) -> Node:
        """A column alone, which is true or false."""
        return Compared(self.name(parts), "=", Literal("bool", True, _at(parts[0])))

    def always(self, parts: list[Token]) -> Node:
        """``true`` or ``false`` alone."""
        return Always(parts[0].lower() == "true")

    def unknown(self, parts: list[Token]) -> Node:  # noqa: ARG002
        """``null`` alone."""
        return Always(None)

    # -- names and values ---------------------------------------------------------------------
    def name(self, parts: list[Any]) -> Name:
        """A column, and the steps into it."""
        token = parts[0]
        steps: list[str | int] = []
        for match in _STEP.finditer(token):
            if match["at"] is not None:
                steps.append(int(match["at"]))
            elif match["bare"] is not None:
                steps.append(match["bare"])
            elif match["quoted"] is not None:
                steps.append(match["quoted"].replace('""', '"'))
            else:
                steps.append(match["ticked"].replace("``", "`"))
        return Name(str(steps[0]), tuple(steps[1:]), _at(token))

    def text(self, parts: list[Token]) -> Literal:
        """A text; of all characters only a quote stands for another one: two are one."""
        return Literal("text", _unquoted(parts[0]), _at(parts[0]))

    def number(self, parts: list[Token]) -> Literal:
        """A number, with all of its digits."""
        if len(parts[0]) > NUMBER_MAX_LETTERS:
            raise _Refusal(_at(parts[0]), f"a number has at most {NUMBER_MAX_LETTERS} letters")
        return Literal("number", Decimal(str(parts[0])), _at(parts[0]))

    def truth_value(self, parts: list[Token]) -> Literal:
        """``true`` or ``false``."""
        return Literal("bool", parts[0].lower() == "true", _at(parts[0]))

    def null(self, parts: list[Token]) -> Literal:
        """``null``."""
        return Literal("null", None, _at(parts[0]))

    def timestamp(self, parts: list[Token]) -> Literal:
        """``timestamp '...'``."""
        return _read("timestamp", moment_of, parts[0])

    def day(self, parts: list[Token]) -> Literal:
        """``date '...'``."""
        return _read("date", DATE.read, parts[0])

    def time_of_day(self, parts: list[Token]) -> Literal:
        """``time '...'``."""
        return _read("time", TIME.read, parts[0])


def _bounded(node: Node) -> Node:
    if node.depth > DEPTH_MAX:
        raise _Refusal(0, f"not, and, or stand in one another at most {DEPTH_MAX} times")
    return node


def _read(kind: str, read: Callable[[bytes], Any], token: Token) -> Literal:
    text = _unquoted(token)
    try:
        return Literal(kind, read(text.encode()), _at(token))
    except ValueError as error:
        raise _Refusal(_at(token), f"{shown(text)} {error}") from None


def _unquoted(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


def _at(token: Token) -> int:
    at = token.start_pos
    assert at is not None
    return at
