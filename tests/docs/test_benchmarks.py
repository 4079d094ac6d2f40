"""What the benchmarks make of what they measure, on results that stand here."""

from __future__ import annotations

import json
import math
import re

import pytest

from benchmarks import report
from benchmarks.goals import GOALS, ahead, is_ahead
from benchmarks.parts import inprocess
from benchmarks.parts.admission import most_in_a_second
from benchmarks.results import Column, Part, Row, as_json, best, mid, over, paired, spread, unexpected
from benchmarks.runner import chosen
from benchmarks.subject import PEERS, Subject, Where
from tests.support.server import ROOT


def row(peer: str, where: Where, error: str = "", **figures: float) -> Row:
    return Row(Subject(PEERS[peer], where), dict(figures), error)


def in_process(*rows: Row) -> dict[str, Part]:
    return {
        "cpu": Part("cpu", "CPU", inprocess.CPU, list(rows)),
        "times": Part("times", "Times", inprocess.TIMES, list(rows)),
    }


def test_rounds_are_compared_with_their_neighbours() -> None:
    """A machine that becomes slower from round to round does not change the ratio."""
    own = [{"cpu": 20.0}, {"cpu": 40.0}, {"cpu": 60.0}]
    base = [{"cpu": 10.0}, {"cpu": 20.0}, {"cpu": 30.0}]
    assert paired(own, base, "cpu", over) == 2


def test_the_best_quarter_of_the_rounds_counts_for_cpu() -> None:
    """Other work on the machine can only add to it; and one lucky round does not make the figure."""
    assert best([9.0, 5.0, 1.0, 6.0, 3.0, 9.0, 2.0, 9.0, 9.0]) == 2
    assert best([4.0, 3.0]) == 3


def test_no_figure_comes_of_no_rounds() -> None:
    """Where a subject failed, there is NaN, and no exception."""
    assert math.isnan(paired([], [{"cpu": 1.0}], "cpu", over))
    assert math.isnan(paired([{"wall": 1.0}], [{"wall": 1.0}], "cpu", over))
    assert math.isnan(mid([]))
    assert math.isnan(best([]))
    assert math.isnan(spread([1.0]))
    assert mid([math.nan, 3.0, 1.0, 2.0]) == 2


def test_the_commonest_wrong_answer_is_told_with_its_share() -> None:
    """An error or a status that was not expected names itself, and how often it came."""
    assert unexpected({"200": 5}, ("200",)) == ""
    assert unexpected({"200": 1, "503": 3, "500": 1}, ("200",)) == "status 503 (3 of 5)"
    assert unexpected({"TooMany: connections": 2}, ("200",)) == "TooMany: connections (2 of 2)"


@pytest.mark.parametrize(
    ("times", "most"), [([], 0), ([0.0, 0.5, 1.0], 2), ([0.0, 0.5, 0.99, 5.0], 3), ([0.0, 0.9, 1.1, 1.8], 3)]
)
def test_the_most_in_a_second_are_counted_in_any_second(times: list[float], most: int) -> None:
    """An interval begins at any answer, and is open at its end."""
    assert most_in_a_second(times) == most


def test_the_bare_app_of_a_peer_is_measured_with_it() -> None:
    """Whatever is chosen, what it is compared with comes along, in the order of the tables."""
    assert chosen(["throttled", "ours"]) == ["bare", "bare_fastapi", "ours", "throttled"]
    assert chosen([]) == list(PEERS)


def test_a_goal_is_measured_and_judged() -> None:
    """The table has what was measured, and nothing of what was not."""
    done = in_process(row("ours", "memory", cpu_64=3.96), row("ours", "redis", cpu_64=7.5, throughput_plain=3.0))
    lines = report.goals(done).splitlines()
    assert lines[2:] == [
        "| CPU µs more than the bare app, memory, 64 at once | at most 4 | 4.0 | reached |",
        "| CPU µs more than the bare app, Redis, 64 at once | at most 7 | 7.5 | missed |",
        "| throughput, Redis, 64 at once, times plain EVALSHA | at least 3 | 3.00 | reached |",
    ]


def test_the_best_peer_is_the_one_to_beat() -> None:
    """Of the peers on Redis, that with the most; ours, the yardstick and the bare apps are none."""
    rows = [
        row("plain", "redis", of_ours=0.9),
        row("limits", "redis", of_ours=0.6),
        row("slowapi", "redis", of_ours=0.2),
    ]
    part = Part(
        "served", "Behind uvicorn", {"of_ours": Column("of ours", 2)}, [row("ours", "redis", of_ours=1.0), *rows]
    )
    (goal,) = (goal for goal in GOALS if goal.subject == "peers")
    assert goal.measured({"served": part}) == 0.6


def test_a_peer_that_is_ahead_is_named() -> None:
    """Over the same store and on the same bare app, for a figure that both have."""
    done = in_process(
        row("bare", "none", cpu_64=9.0),
        row("ours", "memory", cpu_64=5.0),
        row("ours_fastapi", "memory", cpu_64=8.0),
        row("ours", "redis", cpu_64=12.0),
        row("plain", "redis", cpu_64=1.0),
        row("limits", "memory", cpu_64=4.0),
        row("limits", "redis", cpu_64=60.0),
        row("throttled", "memory", cpu_64=6.0),
        row("slowapi", "memory", error="broken"),
    )
    assert [str(each) for each in ahead(done)] == [
        "CPU, CPU µs more, 64 at once: limits, memory 4.0, ours 5.0",
        "CPU, CPU µs more, 64 at once: throttled-py, memory 6.0, ours 8.0",
    ]


@pytest.mark.parametrize(
    ("better", "figure", "expected"),
    [("less", 96.0, True), ("less", 98.0, False), ("more", 104.0, True), ("more", 102.0, False), (None, 1.0, False)],
)
def test_a_hair_is_no_lead(better: str | None, figure: float, expected: bool) -> None:
    """What differs by less than three in a hundred counts as equal."""
    assert is_ahead(figure, 100.0, Column("", 0, better)) is expected


def test_a_peer_that_errs_is_shown_with_its_error() -> None:
    """Its row keeps the figures that it has; the rest is left empty, and in the table in short there is a word."""
    done = in_process(
        row("ours", "redis", cpu_64=12.0, median_us=300.0, rate_1000=30_000.0),
        row("limits", "redis", error="1,000 at once: a|b (900 of 1,000)", cpu_64=56.4, median_us=4000.0),
    )
    table = report.table(done["times"]).splitlines()
    assert table[2] == "|  | median µs, 1 at once | requests a second, 1,000 at once | error |"
    assert table[4:] == [
        "| ours, redis | 300.0 | 30,000 |  |",
        "| limits, redis | 4,000.0 |  | 1,000 at once: a/b (900 of 1,000) |",
    ]
    assert "| limits |  |  | 56.4 |  |  |  | error |" in report.summary(done)


def test_results_are_valid_json() -> None:
    """What there is no figure for is left out, for JSON knows no NaN."""
    part = in_process(row("limits", "redis", error="broken", cpu_1=math.nan, cpu_64=56.412345))["cpu"]
    assert json.loads(json.dumps(as_json(part), allow_nan=False))["rows"] == [
        {"subject": "limits redis", "cpu_64": 56.412, "error": "broken"}
    ]


def test_the_page_has_it_all() -> None:
    """The table in short, the goals, who is ahead, the parts, the peers and the machine."""
    page = report.markdown(in_process(row("ours", "memory", cpu_64=3.0)), {"processor": "2 x something"})
    heads = [line for line in page.splitlines() if line.startswith("## ")]
    assert [head[3:] for head in heads] == [
        "In short",
        "To reach",
        "Where a peer is ahead",
        "CPU",
        "Times",
        "Of the peers",
        "Measured on",
    ]
    assert "* processor: 2 x something" in page
    assert "Nowhere." in page


def test_the_readme_shows_the_results() -> None:
    """Its table is the one that the last whole run wrote, and its picture is there."""
    results = (report.RESULTS / "results.md").read_text("utf-8")
    (short,) = re.findall(r"^## In short\n\n(.*?)\n\n", results, re.MULTILINE | re.DOTALL)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert short in readme
    (picture,) = re.findall(r"!\[.*\]\((benchmarks/.*?)\)", readme)
    assert (ROOT / picture).is_file()
