"""What the pages in docs/ show is what happens: each Python block runs by itself, and prints what it says."""

from __future__ import annotations

import re

import pytest

from tests.server import ROOT

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
