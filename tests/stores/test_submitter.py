"""``submitter``: one take, with as little waiting as the store allows."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest

from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, submitter

pytestmark = pytest.mark.anyio

TAKE = Take((Charge(TokenBucket(10, 3600), "key"),))


def test_the_memory_store_decides_at_once() -> None:
    """There is nothing to await."""
    decision = submitter(MemoryStore())(TAKE)
    assert isinstance(decision, Decision)
    assert decision.remaining == 9


async def test_redis_is_awaited(redis_url: str) -> None:
    """The decision is that of ``take``."""
    store = RedisStore(redis_url, timeout=30)
    pending = submitter(store)(TAKE)
    assert inspect.isawaitable(pending)
    assert (await pending).remaining == 9
    await store.aclose()


class CustomStore(MemoryStore):
    """A store of somebody else, which has ``take`` but not ``submit``."""

    submit = None  # type: ignore[assignment]

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take."""
        return [MemoryStore.submit(self, take) for take in takes]


async def test_a_store_without_submit_is_awaited() -> None:
    """Its ``take`` is called with this one take."""
    submit = submitter(CustomStore())
    decisions = [submit(TAKE), submit(TAKE)]
    assert [(await decision).remaining for decision in decisions if inspect.isawaitable(decision)] == [9, 8]
