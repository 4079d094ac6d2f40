"""Windows as text, several quotas in one text, and quotas explained in plain words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import FixedWindow, InFlight, Quota, QuotaError, RollingWindow, TokenBucket
from asgi_ratelimit.quota_text import as_quotas, explain, parse_quotas, readable

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "quotas"),
    [
        ("1000/hour fixed", [FixedWindow(1000, 3600)]),
        ("100 per 15 minutes fixed", [FixedWindow(100, 900)]),
        ("5000/day rolling", [RollingWindow(5000, DAY, 60)]),
        ("10/s rolling", [RollingWindow(10, 1, 50)]),  # 60 parts of a second are not whole microseconds
        ("10/0.000007 s rolling", [RollingWindow(10, 0.000007, 7)]),
        ("10/minute rolling 12", [RollingWindow(10, 60, 12)]),
        ("5 at once", [InFlight(5)]),
        ("100/minute; 5 At Once", [TokenBucket(100, 60), InFlight(5)]),
        (
            "10/s burst 20; 1000/hour fixed; 5000/day rolling 24",
            [TokenBucket(10, 1, 20), FixedWindow(1000, 3600), RollingWindow(5000, DAY, 24)],
        ),
    ],
)
def test_windows_as_text(text: str, quotas: list[Quota]) -> None:
    """The kind comes after the rate, and after ``rolling`` the number of parts: by default as many as fit, up to 60."""
    assert list(parse_quotas(text)) == quotas


@given(st.integers(1, 400 * DAY * 10**6))
def test_any_period_has_parts(period_us: int) -> None:
    """The parts of a rolling window are whole microseconds, whatever its period."""
    (quota,) = parse_quotas(f"10/{period_us / 1e6:.6f} s rolling")
    assert isinstance(quota, RollingWindow)
    assert (quota.part_us * quota.buckets, quota.part_us % 1) == (period_us, 0)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("10/s rolling 10 parts", 16, "'parts' is not expected"),
        ("10/s fixed 12", 11, "'12' is not expected"),
        ("fixed", 0, "'fixed' is not a limit"),
        ("10/s fixed;", 11, "'10/s fixed;': a limit such as 100 is missing"),
        ("; 100/minute", 0, "'; 100/minute': a limit such as 100 is missing"),
        ("5/day;;5/hour", 6, "a limit such as 100 is missing"),
        ("10 requests per minute", 3, '\'requests\' is not "/" or "per"'),
        ("10/s burst=20", 10, "'=' is not a burst such as 20"),
        ("5/month", 2, "'month' is not a unit of time: s, m, h, d or week"),
        ("", 0, "is missing"),
        ("-5/s", 0, "'-'"),
        ("10 per", 6, "a unit of time is missing"),
        ("5 at 1ce", 5, "'1' is not \"once\""),
        ("١٠/s", 0, "'١'"),
    ],
)
def test_a_wrong_text_is_pointed_at(text: str, column: int, message: str) -> None:
    """The error quotes the text, says what is wrong, points at the place, and shows valid examples."""
    with pytest.raises(QuotaError) as raised:
        parse_quotas(text)
    first, quoted, pointer, examples = str(raised.value).split("\n")
    assert first.startswith(repr(text))
    assert message in first
    assert (quoted, pointer.index("^")) == (f"    {text}", 4 + column)
    assert '"1000/hour fixed", "5000/day rolling"' in examples


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5/s fixed", "limit must be at least 1 and at most 2**53, not 0.5"),
        ("10/500 days fixed", "400 days"),
        (f"5 per {'9' * 400} weeks rolling", "period must be"),
        ("10/s rolling 0", "buckets must be a whole number from 1 to 1000, not 0"),
        ("10/m; 10/s rolling 7", "7 buckets do not divide a period of 1000000 microseconds evenly, 5 do"),
        ("1/week burst 1000000000", "over a hundred years to fill: lower the burst, or raise the limit"),
        ("100/minute burst 0", "burst must be at least 1 and at most 2**53, not 0"),
    ],
)
def test_a_text_with_wrong_numbers_is_quoted(text: str, message: str) -> None:
    """Numbers that are out of range raise the error of the quota itself, with the text in front and other examples."""
    with pytest.raises(QuotaError) as raised:
        parse_quotas(text)
    assert str(raised.value).startswith(f"{text!r}: ")
    assert message in str(raised.value)
    assert str(raised.value).endswith('"5000/day rolling", "100 per 15 minutes", "5 at once".')


WORDS = ["10", "0", "2.5", "1001", "/", " per ", "s", " m", "day", " fixed", " rolling", " 12", " burst", " at once"]
WORDS += [";", "-", " x"]


@given(st.lists(st.sampled_from(WORDS), max_size=8).map("".join))
def test_any_text_gives_quotas_or_a_quota_error(text: str) -> None:
    """No text raises anything else."""
    try:
        assert parse_quotas(text)
    except QuotaError as error:
        assert repr(text) in str(error)  # noqa: PT017  # most texts are wrong, and some are right


SLOWLY = "At most 5 at once, earned back at 10 per 15 minutes (the burst at 0.5 times that); "
SLOWLY += "in any 15 minutes up to 15 may pass."
IN_WINDOWS = "At most 1000 in each hour, in windows aligned to the Unix epoch; "
IN_WINDOWS += "around a border of two windows up to 2000 may pass within that time."


@pytest.mark.parametrize(
    ("quota", "message"),
    [
        ("10/s burst 20", "At most 20 at once, earned back at 10 per second; in any second up to 30 may pass."),
        (TokenBucket(10, 900, 5, 0.5), SLOWLY),
        ("1000/hour fixed", IN_WINDOWS),
        (
            "5000/day rolling 24",
            "At most 5000 in any day, without exception; a unit may count for up to 3600 seconds longer than that.",
        ),
        ("5 at once", "At most 5 at once, each of them until it ends."),
    ],
)
def test_a_quota_is_explained(quota: Quota | str, message: str) -> None:
    """In one sentence: what passes at once, how it is earned back, and the most that may pass in one period."""
    assert explain(quota) == message


@pytest.mark.parametrize(
    ("quota", "shown"),
    [
        (TokenBucket(10, 60, name="login"), '"10/minute"'),
        (RollingWindow(5000, 86_400), '"5000/day rolling"'),
        (InFlight(5), '"5 at once"'),
        (InFlight(5, retry_after=3.0), "InFlight(limit=5, "),
        (TokenBucket(10, burst=20, burst_allowance_factor=0.5), "TokenBucket(limit=10, period=1.0, burst=20, "),
    ],
    ids=["a name", "a window", "in flight", "no text says when to try again", "what no text says"],
)
def test_a_quota_in_a_message(quota: Quota, shown: str) -> None:
    """It is shown as text, or as it is written in Python where a text cannot say it."""
    assert readable(quota).startswith(shown)


@pytest.mark.parametrize("wrong", [None, 10, b"5/minute", {"minute": 5}, iter(["5/minute"]), []])
def test_what_is_no_list_of_quotas_is_quoted_as_a_whole(wrong: Any) -> None:
    """Not as the number of its first byte, or as its first key; an iterator could be read only once."""
    with pytest.raises(QuotaError, match=re.escape(f'not {wrong!r}: "100/minute"')):
        as_quotas(wrong)
