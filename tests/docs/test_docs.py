"""What the pages in docs/ show is what happens: each Python block runs by itself, and prints what it says."""

from __future__ import annotations

import re

import pytest

from tests.support.server import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAID = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)

PAGES = sorted((ROOT / "docs").rglob("*.md"))
PROGRAMS = {
    f"{page.stem}-{number}": program
    for page in PAGES
    for number, program in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_runs_and_prints_what_it_says(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A comment after ``print(...)`` is the line that it prints."""
    exec(compile(program, "docs", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == SAID.findall(program)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_links_lead_somewhere(page: object) -> None:
    """A page, or a heading of one, that is linked is there."""
    text = page.read_text("utf-8")  # type: ignore[attr-defined]
    for target, _, heading in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]*))?\)", text):
        linked = page.parent / target if target else page  # type: ignore[attr-defined]
        assert linked.exists(), target
        assert not heading or heading in anchors(linked.read_text("utf-8")), heading


def anchors(text: str) -> set[str]:
    """What the headings of a page are linked by."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_links_in_the_package_lead_somewhere() -> None:
    """A message that names a page, and a heading of it, names one that is there."""
    sources = [path.read_text("utf-8") for path in (ROOT / "asgi_ratelimit").rglob("*.py")]
    links = {link for source in sources for link in re.findall(r"(docs/[\w-]+\.md)#([\w-]+)", source)}
    assert len(links) >= 4
    for page, heading in links:
        assert heading in anchors((ROOT / page).read_text("utf-8")), (page, heading)
