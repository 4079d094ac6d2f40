"""Quotas: which numbers and texts they are built from, how they are named, and how they compare."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, QuotaError
from asgi_ratelimit.quota_text import as_quotas, parse_quotas
from asgi_ratelimit.quotas import MAX_PERIOD, MAX_UNITS, FixedWindow, InFlight, Quota, RollingWindow, TokenBucket

NO_UNITS = [0, -1, -0.5, math.nan, math.inf, -math.inf, 2**53 + 1, 10**400, "10", b"10", None, True, [10], 1j]
DAY = 86_400


WRONG: dict[str, list[Any]] = {
    "limit": NO_UNITS,
    "burst": [burst for burst in NO_UNITS if burst is not None],
    "period": [*NO_UNITS, 0.9e-6, MAX_PERIOD * 1.01],
    "burst_allowance_factor": [0, -0.1, 1.0001, 2, math.nan, math.inf, "0.5", None, True],
}


@pytest.mark.parametrize(("name", "wrong"), [(name, each) for name in WRONG for each in WRONG[name]], ids=repr)
def test_a_number_that_cannot_be_is_refused(name: str, wrong: Any) -> None:
    """Units are finite and above 0, a period a microsecond to 400 days, a factor at most 1; an example is shown."""
    with pytest.raises(QuotaError, match=rf"{name} must be .*TokenBucket\("):
        TokenBucket(**{"limit": 10, name: wrong})


@pytest.mark.parametrize("limit", [0, 1001, 2.5, "5", None, True], ids=repr)
def test_so_many_at_once_are_a_whole_number(limit: Any) -> None:
    """From 1 to 1000; and whoever is refused waits for some time."""
    with pytest.raises(QuotaError, match=r"limit must be a whole number from 1 to 1000.*InFlight\(5, retry_after=10\)"):
        InFlight(limit)
    with pytest.raises(QuotaError, match=r"retry_after must be seconds .*InFlight\(5, retry_after=10\)"):
        InFlight(5, retry_after=0)


@pytest.mark.parametrize("name", ["", "x" * 65, "ümlaut", "two\nlines", "nul\0", b"reads", 5], ids=repr)
def test_a_name_is_1_to_64_printable_ascii_characters(name: Any) -> None:
    """A text that is not valid in a header is not valid as a name."""
    with pytest.raises(QuotaError, match="name must be"):
        TokenBucket(10, name=name)


@pytest.mark.parametrize(
    "numbers",
    [
        {"limit": 1e-300},
        {"limit": 1, "period": MAX_PERIOD, "burst": 100},
        {"limit": 1e-3, "burst": 2**53},
        {"limit": 10, "burst": 20, "burst_allowance_factor": 1e-12},
        {"limit": 10, "burst": 20, "burst_allowance_factor": 1e-320},
    ],
    ids=repr,
)
def test_a_bucket_fills_within_a_hundred_years(numbers: dict[str, float]) -> None:
    """Beyond that, microseconds are no longer exact, so the quota is refused."""
    with pytest.raises(QuotaError, match="hundred years to fill"):
        TokenBucket(**numbers)


@pytest.mark.parametrize(
    ("limit", "burst"), [(10, 10), (1, 1), (0.5, 1), (0.001, 1), (1.5, 1), (2.999, 2), (MAX_UNITS, MAX_UNITS)]
)
def test_the_default_burst_is_the_whole_part_of_the_limit(limit: float, burst: float) -> None:
    """It is at least 1."""
    assert TokenBucket(limit).burst == burst


@pytest.mark.parametrize(
    ("period", "name"),
    [
        (0.5, "per-0.5-seconds"),
        (90, "per-90-seconds"),
        (60, "per-minute"),
        (900, "per-15-minutes"),
        (30 * DAY, "per-30-days"),
        (7 * DAY, "per-week"),
    ],
)
def test_a_name_comes_from_the_period(period: float, name: str) -> None:
    """It does not change with the limit."""
    assert TokenBucket(10, period).name == TokenBucket(99, period, burst=7).name == name


def test_a_quota_can_be_replaced_and_copied() -> None:
    """A copy is equal; replacing a number keeps the name, and derives the other numbers again."""
    quota = TokenBucket(10, 60, 20)
    assert copy.deepcopy(quota) == quota
    assert dataclasses.replace(quota, burst=30) == TokenBucket(10, 60, 30)
    assert dataclasses.replace(quota, burst=30).floor == TokenBucket(10, 60, 30).floor


def test_a_quota_from_another_process_is_the_same() -> None:
    """Pickled by a process with other string hashes, it is equal to a quota built here, and has the same hash."""
    imports = "import pickle, sys; from asgi_ratelimit.quotas import TokenBucket"
    code = f"{imports}; sys.stdout.buffer.write(pickle.dumps(TokenBucket(10, 60)))"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    sent = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    assert {pickle.loads(sent)} == {TokenBucket(10, 60)}


@pytest.mark.parametrize(
    ("text", "quotas"),
    [
        ("100/minute", [TokenBucket(100, 60)]),
        ("10/s burst 20", [TokenBucket(10, 1, 20)]),
        ("100 per 15 minutes", [TokenBucket(100, 900)]),
        ("100/15minutes", [TokenBucket(100, 900)]),
        ("10/s; 1000/hour", [TokenBucket(10, 1), TokenBucket(1000, 3600)]),
        ("10/s;1000/hour burst 5;1/d", [TokenBucket(10), TokenBucket(1000, 3600, 5), TokenBucket(1, DAY)]),
        ("  10 / s  ", [TokenBucket(10)]),
        ("10 PER Second BURST 20", [TokenBucket(10, 1, 20)]),
        ("1_000/s", [TokenBucket(1000)]),
        ("0.5/s", [TokenBucket(0.5)]),
        ("2.5/1.5 hours burst 3.5", [TokenBucket(2.5, 5400, 3.5)]),
    ],
)
def test_a_text_is_parsed_to_quotas(text: str, quotas: list[TokenBucket]) -> None:
    """In the order of the text."""
    assert list(parse_quotas(text)) == quotas


@pytest.mark.parametrize(
    ("period", "units"),
    [
        (1, ["s", "sec", "second", "seconds"]),
        (60, ["m", "min", "minute", "minutes"]),
        (3600, ["h", "hour", "hours"]),
        (DAY, ["d", "day", "days"]),
        (7 * DAY, ["week", "weeks"]),
    ],
)
def test_units_of_time(period: float, units: list[str]) -> None:
    """Each unit has a short form, a singular and a plural."""
    assert {parse_quotas(f"10/{unit}") for unit in units} == {(TokenBucket(10, period),)}


@pytest.mark.parametrize("text", [None, 10, b"10/s", ["10/s"]], ids=repr)
def test_only_text_is_parsed(text: Any) -> None:
    """Anything else raises, with a valid example."""
    with pytest.raises(QuotaError, match="100/minute"):
        parse_quotas(text)


@pytest.mark.parametrize(
    ("text", "default_burst", "bursts"), [("10/s", None, [10]), ("10/s", 1, [1]), ("10/s burst 5; 7/m", 2, [5, 2])]
)
def test_the_default_burst_is_for_texts_without_one(
    text: str, default_burst: float | None, bursts: list[float]
) -> None:
    """A text's own burst comes first; without a default it is the limit."""
    assert [quota.burst for quota in parse_quotas(text, default_burst=default_burst)] == bursts


SECOND, MINUTE = TokenBucket(10), TokenBucket(100, 60)


@pytest.mark.parametrize(
    "quota",
    ["10/s; 100/minute", ["10/s", "100/minute"], ["10/s", MINUTE], (SECOND, MINUTE), [[SECOND], "100/m"]],
    ids=repr,
)
def test_a_quota_argument_is_a_text_a_quota_or_several(quota: Any) -> None:
    """All of these mean the same two quotas, in this order."""
    assert as_quotas(quota) == (SECOND, MINUTE)


@pytest.mark.parametrize("quota", ["10/s; 20/s", ["10/m", TokenBucket(5, 60)], "60/m; 1/60 s"], ids=repr)
def test_two_quotas_of_one_name_are_refused(quota: Any) -> None:
    """The error has the name, and shows how to give another one."""
    with pytest.raises(ConfigurationError, match=r"named 'per-.*': TokenBucket\(limit=(20|5|1), .*'my-per-"):
        as_quotas(quota)


@pytest.mark.parametrize(
    ("kind", "arguments", "problem"),
    [
        (RollingWindow, (10, 10, 7), r"7 buckets .* 10000000 microseconds.* 5 do: RollingWindow\(10, 10, 5\)"),
        (RollingWindow, (10, 1e-6, 2), "2 buckets do not divide a period of 1 microseconds.* 1 do"),
        (RollingWindow, (10, 10, 0), "buckets must be a whole number from 1 to 1000, not 0"),
        (RollingWindow, (10, 10, True), "not True"),
    ],
)
def test_invalid_parts(kind: type[Quota], arguments: tuple[float, ...], problem: str) -> None:
    """Parts are whole microseconds long; the error says which number of parts would do."""
    with pytest.raises(QuotaError, match=problem):
        kind(*arguments)


@pytest.mark.parametrize("kind", [FixedWindow, RollingWindow])
@pytest.mark.parametrize(
    ("limit", "period", "problem"),
    [
        (0, 10, "limit must be at least 1 and at most"),
        (math.nan, 10, "limit must be at least 1 and at most"),
        (0.5, 10, "limit must be at least 1 and at most .*, not 0.5"),
        (10, 0, "period must be seconds from 0.000001 to 400 days, not 0"),
        (10, 400 * 86_400 + 60, "period must be seconds from 0.000001 to 400 days, not 34560060"),
    ],
)
def test_invalid_windows(kind: type[FixedWindow | RollingWindow], limit: float, period: float, problem: str) -> None:
    """The error names the number, and shows a right one."""
    with pytest.raises(QuotaError, match=problem) as raised:
        kind(limit, period)
    assert f": {kind.__name__}(1000, 3600" in str(raised.value)


@pytest.mark.parametrize("period", [16_985_629.226564, 34_559_999.999999, 0.000001, 1e-3, 400 * 86_400])
def test_any_period_of_whole_microseconds_is_taken(period: float) -> None:
    """However long it is, though a double holds its microseconds only nearly."""
    assert FixedWindow(1, period).period_us == round(period * 1e6)
