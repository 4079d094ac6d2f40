"""Whatever a server sends, reading it raises nothing, and takes work in proportion to its size.

Lists are read as by a parser that is not ours.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from types import FrameType
from typing import Any

import http_sfv
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asgi_ratelimit.headers import parse
from asgi_ratelimit.headers.header_values import LONGEST_VALUE, MAX_HEADERS, duration, number, parse_list, unix_time
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


LISTS = [
    '"a";q=1;w=60, "b"',
    '"a" ,\t"b"',
    '"a";  q=1',
    '"a;q=1, \\"\\\\";r=2',
    "100, 100;w=60",
    "-1.5;a;b=?0;c=tok/en",
    '"a";pk=:dHJpYWwxMjEzMjM=:',
    '"a";q=1;q=2',
    "999999999999999",
]
MALFORMED = ['"a",', '"a" "b"', '"a" ;q=1', '"a";Q=1', '"a";q=', '"a', '"ä"', '"\\a"', "1000000000000000", "1.2345"]
MALFORMED += ["--1", "(1 2)", '"a";pk=:a:', "?2", '"a"\t;q=1', '%"%C3"']
PIECES = st.sampled_from(
    ['"a"', '"b\\""', "a", "1", "-2.5", ";", "; ", ",", ", ", "=", "q", "=1", ":YQ==:", "?1", " ", "\t", "*"]
)


def assert_agreement(text: str) -> None:
    """That both parsers read the same items, or that neither reads any."""
    other = http_sfv.List()
    try:
        other.parse(text.encode())
    except ValueError:
        other = []
    items = [(plain(item.value), {name: plain(each) for name, each in item.params.items()}) for item in other]
    assert [tuple(item) for item in parse_list(text)] == items


def plain(value: object) -> object:
    """A value of the other parser as one of ours: what is neither a number nor a string is as it is written."""
    if isinstance(value, bool):
        return "?1" if value else "?0"
    if isinstance(value, int | Decimal):
        return float(value)
    return ":YQ==:" if value == b"a" else ":dHJpYWwxMjEzMjM=:" if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize("text", LISTS + MALFORMED)
def test_lists(text: str) -> None:
    """One error anywhere, and there is no value at all."""
    if "(" not in text:  # an inner list, which no header of limits has
        assert_agreement(text)
    assert bool(parse_list(text)) == (text in LISTS)


@given(st.lists(PIECES, min_size=1, max_size=12).map(lambda pieces: "".join(pieces).strip(" \t")))
def test_both_parsers_agree(text: str) -> None:
    """On what is a list, and on its members."""
    assume(text)
    assert_agreement(text)


def test_other_types_do_no_harm() -> None:
    """A date and a display string, which the other parser does not know, are parameters like any other."""
    (item,) = parse_list('"a";q=1;since=@1659578233;title=%"f%c3%bc"')
    assert (item.value, item.number("q"), item.parameters["since"]) == ("a", 1.0, "@1659578233")
