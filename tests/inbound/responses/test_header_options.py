"""Options of headers: what they report beyond the usual."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError, FixedWindow, HeaderOptions, TokenBucket
from asgi_ratelimit.keys import header
from tests.support.asgi import BODY, Peer, ask, http, limited, ok, sends
from tests.support.decisions import refusal

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize(
    "wrong",
    [{"dialect": "draft-03"}, {"near_limit": 2}, {"spread": -0.1}, {"spread": float("nan")}, {"partition_secret": ""}],
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


# The headers of the app


OWN = [(b"X-RateLimit-Limit", b"7"), (b"x-ratelimit-remaining", b"3")]


def saying(headers: Any) -> Any:
    return sends({"type": "http.response.start", "status": 200, "headers": headers}, BODY)


def listed(peer: Peer) -> list[tuple[bytes, bytes]]:
    return list(peer.starts[0]["headers"])


@pytest.mark.parametrize("headers", ["legacy", "both", HeaderOptions("legacy", near_limit=1)])
@pytest.mark.parametrize("kind", [list, tuple, iter])
async def test_the_apps_own_x_ratelimit_headers_are_the_only_ones(headers: Any, kind: Any) -> None:
    """All three are one set: none of the middleware's is added to a part of it."""
    peer = await ask(limited(saying(kind(OWN)), headers=headers))
    legacy = [each for each in listed(peer) if each[0].lower().startswith(b"x-ratelimit-") and b"near" not in each[0]]
    assert legacy == OWN
    assert ("ratelimit-policy" in peer.headers) == (headers == "both")
