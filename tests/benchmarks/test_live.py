"""The figures of limits that change under load."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.live import FILE_LIMIT, WORKERS, Answers, Figures, page

HEAD = 'HTTP/1.1 200 OK\r\nratelimit-policy: "p";q={};w=60\r\nratelimit: "p";r={};t=9'


def test_the_last_worker_that_changes_counts() -> None:
    """The time is that of the first answer by the new limit, of the worker which is the last one to give it."""
    answers = Answers()

    def say(limit: int, used: int, *workers: int) -> None:
        for worker in workers:
            answers.add(HEAD.format(limit, limit - used).encode(), str(worker).encode())

    say(1, 0, *range(WORKERS))
    say(FILE_LIMIT, 8, *range(WORKERS))
    (first, *_, last) = [since for _, since in answers.limits.values()]
    say(FILE_LIMIT, 9, 0)
    assert asyncio.run(answers.changed_to(FILE_LIMIT)) == last > first
    assert (answers.count, answers.used) == (2 * WORKERS + 1, 9)


def test_a_worker_that_never_changes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells how many answers were of another status."""
    monkeypatch.setattr("benchmarks.live.PATIENCE", 0.0)
    answers = Answers()
    answers.add(b"HTTP/1.1 429 Too Many Requests", b"")
    with pytest.raises(TimeoutError, match="1 others"):
        asyncio.run(answers.changed_to(FILE_LIMIT))


def test_the_page_has_the_longest_delay() -> None:
    """And the median, and how often use was forgotten."""
    written = page(Figures([0.25, 0.75, 0.5], {"before": [10.0, 30.0, 20.0]}, forgotten=1), Answers(count=7))
    assert "| median of 3 | 0.50 |\n| longest | 0.75 |" in written
    assert "| before | 20 | 10 | 30 |" in written
    assert "7 requests were answered with 200, 0 in any other way. After 1 of 3 changes" in written
