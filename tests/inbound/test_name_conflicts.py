"""Rules of one name: they agree on what they do to their buckets, or the app does not start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from asgi_ratelimit import (
    ConfigurationError,
    MemoryStore,
    Overrides,
    Penalty,
    RateLimit,
    RateLimitMiddleware,
    Rule,
)
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok

pytestmark = pytest.mark.anyio


def one(connection: HTTPConnection) -> str:
    return "1/minute"


def two(connection: HTTPConnection) -> str:
    return "2/minute"


def limited(*rules: Rule, own: Any = None, **options: Any) -> RateLimitMiddleware:
    """An app with these rules, on a clock that stands still."""
    return RateLimitMiddleware(ok, own, rules=rules, **{"store": MemoryStore(clock=SteppedClock()), **options})


async def statuses(app: Any, count: int = 4) -> list[int]:
    return [(await ask(app)).status for _ in range(count)]


@pytest.mark.parametrize(
    ("first", "second", "quoted"),
    [
        (two, one, "two rules named 'both' have different quotas, two() and one(), "),
        (one, two, "two rules named 'both' have different quotas, one() and two(), "),
        ("2/minute", one, "two rules named 'both' have different quotas, 2/minute and one(), "),
        (one, "2/minute", "two rules named 'both' have different quotas, one() and 2/minute, "),
    ],
)
@pytest.mark.parametrize("path", ["/", "/elsewhere"])
def test_two_functions_for_one_name_are_refused(first: Any, second: Any, quoted: str, path: str) -> None:
    """Only one of their quotas would hold, so the error quotes both, and shows the remedy."""
    with pytest.raises(ConfigurationError) as raised:
        limited(Rule("/", first, name="both"), Rule(path, second, name="both"))
    assert str(raised.value).startswith(quoted)
    assert str(raised.value).endswith('would share a bucket: name one Rule(..., name="uploads")')


async def test_one_function_for_two_rules_is_one_limit() -> None:
    """It returns one quota for a request, so the request is charged once, and refused on time."""
    app = limited(Rule("/", two, name="both"), Rule("/{path:path}", two, name="both"))
    assert await statuses(app) == [200, 200, 429, 429]


@pytest.mark.parametrize("shadow_first", [True, False])
@pytest.mark.parametrize("quota", ["2/minute", two])
@pytest.mark.parametrize("path", ["/", "/elsewhere"])
def test_a_rule_in_shadow_of_an_enforced_one_s_name_is_refused(shadow_first: bool, quota: Any, path: str) -> None:
    """It would use up what the enforced rule promises."""
    rules = [Rule("/", quota, name="both"), Rule(path, quota, name="both", shadow=True)]
    with pytest.raises(ConfigurationError, match=r"two rules named 'both' have different effects, .*shadow=True"):
        limited(*(reversed(rules) if shadow_first else rules))


async def test_rules_of_one_name_in_shadow_count_once() -> None:
    """A request is charged to a bucket once, so what they would have refused is what they would refuse."""
    events: list[Any] = []
    trial = [Rule(path, "2/minute; 3/hour", name="trial", shadow=True) for path in ("/", "/{path:path}")]
    app = limited(*trial, Rule("/", "2/minute; 9/day", name="trial", shadow=True), hooks=[events.append])
    assert await statuses(app, 3) == [200] * 3
    seen = [(event.result, [charge.quota.name for charge in event.decision.take.charges]) for event in events]
    both, rest = ["per-minute", "per-hour"], ["per-day"]
    assert seen == [("allowed", both), ("allowed", rest)] * 2 + [("shadowed", both), ("allowed", rest)]


async def test_rules_of_one_name_under_an_override_to_shadow_count_once() -> None:
    """The dashboard then shows what enforcing them again would do."""
    store, events = MemoryStore(clock=SteppedClock()), []
    await Overrides(store).set("both", "shadow")
    rules = [Rule(path, "2/minute", name="both") for path in ("/", "/{path:path}")]
    app = limited(*rules, store=store, hooks=[events.append])
    assert await statuses(app, 3) == [200] * 3
    assert [event.result for event in events] == ["allowed", "allowed", "shadowed"]


def test_two_quotas_for_messages_of_one_name_are_refused() -> None:
    """The second one would be off."""
    rules = [Rule("/ws", None, messages=text, name="chat") for text in ("100/s", "2/s")]
    with pytest.raises(ConfigurationError, match=r"'chat messages' have different quotas .*\"100/sec.* and \"2/sec"):
        limited(*rules)


def test_rules_without_a_name_do_not_get_that_of_messages() -> None:
    """A path may end with the word; the second rule of one name has a number."""
    rules = [Rule("/chat", None, messages="3/hour"), Rule("/chat messages", "5/hour")]
    names = [[rule.name for rule in limited(*order).rule_table.rules] for order in (rules, rules[::-1])]
    assert names == [["default /chat", "default /chat messages 2"], ["default /chat messages", "default /chat 2"]]


def test_two_penalties_for_one_name_are_refused() -> None:
    """The second one would be off."""
    rules = [Rule("/", "2/minute", name="login", penalty=Penalty("1 hour", after=after)) for after in (50, 1)]
    with pytest.raises(ConfigurationError, match=r"'login' have different penalties, .*after=50.* and .*after=1,"):
        limited(*rules)


def test_one_penalty_for_one_of_two_rules_is_fine() -> None:
    """A rule may be named as another one with a penalty, and have none, or an equal one."""
    penalties = [Penalty("1 hour"), None, Penalty("1 hour")]
    app = limited(*[Rule("/", "2/minute", name="login", penalty=penalty) for penalty in penalties])
    assert len(app.rule_table.rules) == 3


async def test_a_part_that_is_named_as_the_route_of_another_is_refused() -> None:
    """Limits that are taken together may meet only when one of them is named after its route."""
    app = FastAPI()
    together = RateLimit.together(RateLimit("100/minute"), RateLimit("2/minute", name="GET /"))
    app.get("/", dependencies=[Depends(together)])(lambda: "hello")
    with pytest.raises(ConfigurationError, match=r"two rules named 'GET /' have different quotas"):
        await ask(app, http())


QUOTAS = st.sampled_from(["1/minute", "2/minute", one, two])

LIMITS = {"1/minute": 1, "2/minute": 2, one: 1, two: 2}


@given(st.lists(st.tuples(QUOTAS, st.sampled_from("ab"), st.booleans()), min_size=1, max_size=4))
def test_no_limit_is_ever_off(specified: list[tuple[Any, str, bool]]) -> None:
    """Whatever rules meet under whatever names, all that are enforced hold exactly, unless the app does not start."""
    try:
        app = limited(*[Rule("/", quota, name=name, shadow=shadow) for quota, name, shadow in specified])
    except ConfigurationError:
        sharing = [(name, quota, shadow) for quota, name, shadow in specified]
        assert len({name for name, *_ in sharing}) < len(set(sharing))
        return
    admitted = min([LIMITS[quota] for quota, _, shadow in specified if not shadow], default=4)
    assert asyncio.run(statuses(app)).count(200) == admitted
