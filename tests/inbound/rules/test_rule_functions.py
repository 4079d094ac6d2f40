"""Rules with functions for quota, key and cost, functions that fail, and rules in shadow."""

from __future__ import annotations

import logging
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from anyio import lowlevel
from starlette.requests import HTTPConnection

from asgi_ratelimit import MemoryStore, QuotaError, RateLimitMiddleware, RedisStore, Rule, TokenBucket
from asgi_ratelimit.hooks import Event, Failure, failures
from asgi_ratelimit.keys import client_ip, combine, first_of, header, state
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, limited, ok, websocket
from tests.support.names import named
from tests.support.server import free_port

pytestmark = pytest.mark.anyio

PRO = [(b"x-tier", b"pro")]


def rules(*each: Rule, own: Any = None, **options: Any) -> RateLimitMiddleware:
    return limited(ok, own, rules=each, **options)


def tier(connection: HTTPConnection) -> str:
    return "100/minute" if connection.headers.get("x-tier") == "pro" else "10/minute"


async def tier_after_a_while(connection: HTTPConnection) -> str:
    await lowlevel.checkpoint()
    return tier(connection)


# Functions


@pytest.mark.parametrize("quota", [tier, tier_after_a_while], ids=["sync", "async"])
@pytest.mark.parametrize("place", ["own", "rule"])
async def test_a_quota_may_depend_on_the_connection(quota: Any, place: str) -> None:
    """A tier for each user, for the middleware's own quota and for a rule's."""
    app = limited(ok, quota) if place == "own" else rules(Rule("/", quota))
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6'
    pro = await ask(app, http(client=("192.0.2.2", 1), headers=PRO))
    assert pro.headers["ratelimit-policy"] == '"per-minute";q=100;w=60'


async def test_another_quota_of_the_same_name_has_the_same_bucket() -> None:
    """A bucket belongs to a name and a key, not to numbers: what was used stays used after an upgrade."""
    app = limited(ok, tier)
    await ask(app)
    assert (await ask(app, http(headers=PRO))).headers["ratelimit"].startswith('"per-minute";r=98')


@pytest.mark.parametrize("answer", ["5/s; 20/minute", TokenBucket(5), [TokenBucket(5), "20/minute"], ("5/s", "20/h")])
async def test_a_quota_function_returns_whatever_a_quota_may_be(answer: Any) -> None:
    """A text, a quota, or several."""
    peer = await ask(limited(ok, lambda connection: answer))
    assert peer.headers["ratelimit"].startswith('"per-second";r=4')


async def test_equal_texts_are_read_once() -> None:
    """What a quota function returns again is the very quota that it was before."""
    quotas = []
    app = limited(ok, lambda connection: f"{10 + 0}/minute", hooks=[lambda event: quotas.append(event.decision.quota)])
    for _ in range(5):
        await ask(app)
    assert len(quotas) == 5
    assert len(set(map(id, quotas))) == 1


async def test_no_quota_is_no_limit() -> None:
    """A quota function that returns ``None`` exempts from its rule, and not from the others."""
    app = rules(Rule("/", lambda connection: None), own="10/minute")
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6'
    assert (await ask(limited(ok, lambda connection: None))).headers == {"x-own": "1"}


@pytest.mark.parametrize("place", ["own", "rule"])
async def test_a_cost_may_depend_on_the_connection(place: str) -> None:
    """Sync or async, for the middleware's own quota and for a rule's."""

    async def cost(connection: HTTPConnection) -> float:
        return float(connection.query_params["n"])

    app = limited(ok, cost=cost) if place == "own" else rules(Rule("/", "10/minute", cost=cost))
    assert (await ask(app, http(query_string=b"n=4"))).headers["ratelimit"].startswith('"per-minute";r=6')
    assert (await ask(app, http(query_string=b"n=7"))).status == 429


@pytest.mark.parametrize("cost", [0, 0.0])
async def test_what_costs_nothing_is_not_limited(cost: float) -> None:
    """A cost of 0 means that the rule does not apply."""
    assert (await ask(limited(ok, cost=lambda connection: cost))).headers == {"x-own": "1"}


class Units(float):
    """A number that is not hashable, as the numbers of some libraries are."""

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("cost", [Units(2), Fraction(2), Decimal(2)], ids=named)
async def test_a_cost_may_be_any_kind_of_number(cost: Any) -> None:
    """It is charged as the plain number that it is equal to."""
    assert (await ask(limited(ok, cost=lambda connection: cost))).headers["ratelimit"] == '"per-minute";r=8;t=6'


async def test_a_function_is_called_once_for_each_request() -> None:
    """However many rules use it, and anew for the next request."""
    calls = []

    def key(connection: HTTPConnection) -> str:
        calls.append(connection)
        return "k"

    app = rules(Rule("/", "20/minute"), Rule("/{rest:path}", "30/minute"), own="10/minute", key=key)
    peer = await ask(app)
    assert peer.headers["ratelimit"].count(";r=") == 3
    assert len(calls) == 1
    await ask(app)
    assert len(calls) == 2


async def test_functions_are_called_for_handshakes_too() -> None:
    """The connection is then that of a WebSocket."""
    app = limited(ok, tier, cost=lambda connection: 2 if connection.scope["type"] == "websocket" else 1)
    assert (await ask(app, websocket())).headers["ratelimit"].startswith('"per-minute";r=8')


async def test_functions_and_texts_are_one_take() -> None:
    """A rule with functions and one without are charged together or not at all."""
    app = rules(Rule("/", lambda connection: "1/hour"), own="10/minute")
    answers = [await ask(app) for _ in range(3)]
    assert [peer.status for peer in answers] == [200, 429, 429]
    assert answers[-1].headers["ratelimit"].startswith('"per-minute";r=9')


# Functions that fail


def breaks(connection: HTTPConnection) -> Any:
    raise LookupError("no such user")


async def breaks_later(connection: HTTPConnection) -> Any:
    await lowlevel.checkpoint()
    raise LookupError("no such user")


BROKEN_QUOTAS: list[Any] = [
    breaks,
    breaks_later,
    lambda connection: "10/lightyear",
    lambda connection: 7,
    lambda connection: (),
    lambda connection: TokenBucket(5, name="penalty-block"),
]
BROKEN_KEYS: list[Any] = [breaks, breaks_later, lambda connection: 7.5, lambda connection: True]
BROKEN_COSTS: list[Any] = [
    breaks,
    breaks_later,
    lambda connection: -1,
    lambda connection: float("nan"),
    lambda connection: Decimal("nan"),
    lambda connection: float("-inf"),
    lambda connection: None,
    lambda connection: False,
    lambda connection: "0",
    lambda connection: 1j,
    lambda connection: Fraction(1, 10**400),
]


def with_broken(on_error: Any, **broken: Any) -> RateLimitMiddleware:
    """An own quota, and a rule of which one function fails."""
    rule = Rule("/", **{"quota": "5/minute", "name": "tier", "on_error": on_error, **broken})
    return rules(rule, own="10/minute")


@pytest.mark.parametrize("on_error", [None, "local", "allow"])
@pytest.mark.parametrize("broken", BROKEN_QUOTAS, ids=range(len(BROKEN_QUOTAS)))
async def test_a_request_passes_without_a_quota_that_fails(broken: Any, on_error: Any) -> None:
    """It is neither lost nor free: all other rules still apply."""
    peer = await ask(with_broken(on_error, quota=broken))
    assert peer.status == 200
    assert peer.headers["ratelimit"] == '"per-minute";r=9;t=6'


@pytest.mark.parametrize("broken", BROKEN_QUOTAS, ids=range(len(BROKEN_QUOTAS)))
async def test_nobody_passes_a_quota_that_fails_and_denies(broken: Any) -> None:
    """By on_error="deny" the answer is 503, nothing is charged, and a handshake is closed with 1013."""
    app = with_broken("deny", quota=broken)
    peer = await ask(app)
    assert (peer.status, peer.headers["retry-after"]) == (503, "1")
    assert peer.problem["type"].endswith("#temporary-reduced-capacity")
    assert "ratelimit" not in peer.headers
    assert [message.get("code") for message in (await ask(app, websocket())).sent] == [1013]
    assert (await ask(app, http("/other"))).headers["ratelimit"] == '"per-minute";r=9;t=6'


@pytest.mark.parametrize("on_error", [None, "allow", "deny"])
@pytest.mark.parametrize("broken", BROKEN_KEYS, ids=range(len(BROKEN_KEYS)))
async def test_a_key_that_fails_is_the_address(broken: Any, on_error: Any) -> None:
    """Whoever can make the function fail is limited by address, whatever ``on_error`` says."""
    app = with_broken(on_error, key=broken)
    for left in (4, 3):
        assert f'"tier per-minute";r={left};' in (await ask(app)).headers["ratelimit"]
    assert '"tier per-minute";r=4;' in (await ask(app, http(client=("192.0.2.2", 1)))).headers["ratelimit"]


@pytest.mark.parametrize("on_error", [None, "allow", "deny"])
@pytest.mark.parametrize("broken", BROKEN_COSTS, ids=range(len(BROKEN_COSTS)))
async def test_a_cost_that_fails_is_the_base_cost(broken: Any, on_error: Any) -> None:
    """It never exempts, and never locks out: it is 1, or the middleware's own cost where that is a number."""
    assert '"tier per-minute";r=4;' in (await ask(with_broken(on_error, cost=broken))).headers["ratelimit"]
    app = rules(Rule("/", "5/minute", name="tier", cost=broken), own="10/minute", cost=2)
    assert '"tier per-minute";r=3;' in (await ask(app)).headers["ratelimit"]


@pytest.mark.parametrize("cost", [1e300, float("inf"), 10**400, Decimal("Infinity"), 2.0**53])
@pytest.mark.parametrize("quota", ["10/minute", "10/minute fixed", "10/minute rolling"])
async def test_a_cost_that_is_too_large_never_passes(cost: Any, quota: str) -> None:
    """It is refused without a time to come back."""
    peer = await ask(limited(ok, quota, cost=lambda request: cost))
    assert peer.status == 429
    assert "retry-after" not in peer.headers


@pytest.mark.parametrize("pages", ["0", "-1", "nan", "abc", "1e300", ""])
async def test_the_cost_of_the_docs_lets_nobody_through(pages: str) -> None:
    """Whatever a client writes, a request costs at least something."""

    def cost(request: Any) -> float:
        return max(1.0, float(request.query_params["pages"]))

    app = limited(ok, "20/hour", cost=cost)
    statuses = [(await ask(app, http(query_string=b"pages=" + pages.encode()))).status for _ in range(30)]
    assert statuses.count(200) <= 20


async def test_the_address_behind_a_proxy_stands_for_a_key_that_fails() -> None:
    """The middleware's own client_ip knows the trusted proxies, also as a part of another key."""
    key = first_of(header("x-api-key"), client_ip(trusted_proxies=["192.0.2.1"]))
    app = rules(Rule("/", "1/minute", key=breaks), key=key)
    answers = [await ask(app, http(headers=[(b"x-forwarded-for", b"198.51.100.%d" % n)])) for n in (1, 2, 1)]
    assert [peer.status for peer in answers] == [200, 200, 429]


async def test_the_address_that_stands_for_a_key_is_no_key_of_the_program() -> None:
    """A user who is named like an address uses up no quota of that address."""

    def key(request: Any) -> str:
        return {b"of mallory": "203.0.113.9"}[dict(request.scope["headers"]).get(b"x-session")]

    app = limited(ok, "1/hour", key=key)
    assert (await ask(app, http(headers=[(b"x-session", b"of mallory")]))).status == 200
    answers = [await ask(app, http(client=("203.0.113.9", 1))) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]


async def test_more_than_one_take_may_charge_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why: no limit is off because there are too many of them."""
    many = [TokenBucket(100, 60, name=f"q{number}") for number in range(40)]
    for quotas in (many, lambda request: many):
        app = rules(Rule("/", many, name="a"), Rule("/", quotas, name="b"))
        assert (await ask(app)).status == 503
    assert len(caplog.messages) == 2
    assert all("a take has at most 50 charges" in message for message in caplog.messages)


async def test_a_key_may_be_an_int() -> None:
    """It counts as its text."""
    app = limited(ok, key=lambda request: int(request.query_params["id"]))
    for _ in range(2):
        peer = await ask(app, http(query_string=b"id=7"))
    assert peer.headers["ratelimit"].startswith('"per-minute";r=8')
    assert (await ask(app, http(query_string=b"id=8"))).headers["ratelimit"].startswith('"per-minute";r=9')
    mixed = limited(ok, key=combine(client_ip(), lambda request: 7))
    assert (await ask(mixed)).headers["ratelimit"].startswith('"per-minute";r=9')


async def test_functions_get_a_request() -> None:
    """As they are annotated, with its method; a handshake comes as a connection."""
    seen = []
    await ask(limited(ok, key=lambda request: seen.append(request.method) or "k"))
    await ask(limited(ok, key=lambda connection: seen.append(type(connection)) or "k"), websocket())
    assert seen == ["GET", HTTPConnection]


async def test_a_failure_is_logged_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the name of the rule, the error and the count, for each function of each rule."""
    now = 0.0
    monkeypatch.setattr("asgi_ratelimit.logs.monotonic_us", lambda: now)
    app = rules(Rule("/", "5/minute", key=breaks), Rule("/", breaks, name="tier"), own="10/minute")
    for _ in range(3):
        await ask(app)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "key function of 'default /' failed, the client's address is the key: LookupError" in caplog.messages[0]
    assert "quota function of 'tier' failed, requests are limited by 'default' instead" in caplog.messages[1]
    assert caplog.records[0].exc_info is not None
    now = 60e6
    for _ in range(3):
        await ask(app)
    assert len(caplog.messages) == 4
    assert "(3 times since the last report)" in caplog.messages[2]


@pytest.mark.parametrize("failed", ["key", "quota", "cost", "settle", "on_limited", "allow", "deny"])
async def test_hooks_count_failures(failed: str) -> None:
    """Each one, with the name of the rule and the error; hooks for decisions see none of them."""
    counted: list[Failure] = []
    events: list[Event] = []

    def fails(*arguments: Any) -> Any:
        raise LookupError("no such user")

    of_rule = {failed: fails if failed != "settle" else lambda status, headers: fails()}
    if failed in ("on_limited", "allow", "deny"):
        app = limited(ok, "1/hour", name="api", hooks=[failures(counted.append), events.append], **of_rule)
    else:
        rule = Rule("/", **{"quota": "1/hour", "name": "api", **of_rule})
        app = rules(rule, hooks=[failures(counted.append), events.append])
    for _ in range(3):
        await ask(app)
    assert {(each.name, each.failed, str(each.error)) for each in counted} == {("api", failed, "no such user")}
    assert len(counted) == {"settle": 1, "on_limited": 2}.get(failed, 3)
    assert all(isinstance(event, Event) for event in events)


@pytest.mark.parametrize(("on_error", "status"), [(None, 503), ("local", 503), ("deny", 503), ("allow", 200)])
async def test_a_quota_that_fails_lets_nobody_pass_where_there_is_no_other(on_error: Any, status: int) -> None:
    """A client that can make it fail gains nothing, unless ``on_error`` says so, that of the rule before all others."""
    assert (await ask(limited(ok, breaks, on_error=on_error))).status == status
    assert (await ask(rules(Rule("/", breaks), on_error=on_error))).status == status
    assert (await ask(rules(Rule("/", breaks, on_error=on_error), on_error="deny"))).status == status
    assert (await ask(rules(Rule("/", breaks, shadow=True), on_error=on_error))).status == 200


async def test_the_default_quota_limits_where_that_of_a_rule_fails_which_decides_alone() -> None:
    """At its own cost and by its own key, once."""
    rule = Rule("/", breaks, only=True, key=lambda request: "one for all", cost=7)
    app = rules(rule, own="5/minute", cost=2)
    answers = [await ask(app) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit"] == '"per-minute";r=3;t=12'
    assert (await ask(app, http(client=("192.0.2.2", 1)))).status == 200


@pytest.mark.parametrize(
    ("options", "error", "quote"),
    [
        ({"on_error": "explode"}, ValueError, "not 'explode'"),
        ({"cost": "2"}, ValueError, "not '2'"),
        ({"quota": 7}, QuotaError, "not 7"),
    ],
)
def test_wrong_values_raise_at_start_up(options: Any, error: type[Exception], quote: str) -> None:
    """A value that is neither valid nor a function is quoted when the middleware is built."""
    with pytest.raises(error, match=quote):
        rules(Rule("/", **{"quota": "1/s", **options}))


async def test_a_key_of_the_package_may_fail_too() -> None:
    """What an app has put where ``state`` looks may be of no use: the address is the key."""
    for quota in ("5/minute", tier):
        app = rules(Rule("/", quota, key=state("tenant"), name="tenant"), own="20/minute")
        peer = await ask(app, http(state={"tenant": object()}))
        assert re.findall('"([a-z -]+)";r=', peer.headers["ratelimit"]) == ["per-minute", "tenant per-minute"]


# Without the store


@pytest.mark.parametrize(
    ("own", "of_rule", "statuses"),
    [
        (None, None, [200, 200, 429]),
        (None, "allow", [200, 200, 429]),
        (None, "deny", [503] * 3),
        ("allow", None, [200] * 3),
        ("allow", "allow", [200] * 3),
        ("allow", "local", [200, 200, 429]),
        ("allow", "deny", [503] * 3),
        ("deny", "allow", [503] * 3),
        ("local", None, [200, 200, 429]),
    ],
)
async def test_the_strictest_rule_decides_without_the_store(own: Any, of_rule: Any, statuses: list[int]) -> None:
    """A rule has the middleware's on_error unless it has its own, and a request is decided as one."""
    store = RedisStore(f"redis://127.0.0.1:{free_port()}")
    rule = Rule("/", "2/minute", on_error=of_rule)
    app = RateLimitMiddleware(ok, "10/minute", rules=[rule], store=store, on_error=own)
    assert [(await ask(app)).status for _ in range(3)] == statuses


# Rules that are only tried out


async def test_a_shadow_rule_is_counted_and_not_enforced() -> None:
    """Everybody passes, no header speaks of it, and its decisions say what would have been."""
    events = []
    app = rules(Rule("/", "1/minute", shadow=True, name="new"), own="10/minute", hooks=[events.append])
    answers = [await ask(app) for _ in range(3)]
    assert [peer.status for peer in answers] == [200] * 3
    assert [peer.headers["ratelimit"] for peer in answers][-1] == '"per-minute";r=7;t=6'
    tried = [event.decision for event in events if event.decision.shadow]
    assert [decision.allowed for decision in tried] == [True, False, False]
    assert tried[0].take is not None
    assert tried[0].take.charges[0].name == "new"


async def test_shadow_rules_alone_leave_no_trace() -> None:
    """Where nothing is enforced the answers are those of the app."""
    app = rules(Rule("/", "1/minute", shadow=True))
    assert [(await ask(app)).headers for _ in range(3)] == [{"x-own": "1"}] * 3


async def test_shadow_rules_are_tried_one_by_one() -> None:
    """What one of them would have refused counts for the other."""
    events = []
    app = rules(Rule("/", "1/minute", shadow=True), Rule("/", "2/hour", shadow=True, only=True), hooks=[events.append])
    for _ in range(3):
        await ask(app)
    assert [event.decision.allowed for event in events] == [True, True, False, True, False, False]


@pytest.mark.parametrize("shadow", [{"only": True}, {"quota": None}], ids=["only", "exempt"])
async def test_a_shadow_rule_takes_nothing_away_from_others(shadow: dict[str, Any]) -> None:
    """While it is tried out, a rule that would stand alone, or exempt, changes nothing for the others."""
    app = rules(Rule("/", **{"quota": "1/minute", **shadow, "shadow": True}), own="10/minute")
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6'


async def test_a_shadow_rule_beside_an_only_rule_is_tried() -> None:
    """``only`` is about what is enforced."""
    events = []
    app = rules(
        Rule("/", "1/minute", shadow=True), Rule("/", "5/hour", only=True), own="10/minute", hooks=[events.append]
    )
    assert (await ask(app)).headers["ratelimit-policy"] == '"per-hour";q=5;w=3600'
    assert [event.decision.shadow for event in events] == [False, True]


async def test_a_shadow_rule_has_functions_too() -> None:
    """They are called like others."""
    events = []
    await ask(rules(Rule("/", tier, shadow=True, cost=lambda connection: 3), hooks=[events.append]))
    assert events[0].decision.remaining == 7


@pytest.mark.parametrize("quota", [lambda connection: 1 / 0, lambda connection: "5/mintue"], ids=["raises", "is wrong"])
async def test_a_shadow_rule_that_fails_refuses_nobody(quota: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever ``on_error`` says."""
    app = rules(Rule("/", quota, shadow=True, on_error="deny"), own="10/minute", on_error="deny")
    assert [(await ask(app)).status for _ in range(2)] == [200, 200]
    assert "requests are let through without it" in caplog.text


# Several rules and keys


async def test_a_request_without_a_key_is_charged_to_the_rest() -> None:
    """Over several rules and keys, a request without one of the keys is charged to the rest alone."""
    app = rules(Rule("/", "20/minute", key=header("x-api-key"), name="keys"), own="10/minute")
    ann = [(b"x-api-key", b"ann")]
    scopes = [http(headers=ann), http(), http(headers=ann), http(client=None, headers=ann), http(client=None)]
    reported = [(await ask(app, scope)).headers.get("ratelimit") for scope in scopes]
    assert reported == [
        '"per-minute";r=9;t=6, "keys per-minute";r=19;t=3',
        '"per-minute";r=8;t=6',
        '"per-minute";r=7;t=6, "keys per-minute";r=18;t=3',
        '"per-minute";r=17;t=3',
        None,
    ]


async def test_a_request_is_one_call_to_the_store() -> None:
    """Whatever the number of rules: one call, with one take that holds all charges."""
    calls = []

    class Noting(MemoryStore):
        async def take(self, takes: Any) -> Any:
            calls.append([len(take.charges) for take in takes])
            return await super().take(takes)

    store = Noting(clock=SteppedClock())
    each = [Rule("/", "20/minute"), Rule("/", tier, name="tier"), Rule("/", "1/day", shadow=True)]
    await ask(RateLimitMiddleware(ok, "10/minute", rules=each, store=store))
    assert calls == [[3, 1]]
