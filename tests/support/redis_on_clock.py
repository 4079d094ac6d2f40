"""A ``RedisStore`` on a stepped clock, whose event loop does not wait for sockets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from asgi_ratelimit import RedisStore
from asgi_ratelimit.background import background_loop
from asgi_ratelimit.testing import SteppedClock


class Blocking:
    """An object whose methods run on another event loop, and block this one until they are done."""

    def __init__(self, there: Any) -> None:
        self._there = there

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._there, name)
        if name != "take" and not iscoroutinefunction(member):
            return member

        async def call(*arguments: Any, **options: Any) -> Any:
            return background_loop.run(_answer(partial(member, *arguments, **options)))

        return call


class RedisOnClock(Blocking):
    """A real Redis whose answers take no time of the clock."""

    def __init__(self, url: str, clock: SteppedClock) -> None:
        super().__init__(RedisStore(url, clock=clock, on_error="deny"))
        self.documents = Blocking(self._there.documents)

    def __repr__(self) -> str:
        return repr(self._there)

    def close(self) -> None:
        """Close its connections."""
        background_loop.run(self._there.aclose())


async def _answer(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if isawaitable(result) else result
