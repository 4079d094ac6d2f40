"""Requests that wait for their slots instead of being refused."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message

from asgi_ratelimit import Penalty, Rule
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.keys import header
from asgi_ratelimit.testing import SteppedClock
from tests.support.counting import CountingStore
from tests.support.visitors import Site, Visitor


def visitors(count: int, **more: object) -> list[Visitor]:
    return [Visitor(**more) for _ in range(count)]  # type: ignore[arg-type]


def shared(connection: HTTPConnection) -> str:
    return "all"


LOGIN = Rule("/", "1/s burst 1", penalty=Penalty("1 minute"), max_delay=2.0)

EACH = "1/s burst 1"
ALL = Rule("/both", "2/minute", key=shared, name="shared")
QUEUE = Rule("/both", "6/minute burst 1", max_delay=60.0, key=shared, name="shared")
KEEPS = Rule("/keeps", "1/10s burst 1", name="slow")
SETTLES = Rule("/settles", "1/10s burst 1", name="slow", settle=lambda status, headers: 0)


def own(path: str = "/", quota: str = EACH, max_delay: float = 2.0) -> Rule:
    """A rule by the client."""
    return Rule(path, quota, max_delay=max_delay, key=header("x-client"), name="own")


Row: TypeAlias = tuple[dict[str, Any], list[Visitor], list[float | None]]

WAITS: dict[str, Row] = {
    "at the rate": ({"quota": "2/s burst 1", "max_delay": 2.0}, visitors(5), [0.0, 0.5, 1.0, 1.5, 2.0]),
    "too far away": ({"quota": EACH, "max_delay": 1.0}, [*visitors(3), Visitor(at=2.0)], [0.0, 1.0, None, 2.0]),
    "never": ({"quota": EACH, "cost": 2, "max_delay": 1000.0}, visitors(1), [None]),
    "its own max_delay": ({"rules": [own(max_delay=3.0)], "max_delay": 1.0}, visitors(4), [0.0, 1.0, 2.0, 3.0]),
    "0.0 refuses": ({"rules": [own(max_delay=0.0)], "max_delay": 1.0}, visitors(2), [0.0, None]),
    "the usual one": ({"rules": [Rule("/", EACH)], "max_delay": 1.0}, visitors(3), [0.0, 1.0, None]),
    "who refuses must allow it": ({"quota": "1/minute", "rules": [own()]}, visitors(2), [0.0, None]),
    "others need not": ({"quota": "2/minute", "rules": [own()]}, visitors(3), [0.0, 1.0, None]),
    "no other is held empty": (
        {"quota": "10/s burst 1", "key": shared, "rules": [own()]},
        [*[Visitor(at=at / 10) for at in range(3)], *[Visitor(at=at / 10, client=str(at)) for at in range(3, 9)]],
        [0.0, 1.0, 2.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
    ),
    "a place is taken last": (
        {"quota": "3 at once", "key": shared, "rules": [own(quota="1/4s burst 1", max_delay=20.0)], "max_delay": 20.0},
        [*visitors(5), Visitor(at=0.5, client="bob")],
        [0.0, 4.0, 8.0, 12.0, 16.0, 0.5],
    ),
    "refused after the wait": (
        {"rules": [own("/{any}", max_delay=1.0), ALL]},
        [*visitors(2, path="/both"), Visitor("/both", at=0.5, client="bob"), Visitor("/one", at=1.25)],
        [0.0, None, 0.5, 1.25],
    ),
    "those behind it move up": (
        {"rules": [own("/{any}", "1/hour", 0.0), QUEUE]},
        [*[Visitor("/both", at=at / 10, client=str(at)) for at in range(3)], Visitor("/one", at=5.0, client="1")],
        [0.0, None, 10.0, 5.0],
    ),
    "who goes": (
        {"quota": EACH, "max_delay": 5.0},
        [Visitor(), Visitor(leaves=0.5), *visitors(2)],
        [0.0, None, 1.0, 2.0],
    ),
    "a quarter of the places": (
        {"quota": EACH, "max_delay": 10.0, "max_waiting": 4},
        [*visitors(6, client="ann"), *visitors(2, client="bob")],
        [0.0, 1.0, 2.0, 3.0, None, None, 0.0, 1.0],
    ),
    "settled": (
        {"quota": "9/minute", "rules": [KEEPS, SETTLES], "max_delay": 12.0},
        [Visitor("/keeps"), Visitor("/settles"), Visitor("/settles", at=10.5)],
        [0.0, 10.0, 10.5],
    ),
    "not for a block": (
        {"rules": [Rule("/", "2/s burst 1", penalty=Penalty(1.0), max_delay=0.4)]},
        [Visitor(), Visitor(), Visitor(at=0.7), Visitor(at=1.1)],
        [0.0, None, None, 1.1],
    ),
    "no wait is punished": (
        {"rules": [LOGIN]},
        [*visitors(3), Visitor(at=2.5, leaves=2.75), Visitor(at=4.0)],
        [0.0, 1.0, 2.0, None, 4.0],
    ),
    "a block ends all waits": (
        {"rules": [LOGIN]},
        [*visitors(3), *visitors(2, at=0.5), Visitor(at=5.0)],
        [0.0, None, None, None, None, None],
    ),
}


@pytest.mark.parametrize("case", WAITS)
def test_when_requests_reach_the_app(case: str) -> None:
    """Each when its slot has come, or not at all, and a refusal comes within ``max_delay``."""
    options, coming, entered = WAITS[case]
    assert Site(**options).run(*coming) == entered
    assert [visitor.status for visitor in coming] == [429 if each is None else 200 for each in entered]


@pytest.mark.parametrize(
    ("count", "clients", "spread", "delay"),
    [(40, 10, 0.01, 2.0), (40, 10, 1.0, 2.0), (100, 2, 0.01, 5.0), (80, 2, 0.01, 2.0)],
)
def test_nobody_is_refused_whose_slots_are_near(count: int, clients: int, spread: float, delay: float) -> None:
    """Of two rates that are waited for, one client's own and that of all, however many wait: no slot is left out.

    Nor does everybody look at each slot, whatever refuses there.
    """
    chance = random.Random(1)
    coming = [Visitor(client=f"client {n % clients}", at=chance.uniform(0, spread)) for n in range(count)]
    rules = [own(quota=f"{20 // clients}/s burst 1", max_delay=delay)]
    clock = SteppedClock()
    store = CountingStore(clock=clock)
    clock.run(Site("20/s burst 1", key=shared, max_delay=delay, rules=rules, store=store).visit(*coming))
    assert [visitor.status for visitor in coming].count(200) == min(count, 1 + 20 * delay)
    assert store.takes < 12 * count


def test_a_rule_that_allows_a_short_wait_ends_none_for_a_slow_rate() -> None:
    """It refuses for a few milliseconds only, behind each request that enters."""
    coming = [Visitor(client=f"client {n % 4}", at=n / 4000) for n in range(40)]
    rules = [own(quota="2/s burst 1", max_delay=20.0)]
    Site("100/s burst 1", key=shared, max_delay=1.0, rules=rules).run(*coming)
    assert {visitor.status for visitor in coming} == {200}


def test_who_comes_later_does_not_overtake_those_that_wait_for_two_rates() -> None:
    """Though the slots of one rate were refused by the other one."""
    coming = [Visitor(at=0.01 + n / 12) for n in range(60)]
    entered = Site("5/0.5s fixed; 20/3s fixed", max_delay=5.0).run(*coming)
    assert {visitor.status for visitor in coming} == {200}
    assert sorted(filter(None, entered)) == entered


def test_who_waits_for_a_rate_and_a_place_of_one_key_keeps_the_order() -> None:
    """The place is held while the rate, which is near, is waited for, and nothing is given back in vain."""
    coming = visitors(60)
    entered = Site("10/s fixed; 2 at once", max_delay=60.0).run(*coming)
    assert {visitor.status for visitor in coming} == {200}
    assert sorted(filter(None, entered)) == [each for each in entered if each]


def test_retry_after_of_a_refusal_is_the_time_until_the_request_may_wait() -> None:
    """One that comes again then is let in, after its wait; a moment before, it is refused."""
    site = Site("1/10s burst 1", max_delay=4.0)
    refused = Visitor()
    early, again = Visitor(at=5.999), Visitor(at=6.0)
    assert site.run(Visitor(), refused, early, again) == [0.0, None, None, 10.0]
    assert refused.headers["retry-after"] == "6"


@pytest.mark.parametrize("quota", ["3/s burst 1", "3/s burst 1; 5 at once"])
def test_the_answer_says_how_long_the_request_has_waited(quota: str) -> None:
    """In seconds, and only where it has waited."""
    first, second = visitors(2)
    Site(quota, max_delay=1.0).run(first, second)
    assert first.delay is None
    assert second.delay == "0.333"
    assert second.headers["ratelimit"] == '"per-second";r=0;t=1'


def test_retry_after_of_a_refusal_after_a_wait_counts_the_whole_wait_of_the_next_request() -> None:
    """One that comes again then may wait for all of max_delay, not only for what was left of it."""
    rules = [Rule("/", "2/s burst 1", max_delay=2.0, name="fast"), Rule("/", "3/5s fixed", max_delay=1.0, name="slow")]
    site = Site(rules=rules)
    refused = Visitor()
    early, again = Visitor(at=3.999), Visitor(at=4.0)
    assert site.run(*visitors(3), refused, early, again)[3:] == [None, None, 5.0]
    assert [refused.answered, refused.headers["retry-after"]] == [1.5, "3"]


def test_at_most_so_many_wait_at_a_time() -> None:
    """One more is refused at once, with the time until it would be let in without a wait."""
    site = Site("1/s burst 1", max_delay=10.0, max_waiting=2)
    one_more, later = Visitor(at=0.5), Visitor(at=1.5)
    assert site.run(*visitors(3), one_more, later) == [0.0, 1.0, 2.0, None, 3.0]
    assert one_more.headers["retry-after"] == "3"


def test_a_rule_that_is_tried_out_lets_nobody_wait() -> None:
    """Its decision says how long a request would have waited."""
    seen: list[Event] = []
    rules = [Rule("/", "1/s burst 1", shadow=True, max_delay=1.0)]
    assert Site(rules=rules, hooks=[seen.append]).run(*visitors(3)) == [0.0, 0.0, 0.0]
    assert [(event.decision.allowed, event.decision.delay) for event in seen] == [
        (True, 0.0),
        (True, 1.0),
        (False, 0.0),
    ]


def test_handshakes_wait_as_well() -> None:
    """The app of a WebSocket gets all messages, and the handshake says how long it has waited."""
    connect: Message = {"type": "websocket.connect"}
    first, second = [Visitor(incoming=[connect], scope={"type": "websocket"}) for _ in range(2)]
    gone = Visitor(incoming=[connect], scope={"type": "websocket"}, leaves=0.5, left={"type": "websocket.disconnect"})
    last = Visitor(incoming=[connect], scope={"type": "websocket"})
    assert Site("1/s burst 1", max_delay=5.0).run(first, second, gone, last) == [0.0, 1.0, None, 2.0]
    assert second.received == [connect]
    assert second.delay == "1.000"
    assert gone.sent == [{"type": "websocket.close", "code": 1008, "reason": "rate limit exceeded"}]
