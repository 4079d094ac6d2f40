"""The headers that tell a client its limits, read back by our parser and by one that is not ours."""

from __future__ import annotations

import math
import string

import http_sfv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, Decision, Take
from asgi_ratelimit.algorithms.token_bucket import TokenBucketState
from asgi_ratelimit.headers import HeaderOptions, parse
from asgi_ratelimit.headers.header_rendering import LARGEST, both, draft, legacy, policy
from asgi_ratelimit.quotas import MAX_UNITS, SECOND_US, TokenBucket
from tests.support.decisions import decided, refusal
from tests.support.strategies import quotas

NOW = 1_800_000_000e6


@pytest.mark.parametrize(
    ("quota", "units", "seconds"),
    [
        (TokenBucket(10, 1, burst=25), 25, 3),
        (TokenBucket(100, 60, burst=150), 150, 90),
        (TokenBucket(1, 3600, burst=1.5), 2, 5400),
        (TokenBucket(2.5, 1, burst=2), 3, 1),
        (TokenBucket(10, 0.1), 100, 1),
        (TokenBucket(1, 400 * 86_400), 1, 400 * 86_400),
        (TokenBucket(MAX_UNITS, 1e-6), LARGEST, 1),
    ],
    ids=repr,
)
def test_a_quota_is_units_in_whole_seconds(quota: TokenBucket, units: int, seconds: int) -> None:
    """The limit in its period, scaled up to whole seconds, or a burst above it in the time that it takes to fill."""
    assert policy(quota) == (units, seconds)


def test_quotas_of_one_name_are_told_by_their_own_limiters() -> None:
    """Also where the same quotas were told of other limiters a moment ago."""
    quotas = [TokenBucket(100, 60), TokenBucket(20, 60)]
    for limiters in [("api", "login"), ("api", "search"), ("api", "login")]:
        take = Take(tuple(Charge(quota, "key", 1, limiter) for quota, limiter in zip(quotas, limiters)))
        told = dict(draft([decided(take, NOW)]))
        assert told[b"ratelimit"] == b'"per-minute";r=99;t=1, "%b per-minute";r=19;t=3' % limiters[1].encode()


@pytest.mark.parametrize(
    ("more_after", "t"), [(0.0, 0), (1e-6, 1), (0.999999, 1), (1.0, 1), (1.000001, 2), (59.1, 60), (86_400.0, 86_400)]
)
def test_times_are_whole_seconds_rounded_up(more_after: float, t: int) -> None:
    """``t`` is when more becomes available, never too early, and 0 where nothing is missing."""
    take = Take((Charge(TokenBucket(1, 86_400, burst=1), "key"),))
    decision = Decision(take, True, 0.0, [TokenBucketState(more_after / 86_400, NOW, NOW, 0.0)], NOW, id=1)
    told = dict(draft([decision]))[b"ratelimit"]
    assert told == b'"per-day";r=%d;t=%d' % (0 if more_after else 1, t)


@pytest.mark.parametrize(
    ("seconds", "value"),
    [(1e-6, b"1"), (1.0, b"1"), (1.000001, b"2"), (59.9, b"60"), (1e9, b"1000000000"), (math.inf, None)],
)
def test_retry_after_is_whole_seconds_rounded_up(seconds: float, value: bytes | None) -> None:
    """A client that comes back then is let in. For never, no number of seconds would be true."""
    assert HeaderOptions().retry_after(refusal(seconds)) == ([(b"retry-after", value)] if value else [])


# Other dialects


def charged(name: str | None, quota: TokenBucket, cost: float = 1, key: str = "key") -> Decision:
    return decided(Take((Charge(quota, key, cost, name),)), NOW)


def test_quotas_of_one_name_are_told_apart() -> None:
    """The first keeps its name, later ones get that of their limiter, and a number if need be."""
    quota = TokenBucket(10, 60)
    decisions = [charged("one", quota), charged("two", quota), charged("two", quota), charged(None, quota)]
    told = [name for name, _ in parsed(dict(draft(decisions))[b"ratelimit"])]
    assert told == ["per-minute", "two per-minute", "two per-minute 2", "default per-minute"]


Parsed = list[tuple[str, dict[str, int]]]


def parsed(value: bytes) -> Parsed:
    """The items of a structured-field list: their texts and parameters."""
    items = http_sfv.List()
    items.parse(value)
    return [(item.value, dict(item.params)) for item in items]


NAMES = st.text(string.printable[:95], min_size=1, max_size=64)
LIMITERS = st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=4)


@given(LIMITERS, NAMES)
def test_another_parser_reads_the_names_of_limiters_of_any_content(limiters: list[str], name: str) -> None:
    """Where they must tell quotas of one name apart, whatever they hold becomes a text that headers may have."""
    decisions = [charged(limiter, TokenBucket(10, 60, name=name)) for limiter in limiters]
    for value in dict(draft(decisions)).values():
        assert len({each for each, _ in parsed(value)}) == len(limiters)


# Read back by what reads the headers of servers


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """A decision on a take of up to four quotas, of any names, after some others."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    take = Take(tuple(Charge(draw(quotas(name)), "key", 1) for name in names))
    decision = decided(take, NOW)
    for _ in range(draw(st.integers(0, 5))):
        decision = decided(take, NOW, decision.stored)
    return decided(take, NOW + draw(st.integers(0, 10_000_000)), decision.stored)


@given(decisions())
def test_what_is_rendered_is_read_back(decision: Decision) -> None:
    """Every quota: its name, its policy, what is left and when there is more, whatever else the answer says."""
    for headers in (draft([decision]), both([decision])):
        limits = parse(200, headers, max_delay=math.inf).limits
        assert [(limit.name, limit.limit, limit.window, limit.remaining, limit.reset_after) for limit in limits] == [
            (state.quota.name, *policy(state.quota), min(state.remaining, LARGEST), math.ceil(state.more_after))
            for state in decision.states
        ]
    (limit,) = parse(200, legacy([decision]), now=decision.now_us / SECOND_US, max_delay=math.inf).limits
    assert (limit.limit, limit.remaining) == (policy(decision.quota)[0], min(decision.remaining, LARGEST))
    assert limit.reset_after is not None
    assert -1e-6 <= limit.reset_after - decision.reset_after <= 1 + 1e-6


@pytest.mark.parametrize(("few", "more"), [(0, 1), (1, 0)])
def test_of_several_decisions_the_one_with_the_least_left_is_told(few: int, more: int) -> None:
    """... unless one refuses: then that is it."""
    decisions = [charged(None, TokenBucket(10)), charged(None, TokenBucket(100, 60))]
    assert legacy([decisions[few], decisions[more]])[1][1] == b"9"
    refused = charged(None, TokenBucket(50), 51)
    assert legacy([*decisions, refused])[0][1] == b"50"
