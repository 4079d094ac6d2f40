"""The pages that show the results."""

from __future__ import annotations

import re

from benchmarks.reporting import report
from tests.support.server import ROOT

from .tables import in_process, row


def test_a_goal_is_shown_with_its_figure_and_verdict() -> None:
    """The table has the goals whose figures were measured, and no others."""
    done = in_process(row("ours", "memory", cpu_64=3.96), row("ours", "redis", latency_plain=1.2, throughput_plain=3.0))
    lines = report.goals(done).splitlines()
    assert lines[2:] == [
        "| throughput, Redis, 64 at once, times plain EVALSHA | at least 3 | 3.00 | reached |",
        "| median latency, Redis, 1 at once, times plain | at most 1.15 | 1.20 | missed |",
    ]


def test_the_readme_shows_the_results() -> None:
    """Its table is that of the last whole run, and its picture exists."""
    results = (report.RESULTS / "results.md").read_text("utf-8")
    (short,) = re.findall(r"^## In short\n\n(.*?)\n\n", results, re.MULTILINE | re.DOTALL)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert short in readme
    (picture,) = re.findall(r"!\[.*\]\((benchmarks/.*?)\)", readme)
    assert (ROOT / picture).is_file()
