"""The pages in docs/ are true: each Python block runs by itself, and prints what its comments say."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from asgi_ratelimit.logs import PAGE
from asgi_ratelimit.testing import SteppedClock
from tests.support.server import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXPECTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)

# A path in the text of a page.
FILE = re.compile(r"`((?:asgi_ratelimit|tests|docs|examples|scripts|benchmarks)/[\w./-]+)`")

PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PROGRAMS = {
    f"{page.relative_to(ROOT / 'docs').with_suffix('')}-{number}": program
    for page in PAGES
    for number, program in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_runs_and_prints_what_its_comments_say(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment after ``print(...)`` is its output. Where no network carries requests, only their waits take time."""
    if "ASGITransport(" in program or ("TestClient(" in program and "websocket" not in program):
        clock = SteppedClock()
        monkeypatch.setattr(asyncio, "run", clock.run)
        for name in ("time_ns", "monotonic_ns"):
            monkeypatch.setattr(time, name, lambda: clock.now_us() * 1000)
    exec(compile(program, "docs", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == EXPECTED.findall(program)


NAMES_OF_TEXTS = [str(page.relative_to(ROOT)) for page in TEXTS]


@pytest.mark.parametrize("page", TEXTS, ids=NAMES_OF_TEXTS)
def test_links_are_valid(page: Path) -> None:
    """Each linked page or heading exists."""
    for target, _, heading in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]*))?\)", page.read_text("utf-8")):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not heading or heading in anchors(linked.read_text("utf-8")), heading


@pytest.mark.parametrize("page", TEXTS, ids=NAMES_OF_TEXTS)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    """A path that a page mentions is one of this repository."""
    assert [path for path in FILE.findall(page.read_text("utf-8")) if not (ROOT / path).exists()] == []


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


SOURCES = "\n".join(path.read_text("utf-8") for path in (ROOT / "asgi_ratelimit").rglob("*.py"))


def test_links_in_the_package_are_valid() -> None:
    """Each page and heading that a log or error message names exists."""
    links = set(re.findall(r"(?<!/)\b(docs/[\w/-]+\.md)(?:#([\w-]+))?", SOURCES))
    assert len(links) >= 2
    for page, heading in links:
        assert (ROOT / page).exists(), page
        assert not heading or heading in anchors((ROOT / page).read_text("utf-8")), (page, heading)


def test_each_warning_has_a_section_and_each_section_a_warning() -> None:
    """A warning names the section that explains it, and the page explains no other."""
    named = set(re.findall(r'\b(?:(?:warn_once|warn_of_many|warn|see)\(\s*|yield )"([a-z]+(?:-[a-z]+)+)"', SOURCES))
    assert named == anchors((ROOT / PAGE).read_text("utf-8")) - {"warnings"}
