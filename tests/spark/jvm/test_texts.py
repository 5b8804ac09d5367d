"""A text is as a column's type what the Python source makes of it, whatever the text."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore.scan.conversion import cast, malformed
from logstore.spark_io.spark_columns import arrow_type
from tests.seeds import seed
from tests.spark.jvm.texts import FLOATING, PIECES, WHOLE_TEXTS, plain
from tests.spark.jvm.texts_process import TextsProcess

WHOLE = ("tinyint", "smallint", "int", "bigint")
DECIMALS = ("decimal(5,2)", "decimal(18,0)", "decimal(18,18)", "decimal(20,3)", "decimal(38,10)")
TIMES = ("timestamp", "timestamp_ntz", "date")
TYPES = (*WHOLE, *FLOATING, *DECIMALS, *TIMES, "boolean", "string")


def expected(kind: str, texts: list[bytes]) -> list[str]:
    """What the process is to answer."""
    import pyarrow as pa

    array = pa.array([each.decode("utf-8", "replace") for each in texts], pa.string())
    found = cast(array, arrow_type(kind), "column", strict=False)
    mask = malformed(array, found)
    bad = [False] * len(texts) if mask is None else mask.to_pylist()
    if kind in (*TIMES, *WHOLE):
        found = found.cast(pa.int32() if kind == "date" else pa.int64())
    return [
        "2" if is_bad else "0" if value is None else f"1{plain(kind, value)}"
        for value, is_bad in zip(found.to_pylist(), bad, strict=True)
    ]


def check(texts_process: TextsProcess, kind: str, texts: list[bytes]) -> None:
    """Both give the same for each text."""
    found = texts_process.texts(kind, texts)
    wanted = expected(kind, texts)
    differ = [each for each in zip(texts, found, wanted, strict=True) if each[1] != each[2]]
    assert not differ, (kind, differ[:10])


def drawn(random: random.Random) -> bytes:
    """A text: pieces, or a whole one that is changed here and there."""
    if random.random() < 0.4:
        text = "".join(random.choices(PIECES, k=random.randint(1, 8))).encode()
    else:
        text = random.choice(WHOLE_TEXTS).encode()
    while random.random() < 0.5:
        at = random.randint(0, len(text))
        end = min(len(text), at + random.randint(0, 2))
        piece = random.choice(PIECES).encode() if random.random() < 0.9 else random.randbytes(2)
        text = text[:at] + random.choice((b"", piece)) + text[end:]
    return text


@pytest.mark.parametrize("kind", TYPES)
def test_many_texts(texts_process: TextsProcess, kind: str) -> None:
    number = seed()
    print(f"LOGSTORE_SEED={number}")
    source = random.Random(number)
    texts = list({drawn(source): None for _ in range(2500)})
    for at in range(0, len(texts), 500):
        check(texts_process, kind, [*map(str.encode, WHOLE_TEXTS), *texts[at : at + 500]])


NEAR = st.lists(st.sampled_from(PIECES), max_size=9).map(lambda parts: "".join(parts).encode())


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=30)
@given(texts=st.lists(NEAR | st.binary(max_size=12), max_size=20))
@example(texts=[b"0x", b"-0x1", b"1e0x2", b"1e+-1", b"1e-2147483647", b"0e-2147483648"])
@example(texts=[b"340282366920938463463374607431768211457", b"4e38", b"1" * 40, b"0." + b"0" * 60])
@example(texts=[b"1" + b"0" * 400 + b"e-400", b"0." + b"0" * 400 + b"1e401", b"1e" + b"9" * 5000])
def test_near_texts(texts_process: TextsProcess, kind: str, texts: list[bytes]) -> None:
    check(texts_process, kind, texts)


@pytest.mark.parametrize("kind", FLOATING)
@settings(max_examples=30)
@given(values=st.lists(st.floats(allow_nan=False), max_size=50))
def test_floats_as_python_writes_them(
    texts_process: TextsProcess, kind: str, values: list[float]
) -> None:
    check(texts_process, kind, [repr(each).encode() for each in values])


@pytest.mark.parametrize("kind", FLOATING)
def test_numbers_near_the_middle_of_two(texts_process: TextsProcess, kind: str) -> None:
    """Cut after 15 to 19 digits, and with all of them."""
    number = seed()
    print(f"LOGSTORE_SEED={number}")
    source = random.Random(number)
    texts: list[bytes] = []
    for _ in range(1500):
        mantissa = source.getrandbits(25 if kind == "float" else 54) | 1
        middle = Decimal(mantissa) * Decimal(2) ** source.randrange(-90, 60)
        short = f"{middle:.{source.randrange(14, 19)}e}"
        texts += [f"{middle:f}".encode(), short.encode(), f"{Decimal(short):f}".encode()]
    check(texts_process, kind, texts)
