"""What real APIs say of their limits, and what becomes of values that are old, wrong or absurd."""

from __future__ import annotations

import math
from dataclasses import replace
from email import message_from_string

import httpx
import pytest

from asgi_ratelimit.headers import MAX_DELAY, ServerLimit, ServerLimits, parse
from tests.headers.answers import DATE, EXAMPLES, SERVER_NOW, Example

RECOGNISED = {name: example for name, example in EXAMPLES.items() if example.auto and example.profile != "auto"}


@pytest.mark.parametrize("clock_error", [0.0, 600.0])
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_an_answer_of_a_real_api(example: Example, clock_error: float) -> None:
    """It means the same whether the client's clock is right or ten minutes fast."""
    assert_meaning(example, example.profile, SERVER_NOW + clock_error)


@pytest.mark.parametrize("example", RECOGNISED.values(), ids=RECOGNISED)
def test_an_api_is_recognised_by_its_headers(example: Example) -> None:
    """Without a declared profile, the answer means the same."""
    assert_meaning(example, "auto", SERVER_NOW)


def assert_meaning(example: Example, profile: str, now: float) -> None:
    """That a profile reads in an example what it means, but for the noise of differences of floats."""
    headers = {"date": DATE, **example.headers}
    actual = parse(example.status, headers, profile=profile, body=example.body, now=now, max_delay=math.inf)
    resets = [limit.reset_after for limit in example.limits]
    assert [limit.reset_after for limit in actual.limits] == pytest.approx(resets, abs=1e-6)
    limits = [replace(limit, reset_after=after) for limit, after in zip(actual.limits, resets)]
    assert limits == list(example.limits)
    assert actual.is_throttled == (example.wait is not ...)
    assert actual.retry_after == (pytest.approx(example.wait) if actual.is_throttled else None)
    assert (actual.scope, actual.covers_all) == (example.scope, example.covers_all)


def read(headers: dict[str, str], status: int = 200, **options: object) -> ServerLimits:
    """What ``auto`` reads in an answer with a date."""
    return parse(status, {"date": DATE, **headers}, **options)  # type: ignore[arg-type]


# What counts before what


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "20", "x-ms-retry-after-ms": "1500", "retry-after": "2"}, 0.02),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "7, 7"}, 7.0),  # the lines of an app and of a proxy
        ({"retry-after": "1,000"}, None),
        ({"retry-after": "5", "ratelimit": '"default";r=0;t=9'}, 5.0),
        ({"ratelimit": '"default";r=3;t=9'}, None),
        ({"ratelimit": '"a";r=0;t=9, "b";r=0;t=20, "c";r=1;t=50'}, 20.0),
        ({"retry-after": "Thu, 26 Mar 2026 15:59:00 GMT"}, 0.0),
        ({"retry-after": "1774540800"}, 30.0),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else None,
)
def test_the_wait_of_a_refusal(headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds come before ``Retry-After``, and that before the limits that are exhausted, the slowest of them."""
    assert read(headers, 429).retry_after == seconds


def test_the_newest_draft_comes_before_other_headers_and_policies_alone_come_last() -> None:
    """A server that sends both means one limit, and what remains is worth more than what the policy is."""
    others = {"x-ratelimit-remaining": "3"}
    policy = {"ratelimit-policy": '"api";q=5;w=1'}
    assert [limit.name for limit in read({"ratelimit": '"api";r=5;t=1', **others}).limits] == ["api"]
    assert read({**policy, **others}).limits == (ServerLimit(remaining=3),)
    assert read(policy).limits == (ServerLimit(name="api", limit=5, window=1, reset_means="next unit"),)
    assert read({"ratelimit-policy": "5;w=1"}).limits == (ServerLimit(limit=5, window=1),)


def test_items_belong_together_by_name_and_partition() -> None:
    """Two partitions of one policy are two limits; a policy without a partition is that of all."""
    headers = {
        "ratelimit-policy": '"user";q=10;w=1;pk=:YQ==:, "user";q=20;w=1;pk=:Yg==:, "all";q=90;w=1',
        "ratelimit": '"user";r=2;pk=:Yg==:, "user";r=1;pk=:YQ==:, "all";r=5;pk=:YQ==:',
    }
    limits = read(headers).limits
    assert [(limit.name, limit.bucket, limit.limit, limit.remaining) for limit in limits] == [
        ("user", "Yg==", 20, 2),
        ("user", "YQ==", 10, 1),
        ("all", "YQ==", 90, 5),
    ]


# Clocks


def test_a_time_since_1970_needs_a_date() -> None:
    """The local clock may be wrong, so it counts only where the caller vouches for it."""
    headers = {"x-ratelimit-remaining": "3", "x-ratelimit-reset": str(SERVER_NOW + 30)}
    assert parse(200, headers).limits[0].reset_after is None
    assert parse(200, headers, now=SERVER_NOW).limits[0].reset_after == 30.0


def test_what_comes_from_a_cache_is_old() -> None:
    """Its limits are ignored, and a date in it counts from now, not from when the answer was stored."""
    headers = {"ratelimit": '"default";r=0;t=9', "retry-after": "Thu, 26 Mar 2026 16:00:30 GMT"}
    assert len(read({**headers, "age": "0"}).limits) == 1
    assert read({**headers, "age": "20"}).limits == ()
    assert read({**headers, "age": "20"}, 429).retry_after == 40.0


# Bounds


def test_a_delay_is_bounded() -> None:
    """By 15 minutes, or as the caller says; the server's word is there for those who ask."""
    headers = {"retry-after": "7999", "ratelimit": '"default";r=0;t=1000000'}
    usual, raw = read(headers, 429), read(headers, 429, max_delay=math.inf)
    assert (usual.retry_after, usual.limits[0].reset_after) == (MAX_DELAY, MAX_DELAY) == (900.0, 900.0)
    assert (raw.retry_after, raw.limits[0].reset_after) == (7999.0, 1_000_000.0)
    assert read(headers, 429, max_delay=60.0).retry_after == 60.0


UNREADABLE = {
    "x-ratelimit-remaining": ["", "many", "nan", "inf", "0x10", "1_000", "9" * 30, "1e40", "²", "1 2", "--1"],
    "ratelimit": ['"default"', '"default";r', '"default";r=-1', "default=1", '"default";r=1,', "1;r=1", '"";r=1'],
}


@pytest.mark.parametrize(("header", "value"), [(name, value) for name, each in UNREADABLE.items() for value in each])
def test_what_does_not_parse_is_ignored(header: str, value: str) -> None:
    """A wrong value is as good as none."""
    assert read({header: value}).limits == ()


def test_numbers_are_bounded_by_0() -> None:
    """Some servers count on below 0, and some write a limit of -1 for what is not limited; others write decimals."""
    for text, remaining in {"-1": 0.0, "598.0": 598.0, " 7 ": 7.0}.items():
        assert read({"x-ratelimit-remaining": text}).limits == (ServerLimit(remaining=remaining),)
        assert read({"x-ratelimit-limit": "-1", "x-ratelimit-remaining": text}).limits == ()


def test_there_are_64_limits_at_most() -> None:
    """A server cannot fill the memory of its client."""
    headers = {f"x-ratelimit-remaining-n{number}": "1" for number in range(200)}
    assert len(read(headers).limits) == 64


# Forms of headers


@pytest.mark.parametrize(
    "headers",
    [
        {"RateLimit": '"a";r=1, "b";r=2'},
        [(b"RateLimit", b'"a";r=1'), (b"ratelimit", b'"b";r=2')],
        [("ratelimit", '"a";r=1'), ("RATELIMIT", '"b";r=2')],
        httpx.Headers([("RateLimit", '"a";r=1'), ("RateLimit", '"b";r=2')]),
        message_from_string('RateLimit: "a";r=1\nratelimit: "b";r=2\n'),
    ],
    ids=["mapping", "bytes", "texts", "httpx", "urllib"],
)
def test_headers_come_in_several_forms(headers: object) -> None:
    """Names are in any case, and the lines of one name are one list."""
    limits = parse(200, headers).limits  # type: ignore[arg-type]
    assert [(limit.name, limit.remaining) for limit in limits] == [("a", 1), ("b", 2)]


# What a limit answers


FULL = ServerLimit(limit=60, remaining=0, reset_after=60, reset_means="full refill")


@pytest.mark.parametrize(
    ("limit", "units", "seconds"),
    [
        (FULL, 1, 1.0),
        (FULL, 90, 60.0),
        (replace(FULL, remaining=30), 31, 2.0),
        (replace(FULL, reset_means="window end"), 1, 60.0),
        (replace(FULL, refill=2.0), 5, 2.5),
        (replace(FULL, remaining=None), 1, None),
        (replace(FULL, reset_after=None, window=10.0), 1, 10.0),
    ],
)
def test_the_wait_for_units_goes_by_the_meaning_of_the_reset(
    limit: ServerLimit, units: float, seconds: float | None
) -> None:
    """Until a full refill, units come back one by one; a window gives all of them at its end."""
    assert limit.wait(units) == seconds


@pytest.mark.parametrize("max_delay", [0.0, -1.0, math.nan])
def test_a_wrong_bound_is_refused(max_delay: float) -> None:
    """... with a right example."""
    with pytest.raises(ValueError, match=r"not (0\.0|-1\.0|nan): max_delay=900\.0"):
        read({}, max_delay=max_delay)
