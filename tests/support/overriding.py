"""What tests wait for, and what those of live overrides share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from asgi_ratelimit import Limiter

# Seconds after which a test gives up waiting for what is a matter of one second.
PATIENCE = 60.0


async def until(is_so: Callable[[], Any]) -> None:
    """Return when it is so; ``TimeoutError`` if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come about: {is_so}")
        await asyncio.sleep(0.01)


async def until_async(is_so: Callable[[], Awaitable[Any]]) -> None:
    """``until`` for what has to be awaited."""
    deadline = time.monotonic() + PATIENCE
    while not await is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come about: {is_so}")
        await asyncio.sleep(0.01)


async def until_back(limiter: Limiter, key: str = "probe", cost: float = 0.001, *, is_out: bool = False) -> None:
    """Take until the store decides again, or, with ``is_out``, until it is out."""

    async def is_so() -> bool:
        return (await limiter.rate_limit(key, cost)).degraded == is_out

    await until_async(is_so)


def rewrite(path: Path, text: str) -> None:
    """Give a file that is watched another text in one step: nobody reads it while it is empty."""
    written = path.with_suffix(".new")
    written.write_text(text)
    written.replace(path)
