"""``python -m tests.fuzz TARGET --seconds N``: fuzzing guided by coverage, with atheris.

Inputs that reach something new are kept under build/fuzz/TARGET and are where the next run begins.
One that fails is written beside it, as TARGET-crash-...: put its bytes as a line into
tests/golden/fuzz/TARGET.hex, fix what it shows, and it is tried with every run of the tests.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Fuzz one target."""
    try:
        import atheris
    except ModuleNotFoundError:
        sys.exit("the package atheris is not installed: pip install 'logstore-streams[fuzz]'")
    with atheris.instrument_imports(include=["logstore"]):  # before anything else imports it
        from tests.fuzz.corpus import SIZE_MAX, TARGETS, harness, inputs
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, default=ROOT / "build" / "fuzz")
    given = parser.parse_args()
    with atheris.instrument_imports(include=["logstore"]):
        one = harness(given.target).one
    corpus = given.corpus / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, known in enumerate(inputs(given.target)):
        (corpus / f"known-{number}").write_bytes(known)
    atheris.Setup(
        [sys.argv[0], str(corpus), f"-max_total_time={given.seconds}", f"-max_len={SIZE_MAX}",
         "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1",
         f"-artifact_prefix={given.corpus / given.target}-"],
        one,
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    main()
