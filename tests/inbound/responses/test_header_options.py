"""Options of headers: what they report beyond the usual."""

from __future__ import annotations

import math
from typing import Any

import http_sfv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError, FixedWindow, HeaderOptions, TokenBucket
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.keys import header
from tests.support.asgi import ask, http, limited, ok
from tests.support.decisions import decided, refusal

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000e6


def decision(*charges: Charge) -> Decision:
    return decided(Take(charges), NOW)


def rendered(options: HeaderOptions, *decisions: Decision) -> dict[str, str]:
    dialect = options.request_dialect()
    assert dialect is not None
    return {name.decode(): value.decode() for name, value in dialect(decisions)}


# Nearly there


@pytest.mark.parametrize(
    ("quota", "cost", "near"),
    [
        (FixedWindow(10, 0.1), 7, False),
        (FixedWindow(10, 0.1), 8, True),
        (TokenBucket(100, 60, burst=5), 1, False),
        (TokenBucket(100, 60, burst=5), 4, True),
        (TokenBucket(10, 60, burst=100), 80, True),
    ],
)
async def test_near_is_a_part_of_what_the_quota_grants_at_once(quota: Any, cost: float, near: bool) -> None:
    """Not of the units that its header states for a whole second, or for a whole period."""
    peer = await ask(limited(ok, quota, cost=cost, headers=HeaderOptions(near_limit=0.2)))
    assert peer.headers.get("x-ratelimit-nearlimit") == ("true" if near else None)


# When to come back


@given(st.floats(1e-6, 1e9), st.floats(0, 1))
def test_a_spread_wait_is_never_too_short_nor_much_too_long(seconds: float, spread: float) -> None:
    """From the exact time, rounded up, to that and its spread."""
    ((name, value),) = HeaderOptions(spread=spread).retry_after(refusal(seconds))
    assert name == b"retry-after"
    assert math.ceil(seconds) <= int(value) <= max(1, math.ceil(seconds * (1 + spread)))


@pytest.mark.parametrize("on_limited", [None, lambda connection, decision: ok], ids=["usual", "own"])
async def test_every_refusal_is_spread_out(on_limited: Any) -> None:
    """With an ``on_limited`` answer too."""
    app = limited(ok, "1/day", headers=HeaderOptions(spread=1), on_limited=on_limited)
    await ask(app)
    assert len({(await ask(app)).headers["retry-after"] for _ in range(50)}) > 10


# Whose bucket it is


async def test_a_partition_is_a_hash_of_the_key() -> None:
    """It is the same for all requests of a client, and reveals nothing to others."""
    app = limited(ok, key=header("x-client"), headers=HeaderOptions("both", partition_secret="s3cret"))
    ann, bob = ([(b"x-client", name)] for name in (b"ann", b"bob"))
    one, again, other = [(await ask(app, http(headers=headers))).headers for headers in (ann, ann, bob)]
    assert one["ratelimit-policy"] == again["ratelimit-policy"] != other["ratelimit-policy"]
    assert one["ratelimit-policy"].startswith('"per-minute";q=10;w=60;pk=:')
    assert one["ratelimit"].startswith('"per-minute";r=9;t=6;pk=:')
    assert one["ratelimit"].partition(";pk=")[2] == one["ratelimit-policy"].partition(";pk=")[2]
    assert one["x-ratelimit-remaining"] == "9"


CHARGES = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), st.text(max_size=200)),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
)


@given(CHARGES, st.text(min_size=1))
def test_another_parser_reads_partitions(charges: list[tuple[str, str]], secret: str) -> None:
    """Whatever keys, names and secret are: each item has its name, its numbers, and nine bytes."""
    decisions = [decision(Charge(TokenBucket(10, 60), key, 1, name)) for name, key in charges]
    plain = HeaderOptions().request_dialect()
    assert plain is not None
    for name, value in rendered(HeaderOptions(partition_secret=secret), *decisions).items():
        items, without = http_sfv.List(), http_sfv.List()
        items.parse(value.encode())
        without.parse(dict(plain(decisions))[name.encode()])
        assert [len(item.params.pop("pk")) for item in items] == [9] * len(charges)
        assert [(item.value, dict(item.params)) for item in items] == [(e.value, dict(e.params)) for e in without]


@pytest.mark.parametrize(
    "wrong",
    [
        {"dialect": "draft-03"},
        {"near_limit": 2},
        {"spread": -0.1},
        {"spread": float("nan")},
        {"partition_secret": ""},
    ],
    ids=repr,
)
def test_wrong_values_raise_at_once(wrong: Any) -> None:
    """The error quotes them."""
    (value,) = wrong.values()
    with pytest.raises(ConfigurationError, match=f"not {value!r}"):
        HeaderOptions(**wrong)


def test_no_secret_is_shown() -> None:
    """Neither in a log nor in an error."""
    assert "s3cret" not in repr(HeaderOptions(partition_secret="s3cret"))
