"""What every test shares: the settings of Hypothesis, and the mark of the tests that need Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

ROOT = Path(__file__).resolve().parent.parent

# A failure prints what reproduces it; the examples found stay under build/.
set_hypothesis_home_dir(ROOT / "build" / "hypothesis")
settings.register_profile("logstore", deadline=None, print_blob=True)
settings.load_profile("logstore")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of tests/spark, so that no file can forget to."""
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "spark"):
            item.add_marker(pytest.mark.spark)
