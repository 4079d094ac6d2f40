"""Replays decide as a middleware does, and suggestions refuse whom they say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError, MemoryStore, Penalty, QuotaError, RateLimitMiddleware, Rule, TokenBucket
from asgi_ratelimit.inbound.plan import USUAL, RuleTable
from asgi_ratelimit.inbound.user_functions import Failures
from asgi_ratelimit.keys import path_param
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools.log_lines import LoggedRequest
from asgi_ratelimit.tools.replay import KINDS, LOGGED_KEY, Replay, limits_of, scope_of, suggest, times_of
from tests.support.asgi import ask, http, ok

START = 1_800_000_000_000_000.0

# Microseconds after the start, the client and the path.
Sent = tuple[float, str, str]

SENT = st.lists(
    st.tuples(
        st.integers(0, 20_000_000),
        st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1"]),
        st.sampled_from(["/", "/a", "/b/7"]),
    ),
    min_size=1,
    max_size=120,
).map(sorted)

RULES = {
    "/a": Rule("/a", "2/s; 9/minute fixed", name="/a"),
    "/b": Rule("/b/{id}", "3 per 5 s rolling", name="/b", only=True),
    "by id": Rule("/b/{id}", "4/s", name="by id", key=path_param("id")),
    "costly": Rule("/b/7", "6/s", name="costly", cost=2.5),
    "slow": Rule("/{rest:path}", TokenBucket(2, 1, burst=5, burst_allowance_factor=0.3), name="slow"),
    "shadow": Rule("/{rest:path}", "1/s", name="shadow", shadow=True),
    "exempt": Rule("/b/7", None, name="exempt"),
    "penalty": Rule("/a", "2/s", name="penalty", penalty=Penalty("3 s", after=2)),
    "growing": Rule("/{rest:path}", "3/s", name="growing", penalty=Penalty("1 s", growth=2)),
}


async def refused_by_middleware(quota: str | None, rules: Sequence[Rule], sent: Sequence[Sent]) -> list[bool]:
    """Whether a middleware refuses each request."""
    clock = SteppedClock()
    middleware = RateLimitMiddleware(ok, quota, rules=rules, store=MemoryStore(clock=clock))
    refused = []
    for time_us, client, path in sent:
        clock.move_to((START + time_us) / 1e6)
        refused.append((await ask(middleware, http(path, client=(client, 1)))).status == 429)
    return refused


def replayed(limits: RuleTable, sent: Sequence[Sent]) -> Replay:
    """A replay of these requests."""
    replay = Replay(limits)
    asyncio.run(replay.run([(START + time, client, "GET", path) for time, client, path in sent]))
    return replay


def table_of(quota: str | None, rules: Sequence[Rule]) -> RuleTable:
    """Limits with rules of any kind."""
    return RuleTable(replace(USUAL, quota=quota, rules=tuple(rules), key=LOGGED_KEY), Failures())


@settings(max_examples=50)
@given(st.none() | st.just("5/s burst 3"), st.sets(st.sampled_from(sorted(RULES)), min_size=1), SENT)
def test_a_replay_refuses_what_a_middleware_refuses(quota: str | None, names: set[str], sent: list[Sent]) -> None:
    """Under any rules: of several quotas, alone, in shadow, exempt, and with penalties."""
    rules = [RULES[name] for name in sorted(names)]
    refused = asyncio.run(refused_by_middleware(quota, rules, sent))
    replay = replayed(table_of(quota, rules), sent)
    assert (replay.requests, replay.refused) == (len(sent), sum(refused))
    assert replay.clients == {
        client: any(each for each, (_, other, _) in zip(refused, sent) if other == client) for _, client, _ in sent
    }
    assert sum([each["refused"] for each in replay.report(60)["worst"]]) == sum(refused)


def test_requests_that_may_wait_do() -> None:
    """They are counted as delayed where their slot is near enough."""
    rule = Rule("/a", "1/s burst 1", name="/a", max_delay=2.0)
    replay = replayed(table_of(None, [rule]), [(0, "192.0.2.1", "/a")] * 5)
    assert (replay.delayed, replay.refused) == (2, 2)


def test_a_request_without_a_key_or_a_rule_is_unlimited() -> None:
    """It is counted as such; what has no key is no client."""
    replay = replayed(limits_of(None, ["/a 1/s", "/c 1/s"]), [(0, "", "/a"), (1, "k", "/b"), (2, "k", "/a")])
    assert (replay.requests, replay.unlimited, replay.keyless, replay.clients) == (3, 2, 1, {"k": False})


def test_the_worst_moments_come_first() -> None:
    """With their requests and refusals; those without refusals are none."""
    sent = [(second * 1_000_000.0, "k", "/") for second, count in ((0, 1), (60, 5), (120, 3)) for _ in range(count)]
    worst = replayed(limits_of("1/s", ()), sent).report(5)["worst"]
    rows = [(each["from"] - START / 1e6, each["seconds"], each["requests"], each["refused"]) for each in worst]
    assert rows == [(60, 60, 5, 4), (120, 60, 3, 2)]


def names(method: str, path: str, *texts: str, quota: str | None = None) -> list[str]:
    """The names of the rules for a request."""
    plan = limits_of(quota, texts).plan_for(scope_of((0.0, "k", method, path)))
    return [] if plan is None else [rule.name for rule in plan.rules]


def test_a_rule_is_a_path_and_a_quota() -> None:
    """With methods or without them, and with any text of a quota."""
    (rule,) = limits_of(None, ["POST,PUT /a/{id} 10/s burst 20; 100 per 15 minutes"]).charging
    assert rule.quota == (TokenBucket(10, burst=20), TokenBucket(100, 900))
    assert names("POST", "/a/7", "POST,PUT /a/{id} 5/s") == ["POST,PUT /a/{id}"]
    assert names("GET", "/a/7", "POST,PUT /a/{id} 5/s") == []
    assert names("GET", "/a", "/a 5/s", quota="9/s") == ["default", "/a"]
    assert names("GET", "/a", "/a exempt", quota="9/s") == []


@pytest.mark.parametrize("text", ["", "/a", "5/minute", "/a often", "POST /a 5/fortnight", "login 5/minute"])
def test_what_is_no_rule(text: str) -> None:
    """The error quotes it, and shows right ones."""
    with pytest.raises((ConfigurationError, QuotaError), match=r"/minute") as raised:
        limits_of(None, [text])
    assert repr(text) in str(raised.value)


# Suggestions

S = 1_000_000


def arrived(*arrivals: tuple[int, str]) -> list[LoggedRequest]:
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
    return arrived(*arrivals)


def suggested(log: list[LoggedRequest], shares: list[float], kind: str = "bucket") -> list[dict[str, Any]]:
    """The suggestions for all requests of a log."""
    return list(suggest(times_of(log, limits_of("1/s", ()))["default"], shares, kind))


def refused_by(log: list[LoggedRequest], quota: str) -> tuple[int, int]:
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
            assert refused_by(log, choice["quota"]) == (choice["refused_clients"], choice["refused_requests"])
        for share in shares:
            assert any(choice["refused_clients"] <= share * 300 for choice in suggestion["limits"])


def test_quantiles_tell_what_clients_use() -> None:
    """In the busiest interval of the length of the window, for each of them."""
    log = arrived(*[(each * 10_000, "a") for each in range(40)], *[(each * 100 * S, str(each)) for each in range(9)])
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
