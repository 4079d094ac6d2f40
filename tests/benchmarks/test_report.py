"""The pages that show the results."""

from __future__ import annotations

import re

from benchmarks.reporting import report
from tests.support.server import ROOT


def test_the_readme_shows_the_results() -> None:
    """Its table is that of the last whole run, and its picture exists."""
    results = (report.RESULTS / "results.md").read_text("utf-8")
    (short,) = re.findall(r"^## In short\n\n(.*?)\n\n", results, re.MULTILINE | re.DOTALL)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert short in readme
    (picture,) = re.findall(r"!\[.*\]\((benchmarks/.*?)\)", readme)
    assert (ROOT / picture).is_file()
