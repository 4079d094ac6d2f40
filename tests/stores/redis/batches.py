"""A ``GroupCommit`` whose server is the test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from asgi_ratelimit.stores.redis.batching import Finish, GroupCommit


@dataclass
class Call:
    """One call of ``send``, which finishes when the test says so."""

    items: list[int]
    submitted: float
    finish: Finish[str]
    answer: asyncio.Future[Sequence[str]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def succeed(self) -> None:
        self.answer.set_result([f"result of {item}" for item in self.items])

    def fail(self, error: Exception) -> None:
        self.answer.set_exception(error)


class Server:
    """The other end of a ``GroupCommit``: records all calls."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[Call] = []
        self.fallbacks: dict[int, str] = {}
        self.early: dict[int, str] = {}
        self.resent: set[int] = set()
        self.group: GroupCommit[int, str] = GroupCommit(
            self._send, self._fallback, self._answer_early, resends=self._resends, **options
        )

    def _send(self, items: list[int], submitted: float, finish: Finish[str]) -> None:
        self.calls.append(Call(items, submitted, finish))
        self.calls[-1].answer.add_done_callback(lambda answer: finish(answer.exception() or answer.result()))

    def _fallback(self, item: int, error: Exception) -> str:
        if item in self.fallbacks:
            return self.fallbacks.pop(item)
        raise error

    def _resends(self, item: int, error: Exception) -> bool:
        return item in self.resent and isinstance(error, OSError)

    def _answer_early(self, items: Sequence[int]) -> list[str | None] | None:
        return [self.early.get(item) for item in items] if self.early else None

    @property
    def batches(self) -> list[list[int]]:
        """The items of each call."""
        return [call.items for call in self.calls]


class FailingLookup(dict[int, str]):
    """Early answers that cannot be looked up."""

    def __bool__(self) -> bool:
        raise ZeroDivisionError


async def settle_down() -> None:
    """Let all tasks run until each of them waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


async def outcomes(*results: asyncio.Future[str]) -> list[str | BaseException]:
    """The result or the error of each future: none may stay pending."""
    async with asyncio.timeout(60):
        return await asyncio.gather(*results, return_exceptions=True)
