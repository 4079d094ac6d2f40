"""The event loop on which synchronous callers use asynchronous stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from asgi_ratelimit import ConfigurationError, MemoryStore, pace
from asgi_ratelimit.background import background_loop
from tests.support.store_elsewhere import StoreElsewhere


async def waits() -> int:
    await asyncio.sleep(0)
    return 5


async def where() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    return asyncio.get_running_loop(), threading.current_thread()


@pace("10/s", store=StoreElsewhere(MemoryStore()))
def paced() -> None: ...


@pytest.mark.parametrize("call", [lambda: background_loop.run(where()), paced], ids=["run", "wait"])
def test_a_call_that_would_wait_for_itself_raises(call: Callable[[], object]) -> None:
    """In an asynchronous hook, which is awaited on the loop, it would hang, and with it all calls without async."""

    async def hook() -> None:
        call()

    errors: list[BaseException] = []

    def calls() -> None:
        try:
            background_loop.run(hook())
        except ConfigurationError as error:
            errors.append(error)

    thread = threading.Thread(target=calls, daemon=True)
    thread.start()
    thread.join(15)
    assert "would wait for ever" in str(errors)


def test_under_gevent_calls_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """All of its greenlets share one thread of the system, so the loop seems to run wherever it is called from."""
    asyncio._set_running_loop(background_loop.loop())
    try:
        assert background_loop.run(waits()) == 5
        paced()
        paced()
    finally:
        asyncio._set_running_loop(None)
    assert not caplog.records
