"""The watching of overrides: it outlives event loops, starts again in forked children, and ends with its users."""

from __future__ import annotations

import asyncio

import pytest

from asgi_ratelimit import Limiter, Overrides, RedisStore
from asgi_ratelimit.background import Repeating
from tests.support.overriding import until
from tests.support.programs import outcome_of


@pytest.mark.redis
def test_a_program_ends_without_complaints(redis_url: str) -> None:
    """If it has closed its stores, nothing of the watching is left to be complained of."""
    program = """
        import asyncio, sys
        from asgi_ratelimit import Limiter, SyncLimiter

        async def main():
            async with Limiter("5/hour", store=sys.argv[1]) as limiter:
                print(bool(await limiter.rate_limit("key")))

        asyncio.run(main())
        with SyncLimiter("5/hour", store=sys.argv[1], name="other") as limiter:
            print(bool(limiter.rate_limit("key")))
    """
    assert outcome_of(program, redis_url) == (0, "True\nTrue\n", "")


@pytest.mark.redis
def test_a_forked_child_watches_by_itself(redis_url: str) -> None:
    """And so does its parent; a child on memory is not disturbed."""
    program = """
        import asyncio, os, sys, time
        from asgi_ratelimit import MemoryStore, Overrides, RedisStore, SyncLimiter

        limiter = SyncLimiter("5/hour", store=RedisStore(sys.argv[1], timeout=20), name="api")
        limiter.rate_limit("key")
        own = MemoryStore()
        timed = SyncLimiter("5/hour", store=own)
        asyncio.run(Overrides(own).set("default", "7/hour", seconds=1))
        child = os.fork()
        limiter.rate_limit("key")
        if child:
            async def change():
                async with Overrides(sys.argv[1]) as overrides:
                    await overrides.set("api", "9/hour")
            asyncio.run(change())

        def until(is_so):
            deadline = time.monotonic() + 30
            while not is_so():
                assert time.monotonic() < deadline
                time.sleep(0.01)

        until(lambda: limiter.peek("new").quota.limit == 9)
        until(lambda: timed.peek("new").quota.limit == 5)
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        limiter.close()
        os._exit(0) if not child else None
    """
    code, printed, complaints = outcome_of(program, redis_url)
    assert (code, printed) == (0, "0\n"), complaints
    assert "Traceback" not in complaints


def test_event_loops_come_and_go(redis_url: str) -> None:
    """Also those that are closed without their store; the override is known to the next one."""
    store = RedisStore(redis_url, timeout=30, on_error="deny")
    limiter = Limiter("5/hour", store=store, name="api")

    async def use() -> float:
        decision = await limiter.rate_limit("key", 0.1)
        await store.aclose()
        return decision.quota.limit

    async def change() -> None:
        async with Overrides(redis_url) as overrides:
            await overrides.set("api", "9/hour")

    assert asyncio.run(use()) == asyncio.run(use()) == 5
    asyncio.run(change())

    async def use_until_changed() -> None:
        await limiter.rate_limit("key", 0.1)
        await until(lambda: limiter.quotas[0].limit == 9)
        await store.aclose()

    asyncio.run(use_until_changed())
    assert asyncio.run(use()) == 9


class Work(Repeating):
    """Work that fails each time."""

    runs = closed = 0

    def __init__(self) -> None:
        super().__init__(lambda: self)

    async def run(self) -> float:
        self.runs += 1
        raise RuntimeError("no work today")

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.anyio
async def test_work_that_fails_goes_on(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is logged, and the work is done again."""
    monkeypatch.setattr("asgi_ratelimit.background.EVERY", 0.01)
    failing = Work()
    failing.start()
    failing.start()
    await until(lambda: failing.runs > 3)
    assert "what is done in the background failed: RuntimeError('no work today')" in caplog.text
    await failing.end()
    assert failing.closed == 1
