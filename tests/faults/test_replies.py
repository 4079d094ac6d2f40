"""What Redis, or what stands in front of it, says in place of an answer, and what it has stored."""

from __future__ import annotations

import asyncio
import struct

import pytest
from redis import Redis

from asgi_ratelimit import RedisStore
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket
from tests.support.proxy import Proxy
from tests.support.trial import PATIENT, QUOTA

pytestmark = pytest.mark.anyio


# Credentials


def refusing_calls(answer: bytes) -> bytes:
    """A Redis that lets everybody connect, and then wants a password."""
    return b"-NOAUTH Authentication required.\r\n" if answer.startswith((b"$", b"-NOSCRIPT")) else answer


@pytest.mark.parametrize("was_connected", [False, True])
async def test_a_password_that_is_missing(proxy: Proxy, caplog: pytest.LogCaptureFixture, was_connected: bool) -> None:
    """It is told as that, with the remedy, also where connecting went well."""
    async with Limiter(QUOTA, store=RedisStore(proxy.url, timeout=PATIENT)) as limiter:
        if was_connected:
            await limiter.rate_limit("key")
        proxy.mangle = refusing_calls
        with pytest.raises(StoreError, match=r"credentials: Authentication required"):
            await limiter.peek("key")
        assert (await limiter.rate_limit("key")).degraded
    assert "rejected the credentials" in caplog.text
    assert caplog.text.count("\n") == 1


# Values


@pytest.mark.parametrize("number", [1e300, -1e300, 2.0**60, -1.0, 5e-324], ids=repr)
@pytest.mark.parametrize("quota", [TokenBucket(20, 60, burst=2), FixedWindow(3, 60), RollingWindow(3, 60)], ids=repr)
async def test_a_value_with_an_absurd_number(redis_url: str, quota: object, number: float) -> None:
    """Whichever number it is, every take is answered, and so are those beside it, and those of an outage."""
    store = RedisStore(redis_url, timeout=PATIENT)
    async with Limiter(quota, store=store) as limiter:  # type: ignore[arg-type]
        for _ in range(3):
            await limiter.pace("key")
        with Redis.from_url(redis_url) as client:
            (name,) = [name for name in client.keys("*") if name.endswith(b"{key}")]
            value = client.get(name)
            for at in range(5, len(value) - 7, 4):
                client.set(name, value[:at] + struct.pack("<d", number) + value[at + 8 :])
                decisions = await asyncio.gather(
                    limiter.rate_limit("key"),
                    limiter.pace("key"),
                    limiter.rate_limit(f"other {at}"),
                    limiter.peek("key"),
                )
                assert (decisions[2].allowed, decisions[2].degraded) == (True, False)
