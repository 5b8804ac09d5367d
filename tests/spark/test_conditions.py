"""Prevents conditions that answer otherwise than Spark over the same entries: null, NaN, -0.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions

from tests.scan.conditions import CASES
from tests.scan.scanned_stores import make_store
from tests.scan.shapes import OPERATORS

WHOLE_STAGE = "spark.sql.codegen.wholeStage"
OURS = [case for case in CASES if case.type == pa.float64()]
TEXTS = sorted({case.text for case in OURS if case.text is not None})


def test_spark_answers_as_the_table(spark: Any, tmp_path: Path) -> None:
    """The table that every part of ours is held against (``tests/scan/conditions.py``).

    Without code that Spark makes for a whole stage: 4.2 answers some of so many conditions over one
    column with the null of another one then, also over a frame of its own.
    """
    with make_store(tmp_path / "store") as store:
        store.stream("v").add_many([{"n": text, "at": at} for at, text in enumerate(TEXTS)])
        store.stream("v").add({"at": -1})
    reader = spark.read.format("logstore").options(path=str(tmp_path / "store"), stream="v")
    frame = reader.schema("at bigint, n double").load()
    asked = sorted({(case.sign, repr(case.operand)): case for case in OURS}.items())
    assert any("nan" in operand for (_, operand), _ in asked)
    answers = [
        (
            functions.col("n").isin(case.operand)
            if sign == "in"
            else ~functions.col("n").isin(case.operand)
        )
        if sign.endswith("in")
        else OPERATORS[sign](functions.col("n"), functions.lit(case.operand))
        for (sign, _), case in asked
    ]
    spark.conf.set(WHOLE_STAGE, "false")
    try:
        rows = frame.select(
            "at", *[each.alias(f"c{at}") for at, each in enumerate(answers)]
        ).collect()
    finally:
        spark.conf.unset(WHOLE_STAGE)
    found = {row["at"]: [bool(answer) for answer in row[1:]] for row in rows}
    places = {key: at for at, (key, _) in enumerate(asked)}
    wrong = [
        f"{case}: Spark answers {not case.answer}"
        for case in OURS
        if found[-1 if case.text is None else TEXTS.index(case.text)][
            places[case.sign, repr(case.operand)]
        ]
        != case.answer
    ]
    assert not wrong, "\n".join(wrong)
