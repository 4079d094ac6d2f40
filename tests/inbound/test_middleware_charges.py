"""What the middleware charges: whose key, how much, and to which quotas."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import lowlevel
from starlette.requests import HTTPConnection

from asgi_ratelimit import TokenBucket
from tests.support.asgi import CLIENT, ask, http, limited, ok

pytestmark = pytest.mark.anyio


class Tenant:
    """A key function that is an object."""

    async def __call__(self, connection: HTTPConnection) -> str:
        return connection.headers["x-tenant"]


def tenant(connection: HTTPConnection) -> str:
    return connection.headers["x-tenant"]


def tenant_as_bytes(connection: HTTPConnection) -> bytes:
    return dict(connection.scope["headers"])[b"x-tenant"]


async def tenant_after_a_while(connection: HTTPConnection) -> str:
    await lowlevel.checkpoint()
    return tenant(connection)


@pytest.mark.parametrize("key", [tenant, tenant_as_bytes, tenant_after_a_while, Tenant()])
async def test_a_key_is_any_function_of_the_connection(key: Any) -> None:
    """Sync, async or an object, of text or bytes: who has the same key shares a bucket, all others do not."""
    app = limited(ok, key=key)
    acme, other = (http(headers=[(b"x-tenant", name)]) for name in (b"acme", b"other"))
    left = [(await ask(app, scope)).headers["ratelimit"] for scope in (acme, acme, other)]
    assert left == ['"per-minute";r=9;t=6', '"per-minute";r=8;t=6', '"per-minute";r=9;t=6']


@pytest.mark.parametrize("key", [b"\xff", b"", "", "ключ", "\ud800", "a\x00b", "x" * 8192], ids=repr)
async def test_a_key_has_any_content(key: str | bytes) -> None:
    """Bytes that are no text, empty texts and long ones are keys, each with a bucket of its own."""
    keys = iter([key, key, "another"])
    app = limited(ok, key=lambda connection: next(keys))
    left = [(await ask(app)).headers["ratelimit"][:18] for _ in range(3)]
    assert left == ['"per-minute";r=9;t', '"per-minute";r=8;t', '"per-minute";r=9;t']


async def test_a_key_of_none_means_no_limit() -> None:
    """A request without a key is not limited, and its answer has no headers."""
    app = limited(ok, "1/minute", key=lambda connection: None)
    assert [(await ask(app)).headers for _ in range(3)] == [{"x-own": "1"}] * 3


async def test_requests_over_a_unix_socket_pass() -> None:
    """Without an address of the client, the default key limits nobody."""
    app = limited(ok, "1/minute")
    for _ in range(3):
        assert (await ask(app, http(client=None))).status == 200


async def test_every_client_has_a_bucket() -> None:
    """By default the key is the client's address, and the port does not matter."""
    app = limited(ok, "1/minute")
    clients = [CLIENT, ("192.0.2.2", 1), (CLIENT[0], 2)]
    assert [(await ask(app, http(client=client))).status for client in clients] == [200, 200, 429]


async def test_a_request_costs_cost_units() -> None:
    """``cost`` units are taken for each request."""
    app = limited(ok, cost=4)
    assert [(await ask(app)).headers["ratelimit"][:16] for _ in range(2)] == ['"per-minute";r=6', '"per-minute";r=2']
    assert (await ask(app)).status == 429


async def test_two_quotas_are_one_take() -> None:
    """A request that one of them refuses takes nothing from the other."""
    app = limited(ok, [TokenBucket(10, 60, name="wide"), TokenBucket(2, 3600, name="narrow")])
    answers = [await ask(app) for _ in range(4)]
    assert [peer.status for peer in answers] == [200, 200, 429, 429]
    assert answers[0].headers["ratelimit-policy"] == '"wide";q=10;w=60, "narrow";q=2;w=3600'
    assert [peer.headers["ratelimit"] for peer in answers] == [
        '"wide";r=9;t=6, "narrow";r=1;t=1800',
        '"wide";r=8;t=6, "narrow";r=0;t=1800',
        '"wide";r=8;t=6, "narrow";r=0;t=1800',
        '"wide";r=8;t=6, "narrow";r=0;t=1800',
    ]


async def test_head_counts_as_get() -> None:
    """Neither evades the limit of the other."""
    app = limited(ok, "1/minute")
    assert [(await ask(app, http(method=method))).status for method in ("HEAD", "GET")] == [200, 429]
