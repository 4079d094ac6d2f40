"""What is kept of clients: no long key."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from asgi_ratelimit import Charge, MemoryStore, RateLimitMiddleware
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, limited, ok

pytestmark = pytest.mark.anyio


def by_header(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-key")


@pytest.mark.parametrize("client", [5, (["192.0.2.1"], 1)], ids=["no pair", "no text"])
async def test_a_client_that_makes_no_sense_fails_like_any_key(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    """All such requests share one bucket, and the log says so."""
    app = limited(ok, "1/hour")
    assert [(await ask(app, {**http(), "client": client})).status for _ in range(2)] == [200, 429]
    assert "the key function of 'default' failed" in caplog.text


async def test_no_long_key_stays_in_memory() -> None:
    """A client that sends long keys cannot fill the memory with them."""
    app = RateLimitMiddleware(ok, "10/minute", store=MemoryStore(clock=SteppedClock()), key=by_header)
    peers = [await ask(app, http(headers=[(b"x-key", b"k" * 8192)])) for _ in range(2)]
    assert peers[1].headers["ratelimit"] == '"per-minute";r=8;t=6'
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Charge and len(each.key) > 8000]
