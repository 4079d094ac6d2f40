"""A user of Redis who may not use the keys of a store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from asgi_ratelimit import Limiter
from asgi_ratelimit.stores import RedisStore
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of its own, whose users a test changes."""
    with RedisServer() as own:
        yield own


@pytest.mark.parametrize("prefix", ["shop:prod", "shop prod {x}"])
async def test_a_refusal_of_keys_names_their_pattern(
    prefix: str, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys show the prefix with escapes; with the pattern that the log names, takes pass."""
    rights = ["resetchannels", "+evalsha", "+eval", "+time", "+get", "+set", "+del"]
    asked(server, "ACL", "SETUSER", "limiter", "on", ">secret", "~shop:*", *rights)
    store = RedisStore(f"redis://limiter:secret@{HOST}:{server.port}", prefix=prefix, timeout=30)
    limiter = Limiter("10/minute", store=store)
    assert (await limiter.rate_limit("key")).degraded
    (message,) = [message for message in caplog.messages if "is out" in message]
    pattern = message.partition("ACL SETUSER <user> ")[2]
    assert pattern == repr(store).partition("prefix='")[2].partition("'")[0].join(["~", ":*"])
    await store.aclose()
    asked(server, "ACL", "SETUSER", "limiter", "resetkeys", pattern)
    store = RedisStore(f"redis://limiter:secret@{HOST}:{server.port}", prefix=prefix, timeout=30)
    assert not (await Limiter("10/minute", store=store).rate_limit("key")).degraded
    await store.aclose()
