"""A text is as a column's type what the Python source makes of it, whatever the text."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore.scan.conversion import cast, malformed
from logstore.spark_io.spark_columns import arrow_type
from tests.seeds import seed
from tests.spark.jvm.texts_process import TextsProcess, started

WHOLE = ("tinyint", "smallint", "int", "bigint")
FLOATING = ("float", "double")
DECIMALS = ("decimal(5,2)", "decimal(18,0)", "decimal(18,18)", "decimal(20,3)", "decimal(38,10)")
TIMES = ("timestamp", "timestamp_ntz", "date")
TYPES = (*WHOLE, *FLOATING, *DECIMALS, *TIMES, "boolean", "string")
# What texts of all types are made of, so that each type sees those that are nearly its own.
PIECES = (
    *"0123456789", *"+-.eExX:TZ _()\0", "00", "000000", "0x", "inf", "NaN", "infinity", "nan(",
    "true", "False", "2024-02-29", "1970-01-01", "9999-12-31", "23:59:59", "T00:00", " 12",
    ".123456", "+01:30", "-2330", "e-", "E+", "e308", "1e-", "99", "127", "128", "32768",
    "2147483648", "9223372036854775807", "9223372036854775808", "4503599627370497",
    "340282346638528859811704183484516925440", "é", "٣", "d",
)  # fmt: skip
WHOLE_TEXTS = (
    "", "0", "-0", "-1", "127", "-128", "32767", "-32769", "2147483647", "9223372036854775807",
    "-9223372036854775808", "0x7f", "0XFFFFFFFFFFFFFFFF", "1.5", "-0.25", "21.53", ".5", "5.",
    "1e5", "1E-400", "2.2250738585072011e-308", "179769313486231580793e289", "0.1234567890123456",
    "true", "FALSE", "2024-01-01", "2024-01-01 00:00:00.123456Z", "2024-01-01T00:00:00.123Z",
    "2024-01-01 23:59", "2023-02-28T12:30:45.123456789+05:30", "0000-01-01 00",
    "9999-12-31T23:59:59-2359", "nan", "-inf", "1234567890123456789.012", "123.4500", "1e-2",
    "99999999999999999999999999999999999999", "12e30",
)  # fmt: skip


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextsProcess]:
    with started(tmp_path_factory.mktemp("classes")) as found:
        yield found


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


def plain(kind: str, value: Any) -> str:
    """A value as the process writes it."""
    if kind in FLOATING:
        form = ">i" if kind == "float" else ">q"
        (bits,) = struct.unpack(form, struct.pack(form.replace("i", "f").replace("q", "d"), value))
        return str(bits)
    if kind.startswith("decimal"):
        sign, digits, _ = value.as_tuple()
        return str((-1 if sign else 1) * int("".join(map(str, digits))))
    return str(value).lower() if kind == "boolean" else str(value)


def check(process: TextsProcess, kind: str, texts: list[bytes]) -> None:
    """Both give the same for each text."""
    found = process.texts(kind, texts)
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
def test_many_texts(process: TextsProcess, kind: str) -> None:
    number = seed()
    print(f"LOGSTORE_SEED={number}")
    source = random.Random(number)
    texts = list({drawn(source): None for _ in range(6000)})
    for at in range(0, len(texts), 500):
        check(process, kind, [*map(str.encode, WHOLE_TEXTS), *texts[at : at + 500]])


NEAR = st.lists(st.sampled_from(PIECES), max_size=9).map(lambda parts: "".join(parts).encode())


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=30)
@given(texts=st.lists(NEAR | st.binary(max_size=12), max_size=20))
@example(texts=[b"0x", b"-0x1", b"1e0x2", b"1e+-1", b"1e-2147483647", b"0e-2147483648"])
@example(texts=[b"340282366920938463463374607431768211457", b"4e38", b"1" * 40, b"0." + b"0" * 60])
@example(texts=[b"1" + b"0" * 400 + b"e-400", b"0." + b"0" * 400 + b"1e401", b"1e" + b"9" * 5000])
def test_near_texts(process: TextsProcess, kind: str, texts: list[bytes]) -> None:
    check(process, kind, texts)


@pytest.mark.parametrize("kind", FLOATING)
@settings(max_examples=50)
@given(values=st.lists(st.floats(allow_nan=False), max_size=50))
def test_floats_as_python_writes_them(
    process: TextsProcess, kind: str, values: list[float]
) -> None:
    check(process, kind, [repr(each).encode() for each in values])
