"""``python -m tests.mutation``: break the product at one place at a time, and ask the tests.

What became of each mutant is kept under build/mutation, so a run that was cut off goes on where it
was; ``--fresh`` begins anew, with the product as it is now. ``--again`` tries survivors that are
not explained once more, with the tests as they are now. The modules take turns, so that what was
tried when the time is over is a fair sample. Exits with 1 if fewer than 85 % were killed.
"""

from __future__ import annotations

import argparse
import itertools
import queue
import random
import shutil
import sys
import threading
import time
from pathlib import Path

from tests.figures import record
from tests.mutation import copies, scope, table
from tests.mutation.asking import Asker
from tests.mutation.atlas import Atlas
from tests.mutation.mutants import Mutant, is_program, mutants, mutated, shown
from tests.mutation.table import Outcome
from tests.support.threads import run_all

WANTED = 85.0
Job = tuple[str, Mutant, str]  # the module, what is done to it, the key


def attempt(asker: Asker, atlas: Atlas, job: Job, seconds: float) -> Outcome:
    """Break the product, and see whether a test fails."""
    module, mutant, key = job
    source = (asker.tree / module).read_text()
    tests = atlas.choose(module, mutant, seconds)
    answer = {"result": "unreached", "by": ""}
    if tests:
        answer = asker.ask(module, mutated(source, mutant), atlas.limits(tests))
    atlas.kills[module][answer["by"]] += 1
    room = scope.modules(asker.tree)[module]
    before, after = shown(source, mutant)
    return Outcome(room, module, mutant.line, mutant.how, before, after, key, **answer)


def sampled(tree: Path, given: argparse.Namespace) -> tuple[list[Job], dict[str, int]]:
    """What to try, the modules taking turns; and how many mutants each module has."""
    turns: list[list[Job]] = []
    counts: dict[str, int] = {}
    for module in scope.modules(tree):
        source = (tree / module).read_text()
        found = mutants(source)
        counts[module] = len(found)
        order = random.Random(f"{given.seed}:{module}").sample(found, len(found))
        if given.module and not any(one in module for one in given.module):
            continue
        some = order if given.all else order[: given.sample]
        keyed = [(module, one, f"{module}:{one.start}:{one.end}:{one.put}") for one in some]
        turns.append([job for job in keyed if is_program(source, job[1])])
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*turns))
    return [job for job in mixed if job is not None], counts


def work(
    given: argparse.Namespace, askers: list[Asker], atlas: Atlas, jobs: list[Job], into: Path
) -> None:
    """Let the workers try the jobs until all are done or the time is over."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    end = time.monotonic() + 60 * given.minutes
    lock = threading.Lock()

    def one(asker: Asker) -> None:
        try:
            while time.monotonic() < end:
                begun = time.monotonic()
                outcome = attempt(asker, atlas, waiting.get_nowait(), given.seconds)
                took = time.monotonic() - begun
                with lock:
                    table.keep(into, outcome)
                    where = f"{outcome.module}:{outcome.line}"
                    print(f"{outcome.result:9} {took:5.1f} s {where} {outcome.after}")
                    sys.stdout.flush()
        except queue.Empty:
            pass

    threads = [threading.Thread(target=one, args=(asker,)) for asker in askers]
    run_all(threads)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--sample", type=int, default=20, help="mutants of each module (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("--module", action="append", help="only those whose path has this in it")
    parser.add_argument("--tests", action="append", default=[], help="only test files like this")
    parser.add_argument("--minutes", type=float, default=100, help="when to stop (100)")
    parser.add_argument("--seconds", type=float, default=40, help="of tests for a mutant (40)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--fresh", action="store_true", help="forget what was done")
    parser.add_argument("--work", type=Path, default=copies.ROOT / "build" / "mutation")
    return parser.parse_args()


def main() -> None:
    """Try what is asked for, and print the table of all that is known."""
    given = arguments()
    given.work = given.work.resolve()
    if given.fresh and given.work.exists():
        shutil.rmtree(given.work)
    tree, into = given.work / "tree", given.work / "outcomes.jsonl"
    copies.take(tree, only="tests/" if tree.exists() else "")
    atlas = Atlas(given.work / "reach")
    askers = [Asker(copies.again(tree, given.work / "copy-0"), given.tests)]
    atlas.survey(askers[0])
    others = (given.work / f"copy-{number}" for number in range(1, given.workers))
    askers += [Asker(copies.again(tree, other), given.tests) for other in others]
    known = table.read(into)
    jobs, counts = sampled(tree, given)
    keys = {job[2] for job in jobs}
    left = {one.key for one in known.values() if not one.killed and not table.is_explained(one)}
    jobs = [job for job in jobs if job[2] not in known or (given.again and job[2] in left)]
    print(f"seed {given.seed}: {len(jobs)} mutants to try, {len(keys) - len(jobs)} known")
    work(given, askers, atlas, jobs, into)
    for asker in askers:
        asker.close()
    found = [one for one in table.read(into).values() if one.key in keys]
    print("\nsurvivors without an explanation:", *table.survivors(found), sep="\n")
    printed = table.text(found, counts)
    (given.work / "table.md").write_text(printed + "\n")
    print(f"\n{printed}")
    killed = sum(one.killed for one in found)
    record("mutants", tried=len(found), killed=killed, survived=len(found) - killed)
    sys.exit(100 * killed < WANTED * len(found))


if __name__ == "__main__":
    main()
