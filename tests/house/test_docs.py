"""Prevents documents that do not run, links that lead nowhere, and paths of one machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import logstore
from logstore import errors
from tests.house.pages import OF_SPARK, blocks, run
from tests.house.repo import ROOMS, ROOT, files, project

PAGES = [path for path in files() if path.suffix == ".md"]
RUN = [page for page in PAGES if page not in OF_SPARK and blocks(page)]
# It has to be enough for a small change: the house, the path of an entry, recipes, all words.
CONTRIBUTING_LINES_MAX = 400
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OF_HTML = re.compile(r'\b(?:src|srcset|href)="([^"]+)"')
TERMINAL_COLUMNS = 80
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A module, and behind it a name that stands in it.
NAMED_IN = re.compile(r"`((?:[\w.]+/)+\w+\.(?:py|pyx|pxi))`\s+`(\w+)`")
MODULE = re.compile(r"`((?:[\w.]+/)+\w+\.\w+)`")
# Home directories and workplaces.
MACHINE = re.compile(r"(?<![\w.}$*~-])/(?:(?:work|root|home/\w+)/|tmp/venv)")


@pytest.mark.parametrize("page", RUN, ids=str)
def test_examples_of_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the processes that it starts
    run(page)


def test_blocks_need_what_continuous_integration_has() -> None:
    """A block that needs anything else would never run."""
    needs = {block.needs for page in PAGES for block in blocks(page)} - {""}
    assert needs == {"huey", "matplotlib", "spark", "starlette", "taskiq"}
    extras = project()["project"]["optional-dependencies"]
    assert all(any(each in " ".join(extras[name]) for name in extras) for each in needs)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    text = FENCE.sub("", (ROOT / page).read_text())
    for link in LINK.findall(text) + OF_HTML.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = ROOT / page.parent / name if name else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_modules_that_are_named_exist(page: Path) -> None:
    """A table of modules that were renamed since leads newcomers astray."""
    named = set(MODULE.findall(LINK.sub("", (ROOT / page).read_text())))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_names_in_modules_exist(page: Path) -> None:
    """A path through functions that were renamed since leads newcomers astray."""
    missing = []
    for module, name in NAMED_IN.findall((ROOT / page).read_text()):
        defined = rf"^\s*(?:async |cdef |cpdef )*(?:def|class|[\w*]+) \*?{name}\b|^{name}\b.* = "
        if not re.search(defined, (ROOT / module).read_text(), re.MULTILINE):
            missing.append(f"{module} {name}")
    assert missing == []


def test_contributing_has_every_room() -> None:
    """Somebody new begins with the tables of rooms, and of the engine's floors."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = set(re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE))
    named = {name.removesuffix(".py") for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    package = ROOT / "logstore"
    folders = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    floors = {path.name for path in (package / "engine").iterdir() if path.is_dir()}
    wanted = {name for name in folders | floors | set(ROOMS) if not name.startswith("_")}
    assert sorted(wanted - named - {"logstore"}) == []


def test_contributing_draws_the_direction_of_imports() -> None:
    """What it says of imports is what the contract says."""
    contract = project()["tool"]["importlinter"]["contracts"][0]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    drawn = text.partition("## The rooms")[2].partition("```text\n")[2].partition("```")[0]
    lines = [re.split(r" {3,}", line)[0].split() for line in drawn.splitlines()]
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    assert [sorted(line) for line in lines] == [sorted(layer) for layer in layers]


def test_the_page_of_python_has_every_public_name() -> None:
    """It says that it has what ``from logstore import *`` gives; errors are of their module."""
    named = re.findall(r"^::: logstore\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    public = {
        name for name in logstore.__all__ if not hasattr(errors, name) and not name.startswith("_")
    }
    assert set(named) - {"errors"} == public - {"open", "Sync"}  # a function, and three words


def anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, as hosts of repositories spell them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_contributing_stays_short() -> None:
    lines = len((ROOT / "CONTRIBUTING.md").read_text().splitlines())
    assert lines < CONTRIBUTING_LINES_MAX


def test_consoles_of_the_readme_fit_a_terminal() -> None:
    """Who tries them copies them into one of 80 columns."""
    consoles = [found[3] for found in FENCE.finditer((ROOT / "README.md").read_text())
                if found[1] == "console"]  # fmt: skip
    lines = [line for console in consoles for line in console.splitlines()]
    assert lines
    assert [line for line in lines if len(line) > TERMINAL_COLUMNS] == []


def test_no_file_names_a_place_on_one_machine() -> None:
    found = []
    for path in files():
        data = (ROOT / path).read_bytes()
        if b"\0" in data[:8000]:
            continue
        lines = data.decode(errors="replace").splitlines()
        found += [f"{path}:{n}: {line}" for n, line in enumerate(lines, 1) if MACHINE.search(line)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("cd /" + "root/x", True),
        ("'/" + "home/anna/x'", True),
        ("$SPARK_HOME/work/app", False),
        ("build/work/", False),
    ],
)
def test_the_guard_of_places_catches(text: str, caught: bool) -> None:
    """A canary: a guard that lets everything pass would stay green for ever."""
    assert bool(MACHINE.search(text)) is caught
