"""Suggestions refuse whom they say."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.tools.log_lines import LoggedRequest
from asgi_ratelimit.tools.replay import KINDS, Replay, limits_of, suggest, times_of

S = 1_000_000


def requests(*arrivals: tuple[int, str]) -> list[LoggedRequest]:
    """Requests at these microseconds, of these clients, in order."""
    return [(1.8e15 + time, client, "GET", "/") for time, client in sorted(arrivals)]


def like_a_service(seconds: int) -> list[LoggedRequest]:
    """Requests of 300 clients, a few of which send most of them, in bursts."""
    generator = random.Random(7)
    arrivals = []
    for number in range(300):
        for _ in range(max(1, int(200 / (number + 1)))):
            start = generator.randrange(seconds * S)
            arrivals += [(start + each * 200_000, f"192.0.2.{number}") for each in range(generator.randrange(1, 4))]
    return requests(*arrivals)


def suggested(log: list[LoggedRequest], shares: list[float], kind: str = "bucket") -> list[dict[str, Any]]:
    """The suggestions for all requests of a log."""
    return list(suggest(times_of(log, limits_of("1/s", ()))["default"], shares, kind))


def replayed(log: list[LoggedRequest], quota: str) -> tuple[int, int]:
    """The clients and the requests that a quota refuses."""
    replay = Replay(limits_of(quota, ()))
    asyncio.run(replay.run(log))
    return sum(replay.clients.values()), replay.refused


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_refuses_the_share_that_it_says(kind: str) -> None:
    """Exactly, when the log is replayed under it; and no more clients than it was asked for."""
    log, shares = like_a_service(7200), [0.0, 0.01, 0.05, 0.2]
    suggestions = suggested(log, shares, kind)
    assert [each["window"] for each in suggestions] == ["second", "minute", "hour"]
    for suggestion in suggestions:
        for choice in suggestion["limits"]:
            assert replayed(log, choice["quota"]) == (choice["refused_clients"], choice["refused_requests"])
        for share in shares:
            assert any(choice["refused_clients"] <= share * 300 for choice in suggestion["limits"])


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 130 * S), st.sampled_from("abc")), min_size=1, max_size=60),
    st.sampled_from(sorted(KINDS)),
)
def test_any_log_gets_limits_that_refuse_nobody(arrivals: list[tuple[int, str]], kind: str) -> None:
    """If nobody may be refused, nobody is."""
    log = requests(*arrivals)
    for suggestion in suggested(log, [0.0], kind):
        assert [replayed(log, choice["quota"]) for choice in suggestion["limits"]] == [(0, 0)]


def test_quantiles_tell_what_clients_use() -> None:
    """In the busiest interval of the length of the window, for each of them."""
    log = requests(*[(each * 10_000, "a") for each in range(40)], *[(each * 100 * S, str(each)) for each in range(9)])
    second, minute = suggested(log, [0.0])
    assert [list(each["use"].values()) for each in (second, minute)] == [[1, 1, 40, 40]] * 2


def test_rules_have_suggestions_of_their_own() -> None:
    """Of the requests that they are for, as far as those have a key."""
    log: list[LoggedRequest] = [(1.8e15, "k", "GET", path) for path in ("/a", "/a", "/b", "/c")]
    times = times_of([*log, (1.8e15, "", "GET", "/a")], limits_of(None, ["/a 1/s", "/b 1/s", "/d 1/s"]))
    assert {name: {key: len(each) for key, each in by_key.items()} for name, by_key in times.items()} == {
        "/a": {"k": 2},
        "/b": {"k": 1},
        "/d": {},
    }
    assert list(suggest(times["/d"])) == []
