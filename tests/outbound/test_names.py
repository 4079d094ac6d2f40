"""Names of what is paced: nothing shares buckets under another quota by accident."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from asgi_ratelimit import ConfigurationError, MemoryStore, PacedTransport, RateLimit, RateLimitMiddleware, pace
from tests.support.asgi import ok

CONFLICT = "two limits named 'api' share a store .* \"10/second burst 1\""


def called() -> str:
    return "called"


def paced(quota: str, store: Any) -> Any:
    return pace(quota, store=store, name="api")(called)


def sending(quota: str, store: Any) -> Any:
    return PacedTransport(httpx.MockTransport(lambda request: httpx.Response(200)), quota, store=store, name="api")


@pytest.mark.parametrize("build", [paced, sending])
@pytest.mark.parametrize("other", [RateLimit, lambda quota, **options: RateLimitMiddleware(ok, quota, **options)])
def test_one_text_with_two_bursts_is_refused(build: Any, other: Any) -> None:
    """A text without a burst has burst 1 when pacing, and its limit otherwise; whichever comes second is refused."""
    store = MemoryStore()
    first = other("10/s", store=store, name="api")
    with pytest.raises(ConfigurationError, match=CONFLICT):
        build("10/s", store)
    assert build("10/s burst 10", store)
    del first
    store = MemoryStore()
    pacing = build("10/s", store)
    with pytest.raises(ConfigurationError, match=CONFLICT):
        other("10/s", store=store, name="api")
    assert pacing
