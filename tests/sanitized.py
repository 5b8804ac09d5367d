"""``python -m tests.sanitized [PYTEST ARGUMENTS]``: tests over compiled code that watches itself.

The checkout is copied to ``build/sanitized``, and the compiled modules are built there with the
address and the undefined-behaviour sanitizer: a read behind the end of a buffer, of freed memory,
or a shift that C does not define ends the process, with the place in the source. What objects of
Python take comes from the C library (PYTHONMALLOC), so that the sanitizer sees each of them.

Leaks are not looked for: Python itself leaves much to the end of the process. Handlers of SIGBUS
stay the product's own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "sanitized"
CHECKS = "-fsanitize=address,undefined"
FLAGS = f"{CHECKS} -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O1"
# What runs the compiled modules most: the rooms of the codec, the lane and the read core.
TESTS = ("codec", "collections", "mapped", "engine")
NATIVE = {".pyx", ".pxi", ".pxd", ".h"}
BUILD = "import sys; sys.argv = ['setup.py', '-q', 'build_ext', '--inplace']; import setuptools; "
BUILD += "setuptools.setup()"


def runtime() -> list[str]:
    """The libraries that must be loaded first; none where the compiler has them not."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return []
    found = []
    for name in ("libasan.so", "libubsan.so"):
        asked = [compiler, f"-print-file-name={name}"]
        path = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        if not os.path.isabs(path):
            return []
        found.append(path)
    return found


def build() -> None:
    """Copy what git knows, and compile it, if its compiled sources are others than before."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    known = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256()
    for name in filter(None, known.split("\0")):
        source, target = ROOT / name, FOLDER / name
        if not source.is_symlink() and not source.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
        if source.suffix in NATIVE:
            key.update(source.read_bytes())
    stamp = FOLDER / "built-from"
    if stamp.exists() and stamp.read_text() == key.hexdigest():
        return
    flags = {"CFLAGS": FLAGS, "LDFLAGS": CHECKS}
    environment = {**os.environ, **flags}
    subprocess.run([sys.executable, "-c", BUILD], cwd=FOLDER, env=environment, check=True)
    stamp.write_text(key.hexdigest())


def main(arguments: list[str]) -> int:
    """Run the tests that are named, or those of all compiled modules."""
    libraries = runtime()
    if not libraries:
        print("Skipped: this compiler has no sanitizers (gcc with libasan and libubsan).")
        return 0
    build()
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(FOLDER),
        "LOGSTORE_CODEC": "native",
    }
    named = [] if any(not one.startswith("-") for one in arguments) else list(TESTS)
    tests = [f"tests/{name}" for name in named]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--timeout", "600"]
    return subprocess.run(
        [*command, *arguments, *tests], cwd=FOLDER, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
