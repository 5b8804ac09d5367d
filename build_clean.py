"""What a build begins with: an empty folder; only the build imports this.

Invariant: a wheel holds what is in the sources now, and nothing that an earlier build in the same
checkout left in its folder: modules that are gone since, and compiled ones that did not build now.
"""

from __future__ import annotations

import shutil

from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """`build_py`, the first step of a build, in a folder that is empty."""

    def run(self) -> None:
        """Take away what an earlier build left; an editable installation has no such folder."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
