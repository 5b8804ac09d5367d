"""What the build does otherwise than setuptools; only the build imports this.

Invariants: a wheel holds what is in the sources now, and nothing that an earlier build in the same
checkout left in its folder: modules that are gone since, and compiled ones that did not build now.
Cython runs in one thread, for it keeps state of its own; C compilers run beside each other. With
SOURCE_DATE_EPOCH in the environment two builds of the same sources give the same bytes: wheels
do by setuptools, source distributions by this.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from pathlib import Path

from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist


class BuildPy(build_py):
    """`build_py`, the first step of a build, in a folder that is empty."""

    def run(self) -> None:
        """Take away what an earlier build left; an editable installation has no such folder."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildExt(build_ext):
    """`build_ext`, with a compiler for each core, unless ``-j`` says how many."""

    def finalize_options(self) -> None:
        """As many compilers as there are cores."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1

    def build_extensions(self) -> None:
        """Cython first, one module after the other; what is left to compile is C."""
        try:
            from Cython.Build import cythonize
        except ImportError:  # setuptools says what is missing, or goes on without
            cythonize = None
        if cythonize is not None:
            for each in self.extensions:
                each.sources = cythonize(each, force=self.force, quiet=True)[0].sources
        super().build_extensions()


class Sdist(sdist):
    """`sdist`, in the same bytes whenever, wherever and by whomever it is built."""

    def make_archive(self, base_name: str, format: str, *args: object, **options: object) -> str:
        """The archive; made again without times, owners and rights of this machine."""
        made: str = super().make_archive(base_name, format, *args, **options)  # type: ignore[arg-type]
        moment = os.environ.get("SOURCE_DATE_EPOCH")
        if moment is not None and format == "gztar":
            _normalise(Path(made), int(moment))
        return made


def _normalise(archive: Path, moment: int) -> None:
    packed = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for each in sorted(old.getmembers(), key=lambda member: member.name):
            executable = each.isdir() or each.mode & 0o100
            each.mtime, each.mode = moment, 0o755 if executable else 0o644
            each.uid = each.gid = 0
            each.uname = each.gname = ""
            each.pax_headers = {}
            new.addfile(each, old.extractfile(each) if each.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=moment) as out:
        out.write(packed.getvalue())
