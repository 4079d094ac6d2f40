"""Processes that share a store: together, they spend what a server has left, and no more."""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from asgi_ratelimit import Limiter, MemoryStore
from asgi_ratelimit.background import run_in_place
from asgi_ratelimit.headers.header_rendering import draft
from asgi_ratelimit.outbound.adaptive.shared import decoded
from tests.stand_ins.discord_server import Discord, discord_server
from tests.support.adaptive_clients import CHANNEL, bucket_headers
from tests.support.adaptive_fleet import command, report_of
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT
from tests.support.simulated_fleet import Fleet, Server

LONG = pytest.mark.long

# Seconds in which a fleet learns how the buckets of a server reset; only then it uses all that is permitted.
LEARNED_AFTER = 2.0


def discord_for(fleet: Fleet, **settings: str) -> tuple[Discord, Any]:
    """A stand-in on the clock of a fleet, and its answers."""
    server = Discord(settings, now=lambda: fleet.clock.now)
    return server, lambda path: server.answer("GET", path)


def rate_of(server: Discord, start: float, seconds: float) -> float:
    """Requests that a stand-in has served in each second of an interval."""
    return sum(start <= at < start + seconds for at in server.served) / seconds


@pytest.mark.parametrize("sliding", ["", "1"], ids=["windows", "sliding"])
def test_a_fleet_uses_a_global_limit(sliding: str) -> None:
    """With a quota just below that, nobody is refused, and at least 95 % of it is used from the first second on."""
    fleet = Fleet()
    server, answer = discord_for(fleet, SLIDING=sliding)
    start = fleet.clock.now
    fleet.run(answer, channels=20, callers=1, seconds=4, quota="48/s")
    assert server.counts["refused"] == 0
    assert sum(fleet.statuses.values()) == fleet.statuses[200] == server.counts["served"]
    assert rate_of(server, start, 4.0) >= 0.95 * 48


@pytest.mark.parametrize(
    ("settings", "seconds", "most_refused"),
    [
        ({"PERIOD": "1"}, 4, 0),
        ({"PERIOD": "1", "SLIDING": "1"}, 4, 8),
        ({"PERIOD": "5"}, 15, 0),
        ({"LIMIT": "20"}, 4, 0),
    ],
    ids=["windows", "sliding", "long-windows", "larger"],
)
def test_a_fleet_uses_what_buckets_permit(settings: dict[str, str], seconds: float, most_refused: int) -> None:
    """Nobody is refused, and at least 95 % of what the buckets permit is used, although requests take 2 to 20 ms.

    Discord documents that a window ends at the reset. Where requests come back one by one instead, the first answers
    show a window that is too short, so two requests of each bucket may be refused until one shows all of it.
    """
    fleet = Fleet(latency=(0.002, 0.02))
    server, answer = discord_for(fleet, GLOBAL="100000", **settings)
    start = fleet.clock.now
    fleet.run(answer, channels=4, callers=server.limit // 2, seconds=LEARNED_AFTER + seconds)
    assert server.counts["refused"] <= most_refused
    assert [status for at, _, status in server.times if at > start + LEARNED_AFTER and status != 200] == []
    assert fleet.statuses[200] == server.counts["served"]
    permitted = 4 * server.limit / server.period
    assert rate_of(server, start + LEARNED_AFTER, seconds) >= 0.95 * permitted


def test_a_server_that_reports_many_limits() -> None:
    """The store takes those with the least left, as many as fit into one take."""
    fleet = Fleet(latency=(0.002, 0.002))
    limits = {"ratelimit": ", ".join(f'"{name}";r=50;t=5' for name in range(12))}
    limits["ratelimit-policy"] = ", ".join(f'"{name}";q=100;w=60' for name in range(12))
    fleet.run(lambda path: (200, limits, {}), channels=1, callers=3, seconds=1.0)
    assert set(fleet.statuses) == {200}
    assert fleet.statuses[200] >= 40


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"no JSON",
        *[b'[6, "discord", [["b", 5, 1, %b]]]' % rate for rate in (b"[5, 0, true, 0, 0]", b'{"a": 1}')],
        *[b'[6, "discord", [["b", 5, 1, [%b, true, 0, 0]]]]' % numbers for numbers in (b"0, 5", b"NaN, NaN")],
        *[b'[6, "discord", [["b", 5, 1, [5, 1, true, %b, 0]]]]' % units for units in (b"NaN", b"-1", b"6")],
        b'[6, "discord", [[["b"], 5, 1, [5, 1, true, 0, 0]]]]',
        b'[6, "discord", [["b", NaN, 1, null]]]',
        b'[6, "discord", [["b", 5, Infinity, null]]]',
        b'[6, "discord", [["b", Infinity, 1, [5, 1, true, 0, 0]]]]',
        b'[6, "discord", [["b", 5, 1, [0, 0, false, 0, 0]]]]',
        b'[6, "discord", [["b", 5, 1, [1%s, 1, true, 0, 0]]]]' % (b"0" * 400),
        b'[5, "discord", [["b", 5, 1, [5, 1, true, 0, 0]]]]',
    ],
)
def test_documents_that_nobody_has_written(content: bytes) -> None:
    """What cannot be read counts as not written, and neither does what another version wrote."""
    assert decoded(content) is None
    assert decoded(b'[6, "discord", [["b", 5, 1, [5, 1, true, 5, 0]]]]') is not None


MET = {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "{left}", "x-ratelimit-reset": "{end}"}
IETF = {"ratelimit": '"a";r={left};t={rest}', "ratelimit-policy": '"a";q=20;w=2'}


@pytest.mark.parametrize("paths", [("/users", "/users", "/users"), ("/users", "/orders", "/items")], ids=["one", "own"])
@pytest.mark.parametrize("part", [0.3, 0.87, 0.95])
@pytest.mark.parametrize(
    "headers",
    [MET, {**MET, "x-ratelimit-resource": "core"}, IETF, {**IETF, "ratelimit-policy": '"a";q=20'}],
    ids=["end", "named", "period", "next"],
)
def test_a_window_that_is_met_part_way(headers: dict[str, str], part: float, paths: Sequence[str]) -> None:
    """Its rest is not taken for a whole one: all processes together keep to the limit, window after window.

    One that ends as soon as the next unit of a bucket comes may be a bucket, until a later end shows more.
    """
    fleet, sent = Fleet(3), Counter[int]()
    first = fleet.clock.now // 2
    fleet.clock.advance((first + part) * 2 - fleet.clock.now)

    def answer(path: str) -> Any:
        end = int(fleet.clock.now // 2 * 2) + 2
        sent[int(end / 2 - first) - 1] += 1
        left, rest = 20 - sent[int(end / 2 - first) - 1], math.ceil(end - fleet.clock.now)
        reported = {name: text.format(left=max(left, 0), end=end, rest=rest) for name, text in headers.items()}
        return (200, reported, {}) if left >= 0 else (429, {**reported, "retry-after": str(rest)}, {})

    fleet.run(answer, 1, 20, 12.0, *paths, profile="github" if len(headers) == 4 else "auto", retries=5)
    assert max(sent.values()) <= 20 + 3
    assert sum(max(number - 20, 0) for number in sent.values()) <= 0.03 * sent.total()
    may_be_a_bucket = headers.get("ratelimit-policy", "").endswith("w=2") and part > 0.5
    assert sorted(sent[window] for window in range(2, 6))[may_be_a_bucket] >= 0.9 * 20


@pytest.mark.parametrize(
    ("quota", "seconds", "processes"),
    [("20 per 4 s", 20.0, 3), ("60 per 10 s", 20.0, 3), ("60/minute", 150.0, 1), ("20 per 4 s burst 5", 20.0, 3)],
)
def test_a_bucket_that_says_when_its_next_unit_comes_back(quota: str, seconds: float, processes: int) -> None:
    """As this package's own middleware does; all processes together keep to it, and use it up."""
    fleet = Fleet(processes)
    limiter = Limiter(quota, store=MemoryStore(clock=fleet.clock))
    start, refused = fleet.clock.now, 0

    def answer(path: str) -> Any:
        nonlocal refused
        decision = run_in_place(limiter.rate_limit("everybody"))
        refused += not decision
        headers = {name.decode(): value.decode() for name, value in draft([decision])}
        return (200, headers, {}) if decision else (429, headers | {"retry-after": "1"}, {})

    fleet.run(answer, 1, 20, seconds, profile="auto", retries=5)
    (own,) = limiter.quotas
    assert fleet.statuses[200] >= 0.9 * (own.burst + (fleet.clock.now - start) * own.limit / own.period)
    assert refused <= 0.03 * fleet.statuses[200]


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_server_with_a_rolling_log(part: float) -> None:
    """Its answers say when the oldest request expires, but those that came later in the period count still then."""
    fleet, log, refused = Fleet(4, latency=(0.002, 0.02)), list[float](), 0

    def answer(path: str) -> Any:
        nonlocal refused
        log[:] = [at for at in log if at > fleet.clock.now - 5.0]
        is_served = len(log) < 60
        log.extend([fleet.clock.now] * is_served)
        refused += not is_served
        rest = log[0] + 5.0 - fleet.clock.now
        headers = {"ratelimit": f'"a";r={60 - len(log)};t={math.ceil(rest)}', "ratelimit-policy": '"a";q=60;w=5'}
        return (200, headers, {}) if is_served else (429, headers | {"retry-after": str(rest)}, {})

    fleet.run(answer, 1, 8, 0.001, profile="auto")
    fleet.clock.advance(part * 5.0)
    fleet.run(answer, 1, 8, 20.0, profile="auto", retries=5)
    assert refused <= 0.01 * fleet.statuses[200]
    assert fleet.statuses[200] >= 0.9 * 60 * 20.0 / 5.0


def test_one_pioneer_for_all_processes() -> None:
    """The others wait for its answer, and know from it what is left."""
    fleet = Fleet(latency=(0.2, 0.2))
    server, answer = discord_for(fleet)

    async def main() -> None:
        clients = [fleet.client(Server(answer, fleet.latency)) for _ in range(4)]
        await asyncio.gather(*[client.get(CHANNEL) for client in clients])

    start = fleet.clock.now
    fleet.clock.run(main())
    times = [at - start for at, _, _ in server.times]
    assert times[0] == pytest.approx(0.1, abs=0.01)
    assert all(0.3 <= at <= 0.6 for at in times[1:])
    assert server.counts["refused"] == 0


def test_a_dead_pioneer_blocks_nobody() -> None:
    """When its lease is over, another process sends one."""
    fleet = Fleet(latency=(0.002, 0.002))
    sent: list[float] = []

    def answer(path: str) -> Any:
        sent.append(fleet.clock.now)
        return 200, bucket_headers(4, 1), {}

    class Silent(Server):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.sleep(1000)
            return await super().handle_async_request(request)

    async def main() -> list[int]:
        dead = asyncio.create_task(fleet.client(Silent(answer, fleet.latency)).get(CHANNEL))
        await asyncio.sleep(0.1)
        clients = [fleet.client(Server(answer, fleet.latency)) for _ in range(3)]
        answers = await asyncio.gather(*[client.get(CHANNEL) for client in clients])
        dead.cancel()
        await asyncio.gather(dead, return_exceptions=True)
        return [each.status_code for each in answers]

    start = fleet.clock.now
    assert fleet.clock.run(main()) == [200] * 3
    assert 2.5 <= sent[0] - start <= 3.5
    assert sent[-1] - sent[0] <= 0.5


def test_a_global_refusal_stops_all_processes() -> None:
    """For all buckets, although it reports one, and until it is over."""
    fleet = Fleet(latency=(0.002, 0.002))
    sent: list[float] = []

    def answer(path: str) -> Any:
        sent.append(fleet.clock.now)
        if len(sent) == 3:
            of_all = {"retry_after": "7", "x_ratelimit_global": "true", "x_ratelimit_scope": "global"}
            return 429, bucket_headers(4, 1, bucket=path[-10:], **of_all), {}
        return 200, bucket_headers(4, 1, bucket=path[-10:]), {}

    async def main() -> None:
        one, two = [fleet.client(Server(answer, fleet.latency)) for _ in range(2)]
        await asyncio.gather(one.get(CHANNEL), two.get("/channels/2/messages"))
        third = asyncio.create_task(one.get(CHANNEL))
        await asyncio.sleep(0.1)
        await asyncio.gather(third, *[client.get(path) for client in (one, two) for path in (CHANNEL, "/users/1")])

    start = fleet.clock.now
    fleet.clock.run(main())
    assert [at for at in sent if 0.09 < at - start < 7.0] == []
    assert len(sent) == 8


@contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A Python program that has begun."""
    pipe = subprocess.PIPE
    with subprocess.Popen((sys.executable, *arguments), cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.stdin.write("begin\n")
            child.stdin.flush()
            yield child
        finally:
            child.kill()


@pytest.mark.redis
@pytest.mark.parametrize(("processes", "seconds", "last"), [(2, 1.0, 20.0), pytest.param(4, 60.0, 5.0, marks=LONG)])
def test_nothing_is_stuck_after_kills(processes: int, seconds: float, last: float) -> None:
    """Of a process, Redis or the server, at random times under load; afterwards, every caller gets an answer."""
    chance = random.Random(1)
    with RedisServer() as redis, discord_server() as server, ExitStack() as children:
        arguments = command(server.url, redis.url, channels=10, callers=1, last=last, quota="48/s")
        alive = [children.enter_context(running(arguments)) for _ in range(processes)]
        end = time.monotonic() + seconds
        children.enter_context(running(arguments)).kill()
        while time.monotonic() < end:
            victim = chance.choice([redis, server, None])
            if victim is None:
                with running(arguments) as one:
                    time.sleep(chance.uniform(0.0, 0.3))
                    one.kill()
            else:
                victim.kill()
                time.sleep(chance.uniform(0.0, 0.3))
                victim.start()
        for child in alive:
            assert child.stdin is not None
            child.stdin.write("end\n")
            child.stdin.flush()
        reports = [report_of(child.communicate(timeout=60)[0]) for child in alive]
    assert [report.stuck for report in reports] == [0] * processes
    assert all(report.statuses["200"] for report in reports)
