"""``python -m tests.simulation.play FOLDER SEED HISTORIES``: histories, each from its own seed.

A process of its own, with PYTHONHASHSEED=0, so that a seed gives the same each time. With
``--only N`` one of them, and ``--trace`` prints each report. ``--plant NAME`` breaks the store by
one of ``plants.PLANTS``, and ``--lane FILE`` takes another build of the compiled lane.
"""

from __future__ import annotations

import argparse
import gc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

LANE = "logstore.engine.lane.native"


def take_lane(path: str) -> None:
    """Import this file as the compiled lane, before anybody else does."""
    loader = importlib.machinery.ExtensionFileLoader(LANE, path)
    spec = importlib.util.spec_from_file_location(LANE, path, loader=loader)
    assert spec is not None
    sys.modules[LANE] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)


def main() -> int:
    """Play; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.play")
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed")
    parser.add_argument("histories", type=int)
    parser.add_argument("--only", type=int)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--plant", default="")
    parser.add_argument("--lane", default="")
    given = parser.parse_args()
    assert os.environ.get("PYTHONHASHSEED") == "0", "else a seed does not give the same again"
    if given.lane:
        take_lane(given.lane)
    from tests.simulation.director import History
    from tests.simulation.judge import Wrong
    from tests.simulation.plants import nothing, planted
    from tests.support import imports

    plant: Callable[[], None] = planted(given.plant) if given.plant else nothing
    did: Counter[str] = Counter()
    points = 0
    imports.import_all()
    gc.collect()
    gc.freeze()
    for number in range(given.histories) if given.only is None else [given.only]:
        folder = given.folder / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        history = History(folder, f"{given.seed}-{number}", plant)
        try:
            history.play()
        except Wrong as exc:
            print(
                f"seed {given.seed}, history {number}, {history.kind}, {history.setup.sync}, "
                f"call {len(history.calls)}, point {points + history.clock.points} of all: {exc}"
            )
            return 1
        finally:
            history.close()
            if given.trace:
                print(*history.trace, sep="\n")
        points += history.clock.points
        did += history.did + Counter(
            {"histories": 1, "points": history.clock.points, "calls": len(history.calls),
             "processes": history.made, history.kind: 1}
        )  # fmt: skip
        shutil.rmtree(folder)
    print(", ".join(f"{what} {count}" for what, count in sorted(did.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
