"""The store that processes share: what it leaves in Redis, how it gets there, and what it does when it cannot."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.errors import ConfigurationError, StoreError, StoreTimeout, StoreUnavailable
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore
from asgi_ratelimit.stores.redis import denials as _denials
from asgi_ratelimit.stores.redis.outage import breaker as _breaker
from tests.support.redis_server import RedisServer
from tests.support.server import HOST, ROOT
from tests.support.trial import settled

pytestmark = pytest.mark.anyio

QUOTA = TokenBucket(10, 3600)  # a unit comes back in six minutes
KEY = b"rl:default:per-hour:{key}"
PATIENT = 30.0  # the deadline where none is meant to pass


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test's own, to be stopped, frozen and filled up."""
    with RedisServer() as own:
        yield own


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client, to look at what is there."""
    with redis.Redis.from_url(redis_url, socket_timeout=10) as plain:
        yield plain


@asynccontextmanager
async def limiter_on(source: str | Redis, quota: Any = QUOTA, **options: Any) -> AsyncIterator[Limiter]:
    async with Limiter(quota, store=RedisStore(source, **{"timeout": PATIENT, **options})) as limiter:
        yield limiter


async def require_service(source: str | Redis, **options: Any) -> None:
    """A store on ``source`` counts, in Redis."""
    async with limiter_on(source, **options) as limiter:
        decisions = [await limiter.rate_limit("key") for _ in range(3)]
    assert [(decision.remaining, decision.degraded) for decision in decisions] == [(9, False), (8, False), (7, False)]


# What is in Redis


async def test_takes_that_travel_together_have_each_its_own_time_to_live(redis_url: str, client: redis.Redis) -> None:
    """As long as their bucket needs to be full again, and no longer."""
    day_ms = 86_400_000
    async with limiter_on(redis_url, TokenBucket(1, 86_400, burst=10, name="quota")) as limiter:
        await limiter.rate_limit("used", cost=5)
        await asyncio.gather(*map(limiter.rate_limit, ["other", "used", "new"]))
    used, new = (client.pttl(b"rl:default:quota:{%b}" % key) for key in (b"used", b"new"))
    assert 0 < new <= day_ms < 5 * day_ms < used <= 6 * day_ms


async def test_a_bucket_is_one_string_key(redis_url: str, client: redis.Redis) -> None:
    """One for each quota of a limiter, under a name that people can read."""
    async with limiter_on(redis_url, "100/minute; 1000/hour") as limiter:
        await limiter.rate_limit("1.2.3.4")
        await limiter.rate_limit("1.2.3.4")
    assert set(client.keys()) == {b"rl:default:per-minute:{1.2.3.4}", b"rl:default:per-hour:{1.2.3.4}"}
    assert {client.type(key) for key in client.scan_iter()} == {b"string"}


@pytest.mark.parametrize(("prefix", "written"), [("app", b"app"), ("my app:1", b"my%20app%3A1"), ("{x}", b"%7Bx%7D")])
async def test_a_prefix_keeps_applications_apart(
    redis_url: str, client: redis.Redis, prefix: str, written: bytes
) -> None:
    """It stands in front of every key, escaped like the rest."""
    await require_service(redis_url, prefix=prefix)
    await require_service(redis_url, prefix="other")
    assert set(client.keys()) == {written + b":default:per-hour:{key}", b"other:default:per-hour:{key}"}


async def test_a_reset_leaves_nothing(redis_url: str, client: redis.Redis) -> None:
    """All keys of the client are gone, and no one else's."""
    async with limiter_on(redis_url, "100/minute; 1000/hour") as limiter:
        await limiter.rate_limit("a")
        await limiter.rate_limit("b")
        await limiter.reset("a")
    assert set(client.keys()) == {b"rl:default:per-minute:{b}", b"rl:default:per-hour:{b}"}


async def test_to_reset_nothing_does_nothing(redis_url: str) -> None:
    """And does no harm to those who come after it."""
    store = RedisStore(redis_url)
    await store.reset([])
    (decision,) = await store.take([Take((Charge(TokenBucket(10), "nothing reset"),))])
    assert (decision.allowed, decision.degraded) == (True, False)
    await store.aclose()


@pytest.mark.filterwarnings("ignore")  # of connections that nobody has closed
def test_event_loops_that_have_ended_are_let_go(redis_url: str) -> None:
    """With what the store had on them, even where nobody has closed it there."""
    store = RedisStore(redis_url)

    async def take() -> None:
        await store.take([Take((Charge(TokenBucket(10), "ended"),))])

    for _ in range(5):
        asyncio.run(take())
    assert len(store._lanes) == 1
    store._lanes.clear()
    store._latest = (None, None)
    gc.collect()


async def test_a_reset_is_seen_whatever_is_under_way(redis_url: str) -> None:
    """A refusal that comes back between a reset and its end is not remembered beyond that."""
    async with limiter_on(redis_url) as limiter:
        await limiter.rate_limit("key", 10)
        refused = asyncio.ensure_future(limiter.rate_limit("key"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is under way
        await limiter.reset("key")
        assert not (await refused).allowed
        assert (await limiter.rate_limit("key")).remaining == 9


@pytest.mark.parametrize(
    ("quota", "costs"),
    [
        (TokenBucket(10, 3600), [1]),
        (TokenBucket(10, 3600), [1, 9, 0.5]),
        (TokenBucket(1_000_000), [1]),
        (TokenBucket(1_000_000), [0.001]),
        (TokenBucket(3, 0.007, burst=5), [5]),
        (TokenBucket(10, 60, burst=20, burst_allowance_factor=0.1), [20]),
        (TokenBucket(1, 400 * 86_400), [1]),
    ],
    ids=repr,
)
async def test_a_key_lives_until_its_bucket_is_full(
    redis_url: str, client: redis.Redis, quota: TokenBucket, costs: list[float]
) -> None:
    """Its time to live is set with its value, in milliseconds rounded up: at least 1, at most the refill time."""
    async with limiter_on(redis_url, quota) as limiter:
        with client.monitor() as monitor:
            decisions = [await limiter.pace("key", cost) for cost in costs]
            lives = [life_of(next_write(monitor)) for _ in costs]
    assert lives == [math.ceil(round(decision.reset_after * 1000, 6)) for decision in decisions]
    assert min(lives) >= 1


def next_write(monitor: Any) -> list[str]:
    """The words of the next command that is not a read."""
    while True:
        words: list[str] = monitor.next_command()["command"].split(" ")
        if words[0].upper() not in ("GET", "TIME", "EVALSHA", "EVAL", "PING", "HELLO", "CLIENT", "SELECT"):
            return words


def life_of(words: list[str]) -> int:
    assert (words[0].upper(), words[-2]) == ("SET", "PX")
    return int(words[-1])


STAMP = struct.pack("<Bf", 1, QUOTA.period_us)
FOREIGN_VALUES = [
    b"",
    b"5",
    b"garbage that is quite a bit longer than a state",
    struct.pack("<BfdHd", 99, QUOTA.period_us, 2.0**50, 0, 2.0**40),
    struct.pack("<BfdHd", 1, 1.0, 2.0**50, 0, 2.0**40),
    STAMP,
    STAMP + b"short",
]


@pytest.mark.parametrize("value", FOREIGN_VALUES, ids=repr)
async def test_a_value_of_another_format_counts_as_never_used(
    redis_url: str, client: redis.Redis, value: bytes
) -> None:
    """It is written anew, with a time to live."""
    client.set(KEY, value)
    await require_service(redis_url)
    assert client.get(KEY).startswith(STAMP)
    assert client.pttl(KEY) > 0


async def test_a_key_of_another_type_counts_as_never_used(redis_url: str, client: redis.Redis) -> None:
    """A peek leaves it as it is; a take that passes puts its own value there."""
    client.rpush(KEY, "foreign")
    async with limiter_on(redis_url) as limiter:
        assert (await limiter.peek("key")).remaining == 10
        assert client.type(KEY) == b"list"
    await require_service(redis_url)
    assert client.type(KEY) == b"string"


async def test_a_script_that_redis_forgot_is_sent_again(redis_url: str, client: redis.Redis) -> None:
    """... and the take is charged once; so are takes that find it gone at the same time."""
    async with limiter_on(redis_url, TokenBucket(100, 3600)) as limiter:
        for remaining in (99, 98, 97):
            assert (await limiter.rate_limit("key")).remaining == remaining
            client.script_flush()
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(20)])
    assert sorted(decision.remaining for decision in decisions) == list(range(77, 97))


async def test_time_is_the_servers(redis_url: str, client: redis.Redis) -> None:
    """Machines whose clocks differ agree: a decision is dated by Redis, to the microsecond."""
    async with limiter_on(redis_url) as limiter:
        before = client.time()
        decision = await limiter.rate_limit("key")
        after = client.time()
    ready_us = round(decision.ready_at * 1e6)
    assert before[0] * 10**6 + before[1] <= ready_us <= after[0] * 10**6 + after[1]


# How it gets there


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode_responses", [False, True])
async def test_a_client_can_be_given(redis_url: str, decode_responses: bool, protocol: int) -> None:
    """Whatever its settings are, its address and credentials are what is used; it stays open."""
    async with Redis.from_url(redis_url, decode_responses=decode_responses, protocol=protocol) as ready:
        await require_service(ready)
        assert await ready.ping()


@pytest.mark.parametrize("options", ["/0", "/0?decode_responses=true", "/0?protocol=3", "/0?encoding=latin-1", "?db=0"])
async def test_a_url_may_have_options(redis_url: str, options: str) -> None:
    """Those that would change what travels are of no harm."""
    await require_service(redis_url + options)


async def test_a_url_may_name_a_database(redis_url: str, client: redis.Redis) -> None:
    """The keys are there, and not in the first one."""
    await require_service(redis_url + "/3")
    assert client.keys() == []


async def test_a_password() -> None:
    """In the URL; a wrong one, or none, is told as what it is."""
    with RedisServer("--requirepass", "secret") as locked:
        await require_service(f"redis://:secret@{HOST}:{locked.port}")
        for url in (locked.url, f"redis://:wrong@{HOST}:{locked.port}"):
            async with limiter_on(url) as limiter:
                with pytest.raises(StoreError, match="does not let us in"):
                    await limiter.peek("key")
                assert (await limiter.rate_limit("key")).degraded


async def test_a_unix_socket() -> None:
    """Without a port."""
    with TemporaryDirectory() as folder, RedisServer("--unixsocket", f"{folder}/redis.sock"):
        await require_service(f"unix://{folder}/redis.sock")


async def test_tls(redis_server: RedisServer, redis_url: str, tmp_path: Path) -> None:
    """``rediss://`` is encrypted, and a certificate that nobody vouches for is refused."""
    certificate, key = self_signed(tmp_path)
    async with tls_in_front_of(redis_server.port, certificate, key) as port:
        await require_service(f"rediss://{HOST}:{port}?ssl_ca_certs={certificate}")
        async with limiter_on(f"rediss://{HOST}:{port}") as limiter:
            with pytest.raises(StoreUnavailable, match="certificate verify failed"):
                await limiter.peek("key")


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
    """A port that speaks TLS, and hands on to one that does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    front = await asyncio.start_server(relay, HOST, 0, ssl=context)
    async with front:
        yield front.sockets[0].getsockname()[1]


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


def test_a_store_serves_several_event_loops_in_turn(redis_url: str) -> None:
    """Each has connections of its own."""
    store = RedisStore(redis_url, timeout=PATIENT)
    assert [asyncio.run(one_take(store)).remaining for _ in range(3)] == [9, 8, 7]


def test_a_store_serves_several_event_loops_at_once(redis_url: str) -> None:
    """One in each of some threads."""
    store = RedisStore(redis_url, timeout=PATIENT)
    with ThreadPoolExecutor(5) as threads:
        decisions = list(threads.map(lambda _: asyncio.run(one_take(store)), range(10)))
    assert sorted(decision.remaining for decision in decisions) == list(range(10))


async def one_take(store: RedisStore) -> Decision:
    async with Limiter(QUOTA, store=store) as limiter:
        return await limiter.rate_limit("key")


async def test_a_closed_store_has_no_connections(redis_url: str, client: redis.Redis) -> None:
    """All that were open are closed."""
    before = len(client.client_list())
    async with limiter_on(redis_url) as limiter:
        await asyncio.gather(*[limiter.rate_limit("key") for _ in range(50)])
        assert len(client.client_list()) > before
    await settled(lambda: len(client.client_list()) == before)


async def test_connections_are_few(redis_url: str, client: redis.Redis) -> None:
    """A thousand requests at once are all answered, over as many connections as the store may have."""
    before = len(client.client_list())
    async with limiter_on(redis_url) as limiter:
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(1_000)])
        assert len(client.client_list()) - before <= 1
    assert sum(decision.allowed for decision in decisions) == 10
    assert not any(decision.degraded for decision in decisions)


async def test_a_cancelled_take_hurts_nobody(redis_url: str) -> None:
    """Those that go on, and those that come after, get the answers that are meant for them."""
    quotas = [TokenBucket(number + 1, 3600, name=f"quota {number}") for number in range(40)]
    async with limiter_on(redis_url) as limiter:
        for used in (1, 2):
            tasks = [asyncio.ensure_future(limiter.take([Charge(quota, "key", 0.5)])) for quota in quotas]
            await asyncio.sleep(0)
            for task in tasks[used::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for number in range(0, 40, 2):
            assert (await limiter.take([Charge(quotas[number], f"key {number}")])).remaining == number


# Many at once


async def test_exactly_as_many_pass_as_the_quota_has(redis_url: str) -> None:
    """Of 200 requests at the same time."""
    async with limiter_on(redis_url, TokenBucket(50, 86_400)) as limiter:
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(200)])
    assert sum(decision.allowed for decision in decisions) == 50


WORKER = """
import asyncio, sys
from asgi_ratelimit import Limiter, RedisStore, TokenBucket

async def main():
    async with Limiter(TokenBucket(50, 86_400), store=RedisStore(sys.argv[1], timeout=30, on_error="deny")) as limiter:
        print("ready", flush=True)
        sys.stdin.readline()
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(200)])
    print(sum(decision.allowed for decision in decisions))

asyncio.run(main())
"""


def test_processes_share_a_quota(redis_url: str) -> None:
    """Of 200 requests from each of four processes at the same time, as many pass as the quota has, in all."""
    command = [sys.executable, "-c", WORKER, redis_url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    workers = [subprocess.Popen(command, **pipes) for _ in range(4)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(4) as threads:
        outputs = list(threads.map(lambda worker: worker.communicate("go\n", timeout=60)[0], workers))
    assert sum(map(int, outputs)) == 50


# When Redis cannot


async def test_without_redis_a_peek_and_a_reset_say_so() -> None:
    """They are asked by people, who want to know."""
    async with limiter_on(RedisServer().url) as limiter:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await limiter.peek("key")
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await limiter.reset("key")


@pytest.mark.parametrize(
    ("on_error", "allowed", "retry_after"),
    [
        ("local", [True, True, False], pytest.approx(1800, abs=60)),
        ("allow", [True, True, True], 0.0),
        ("deny", [False, False, False], 1.0),
    ],
)
async def test_without_redis_a_take_is_decided_by_on_error(
    on_error: str, allowed: list[bool], retry_after: float
) -> None:
    """By a limiter in this process, for everybody, or against; the decision says that it is degraded."""
    async with limiter_on(RedisServer().url, TokenBucket(2, 3600), on_error=on_error) as limiter:
        decisions = [await limiter.rate_limit("key") for _ in range(3)]
    assert [decision.allowed for decision in decisions] == allowed
    assert [decision.granted for decision in decisions] == [int(each) for each in allowed]
    assert decisions[-1].retry_after == retry_after
    assert all(decision.degraded for decision in decisions)


async def test_a_server_that_goes_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    """Takes are degraded in between, and the log has one line for each time that it went or came, not for each take."""
    server = RedisServer()
    async with limiter_on(server.url) as limiter:
        for _ in range(2):
            assert {(await limiter.rate_limit("key", 0.1)).degraded for _ in range(5)} == {True}
            with server:
                await until_served(limiter)
                assert {(await limiter.rate_limit("key", 0.1)).degraded for _ in range(5)} == {False}
        assert (await limiter.rate_limit("key", 0.1)).degraded
    levels = [record.levelno for record in caplog.records if record.name == "asgi_ratelimit"]
    assert levels == [logging.ERROR, logging.WARNING] * 2 + [logging.ERROR]


async def until_served(limiter: Limiter) -> None:
    """Ask until Redis decides again, which it is tried for ten times a second."""
    for _ in range(1_000):
        if not (await limiter.rate_limit("key", 0.001)).degraded:
            return
        await asyncio.sleep(0.01)
    pytest.fail("it is not tried again")


async def test_takes_at_the_moment_of_an_outage_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """However many they are."""
    async with limiter_on(RedisServer().url) as limiter:
        await asyncio.gather(*[limiter.rate_limit("key") for _ in range(50)])
    assert len(caplog.records) == 1


async def test_a_server_that_does_not_answer(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits longer than the deadline, be it for an answer or for a connection; and it is not asked twice."""
    async with limiter_on(server.url, timeout=0.2) as limiter:
        server.pause()
        with pytest.raises(StoreTimeout, match=r"within 0\.2 s"):
            await limiter.peek("key")
        assert (await limiter.rate_limit("key")).degraded
        assert all(d.degraded for d in await asyncio.gather(*[limiter.rate_limit("other") for _ in range(50)]))
        assert isinstance(the_error(caplog), StoreTimeout)
        server.resume()
        assert await first_answer(limiter) in (10, 9)


async def first_answer(limiter: Limiter) -> int:
    """What remains, as soon as the store answers again."""
    for _ in range(1_000):
        try:
            return (await limiter.peek("key")).remaining
        except StoreError:
            await asyncio.sleep(0.01)
    pytest.fail("it does not come back")


OUT_OF_SERVICE = {
    "out of memory": [("CONFIG", "SET", "maxmemory", "1")],
    "a replica": [("REPLICAOF", HOST, "1")],
}


@pytest.mark.parametrize("commands", OUT_OF_SERVICE.values(), ids=list(OUT_OF_SERVICE))
async def test_a_server_that_cannot_write(
    server: RedisServer, caplog: pytest.LogCaptureFixture, commands: list[tuple[str, ...]]
) -> None:
    """It is as good as none at all."""
    with redis.Redis.from_url(server.url) as client:
        for command in commands:
            client.execute_command(*command)
    async with limiter_on(server.url) as limiter:
        decision = await limiter.rate_limit("key")
    assert decision.degraded
    assert isinstance(the_error(caplog), StoreUnavailable)


def the_error(caplog: pytest.LogCaptureFixture) -> object:
    """What the one line that says that the store is out gives as its reason."""
    (record,) = caplog.records
    assert isinstance(record.args, tuple)
    return record.args[-1]


async def test_a_bad_take_charges_nothing(redis_url: str, client: redis.Redis) -> None:
    """A wrong cost is the caller's error, and Redis is not asked."""
    async with limiter_on(redis_url) as limiter:
        with pytest.raises(ValueError, match="cost must be"):
            await limiter.rate_limit("key", math.nan)
    assert client.keys() == []


# What cannot be


@pytest.mark.parametrize(
    "source",
    ["", "localhost", "http://localhost", "memory://", "redis://localhost:port", "redis://localhost:99999", None, 5],
    ids=repr,
)
def test_a_source_that_is_no_redis(source: Any) -> None:
    """It is quoted at once, with a right one, and not at the first request."""
    with pytest.raises(ConfigurationError, match="redis://localhost") as raised:
        RedisStore(source)
    assert repr(source) in str(raised.value)


def test_a_client_that_is_not_asynchronous() -> None:
    """It would block the event loop, and is refused."""
    with redis.Redis() as blocking, pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
        RedisStore(blocking)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", math.nan),
        ("timeout", None),
        ("timeout", "1"),
        ("on_error", "ignore"),
        ("on_error", None),
        ("replicas", 0),
        ("replicas", -2),
    ],
)
def test_options_that_cannot_be(option: str, value: Any) -> None:
    """They are quoted by name and value."""
    with pytest.raises(ConfigurationError, match=f"{option} must be") as raised:
        RedisStore("redis://localhost", **{option: value})
    assert repr(value) in str(raised.value)


async def test_it_shows_no_password() -> None:
    """Logs are read by many."""
    assert repr(RedisStore("redis://:secret@localhost", timeout=1.5)) == "RedisStore(prefix='rl', timeout=1.5)"


async def test_takes_are_answered_in_their_order(redis_url: str) -> None:
    """One decision for each, whatever their charges."""
    takes = [Take((Charge(QUOTA, f"key {number}", number),)) for number in range(1, 12)]
    store = RedisStore(redis_url, timeout=PATIENT)
    assert [decision.take for decision in await store.take(takes)] == takes
    await store.aclose()


async def test_takes_of_one_call_travel_together(redis_url: str, client: redis.Redis) -> None:
    """Also where those before them went alone: a request with a shadow rule waits for Redis once."""
    store = RedisStore(redis_url, timeout=PATIENT)
    takes = [Take((Charge(QUOTA, key),)) for key in ("one", "other")]
    await store.take(takes[:1])
    before = times_called(client)
    for _ in range(3):
        await store.take(takes)
    assert times_called(client) - before == 3
    await store.aclose()


def times_called(client: redis.Redis) -> int:
    """How often the script was called."""
    said: Any = client.info("commandstats")
    return sum(said[f"cmdstat_{name}"]["calls"] for name in ("eval", "evalsha") if f"cmdstat_{name}" in said)


@pytest.mark.parametrize("factor", [0.5, 1.0])
@pytest.mark.parametrize("further", [(), (Charge(QUOTA, "other"),)])
async def test_a_cost_that_is_hardly_above_the_burst(
    redis_url: str, factor: float, further: tuple[Charge, ...]
) -> None:
    """It is never admitted, although scaled by the period both are the same number."""
    burst = 5.047707685175167
    quota, cost = TokenBucket(100, 3600, burst, factor), math.nextafter(burst, math.inf)
    assert cost * quota.period_us == quota.cap
    store = RedisStore(redis_url, timeout=PATIENT)
    for each in (MemoryStore(), store):
        (decision,) = await each.take([Take((Charge(quota, "key", cost, "hardly"), *further))])
        assert (decision.allowed, decision.retry_after, decision.degraded) == (False, math.inf, False)
    await store.aclose()


# Without a coroutine


async def test_what_is_known_here_needs_no_waiting(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store has to say is awaited; a refusal that is remembered is there at once, as all is in an outage."""
    monkeypatch.setattr(_denials, "LONGEST_US", math.inf)
    monkeypatch.setattr(_breaker, "PROBE_EVERY_US", math.inf)
    store = RedisStore(server.url, timeout=PATIENT)

    def take(cost: float) -> Any:
        return store.take_soon([Take((Charge(QUOTA, "key", cost),))])

    assert [(decision.allowed, decision.remaining) for decision in await take(10)] == [(True, 0)]
    (refused,) = await take(1)
    assert not refused.allowed
    (again,) = take(1)
    assert (again.allowed, again.degraded) == (False, False)
    await store.reset([Charge(QUOTA, "key")])
    server.stop()
    (degraded,) = await take(1)
    (at_once,) = take(1)
    assert (degraded.degraded, at_once.degraded) == (True, True)
    await store.aclose()
