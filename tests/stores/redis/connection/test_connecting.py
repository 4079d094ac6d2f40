"""How a store connects: URLs and clients, event loops, threads and processes."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis
from redis import exceptions
from redis.asyncio import ConnectionPool, Redis

from asgi_ratelimit import Decision, Limiter, RedisStore, StoreError, StoreTimeout, StoreUnavailable
from asgi_ratelimit.stores.redis.clients import store_error_of
from tests.stores.redis.limiters import PATIENT, QUOTA, limiter_on, require_service
from tests.support.overriding import until
from tests.support.proxy import listening
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode_responses", [False, True])
async def test_a_client_can_be_given(redis_url: str, decode_responses: bool, protocol: int) -> None:
    """Its address and credentials are used, whatever its other settings are; it stays open.

    A connection of the store's that is closed while it is idle is opened again.
    """
    async with Redis.from_url(redis_url, decode_responses=decode_responses, protocol=protocol) as ready:
        await require_service(ready)
        assert await ready.ping()
        async with limiter_on(ready) as limiter:
            await limiter.rate_limit("key")
            await ready.client_kill_filter(_type="normal", skipme=True)
            await ready.ping()  # so that the store's has been closed, too
            assert not (await limiter.rate_limit("key")).degraded


@pytest.mark.parametrize("options", ["/0", "/0?decode_responses=true", "/0?protocol=3", "/0?encoding=latin-1", "?db=0"])
async def test_a_url_may_have_options(redis_url: str, options: str) -> None:
    """Those that would change the encoding or decoding do no harm."""
    await require_service(redis_url + options)


async def test_a_url_may_name_a_database(redis_url: str, client: redis.Redis) -> None:
    """The keys are there, and not in the first one."""
    await require_service(redis_url + "/3")
    assert client.keys() == []


async def test_a_password() -> None:
    """It is in the URL; a wrong one, or none, raises an error that says so."""
    with RedisServer("--requirepass", "secret") as locked:
        await require_service(f"redis://:secret@{HOST}:{locked.port}")
        for url in (locked.url, f"redis://:wrong@{HOST}:{locked.port}"):
            async with limiter_on(url) as limiter:
                with pytest.raises(StoreError, match=r"rejected the credentials.*user:password@host"):
                    await limiter.peek("key")
                assert (await limiter.rate_limit("key")).degraded


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3cr3t@{address}",
        "rediss://user:s3cr3t@{address}?ssl_ca_certs=/no/such/file" + "&ssl_password=s3cr3t" * (redis.VERSION >= (8,)),
        "unix://user:s3cr3t@/no/such.sock",
        "redis+cluster://user:s3cr3t@{address}",
        "redis+sentinel://user:s3cr3t@{address}/limits?sentinel_password=s3cr3t",
    ],
)
async def test_no_error_shows_a_password(
    redis_server: RedisServer, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is raised nor what is logged where the server rejects it, or cannot be reached."""
    # As in redis-py 6.4 to 7.3, which write it into errors
    monkeypatch.setattr(ConnectionPool, "__repr__", lambda self: repr(self.connection_kwargs))
    for port in (redis_server.port, 1):
        async with limiter_on(url.replace("{address}", f"{HOST}:{port}"), timeout=1) as limiter:
            with pytest.raises(StoreError) as raised:
                await limiter.peek("key")
            assert (await limiter.rate_limit("key")).degraded
        assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))
    assert caplog.records
    assert "s3cr3t" not in caplog.text


async def test_a_unix_socket() -> None:
    """Without a port."""
    with TemporaryDirectory() as folder, RedisServer("--unixsocket", f"{folder}/redis.sock"):
        await require_service(f"unix://{folder}/redis.sock")


async def test_tls(redis_server: RedisServer, redis_url: str, tmp_path: Path) -> None:
    """``rediss://`` is encrypted, and a certificate without a known issuer is rejected."""
    certificate, key = self_signed(tmp_path)
    async with tls_in_front_of(redis_server.port, certificate, key) as port:
        await require_service(f"rediss://{HOST}:{port}?ssl_ca_certs={certificate}")
        async with limiter_on(f"rediss://{HOST}:{port}") as limiter:
            with pytest.raises(StoreUnavailable, match="certificate verify failed"):
                await limiter.peek("key")


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("redis://{address}/99", "DB index is out of range"),
        ("redis://:pw@{address}", "Are you sure your configuration is correct?"),
        ("redis+cluster://{address}", "it is a single Redis, redis://host:6379/0"),
        ("redis+sentinel://{address}/limits", "it is a single Redis, redis://host:6379/0"),
    ],
)
async def test_the_log_says_what_to_change(
    redis_server: RedisServer, url: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a store is out until somebody does."""
    source = url.replace("{address}", f"{HOST}:{redis_server.port}")
    async with limiter_on(source, timeout=1, on_error="deny") as limiter:
        assert (await limiter.rate_limit("key")).degraded
    assert advice in caplog.text


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for the loopback address, and its private key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=redis", "-addext", f"subjectAltName=IP:{HOST}"]
    paths = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *names, *paths], check=True, capture_output=True)
    return certificate, key


@asynccontextmanager
async def tls_in_front_of(port: int, certificate: Path, key: Path) -> AsyncIterator[int]:
    """A port that speaks TLS, and forwards to one that does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async with listening(relay, ssl=context) as front:
        yield front


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
    finally:
        writer.close()


def test_a_store_serves_several_event_loops_at_once(redis_url: str) -> None:
    """One in each of some threads."""
    store = RedisStore(redis_url, timeout=PATIENT)
    with ThreadPoolExecutor(5) as threads:
        decisions = list(threads.map(lambda _: asyncio.run(one_take(store)), range(10)))
    assert sorted(decision.remaining for decision in decisions) == list(range(10))


async def one_take(store: RedisStore) -> Decision:
    async with Limiter(QUOTA, store=store) as limiter:
        return await limiter.rate_limit("key")


async def test_connections_are_few(redis_url: str, client: redis.Redis) -> None:
    """A thousand requests at once are answered over one, overrides are read over another; a closed store has none."""
    before = len(client.client_list())
    async with limiter_on(redis_url) as limiter:
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(1_000)])
        connections = client.client_list()
        assert len(connections) - before <= 2
        assert sum(each["cmd"] in ("eval", "evalsha") for each in connections) == 1
    assert sum(decision.allowed for decision in decisions) == 10
    assert not any(decision.degraded for decision in decisions)
    await until(lambda: len(client.client_list()) == before)


@pytest.mark.parametrize("prefix", ["shop:prod", "shop prod {x}"])
async def test_a_refusal_of_keys_names_their_pattern(
    prefix: str, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys show the prefix with escapes; with the pattern that the log names, takes pass."""
    rights = ["resetchannels", "+evalsha", "+eval", "+time", "+get", "+getrange", "+set", "+pttl", "+del"]
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


async def test_closing_does_not_wait_for_a_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way goes on until its own deadline."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr("asgi_ratelimit.stores.redis.store.CLOSE_WITHIN", 0.01)
    async with listening(silent) as port:
        store = RedisStore(f"redis://{HOST}:{port}", timeout=0.5)
        take = asyncio.create_task(Limiter("1/s", store=store).rate_limit("key"))
        await asyncio.sleep(0)
        await store.aclose()
        assert not take.done()
        assert (await take).degraded


# Errors of redis-py


RESPONSE, REFUSED = exceptions.ResponseError, exceptions.ConnectionError


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (TimeoutError("late"), StoreTimeout, r"within 0\.25 s"),
        (REFUSED("refused"), StoreUnavailable, "cannot be reached: refused"),
        (OSError("no route"), StoreUnavailable, "cannot be reached: no route"),
        (exceptions.AuthenticationError("wrong"), StoreError, "rejected the credentials: wrong"),
        (RESPONSE("LOADING dataset"), StoreUnavailable, "cannot serve: LOADING"),
        (RESPONSE("BUSY Redis is busy running a script"), StoreUnavailable, "cannot serve: BUSY"),
        (RESPONSE("Error running script: @user_script:5: -OOM memory"), StoreUnavailable, "OOM"),
        (exceptions.ClusterDownError("down"), StoreUnavailable, "down"),
        (RESPONSE("NOPERM no permissions"), StoreError, "answered with an error: NOPERM"),
        (RESPONSE("ERR it says LOADING somewhere"), StoreError, "answered with an error"),
        (ValueError("odd"), StoreUnavailable, "cannot read"),
    ],
    ids=lambda given: str(given) if isinstance(given, Exception) else "",
)
def test_each_error_becomes_a_store_error(error: Exception, expected: type[StoreError], message: str) -> None:
    """Out of service, too late and wrong are different classes."""
    translated = store_error_of(error, 0.25)
    assert type(translated) is expected
    with pytest.raises(StoreError, match=message):
        raise translated


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (exceptions.AuthenticationError("WRONGPASS invalid"), ": redis://user:password@host, or redis://:password@"),
        (RESPONSE("SELECT is not allowed in cluster mode"), ": it is a node of a cluster, redis+cluster://host"),
        (exceptions.MovedError("7629 10.0.0.7:6379"), ": it is a node of a cluster, redis+cluster://"),
        (REFUSED("Error 1 connecting to a:1. [SSL: WRONG_VERSION_NUMBER] (_ssl.c:1)."), "redis:// plain"),
        (REFUSED("Error while reading from a:1 : (104, 'Connection reset by peer')"), "rediss://host:6379/0 is TLS"),
    ],
    ids=lambda given: str(given) if isinstance(given, Exception) else "",
)
def test_an_error_that_stays_says_what_to_change(error: Exception, advice: str) -> None:
    """With the right form of the URL; an error that may pass has no advice."""
    assert advice in str(store_error_of(error, 0.25, "shop"))
