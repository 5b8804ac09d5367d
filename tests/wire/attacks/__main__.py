"""``python -m tests.wire.attacks [WORD...]``: the cases at full size, as a table in Markdown.

Words choose cases by parts of their names. Exit code 1: ours cost more than a budget allows, or a
case failed. Budgets of time are strict here: nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import traceback
from pathlib import Path

from tests.wire.attacks.case import MIB, AttackCase, AttackRow, over, run

HEAD = (
    "| attack | server | others wait, p99 | at most | memory | files | log | processor | seen |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def cases() -> list[AttackCase]:
    """Those of every module of this folder."""
    found: list[AttackCase] = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.wire.attacks.{path.stem}")
        found += getattr(module, "CASES", [])
    return found


def line(case: AttackCase, row: AttackRow) -> str:
    """A line of the table."""
    cost = row.cost
    first = f"{case.name} ({case.full:,})" if row.name == "ours" else ""
    return (
        f"| {first} | {row.name} | {cost.p99_ms:,.1f} ms | {cost.max_ms:,.1f} ms | "
        f"{cost.memory_bytes / MIB:,.1f} MiB | {cost.files:,} | {cost.log_bytes / 1024:,.1f} KiB | "
        f"{cost.cpu_s:,.2f} s | {row.seen} |"
    )


def main() -> int:
    """Run them, print the table, then what was over a budget."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.attacks", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--small", action="store_true", help="the sizes of pytest")
    given = parser.parse_args()
    failed = []
    print(HEAD, flush=True)
    for case in cases():
        if given.words and not any(word in case.name for word in given.words):
            continue
        with tempfile.TemporaryDirectory(prefix="logstore-attack-") as directory:
            try:
                rows = run(case, Path(directory), full=not given.small)
            except Exception:  # noqa: BLE001  the others are run all the same
                failed.append(f"{case.name}: {traceback.format_exc()}")
                print(f"| {case.name} | ours | FAILED |||||||", flush=True)
                continue
        for row in rows:
            print(line(case, row), flush=True)
        failed += [f"{case.name}: {each}" for each in over(case, rows, strict=True)]
    print("\n".join(["", *failed]) if failed else "\nall within their budgets", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
