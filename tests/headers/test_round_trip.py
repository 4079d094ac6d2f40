"""What this package renders, it reads back: the dialects of the middleware and ``parse`` are inverses."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.headers import DIALECTS, LARGEST, Header, ServerLimit, draft, legacy, parse, policy, quoted
from asgi_ratelimit.quotas import SECOND_US
from tests.support.decisions import decided
from tests.support.strategies import quotas

NOW_US = 1_800_000_000e6
NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """A decision on a take of up to four quotas, of any names, after some others."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    charges = tuple(Charge(draw(quotas(name)), "key", 1) for name in names)
    decision = decided(Take(charges), NOW_US)
    for _ in range(draw(st.integers(0, 5))):
        decision = decided(Take(charges), NOW_US, decision.stored)
    return decided(Take(charges), NOW_US + draw(st.integers(0, 10_000_000)), decision.stored)


def rendered(limits: tuple[ServerLimit, ...]) -> list[Header]:
    """Limits in the syntax of the newest draft."""
    policies = [f"{quoted(limit.name)};q={limit.limit:.0f};w={limit.window:.0f}" for limit in limits]
    standings = [f"{quoted(limit.name)};r={limit.remaining:.0f};t={limit.reset_after:.0f}" for limit in limits]
    return [(b"ratelimit-policy", ", ".join(policies).encode()), (b"ratelimit", ", ".join(standings).encode())]


@given(decisions())
def test_the_draft_is_read_back(decision: Decision) -> None:
    """Every quota: its name, its policy, what is left and when there is more; and written again, it is the same."""
    headers = list(draft((decision,)))
    limits = parse(200, headers, max_delay=math.inf).limits
    assert [(limit.name, limit.limit, limit.window) for limit in limits] == [
        (state.quota.name, *policy(state.quota)) for state in decision.states
    ]
    assert [(limit.remaining, limit.reset_after) for limit in limits] == [
        (min(state.remaining, LARGEST), math.ceil(state.more_after)) for state in decision.states
    ]
    assert rendered(limits) == headers


@given(decisions())
def test_the_legacy_headers_are_read_back(decision: Decision) -> None:
    """Of the quota that binds: its limit, what is left, and the seconds until it is as good as new, rounded up."""
    headers = legacy([decision])
    (limit,) = parse(200, headers, now=decision.now_us / SECOND_US, max_delay=math.inf).limits
    assert (limit.limit, limit.remaining) == (policy(decision.quota)[0], min(decision.remaining, LARGEST))
    assert limit.reset_after is not None
    assert -1e-6 <= limit.reset_after - decision.reset_after <= 1 + 1e-6


@given(decisions())
def test_both_dialects_at_once_are_read_as_the_draft(decision: Decision) -> None:
    """It says more than the legacy headers."""
    assert parse(200, DIALECTS["both"]([decision])) == parse(200, draft((decision,)))
