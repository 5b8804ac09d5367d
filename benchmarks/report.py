"""docs/benchmarks.md and its charts, made from runs.

A run is what ``python -m benchmarks --json`` printed: ``python -m benchmarks.report docs RUN.json``
makes the page of some, and ``--docs docs`` that of the run itself. Of what several measured, the
last one counts, and the points of a curve are joined. Nothing here measures, and nothing on the
page is written by hand: bars for what is compared with two peers or more, lines for what grows, a
table for all.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import instructions

Run = Mapping[str, Any]  # a document of ``--json``
OURS, THEIRS, BESIDE, TEXT = (
    "#2f9e7a",
    "#8f9aa7",
    "#d07f3d",
    "#76808c",
)  # seen on white and on black
CHARTS = Path("images", "benchmarks")
FLAT = re.compile(r"flat")
HEAD = """# Benchmarks

Made from runs of `make bench` on {day}, on {machine} with {cores} cores, Python {python},
and the {codec} codec. Every side of a question ran in the same run, in turns;
± is the spread of its rounds. A goal that was missed is printed as missed.
[performance.md](performance.md) says where the time goes, and how to measure yourself.

{busy}

Versions: {versions}.
"""
IDLE = "The cores had little else to do."
BUSY = """**The cores were shared with other work** (up to {busy:.1f} of them as a run began), so
times are much longer than on idle cores, and spreads wide: only large ratios mean something here,
and the instructions below, which other work does not change."""
BUSY_CORES_MAX = 0.25  # of idle ones
# What an operation took, user space alone, before any of a commit was compiled (the least of some
# counts, of one row and one entry again and again), and the goal.
COUNTED = {
    "add": (179_000, 42_000),
    "add, beyond ASCII": (None, 42_000),
    "add, a float": (None, 42_000),
    "add, an ID given": (None, 42_000),
    "add, 5,000 streams": (None, 42_000),
    "add, max_entries": (None, 42_000),
    "add beside features": (None, 42_000),  # of other streams; not more than an add
    "transaction": (324_000, 70_000),
    "add_many": (None, 1_500),
    "get": (214_000, 24_000),
    "range": (19_400, 5_000),
    "range of ten": (None, None),
    "delete": (None, None),
    "group read and ack": (452_000, 110_000),
    "the same, after deletes": (None, 110_000),
    "the same, a timeout": (None, 110_000),
    "group in hundreds": (None, 5_000),
    "scan": (None, None),
    instructions.START: (602_000_000, 82_000_000),  # 640 and 120 less an interpreter's 38
}


def write(folder: Path, runs: Sequence[Run]) -> Path:
    """Write the page and its charts into a folder of documentation; the page."""
    charts = folder / CHARTS
    charts.mkdir(parents=True, exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    results = {(each["name"], each["target"]): each for run in runs for each in run["results"]}
    curves = _joined([each for run in runs for each in run["curves"]])
    parts = [_head(runs), _counted(), _all(results.values())]
    compared = [each for each in results.values() if len(_sides(each)) > 2]
    if compared:
        parts.append("## Beside peers\n")
    for each in compared:
        path = CHARTS / _file_name(each["name"])
        _bars(folder / path, each)
        parts.append(f"![{each['name']}, {each['unit']}]({path.as_posix()})\n")
    if curves:
        parts.append("## Cost as work grows\n")
        parts.append("Dashed is what it should be, from the first point on.\n")
    for each in curves:
        path = CHARTS / _file_name(each["name"])
        _lines(folder / path, each)
        parts.append(f"![{each['name']}: {_points(each)}]({path.as_posix()})\n")
    page = folder / "benchmarks.md"
    page.write_text("\n".join(parts))
    return page


def _joined(curves: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Curves by name, with the points of all."""
    found: dict[str, dict[str, Any]] = {}
    for each in curves:
        before = found.get(each["name"], {"points": []})
        points = dict(before["points"]) | dict(each["points"])
        found[each["name"]] = {**each, "points": sorted(points.items())}
    return list(found.values())


def _head(runs: Sequence[Run]) -> str:
    most = max(run["busy_cores"] for run in runs)
    busy = IDLE if most <= BUSY_CORES_MAX else BUSY.format(busy=most)
    versions = ", ".join(f"{name} {found}" for name, found in runs[-1]["versions"].items())
    return HEAD.format(**{**runs[-1], "busy": busy, "versions": versions})


def _counted() -> str:
    """Instructions, as they are committed."""
    recorded = instructions.recorded()
    build = max(recorded, key=lambda build: (build.endswith("native codec"), build))
    figures = recorded[build]
    lines = [
        "## Instructions\n",
        f"Of one operation in user space ({build}), counted by",
        "`make instructions`, which continuous integration runs: it fails above 10 % more.\n",
        "| operation | before | now | goal | |", "|---|---:|---:|---:|---|",
    ]  # fmt: skip
    for name, (before, goal) in COUNTED.items():
        if name in figures:
            met = "" if goal is None else "met" if figures[name] <= goal else "**missed**"
            lines.append(
                f"| {name}, {instructions.unit(name)} | {_number(before)} | {figures[name]:,} "
                f"| {_number(goal)} | {met} |"
            )
    return "\n".join(lines) + "\n"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _sides(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        each for each in (result["ours"], result["peer"], *result["others"]) if each is not None
    ]


def _all(results: Any) -> str:
    """Every result in a row."""
    lines = [
        "## Times, rates and sizes\n",
        "| what | ours | beside | goal | measured | |", "|---|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for each in results:
        ours, peer = each["ours"], each["peer"]
        beside = "" if peer is None else f"{peer['label']} {_value(peer)}"
        met = "" if each["target"] == "none" else "met" if each["met"] else "**missed**"
        lines.append(
            f"| {each['name']} | {_value(ours)} {each['unit']} | {beside} "
            f"| {each['target']} | {_short(each['measured'])} | {met} |"
        )
    return "\n".join(lines) + "\n"


def _value(side: Mapping[str, Any]) -> str:
    spread = f" ±{side['spread']:.0%}" if len(side["values"]) > 1 else ""
    return f"{_short(side['mean'])}{spread}"


def _short(value: float) -> str:
    """Three digits, and none of an exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _points(curve: Mapping[str, Any]) -> str:
    return ", ".join(f"{at:,}: {_short(value)}" for at, value in curve["points"])


def _file_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".svg"


def _figure(height: float) -> tuple[Any, Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "logstore", "font.size": 10}
    mpl.rcParams |= {"font.family": ["DejaVu Sans"], "axes.edgecolor": TEXT}
    mpl.rcParams |= dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), TEXT
    )
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, height), layout="constrained")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return plt, figure, axes


def _bars(path: Path, result: Mapping[str, Any]) -> None:
    sides = _sides(result)[::-1]
    plt, figure, axes = _figure(1.0 + 0.3 * len(sides))
    colours = [OURS if side is result["ours"] else THEIRS for side in sides]
    means = [side["mean"] for side in sides]
    bars = axes.barh([side["label"] for side in sides], means, color=colours)
    told = [f"{_short(side['mean'])} ±{side['spread']:.0%}" for side in sides]
    axes.bar_label(bars, told, padding=4, color=TEXT)
    better = "more" if result["target"].startswith(">") else "less"
    axes.set_title(result["name"], loc="left", fontsize=11)
    axes.set_xlabel(f"{result['unit']} ({better} is better)")
    axes.set_xlim(0, 1.2 * max(means))
    _save(plt, figure, path)


def _lines(path: Path, curve: Mapping[str, Any]) -> None:
    plt, figure, axes = _figure(2.6)
    places = [at for at, _ in curve["points"]]
    values = [value for _, value in curve["points"]]
    axes.plot(places, values, marker="o", color=OURS, label="measured")
    if FLAT.match(curve["expected"]):
        axes.plot(places, [values[0]] * len(places), ls="--", color=BESIDE, label=curve["expected"])
        axes.legend(frameon=False, labelcolor=TEXT)
    axes.set_title(curve["name"], loc="left", fontsize=11)
    axes.set_xscale("log")
    axes.set_xlabel(curve["across"])
    axes.set_ylabel(curve["unit"])
    axes.set_ylim(0, 1.3 * max(values))
    _save(plt, figure, path)


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None}, transparent=True)
    plt.close(figure)


def _run(file: Path) -> Run:
    """What ``--json`` printed; ``make`` may have told before it that it builds something."""
    text = file.read_text()
    found: Run = json.loads(text[text.index("{") :])
    return found


if __name__ == "__main__":
    folder, *files = map(Path, sys.argv[1:])
    print(f"wrote {write(folder, [_run(file) for file in files])}")
