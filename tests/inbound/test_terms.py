"""From the lines that apply to a request to its bill: found again for who comes again, and never for anybody else."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import HTTPConnection

from asgi_ratelimit import TokenBucket, client_ip
from asgi_ratelimit.buckets import LONGEST
from asgi_ratelimit.inbound import terms
from asgi_ratelimit.inbound.lines import Line
from asgi_ratelimit.inbound.terms import Terms
from asgi_ratelimit.keys import header
from tests.support.asgi import http

pytestmark = pytest.mark.anyio

QUOTA = (TokenBucket(10, 60),)


def asked_key(connection: HTTPConnection) -> str:
    return connection.headers["x-key"]


def by_tier(connection: HTTPConnection) -> str:
    return connection.headers.get("x-tier", "10/minute")


def by_cost(connection: HTTPConnection) -> float:
    return float(connection.headers.get("x-cost", 1))


def request(key: str, *more: tuple[bytes, bytes]) -> Any:
    return http(headers=[(b"x-key", key.encode()), *more])


async def test_who_comes_again_has_the_same_bill() -> None:
    """Whether the key is read off the scope, or a function is asked for it."""
    plain, asked = Terms([Line("api", QUOTA, header("x-key"))]), Terms([Line("api", QUOTA, asked_key)])
    assert plain.bill(request("alice")) is plain.bill(request("alice"))
    assert plain.bill(request("alice")) is not plain.bill(request("bob"))
    assert await asked.ask(request("alice")) is await asked.ask(request("alice"))
    assert await asked.ask(request("alice")) is not await asked.ask(request("bob"))


async def test_another_quota_or_cost_is_another_bill() -> None:
    """All that functions answer tells bills apart."""
    of_tier, of_cost = Terms([Line("api", by_tier, asked_key)]), Terms([Line("api", QUOTA, asked_key, by_cost)])
    bill = await of_tier.ask(request("alice", (b"x-tier", b"20/minute")))
    assert bill is not None
    assert [charge.quota.limit for charge in bill.takes[0].charges] == [20]
    assert bill is not await of_tier.ask(request("alice"))
    bill = await of_cost.ask(request("alice", (b"x-cost", b"3")))
    assert bill is not None
    assert [charge.cost for charge in bill.takes[0].charges] == [3]
    assert bill is not await of_cost.ask(request("alice"))


async def test_who_has_no_key_has_no_bill() -> None:
    """Each time."""
    plain = Terms([Line("api", QUOTA, header("x-key"))])
    assert [plain.bill(http(headers=[])) for _ in range(2)] == [None, None]


async def test_bills_of_long_keys_are_not_kept() -> None:
    """A client that makes up long keys cannot fill the memory with them."""
    asked = Terms([Line("api", QUOTA, asked_key)])
    kept, not_kept = "k" * LONGEST, "k" * (LONGEST + 1)
    assert await asked.ask(request(kept)) is await asked.ask(request(kept))
    assert await asked.ask(request(not_kept)) is not await asked.ask(request(not_kept))


@pytest.mark.parametrize(
    ("key", "filled"),
    [(header("x-key"), [True, False, False]), (asked_key, [False, True, False]), (client_ip(), [True, False, True])],
    ids=["plain", "asked", "client"],
)
async def test_no_more_bills_are_kept_than_there_is_room_for(
    key: Any, filled: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many clients come."""
    monkeypatch.setattr(terms, "MAX_BILLS", 10)
    several = Terms([Line("api", QUOTA, key)])
    for number in range(35):
        scope = http(client=(f"8.8.8.{number}", 1), headers=[(b"x-key", b"%d" % number)])
        assert (several.bill(scope) if several.is_plain else await several.ask(scope)) is not None
    kept = [several._bills, several._asked, several._by_peer]
    assert [0 < len(bills) <= 10 for bills in kept] == filled


@pytest.mark.parametrize("client", [5, (["192.0.2.1"], 1)], ids=["no pair", "no text"])
async def test_a_client_that_makes_no_sense_fails_like_any_key(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The request is let through without its limit, and the log says so."""
    assert Terms([Line("api", QUOTA, client_ip())]).bill({**http(), "client": client}) is None
    assert "a function of the rule 'api' failed" in caplog.text
