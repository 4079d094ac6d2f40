"""A process that keeps a server of unknown limits busy, through one of the libraries that ``scripts/bench adaptive``
compares: ``python -m benchmarks.adaptive_callers ours openai URL REDIS SECONDS``.

It prints ``ready``, begins when it reads a line, and prints what came of its calls as JSON. Each library is set up as
its documentation has it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from itertools import count
from typing import Any

import httpx

CALLERS = 16
"""Tasks of each process, each of which makes one call after the other."""

GRACE_S = 15.0
"""A call that has not come back so long after the end is stuck."""

RATE = 40
"""What the servers allow in a second. The rate limiter that must be given a limit is given this one, or more."""

HIDDEN = "hidden"
CHAT = {"model": "small", "max_tokens": 20, "messages": [{"role": "user", "content": "Write 5"}]}
CALLS: dict[str, dict[str, Any]] = {
    "openai": {"method": "POST", "url": "/v1/chat/completions", "json": CHAT},
    "discord": {"method": "GET", "url": "/channels/{number}/messages"},
    HIDDEN: {"method": "GET", "url": "/"},
}
CHANNELS = 20

Call = Callable[[int], Awaitable[int]]
"""Makes the n-th call; its result is the status of the answer that the caller gets."""


def arguments(service: str, number: int) -> dict[str, Any]:
    """What the n-th request to a service is."""
    call = CALLS[service]
    return {**call, "url": call["url"].format(number=number % CHANNELS)}


@asynccontextmanager
async def bare(service: str, url: str, redis: str) -> AsyncIterator[Call]:
    """No limiter: what the server refuses is lost."""
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer 1"}, timeout=30) as client:

        async def call(number: int) -> int:
            return (await client.request(**arguments(service, number))).status_code

        yield call


@asynccontextmanager
async def ours(service: str, url: str, redis: str) -> AsyncIterator[Call]:
    """``AdaptiveTransport`` with the profile of the service."""
    from asgi_ratelimit import AdaptiveTransport
    from asgi_ratelimit.profiles import aimd

    profile = aimd(1, 1000) if service == HIDDEN else service
    options: dict[str, Any] = {"profile": profile, "store": redis or None}
    if service == HIDDEN:
        options["retries"] = 3
    transport = AdaptiveTransport(httpx.AsyncHTTPTransport(), **options)
    headers = {"authorization": "Bearer 1"}
    async with httpx.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=30) as client:

        async def call(number: int) -> int:
            return (await client.request(**arguments(service, number))).status_code

        yield call


@asynccontextmanager
async def adaptive_rate_limiter(service: str, url: str, redis: str) -> AsyncIterator[Call]:
    """The scheduler in its mode "intelligent" with a state manager; the bucket that it discovers has the true limit."""
    from adaptive_rate_limiter import TEXT, RequestMetadata
    from adaptive_rate_limiter.backends import MemoryBackend, RedisBackend
    from adaptive_rate_limiter.scheduler import RateLimiterConfig, StateConfig, StateManager, create_scheduler

    provider, numbers = provider_of_openai(), count()
    scheduler = create_scheduler(
        client=Client(url),
        mode="intelligent",
        config=RateLimiterConfig(max_concurrent_executions=100, max_queue_size=1000),
        provider=provider,
        classifier=Classifier(),
        state_manager=StateManager(
            RedisBackend(redis, namespace="bench") if redis else MemoryBackend(namespace="bench"),
            StateConfig(namespace="bench", is_production=True),
            provider,
        ),
    )
    headers = {"authorization": "Bearer 1"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client, scheduler:

        async def call(number: int) -> int:
            async def send() -> Any:
                response = await client.request(**arguments(service, number))
                if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                    raise RateLimitError(response)
                return {"status": response.status_code, "_response_headers": dict(response.headers)}

            metadata = RequestMetadata(f"{os.getpid()}-{next(numbers)}", "small", TEXT, estimated_tokens=30)
            scheduled = await scheduler.submit_request(metadata, send)
            try:
                return int((await scheduled.request.future)["status"])
            except RateLimitError as error:
                return error.status_code

        yield call


def provider_of_openai() -> Any:
    """What adaptive-rate-limiter is told of OpenAI's stand-in."""
    from adaptive_rate_limiter import DiscoveredBucket, ProviderInterface, RateLimitInfo

    class Provider(ProviderInterface):  # type: ignore[misc]
        name = "openai"

        async def discover_limits(self, *_: Any, **__: Any) -> Any:
            return {"default": DiscoveredBucket("default", rpm_limit=RATE * 60, tpm_limit=60_000_000)}

        def parse_rate_limit_response(self, *_: Any, **__: Any) -> Any:
            return RateLimitInfo()

        async def get_bucket_for_model(self, *_: Any, **__: Any) -> str:
            return "default"

    return Provider()


class Client:
    """What adaptive-rate-limiter knows of the client."""

    timeout = 30.0

    def __init__(self, url: str) -> None:
        self.base_url = url

    def get_headers(self) -> dict[str, str]:
        return {"authorization": "Bearer 1"}


class Classifier:
    """Its classifier, which has nothing to say here."""

    async def classify(self, request: Any) -> Any:
        return request


class RateLimitError(Exception):
    """How adaptive-rate-limiter is told of a refusal."""

    def __init__(self, response: httpx.Response) -> None:
        self.status_code, self.cached_rate_limit_headers = 429, dict(response.headers)


class Over(Exception):
    """The time is over."""


MODULES = {
    "ours": ("asgi_ratelimit", "asgi_ratelimit.profiles", "redis.asyncio"),
    "adaptive-rate-limiter": ("adaptive_rate_limiter.scheduler", "adaptive_rate_limiter.backends"),
    "adaptive-concurrency": ("adaptive_concurrency.aio",),
}
"""What each library imports; importing it is not measured."""

LIBRARIES: dict[str, Callable[[str, str, str], AbstractAsyncContextManager[Call]]] = {
    "no limiter": bare,
    "ours": ours,
    "adaptive-rate-limiter": adaptive_rate_limiter,
}


async def keep_busy(library: str, service: str, url: str, redis: str, seconds: float) -> dict[str, float]:
    """Make calls for so many seconds; returns how many there were, and how many were lost or stuck."""
    statuses: Counter[str] = Counter()
    numbers = count()
    async with LIBRARIES[library](service, url, redis) as call:
        end = time.monotonic() + seconds

        async def work() -> None:
            while time.monotonic() < end:
                try:
                    statuses[str(await call(next(numbers)))] += 1
                except Exception as error:  # noqa: BLE001  # whatever it is, the call is lost
                    statuses[type(error).__name__] += 1

        tasks = [asyncio.create_task(work()) for _ in range(CALLERS)]
        _, stuck = await asyncio.wait(tasks, timeout=seconds + GRACE_S)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return result(statuses, len(stuck))


def result(statuses: Counter[str], stuck: int) -> dict[str, float]:
    """What the parent process reads."""
    calls = sum(statuses.values())
    return {"calls": calls, "lost": calls - statuses["200"], "stuck": stuck, "cpu": time.process_time()}


async def adaptive_concurrency(service: str, url: str, seconds: float) -> dict[str, float]:
    """The runner with a rate limiter and its cooldowns, set up as in the part "Rate limits" of its documentation."""
    from adaptive_concurrency import AdaptiveConfig, RateLimiter
    from adaptive_concurrency.aio import arun_adaptive

    limiter = RateLimiter(max_per_sec=RATE * 50 / 30, breach_base_cooldown=0.5, breach_max_doublings=1)
    statuses: Counter[str] = Counter()
    end = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer 1"}, timeout=30) as client:

        async def call_api(batch: list[int]) -> tuple[bool, int, str]:
            if time.monotonic() >= end:
                raise Over
            status = (await client.request(**arguments(service, batch[0]))).status_code
            statuses[str(status)] += 1
            if status == httpx.codes.TOO_MANY_REQUESTS:
                limiter.report_breach()
            return status == httpx.codes.OK, 1, f"HTTP {status}"

        config = AdaptiveConfig(workers=4, max_workers=CALLERS, batch_size=1, rate_limiter=limiter)
        config.max_consecutive_failures = 1_000_000
        try:
            async with asyncio.timeout(seconds + GRACE_S):
                await arun_adaptive(range(round(seconds * RATE * 4)), call_api, config)
        except Over:
            return result(statuses, 0)
        except TimeoutError:
            return result(statuses, 1)
    return result(statuses, 0)


def main(library: str, service: str, url: str, redis: str, seconds: str) -> None:
    """Make the calls of one process."""
    logging.disable(logging.CRITICAL)
    for module in MODULES.get(library, ()):
        import_module(module)
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.process_time()
    if library == "adaptive-concurrency":
        done = asyncio.run(adaptive_concurrency(service, url, float(seconds)))
    else:
        done = asyncio.run(keep_busy(library, service, url, redis, float(seconds)))
    print(json.dumps({**done, "cpu": done["cpu"] - before}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
