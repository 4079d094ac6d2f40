"""Headers about limits that the app sends itself, such as those of another limiter or of a server behind it."""

from __future__ import annotations

from typing import Any

import pytest

from asgi_ratelimit import HeaderOptions
from tests.support.asgi import BODY, Peer, ask, limited, sends

pytestmark = pytest.mark.anyio

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
