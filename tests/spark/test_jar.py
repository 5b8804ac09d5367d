"""Prevents a jar that is missing unsaid, is of older sources, or differs from one to the next.

`make jar` makes it; no test does.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from logstore import __version__
from logstore.errors import OptionError
from logstore.format import FORMAT_VERSION
from logstore.spark_io import jar, register, spark_jar
from tests.spark.conftest import SCRATCH
from tests.spark.jars import require_jar

ROOT = SCRATCH.parent.parent


def maker() -> Any:
    """The script that makes it."""
    spec = importlib.util.spec_from_file_location("made_jar", ROOT / ".ci" / "spark_jar.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_jar_was_made_of_these_sources() -> None:
    """If this fails: `make jar`."""
    path = Path(require_jar())
    assert maker().manifest_of(path) == maker().made_of()


def test_the_jar_says_its_version_and_what_it_reads() -> None:
    with zipfile.ZipFile(require_jar()) as found:
        manifest = found.read("META-INF/MANIFEST.MF").decode()
        service = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
        assert found.read(service).decode() == "org.logstore.spark.LogstoreSource\n"
        assert "org/logstore/spark/LogstoreSource.class" in found.namelist()
    assert f"Implementation-Version: {__version__}\r\n" in manifest
    assert f"Specification-Version: {FORMAT_VERSION}\r\n" in manifest
    assert max(map(len, manifest.splitlines())) <= 72


def test_equal_classes_make_an_equal_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever, and whatever the order in which they were made."""
    made, jars = maker(), []
    for names in (("a", "b"), ("b", "a")):
        classes = tmp_path / "".join(names)
        classes.mkdir()
        for name in names:
            (classes / f"{name}.class").write_bytes(name.encode())
        monkeypatch.setattr(made, "JAR", tmp_path / f"{names[0]}.jar")
        made.pack(classes, b"Manifest-Version: 1.0\r\n\r\n")
        jars.append((tmp_path / f"{names[0]}.jar").read_bytes())
    assert jars[0] == jars[1]
    assert made.manifest_of(tmp_path / "a.jar") == b"Manifest-Version: 1.0\r\n\r\n"
    assert made.manifest_of(tmp_path / "none.jar") == b""


def test_a_build_takes_the_jar_if_it_is_there(tmp_path: Path) -> None:
    path = Path(require_jar())
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "lib")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    built = tmp_path / "lib" / "logstore" / "spark_io" / "jvm"
    assert [each.name for each in built.iterdir()] == [path.name]
    assert (built / path.name).read_bytes() == path.read_bytes()


def test_a_jar_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_jar, "__file__", str(tmp_path / "spark_jar.py"))
    with pytest.raises(OptionError, match="make jar"):
        jar()
    with pytest.raises(OptionError, match="make jar"):
        register(None, reader="jvm")
    with pytest.raises(OptionError, match="reader is auto or jvm"):
        register(None, reader="quick")
