"""Requests that wait for their slots instead of being refused."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import Decision, MemoryStore, Penalty, Rule, limits
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.keys import header
from asgi_ratelimit.testing import SteppedClock
from tests.support.visitors import Site, Visitor


def visitors(count: int, **more: object) -> list[Visitor]:
    return [Visitor(**more) for _ in range(count)]  # type: ignore[arg-type]


def test_a_burst_is_spread_at_the_rate() -> None:
    """Nobody is refused whose slot is no further away than max_delay; each enters when its slot has come."""
    assert Site("2/s burst 1", max_delay=2.0).run(*visitors(5)) == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_what_is_further_away_is_refused_and_takes_nothing() -> None:
    """The slots of those that are refused go to nobody, so the next one that comes later is let in at once."""
    site = Site("2/s burst 1", max_delay=0.5)
    refused = Visitor()
    late = Visitor(at=1.0)
    assert site.run(*visitors(2), refused, late) == [0.0, 0.5, None, 1.0]
    assert refused.status == 429


def test_retry_after_of_a_refusal_is_the_time_until_the_request_may_wait() -> None:
    """One that comes again then is let in, after its wait; a moment before, it is refused."""
    site = Site("1/10s burst 1", max_delay=4.0)
    refused = Visitor()
    early, again = Visitor(at=5.999), Visitor(at=6.0)
    assert site.run(Visitor(), refused, early, again) == [0.0, None, None, 10.0]
    assert refused.headers["retry-after"] == "6"


def test_without_a_max_delay_nobody_waits() -> None:
    """It is 0.0 unless given."""
    assert Site("2/s burst 1").run(*visitors(2)) == [0.0, None]


def test_the_answer_says_how_long_the_request_has_waited() -> None:
    """In seconds, and only where it has waited."""
    first, second = visitors(2)
    Site("3/s burst 1", max_delay=1.0).run(first, second)
    assert first.delay is None
    assert second.delay == "0.333"
    assert second.headers["ratelimit"] == '"per-second";r=0;t=1'


class Running(SteppedClock):
    """A clock that runs, as any real one: a little at each look."""

    def now_us(self) -> int:
        self.advance(1e-5)
        return super().now_us()


def test_a_refusal_whose_slot_came_out_too_far_away_has_not_waited() -> None:
    """Others have booked before it: that is found out at once, and no time that a client has waited."""
    clock = Running()
    site = Site("2/s burst 1", max_delay=0.6, store=MemoryStore(clock=clock))
    site.clock = clock
    first, waits, refused = visitors(3)
    site.run(first, waits, refused)
    assert [first.status, waits.status, refused.status] == [200, 200, 429]
    assert [first.delay, refused.delay] == [None, None]
    assert waits.delay is not None


def test_without_rate_limit_headers_the_answer_does_not_say_it() -> None:
    """``headers=None`` means none of them."""
    first, second = visitors(2)
    Site("3/s burst 1", max_delay=1.0, headers=None).run(first, second)
    assert second.status == 200
    assert second.delay is None


def test_a_rule_has_its_own_max_delay() -> None:
    """Or the middleware's; 0.0 refuses at once."""
    rules = [
        Rule("/patient", "1/s burst 1", max_delay=3.0),
        Rule("/hasty", "1/s burst 1", max_delay=0.0),
        Rule("/usual", "1/s burst 1"),
    ]
    for path, entered in ("/patient", [0, 1, 2, 3]), ("/hasty", [0, None, None, None]), ("/usual", [0, 1, None, None]):
        assert Site(rules=rules, max_delay=1.0).run(*visitors(4, path=path)) == entered


def test_each_rule_that_refuses_has_to_allow_the_wait() -> None:
    """Here the second request is refused by the rule, which would let it wait, and by the quota, which would not."""
    rules = [Rule("/report", "1/s burst 1", max_delay=2.0)]
    assert Site("1/minute", rules=rules).run(*visitors(2, path="/report")) == [0.0, None]
    assert Site("2/minute", rules=rules).run(*visitors(3, path="/report")) == [0.0, 1.0, None]


def test_a_request_that_waits_for_one_quota_holds_no_other_empty() -> None:
    """What one client waits for is its own; others are let in meanwhile, at the rate of the shared quota."""
    rules = [Rule("/", "1/s burst 1", max_delay=2.0, key=header("x-client"))]
    site = Site("10/s burst 1", key=lambda _: "all", rules=rules)
    waiting = [Visitor(at=0.0), Visitor(at=0.1), Visitor(at=0.2)]
    others = [Visitor(at=0.3 + number / 10, client=f"client {number}") for number in range(6)]
    assert site.run(*waiting, *others) == [0.0, 1.0, 2.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]


def test_what_another_quota_refuses_after_the_wait_is_given_back() -> None:
    """The slot goes to nobody, and the client of the next request finds its own quota as if nothing had been."""
    own = Rule("/{any}", "1/s burst 1", max_delay=1.0, key=header("x-client"), name="own")
    shared = Rule("/both", "2/minute", key=lambda _: "all", name="shared")
    site = Site(rules=[own, shared])
    ann, again = Visitor("/both"), Visitor("/both")
    bob, late = Visitor("/both", at=0.5, client="bob"), Visitor("/one", at=1.25)
    assert site.run(ann, again, bob, late) == [0.0, None, 0.5, 1.25]
    assert again.status == 429
    assert again.answered == 1.0


def test_a_slot_that_another_quota_refuses_goes_to_the_next_in_line() -> None:
    """Those behind it move up, so that nothing of a shared quota is lost in an overload."""
    own = Rule("/{any}", "1/hour", max_delay=0.0, key=header("x-client"), name="own")
    shared = Rule("/both", "6/minute burst 1", max_delay=60.0, key=lambda _: "all", name="shared")
    first, ann, bob = [Visitor("/both", at=number / 10, client=f"client {number}") for number in range(3)]
    meanwhile = Visitor("/one", at=5.0, client="client 1")
    assert Site(rules=[own, shared]).run(first, ann, bob, meanwhile) == [0.0, None, 10.0, 5.0]
    assert (ann.status, ann.answered) == (429, 10.0)


def test_a_client_that_goes_gives_its_slot_to_those_behind_it() -> None:
    """They move up."""
    site = Site("1/s burst 1", max_delay=5.0)
    gone = Visitor(leaves=0.5)
    assert site.run(Visitor(), gone, *visitors(2)) == [0.0, None, 1.0, 2.0]
    assert gone.answered == 0.5


def test_a_client_that_goes_leaves_nothing_behind() -> None:
    """The next one is let in as if it had never come."""
    site = Site("1/10s burst 1", max_delay=15.0)
    assert site.run(Visitor(), Visitor(leaves=1.0), Visitor(at=2.0)) == [0.0, None, 10.0]


def test_a_request_whose_task_is_cancelled_gives_its_slot_back() -> None:
    """As a server does that stops by force."""
    site = Site("1/s burst 1", max_delay=5.0)

    async def cancel() -> list[float | None]:
        cancelled, behind = Visitor(), Visitor()
        await site.visit(Visitor())
        task = asyncio.ensure_future(site.visit(cancelled))
        await asyncio.sleep(0.25)
        behind_it = asyncio.ensure_future(site.visit(behind))
        await asyncio.sleep(0.25)
        task.cancel()
        await behind_it
        with pytest.raises(asyncio.CancelledError):
            await task
        return [cancelled.entered, behind.entered]

    assert site.clock.run(cancel()) == [None, 1.0]


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


def test_one_client_leaves_places_for_others() -> None:
    """A client may go without notice, so a quarter of the places is for others."""
    site = Site("1/s burst 1", max_delay=10.0, max_waiting=4)
    assert site.run(*visitors(6, client="ann"), *visitors(2, client="bob"))[3:] == [3.0, None, None, 0.0, 1.0]


def test_hooks_see_how_long_a_request_has_waited() -> None:
    """One decision for each request, whatever it has waited for."""
    seen: list[Event] = []
    rules = [Rule("/", "1/s burst 1", key=lambda _: "all")]
    site = Site("100/s", rules=rules, max_delay=1.0, hooks=[seen.append])
    site.run(*visitors(3), Visitor(leaves=0.5, at=0.25))
    decisions = sorted((event.decision.allowed, event.decision.delay) for event in seen)
    assert decisions == [(False, 0.0), (False, 0.0), (True, 0.0), (True, 1.0)]


def test_headers_report_all_quotas_in_their_usual_order() -> None:
    """Also where one of them was taken before the others."""
    rules = [Rule("/", "1/s burst 1", key=lambda _: "all", name="all")]
    first, second = visitors(2)
    Site("5/minute", rules=rules, max_delay=2.0).run(first, second)
    assert first.headers["ratelimit"] == '"per-minute";r=4;t=12, "per-second";r=0;t=1'
    assert second.headers["ratelimit"] == '"per-minute";r=3;t=11, "per-second";r=0;t=1'


@pytest.mark.parametrize("other", [None, "9/minute"])
def test_what_a_request_that_has_waited_really_came_to_is_settled(other: str | None) -> None:
    """What it was charged comes back after the answer, also where other quotas were taken after its wait."""
    keeps = Rule("/keeps", "1/10s burst 1", name="slow")
    settles = Rule("/settles", "1/10s burst 1", name="slow", settle=lambda status, headers: 0)
    site = Site(other, rules=[keeps, settles], max_delay=12.0)
    waits, after = Visitor("/settles"), Visitor("/settles", at=10.5)
    assert site.run(Visitor("/keeps"), waits, after) == [0.0, 10.0, 10.5]


def test_a_quota_that_was_taken_after_the_wait_is_settled() -> None:
    """That of the rule, for which nobody has waited."""
    settles = Rule("/settles", "2/minute", settle=lambda status, headers: 0)
    site = Site("1/10s burst 1", rules=[settles], max_delay=12.0)
    assert site.run(*[Visitor("/settles", at=5.0 * number) for number in range(6)]) == [
        0.0,
        10.0,
        20.0,
        None,
        30.0,
        None,
    ]


def test_for_the_end_of_a_block_nobody_waits() -> None:
    """It refuses at once, even if it is over soon."""
    rules = [Rule("/", "2/s burst 1", penalty=Penalty(1.0), max_delay=0.4)]
    assert Site(rules=rules).run(Visitor(), Visitor(), Visitor(at=0.7), Visitor(at=1.1)) == [0.0, None, None, 1.1]


def test_only_a_final_refusal_counts_for_a_penalty() -> None:
    """Neither a wait that ends well nor a client that goes is punished; a refusal is, and its block ends all waits."""
    rules = [Rule("/", "1/s burst 1", penalty=Penalty("1 minute"), max_delay=2.0)]
    site = Site(rules=rules)
    assert site.run(*visitors(3), Visitor(at=2.5, leaves=2.75), Visitor(at=4.0)) == [0.0, 1.0, 2.0, None, 4.0]
    site = Site(rules=rules)
    assert site.run(*visitors(3), *visitors(2, at=0.5), Visitor(at=5.0)) == [0.0, None, None, None, None, None]


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


def test_clients_on_the_lists_do_not_wait() -> None:
    """Neither those that are never limited, nor those that never get in."""
    site = Site("1/s burst 1", max_delay=5.0, allow=lambda c: c.headers["x-client"] == "ann")
    assert site.run(*visitors(3)) == [0.0, 0.0, 0.0]
    site = Site("1/s burst 1", max_delay=5.0, deny=lambda c: c.headers["x-client"] == "ann")
    assert site.run(*visitors(2)) == [None, None]


def test_a_cost_that_can_never_pass_is_refused_at_once() -> None:
    """However long a request may wait."""
    visitor = Visitor()
    assert Site("1/s burst 1", cost=2, max_delay=1000.0).run(visitor) == [None]
    assert visitor.answered == 0.0
    assert "retry-after" not in visitor.headers


@pytest.mark.parametrize("quota", ["1/s fixed", "1/s rolling"])
def test_requests_wait_for_windows_as_well(quota: str) -> None:
    """For the next one that has room, and no longer."""
    entered = Site(quota, max_delay=3.0).run(*visitors(3))
    assert [each is not None for each in entered] == [True, True, True]
    assert sorted(each for each in entered if each)[1] - sorted(each for each in entered if each)[0] >= 1.0


def test_middlewares_within_one_another_wait_one_after_the_other() -> None:
    """The answer says how long the request has waited for both."""
    site = Site("1/s burst 1", max_delay=5.0)
    inner = Site("1/2s burst 1", max_delay=5.0)
    assert inner.middleware
    site.middleware.app = _with_store_of(site)
    first, second = visitors(2)
    assert site.run(first, second) == [0.0, 4.0]
    assert second.delay == "4.000"


def _with_store_of(site: Site) -> object:
    inner = Site("1/4s burst 1", max_delay=5.0, store=site.store, name="inner")
    inner.middleware.app = site.middleware.app
    return inner.middleware


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


def test_an_endpoint_sees_the_delay_and_can_give_back() -> None:
    """``limits(request)`` has one decision, with all charges and how long the request has waited."""
    seen: list[Decision] = []

    async def give_back(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend(limits(HTTPConnection(scope)).decisions)
        if scope["path"] == "/refunded":
            await limits(HTTPConnection(scope)).refund()
        await scope["visitor"].enter(site.now, receive, send)

    site = Site("1/10s burst 1", rules=[Rule("/{any}", "2/minute", name="all")], max_delay=15.0)
    site.middleware.app = give_back
    first, second, third = Visitor("/kept"), Visitor("/refunded"), Visitor("/refunded", at=10.5)
    assert site.run(first, second, third) == [0.0, 10.0, 10.5]
    assert [(decision.delay, len(decision.states)) for decision in seen] == [(0.0, 2), (10.0, 2), (0.0, 2)]


def test_another_limit_further_in_takes_back_what_a_request_has_waited_for() -> None:
    """A refusal of the inner limit leaves both buckets as if the request had never come."""
    site = Site("1/10s burst 1", rules=[Rule("/", "9/minute")], max_delay=15.0)
    inner = Site("1/hour", store=site.store, name="inner").middleware
    inner.app, site.middleware.app = site.middleware.app, inner
    refused, again = Visitor(), Visitor(at=10.5)
    assert site.run(Visitor(), refused, again) == [0.0, None, None]
    assert [refused.answered, again.answered] == [10.0, 10.5]
    assert refused.delay == "10.000"
    assert "per-minute" in refused.headers["ratelimit"]
