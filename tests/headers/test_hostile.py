"""Whatever a server sends, reading it raises nothing, and takes work in proportion to its size."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.headers import parse
from asgi_ratelimit.headers.header_values import LONGEST_VALUE, MAX_HEADERS, duration, number, unix_time
from asgi_ratelimit.profiles import PROFILES
from tests.headers.answers import EXAMPLES

NAMES = sorted({name for example in EXAMPLES.values() for name in example.headers} | {"date", "age", "ratelimit"})
VALUES = sorted({value for example in EXAMPLES.values() for value in example.headers.values()})
TEXTS = st.text(max_size=40) | st.sampled_from(VALUES) | st.text('0123456789-+.:,;="Tz @?()e%ms', max_size=30)
KEYS = st.sampled_from(["errors", "extensions", "code", "cost", "data", "rateLimit", "message", "retry_after"])
BODIES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner),
)


@given(
    st.sampled_from([200, 403, 429, 503, 529]),
    st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=20), TEXTS), max_size=12),
    st.sampled_from(sorted(PROFILES)),
    BODIES,
    st.none() | st.floats(0, 4e9),
)
def test_nothing_raises(
    status: int, headers: list[tuple[str, str]], profile: str, body: object, now: float | None
) -> None:
    """Every number of the result is a number from 0 up, and every delay is bounded."""
    result = parse(status, headers, profile=profile, body=body, now=now)
    numbers = [(each.limit, each.remaining, each.window, each.reset_after, each.refill) for each in result.limits]
    assert all(value is None or 0 <= value < math.inf for values in numbers for value in values)
    delays = [result.retry_after, *(each.reset_after for each in result.limits)]
    assert all(delay is None or 0 <= delay <= 900 for delay in delays)
    assert result.is_throttled or (result.retry_after is None and result.scope is None)


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=60)), max_size=8), st.text(max_size=120))
def test_bytes_and_texts_raise_nothing(headers: list[tuple[bytes, bytes]], text: str) -> None:
    """Headers as ASGI has them, of any bytes; and numbers, durations and dates are finite."""
    parse(429, headers)
    for read in (number, duration, unix_time):
        value = read(text)
        assert value is None or math.isfinite(value)


def steps(function: Callable[[], object]) -> int:
    """The lines of Python that a call executes, without what the garbage collector calls meanwhile."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


PATTERNS = ['"a";r=1, ', '"a";r=1;b;c', "a, ", "1;w=1, ", "a=1, ", ";", ",", " ", '"', '"\\"', "(", ":", "1s", "-"]


@pytest.mark.parametrize("profile", ["auto", "jira", "openai"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_answer_takes_bounded_work(profile: str, pattern: str) -> None:
    """Values that are too long are not read at all, nor are headers beyond the most."""
    longest = [(name, pattern * (LONGEST_VALUE // len(pattern))) for name in NAMES]
    endless = [(name, pattern * (20 * LONGEST_VALUE)) for name in NAMES]
    many = [(f"x-ratelimit-remaining-{number}", "1") for number in range(20 * MAX_HEADERS)]
    assert steps(lambda: parse(429, longest, profile=profile)) <= 300_000
    assert steps(lambda: parse(429, endless, profile=profile)) <= 5_000
    fewer = steps(lambda: parse(429, many[: 2 * MAX_HEADERS], profile=profile))
    assert steps(lambda: parse(429, many, profile=profile)) <= fewer + 100


def test_lines_of_one_name_are_bounded_together() -> None:
    """Many short lines are as good as a long one."""
    lines = [("ratelimit", '"a";r=1')] * MAX_HEADERS
    assert len(parse(200, lines).limits) == 64
    assert parse(200, [("ratelimit", '"a";r=1' + " " * 100)] * MAX_HEADERS).limits == ()


def test_a_deep_or_wide_body_is_read_in_part() -> None:
    """A path has as many steps as the profile says, and a list as many items as are read."""
    errors = [{"extensions": {"code": "OTHER"}}] * 1000 + [{"extensions": {"code": "THROTTLED"}}]
    assert not parse(200, {}, profile="shopify", body={"errors": errors}).is_throttled
    assert parse(200, {}, profile="shopify", body={"errors": errors[-1:]}).is_throttled
