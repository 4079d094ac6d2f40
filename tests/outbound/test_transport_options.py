"""Options of a transport: keys and costs by quota, costs above the burst, margins, hooks."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from asgi_ratelimit import ConfigurationError, FixedWindow, PacedTransport, TokenBucket
from asgi_ratelimit.outbound.paced_transport import host
from tests.support.names import named
from tests.support.paced_clients import OTHER, URL, Client

OWN = TokenBucket(10, burst=1, name="own")
ALL = TokenBucket(20, burst=1, name="all")
TOKENS = TokenBucket(10, burst=10, name="tokens")


def test_a_mapping_has_a_key_for_each_quota(client: Client) -> None:
    """Functions of the request, and values, as in ``@pace``; the last quota is shared by all hosts."""
    client.get(URL, OTHER, URL, OTHER, quota=[OWN, ALL], key={"own": host, "all": "everybody"})
    assert client.service.times == [0.0, 0.05, 0.1, 0.15]


def test_a_mapping_has_a_cost_for_each_quota(client: Client) -> None:
    """Only the quotas that it names are charged."""
    cost = {"tokens": lambda request: 10 if request.url.path == "/large" else 1}
    client.get(f"{URL}large", URL, URL, quota=[OWN, TOKENS], cost=cost)
    assert client.service.times == [0.0, 0.1, 0.2]


async def with_async(request: Any) -> Any: ...


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": with_async},
        {"cost": with_async},
        {"key": {"own": host, "al": "x"}},
        {"key": None},
        {"cost": {"token": 1}},
        {"oversize": "drop"},
        {"oversize": "raise", "cost": 2},
        {"margin": 1},
        {"hooks": [5]},
        {"max_delay": -1},
        {"concurrency": 0},
        {"retries": -1},
        {"settle": "usage"},
    ],
    ids=named,
)
def test_what_can_never_be_right_is_refused_at_once(wrong: dict[str, Any]) -> None:
    """Not at the first request, and not in silence."""
    with pytest.raises((ConfigurationError, ValueError, TypeError)):
        PacedTransport(httpx.HTTPTransport(), [OWN, ALL], **wrong)


def test_a_cost_above_the_burst_may_raise(client: Client) -> None:
    """Before anything is booked; the error quotes the cost and the quota."""
    large = {"method": "GET", "url": URL, "extensions": {"pace": {"cost": 5}}}
    with pytest.raises(ValueError, match='a cost of 5 is above the 1 units that "10/second burst 1" admits'):
        client.get(large, oversize="raise")
    client.get(URL, oversize="raise")
    assert client.service.times == [0.0]


def test_a_window_keeps_at_least_one_unit(client: Client) -> None:
    """Whatever the margin is."""
    client.get(URL, URL, quota=FixedWindow(1, 1), margin=0.05)
    assert client.service.times == [0.0, 1.0]
