"""Replays decide as a middleware does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError, MemoryStore, Penalty, QuotaError, RateLimitMiddleware, Rule, TokenBucket
from asgi_ratelimit.inbound.plan import RuleTable
from asgi_ratelimit.inbound.rules import default_rule
from asgi_ratelimit.keys import path_param
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools.replay import LOGGED_KEY, Replay, limits_of, scope_of

START = 1_800_000_000_000_000.0

Sent = tuple[float, str, str]
"""Microseconds after the start, the client and the path."""

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
    middleware = RateLimitMiddleware(app, quota, rules=rules, store=MemoryStore(clock=clock))
    refused = []
    for time_us, client, path in sent:
        clock.move_to((START + time_us) / 1e6)
        statuses: list[int] = []

        async def send(message: Any, statuses: list[int] = statuses) -> None:
            statuses.append(message.get("status", 0))

        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "client": (client, 1)}
        await middleware(scope, None, send)  # type: ignore[arg-type]
        refused.append(statuses[0] == 429)
    return refused


async def app(scope: Any, receive: Any, send: Any) -> None:
    """An app that answers everything."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


def replayed(limits: RuleTable, sent: Sequence[Sent]) -> Replay:
    """A replay of these requests."""
    replay = Replay(limits)
    asyncio.run(replay.run([(START + time, client, "GET", path) for time, client, path in sent]))
    return replay


def table_of(quota: str | None, rules: Sequence[Rule]) -> RuleTable:
    """Limits with rules of any kind."""
    return RuleTable(quota, rules, default_rule("default", LOGGED_KEY))


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


def test_counts_are_by_rule_and_key() -> None:
    """A refusal counts for the rules that refuse, and a client is one in the headline as in the rules."""
    sent = [(number, client, "/a") for number in range(5) for client in ("192.0.2.1", "2001:db8::/64")]
    report = replayed(limits_of("100/minute", ["/a 2/minute"]), sent).report(top=1)
    numbers = [
        [rule[name] for name in ("name", "requests", "refused", "clients", "refused_clients")]
        for rule in report["rules"]
    ]
    assert numbers == [["default", 10, 0, 2, 0], ["/a", 10, 6, 2, 2]]
    assert (report["clients"], report["refused_clients"]) == (2, 2)
    first = (START + 2) / 1e6
    assert report["rules"][1]["top"] == [{"key": "192.0.2.1", "requests": 5, "refused": 3, "first": first}]


def test_requests_that_may_wait_do() -> None:
    """They are counted as delayed where their slot is near enough."""
    rule = Rule("/a", "1/s burst 1", name="/a", max_delay=2.0)
    replay = replayed(table_of(None, [rule]), [(0, "192.0.2.1", "/a")] * 5)
    assert (replay.delayed, replay.refused) == (2, 2)


def test_a_request_without_a_key_or_a_rule_is_unlimited() -> None:
    """It is counted as such; what has no key is no client."""
    replay = replayed(limits_of(None, ["/a 1/s", "/c 1/s"]), [(0, "", "/a"), (1, "k", "/b"), (2, "k", "/a")])
    assert (replay.requests, replay.unlimited, replay.keyless, replay.clients) == (3, 2, 1, {"k": False})


def test_rules_of_several_quotas_count_a_request_once() -> None:
    """Whichever of them refuses."""
    (default,) = replayed(limits_of("4/s; 6/minute", ()), [(0, "k", "/")] * 10).report(0)["rules"]
    assert (default["requests"], default["refused"]) == (10, 6)


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
